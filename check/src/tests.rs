//! Each invariant is seen to be broken once, and the whole to hold once.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;

fn pod(name: &str, run: &str, node: Option<&str>, phase: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("{run}-{name}"),
            "annotations": {"fleet.dev/gang": "a", "fleet.dev/gang-size": "2"},
            "ownerReferences": [{"kind": "PyTorchJob", "name": "a", "uid": run, "controller": true}]},
        "spec": {"nodeName": node, "containers": [{"resources": {"requests": {"nvidia.com/gpu": "1"}}}]},
        "status": {"phase": phase}})
}

fn binding(uid: &str, bound: bool, ended: bool) -> Value {
    json!({
        "metadata": {"name": uid, "namespace": "default", "uid": uid},
        "spec": {"epoch": 1, "suspension": {"scheduling": false},
            "clusters": if bound { json!([{"name": "east"}]) } else { Value::Null },
            "components": [{"name": "worker", "replicas": 2, "request": {"nvidia.com/gpu": "1"}}]},
        "status": {"result": if ended { json!({"outcome": "Succeeded"}) } else { Value::Null }}})
}

fn rest() -> Snapshot {
    let allocatable = requests::amounts(&json!({"nvidia.com/gpu": "1", "pods": "110"}));
    let tree = json!({"root": {"name": "root", "children": [
        {"name": "a", "namespaces": ["default"], "max": {"kube-queue/max-jobs": 2, "nvidia.com/gpu": 3}}]}});
    Snapshot {
        nodes: [(("east".to_string(), "n0".to_string()), allocatable)].into(),
        quota: Some(Quota::read(&tree)),
        ..Snapshot::default()
    }
}

fn in_cluster(cluster: &str, object: Value, gone: bool) -> ObservedChange {
    ObservedChange { cluster: Some(cluster.to_string()), object: Arc::new(object), gone }
}

fn on_hub(object: Value) -> ObservedChange {
    ObservedChange { cluster: None, object: Arc::new(object), gone: false }
}

#[track_caller]
fn check(changes: Vec<ObservedChange>, expected: &[u8]) {
    let found = check_history(&History { changes }, &rest());
    assert_eq!(found.iter().map(|v| v.invariant).collect::<Vec<_>>(), expected, "{found:?}");
}

#[test]
fn one_run_after_the_other_is_fine_two_at_once_are_not() {
    let first = || pod("a-0", "run-1", None, "Running");
    let second = || pod("a-0", "run-2", None, "Pending");
    let ended = pod("a-0", "run-1", None, "Failed");
    check(vec![in_cluster("east", first(), false), in_cluster("west", second(), false)], &[1]);
    check(vec![in_cluster("east", first(), false), in_cluster("east", second(), false)], &[1]);
    let gone = in_cluster("east", first(), true);
    check(vec![in_cluster("east", first(), false), gone, in_cluster("west", second(), false)], &[]);
    let over = in_cluster("east", ended, false);
    check(vec![in_cluster("east", first(), false), over, in_cluster("west", second(), false)], &[]);
}

/// The run of a lost cluster that ended there unheard, and whose agent says so after the next run has ended.
#[test]
fn a_job_succeeds_once_but_for_runs_that_were_given_up() {
    let run = |epoch: i64| {
        json!({"kind": "PyTorchJob", "metadata": {"name": "a", "namespace": "default", "uid": format!("run-{epoch}"),
            "labels": {"fleet.dev/binding-uid": "b"}, "annotations": {"fleet.dev/epoch": epoch.to_string()}},
            "status": {"conditions": [{"type": "Succeeded", "status": "True"}]}})
    };
    let given_up = |epochs: &[i64]| {
        let mut known = binding("b", true, true);
        known["status"]["attempts"] = epochs.iter().map(|epoch| json!({"epoch": epoch})).collect();
        on_hub(known)
    };
    let (first, second) = (|| in_cluster("east", run(1), false), || in_cluster("west", run(2), false));
    check(vec![given_up(&[1]), first(), second()], &[]);
    check(vec![given_up(&[1]), second(), first()], &[]);
    check(vec![given_up(&[]), first(), second()], &[4]);
    check(vec![given_up(&[]), second(), first()], &[4]);
    check(vec![given_up(&[2]), first(), second()], &[4]);
}

#[test]
fn a_node_holds_what_it_has() {
    let one = in_cluster("east", pod("a-0", "run-1", Some("n0"), "Running"), false);
    let two = in_cluster("east", pod("a-1", "run-1", Some("n0"), "Pending"), false);
    let over = in_cluster("east", pod("a-0", "run-1", Some("n0"), "Succeeded"), false);
    check(vec![one.clone(), two.clone()], &[3]);
    check(vec![one, over, two], &[]);
}

#[test]
fn a_quota_holds_at_each_moment() {
    check(vec![on_hub(binding("x", true, false)), on_hub(binding("y", true, false))], &[3]);
    let ended = on_hub(binding("x", true, true));
    check(vec![on_hub(binding("x", true, false)), ended, on_hub(binding("y", true, false))], &[]);
    check(vec![on_hub(binding("x", true, false)), on_hub(binding("y", false, false))], &[]);
}

#[test]
fn at_rest_gangs_are_whole_and_holds_have_jobs() {
    let hold = json!({"metadata": {"name": "h"}, "spec": {"epoch": 1, "binding": {"uid": "x"}}});
    let mut snapshot = rest();
    snapshot.bindings = vec![binding("x", true, false)];
    snapshot.runs =
        vec![("east".to_string(), json!({"kind": "PyTorchJob", "metadata": {"name": "a", "uid": "run-1"}}))];
    snapshot.holds = vec![("east".to_string(), hold.clone())];
    snapshot.pods = vec![
        Pod::read("east", &pod("a-0", "run-1", Some("n0"), "Running")),
        Pod::read("east", &pod("a-1", "run-1", Some("n1"), "Running")),
    ];
    assert_eq!(check_at_rest(&snapshot), []);
    // The one that leaves is replaced; alone it is no gang any more.
    snapshot.pods[1].leaves = true;
    assert_eq!(check_at_rest(&snapshot), []);
    (snapshot.pods[0].node, snapshot.pods[1].leaves) = (None, true);
    assert_eq!(check_at_rest(&snapshot), []);
    snapshot.pods.swap(0, 1);
    snapshot.pods[0].leaves = false;
    snapshot.holds = vec![("west".to_string(), hold)];
    let found: Vec<u8> = check_at_rest(&snapshot).iter().map(|violation| violation.invariant).collect();
    assert_eq!(found, [2, 5]);
    snapshot.bindings = vec![binding("x", true, true)];
    snapshot.holds[0].0 = "east".to_string();
    assert_eq!(check_at_rest(&snapshot).len(), 2);
}

#[test]
fn at_rest_nothing_stands_without_what_it_is_for() {
    let labels = json!({"fleet.dev/binding-uid": "x"});
    let run = json!({"kind": "PyTorchJob", "metadata": {"name": "a", "namespace": "default", "uid": "run-1",
        "labels": labels, "annotations": {"fleet.dev/epoch": "1"}}});
    let work = json!({"metadata": {"name": "a", "namespace": "fleet-east"},
        "spec": {"epoch": 1, "binding": {"uid": "x"}}});
    let mut snapshot = rest();
    snapshot.bindings = vec![binding("x", true, true)];
    snapshot.works = vec![work];
    snapshot.runs = vec![("east".to_string(), run)];
    snapshot.pods = vec![Pod::read("east", &pod("a-0", "run-1", None, "Succeeded"))];
    assert_eq!(check_at_rest(&snapshot), []);
    snapshot.bindings = Vec::new();
    let found: Vec<String> = check_at_rest(&snapshot).into_iter().map(|v| v.what).collect();
    assert_eq!(found, ["work fleet-east/a: its binding is gone"]);
    snapshot.works = Vec::new();
    let found: Vec<String> = check_at_rest(&snapshot).into_iter().map(|v| v.what).collect();
    assert_eq!(found, ["PyTorchJob default/a in east, epoch 1: no Work asks for it"]);
    snapshot.runs = Vec::new();
    let found: Vec<String> = check_at_rest(&snapshot).into_iter().map(|v| v.what).collect();
    assert_eq!(found, ["pod default/a-0 in east: PyTorchJob default/a is gone"]);
}

#[test]
fn at_the_end_every_job_has_ended_runs_or_says_why_it_waits() {
    let mut snapshot = rest();
    let mut waiting = binding("x", false, false);
    waiting["spec"]["resource"] = json!({"kind": "PyTorchJob", "namespace": "default", "name": "a"});
    snapshot.bindings = vec![waiting];
    assert_eq!(check_end(&snapshot).iter().map(|v| v.invariant).collect::<Vec<_>>(), [4]);
    snapshot.bindings[0]["status"]["conditions"] =
        json!([{"type": "Scheduled", "status": "False", "reason": "ExceedsEveryCluster"}]);
    assert_eq!(check_end(&snapshot), []);
}

#[test]
fn a_pod_that_waits_for_its_watchdog_runs_nothing() {
    let pod = |phase: &str, init: &str| {
        let owner = json!([{"kind": "PyTorchJob", "name": "j", "uid": "r", "controller": true}]);
        let pod = json!({"metadata": {"name": "p", "namespace": "n", "ownerReferences": owner},
            "spec": {"initContainers": [{"name": init}]}, "status": {"phase": phase}});
        Pod::read("east", &pod).may_run_for().is_some()
    };
    assert!(pod("Pending", "fetch") && pod("Running", "fleet-watchdog"));
    assert!(!pod("Pending", "fleet-watchdog") && !pod("Succeeded", "fetch"));
}
