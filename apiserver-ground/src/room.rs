//! Room of a simulated disk: so many bytes that the objects of a store may still grow by.
//!
//! A store in memory meets a full disk by it as one on disk does: what needs room is refused, what frees room is not
//! (see `disk::reserve`).

use std::sync::{Mutex, PoisonError};

/// Bytes that are left; none: there is no limit.
#[derive(Debug, Default)]
pub struct Room(Mutex<Option<i64>>);

impl Room {
    /// Sets what is left.
    pub fn limit(&self, bytes: Option<u32>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = bytes.map(i64::from);
    }

    /// Takes so many bytes, or gives them back. False: there is not so much room, and nothing is taken; what frees room
    /// in the end is always taken.
    pub fn take(&self, growth: i64, frees: bool) -> bool {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(bytes) = left.as_mut() else { return true };
        if growth > *bytes && !frees {
            return false;
        }
        *bytes = bytes.saturating_sub(growth);
        true
    }
}
