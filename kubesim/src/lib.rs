//! Simulated members: hollow nodes whose pods run by the clock alone, a whole fleet in one process, and scenarios.
//!
//! Inputs: Kubernetes clients (any conformant server) and small plain specs. Deliberately absent: scheduling, job
//! controllers and quota. Those are the production crates, which this one only starts.

pub mod cells;
pub mod fast;
pub mod hollow;
pub mod local_fleet;
pub mod plays;
pub mod run_plan;
pub mod scenario;
pub mod shared;
pub mod stages;
pub mod standins;
pub mod traces;
pub mod whole;

pub use local_fleet::{Asked, FleetSpec, Listen, LocalFleet, MemberSpec, Requests, StartError};
pub use run_plan::RunTime;
pub use scenario::Scenario;
