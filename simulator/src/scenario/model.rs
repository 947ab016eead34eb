//! A scenario as data.

use std::{collections::BTreeMap, time::Duration};

use fleet_resources::constraints::Taint;
use serde_json::Value;

/// Nodes of all clusters together.
pub const MAX_NODES: usize = 200_000;
/// Pods of one component.
pub const MAX_REPLICAS: i64 = 100_000;
/// The name of what is assumed where a file says nothing: policy, quota leaf.
pub const ASSUMED: &str = "assumed";
/// Kubernetes' own bound for pods on a node, where a pool names none.
pub(super) const DEFAULT_PODS: &str = "110";
/// The longest time a file may name.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// A scenario with its defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The file as the user named it, for messages.
    pub file: String,
    pub seed: u64,
    /// Virtual end; `None`: when nothing is left to happen.
    pub until: Option<Duration>,
    pub mode: Mode,
    /// Each name once, in the order of the file.
    pub clusters: Vec<ClusterSpec>,
    /// Applied at 0 before any event. Holds a policy, a quota tree and the PriorityClasses of `priority` numbers
    /// in any case.
    pub objects: Vec<Manifest>,
    /// By time, ties in file order.
    pub events: Vec<Event>,
}

/// Which simulation runs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Fast,
    Whole,
}

/// One member cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSpec {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub provider: Option<String>,
    pub region: Option<String>,
    pub zones: Vec<String>,
    /// Whether its agent answers reservations; else the hub compares sums.
    pub reservation: bool,
    pub node_pools: Vec<NodePool>,
}

/// Equal nodes, named `<pool>-0`, `<pool>-1` and so on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePool {
    pub name: String,
    pub count: usize,
    /// Kubernetes quantities by resource; `pods` is always among them.
    pub allocatable: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
}

impl NodePool {
    pub fn node_name(&self, index: usize) -> String {
        format!("{}-{index}", self.name)
    }
}

/// A Kubernetes object. `value` holds the namespace even where the file leaves it to the default.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// Line of the file it begins at; 0 for what is assumed.
    pub line: u64,
    pub api_version: String,
    pub kind: String,
    /// Empty for cluster-scoped kinds.
    pub namespace: String,
    pub name: String,
    pub value: Value,
    /// Written as `job`: it makes a job, and does not change one that is there.
    pub is_new: bool,
}

/// Something that happens.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub at: Duration,
    pub line: u64,
    pub action: Action,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Creates the object or replaces the one of that name; `job` and `edit` in the file become this too.
    Apply(Manifest),
    Delete(ObjectName),
    /// Somebody in the member makes or deletes an object there.
    ApplyInMember {
        cluster: String,
        manifest: Manifest,
    },
    DeleteInMember {
        cluster: String,
        name: ObjectName,
    },
    /// The hub takes the agent's credentials, or does not.
    Credentials {
        cluster: String,
        valid: bool,
    },
    Node {
        cluster: String,
        name: String,
        ready: bool,
    },
    /// Hub and member cannot talk.
    Partition {
        cluster: String,
    },
    Heal {
        cluster: String,
    },
    /// Without `restart_after` it stays away.
    Crash {
        process: Process,
        restart_after: Option<Duration>,
    },
}

/// What a delete names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectName {
    /// Where two API groups have the kind.
    pub api_version: Option<String>,
    pub kind: String,
    pub namespace: String,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Process {
    Hub,
    Agent { cluster: String },
}

/// Durations as Go writes them.
pub(super) fn duration(text: &str) -> Option<Duration> {
    match text.parse() {
        Ok(crate::RunTime::For(time)) if time <= LONGEST => Some(time),
        _ => None,
    }
}
