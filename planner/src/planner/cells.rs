//! Jobs in virtual clusters: one decision of quota, cells and reservation.
//!
//! One queue a virtual cluster: class, then first come; what does not fit is passed. Opportunistic jobs of all virtual
//! clusters wait in one more queue, behind. [`fleet_cells::Cells`] says who gets what; here stands which job is asked
//! about when, which groups each has, and what follows: starts, evictions, cells given to jobs that run. All of it is
//! rebuilt from what jobs hold ([`Held::cells`](crate::Held)), under the configuration that holds now. Deliberately
//! absent: API objects, and where the configuration comes from.

mod pass;
#[cfg(test)]
mod tests;
mod usage;

use fleet_api::cell_places::CellGroup;
use fleet_cells::{BoundGroup, Cells, NodeName, config::ClusterConfig};
use fleet_quota::JobId;

use super::Planner;
use crate::{cells::ask::CellNodes, job::Stand};
pub use usage::{VcJobs, VcUse};

impl Planner {
    /// The allocator, while a configuration is in force.
    pub fn cells(&self) -> Option<&Cells> {
        self.cells.cells.as_ref()
    }

    /// Another configuration, or none. What runs goes on.
    ///
    /// # Errors
    /// What is wrong in it; then the one before stays in force.
    pub fn set_cells(&mut self, config: Option<ClusterConfig>, now_ms: i64) -> Result<(), String> {
        if self.cells.cells.as_ref().map(Cells::config) == config.as_ref() {
            return Ok(());
        }
        self.cells.set_config(config, now_ms).map_err(|errors| errors.to_string())?;
        // Who waited for room waits for cells now, or the other way round.
        let ids: Vec<JobId> = self.jobs.keys().cloned().collect();
        for id in ids {
            let Some(entry) = self.jobs.get(&id).filter(|entry| entry.job.cells.is_some()) else { continue };
            if entry.job.stand == Stand::Waits {
                self.unqueue(&id);
            }
            self.settle(&id, now_ms);
        }
        self.moved = true;
        Ok(())
    }

    /// What a member says of its nodes that are cells; `None`: it says nothing any more, and they count as bad.
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

    /// A member could not give these nodes: they count as bad for a while, so that the same is not asked again at once.
    pub fn doubt_cell_nodes(&mut self, cluster: &str, nodes: &[String], until_ms: i64) {
        for node in nodes {
            self.cells.doubts.insert(NodeName::new(cluster, node), until_ms);
        }
        if !nodes.is_empty() {
            self.cells.tell_health();
            self.moved = true;
        }
    }

    /// The cells of a job, as its reservation carries them.
    pub fn cell_groups(&self, id: &JobId) -> Vec<CellGroup> {
        self.cells.groups_of(id)
    }

    /// The same, with the pods' names in their job: what its binding says.
    pub fn bound_groups(&self, id: &JobId) -> Vec<BoundGroup> {
        self.cells.bound_of(id)
    }

    /// Takes in what a job holds, gives back what it holds no more.
    pub(super) fn settle_cells(&mut self, id: &JobId) {
        let Some(entry) = self.jobs.get(id) else { return };
        match &entry.job.stand {
            Stand::Holds(held) if !held.cells.is_empty() || self.cells.of_job.contains_key(id) => {
                let job = entry.job.clone();
                self.cells.hold(&job, held);
            }
            _ => {}
        }
    }

    pub(super) fn release_cells(&mut self, id: &JobId) {
        self.cells.release_job(id);
    }
}
