//! What pages show, as data: drawn as HTML, and handed to programs as JSON.

use fleet_views::{Bar, ClusterRow, Home, JobPage, JobQuery, JobRow, QueuePage, QueueRow, Queues, Timeline};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    form::{Form, Trouble},
    page::JobName,
};
use crate::{cells::tree::Row, explain::ClusterVerdict};

pub enum View {
    Home(Home),
    Queues(Queues),
    Queue(Box<QueuePage>),
    Jobs(JobQuery, JobPage),
    Job(Box<JobView>),
    Clusters(Vec<ClusterRow>),
    VirtualClusters(VirtualClustersView),
    Submit(Box<SubmitView>),
    Missing(String),
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
            Self::VirtualClusters(view) => json!(view),
            Self::Submit(_) => json!({}),
            Self::Missing(why) => json!({"message": why}),
        }
    }
}

#[derive(Default, Serialize)]
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
    pub pods: Vec<PodRow>,
    /// Why pods are not shown; empty where they are, or where there can be none.
    pub pods_absent: String,
    pub events: Vec<EventRow>,
    pub yaml: String,
    pub can_stop: bool,
    pub notices: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodRow {
    pub name: String,
    pub node: String,
    pub state: String,
    pub exit: String,
    pub restarts: i64,
    pub created_s: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualClustersView {
    pub rows: Vec<VirtualClusterRow>,
    /// Why there are no rows.
    pub absent: String,
    pub tree: Vec<Row>,
    /// Cells that are not drawn.
    pub more: usize,
    pub tree_absent: String,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualClusterRow {
    pub name: String,
    pub bar: Bar,
    pub gpu: String,
    pub lent: i64,
    pub borrowed: i64,
    pub bad: i64,
    pub waiting: i64,
    pub running: i64,
}

/// What the hub said to a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    pub classes: Vec<PriorityClass>,
}

impl SubmitView {
    pub fn has(&self, field: &str) -> bool {
        self.troubles.iter().any(|trouble| trouble.field == field)
    }
}
