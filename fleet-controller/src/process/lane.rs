//! What writes belong to.

use fleet_hub_core::{
    world::{Dirty, Key},
    writes::Write,
};

use crate::writes::Sent;

/// What a batch of writes belongs to; there is one batch at a time for each.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    Look(Dirty),
    /// Reserving and binding, beside the looks at the same binding.
    Place(Key),
    Summaries,
    /// Events, which nothing waits for.
    Tell,
}

/// A write that has come back.
pub(super) struct Flight {
    pub lane: Lane,
    /// The Work that it was to make.
    pub work: Option<Key>,
    /// Uid of what it was to delete.
    pub deletes: Option<String>,
    /// What follows it.
    pub then: Vec<Write>,
    /// What the hub said.
    pub sent: Sent,
}
