//! The actions of a cycle.

mod allocate;
pub(crate) mod asked;
mod backfill;
mod claims;
mod domains;
mod enqueue;
mod explain;
mod pack;
mod place;
mod preempt;
mod promises;
mod spare;
mod stopped;
mod victims;
