//! What pages show, as data: drawn as HTML, and handed to programs as JSON.

use std::collections::BTreeMap;

use fleet_openpai::cells::{plan::ConfigurationPlan, tree::Row};
use fleet_views::{
    ClusterPage, Home, JobPage, JobQuery, JobRow, PreemptionRow, QueuePage, QueueRow, Queues, Timeline,
    VirtualClusterRow,
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    form::{Form, Trouble},
    page::JobName,
};

/// Who looks at a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visitor {
    pub user: String,
    /// Stands in every form of this visitor.
    pub form_key: String,
}

/// Whether the hub answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hub {
    Up,
    Away { since: Timestamp, why: String },
}

/// What one cluster would say to a job now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ClusterVerdict {
    pub cluster: String,
    pub fits: bool,
    /// The job is there.
    pub here: bool,
    pub sentence: String,
}

pub enum View {
    Home(Home),
    Queues(Queues),
    Queue(Box<QueuePage>),
    Jobs(Box<JobQuery>, JobPage),
    Job(Box<JobView>),
    Clusters(Vec<ClusterPage>),
    Cluster(Box<ClusterPage>),
    VirtualClusters(VirtualClustersView),
    Submit(Box<SubmitView>),
    /// Why, with a status of HTTP.
    Missing(u16, String),
}

impl View {
    /// The same for programs.
    pub fn json(&self) -> Value {
        match self {
            Self::Home(view) => json!(view),
            Self::Queues(view) => json!(view),
            Self::Queue(view) => json!(view),
            Self::Jobs(_, view) => json!(view),
            Self::Job(view) => json!(view),
            Self::Clusters(view) => json!({"rows": view}),
            Self::Cluster(view) => json!(view),
            Self::VirtualClusters(view) => json!(view),
            Self::Submit(_) => json!({}),
            Self::Missing(_, why) => json!({"message": why}),
        }
    }
}

#[derive(Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobView {
    #[serde(skip)]
    pub name: JobName,
    /// `None` of a job that the fleet has no binding of.
    pub row: Option<JobRow>,
    /// Reason and sentence of one without a binding.
    pub said: (String, String),
    /// Place in its queue, and how many wait there.
    pub position: Option<(usize, usize)>,
    pub preemptible: Option<bool>,
    pub timeline: Option<Timeline>,
    pub verdicts: Vec<ClusterVerdict>,
    pub quota: Vec<QueueRow>,
    /// Those that failed are first.
    pub pods: Vec<PodRow>,
    pub more_pods: usize,
    /// Why pods are not shown; empty where they are, or where there can be none.
    pub pods_absent: String,
    /// Runs of others that were preempted for this job, the newest first.
    pub preempted: Vec<PreemptionRow>,
    pub more_preempted: usize,
    pub events: Vec<EventRow>,
    pub yaml: String,
    pub can_stop: bool,
    pub notices: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodRow {
    pub name: String,
    pub node: String,
    pub state: String,
    /// Exit codes of its containers with their reasons; of one that was restarted, how it ended before.
    pub exit: String,
    /// It failed, or one of its containers ended with another code than 0.
    pub has_failed: bool,
    pub restarts: i64,
    /// GPUs it asks for.
    pub gpus: i64,
    /// Which of its node's, where its cells say that; else empty.
    pub gpu_numbers: String,
    pub created_s: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventRow {
    pub last_s: Option<i64>,
    pub kind: String,
    pub reason: String,
    pub message: String,
    pub count: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorityClass {
    pub name: String,
    pub consequence: String,
}

#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualClustersView {
    pub rows: Vec<VirtualClusterRow>,
    /// Why there are no rows.
    pub absent: String,
    pub tree: Vec<Row>,
    /// Cells that are not drawn.
    pub more: usize,
    pub tree_absent: String,
    /// Of each virtual cluster what it is promised, with the cells that stand for it; a promise that no good cells are
    /// left for is bad.
    pub cells: Vec<OwnCells>,
    /// The pages of jobs on cells, by `namespace/name`.
    #[serde(skip)]
    pub links: BTreeMap<String, String>,
}

/// The cells of one virtual cluster.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OwnCells {
    pub name: String,
    pub rows: Vec<Row>,
    /// Cells that are not drawn.
    pub more: usize,
}

/// What the hub said to a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Check {
    pub notices: Vec<String>,
    pub verdicts: Vec<ClusterVerdict>,
}

pub struct SubmitView {
    pub form: Form,
    /// The editor instead of the form.
    pub yaml: Option<String>,
    pub troubles: Vec<Trouble>,
    pub check: Option<Check>,
    pub queues: Vec<String>,
    pub virtual_clusters: Vec<String>,
    pub classes: Vec<PriorityClass>,
}

impl SubmitView {
    pub fn has(&self, field: &str) -> bool {
        self.troubles.iter().any(|trouble| trouble.field == field)
    }
}

/// Another configuration of cells, and what it would change.
#[derive(Default)]
pub struct ConfigurationView {
    pub text: String,
    /// Why it is no configuration, or was not applied.
    pub troubles: Vec<String>,
    /// What the text would change.
    pub plan: Option<ConfigurationPlan>,
    /// Stands for the difference that was looked at.
    pub seen: String,
    pub may_apply: bool,
    /// Why there is nothing to write: the hub does not let this user read what stands.
    pub absent: String,
}
