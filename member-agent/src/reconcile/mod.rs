//! The machinery under the loops of this room: mirrors of what a watch shows, and queues of keys.
//!
//! Deliberately absent: any decision about an object.

mod mirror;
mod queue;

pub(crate) use mirror::{ObjectKey, Shown, Turn, check, follow, key_of, show, take};
pub(crate) use queue::{Next, Queue};
