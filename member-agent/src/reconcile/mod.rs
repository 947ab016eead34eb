//! The machinery under the loops of this room: mirrors of what a watch shows, and queues of keys.
//!
//! Deliberately absent: any decision about an object.

mod mirror;
mod queue;

pub(crate) use mirror::{Change, ObjectKey, Stored, follow, key_of};
pub(crate) use queue::{Next, Queue};
