//! The hub process: gather -> plan -> check -> send.
//!
//! One task owns everything known of the hub ([`fleet_hub_core::world`]). It takes in what the watches saw and what its
//! own writes were answered, looks again at whatever that touches, and sends the writes that the rules ask for. Writes
//! run side by side, at most one batch per thing looked at. Deliberately absent: the rules themselves
//! ([`fleet_hub_core`]), and any state that a restart could not rebuild by listing.

mod callers;
mod discovery;
pub mod election;
pub mod gather;
mod metrics;
mod options;
mod process;
mod serve;
mod views;
pub mod writes;

pub use election::Election;
pub use metrics::Metrics;
pub use options::Options;
pub use process::run;
pub use serve::{serve, serve_on};
pub use views::Views;
