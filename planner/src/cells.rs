//! The planner's memory of virtual clusters: which groups each job has in [`fleet_cells::Cells`], who waits for cells, and
//! what was refused. All of it is rebuilt from what jobs hold ([`Held::cells`](crate::Held)), under the configuration
//! that holds now. Deliberately absent: who is asked about when, which `planner::cells` decides.

pub mod ask;
mod claims;
mod groups;
mod recover;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use fleet_cells::{BoundGroup, Cells, NodeName};
use fleet_quota::JobId;

use crate::job::{Job, Stand, Waiting};
use ask::{CellGroupAsk, CellNodes};

/// Virtual cluster (empty for opportunistic jobs, which come last), class, age, name.
pub(crate) type Place = (bool, String, Reverse<i32>, i64, JobId);

/// The planner's memory of cells.
#[derive(Clone, Debug, Default)]
pub(crate) struct CellRoom {
    pub cells: Option<Cells>,
    /// By member.
    pub nodes: BTreeMap<String, CellNodes>,
    /// Nodes on which a reservation was refused lately, and until when they count as bad.
    pub doubts: BTreeMap<NodeName, i64>,
    /// Groups in `cells` of each job, with what they asked.
    pub of_job: BTreeMap<JobId, BTreeMap<String, CellGroupAsk>>,
    pub job_of: BTreeMap<String, JobId>,
    /// Groups of running jobs that are to be taken in: told, and not known.
    pub unrecovered: BTreeMap<String, BoundGroup>,
    pub waiting: BTreeSet<Place>,
    /// Jobs that run without all their groups.
    pub growing: BTreeSet<Place>,
    /// Jobs that run and whose cells have changed.
    pub changed: BTreeSet<JobId>,
    /// Rises when somebody may get what he could not get before.
    pub growth: u64,
    /// What was refused at which `growth`, by what was asked.
    pub refused: BTreeMap<(String, Vec<String>), (u64, Waiting)>,
    /// Why jobs can never run, for the configuration that holds now.
    pub never: BTreeMap<JobId, Waiting>,
    pub admitted: BTreeSet<JobId>,
    pub claims: claims::Claims,
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
