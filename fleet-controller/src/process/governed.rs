//! The administrators' configuration of the hub: the quota tree and the configuration of cells, and the
//! statuses of their use.

use fleet_hub_core::{tree, virtual_clusters, world::Dirty, writes::Write};
use fleet_quota::QueuePolicy;
use jiff::Timestamp;
use tokio::time::Instant;

use super::{Process, lane::Lane};

impl Process {
    pub(super) fn look_at_tree(&mut self, now: Timestamp) -> Vec<Write> {
        if let Some(change) = self.trees.read(&self.world) {
            let (trouble, intents) = (self.trees.trouble(), &self.intents);
            self.scheduler.set_tree(change, trouble, &mut self.world, intents, now);
        }
        let tree = self.scheduler.ledger().map(|ledger| ledger.tree().clone());
        if tree.is_some() {
            for (path, (policy, threshold)) in tree::queue_policies(&self.world) {
                let policy = QueuePolicy::from_text(&policy, threshold).unwrap_or_default();
                self.scheduler.set_policy(&path, policy);
            }
        }
        self.summary_due.get_or_insert(Instant::now() + self.options.summary_interval);
        let mut writes = self.trees.plan_conditions(&self.world, now);
        writes.extend(tree::plan_queues(&self.world, tree.as_deref(), self.scheduler.cell_access()));
        writes.extend(virtual_clusters::plan_queues(&self.world, self.cells.in_force()));
        writes
    }

    pub(super) fn look_at_cells(&mut self, now: Timestamp) -> Vec<Write> {
        if let Some(change) = self.cells.read(&self.world) {
            self.scheduler.set_cells(change.as_deref(), &mut self.world, &self.intents, now);
            // Virtual clusters have Queues, and Queues of leaves that name one have its submitters.
            self.world.mark(Dirty::Tree);
        }
        self.scheduler.cells_read(self.cells.trouble(), &mut self.world, &self.intents, now);
        self.summary_due.get_or_insert(Instant::now() + self.options.summary_interval);
        let mut writes = self.cells.plan_conditions(&self.world, now);
        writes.extend(virtual_clusters::plan_objects(&self.world, self.cells.in_force()));
        writes
    }

    pub(super) fn summarise(&mut self, at: Instant) {
        let due = self.summary_due.is_some_and(|due| due.max(self.summary_rested) <= at);
        if due && !self.busy.contains_key(&Lane::Summaries) {
            self.summary_due = None;
            self.summary_began = at;
            let summaries = tree::plan_summaries(&self.world, &self.trees, &self.scheduler);
            let metrics = &self.options.metrics;
            let counts = summaries.counts.iter();
            metrics.set_queues(counts.map(|count| (count.path.as_str(), count.waiting, count.admitted)));
            metrics.set_waits(self.scheduler.planner().waiting_by_reason());
            let mut writes = summaries.writes;
            let uses = self.scheduler.virtual_cluster_uses();
            writes.extend(virtual_clusters::plan_statuses(&self.world, self.cells.in_force(), uses.as_ref()));
            writes.extend(virtual_clusters::plan_queue_statuses(&self.world, uses.as_ref()));
            self.send(Lane::Summaries, writes);
        }
    }
}
