//! Reservations: places for all components of a binding, held on real nodes.
//!
//! `book` decides, as a pure state machine; `write` writes the copy in the member and the answer on the hub.

pub(crate) mod book;
pub(crate) mod entry;
pub(crate) mod write;
