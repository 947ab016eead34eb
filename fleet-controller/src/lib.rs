//! The hub process: gather -> plan -> check -> send.
//!
//! One task owns the cached state of the hub ([`fleet_hub_core::world`]). It applies observations and the
//! answers to its own writes, reconciles whatever they affect, and sends the writes that the rules return.
//! Writes run concurrently, at most one batch per reconciled object. Deliberately absent: the rules
//! themselves ([`fleet_hub_core`]), and any state that a restart could not rebuild by listing.

mod callers;
mod discovery;
pub mod election;
pub mod gather;
mod metrics;
mod options;
mod process;
mod run_log;
mod serve;
mod views;
pub mod writes;

pub use election::Election;
pub use metrics::Metrics;
pub use options::Options;
pub use process::run;
pub use run_log::{LEAST_SIZE, RunLog, SIZE as RUN_LOG_SIZE};
pub use serve::{serve, serve_on};
pub use views::Views;
