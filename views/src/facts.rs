//! What views are made from, as plain data. Times are seconds since 1970, amounts base units.

use std::collections::BTreeMap;

use serde::Serialize;

/// Namespace and name of a job's binding.
pub type Id = (String, String);

/// What somebody said, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Said {
    pub reason: String,
    pub message: String,
    pub since_s: i64,
}

/// A job as its binding shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BindingFacts {
    pub api_version: String,
    pub kind: String,
    /// `jobs.batch.volcano.sh`: the resource in the API.
    pub resource: String,
    /// Of the job itself, which is not its binding's.
    pub name: String,
    /// It runs to an end.
    pub is_job: bool,
    pub priority: i32,
    pub created_s: i64,
    pub clusters: Vec<String>,
    pub epoch: i64,
    /// Of all pods together.
    pub requests: BTreeMap<String, i64>,
    pub pods: i64,
    /// Why it is not scheduled.
    pub unscheduled: Option<Said>,
    pub run: Option<RunFacts>,
    pub attempts: Vec<AttemptFacts>,
    pub end: Option<End>,
}

/// The run of the present epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFacts {
    pub since_s: i64,
    pub started_s: Option<i64>,
    pub lost_since_s: Option<i64>,
}

/// A run that is over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttemptFacts {
    pub cluster: String,
    pub epoch: i64,
    pub reason: String,
    pub message: String,
    pub started_s: Option<i64>,
    pub ended_s: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    pub is_success: bool,
    pub cluster: String,
    pub at_s: i64,
    /// Why Fleet itself ended it.
    pub reason: Option<String>,
    pub message: Option<String>,
}

/// A job's place in its queue, as its QueueUnit shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitFacts {
    /// Full path of the leaf.
    pub queue: String,
    pub priority: i32,
    pub created_s: i64,
    pub waits: bool,
    pub runs: bool,
    pub preemptible: bool,
    pub said: Option<Said>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TaintFacts {
    pub key: String,
    pub value: String,
    pub effect: String,
}

/// Nodes of a cluster that are alike.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeGroup {
    pub count: i64,
    pub gpus: i64,
    pub gpus_free: i64,
    /// Of those on which something runs; may be fewer than `count`.
    pub names: Vec<String>,
    /// `key=value:effect` of each.
    pub taints: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterFacts {
    pub version: String,
    pub region: String,
    pub provider: String,
    pub ready: Option<bool>,
    pub ready_said: Said,
    pub cordoned: bool,
    pub draining: bool,
    pub gone: bool,
    pub taints: Vec<TaintFacts>,
    pub nodes: i64,
    pub nodes_ready: i64,
    pub allocatable: BTreeMap<String, i64>,
    pub allocated: BTreeMap<String, i64>,
    pub groups: Vec<NodeGroup>,
}

/// The lease by which a cluster's agent shows that it is alive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseFacts {
    pub renewed_s: Option<i64>,
    pub lasts_s: i64,
    /// The hub moves jobs off this cluster.
    pub declared_lost: bool,
}

/// A node of the quota tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaFacts {
    pub name: String,
    pub namespaces: Vec<String>,
    pub min: BTreeMap<String, i64>,
    pub max: BTreeMap<String, i64>,
    pub used: BTreeMap<String, i64>,
    /// By running jobs whose policy uses no queue.
    pub unqueued: BTreeMap<String, i64>,
    pub children: Vec<QuotaFacts>,
}

/// The quota tree in force, and what is wrong with trees that are not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeFacts {
    pub root: Option<QuotaFacts>,
    pub problems: Vec<String>,
}
