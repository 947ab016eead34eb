//! The QueueUnit of a queued job, kept in step with its binding.

use fleet_api::mutation::{self, Mutation};
use fleet_api::patch::merge_diff;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::step::Step;
use crate::{
    binding::{API_VERSION, BindingEntry},
    planner::Waiting,
    status::{cut, rfc3339},
    unqueued,
    world::{Key, World},
    writes::{Target, Verb, Write},
};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum UnitPhase {
    Enqueued,
    Dequeued,
    Running,
    Succeed,
    Failed,
}

impl UnitPhase {
    fn as_str(self) -> &'static str {
        match self {
            Self::Enqueued => "Enqueued",
            Self::Dequeued => "Dequeued",
            Self::Running => "Running",
            Self::Succeed => "Succeed",
            Self::Failed => "Failed",
        }
    }
}

/// Maintains the QueueUnit of a queued job, even if the job left its queue before the unit was written; other
/// jobs have none.
pub(super) fn unit(
    world: &World,
    key: &Key,
    entry: &BindingEntry,
    phase: UnitPhase,
    waiting: Option<&Waiting>,
    step: &mut Step,
    now: Timestamp,
) {
    let unit_key = (key.0.clone(), entry.unit_name());
    let Some(known) = world.units.get(&unit_key) else {
        if phase == UnitPhase::Enqueued || entry.has_left_queue() {
            let preemptible = unqueued::is_preemptible(entry, world.bound_object(entry));
            let mut body = new_unit(entry, &unit_key, world.leaves.get(key), preemptible);
            if mutation::is_on(Mutation::UnitLeftBehind) {
                body["metadata"].as_object_mut().map(|metadata| metadata.remove("ownerReferences"));
            }
            step.writes.push(Write::new(Target::Unit, &unit_key.0, &unit_key.1, Verb::Create(body)));
        }
        return;
    };
    let status = serde_json::to_value(&known.status).unwrap_or_default();
    let mut desired = if status.is_object() { status.clone() } else { json!({}) };
    desired["phase"] = json!(phase.as_str());
    let ended = entry.object.status.as_ref().map_or(0, |status| status.attempts.len());
    let runs = ended + usize::from(entry.is_bound());
    if runs > 0 {
        desired["attempts"] = json!(runs);
    }
    let said = waiting.filter(|_| phase == UnitPhase::Enqueued);
    let claim = said.and_then(|waiting| waiting.claim.as_ref()).map(|claim| json!(claim));
    let all = [
        ("reason", said.map(|waiting| json!(waiting.reason.as_str()))),
        ("message", said.map(|waiting| json!(cut(&waiting.message)))),
        ("claim", claim),
    ];
    for (field, value) in all {
        match (value, desired.as_object_mut()) {
            (Some(value), _) => desired[field] = value,
            (None, Some(fields)) => drop(fields.remove(field)),
            (None, None) => {}
        }
    }
    if let Some(leaf) = world.leaves.get(key).filter(|leaf| known.spec.queue.as_ref() != Some(leaf)) {
        let patch = json!({"spec": {"queue": leaf}});
        step.writes.push(Write::new(Target::Unit, &unit_key.0, &unit_key.1, Verb::Merge(patch)));
    }
    if desired == status {
        return;
    }
    desired["lastUpdateTime"] = json!(rfc3339(now));
    if phase == UnitPhase::Dequeued && status["phase"] != "Dequeued" {
        desired["lastAllocateTime"] = json!(rfc3339(now));
    }
    if let Some(patch) = merge_diff(&status, &desired) {
        let verb = Verb::MergeStatus(json!({"status": patch}));
        step.writes.push(Write::new(Target::Unit, &unit_key.0, &unit_key.1, verb));
    }
}

pub(super) fn new_unit(entry: &BindingEntry, key: &Key, leaf: Option<&String>, preemptible: bool) -> Value {
    let pods: Vec<Value> = entry
        .object
        .spec
        .components
        .iter()
        .map(|component| json!({"name": component.name, "count": component.replicas}))
        .collect();
    let request = entry.total.to_quantities();
    json!({
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "QueueUnit",
        "metadata": {
            "name": key.1,
            "namespace": key.0,
            "ownerReferences": [{
                "apiVersion": API_VERSION,
                "kind": "ResourceBinding",
                "name": entry.name(),
                "uid": entry.uid(),
                "controller": true,
                "blockOwnerDeletion": false,
            }],
        },
        "spec": {
            "consumerRef": {
                "apiVersion": API_VERSION,
                "kind": "ResourceBinding",
                "namespace": key.0,
                "name": entry.name(),
            },
            "priority": entry.object.spec.priority,
            "preemptible": preemptible,
            "queue": leaf,
            "jobType": entry.kind.kind,
            "resource": request,
            "request": request,
            "podSet": pods,
        },
    })
}
