//! What requests do to objects: read, watch, write, patch, apply, delete, and the actions on subresources.
//!
//! Inputs: resolved calls. Absent on purpose: HTTP paths and identities (see `door`, `access`), rules of single kinds (see `kinds`).

pub mod action;
pub mod addresses;
pub mod api_services;
mod apply;
pub mod bind;
pub mod body;
pub mod connect;
pub mod crd;
pub mod delete;
pub mod direct;
pub mod evict;
mod foreign;
pub mod garbage;
pub mod managed;
pub mod namespaces;
pub mod read;
pub mod removal;
mod resized;
pub mod reviews;
pub mod settle;
pub mod token;
pub mod versions;
pub mod watch;
pub mod write;
