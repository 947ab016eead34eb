//! Scenarios and traces on a virtual clock: the production planner, members that are plain data.
//!
//! The planner decides, the production solver places, the controller's own code reads objects; only the way
//! between hub and members is played here: a reservation is answered, a Work arrives and a status comes back in no
//! time at all while hub and agent can talk, and not at all while they cannot. Leases, fencing and failover follow
//! the bounds of the processes' own options. Deliberately absent: API servers, pods, and any delay of writes; that
//! is mode whole.

mod check;
mod engine;
mod faults;
mod hub;
mod inputs;
mod judge;
mod member;
mod runs;
#[cfg(test)]
mod tests;

pub use engine::{RunError, Stats, run, run_trace};
pub(crate) use hub::{JobSpec, RunPlans};
