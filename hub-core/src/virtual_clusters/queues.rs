//! One Queue for each virtual cluster: its waiting jobs in the order in which they are considered.

use std::collections::BTreeMap;

use fleet_api::{Queue, cells::read::object_name, names, patch::merge_diff};
use kube_core::ResourceExt;
use serde_json::{Value, json};

use super::{InForce, uses::Uses};
use crate::{
    schedule::key_of,
    tree::QUEUE_API,
    world::{Key, World},
    writes::{Target, Verb, Write},
};

/// By class, then first come, first served; a job that does not fit is passed. Nothing else can be chosen.
const POLICY: &str = "Priority";

/// The Queues of virtual clusters. Those of the quota tree have another label.
fn own(world: &World) -> impl Iterator<Item = (&Key, &Queue)> {
    world.queues.iter().filter(|(key, queue)| {
        let labels = queue.labels();
        key.0 == names::QUEUE_NAMESPACE
            && labels.contains_key(names::VIRTUAL_CLUSTER_LABEL)
            && !labels.contains_key(names::QUEUE_CREATED_LABEL)
    })
}

/// Creates a Queue for each virtual cluster of the configuration in force, and deletes others.
pub fn plan_queues(world: &World, in_force: Option<&InForce>) -> Vec<Write> {
    if !world.namespaces.contains_key(names::QUEUE_NAMESPACE) {
        return Vec::new();
    }
    let vcs = in_force.into_iter().flat_map(|known| known.valid.config.virtual_clusters.keys());
    let mut wanted: BTreeMap<String, &String> = vcs.map(|vc| (object_name(vc), vc)).collect();
    let mut writes = Vec::new();
    for (key, queue) in own(world).filter(|(_, queue)| queue.metadata.deletion_timestamp.is_none()) {
        let verb = match wanted.remove(&key.1) {
            None => Verb::Delete { uid: queue.uid().unwrap_or_default() },
            Some(_) if queue.spec.queue_policy.as_deref() == Some(POLICY) => continue,
            Some(_) => Verb::Merge(json!({"spec": {"queuePolicy": POLICY}})),
        };
        writes.push(Write::new(Target::Queue, &key.0, &key.1, verb));
    }
    // A Queue of that name that somebody else has made is left alone.
    wanted.retain(|name, _| !world.queues.contains_key(&(names::QUEUE_NAMESPACE.to_string(), name.clone())));
    writes.extend(wanted.into_iter().map(|(name, vc)| {
        let body = json!({
            "apiVersion": QUEUE_API,
            "kind": "Queue",
            "metadata": {
                "name": name,
                "namespace": names::QUEUE_NAMESPACE,
                "labels": {names::VIRTUAL_CLUSTER_LABEL: vc},
            },
            "spec": {"queuePolicy": POLICY},
        });
        Write::new(Target::Queue, names::QUEUE_NAMESPACE, &name, Verb::Create(body))
    }));
    writes
}

/// Status updates of the Queues whose jobs changed.
pub fn plan_queue_statuses(world: &World, uses: Option<&Uses>) -> Vec<Write> {
    let mut writes = Vec::new();
    for (key, queue) in own(world) {
        let vc = queue.labels().get(names::VIRTUAL_CLUSTER_LABEL);
        let used = uses.zip(vc).and_then(|(uses, vc)| uses.virtual_clusters.get(vc));
        let sum = |of: fn(&fleet_api::cells::status::JobCounts) -> i64| -> i64 {
            used.into_iter().flat_map(|used| used.jobs.values()).map(of).sum()
        };
        let mut desired = json!({"waiting": sum(|jobs| jobs.waiting), "admitted": sum(|jobs| jobs.running)});
        let first = used.into_iter().flat_map(|used| &used.first).enumerate();
        let items: Vec<Value> = first
            .map(|(at, (job, class))| {
                let (namespace, name) = key_of(job);
                json!({"name": name, "namespace": namespace, "priority": class, "position": at + 1})
            })
            .collect();
        if !items.is_empty() {
            desired["queueItemDetails"] = json!({"active": items});
        }
        let known = queue.status.as_ref().map_or(Value::Null, |status| json!(status));
        if let Some(patch) = merge_diff(&known, &desired) {
            let verb = Verb::MergeStatus(json!({"status": patch}));
            writes.push(Write::new(Target::Queue, &key.0, &key.1, verb));
        }
    }
    writes
}
