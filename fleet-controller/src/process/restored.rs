//! Waiting after the hub was restored from an older store.
//!
//! Nothing is kept here that a restart would lose: the agents' leases show who has removed unknown runs.

use fleet_hub_core::world::Dirty;
use jiff::Timestamp;
use tokio::time::Instant;

use super::Process;

impl Process {
    /// Whether jobs may be reconciled. A restored hub has forgotten what it sent after the backup: until each
    /// agent has removed the runs that the hub does not know, a started job might run twice.
    pub(super) fn may_go_on(&mut self) -> bool {
        let unsorted = self.world.unsorted_clusters();
        if unsorted == self.unsorted {
            return self.unsorted.is_empty();
        }
        match unsorted.is_empty() {
            true => tracing::info!("every agent has removed unknown runs; resuming"),
            false => tracing::warn!(
                clusters = ?unsorted,
                "the hub was restored: waiting for agents to remove runs that it does not know"
            ),
        }
        self.unsorted = unsorted;
        if self.unsorted.is_empty() {
            std::mem::take(&mut self.deferred).into_iter().for_each(|dirty| self.world.mark(dirty));
        }
        self.unsorted.is_empty()
    }

    /// Reconciles clusters, and defers everything else.
    pub(super) fn look_at_clusters(&mut self, at: Instant, now: Timestamp) {
        for dirty in self.world.take_dirty() {
            match dirty {
                Dirty::Cluster(_) => self.look_at(dirty, at, now),
                dirty => drop(self.deferred.insert(dirty)),
            }
        }
        self.launch();
    }
}
