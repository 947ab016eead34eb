//! From what runs back to the allocator: at a start, under another configuration, and for nodes that turn good or bad.

use std::collections::BTreeSet;

use fleet_cells::{
    Cells, NodeName, Unreported,
    config::{ClusterConfig, ConfigErrors},
};

use super::CellRoom;

impl CellRoom {
    /// Goes over to another configuration. Preempting groups give up what they had reserved, and ask again.
    pub(crate) fn set_config(
        &mut self,
        config: Option<ClusterConfig>,
        now_ms: i64,
    ) -> Result<(), ConfigErrors> {
        match (config, self.cells.as_mut()) {
            (None, _) => {
                // What runs keeps its places in its reservations; from there it is taken in again.
                self.cells = None;
                self.of_job.clear();
                self.job_of.clear();
                self.unrecovered.clear();
                self.waiting.clear();
                self.growing.clear();
            }
            (Some(config), None) => self.cells = Some(Cells::new(config, Unreported::Bad)?),
            (Some(config), Some(cells)) => {
                let difference = cells.reconfigure(config, Unreported::Bad, now_ms)?;
                for lost in difference.groups.iter().filter(|lost| lost.promise_lost.is_some()) {
                    self.changed.extend(self.job_of.get(&lost.group).cloned());
                }
                self.forget_reservations();
            }
        }
        self.never.clear();
        self.admitted.clear();
        self.refused.clear();
        self.growth += 1;
        self.tell_health();
        Ok(())
    }

    /// Groups that the allocator does not have any more.
    fn forget_reservations(&mut self) {
        let Some(cells) = &self.cells else { return };
        let gone: Vec<String> = self
            .job_of
            .keys()
            .filter(|name| cells.group(name).is_none() && !self.unrecovered.contains_key(*name))
            .cloned()
            .collect();
        for name in gone {
            self.release_group(&name);
        }
    }

    /// Takes in the groups of running jobs that the allocator does not know.
    pub(crate) fn take_in(&mut self, now_ms: i64) {
        let Some(cells) = self.cells.as_ref().filter(|_| !self.unrecovered.is_empty()) else { return };
        let mut running = cells.bound_groups();
        running.extend(std::mem::take(&mut self.unrecovered).into_values());
        let recovered = Cells::recover(cells.config().clone(), &cells.good_nodes(), running, now_ms);
        // The configuration is in force, so it has no errors.
        let Ok((cells, lost)) = recovered else { return };
        self.cells = Some(cells);
        for group in lost.iter().filter(|lost| lost.promise_lost.is_some()) {
            self.changed.extend(self.job_of.get(&group.group).cloned());
        }
        self.forget_reservations();
        self.growth += 1;
        self.refused.clear();
    }

    /// Says which nodes are good: those that their member says so of, and on which nothing was refused lately.
    pub(crate) fn tell_health(&mut self) {
        let Some(cells) = self.cells.as_mut() else { return };
        let good = |node: &NodeName| {
            self.nodes.get(&node.cluster).is_some_and(|nodes| nodes.good.contains(&node.node))
                && !self.doubts.contains_key(node)
        };
        let changed: BTreeSet<NodeName> =
            cells.nodes().filter(|node| cells.is_good(node) != good(node)).cloned().collect();
        for node in &changed {
            let good = good(node);
            cells.set_node_health(node, good);
        }
        if !changed.is_empty() {
            self.growth += 1;
        }
    }

    /// Doubts that are over; when the next one ends.
    pub(crate) fn end_doubts(&mut self, now_ms: i64) -> Option<i64> {
        let before = self.doubts.len();
        self.doubts.retain(|_, until| *until > now_ms);
        if self.doubts.len() < before {
            self.tell_health();
        }
        self.doubts.values().min().copied()
    }
}
