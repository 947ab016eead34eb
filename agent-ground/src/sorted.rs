//! Whether every run in the member has a Work on the hub: set by `works`, reported to the hub with the lease.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

#[derive(Clone, Debug, Default)]
pub struct Sorted(Arc<AtomicBool>);

impl Sorted {
    /// Records that every run in the member has a Work on the hub.
    pub fn note(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub fn is_noted(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
