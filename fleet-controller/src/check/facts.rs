//! What the invariants read of pods, bindings and the quota tree.

use std::collections::BTreeMap;

use fleet_api::names;
use fleet_resources::{Resources, quantity};
use serde_json::Value;

/// Side container without whose word the containers of a pod do not begin, and which stops them.
const WATCHDOG: &str = "fleet-watchdog";
/// Resource of a node that every pod takes one of.
const PODS: &str = "pods";
/// Name under which a quota tree counts jobs.
const MAX_JOBS: &str = "kube-queue/max-jobs";
/// Kinds that run to an end; pods of others have no run.
pub(super) const JOB_KINDS: [&str; 4] = ["PyTorchJob", "TFJob", "MPIJob", "Job"];

/// One pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    pub cluster: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// Kind and name of its controller.
    pub job: String,
    /// Uid of its controller: a job of a member is made anew for each run.
    pub run: String,
    pub is_job: bool,
    pub node: Option<String>,
    pub phase: String,
    /// Name and size of the gang.
    pub gang: Option<(String, i64)>,
    /// It has a watchdog: until it is Running its containers wait for a renewal of the member's lease.
    pub watched: bool,
    pub requests: Resources,
}

impl Pod {
    pub fn read(cluster: &str, pod: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let meta = &pod["metadata"];
        let owners = meta["ownerReferences"].as_array().map_or(&[][..], Vec::as_slice);
        let owner = owners.iter().find(|owner| owner["controller"] == true).cloned().unwrap_or_default();
        let gang = meta["annotations"][names::GANG_ANNOTATION].as_str().map(|gang| {
            let size = meta["annotations"][names::GANG_SIZE_ANNOTATION].as_str();
            (gang.to_string(), size.and_then(|size| size.parse().ok()).unwrap_or(0))
        });
        let mut requests = Resources::new();
        for container in pod["spec"]["containers"].as_array().into_iter().flatten() {
            requests.add(&amounts(&container["resources"]["requests"]));
        }
        requests.set(PODS, 1);
        Self {
            cluster: cluster.to_string(),
            namespace: text(&meta["namespace"]),
            name: text(&meta["name"]),
            uid: text(&meta["uid"]),
            job: format!("{} {}/{}", text(&owner["kind"]), text(&meta["namespace"]), text(&owner["name"])),
            run: text(&owner["uid"]),
            is_job: owner["kind"].as_str().is_some_and(|kind| JOB_KINDS.contains(&kind)),
            node: pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()).map(str::to_string),
            phase: text(&pod["status"]["phase"]),
            gang,
            watched: pod["spec"]["initContainers"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|container| container["name"] == WATCHDOG),
            requests,
        }
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }

    /// The node on which it takes room, with its cluster.
    pub fn takes(&self) -> Option<(String, String)> {
        let node = self.node.clone().filter(|_| !self.has_ended())?;
        Some((self.cluster.clone(), node))
    }

    /// The job it may run for, and the run: cluster and uid of the member's job.
    pub fn may_run_for(&self) -> Option<(String, (String, String))> {
        let may_run = self.is_job && !self.has_ended() && (!self.watched || self.phase == "Running");
        may_run.then(|| (self.job.clone(), (self.cluster.clone(), self.run.clone())))
    }
}

/// Resource amounts of an object; what cannot be read counts as nothing.
pub fn amounts(map: &Value) -> Resources {
    let mut found = Resources::new();
    for (name, value) in map.as_object().into_iter().flatten() {
        found.set(name.as_str(), amount(name, value));
    }
    found
}

fn amount(name: &str, value: &Value) -> i64 {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
    quantity::parse(name, &text).unwrap_or(0)
}

/// What one binding uses of its quota.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Use {
    pub namespace: String,
    pub requests: Resources,
    /// It queues, is bound and has not ended.
    pub counts: bool,
}

/// Reads a binding.
pub fn used_by(binding: &Value) -> Use {
    let mut requests = Resources::new();
    for component in binding["spec"]["components"].as_array().into_iter().flatten() {
        let replicas = component["replicas"].as_i64().unwrap_or(0);
        requests.add(&amounts(&component["request"]).scaled(replicas));
    }
    let queues = binding["spec"]["suspension"]["scheduling"].is_boolean();
    let bound = binding["spec"]["clusters"].as_array().is_some_and(|clusters| !clusters.is_empty());
    let ended = !binding["status"]["result"].is_null();
    Use {
        namespace: binding["metadata"]["namespace"].as_str().unwrap_or_default().to_string(),
        requests,
        counts: queues && bound && !ended,
    }
}

/// The quota tree, flat.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quota {
    pub nodes: Vec<QuotaNode>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuotaNode {
    pub path: String,
    parent: Option<usize>,
    namespaces: Vec<String>,
    pub max: BTreeMap<String, i64>,
    pub max_jobs: Option<i64>,
}

impl Quota {
    /// Reads the spec of an ElasticQuotaTree.
    pub fn read(spec: &Value) -> Self {
        let mut quota = Self::default();
        quota.add(&spec["root"], None);
        quota
    }

    fn add(&mut self, node: &Value, parent: Option<usize>) {
        let name = node["name"].as_str().unwrap_or_default();
        let path = parent.map_or_else(|| name.to_string(), |at| format!("{}/{name}", self.nodes[at].path));
        let mut max: BTreeMap<String, i64> = node["max"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.clone(), amount(name, value)))
            .collect();
        let max_jobs = max.remove(MAX_JOBS);
        let namespaces = node["namespaces"].as_array().into_iter().flatten();
        let namespaces = namespaces.filter_map(|name| name.as_str().map(str::to_string)).collect();
        let at = self.nodes.len();
        self.nodes.push(QuotaNode { path, parent, namespaces, max, max_jobs });
        for child in node["children"].as_array().into_iter().flatten() {
            self.add(child, Some(at));
        }
    }

    /// The node of a namespace and those above it.
    pub fn path_of(&self, namespace: &str) -> Vec<usize> {
        let leaf = self.nodes.iter().position(|node| node.namespaces.iter().any(|n| n == namespace));
        std::iter::successors(leaf, |at| self.nodes[*at].parent).collect()
    }
}
