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
mod tests {
    use std::sync::Arc;

    use fleet_api::Work;

    use super::*;

    fn work(generation: i64, applied: i64, member: i64, seen: i64) -> Work {
        serde_json::from_value(json!({
            "apiVersion": "fleet.dev/v1alpha1", "kind": "Work",
            "metadata": {"name": "w", "namespace": "fleet-east", "generation": generation},
            "spec": {"binding": {"namespace": "a", "name": "b", "uid": "u"}, "epoch": 1, "workload": {"manifests": []}},
            "status": {
                "conditions": [{"type": "Applied", "status": "True", "reason": "r", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": applied}],
                "manifestStatuses": [{"identifier": {"ordinal": 0, "version": "v1", "kind": "Deployment", "name": "d"},
                    "generation": member, "status": {"observedGeneration": seen}}]}}))
        .expect("a work")
    }

    fn check(works: &[Work], sends: bool, expected: i64) {
        let object = Object {
            value: Arc::new(json!({"metadata": {"generation": 5}, "status": {"observedGeneration": 4}})),
            uid: String::new(),
            labels: Default::default(),
            deleting: false,
            created: String::new(),
        };
        let status =
            |work: &Work| work.status.as_ref().map(|status| status.manifest_statuses[0].status.clone());
        let statuses: Vec<Option<Value>> = works.iter().map(status).collect();
        let items: Vec<Item> = works
            .iter()
            .zip(&statuses)
            .map(|(work, status)| Item { cluster: "east", work, status: status.as_ref(), refused: None })
            .collect();
        let mut told = json!({"observedGeneration": 4});
        observe(&object, &items, sends, &mut told);
        assert_eq!(told["observedGeneration"], expected);
    }

    #[test]
    fn a_generation_is_observed_when_every_member_has_it() {
        check(&[work(3, 3, 8, 8)], false, 5);
        check(&[work(3, 3, 8, 8)], true, 4);
        check(&[work(3, 2, 8, 8)], false, 4);
        check(&[work(3, 3, 8, 7)], false, 4);
        check(&[work(3, 3, 8, 8), work(2, 1, 1, 1)], false, 4);
        check(&[work(3, 3, 8, 8), work(2, 2, 1, 1)], false, 5);
    }
}
