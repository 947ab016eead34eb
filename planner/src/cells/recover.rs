//! Recovery of the allocator: at the start, under a new configuration, and when nodes turn good or bad.

use std::collections::BTreeSet;

use fleet_cells::{
    Cells, NodeName, Unreported,
    config::{ClusterConfig, ConfigErrors},
};

use super::{CellRoom, DOUBT_KEPT_MS, DOUBT_MS, Doubt};

impl CellRoom {
    /// Switches to another configuration. Preempting groups give up their reserved cells and try again.
    pub(crate) fn set_config(
        &mut self,
        config: Option<ClusterConfig>,
        now_ms: i64,
    ) -> Result<(), ConfigErrors> {
        match (config, self.cells.as_mut()) {
            (None, _) => {
                // Running jobs keep their places in their reservations, and are recovered from there.
                self.cells = None;
                self.of_job.clear();
                self.job_of.clear();
                self.unrecovered.clear();
                self.leaving.clear();
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
                self.forget_incomplete();
            }
        }
        self.never.clear();
        self.admitted.clear();
        self.refused.clear();
        self.suits.clear();
        self.growth += 1;
        self.tell_health();
        Ok(())
    }

    /// Forgets groups that the allocator no longer has.
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

    /// Recovers the groups of running jobs that the allocator does not know.
    pub(crate) fn take_in(&mut self, now_ms: i64) {
        let Some(cells) = self.cells.as_mut().filter(|_| !self.unrecovered.is_empty()) else { return };
        // Remains of ended runs have no promise, and keep the cells that they had.
        let before = self.unrecovered.len();
        self.unrecovered.retain(|_, group| !cells.adopt(group, now_ms));
        if self.unrecovered.len() < before {
            self.growth += 1;
        }
        if self.unrecovered.is_empty() {
            return;
        }
        let mut running = cells.bound_groups();
        running.extend(std::mem::take(&mut self.unrecovered).into_values());
        let recovered = Cells::recover(cells.config().clone(), &cells.good_nodes(), running, now_ms);
        // The configuration is in force, so it is valid.
        let Ok((cells, lost)) = recovered else { return };
        self.cells = Some(cells);
        self.tell_absent();
        for group in lost.iter().filter(|lost| lost.promise_lost.is_some()) {
            self.changed.extend(self.job_of.get(&group.group).cloned());
        }
        self.forget_reservations();
        self.growth += 1;
        self.refused.clear();
    }

    /// Updates the health of nodes: good are those that their member reports as good and on which nothing was
    /// refused recently.
    pub(crate) fn tell_health(&mut self) {
        let other_reasons = self.tell_absent();
        let Some(cells) = self.cells.as_mut() else { return };
        let good = |node: &NodeName| {
            self.nodes.get(&node.cluster).is_some_and(|nodes| nodes.good.contains(&node.node))
                && !self.doubted.contains(node)
        };
        let changed: BTreeSet<NodeName> =
            cells.nodes().filter(|node| cells.is_good(node) != good(node)).cloned().collect();
        for node in &changed {
            let good = good(node);
            cells.set_node_health(node, good);
        }
        if other_reasons || !changed.is_empty() {
            self.growth += 1;
        }
    }

    /// Updates which nodes their member does not have; `false` where nothing changes.
    fn tell_absent(&mut self) -> bool {
        let Some(cells) = self.cells.as_mut() else { return false };
        let unknown = |node: &&NodeName| {
            self.nodes.get(&node.cluster).is_some_and(|nodes| nodes.unknown.contains(&node.node))
        };
        let absent: BTreeSet<NodeName> = cells.nodes().filter(unknown).cloned().collect();
        cells.set_absent_nodes(absent)
    }

    /// A reservation on the node was refused.
    pub(crate) fn doubt(&mut self, node: NodeName, now_ms: i64) {
        let known = self.doubts.get(&node).filter(|doubt| doubt.kept_ms > now_ms);
        let refusals = known.map_or(0, |doubt| doubt.refusals).saturating_add(1);
        let (least, most) = DOUBT_MS;
        let pause = (least << (refusals - 1).min(10)).min(most);
        let until_ms = now_ms.saturating_add(pause);
        let doubt = Doubt { until_ms, kept_ms: until_ms.saturating_add(DOUBT_KEPT_MS), refusals };
        self.doubts.insert(node.clone(), doubt);
        self.doubted.insert(node);
    }

    /// Ends doubts that are over; returns when the next one ends.
    pub(crate) fn end_doubts(&mut self, now_ms: i64) -> Option<i64> {
        self.doubts.retain(|_, doubt| doubt.kept_ms > now_ms);
        let before = self.doubted.len();
        self.doubted.retain(|node| self.doubts.get(node).is_some_and(|doubt| doubt.until_ms > now_ms));
        if self.doubted.len() < before {
            self.tell_health();
        }
        self.doubted.iter().filter_map(|node| Some(self.doubts.get(node)?.until_ms)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Most often the member has only not heard yet that a job is over: the first time a moment is enough.
    #[test]
    fn a_node_that_refuses_again_and_again_is_doubted_for_longer() {
        let (mut room, node) = (CellRoom::default(), NodeName::new("lab", "n1"));
        let mut now_ms = 0;
        for pause_ms in [2_000, 4_000, 8_000, 16_000, 30_000, 30_000] {
            room.doubt(node.clone(), now_ms);
            assert_eq!(room.end_doubts(now_ms + pause_ms - 1), Some(now_ms + pause_ms));
            assert!(room.doubted.contains(&node));
            now_ms += pause_ms;
            assert_eq!(room.end_doubts(now_ms), None);
            assert!(room.doubted.is_empty());
        }
        // What was long ago counts no more.
        now_ms += DOUBT_KEPT_MS;
        assert_eq!(room.end_doubts(now_ms), None);
        assert!(room.doubts.is_empty());
        room.doubt(node, now_ms);
        assert_eq!(room.end_doubts(now_ms), Some(now_ms + 2_000));
    }
}
