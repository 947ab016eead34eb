//! What people see and do of a fleet beside kubectl: pages in a browser, and OpenPAI's jobs over the hub's objects.
//!
//! `web` serves the pages, made from what `board` follows of the hub and shown to each user as far as the hub's RBAC
//! lets him see it. `rest` serves tools that speak OpenPAI's REST API; `jobs` reads, submits and stops its jobs with
//! whatever credential its [`server::Server`] has, so that nobody does more than the hub lets him. Deliberately
//! absent: state of its own; everything stands in objects of the hub.

pub mod board;
pub mod cells;
pub mod explain;
pub mod jobs;
pub mod kinds;
pub mod members;
pub mod report;
pub mod rest;
pub mod server;
pub mod web;
