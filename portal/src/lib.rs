//! What people see and do of jobs beside kubectl: OpenPAI's jobs over the hub's objects.
//!
//! `rest` serves them to tools that speak OpenPAI's REST API; `jobs` reads, submits and stops them with whatever credential its [`server::Server`] has, so that nobody does more
//! than the hub lets him. Deliberately absent: state of its own; everything stands in objects of the hub.

pub mod cells;
pub mod jobs;
pub mod rest;
pub mod server;
