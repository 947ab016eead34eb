//! The fault simulation: controller, agents and hollow nodes over embedded API servers, in one process on a paused
//! clock, with faults between them.
//!
//! Inputs: a scenario file or a seed ([`SimulationPlan`]). Output: the log, and every invariant that broke
//! ([`Outcome`]). The processes are the production ones and do not know that they are simulated; each talks to the
//! servers through the fault layer of `fleet-apiserver`. The same plan gives the same run. Deliberately absent: any
//! rule of the product; `fleet_check` states what is right.

mod draw;
mod lies;
mod network_faults;
mod observe;
mod people;
mod plan;
mod quotas;
mod random;
mod run;
mod scenario_run;
mod shrink;
mod sim;

pub use observe::{Line, ObservedViolation};
pub use people::People;
pub use plan::{EXPECT_LABEL, Event, Lie, Process, Rates, Server, Side, SimulationPlan, Way, What};
pub use run::{Outcome, run_plan};
pub use scenario_run::run;
pub use shrink::shrink;
