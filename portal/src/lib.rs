//! What people see of a fleet in a browser.
//!
//! `web` serves the pages and their JSON, made from what `board` follows of the hub and shown to each user as far as the
//! hub's RBAC lets him see it; `time` shows the same of a run log. `fleet-pages` draws them. Deliberately absent: state of its own; everything
//! stands in objects of the hub.

pub mod board;
pub mod explain;
pub mod kinds;
pub mod time;
pub mod web;

pub use fleet_pages::report;
