//! Scenarios and traces on a virtual clock: the production planner over members that are plain data.
//!
//! The planner decides, the production solver places, the controller's own code reads objects. Only the link
//! between hub and members is simulated: while hub and agent can talk, reservations are answered and Works and
//! statuses arrive at once; while they cannot, never. Leases, fencing and failover follow the default options of
//! the processes. Deliberately absent: API servers, pods, and delays of writes; mode whole has those.

mod check;
mod edits;
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
