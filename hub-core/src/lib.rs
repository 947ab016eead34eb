//! Decisions of the hub's controller: observations -> world -> rules -> writes.
//!
//! [`world`], a crate of its own, caches and indexes the hub's objects. Reconcilers are pure functions of (world, now)
//! and return writes. [`schedule`] asks the planner which job is admitted and to which cluster. Deliberately absent:
//! tasks, clients, clocks, and any state that a restart could not rebuild by listing.

mod asked;
pub mod claim;
pub mod cluster;
pub mod dispatch;
pub mod drain;
pub mod facts;
pub mod forms;
mod governor;
pub mod intents;
pub mod manifests;
pub mod options;
mod pod_scheduling;
pub mod policy;
mod priority;
mod run_time;
pub mod schedule;
pub mod sent;
pub mod spread;
pub mod tree;
pub mod trees;
pub mod unclaimed;
pub mod unqueued;
pub mod virtual_clusters;

pub use fleet_api::{conditions as status, kinds};
pub use fleet_hub_world::{binding, events, observation, queue_place, world, writes};
pub use fleet_planner as planner;
pub use options::Options;
