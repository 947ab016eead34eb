//! The commands over member clusters: `fleet clusters`, `status`, `join`, `unjoin`, `cordon`, `uncordon`, `drain`.
//!
//! Inputs: a connection to the hub, and for join and unjoin one to the member. They write Clusters, and what an agent
//! needs on both sides. Deliberately absent: what moves a job off a cluster, which the controller does.

pub mod args;
pub mod clusters;
pub mod cordon;
mod cut_off;
mod definitions;
pub mod drain;
mod install;
pub mod join;
mod leaving;
pub mod status;
pub mod unjoin;
