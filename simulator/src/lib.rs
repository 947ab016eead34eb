//! What-if: the planner on a virtual clock.
//!
//! Inputs: scenario files and traces. Output: a log of what happened, and its summary. The rules are the production
//! ones; `fast` replaces only what carries them out. `run_plan` is shared with simulated nodes. Deliberately absent:
//! servers, clients and real clocks (see `fault-simulation/` for the same scenarios over the real processes).

pub mod cells;
pub mod fast;
pub mod run_plan;
pub mod scenario;
pub mod sharing;
pub mod traces;

pub use run_plan::RunTime;
pub use scenario::Scenario;
