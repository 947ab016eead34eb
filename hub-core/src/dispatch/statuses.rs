//! Status patches with only the differences.

use fleet_api::patch::merge_diff;
use fleet_policies::{reason::Reason, workload::Health};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::step::Step;
use crate::{
    binding::BindingEntry,
    status::{condition, find_condition},
    world::{Object, World},
    writes::{Target, Verb, Write},
};

pub(super) fn binding_status(entry: &BindingEntry) -> Value {
    match &entry.object.status {
        Some(status) => serde_json::to_value(status).unwrap_or_default(),
        None => json!({}),
    }
}

pub(super) fn patch_binding_status(entry: &BindingEntry, known: &Value, desired: &Value, step: &mut Step) {
    if let Some(patch) = merge_diff(known, desired) {
        let verb = Verb::MergeStatus(json!({"status": patch}));
        step.writes.push(Write::new(Target::Binding, entry.namespace(), entry.name(), verb));
    }
}

pub(super) fn patch_object_status(
    world: &World,
    entry: &BindingEntry,
    object: &Object,
    desired: &Value,
    step: &mut Step,
) {
    // As the hub serves the kind; for kinds that are not built in, only their watch knows.
    let Some((kind, _)) = world.objects.get_key_value(&entry.kind).filter(|(kind, _)| kind.status) else {
        return;
    };
    if desired.is_null() {
        return;
    }
    if let Some(patch) = merge_diff(&object.value["status"], desired) {
        let reference = &entry.object.spec.resource;
        let verb = Verb::MergeStatus(json!({"status": patch}));
        let target = Target::Object(kind.clone());
        step.writes.push(Write::new(target, &reference.namespace, &reference.name, verb));
    }
}

/// Sets conditions by type; the others stay, in order of first appearance.
pub(super) fn set_conditions(
    entry: &BindingEntry,
    status: &mut Value,
    wanted: &[(&str, &str, Reason, &str)],
    now: Timestamp,
) {
    let known = entry.object.status.as_ref().map_or(&[][..], |status| &status.conditions);
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(list) = status["conditions"].as_array_mut() else { return };
    for (kind, value, reason, message) in wanted {
        let fresh = condition(kind, value, *reason, message, find_condition(known, kind), now);
        match list.iter_mut().find(|condition| condition["type"] == *kind) {
            Some(place) => *place = fresh,
            None => list.push(fresh),
        }
    }
}

pub(super) fn health_text(health: Health) -> &'static str {
    match health {
        Health::Healthy => "Healthy",
        Health::Unhealthy => "Unhealthy",
        Health::Unknown => "Unknown",
    }
}
