//! OpenPAI's jobs and HiveD's cells over a hub's objects.
//!
//! `jobs` reads, submits and stops OpenPAI's jobs with whatever credential its [`server::Server`] has, so that nobody
//! does more than the hub lets him; `cells` reads and draws virtual clusters and says what a new configuration would
//! change; `users` keeps the users of OpenPAI's REST API as accounts of the hub; `rest` serves tools that speak it. Deliberately absent: state of its own; everything stands
//! in objects of the hub.

pub mod cells;
pub mod jobs;
pub mod members;
pub mod rest;
pub mod server;
pub mod users;
