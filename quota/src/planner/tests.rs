//! What tests ask of the planner, and tell it.

use std::collections::BTreeSet;

use super::state::Planner;

impl Planner {
    /// Entries that whoever frees quota may have to walk.
    pub(crate) fn listed_under_limits(&self) -> usize {
        self.index.bounds.values().map(BTreeSet::len).sum()
    }

    /// As if so many jobs had been preempted by share at this time.
    pub(crate) fn note_shared(&mut self, at_ms: i64, times: usize) {
        self.shared.extend(std::iter::repeat_n(at_ms, times));
    }
}
