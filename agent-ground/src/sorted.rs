//! Whether nothing runs in the member any more that no Work of the hub names: noted by who applies Works, told to the hub
//! with the lease.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

#[derive(Clone, Debug, Default)]
pub struct Sorted(Arc<AtomicBool>);

impl Sorted {
    /// Nothing runs here any more that no Work of the hub names.
    pub fn note(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub fn is_noted(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
