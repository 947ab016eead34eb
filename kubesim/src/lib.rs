//! Simulated members: hollow nodes whose pods run by the clock alone, and a whole fleet in one process.
//!
//! Inputs: Kubernetes clients (any conformant server) and small plain specs. Not here: scheduling, job
//! controllers and quota. Those are the production crates, which this crate only starts.

pub mod hollow;
pub mod local_fleet;
pub mod plays;
pub mod shared;
pub mod stages;
pub mod standins;

pub use fleet_simulator::RunTime;
pub use local_fleet::{
    FleetSpec, Listen, LocalFleet, MemberSpec, RequestKind, Requests, StartError, node_name,
};
