//! Follows one kind on an API server: lists it, watches it from there, and tells each change as
//! [`fleet_mirror::Change`]; notices when the server's store went back in time.
//!
//! A listing is told with its own version, and after the server was asked once more which incarnation of its state it
//! is. Deliberately absent: any memory of objects (the mirror's), and any decision about them.

mod feed;
mod source;

use std::time::Duration;

use kube::Resource;

pub use feed::{Feed, News, Selection};
pub use fleet_mirror::{INCARNATION_ANNOTATION, Kube};
pub use source::Source;

/// Nobody here asks who manages which field, and it is half of what an object takes in memory.
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
