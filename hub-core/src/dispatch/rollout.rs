//! The observed generation of an object, for `kubectl rollout status` and `kubectl wait`.

use serde_json::{Value, json};

use super::report::Item;
use crate::{status::find_condition, world::Object};

/// Sets `status.observedGeneration` if each member has the hub's current object and its controller has
/// observed it. `sends`: a Work is being written, so the members have an older object. A status without a
/// generation in the members gets none here.
pub(super) fn observe(object: &Object, items: &[Item], sends: bool, status: &mut Value) {
    let says = |item: &Item| item.status.is_some_and(|status| status["observedGeneration"].is_i64());
    if !items.iter().any(says) {
        return;
    }
    let known = object.value["status"]["observedGeneration"].clone();
    if sends || !items.iter().all(has_latest) {
        match known {
            Value::Null => drop(status.as_object_mut().map(|fields| fields.remove("observedGeneration"))),
            known => status["observedGeneration"] = known,
        }
        return;
    }
    status["observedGeneration"] = json!(object.value["metadata"]["generation"].as_i64().unwrap_or(1));
}

/// The agent has applied the current Work, and the status was read from that object.
fn has_latest(item: &Item) -> bool {
    let Some(reported) = &item.work.status else { return false };
    let applied = find_condition(&reported.conditions, "Applied");
    let is_applied = applied.is_some_and(|condition| {
        condition.status == "True" && condition.observed_generation == item.work.metadata.generation
    });
    let governed = reported.manifest_statuses.iter().find(|one| one.identifier.ordinal == 0);
    let is_seen = governed.is_some_and(|one| {
        let seen = one.status["observedGeneration"].as_i64();
        seen.is_some() && one.generation.is_none_or(|generation| seen >= Some(generation))
    });
    is_applied && is_seen
}

#[cfg(test)]
mod tests;
