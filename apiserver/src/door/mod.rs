//! The HTTP side: listeners, paths, media types, discovery documents, metrics.
//!
//! Inputs: HTTP. Absent on purpose: what the verbs do.

pub mod faults;
mod headers;
mod health;
mod issuer;
pub mod metrics;
pub mod serve;
pub mod server;
mod standing;
