//! What waits after the hub was restored from an older store.
//!
//! Nothing is remembered here that a restart would lose: the agents' leases say who has sorted out its runs.

use fleet_hub_core::world::Dirty;
use jiff::Timestamp;
use tokio::time::Instant;

use super::Process;

impl Process {
    /// Whether jobs may be looked at. A hub that was restored has forgotten what it sent meanwhile: until each agent has
    /// removed what the hub knows nothing of, anything that is started might run a second time.
    pub(super) fn may_go_on(&mut self) -> bool {
        let unsorted = self.world.unsorted_clusters();
        if unsorted == self.unsorted {
            return self.unsorted.is_empty();
        }
        match unsorted.is_empty() {
            true => tracing::info!("every agent has sorted out its runs; going on"),
            false => tracing::warn!(
                clusters = ?unsorted,
                "the hub was restored: waiting for agents to remove what it knows nothing of"
            ),
        }
        self.unsorted = unsorted;
        if self.unsorted.is_empty() {
            std::mem::take(&mut self.deferred).into_iter().for_each(|dirty| self.world.mark(dirty));
        }
        self.unsorted.is_empty()
    }

    /// Looks at clusters, and puts off the rest.
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
