//! Lanes: the objects to which writes belong.

use fleet_hub_core::{
    world::{Dirty, Key},
    writes::Write,
};

use crate::writes::Sent;

/// The object to which a batch of writes belongs; each has one batch in flight at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    Reconcile(Dirty),
    /// Reservations and binds, concurrent with other writes of the same binding.
    Place(Key),
    Summaries,
    /// Events, for which nothing waits.
    Events,
}

/// A write that has been answered.
pub(super) struct Flight {
    pub lane: Lane,
    /// The Work that it creates.
    pub work: Option<Key>,
    /// Uid of the object that it deletes.
    pub deletes: Option<String>,
    /// Writes to send after it.
    pub then: Vec<Write>,
    /// The hub's answer.
    pub sent: Sent,
}
