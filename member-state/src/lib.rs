//! The agent's cache of its member: nodes with their use, pods, holds and gangs, kept up to date by events,
//! and the parsing of the member's objects. It includes the scheduler's own view
//! ([`fleet_scheduler::Cluster`]).
//!
//! Deliberately absent: a clock, IO, and placement decisions.

mod amounts;
pub mod devices;
mod extras;
pub mod numa;
mod shape;
mod state;

pub use amounts::amounts;
pub use shape::shape;
pub use state::*;
