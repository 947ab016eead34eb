//! What the hub's controller knows and decides, without the process around it: observations -> world -> rules -> writes.
//!
//! [`world`] is told of the hub's objects; the rules are functions of it and of the time, and return the writes that
//! they ask for; [`schedule`] asks the planner who is admitted and where to. Deliberately absent: tasks, clients, clocks, and any
//! state that a restart could not rebuild by listing.

mod asked;
pub mod binding;
pub mod claim;
pub mod cluster;
pub mod dispatch;
pub mod drain;
pub mod events;
mod governor;
pub mod intents;
pub mod kinds;
pub mod manifests;
pub mod observation;
pub mod options;
pub mod policy;
mod restore;
pub mod schedule;
pub mod sent;
pub mod spread;
pub mod status;
pub mod tree;
pub mod trees;
pub mod unclaimed;
pub mod unqueued;
pub mod virtual_clusters;
pub mod wishes;
pub mod world;
pub mod writes;

pub use fleet_planner as planner;
pub use options::Options;
