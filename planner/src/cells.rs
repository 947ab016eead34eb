//! Jobs in virtual clusters: one decision of quota, cells and reservation.
//!
//! One queue a virtual cluster: class, then first come; what does not fit is passed. Opportunistic jobs of all virtual
//! clusters wait in one more queue, behind. [`fleet_cells::Cells`] says who gets what; here stands which job is asked
//! about when, which groups each has, and what follows: starts, evictions, cells given to jobs that run. All of it is
//! rebuilt from what jobs hold ([`Held::cells`](super::Held)), under the configuration that holds now. Deliberately
//! absent: API objects, and where the configuration comes from.

mod claims;
mod groups;
mod pass;
mod recover;
#[cfg(test)]
mod tests;
mod usage;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fleet_api::cell_places::CellGroup;
use fleet_cells::{BoundGroup, Cells, GroupRequest, NodeName, config::ClusterConfig};
use fleet_quota::JobId;

use super::{
    Planner,
    job::{Job, Stand, Waiting},
};
pub use usage::{VcJobs, VcUse};

/// What a job asks of a virtual cluster; made once and shared.
#[derive(Clone, Debug, PartialEq)]
pub struct CellJob {
    pub vc: String,
    /// -1 is opportunistic, 0 to 1000 guaranteed.
    pub class: i32,
    /// All groups start together; else each as it gets its cells.
    pub whole: bool,
    pub groups: Vec<CellGroupAsk>,
}

/// Pods that get their cells as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct CellGroupAsk {
    pub request: GroupRequest,
    /// Component and index of each pod, by its number in the group.
    pub pods: Vec<(String, i64)>,
}

/// What a member says of the nodes that are cells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellNodes {
    pub good: BTreeSet<String>,
}

/// Virtual cluster (empty for opportunistic jobs, which come last), class, age, name.
type Place = (bool, String, Reverse<i32>, i64, JobId);

/// The planner's memory of cells.
#[derive(Debug, Default)]
pub(super) struct CellRoom {
    cells: Option<Cells>,
    /// By member.
    nodes: BTreeMap<String, CellNodes>,
    /// Nodes on which a reservation was refused lately, and until when they count as bad.
    doubts: BTreeMap<NodeName, i64>,
    /// Groups in `cells` of each job, with what they asked.
    of_job: BTreeMap<JobId, BTreeMap<String, CellGroupAsk>>,
    job_of: BTreeMap<String, JobId>,
    /// Groups of running jobs that are to be taken in: told, and not known.
    unrecovered: BTreeMap<String, BoundGroup>,
    waiting: BTreeSet<Place>,
    /// Jobs that run without all their groups.
    growing: BTreeSet<Place>,
    /// Jobs that run and whose cells have changed.
    changed: BTreeSet<JobId>,
    /// Rises when somebody may get what he could not get before.
    growth: u64,
    /// What was refused at which `growth`, by what was asked.
    refused: BTreeMap<(String, Vec<String>), (u64, Waiting)>,
    /// Why jobs can never run, for the configuration that holds now.
    never: BTreeMap<JobId, Waiting>,
    admitted: BTreeSet<JobId>,
    claims: claims::Claims,
}

impl CellRoom {
    pub fn is_on(&self) -> bool {
        self.cells.is_some()
    }

    /// Whether a job waits for cells, and not for the room of a member.
    pub fn takes(&self, job: &Job) -> bool {
        self.is_on() && job.cells.is_some()
    }

    /// Whether it has or reserves cells, here or by what its reservation says.
    pub fn has(&self, id: &JobId, job: &Job) -> bool {
        let told = matches!(&job.stand, Stand::Holds(held) if !held.cells.is_empty());
        told || self.of_job.contains_key(id)
    }

    pub fn leave_queue(&mut self, job: &Job) {
        if let Some(place) = place(job) {
            self.waiting.remove(&place);
        }
    }

    pub fn join_queue(&mut self, job: &Job) {
        self.waiting.extend(place(job));
    }
}

fn place(job: &Job) -> Option<Place> {
    let asks = job.cells.as_ref()?;
    let opportunistic = asks.class < 0;
    let queue = if opportunistic { String::new() } else { asks.vc.clone() };
    Some((opportunistic, queue, Reverse(asks.class), job.enqueued_at_ms, job.id.clone()))
}

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

/// Shared, so that a job costs little to copy.
pub type SharedCellJob = Arc<CellJob>;
