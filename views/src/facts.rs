//! What views are made from, as plain data. Times are seconds since 1970, amounts base units.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Namespace and name of a job's binding.
pub type Id = (String, String);

/// A statement and its time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Said {
    pub reason: String,
    pub message: String,
    pub since_s: i64,
}

/// A job as its binding shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BindingFacts {
    pub api_version: String,
    pub kind: String,
    /// `jobs.batch.volcano.sh`: the resource in the API.
    pub resource: String,
    /// Name of the job itself, not of its binding.
    pub name: String,
    /// It runs to completion.
    pub is_job: bool,
    pub priority: i32,
    /// Who submitted it, as its label says.
    pub user: String,
    /// That of its cells, or that it names.
    pub virtual_cluster: String,
    pub created_s: i64,
    /// When it took its place in its queue, in milliseconds since 1970; an edit may lose a place. 0: not known.
    pub place_ms: i64,
    pub clusters: Vec<String>,
    pub epoch: i64,
    /// Of all pods together.
    pub requests: BTreeMap<String, i64>,
    pub pods: i64,
    /// Why it is not scheduled.
    pub unscheduled: Option<Said>,
    /// How often pods, or all of it, started anew within its present run, as far as its kind counts that.
    pub restarts: i64,
    pub run: Option<RunFacts>,
    pub attempts: Vec<AttemptFacts>,
    pub end: Option<End>,
}

/// The run of the current epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunFacts {
    pub since_s: i64,
    pub started_s: Option<i64>,
    pub lost_since_s: Option<i64>,
}

/// A run that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttemptFacts {
    pub cluster: String,
    pub epoch: i64,
    pub reason: String,
    pub message: String,
    pub started_s: Option<i64>,
    pub ended_s: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct End {
    pub is_success: bool,
    pub cluster: String,
    pub at_s: i64,
    /// Why Fleet itself ended it; or else why it failed, as its own status says.
    pub reason: Option<String>,
    pub message: Option<String>,
}

/// A job's place in its queue, from its QueueUnit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnitFacts {
    /// Full path of the leaf.
    pub queue: String,
    pub priority: i32,
    pub created_s: i64,
    pub waits: bool,
    pub runs: bool,
    pub preemptible: bool,
    pub said: Option<Said>,
    pub claim: Option<ClaimFacts>,
}

/// Capacity that is reserved for a waiting job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClaimFacts {
    pub cluster: String,
    pub since_s: i64,
    pub start_s: Option<i64>,
    /// It is given up then at the latest.
    pub until_s: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaintFacts {
    pub key: String,
    pub value: String,
    pub effect: String,
}

impl TaintFacts {
    /// As kubectl prints it.
    pub fn text(&self) -> String {
        match self.value.as_str() {
            "" => format!("{}:{}", self.key, self.effect),
            value => format!("{}={value}:{}", self.key, self.effect),
        }
    }
}

/// Nodes of a cluster with the same shape.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeGroup {
    pub count: i64,
    pub gpus: i64,
    pub gpus_free: i64,
    /// Names of those on which something runs; may be fewer than `count`.
    pub names: Vec<String>,
    /// `key=value:effect` of each.
    pub taints: Vec<String>,
    /// HyperNode, rack or zone; empty if the cluster says none.
    pub domain: String,
    /// Kept for cells of virtual clusters.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub of_cells: bool,
    /// Why they take no pods; empty if they do.
    pub unusable: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
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

/// The lease that a cluster's agent renews.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LeaseFacts {
    pub renewed_s: Option<i64>,
    pub lasts_s: i64,
    /// The hub evicts jobs from this cluster.
    pub declared_lost: bool,
}

/// The places that a member holds for a run of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaceFacts {
    pub cluster: String,
    /// Of the job.
    pub id: Id,
    pub nodes: BTreeSet<String>,
}

/// A virtual cluster as the hub counts it, in leaf cells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VirtualClusterFacts {
    pub name: String,
    pub allocation: String,
    /// Used/good, as the hub writes it; CPUs and memory likewise.
    pub gpu: String,
    pub cpu: String,
    pub memory: String,
    pub guaranteed: i64,
    /// By jobs with a promise.
    pub used: i64,
    pub bad: i64,
    /// Used by opportunistic jobs of others.
    pub lent: i64,
    /// Of others, by its own opportunistic jobs.
    pub borrowed: i64,
    pub waiting: i64,
    pub running: i64,
}

/// A node of the quota tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QuotaFacts {
    pub name: String,
    pub namespaces: Vec<String>,
    /// That of its jobs which name none.
    pub virtual_cluster: String,
    pub min: BTreeMap<String, i64>,
    pub max: BTreeMap<String, i64>,
    pub used: BTreeMap<String, i64>,
    /// Used by running jobs whose policy uses no queue.
    pub unqueued: BTreeMap<String, i64>,
    pub children: Vec<QuotaFacts>,
}

/// The quota tree in force, and the errors of trees that are not in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TreeFacts {
    pub root: Option<QuotaFacts>,
    pub problems: Vec<String>,
}
