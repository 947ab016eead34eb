//! One informer cache, for the hub and for members: the objects of one kind that an API server holds, from lists,
//! watch events and answers to own writes, in any order in which they can arrive.
//!
//! Inputs: [`Change`]s. Output: a [`Mirror`], read as a map, and the keys that changed. A list is compared with the
//! cache by its own version: an object that was known at that version or before, and is not in the list, is
//! deleted; an object from a later version stays. A list that contradicts the cache shows that the store was
//! restored. It then replaces the cache, whatever its versions. Deliberately absent: requests, time, tasks, and any
//! rule about an object. A restart loses the whole cache, and lists again.

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
