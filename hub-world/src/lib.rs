//! What the hub's controller knows and what it writes, as data: observations -> [`world`], and [`writes`].
//!
//! [`world`] caches and indexes the hub's objects, with each binding parsed once, and names what must be reconciled.
//! Deliberately absent: decisions, which are `hub-core`, and any state that a restart could not rebuild by listing.

pub mod binding;
pub mod events;
pub mod observation;
pub mod queue_place;
pub mod world;
pub mod writes;

pub use fleet_api::{conditions as status, kinds};
