//! The QueueUnit of a queued job, kept in step with its binding.

use fleet_api::QueueUnit;
use fleet_api::mutation::{self, Mutation};
use fleet_api::names::QUEUE_PLACE_ANNOTATION;
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
    let leaf = world.leaves.get(key).filter(|leaf| known.spec.queue.as_ref() != Some(leaf));
    let mut patch = if phase == UnitPhase::Enqueued { edited(world, entry, known) } else { json!({}) };
    if let Some(leaf) = leaf {
        patch["spec"]["queue"] = json!(leaf);
    }
    if patch.as_object().is_some_and(|patch| !patch.is_empty()) {
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

/// What an edit of a waiting job has changed.
fn edited(world: &World, entry: &BindingEntry, known: &QueueUnit) -> Value {
    let mut patch = json!({});
    if known.spec.priority != entry.object.spec.priority {
        patch["spec"]["priority"] = json!(entry.object.spec.priority);
    }
    let preemptible = unqueued::is_preemptible(entry, world.bound_object(entry));
    if known.spec.preemptible.unwrap_or(true) != preemptible {
        patch["spec"]["preemptible"] = json!(preemptible);
    }
    let request = entry.total.to_quantities();
    for (field, was) in [("resource", &known.spec.resource), ("request", &known.spec.request)] {
        if let Some(changed) = merge_diff(&json!(was), &json!(request)) {
            patch["spec"][field] = changed;
        }
    }
    let (pods, was) = (pod_sets(entry), json!(known.spec.pod_set));
    if pods != was {
        patch["spec"]["podSet"] = pods;
    }
    let place = place(entry);
    if known.metadata.annotations.as_ref().and_then(|all| all.get(QUEUE_PLACE_ANNOTATION)) != place {
        patch["metadata"]["annotations"][QUEUE_PLACE_ANNOTATION] = json!(place);
    }
    patch
}

fn place(entry: &BindingEntry) -> Option<&String> {
    entry.object.spec.queue_place.as_ref()?.since.as_ref()
}

fn pod_sets(entry: &BindingEntry) -> Value {
    let components = entry.object.spec.components.iter();
    components.map(|component| json!({"name": component.name, "count": component.replicas})).collect()
}

pub(super) fn new_unit(entry: &BindingEntry, key: &Key, leaf: Option<&String>, preemptible: bool) -> Value {
    let request = entry.total.to_quantities();
    let mut unit = json!({
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
            "podSet": pod_sets(entry),
        },
    });
    if let Some(since) = place(entry) {
        unit["metadata"]["annotations"] = json!({QUEUE_PLACE_ANNOTATION: since});
    }
    unit
}
