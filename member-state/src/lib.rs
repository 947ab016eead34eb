//! What the agent knows of its member: nodes with what is used on them, pods, holds and gangs, kept up to date by events,
//! and how objects of the member are read. The scheduler's own view ([`fleet_scheduler::Cluster`]) is part of it.
//!
//! Deliberately absent: a clock, IO, and any decision about who is placed.

mod amounts;
pub mod devices;
mod extras;
pub mod numa;
mod shape;
mod state;

pub use amounts::amounts;
pub use shape::shape;
pub use state::*;
