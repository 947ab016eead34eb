//! Follows one kind on an API server: lists it, watches it from there, and reports each change as a
//! [`fleet_mirror::Change`]. Notices when the server was restored.
//!
//! A list is reported with its own version, after the server was asked for its incarnation once more. Deliberately
//! absent: any cache of objects (the mirror), and any decision about them.

mod feed;
mod lenient;
mod source;

use std::time::Duration;

use kube::Resource;

pub use feed::{Feed, News, Selection};
pub use fleet_mirror::{INCARNATION_ANNOTATION, Kube};
pub use lenient::list_page;
pub use source::Source;

/// Drops managedFields: nothing here reads them, and they are half of an object in memory.
pub fn without_managers<K: Resource>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    object
}

/// Pauses between attempts: [`fleet_mirror::Backoff`], slept.
#[derive(Clone, Debug)]
pub struct Backoff(fleet_mirror::Backoff);

impl Backoff {
    /// `name` gives the seed.
    pub fn new(name: &str) -> Self {
        Self(fleet_mirror::Backoff::new(name))
    }

    pub fn reset(&mut self) {
        self.0.reset();
    }

    pub fn next_delay(&mut self) -> Duration {
        self.0.next_delay()
    }

    /// Sleeps for the next delay.
    pub async fn wait(&mut self) {
        tokio::time::sleep(self.next_delay()).await;
    }
}

/// Longest wait for a page of a listing.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
