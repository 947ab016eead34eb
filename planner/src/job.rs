//! The planner's input about a job, as plain data.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fleet_api::cell_places::CellGroup;
use fleet_api::queue::UnitClaim;
use fleet_placement::Gang;
use fleet_policies::{reason::Reason, spec::Placement};
use fleet_quota::JobId;
use fleet_resources::Resources;

use crate::cells::ask::CellJob;

/// Properties that equal jobs share; created once and shared by all of them.
#[derive(Clone, Debug, Default)]
pub struct JobShape {
    /// The caller's number of the shape: shapes of equal content have the same number.
    pub id: u64,
    pub gang: Gang,
    /// Sum over the gang's pods, in base units.
    pub total: Resources,
    /// Which clusters may be used.
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
    /// `namespace/name`; the namespace selects the quota leaf if no label does.
    pub id: JobId,
    pub shape: Arc<JobShape>,
    /// The job's labels among [`fleet_quota_tree::QUOTA_LABELS`].
    pub quota_labels: BTreeMap<String, String>,
    /// Path of the leaf in which it was admitted. Its use is counted there, also if its labels name another or the
    /// tree no longer has a leaf for it. Only for jobs that hold quota and are bound.
    pub last_leaf: Option<String>,
    /// Whether it waits in a queue of the quota tree. Otherwise it is placed as soon as a cluster can hold
    /// it; its use counts anyway.
    pub queued: bool,
    /// Whether it has been admitted from its queue.
    pub left_queue: bool,
    pub priority: i64,
    pub preemptible: bool,
    /// How often it was preempted.
    pub preemptions: u32,
    pub enqueued_at_ms: i64,
    /// Clusters in which runs of it ended before the job did; chosen last.
    pub avoided: BTreeSet<String>,
    /// Clusters that must not be used now, whatever their free capacity, and why.
    pub barred: BTreeMap<String, Waiting>,
    /// Must not be placed now, for a reason other than quota and capacity.
    pub blocked: Option<Waiting>,
    pub phase: JobPhase,
    /// Declared run time, from the moment the whole gang runs.
    pub runtime_ms: Option<i64>,
    /// When the current run started, if known.
    pub started_at_ms: Option<i64>,
    /// The run's last checkpoint: earlier work is not lost when the run ends.
    pub checkpoint_at_ms: Option<i64>,
    /// Its request to its virtual cluster, if it has one.
    pub cells: Option<Arc<CellJob>>,
}

/// Whether a job waits or holds quota and places.
#[derive(Clone, Debug, PartialEq)]
pub enum JobPhase {
    Waits,
    /// Holds quota and places: requested, reserved, bound or running.
    Holds(Held),
}

/// What a job holds in a member.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    pub cluster: String,
    pub counted: Counted,
    /// Component to the node of each pod, from the member's answer; empty if unknown.
    pub nodes: BTreeMap<String, Vec<String>>,
    /// The run is ending; its places are about to free up.
    pub ending: bool,
    /// Its pods have outlived the job or its run, and nothing ends them soon unless it is asked for. Only with `ending`.
    pub lingers: bool,
    /// Its cells, as its reservation carries them.
    pub cells: Vec<CellGroup>,
    /// Component to the indices of pods that have ended.
    pub ended: BTreeMap<String, BTreeSet<i64>>,
    /// Component and index of pods whose cells the member cannot provide.
    pub ungiven: BTreeSet<(String, i64)>,
    /// Component to cell nodes that do not take its pods, as the member says.
    pub excluded: BTreeMap<String, Vec<String>>,
    /// Preempted groups whose pods are gone, with the time of their preemption.
    pub vacated: BTreeMap<String, i64>,
}

/// Whether the member's capacity reports include a job's places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// No report includes them: the planner counts them itself until the job is gone.
    ByPlanner,
    /// Reports of this sequence and later ones include them.
    FromReport(i64),
    ByReports,
}

impl Job {
    /// Work that is lost if the run ends now.
    pub fn lost_work_ms(&self, now_ms: i64) -> i64 {
        let since = self.checkpoint_at_ms.max(self.started_at_ms);
        since.map_or(0, |since| (now_ms - since).max(0))
    }

    /// What decided over its admission stays while it holds quota: a label that is set between two writes would otherwise
    /// make a borrower one that nobody preempts, and a job that passes a claim could run on. Whether it queues is decided
    /// again until it is bound. How long a bound run lasts says what its member got.
    pub(crate) fn keep_admission(&mut self, known: &Self) {
        let both_hold = matches!((&known.phase, &self.phase), (JobPhase::Holds(_), JobPhase::Holds(_)));
        if both_hold {
            self.enqueued_at_ms = known.enqueued_at_ms;
        }
        if both_hold && known.queued == self.queued {
            self.preemptible = known.preemptible;
            if self.queued {
                self.runtime_ms = known.runtime_ms.into_iter().chain(self.runtime_ms).min();
            }
        }
    }

    /// How long the current run has run.
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
            lingers: false,
            cells: Vec::new(),
            ended: BTreeMap::new(),
            ungiven: BTreeSet::new(),
            excluded: BTreeMap::new(),
            vacated: BTreeMap::new(),
        }
    }
}

impl JobPhase {
    /// Holds places in `cluster` that no report includes.
    pub fn holds(cluster: &str) -> Self {
        Self::Holds(Held::here(cluster, Counted::ByPlanner))
    }
}

/// Why a job waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub reason: Reason,
    pub message: String,
    /// What is reserved for the job meanwhile.
    pub claim: Option<Box<UnitClaim>>,
}

impl Waiting {
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), claim: None }
    }
}

/// Jobs are named `namespace/name`.
pub(crate) fn namespace_of(id: &JobId) -> &str {
    id.as_str().split_once('/').map_or("", |(namespace, _)| namespace)
}

pub(crate) fn name_of(id: &JobId) -> &str {
    id.as_str().split_once('/').map_or(id.as_str(), |(_, name)| name)
}
