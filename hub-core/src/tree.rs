//! The Queue objects of the quota tree, and the use that Queues and tree report.

use fleet_api::patch::merge_diff;
use std::collections::{BTreeMap, BTreeSet};

use fleet_api::{
    Queue,
    cells::{AccessRules, VcAccess},
    names,
};
use fleet_quota::Planner;
use fleet_quota_tree::{MAX_JOBS, NodeId, QuotaTree, queue_prefix};
use fleet_resources::{Resources, quantity};
use kube_core::ResourceExt;
use serde_json::{Map, Value, json};

use crate::{
    schedule::{Scheduler, key_of},
    trees::Trees,
    unqueued::{self, Unqueued},
    world::{Key, World},
    writes::{Target, Verb, Write},
};

/// Waiting jobs listed in a queue's status; the rest are only counted.
const LISTED_ITEMS: usize = 10;

pub(crate) const QUEUE_API: &str = "scheduling.x-k8s.io/v1alpha1";

/// Queue objects by the full name of their quota node.
fn queues_by_path(world: &World) -> BTreeMap<&str, Vec<(&Key, &Queue)>> {
    let mut found: BTreeMap<&str, Vec<(&Key, &Queue)>> = BTreeMap::new();
    for (key, queue) in world.queues.iter() {
        let made = key.0 == names::QUEUE_NAMESPACE && queue.labels().contains_key(names::QUEUE_CREATED_LABEL);
        if let (true, Some(path)) = (made, queue.annotations().get(names::QUOTA_FULLNAME_ANNOTATION)) {
            found.entry(path).or_default().push((key, queue));
        }
    }
    found
}

/// Creates a Queue for each node of the tree, and deletes those of nodes that are gone.
pub fn plan_queues(world: &World, tree: Option<&QuotaTree>, access: &AccessRules) -> Vec<Write> {
    let mut writes = Vec::new();
    if !world.namespaces.contains_key(names::QUEUE_NAMESPACE) {
        let body =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names::QUEUE_NAMESPACE}});
        return vec![Write::new(Target::Namespace, "", names::QUEUE_NAMESPACE, Verb::Create(body))];
    }
    let known = queues_by_path(world);
    let mut wanted: BTreeSet<&str> = BTreeSet::new();
    for (tree, id) in tree.iter().flat_map(|tree| tree.ids().map(move |id| (tree, id))) {
        let path = tree.node(id).path.as_str();
        wanted.insert(path);
        let gate = Gate::of(tree, id, access);
        match known.get(path).and_then(|queues| queues.first()) {
            None => writes.push(new_queue(path, &gate)),
            Some((key, queue)) => writes.extend(gate.patch(key, queue)),
        }
    }
    for (path, queues) in known {
        // If a crash has created two Queues of a path, the oldest stays.
        let keep = usize::from(wanted.contains(path));
        for (key, queue) in queues.into_iter().skip(keep) {
            if queue.metadata.deletion_timestamp.is_none() {
                let uid = queue.uid().unwrap_or_default();
                writes.push(Write::new(Target::Queue, &key.0, &key.1, Verb::Delete { uid }));
            }
        }
    }
    writes
}

/// Labels and annotations of a leaf with restricted submitters, for the hub's admission policy.
struct Gate {
    label: Option<&'static str>,
    submitters: Option<String>,
    namespaces: Option<String>,
}

impl Gate {
    fn of(tree: &QuotaTree, id: NodeId, access: &AccessRules) -> Self {
        let node = tree.node(id);
        // Submitters of the leaf must also be submitters of its virtual cluster.
        let vc = node.attributes.get(names::VIRTUAL_CLUSTER_LABEL).and_then(|vc| access.get(vc));
        let lists: Vec<String> =
            tree.submitters(id).into_iter().chain(vc.and_then(VcAccess::subjects)).collect();
        let is_gated = !lists.is_empty() && node.is_leaf() && !node.draining;
        let submitters = is_gated.then(|| lists.join(";"));
        let namespaces = submitters.is_some().then(|| node.namespaces.join(","));
        Self { label: submitters.is_some().then_some("true"), submitters, namespaces }
    }

    fn annotations(&self) -> [(&'static str, Option<&String>); 2] {
        [
            (names::SUBMITTERS_ANNOTATION, self.submitters.as_ref()),
            (names::QUOTA_NAMESPACES_ANNOTATION, self.namespaces.as_ref()),
        ]
    }

    /// The patch that updates a Queue; `None` if it is up to date.
    fn patch(&self, key: &Key, queue: &Queue) -> Option<Write> {
        let label = queue.labels().get(names::RESTRICTED_LABEL).map(String::as_str);
        let known = self.annotations().map(|(name, _)| queue.annotations().get(name));
        if label == self.label && known == self.annotations().map(|(_, value)| value) {
            return None;
        }
        let annotations: BTreeMap<_, _> = self.annotations().into();
        let metadata = json!({"labels": {names::RESTRICTED_LABEL: self.label}, "annotations": annotations});
        Some(Write::new(Target::Queue, &key.0, &key.1, Verb::Merge(json!({"metadata": metadata}))))
    }
}

fn new_queue(path: &str, gate: &Gate) -> Write {
    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    let mut body = json!({
        "apiVersion": QUEUE_API,
        "kind": "Queue",
        "metadata": {
            "generateName": queue_prefix(path),
            "namespace": names::QUEUE_NAMESPACE,
            "labels": {names::QUEUE_CREATED_LABEL: "true"},
            "annotations": {names::QUOTA_FULLNAME_ANNOTATION: path, names::QUEUE_PARENT_ANNOTATION: parent},
        },
        "spec": {"queuePolicy": "Priority"},
    });
    if let Some(label) = gate.label {
        body["metadata"]["labels"][names::RESTRICTED_LABEL] = json!(label);
    }
    for (name, value) in gate.annotations() {
        if let Some(value) = value {
            body["metadata"]["annotations"][name] = json!(value);
        }
    }
    Write::new(Target::Queue, names::QUEUE_NAMESPACE, "", Verb::Create(body))
}

/// The queue policy that users set for each node.
pub fn queue_policies(world: &World) -> BTreeMap<String, (String, Option<i64>)> {
    queues_by_path(world)
        .into_iter()
        .filter_map(|(path, queues)| {
            let queue = queues.first()?.1;
            let threshold = queue.annotations().get("priority-threshold").and_then(|text| text.parse().ok());
            Some((path.to_string(), (queue.spec.queue_policy.clone()?, threshold)))
        })
        .collect()
}

/// Statuses of Queues and tree.
#[derive(Debug, Default)]
pub struct Summaries {
    /// Writes for those that changed.
    pub writes: Vec<Write>,
    pub counts: Vec<QueueCount>,
}

/// Jobs of a node of the quota tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueCount {
    pub path: String,
    pub waiting: i64,
    pub admitted: i64,
}

pub fn plan_summaries(world: &World, trees: &Trees, scheduler: &Scheduler) -> Summaries {
    let Some(planner) = scheduler.planner().quota() else { return Summaries::default() };
    let ledger = planner.ledger();
    let tree = ledger.tree();
    let sums = Sums::of(world, planner);
    let Sums { waiting, unqueued, .. } = &sums;
    let counted = tree.ids().map(|id| {
        let waiting = waiting.get(&id).copied().unwrap_or(0);
        QueueCount { path: tree.node(id).path.clone(), waiting, admitted: ledger.job_count(id) }
    });
    let counts = counted.collect();
    let mut writes = Vec::new();
    let queues = queues_by_path(world);
    for id in tree.ids() {
        let node = tree.node(id);
        let Some((key, queue)) = queues.get(node.path.as_str()).and_then(|queues| queues.first()) else {
            continue;
        };
        let items: Vec<Value> = if node.is_leaf() { items(planner, id) } else { Vec::new() };
        let mut desired = json!({
            "waiting": waiting.get(&id).copied().unwrap_or(0),
            "admitted": ledger.job_count(id) - unqueued.get(&id).map_or(0, |sum| sum.jobs),
        });
        if !items.is_empty() {
            desired["queueItemDetails"] = json!({"active": items});
        }
        let known = queue.status.as_ref().map_or(Value::Null, |status| json!(status));
        if let Some(patch) = merge_diff(&known, &desired) {
            writes.push(Write::new(
                Target::Queue,
                &key.0,
                &key.1,
                Verb::MergeStatus(json!({"status": patch})),
            ));
        }
    }
    if let Some(object) = trees.holder(world) {
        let root = sums.status(NodeId::ROOT);
        let known =
            object.status.as_ref().and_then(|status| status.root.as_ref()).map_or(Value::Null, |r| json!(r));
        if known != root {
            let key = (object.namespace().unwrap_or_default(), object.name_any());
            writes.push(Write::new(
                Target::Tree,
                &key.0,
                &key.1,
                Verb::MergeStatus(json!({"status": {"root": merge_diff(&known, &root)}})),
            ));
        }
    }
    Summaries { writes, counts }
}

fn items(planner: &Planner, leaf: NodeId) -> Vec<Value> {
    planner
        .queues()
        .first(leaf, LISTED_ITEMS)
        .into_iter()
        .enumerate()
        .map(|(at, job)| {
            let (namespace, name) = key_of(&job.id);
            json!({"name": name, "namespace": namespace, "priority": job.priority, "position": at + 1})
        })
        .collect()
}

/// Use of each node.
pub(crate) struct Sums<'a> {
    ledger: &'a fleet_quota::Ledger,
    waiting: BTreeMap<NodeId, i64>,
    asked: BTreeMap<NodeId, Resources>,
    unqueued: BTreeMap<NodeId, Unqueued>,
}

impl<'a> Sums<'a> {
    pub(crate) fn of(world: &World, planner: &'a Planner) -> Self {
        let ledger = planner.ledger();
        let tree = ledger.tree();
        let mut waiting: BTreeMap<NodeId, i64> = BTreeMap::new();
        let mut asked: BTreeMap<NodeId, Resources> = BTreeMap::new();
        for leaf in tree.leaves() {
            let (count, sum) = planner.queues().asked(leaf);
            for node in tree.path_to_root(leaf) {
                *waiting.entry(node).or_default() += count as i64;
                asked.entry(node).or_default().add(&sum);
            }
        }
        Self { ledger, waiting, asked, unqueued: unqueued::by_node(world, ledger) }
    }

    /// The status of a node with all below it.
    pub(crate) fn status(&self, id: NodeId) -> Value {
        let node = self.ledger.tree().node(id);
        let (jobs, all) = (self.ledger.job_count(id), self.ledger.used(id));
        let mut request = all.clone();
        if let Some(asked) = self.asked.get(&id) {
            request.add(asked);
        }
        let unqueued = self.unqueued.get(&id).filter(|sum| sum.jobs > 0);
        // Resources that the tree does not name count as unused.
        let known = unqueued.map_or_else(Resources::new, |sum| {
            Resources::from_pairs(
                sum.resources
                    .iter()
                    .filter(|(name, _)| all.get(name.as_str()) > 0)
                    .map(|(name, n)| (name.clone(), n)),
            )
        });
        let mut status = json!({
            "name": node.name,
            "used": amounts(&all.minus(&known), jobs - unqueued.map_or(0, |sum| sum.jobs)),
            "request": amounts(&request, jobs + self.waiting.get(&id).copied().unwrap_or(0)),
        });
        if let Some(sum) = unqueued {
            status["unqueued"] = json!(amounts(&known, sum.jobs));
        }
        if !node.namespaces.is_empty() {
            status["namespaces"] = json!(node.namespaces);
        }
        if !node.children.is_empty() {
            let children: Vec<Value> = node.children.iter().map(|child| self.status(*child)).collect();
            status["children"] = json!(children);
        }
        status
    }
}

/// Resource to quantity, with the number of jobs if there are any.
fn amounts(resources: &Resources, jobs: i64) -> Map<String, Value> {
    let mut map: Map<String, Value> = Map::new();
    for (name, amount) in resources.iter().filter(|(name, _)| name.as_str() != MAX_JOBS) {
        map.insert(name.as_str().to_string(), json!(quantity::format(name.as_str(), amount)));
    }
    map.insert(MAX_JOBS.to_string(), json!(jobs.to_string()));
    map
}
