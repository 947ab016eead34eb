//! Deployment and ReplicaSet, in a simple form for members without a kube-controller-manager.
//!
//! A Deployment keeps one ReplicaSet per pod template, `<deployment>-<hash>`, and rolls by scaling the new
//! one up at once and the old ones down as new pods become ready. Deliberately absent: surge limits,
//! revisions and rollback, pausing, progress deadlines.

use std::sync::Arc;

use jiff::Timestamp;
use kube::discovery::ApiResource;
use serde_json::{Value, json};

use fleet_agent_ground::Object;

use super::{JobPlan, Pods, count, limits, pod};

const HASH_LABEL: &str = "pod-template-hash";
/// Letters of generated names, as in Kubernetes: without vowels, to avoid words.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The plan of one Deployment: `create` has ReplicaSets, and `scale` the new sizes of existing ones.
pub(crate) fn plan_deployment(
    resource: &ApiResource,
    deployment: &Object,
    replica_sets: &[Arc<Object>],
    now: Timestamp,
) -> (JobPlan, Vec<(String, i64)>) {
    let mut plan = JobPlan::default();
    let mut scale = Vec::new();
    if deployment.is_deleting() {
        plan.delete =
            replica_sets.iter().filter(|set| !set.is_deleting()).map(|s| s.name().to_owned()).collect();
        return (plan, scale);
    }
    let wanted = count(&deployment.spec["replicas"], 1);
    let template = &deployment.spec["template"];
    let hash = text_of(hash(template.to_string().as_bytes()), 10);
    let name = format!("{}-{hash}", deployment.name());
    let number = |set: &Object, field: &str| count(&set.status[field], 0);
    let mut updated = None;
    for set in replica_sets {
        if set.name() == name {
            updated = Some(set);
        }
    }
    match updated {
        None => plan.create.push(replica_set(resource, deployment, &name, &hash, wanted)),
        Some(set) if count(&set.spec["replicas"], 1) != wanted => scale.push((name.clone(), wanted)),
        Some(_) => {}
    }
    let ready_new = updated.map_or(0, |set| number(set, "readyReplicas"));
    for set in replica_sets.iter().filter(|set| set.name() != name && !set.is_deleting()) {
        let keep =
            if deployment.spec["strategy"]["type"] == "Recreate" { 0 } else { (wanted - ready_new).max(0) };
        let size = count(&set.spec["replicas"], 1);
        if size > keep {
            scale.push((set.name().to_owned(), keep));
        } else if size == 0 && number(set, "replicas") == 0 {
            plan.delete.push(set.name().to_owned());
        }
    }
    let sum = |field: &str| fleet_resources::sum(replica_sets.iter().map(|set| number(set, field)));
    let (replicas, ready, available) = (sum("replicas"), sum("readyReplicas"), sum("availableReplicas"));
    let mut status = deployment.status.clone();
    if !status.is_object() {
        status = json!({});
    }
    status["observedGeneration"] = deployment.metadata.generation.unwrap_or(1).into();
    let updated = updated.map_or(0, |set| number(set, "replicas"));
    for (field, value) in [
        ("replicas", replicas),
        ("updatedReplicas", updated),
        ("readyReplicas", ready),
        ("availableReplicas", available),
        ("unavailableReplicas", (wanted - available).max(0)),
    ] {
        set_count(&mut status, field, value);
    }
    let (value, reason, message) = if available >= wanted {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    let old = super::status::find(&status, "Available").filter(|old| old["status"] == value).cloned();
    let now = super::rfc3339(now);
    let available = old.unwrap_or_else(|| {
        json!({"type": "Available", "status": value, "reason": reason, "message": message,
            "lastUpdateTime": now, "lastTransitionTime": now})
    });
    // Pods that the server refuses, in its words.
    let failure = replica_sets.iter().find_map(|set| super::status::find(&set.status, "ReplicaFailure"));
    status["conditions"] = std::iter::once(available).chain(failure.cloned()).collect();
    plan.set_status(deployment, status);
    (plan, scale)
}

/// The plan of one ReplicaSet.
pub(crate) fn plan_replica_set(resource: &ApiResource, set: &Object, pods: &Pods) -> JobPlan {
    let mut plan = JobPlan::default();
    if set.is_deleting() {
        plan.delete_all(pods);
        return plan;
    }
    let asked = count(&set.spec["replicas"], 1);
    let too_many = limits::too_many("spec.replicas", asked, false);
    let wanted = usize::try_from(asked).unwrap_or(usize::MAX);
    let mut alive: Vec<_> = pods.values().filter(|pod| !pod.is_deleting() && !pod.is_ended()).collect();
    // Ended pods are replaced by new ones.
    plan.delete
        .extend(pods.values().filter(|p| p.is_ended() && !p.is_deleting()).map(|p| p.name().to_owned()));
    if alive.len() > wanted {
        alive.sort_by_key(|pod| (!pod.is_ready(), !pod.is_running(), pod.name().to_owned()));
        plan.delete.extend(alive.iter().skip(wanted).map(|pod| pod.name().to_owned()));
    }
    let mut number: u64 = 0;
    let mut missing = if too_many.is_some() { 0 } else { wanted.saturating_sub(alive.len()) };
    while missing > 0 && !plan.create.is_full() {
        let name = loop {
            let name =
                format!("{}-{}", set.name(), text_of(hash(format!("{}{number}", set.uid()).as_bytes()), 5));
            number += 1;
            if !pods.contains_key(&name) {
                break name;
            }
        };
        plan.create.push(pod::from_template(set, resource, &name, &set.spec["template"]));
        missing -= 1;
    }
    plan.refuse(too_many);
    let mut status = set.status.clone();
    if !status.is_object() {
        status = json!({});
    }
    let ready = alive.iter().filter(|pod| pod.is_ready()).count();
    status["observedGeneration"] = set.metadata.generation.unwrap_or(1).into();
    status["replicas"] = alive.len().into();
    for (field, value) in
        [("fullyLabeledReplicas", alive.len()), ("readyReplicas", ready), ("availableReplicas", ready)]
    {
        set_count(&mut status, field, i64::try_from(value).unwrap_or(i64::MAX));
    }
    plan.set_status(set, status);
    plan
}

fn replica_set(resource: &ApiResource, deployment: &Object, name: &str, hash: &str, replicas: i64) -> Value {
    let mut selector = deployment.spec["selector"].clone();
    pod::object_at(&mut selector, &["matchLabels"])[HASH_LABEL] = hash.into();
    let mut template = deployment.spec["template"].clone();
    pod::object_at(&mut template, &["metadata", "labels"])[HASH_LABEL] = hash.into();
    let labels = template["metadata"]["labels"].clone();
    json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": name,
            "namespace": deployment.namespace(),
            "labels": labels,
            "ownerReferences": [pod::owner_reference(deployment, resource)],
        },
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    })
}

fn set_count(status: &mut Value, field: &str, number: i64) {
    if number > 0 {
        status[field] = number.into();
    } else if let Some(fields) = status.as_object_mut() {
        fields.remove(field);
    }
}

/// FNV-1a; names need spread, not secrecy.
fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn text_of(mut hash: u64, letters: usize) -> String {
    let base = LETTERS.len() as u64;
    let mut text = String::new();
    for _ in 0..letters {
        // The remainder is below the number of letters.
        text.push(char::from(LETTERS[(hash % base) as usize]));
        hash /= base;
    }
    text
}
