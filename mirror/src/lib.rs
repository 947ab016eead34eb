//! One informer cache, for the hub and for members: what an API server holds of one kind, as listings, watch events
//! and the answers to own writes tell it, in any order in which they can arrive.
//!
//! Inputs: [`Change`]s. Output: a [`Mirror`], read as a map, and which keys changed. A listing is compared with what
//! is known by its own version: what it does not name and what is known at that version or before is gone; what is
//! known from beyond it stays. A listing that contradicts what is known shows that the store went back in time: then
//! it is the truth, whatever its versions. Deliberately absent: requests, time, tasks, and any rule about an object.

mod backoff;
mod change;
mod ended;
#[cfg(feature = "kube")]
mod kube;
mod store;
mod version;

pub use backoff::Backoff;
pub use change::{Change, Listing, Metadata};
#[cfg(feature = "kube")]
pub use kube::{INCARNATION_ANNOTATION, Kube};
pub use store::{Changed, Epoch, Mirror, Outcome};
pub use version::Version;

/// Namespace (empty for cluster-scoped objects) and name.
pub type Key = (String, String);
