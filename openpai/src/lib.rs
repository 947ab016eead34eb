//! OpenPAI's jobs and HiveD's cells over a hub's objects.
//!
//! `jobs` reads, submits and stops OpenPAI's jobs with whatever credential its [`server::Server`] has, so that nobody
//! does more than the hub lets him; `cells` reads and draws virtual clusters and says what a new configuration would
//! change; `rest` serves tools that speak OpenPAI's REST API. Deliberately absent: state of its own; everything stands
//! in objects of the hub.

pub mod cells;
pub mod jobs;
pub mod members;
pub mod rest;
pub mod server;
