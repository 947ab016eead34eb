use serde_json::json;

use super::*;

fn work(name: &str, binding: &str, deleted: bool) -> Work {
    serde_json::from_value(json!({
        "apiVersion": "fleet.dev/v1alpha1", "kind": "Work",
        "metadata": {"name": name, "namespace": "fleet-east",
            "deletionTimestamp": deleted.then_some("2026-01-01T10:00:00Z")},
        "spec": {"binding": {"namespace": "team", "name": name, "uid": binding}, "epoch": 1, "fenced": false,
            "workload": {"manifests": [{"apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"name": name, "namespace": "team"}}]}}}))
    .expect("a Work")
}

fn run(uid: &str, outcome: Option<&str>) -> Run {
    let result = outcome.map(|outcome| {
        json!({"outcome": outcome, "epoch": 1, "cluster": "east",
        "recordedAt": "2026-01-01T10:00:00Z"})
    });
    let binding = json!({
        "apiVersion": "fleet.dev/v1alpha1", "kind": "ResourceBinding",
        "metadata": {"name": uid, "namespace": "team", "uid": uid},
        "spec": {
            "resource": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "team", "name": uid},
            "policy": {"kind": "PropagationPolicy", "name": "p"}, "components": [],
            "replicas": 1, "epoch": 1, "clusters": [{"name": "east"}]},
        "status": {"result": result}});
    Run::of(serde_json::from_value(binding).expect("a binding"))
}

#[test]
fn works_of_finished_jobs_go_and_others_are_named() {
    let works = [work("done", "1", false), work("runs", "2", false), work("goes", "3", true)];
    let runs = [run("1", Some("Succeeded")), run("2", None)];
    assert_eq!(of_finished(&works, &runs), BTreeSet::from(["done".to_string()]));
    assert_eq!(objects(&works[1..]), "Job team/runs, Job team/goes (being removed)");
}
