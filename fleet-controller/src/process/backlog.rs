//! Writes waiting for a free slot.

use std::collections::VecDeque;

use fleet_hub_core::writes::Write;

use super::lane::Lane;

/// Writes that start jobs are sent first: quota and capacity are taken at the decision and stay idle until
/// these writes are sent.
#[derive(Default)]
pub(super) struct Backlog {
    places: VecDeque<(Lane, Write)>,
    others: VecDeque<(Lane, Write)>,
}

impl Backlog {
    pub(super) fn push(&mut self, lane: &Lane, write: Write) {
        let queue = match lane {
            Lane::Place(_) => &mut self.places,
            Lane::Reconcile(_) | Lane::Summaries | Lane::Events => &mut self.others,
        };
        queue.push_back((lane.clone(), write));
    }

    pub(super) fn pop(&mut self) -> Option<(Lane, Write)> {
        self.places.pop_front().or_else(|| self.others.pop_front())
    }

    pub(super) fn len(&self) -> usize {
        self.places.len() + self.others.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty() && self.others.is_empty()
    }
}
