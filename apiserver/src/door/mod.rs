//! The HTTP side: listeners, paths, media types, discovery documents, metrics.
//!
//! Inputs: HTTP. Absent on purpose: what the verbs do.

pub mod etag;
pub mod faults;
pub mod metrics;
pub mod openapi;
pub mod serve;
pub mod server;
