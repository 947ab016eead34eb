//! The planner's state of virtual clusters: the groups of each job in [`fleet_cells::Cells`], the jobs that
//! wait for cells, and refusals. It is rebuilt from what jobs hold ([`Held::cells`](crate::Held)) under the
//! configuration in force. Deliberately absent: the order in which jobs are considered (`planner::cells`).

pub mod ask;
mod claims;
pub(crate) mod groups;
mod recover;
pub(crate) mod suits;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use fleet_api::cell_places::Preempted;
use fleet_cells::{BoundGroup, Cells, NodeName};
use fleet_quota::JobId;

use crate::job::{Job, JobPhase, Waiting};
use ask::{CellGroupAsk, CellNodes};

/// Queue position: virtual cluster (empty for opportunistic jobs, which come last), class, age, name.
pub(crate) type Place = (bool, String, Reverse<i32>, i64, JobId);

/// A node on which reservations were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Doubt {
    /// The node counts as bad until then.
    pub until_ms: i64,
    /// Until then the next refusal is one more of the same.
    pub kept_ms: i64,
    pub refusals: u32,
}

/// How long a node counts as bad after a refusal: twice as long each time, up to the most.
const DOUBT_MS: (i64, i64) = (2_000, 30_000);
/// Without a refusal for this long, all is forgotten.
const DOUBT_KEPT_MS: i64 = 60_000;

/// The planner's state of cells.
#[derive(Clone, Debug, Default)]
pub(crate) struct CellRoom {
    pub cells: Option<Cells>,
    /// By member.
    pub nodes: BTreeMap<String, CellNodes>,
    /// Nodes on which a reservation was refused recently.
    pub doubts: BTreeMap<NodeName, Doubt>,
    /// Those of them that count as bad now.
    pub doubted: BTreeSet<NodeName>,
    /// Groups of each job in `cells`, with their requests.
    pub of_job: BTreeMap<JobId, BTreeMap<String, CellGroupAsk>>,
    pub job_of: BTreeMap<String, JobId>,
    /// Groups of running jobs that the reservations name and that are not recovered yet.
    pub unrecovered: BTreeMap<String, BoundGroup>,
    pub waiting: BTreeSet<Place>,
    /// Jobs that run without all of their groups.
    pub growing: BTreeSet<Place>,
    /// Groups of running jobs whose pods must leave their cells; the rest of their job runs on.
    pub leaving: BTreeMap<String, Preempted>,
    /// Running jobs whose cells have changed.
    pub changed: BTreeSet<JobId>,
    /// Incremented when a job might get cells that it could not get before.
    pub growth: u64,
    /// Refused requests, by what was asked for, the clusters and the excluded nodes, with the `growth` at which they were
    /// refused.
    pub refused: BTreeMap<(String, Vec<String>, u64), (u64, Waiting)>,
    /// Whether a cluster could ever hold a request, under the configuration in force.
    pub suits: BTreeMap<(String, String), bool>,
    /// Jobs that can never run under the configuration in force, and why.
    pub never: BTreeMap<JobId, Waiting>,
    pub admitted: BTreeSet<JobId>,
    pub claims: claims::Claims,
}

impl CellRoom {
    pub fn is_on(&self) -> bool {
        self.cells.is_some()
    }

    /// Whether a job takes cells of a virtual cluster instead of a member's capacity.
    pub fn takes(&self, job: &Job) -> bool {
        self.is_on() && job.cells.is_some()
    }

    /// Whether the job has or reserves cells, in the allocator or according to its reservation.
    pub fn has(&self, id: &JobId, job: &Job) -> bool {
        let told = matches!(&job.phase, JobPhase::Holds(held) if !held.cells.is_empty());
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
