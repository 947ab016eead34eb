//! Jobs in virtual clusters: one decision of quota, cells and reservation.
//!
//! Each virtual cluster has one queue: by class, then first come, first served; a job that does not fit is
//! passed. Opportunistic jobs of all virtual clusters wait in one queue behind them. [`fleet_cells::Cells`]
//! allocates the cells. This module decides which job is tried when, and carries out the result: starts,
//! evictions, and further cells for running jobs. Its state is rebuilt from what jobs hold
//! ([`Held::cells`](crate::Held)) under the configuration in force. Deliberately absent: API objects, and the
//! source of the configuration.

mod pass;
#[cfg(test)]
mod tests;
mod usage;

use std::collections::{BTreeMap, BTreeSet};

use fleet_api::cell_places::CellGroup;
use fleet_cells::{BoundGroup, Cells, NodeName, config::ClusterConfig};
use fleet_quota::JobId;

use super::Planner;
use crate::{
    cells::ask::CellNodes,
    job::{Held, JobPhase},
};
pub use usage::{VcJobs, VcUse};

impl Planner {
    /// The allocator, while a configuration is in force.
    pub fn cells(&self) -> Option<&Cells> {
        self.cells.cells.as_ref()
    }

    /// Sets another configuration, or none. Running jobs go on.
    ///
    /// # Errors
    /// Its mistakes; the previous configuration then stays in force.
    pub fn set_cells(&mut self, config: Option<ClusterConfig>, now_ms: i64) -> Result<(), String> {
        if self.cells.cells.as_ref().map(Cells::config) == config.as_ref() {
            return Ok(());
        }
        self.cells.set_config(config, now_ms).map_err(|errors| errors.to_string())?;
        // Jobs that waited for a member's capacity wait for cells now, or the other way round.
        let ids: Vec<JobId> = self.jobs.keys().cloned().collect();
        for id in ids {
            let Some(entry) = self.jobs.get(&id).filter(|entry| entry.job.cells.is_some()) else { continue };
            if entry.job.phase == JobPhase::Waits {
                self.unqueue(&id);
            }
            self.settle(&id, now_ms);
        }
        self.moved = true;
        Ok(())
    }

    /// Sets a member's report on its cell nodes; with `None` they count as bad.
    pub fn set_cell_nodes(&mut self, cluster: &str, nodes: Option<CellNodes>) {
        let changed = match nodes {
            Some(nodes) => self.cells.nodes.insert(cluster.to_string(), nodes.clone()) != Some(nodes),
            None => self.cells.nodes.remove(cluster).is_some(),
        };
        if changed {
            self.cells.tell_health();
            self.moved = true;
        }
    }

    /// Marks nodes that a member could not provide as bad for a while, so that they are not requested again
    /// at once: for longer each time, because most often the member only has not heard yet that a job is over.
    pub fn doubt_cell_nodes(&mut self, cluster: &str, nodes: &[String], now_ms: i64) {
        for node in nodes {
            self.cells.doubt(NodeName::new(cluster, node), now_ms);
        }
        if !nodes.is_empty() {
            self.cells.tell_health();
            self.moved = true;
        }
    }

    /// A member has refused places on nodes that do not take the job's pods, by component. For a while the job does not ask
    /// for these; other jobs may.
    pub fn exclude_cell_nodes(
        &mut self,
        id: &JobId,
        cluster: &str,
        excluded: &BTreeMap<String, Vec<String>>,
        now_ms: i64,
    ) {
        let Some(cells) = self.cells.cells.as_ref() else { return };
        let Some(entry) = self.jobs.get_mut(id) else { return };
        for (component, nodes) in excluded {
            // Whatever a member names, only cells are remembered.
            let names =
                nodes.iter().map(|node| NodeName::new(cluster, node)).filter(|name| cells.has_node(name));
            entry.refusals.excluded.add(component, names, now_ms);
        }
        self.moved |= !excluded.is_empty();
    }

    /// Recovers what running jobs hold; every plan begins so.
    pub fn recover_cells(&mut self, now_ms: i64) {
        self.cells.take_in(now_ms);
    }

    /// The cells of a job, as its reservation carries them.
    pub fn cell_groups(&self, id: &JobId) -> Vec<CellGroup> {
        self.cells.groups_of(id, self.held(id))
    }

    /// The same with the pods' names within their job, as the binding has them.
    pub fn bound_groups(&self, id: &JobId) -> Vec<BoundGroup> {
        self.cells.bound_of(id, self.held(id))
    }

    /// Components of a job that take no cells beside others that do.
    pub fn components_without_cells(&self, id: &JobId) -> Vec<String> {
        let Some(entry) = self.jobs.get(id) else { return Vec::new() };
        let Some(asks) = &entry.job.cells else { return Vec::new() };
        let with: BTreeSet<&str> =
            asks.groups.iter().flat_map(|ask| &ask.pods).map(|(component, _)| component.as_str()).collect();
        let components = entry.job.shape.gang.components.iter();
        let without =
            components.filter(|component| component.replicas > 0 && !with.contains(&*component.name));
        without.map(|component| component.name.clone()).collect()
    }

    fn held(&self, id: &JobId) -> Option<&Held> {
        match &self.jobs.get(id)?.job.phase {
            JobPhase::Holds(held) => Some(held),
            JobPhase::Waits => None,
        }
    }

    /// Adds what a job holds now, and releases what it no longer holds.
    pub(super) fn settle_cells(&mut self, id: &JobId, now_ms: i64) {
        let Some(entry) = self.jobs.get(id) else { return };
        let has_cells = |held: &Held| !held.cells.is_empty() || self.cells.of_job.contains_key(id);
        if !matches!(&entry.job.phase, JobPhase::Holds(held) if has_cells(held)) {
            return;
        }
        let job = entry.job.clone();
        if let JobPhase::Holds(held) = &job.phase {
            self.exclude_cell_nodes(id, &held.cluster, &held.excluded, now_ms);
            self.cells.hold(&job, held);
        }
    }

    pub(super) fn release_cells(&mut self, id: &JobId) {
        self.cells.release_job(id);
    }
}
