//! The quota tree on the hub: which ElasticQuotaTree counts, the Queue objects made from it, and what both
//! say of their use.

use fleet_api::patch::merge_diff;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fleet_api::{ElasticQuotaTree, Queue, names};
use fleet_policies::reason::Reason;
use fleet_quota::{MAX_JOBS, NodeId, NodeSpec, Planner, QuotaTree, queue_prefix};
use fleet_resources::{Resources, quantity};
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Map, Value, json};

use crate::{
    events,
    schedule::{Scheduler, key_of},
    status::{condition, find_condition},
    world::{Key, World},
    writes::{Target, Verb, Write},
};

/// Waiting jobs listed in a queue's status; the rest are only counted.
const LISTED_ITEMS: usize = 10;

const TREE_API: &str = "scheduling.sigs.k8s.io/v1beta1";
const QUEUE_API: &str = "scheduling.x-k8s.io/v1alpha1";
const SOURCE: &str = "fleet-controller";

/// What was last read from the tree object.
#[derive(Default)]
pub struct Trees {
    /// The object in force, and its generation.
    in_force: Option<(Key, String, i64)>,
    verdict: Verdict,
}

#[derive(Default, Clone)]
struct Verdict {
    usable: Result3,
    warnings: Vec<String>,
}

#[derive(Default, Clone)]
enum Result3 {
    #[default]
    None,
    Used,
    Refused(String),
}

/// A change of the tree in force: `Some(None)` takes it away.
pub type TreeChange = Option<Option<Arc<QuotaTree>>>;

impl Trees {
    /// Reads the tree that counts: the oldest in kube-system. A tree that cannot be used leaves the last
    /// usable one in force.
    pub fn read(&mut self, world: &World) -> TreeChange {
        let Some(chosen) = chosen(world) else {
            let had = self.in_force.take().is_some();
            self.verdict = Verdict::default();
            return had.then_some(None);
        };
        let id = (key(chosen), chosen.uid().unwrap_or_default(), chosen.metadata.generation.unwrap_or(0));
        if self.in_force.as_ref() == Some(&id) {
            return None;
        }
        self.in_force = Some(id);
        let root = serde_json::to_value(&chosen.spec.root).unwrap_or_default();
        let built = serde_json::from_value::<NodeSpec>(root)
            .map_err(|error| error.to_string())
            .and_then(|root| QuotaTree::build(&root).map_err(|error| error.to_string()));
        match built {
            Ok((tree, warnings)) => {
                let warnings = warnings.iter().map(|warning| warning.sentence.clone()).collect();
                self.verdict = Verdict { usable: Result3::Used, warnings };
                Some(Some(Arc::new(tree)))
            }
            Err(message) => {
                self.verdict = Verdict { usable: Result3::Refused(message), warnings: Vec::new() };
                None
            }
        }
    }

    /// Conditions and warning events of every tree object.
    pub fn plan_conditions(&self, world: &World, now: Timestamp) -> Vec<Write> {
        let chosen = chosen(world).map(key);
        let mut writes = Vec::new();
        for (tree_key, tree) in &world.trees {
            let told: Vec<(&str, &str, Reason, String)> = if Some(tree_key) == chosen.as_ref() {
                self.told()
            } else {
                let first = chosen.as_ref().map_or("none".to_string(), |(ns, name)| format!("{ns}/{name}"));
                let message = format!(
                    "metadata: found {}/{}; allowed: one tree, in namespace {}; {first} is in force",
                    tree_key.0,
                    tree_key.1,
                    names::QUOTA_NAMESPACE
                );
                vec![("Valid", "False", Reason::QuotaTreeInvalid, message)]
            };
            writes.extend(conditions(tree_key, tree, &told, now));
        }
        writes
    }

    fn told(&self) -> Vec<(&'static str, &'static str, Reason, String)> {
        match &self.verdict.usable {
            Result3::None => Vec::new(),
            Result3::Refused(message) => vec![("Valid", "False", Reason::QuotaTreeInvalid, message.clone())],
            Result3::Used => {
                let valid = ("Valid", "True", Reason::ApplyPolicySucceed, "the tree is in force".to_string());
                let rules = match self.verdict.warnings.is_empty() {
                    true => {
                        ("RulesKept", "True", Reason::ApplyPolicySucceed, "no rule is broken".to_string())
                    }
                    false => {
                        ("RulesKept", "False", Reason::QuotaTreeWarning, self.verdict.warnings.join("; "))
                    }
                };
                vec![valid, rules]
            }
        }
    }
}

fn key(tree: &ElasticQuotaTree) -> Key {
    (tree.namespace().unwrap_or_default(), tree.name_any())
}

fn chosen(world: &World) -> Option<&ElasticQuotaTree> {
    let here =
        world.trees.values().filter(|tree| tree.namespace().as_deref() == Some(names::QUOTA_NAMESPACE));
    let alive = here.filter(|tree| tree.metadata.deletion_timestamp.is_none());
    alive.min_by_key(|tree| (tree.creation_timestamp().map(|time| time.0), tree.name_any()))
}

fn conditions(
    key: &Key,
    tree: &ElasticQuotaTree,
    told: &[(&str, &str, Reason, String)],
    now: Timestamp,
) -> Option<Write> {
    let known = tree.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let moved = told.iter().any(|(kind, status, _, message)| {
        find_condition(known, kind)
            .is_none_or(|c| c.status != *status || c.message != crate::status::cut(message))
    });
    if !moved {
        return None;
    }
    let fresh: Vec<Value> = told
        .iter()
        .map(|(kind, status, reason, message)| {
            condition(kind, status, *reason, message, find_condition(known, kind), now)
        })
        .collect();
    let uid = tree.uid().unwrap_or_default();
    let subject = events::Subject {
        api_version: TREE_API,
        kind: "ElasticQuotaTree",
        namespace: &key.0,
        name: &key.1,
        uid: &uid,
    };
    let warnings = told
        .iter()
        .filter(|(_, status, ..)| *status == "False")
        .map(|(_, _, reason, message)| events::warning(&subject, SOURCE, *reason, message, now));
    let write =
        Write::new(Target::Tree, &key.0, &key.1, Verb::MergeStatus(json!({"status": {"conditions": fresh}})));
    Some(write.then(warnings))
}

/// Queue objects by the full name of their quota node.
fn queues_by_path(world: &World) -> BTreeMap<&str, Vec<(&Key, &Queue)>> {
    let mut found: BTreeMap<&str, Vec<(&Key, &Queue)>> = BTreeMap::new();
    for (key, queue) in &world.queues {
        let made = key.0 == names::QUEUE_NAMESPACE && queue.labels().contains_key(names::QUEUE_CREATED_LABEL);
        if let (true, Some(path)) = (made, queue.annotations().get(names::QUOTA_FULLNAME_ANNOTATION)) {
            found.entry(path).or_default().push((key, queue));
        }
    }
    found
}

/// Makes a Queue for each node of the tree and deletes those of nodes that are gone.
pub fn plan_queues(world: &World, tree: Option<&QuotaTree>) -> Vec<Write> {
    let mut writes = Vec::new();
    if !world.namespaces.contains(names::QUEUE_NAMESPACE) {
        let body =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names::QUEUE_NAMESPACE}});
        return vec![Write::new(Target::Namespace, "", names::QUEUE_NAMESPACE, Verb::Create(body))];
    }
    let known = queues_by_path(world);
    let mut wanted: BTreeSet<&str> = BTreeSet::new();
    for (tree, id) in tree.iter().flat_map(|tree| tree.ids().map(move |id| (tree, id))) {
        let path = tree.node(id).path.as_str();
        wanted.insert(path);
        let gate = Gate::of(tree, id);
        match known.get(path).and_then(|queues| queues.first()) {
            None => writes.push(new_queue(path, &gate)),
            Some((key, queue)) => writes.extend(gate.patch(key, queue)),
        }
    }
    for (path, queues) in known {
        // The oldest of a path stays, should a crash have made two.
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

/// What the admission policy of the hub is told of a leaf that only some may submit to; nothing for any other node.
struct Gate {
    label: Option<&'static str>,
    submitters: Option<String>,
    namespaces: Option<String>,
}

impl Gate {
    fn of(tree: &QuotaTree, id: NodeId) -> Self {
        let node = tree.node(id);
        let submitters = tree.submitters(id).filter(|_| node.is_leaf() && !node.draining);
        let namespaces = submitters.is_some().then(|| node.namespaces.join(","));
        Self { label: submitters.is_some().then_some("true"), submitters, namespaces }
    }

    fn annotations(&self) -> [(&'static str, Option<&String>); 2] {
        [
            (names::SUBMITTERS_ANNOTATION, self.submitters.as_ref()),
            (names::QUOTA_NAMESPACES_ANNOTATION, self.namespaces.as_ref()),
        ]
    }

    /// Brings a queue in line that says something else.
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

/// What queues and tree say of their use, where it changed.
pub fn plan_summaries(world: &World, scheduler: &Scheduler) -> Vec<Write> {
    let Some(planner) = scheduler.planner().quota() else { return Vec::new() };
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
    let counted = tree.ids().map(|id| {
        let waiting = waiting.get(&id).copied().unwrap_or(0);
        (tree.node(id).path.as_str(), waiting, ledger.job_count(id))
    });
    scheduler.metrics().set_queues(counted);
    scheduler.metrics().set_waits(scheduler.planner().waiting_by_reason());
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
            "admitted": ledger.job_count(id),
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
    if let Some(object) = chosen(world) {
        let root = node_status(ledger, NodeId::ROOT, &waiting, &asked);
        let known =
            object.status.as_ref().and_then(|status| status.root.as_ref()).map_or(Value::Null, |r| json!(r));
        if known != root {
            let key = key(object);
            writes.push(Write::new(
                Target::Tree,
                &key.0,
                &key.1,
                Verb::MergeStatus(json!({"status": {"root": root}})),
            ));
        }
    }
    writes
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

fn node_status(
    ledger: &fleet_quota::Ledger,
    id: NodeId,
    waiting: &BTreeMap<NodeId, i64>,
    asked: &BTreeMap<NodeId, Resources>,
) -> Value {
    let node = ledger.tree().node(id);
    let jobs = ledger.job_count(id);
    let used = ledger.used(id);
    let mut request = used.clone();
    if let Some(asked) = asked.get(&id) {
        request.add(asked);
    }
    let mut status = json!({
        "name": node.name,
        "used": amounts(&used, jobs),
        "request": amounts(&request, jobs + waiting.get(&id).copied().unwrap_or(0)),
    });
    if !node.namespaces.is_empty() {
        status["namespaces"] = json!(node.namespaces);
    }
    if !node.children.is_empty() {
        let children: Vec<Value> =
            node.children.iter().map(|child| node_status(ledger, *child, waiting, asked)).collect();
        status["children"] = json!(children);
    }
    status
}

/// Resource to quantity, jobs included where there are any.
fn amounts(resources: &Resources, jobs: i64) -> Map<String, Value> {
    let mut map: Map<String, Value> = Map::new();
    for (name, amount) in resources.iter().filter(|(name, _)| name.as_str() != MAX_JOBS) {
        map.insert(name.as_str().to_string(), json!(quantity::format(name.as_str(), amount)));
    }
    map.insert(MAX_JOBS.to_string(), json!(jobs.to_string()));
    map
}
