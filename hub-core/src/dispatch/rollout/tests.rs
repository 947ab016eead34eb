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
        derived: Default::default(),
    };
    let status = |work: &Work| work.status.as_ref().map(|status| status.manifest_statuses[0].status.clone());
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
