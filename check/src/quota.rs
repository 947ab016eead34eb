//! The quota tree as the checker reads it: who may use how much, and what the hub says is used.

use std::collections::BTreeMap;

use fleet_resources::Resources;
use serde_json::Value;

use super::{
    Violation,
    requests::{amount, amounts},
    violation::broken,
};

/// Name under which a quota tree counts jobs.
const MAX_JOBS: &str = "kube-queue/max-jobs";
/// Labels by which a job names its leaf, by name or by path; the first counts.
const LEAF_LABELS: [&str; 2] =
    ["quota.scheduling.alibabacloud.com/name", "quota.scheduling.koordinator.sh/name"];

/// The quota tree, flat.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quota {
    pub nodes: Vec<QuotaNode>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuotaNode {
    pub path: String,
    name: String,
    parent: Option<usize>,
    is_leaf: bool,
    namespaces: Vec<String>,
    pub max: BTreeMap<String, i64>,
    pub max_jobs: Option<i64>,
}

/// What one job takes of its leaf.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Use {
    pub namespace: String,
    /// Name of the leaf as the job's label has it.
    pub leaf: Option<String>,
    pub requests: Resources,
    /// It queues, is bound and has not ended.
    pub counts: bool,
}

/// Who says what is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UsageSource {
    /// Bindings on the hub.
    Hub,
    /// Pods in the members.
    Pods,
}

/// Reads a binding, with the labels of its job.
pub fn used_by(binding: &Value, labels: &Value) -> Use {
    let mut requests = Resources::new();
    for component in binding["spec"]["components"].as_array().into_iter().flatten() {
        let replicas = component["replicas"].as_i64().unwrap_or(0);
        requests.add(&amounts(&component["request"]).scaled(replicas));
    }
    let bound = binding["spec"]["clusters"].as_array().is_some_and(|clusters| !clusters.is_empty());
    let ended = !binding["status"]["result"].is_null();
    Use {
        namespace: binding["metadata"]["namespace"].as_str().unwrap_or_default().to_string(),
        leaf: leaf_label(labels),
        requests,
        counts: queues(binding) && bound && !ended,
    }
}

/// Whether the job of a binding goes through a queue. What does not queue is bound whatever the tree says.
pub(super) fn queues(binding: &Value) -> bool {
    binding["spec"]["suspension"]["scheduling"].is_boolean()
}

pub(super) fn leaf_label(labels: &Value) -> Option<String> {
    let named = LEAF_LABELS.iter().filter_map(|label| labels[*label].as_str());
    named.filter(|name| !name.is_empty()).map(str::to_string).next()
}

/// The leaf in which the run of a binding was admitted: it counts there until it has ended, although the labels of its
/// job may name another by now.
pub(super) fn leaf_of_run(binding: &Value) -> Option<String> {
    binding["spec"]["queue"].as_str().filter(|leaf| !leaf.is_empty()).map(str::to_string)
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
        let children = node["children"].as_array().map_or(&[][..], Vec::as_slice);
        let (at, name, is_leaf) = (self.nodes.len(), name.to_string(), children.is_empty());
        self.nodes.push(QuotaNode { path, name, parent, is_leaf, namespaces, max, max_jobs });
        for child in children {
            self.add(child, Some(at));
        }
    }

    /// The leaf that a job names, else that of its namespace, and the nodes above it. A job that names no leaf of
    /// the tree belongs nowhere.
    pub fn path_of(&self, leaf: Option<&str>, namespace: &str) -> Vec<usize> {
        let leaf = match leaf {
            Some(named) => {
                let by = |is: &dyn Fn(&QuotaNode) -> bool| self.nodes.iter().position(is);
                let at = by(&|node| node.path == named).or_else(|| by(&|node| node.name == named));
                at.filter(|at| self.nodes[*at].is_leaf)
            }
            None => self.nodes.iter().position(|node| node.namespaces.iter().any(|n| n == namespace)),
        };
        std::iter::successors(leaf, |at| self.nodes[*at].parent).collect()
    }

    /// Amounts and jobs at each node over which something is used.
    pub(super) fn sums<'a>(&self, uses: impl Iterator<Item = &'a Use>) -> BTreeMap<usize, (Resources, i64)> {
        let mut sums: BTreeMap<usize, (Resources, i64)> = BTreeMap::new();
        for used in uses.filter(|used| used.counts) {
            for node in self.path_of(used.leaf.as_deref(), &used.namespace) {
                let (sum, jobs) = sums.entry(node).or_default();
                sum.add(&used.requests);
                *jobs += 1;
            }
        }
        sums
    }

    /// 3: for each node used <= max, for every resource and the number of jobs.
    pub(super) fn over<'a>(
        &self,
        source: UsageSource,
        uses: impl Iterator<Item = &'a Use>,
    ) -> Vec<Violation> {
        let mut found = Vec::new();
        for (node, (sum, jobs)) in self.sums(uses) {
            let node = &self.nodes[node];
            let by = match source {
                UsageSource::Hub => "",
                UsageSource::Pods => " by pods in members",
            };
            if let Some(max) = node.max_jobs.filter(|max| jobs > *max) {
                found.push(broken(3, format!("quota {}: {jobs} jobs{by}, max {max}", node.path)));
            }
            for (name, max) in node.max.iter().filter(|(name, max)| sum.get(name) > **max) {
                let used = sum.get(name);
                found.push(broken(3, format!("quota {}: {name} {used} used{by}, max {max}", node.path)));
            }
        }
        found
    }

    /// 3: the hub counts all that pods take, as the status of its tree says.
    pub(super) fn uncounted<'a>(
        &self,
        status: &Value,
        real: impl Iterator<Item = &'a Use>,
    ) -> Vec<Violation> {
        let mut believed = BTreeMap::new();
        read_used(&status["root"], "", &mut believed);
        let mut found = Vec::new();
        for (at, (sum, jobs)) in self.sums(real) {
            let node = &self.nodes[at];
            // A node about which the hub has said nothing yet.
            let Some((counted, counted_jobs)) = believed.get(&node.path) else { continue };
            if jobs > *counted_jobs {
                let what =
                    format!("quota {}: {jobs} jobs have pods, the hub counts {counted_jobs}", node.path);
                found.push(broken(3, what));
            }
            // The hub counts what some node of the tree bounds, and nothing else.
            for name in node.max.keys() {
                let (used, counted) = (sum.get(name), counted.get(name));
                if used > counted {
                    let what =
                        format!("quota {}: pods take {used} {name}, the hub counts {counted}", node.path);
                    found.push(broken(3, what));
                }
            }
        }
        found
    }
}

fn read_used(node: &Value, above: &str, found: &mut BTreeMap<String, (Resources, i64)>) {
    let Some(name) = node["name"].as_str() else { return };
    let path = if above.is_empty() { name.to_string() } else { format!("{above}/{name}") };
    let used = amounts(&node["used"]);
    found.insert(path.clone(), (used.clone(), amount(MAX_JOBS, &node["used"][MAX_JOBS])));
    for child in node["children"].as_array().into_iter().flatten() {
        read_used(child, &path, found);
    }
}
