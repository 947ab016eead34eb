//! What the planner is told of a job, in plain data.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fleet_api::cell_places::CellGroup;
use fleet_placement::Gang;
use fleet_policies::{reason::Reason, spec::Placement};
use fleet_quota::JobId;
use fleet_resources::Resources;

use crate::cells::ask::CellJob;

/// What equal jobs have in common; made once and shared by all of them.
#[derive(Clone, Debug)]
pub struct JobShape {
    /// Equal for shapes of equal content and for no others; the caller numbers them.
    pub id: u64,
    pub gang: Gang,
    /// Sum over the gang's pods, in base units.
    pub total: Resources,
    /// Which clusters may take it.
    pub placement: Placement,
    pub api_version: String,
    pub kind: String,
}

impl PartialEq for JobShape {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

/// A job: one gang for one cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// `namespace/name`; the namespace finds the quota leaf where no label does.
    pub id: JobId,
    pub shape: Arc<JobShape>,
    /// The job's labels among [`fleet_quota::QUOTA_LABELS`].
    pub quota_labels: BTreeMap<String, String>,
    /// Path of the leaf that it was admitted in, as its queue unit says: where its use stays when the tree has
    /// no leaf for it any more. Of jobs that hold quota only.
    pub last_leaf: Option<String>,
    /// Waits in a queue of the quota tree. Otherwise it is placed as soon as a cluster holds it, and its use
    /// still counts.
    pub queued: bool,
    pub priority: i64,
    pub preemptible: bool,
    /// How often it made room for another job.
    pub preemptions: u32,
    pub enqueued_at_ms: i64,
    /// Clusters where runs of it ended before the job did; tried last.
    pub avoided: BTreeSet<String>,
    /// Clusters that may not take it now, whatever room they have, and why.
    pub barred: BTreeMap<String, Waiting>,
    /// May not be placed now, for a reason that is no matter of quota or room.
    pub blocked: Option<Waiting>,
    pub stand: Stand,
    /// Declared run time, from the moment the whole gang runs.
    pub runtime_ms: Option<i64>,
    /// When the present run started, as far as that is known.
    pub started_at_ms: Option<i64>,
    /// The run's last checkpoint: work before it is not lost when the run is ended.
    pub checkpoint_at_ms: Option<i64>,
    /// What it asks of its virtual cluster, where it has one.
    pub cells: Option<Arc<CellJob>>,
}

/// Where a job stands.
#[derive(Clone, Debug, PartialEq)]
pub enum Stand {
    Waits,
    /// Holds quota and places: asked for, reserved, bound or running there.
    Holds(Held),
}

/// What a job holds in a member.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    pub cluster: String,
    pub counted: Counted,
    /// Component to the node of each pod, as the member answered; empty where it is not known.
    pub nodes: BTreeMap<String, Vec<String>>,
    /// The run is being ended; what it holds becomes free soon.
    pub ending: bool,
    /// Its cells, as its reservation carries them.
    pub cells: Vec<CellGroup>,
    /// Component to the indices of pods that have ended.
    pub ended: BTreeMap<String, Vec<i64>>,
    /// Component and index of pods whose cells the member does not give.
    pub ungiven: BTreeSet<(String, i64)>,
}

/// Whether the member's reports count a job's places already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// By no report: the planner counts them itself, until the job is gone.
    ByPlanner,
    /// By reports of this sequence and later ones.
    FromReport(i64),
    ByReports,
}

impl Job {
    /// Work that is lost when the run is ended now.
    pub fn lost_work_ms(&self, now_ms: i64) -> i64 {
        let since = self.checkpoint_at_ms.max(self.started_at_ms);
        since.map_or(0, |since| (now_ms - since).max(0))
    }

    /// For how long the present run has been going on.
    pub fn ran_ms(&self, now_ms: i64) -> i64 {
        self.started_at_ms.map_or(0, |since| (now_ms - since).max(0))
    }
}

impl Held {
    pub fn here(cluster: &str, counted: Counted) -> Self {
        Self {
            cluster: cluster.to_string(),
            counted,
            nodes: BTreeMap::new(),
            ending: false,
            cells: Vec::new(),
            ended: BTreeMap::new(),
            ungiven: BTreeSet::new(),
        }
    }
}

impl Stand {
    /// Holds places in `cluster` that no report counts.
    pub fn holds(cluster: &str) -> Self {
        Self::Holds(Held::here(cluster, Counted::ByPlanner))
    }
}

/// Why a job waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub reason: Reason,
    pub message: String,
}

impl Waiting {
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// Jobs are named `namespace/name`.
pub(crate) fn namespace_of(id: &JobId) -> &str {
    id.as_str().split_once('/').map_or("", |(namespace, _)| namespace)
}

pub(crate) fn name_of(id: &JobId) -> &str {
    id.as_str().split_once('/').map_or(id.as_str(), |(_, name)| name)
}
