//! The server with its clients, and through kills and restores. One program, because each linked test costs time and disk.

// Some literals are deep.
#![recursion_limit = "256"]

#[path = "conformance/api.rs"]
mod api;
mod clients;
mod doors;
mod fuzz;
mod helm;
mod http;
mod kill;
mod kubectl;
mod restore;
mod wings;
