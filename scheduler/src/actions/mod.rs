//! The actions of a cycle.

mod allocate;
mod backfill;
mod claims;
mod enqueue;
mod explain;
mod preempt;
mod promises;
mod spare;
mod victims;

pub(crate) use allocate::Stopped;
