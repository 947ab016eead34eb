//! The hub process: gather -> plan -> check -> send.
//!
//! One task owns everything known of the hub ([`world`]). It takes in what the watches saw and what its own
//! writes were answered, looks again at whatever that touches, and sends the writes the planners ask for.
//! Planners are functions of the world and the time; writes run side by side, at most one batch per thing
//! looked at. Deliberately absent: any state that a restart could not rebuild by listing.

mod asked;
pub mod binding;
pub mod check;
pub mod claim;
pub mod cluster;
pub mod dispatch;
pub mod drain;
pub mod election;
pub mod events;
pub mod gather;
pub mod kinds;
pub mod manifests;
mod metrics;
mod options;
pub mod planner;
pub mod policy;
mod process;
pub mod schedule;
pub mod sent;
pub mod spread;
pub mod status;
pub mod tree;
pub mod trees;
pub mod unclaimed;
pub mod unqueued;
pub mod world;
pub mod writes;

pub use election::Election;
pub use metrics::Metrics;
pub use options::Options;
pub use process::run;
