//! What really runs decides: whatever a binding, a label, a name or a status says.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;

const TREE: &str = r#"{"root": {"name": "root", "max": {"nvidia.com/gpu": 9}, "children": [
    {"name": "a", "namespaces": ["team-a"], "max": {"kube-queue/max-jobs": 2, "nvidia.com/gpu": 3}},
    {"name": "b", "namespaces": ["team-b"], "max": {"nvidia.com/gpu": 6}}]}}"#;

fn tree() -> Value {
    serde_json::from_str(TREE).expect("a tree")
}

fn binding(uid: &str, name: &str, gpus: u64) -> Value {
    json!({
        "kind": "ResourceBinding",
        "metadata": {"name": name, "namespace": "team-a", "uid": uid},
        "spec": {"epoch": 1, "suspension": {"scheduling": false}, "clusters": [{"name": "east"}],
            "resource": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "namespace": "team-a", "name": name},
            "components": [{"name": "worker", "replicas": gpus, "request": {"nvidia.com/gpu": "1"}}]},
        "status": {}})
}

fn run(uid: &str, name: &str, binding: &str) -> Value {
    json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name, "namespace": "team-a",
        "uid": uid, "labels": {"fleet.dev/binding-uid": binding}, "annotations": {"fleet.dev/epoch": "1"}}})
}

/// A pod of a run, of a gang of two.
fn pod(run: &str, index: u64, gpus: u64) -> Value {
    let owner = json!([{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": run, "uid": run,
        "controller": true}]);
    json!({"kind": "Pod", "metadata": {"name": format!("{run}-{index}"), "namespace": "team-a",
            "uid": format!("{run}-{index}"), "ownerReferences": owner,
            "annotations": {"fleet.dev/gang": run, "fleet.dev/gang-size": "2"}},
        "spec": {"nodeName": "n0", "containers": [{"resources": {"requests": {"nvidia.com/gpu": gpus}}}]},
        "status": {"phase": "Running"}})
}

/// A pod of no gang.
fn alone(run: &str, gpus: u64) -> Value {
    let mut pod = pod(run, 0, gpus);
    pod["metadata"]["annotations"] = Value::Null;
    pod
}

fn hub(object: Value) -> ObservedChange {
    ObservedChange { cluster: None, object: Arc::new(object), gone: false }
}

fn east(object: Value) -> ObservedChange {
    ObservedChange { cluster: Some("east".to_string()), object: Arc::new(object), gone: false }
}

fn gone(change: ObservedChange) -> ObservedChange {
    ObservedChange { gone: true, ..change }
}

/// What a judge that knows the tree says of these changes, each with its time.
#[track_caller]
fn check(changes: Vec<(u64, ObservedChange)>, expected: &[&str]) {
    let mut judge = Judge::new(BTreeMap::new(), Some(Quota::read(&tree()))).within(Bounds::WITHOUT_FAULTS);
    let mut found: Vec<String> = Vec::new();
    let last = changes.last().map_or(0, |(at_ms, _)| *at_ms);
    for (at_ms, change) in changes {
        found.extend(judge.see_at(at_ms, &change).iter().map(ToString::to_string));
    }
    found.extend(judge.until(last).iter().map(ToString::to_string));
    found.dedup();
    assert_eq!(found, expected);
}

#[test]
fn pods_count_not_what_the_binding_says() {
    let changes = |gpus| {
        vec![
            (0, hub(binding("x", "a", 2))),
            (1, east(run("r", "a", "x"))),
            (2, east(pod("r", 0, 1))),
            (3, east(pod("r", 1, gpus))),
        ]
    };
    check(changes(2), &[]);
    check(changes(3), &["invariant 3: quota root/a: nvidia.com/gpu 4 used by pods in members, max 3"]);
}

#[test]
fn pods_of_a_job_whose_end_is_recorded_count_until_they_are_gone() {
    let mut ended = binding("x", "a", 2);
    ended["status"]["result"] = json!({"outcome": "Succeeded"});
    let changes = vec![
        (0, hub(binding("x", "a", 2))),
        (1, east(run("r", "a", "x"))),
        (2, east(alone("r", 2))),
        (3, hub(ended)),
        (4, hub(binding("y", "b", 2))),
        (5, east(run("s", "b", "y"))),
    ];
    let second = |at_ms| (at_ms, east(alone("s", 2)));
    let mut early = changes.clone();
    early.push(second(6));
    check(early, &["invariant 3: quota root/a: nvidia.com/gpu 4 used by pods in members, max 3"]);
    let mut late = changes;
    late.extend([(6, gone(east(alone("r", 2)))), second(7)]);
    check(late, &[]);
}

#[test]
fn pods_of_a_member_s_own_job_do_not_count_for_the_fleet_s_job_of_that_name() {
    let mut waits = binding("x", "r", 2);
    waits["spec"]["clusters"] = Value::Null;
    let mut own = run("r", "r", "");
    own["metadata"]["labels"] = Value::Null;
    let tree = json!({"kind": "ElasticQuotaTree", "metadata": {"name": "t"}, "spec": tree(),
        "status": {"root": {"name": "root", "used": {}, "children": [{"name": "a", "used": {}}]}}});
    let of = |own: Value| {
        vec![
            (0, hub(tree.clone())),
            (0, hub(waits.clone())),
            (1, east(own)),
            (2, east(alone("r", 0))),
            (20_000, east(alone("r", 0))),
        ]
    };
    check(of(own.clone()), &[]);
    // A run of the fleet has come and gone.
    let mut changes = of(own);
    changes.splice(2..2, [(0, east(run("s", "b", "y"))), (0, gone(east(run("s", "b", "y"))))]);
    check(changes, &[]);
    let uncounted = |node: &str| {
        format!("invariant 3: quota {node}: 1 jobs have pods, the hub counts 0, for longer than 10 s")
    };
    check(of(run("r", "r", "x")), &[&uncounted("root/a"), &uncounted("root")]);
}

#[test]
fn what_is_left_in_a_lost_cluster_of_a_run_that_was_moved_unfenced_is_not_counted() {
    let history = |fencing: &str| {
        let lost = |epoch: i64| {
            let mut lost = binding("x", "a", 2);
            lost["spec"]["epoch"] = epoch.into();
            lost["spec"]["failover"] = json!({"allowTwoRuns": true, "cluster": {"fencing": fencing}});
            lost["status"]["attempts"] = json!([{"cluster": "east", "epoch": 1, "reason": "ClusterLost"}]);
            hub(lost)
        };
        let mut second = run("s", "a", "x");
        second["metadata"]["annotations"]["fleet.dev/epoch"] = "2".into();
        vec![
            (0, hub(binding("x", "a", 2))),
            (1, east(run("r", "a", "x"))),
            (2, east(alone("r", 2))),
            (3, lost(2)),
            (4, east(second)),
            (5, east(alone("s", 2))),
        ]
    };
    check(history("None"), &[]);
    check(history("Lease"), &["invariant 3: quota root/a: nvidia.com/gpu 4 used by pods in members, max 3"]);
}

#[test]
fn what_is_left_in_a_lost_cluster_is_not_counted_whatever_ended_the_run_before() {
    let cluster = |ready: &str| {
        hub(json!({"kind": "Cluster", "metadata": {"name": "east"},
            "status": {"conditions": [{"type": "Ready", "status": ready}]}}))
    };
    let history = |fencing: &str, ready: &str, back_ms: u64| {
        let preempted = |is_left: bool| {
            let mut preempted = binding("x", "a", 2);
            preempted["spec"]["failover"] = json!({"cluster": {"fencing": fencing}});
            preempted["status"]["attempts"] = json!([{"cluster": "east", "epoch": 1, "reason": "Preempted"}]);
            if is_left {
                preempted["spec"]["clusters"] = Value::Null;
            }
            hub(preempted)
        };
        vec![
            (0, cluster("True")),
            (0, hub(binding("x", "a", 2))),
            (1, east(run("r", "a", "x"))),
            (2, east(alone("r", 2))),
            (3, preempted(false)),
            (4, cluster(ready)),
            (5, cluster("True")),
            (5 + back_ms, preempted(true)),
            (5 + back_ms, hub(binding("y", "b", 2))),
            (6 + back_ms, east(run("s", "b", "y"))),
            (7 + back_ms, east(alone("s", 2))),
        ]
    };
    let over = &["invariant 3: quota root/a: nvidia.com/gpu 4 used by pods in members, max 3"];
    check(history("None", "Unknown", 1), &[]);
    check(history("None", "True", 1), over);
    check(history("None", "Unknown", 100_000), over);
    check(history("Lease", "Unknown", 1), over);
}

#[test]
fn a_snapshot_counts_what_is_left_of_a_run_but_in_a_lost_cluster_without_fencing() {
    let found = |fencing: &str, ready: &str| {
        let mut left = binding("x", "a", 4);
        left["spec"]["clusters"] = Value::Null;
        left["spec"]["failover"] = json!({"cluster": {"fencing": fencing}});
        let snapshot = Snapshot {
            bindings: vec![left],
            clusters: vec![json!({"metadata": {"name": "east"},
                "status": {"conditions": [{"type": "Ready", "status": ready}]}})],
            quota: Some(Quota::read(&tree())),
            pods: vec![Pod::read("east", &alone("r", 4))],
            runs: vec![("east".to_string(), run("r", "a", "x"))],
            ..Snapshot::default()
        };
        real::check_pods(&snapshot).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let over = ["invariant 3: quota root/a: nvidia.com/gpu 4 used by pods in members, max 3"];
    assert_eq!(found("None", "Unknown"), [""; 0]);
    assert_eq!(found("None", "True"), over);
    assert_eq!(found("Lease", "Unknown"), over);
}

#[test]
fn what_a_watchdog_holds_back_is_not_counted_once_its_run_was_moved() {
    let history = |phase: &str| {
        let mut moved = binding("x", "a", 2);
        moved["spec"]["epoch"] = 2.into();
        moved["spec"]["clusters"] = Value::Null;
        moved["spec"]["failover"] = json!({"cluster": {"fencing": "Watchdog"}});
        let mut first = run("r", "a", "x");
        first["metadata"]["annotations"]["fleet.dev/epoch"] = "1".into();
        let mut second = run("s", "a", "y");
        second["metadata"]["annotations"]["fleet.dev/epoch"] = "1".into();
        let mut held = alone("r", 2);
        held["spec"]["initContainers"] = json!([{"name": "fleet-watchdog"}]);
        held["status"]["phase"] = phase.into();
        vec![
            (0, hub(binding("x", "a", 2))),
            (1, east(first)),
            (2, east(held)),
            (3, hub(moved)),
            (4, hub(binding("y", "b", 2))),
            (5, east(second)),
            (6, east(alone("s", 2))),
        ]
    };
    let both = [(7, hub(binding("z", "c", 1))), (8, east(run("t", "c", "z"))), (9, east(alone("t", 1)))];
    check(history("Pending").into_iter().chain(both).collect(), &[]);
    let over = "invariant 3: quota root/a: nvidia.com/gpu 4 used by pods in members, max 3";
    check(history("Running"), &[over]);
}

#[test]
fn a_run_under_another_name_is_a_second_run() {
    let changes = vec![
        (0, hub(binding("x", "a", 2))),
        (1, east(run("r", "a", "x"))),
        (2, east(alone("r", 1))),
        (3, east(run("s", "other", "x"))),
        (4, east(alone("s", 1))),
    ];
    let runs = r#"{("east", "PyTorchJob team-a/a", "r"), ("east", "PyTorchJob team-a/other", "s")}"#;
    check(changes.clone(), &[&format!("invariant 1: PyTorchJob team-a/a has several live runs: {runs}")]);
    let mut after = changes;
    after.insert(3, (2, gone(east(alone("r", 1)))));
    check(after, &[]);
}

#[test]
fn a_job_counts_in_the_leaf_that_its_label_named_when_it_was_bound() {
    let job = |leaf: &str| {
        let labels = json!({"quota.scheduling.alibabacloud.com/name": leaf});
        hub(json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
            "metadata": {"name": "a", "namespace": "team-a", "labels": labels}}))
    };
    let changes = vec![
        (0, job("b")),
        (1, hub(binding("x", "a", 4))),
        (2, east(run("r", "a", "x"))),
        (3, job("a")),
        (4, east(pod("r", 0, 4))),
    ];
    check(changes.clone(), &[]);
    let mut more = changes;
    more.push((5, east(pod("r", 1, 3))));
    check(more, &["invariant 3: quota root/b: nvidia.com/gpu 7 used by pods in members, max 6"]);
}

#[test]
fn a_tree_that_is_lowered_does_not_judge_what_runs_already() {
    let mut lower = tree();
    lower["root"]["children"][0]["max"]["nvidia.com/gpu"] = 1.into();
    let lower = json!({"kind": "ElasticQuotaTree", "metadata": {"name": "t"}, "spec": lower});
    let changes = vec![
        (0, hub(binding("x", "a", 2))),
        (1, east(run("r", "a", "x"))),
        (2, hub(lower.clone())),
        (3, east(pod("r", 0, 2))),
    ];
    check(changes, &[]);
    let later = 1_000_000;
    let changes = vec![
        (0, hub(lower)),
        (later, hub(binding("x", "a", 1))),
        (later, east(run("r", "a", "x"))),
        (later, east(pod("r", 0, 2))),
    ];
    check(changes, &["invariant 3: quota root/a: nvidia.com/gpu 2 used by pods in members, max 1"]);
}

#[test]
fn a_gang_may_be_half_bound_for_a_moment() {
    let unbound = || {
        let mut pod = pod("r", 1, 1);
        pod["spec"]["nodeName"] = Value::Null;
        pod
    };
    let changes = |whole_at_ms| {
        vec![
            (0, hub(binding("x", "a", 2))),
            (1, east(run("r", "a", "x"))),
            (2, east(unbound())),
            (3, east(pod("r", 0, 1))),
            (whole_at_ms, east(pod("r", 1, 1))),
            // A pod that is lost afterwards is no half gang.
            (whole_at_ms + 1, gone(east(pod("r", 0, 1)))),
            (whole_at_ms + 100_000, east(unbound())),
        ]
    };
    check(changes(5_000), &[]);
    let found =
        "invariant 2: gang of PyTorchJob team-a/r in east: 1 of 2 pods are bound, for longer than 10 s";
    check(changes(20_000), &[found]);
}

/// It was suspended while its pods were bound, and goes on while one of them still ends.
#[test]
fn a_pod_that_ends_is_not_half_of_its_gang() {
    let changes = |leaves: bool| {
        let unbound = |uid: &str, at: u64| {
            let mut pod = pod("r", at, 1);
            pod["metadata"]["uid"] = uid.into();
            pod["spec"]["nodeName"] = Value::Null;
            pod
        };
        let mut ends = pod("r", 0, 1);
        if leaves {
            ends["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z".into();
        }
        vec![
            (0, hub(binding("x", "a", 2))),
            (1, east(run("r", "a", "x"))),
            (2, east(unbound("r-1", 1))),
            (3, east(pod("r", 0, 1))),
            (4, gone(east(unbound("r-1", 1)))),
            (5, east(ends)),
            (2_000, east(unbound("later", 1))),
            (25_000, gone(east(pod("r", 0, 1)))),
            (25_001, east(unbound("last", 0))),
        ]
    };
    check(changes(true), &[]);
    let found =
        "invariant 2: gang of PyTorchJob team-a/r in east: 1 of 2 pods are bound, for longer than 10 s";
    check(changes(false), &[found]);
}

#[test]
fn no_pod_of_a_gang_is_bound_before_all_exist() {
    let changes = |second_at_ms| {
        vec![
            (0, hub(binding("x", "a", 2))),
            (1, east(run("r", "a", "x"))),
            (100, east(pod("r", 0, 1))),
            (second_at_ms, east(pod("r", 1, 1))),
            (second_at_ms + 5, east(pod("r", 1, 1))),
        ]
    };
    check(changes(100), &[]);
    check(
        changes(110),
        &["invariant 2: gang of PyTorchJob team-a/r in east: a pod is bound when 1 of 2 exist"],
    );
}

#[test]
fn a_job_without_a_binding_says_why() {
    let job = |api_version: &str, conditions: Value| {
        json!({"apiVersion": api_version, "kind": "PyTorchJob", "status": {"conditions": conditions},
            "metadata": {"name": "a", "namespace": "b", "uid": "u"}})
    };
    let warning = |uid: &str| json!({"involvedObject": {"uid": uid}, "reason": "InvalidWorkload", "message": "spec: found nothing"});
    let condition =
        |kind: &str| json!([{"type": kind, "status": "True", "message": "spec.roles: found none"}]);
    let untold =
        |job: &Value, warnings: &[Value]| crate::untold(job, warnings).map(|found| found.to_string());
    let nothing = Some("invariant 4: PyTorchJob b/a has no binding and nothing says why".to_string());
    let kubeflow = "kubeflow.org/v1";
    assert_eq!(untold(&job(kubeflow, condition("InvalidWorkload")), &[]), None);
    assert_eq!(untold(&job(kubeflow, condition("Running")), &[]), nothing);
    // An event may be of before the job was mended.
    assert_eq!(untold(&job(kubeflow, Value::Null), &[warning("u")]), nothing);
    assert_eq!(untold(&job("batch/v1", Value::Null), &[warning("u")]), None);
    assert_eq!(untold(&job("batch/v1", Value::Null), &[warning("other")]), nothing);
    let mut volcano = job("batch.volcano.sh/v1alpha1", Value::Null);
    volcano["status"]["state"] = json!({"reason": "NoPolicy", "message": "no policy selects it"});
    assert_eq!(untold(&volcano, &[]), None);
}

#[test]
fn what_the_controller_has_forgotten_is_found() {
    let now: jiff::Timestamp = "2026-01-01T10:00:00Z".parse().unwrap();
    let job = |name: &str, api_version: &str, created: &str, status: Value| {
        json!({"apiVersion": api_version, "kind": "Job", "status": status,
            "metadata": {"name": name, "namespace": "n", "uid": name, "creationTimestamp": created}})
    };
    let binding = |name: &str, cluster: &str, result: Value| {
        json!({"metadata": {"name": name, "namespace": "n", "uid": name}, "status": {"result": result},
            "spec": {"resource": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "n", "name": name},
                "clusters": [{"name": cluster}], "epoch": 2}})
    };
    let work = |epoch: i64| json!({"metadata": {"namespace": "fleet-east", "name": "w"}, "spec": {"binding": {"uid": "sent"}, "epoch": epoch}});
    let ended = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    let (early, late) = ("2026-01-01T08:00:00Z", "2026-01-01T09:59:00Z");
    let rest = Snapshot {
        jobs: vec![
            job("forgotten", "batch/v1", late, Value::Null),
            job("long-ago", "batch/v1", early, Value::Null),
            job("ended", "batch/v1", late, ended),
            job("sent", "batch/v1", late, Value::Null),
            // Of the same name and another kind.
            job("sent", "batch.volcano.sh/v1alpha1", early, Value::Null),
        ],
        bindings: vec![
            binding("sent", "east", Value::Null),
            binding("lost", "east", Value::Null),
            binding("over", "east", json!({"outcome": "Succeeded"})),
        ],
        works: vec![work(2)],
        ..Snapshot::default()
    };
    let found =
        |rest: &Snapshot| crate::unattended(rest, now).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        found(&rest),
        [
            "invariant 4: Job n/forgotten has no binding and nothing says why",
            "invariant 4: Volcano Job n/sent has no binding and nothing says why",
            "invariant 4: Job n/lost is bound to east and has no Work there",
        ]
    );
    let stale = Snapshot { works: vec![work(1)], jobs: Vec::new(), ..rest };
    assert_eq!(found(&stale)[0], "invariant 4: Job n/sent is bound to east and has no Work there");
}

#[test]
fn a_hold_without_an_owner_may_stand_for_a_moment() {
    let hold = |epoch: i64| {
        json!({"kind": "Reservation", "metadata": {"name": "h", "uid": "h", "namespace": "fleet-east"},
            "spec": {"epoch": epoch, "binding": {"uid": "x"}}})
    };
    let end = |at_ms| (at_ms, hub(binding("other", "b", 0)));
    check(vec![(0, hub(binding("x", "a", 2))), (1, hub(hold(1))), end(90_000)], &[]);
    check(vec![(0, hub(binding("x", "a", 2))), (1, hub(hold(0))), (9, gone(hub(hold(0)))), end(90_000)], &[]);
    let found = ["invariant 5: reservation h on hub has no owner, for longer than 30 s"];
    check(vec![(0, hub(binding("x", "a", 2))), (1, hub(hold(0))), end(90_000)], &found);
    let unbound = vec![(0, gone(hub(binding("x", "a", 2)))), (1, hub(hold(1))), end(90_000)];
    check(unbound, &found);
    let found = ["invariant 5: reservation h on east has no owner, for longer than 30 s"];
    check(vec![(1, east(hold(1))), end(90_000)], &found);
}

#[test]
fn the_hub_counts_what_pods_take() {
    let told = |gpus: &str| {
        let status = json!({"root": {"name": "root", "used": {"nvidia.com/gpu": gpus, "kube-queue/max-jobs": "1"},
            "children": [{"name": "a", "used": {"nvidia.com/gpu": gpus, "kube-queue/max-jobs": "1"}}]}});
        hub(json!({"kind": "ElasticQuotaTree", "metadata": {"name": "t"}, "spec": tree(), "status": status}))
    };
    let changes = |gpus| {
        vec![
            (0, told("0")),
            (1, hub(binding("x", "a", 2))),
            (2, east(run("r", "a", "x"))),
            (3, east(pod("r", 0, 1))),
            (4, east(pod("r", 1, 1))),
            (900, told(gpus)),
            (90_000, hub(binding("y", "b", 0))),
        ]
    };
    check(changes("2"), &[]);
    let found = |at: &str| {
        format!("invariant 3: quota {at}: pods take 2 nvidia.com/gpu, the hub counts 1, for longer than 10 s")
    };
    check(changes("1"), &[&found("root/a"), &found("root")]);
}

#[test]
fn what_a_lying_cluster_shows_counts_for_nothing() {
    let mut judge = Judge::new(BTreeMap::new(), Some(Quota::read(&tree())))
        .without(["east".to_string()])
        .within(Bounds::WITHOUT_FAULTS);
    for change in [hub(binding("x", "a", 2)), east(run("r", "a", "x")), east(pod("r", 0, 20))] {
        assert_eq!(judge.see_at(0, &change), []);
    }
}

#[test]
fn a_snapshot_is_judged_by_its_pods_too() {
    let mut snapshot = Snapshot { quota: Some(Quota::read(&tree())), ..Snapshot::default() };
    snapshot.bindings = vec![binding("x", "a", 2)];
    snapshot.runs = vec![("east".to_string(), run("r", "a", "x"))];
    snapshot.pods = vec![Pod::read("east", &pod("r", 0, 1)), Pod::read("east", &pod("r", 1, 2))];
    assert_eq!(check_moment(&snapshot), []);
    let used = json!({"name": "root", "used": {"nvidia.com/gpu": "2", "kube-queue/max-jobs": "1"}});
    snapshot.tree = Some(json!({"spec": tree(), "status": {"root": used}}));
    let said = |snapshot: &Snapshot| -> Vec<String> {
        check_moment(snapshot).iter().map(ToString::to_string).collect()
    };
    assert_eq!(said(&snapshot), ["invariant 3: quota root: pods take 3 nvidia.com/gpu, the hub counts 2"]);
    snapshot.tree = None;
    snapshot.runs.push(("west".to_string(), run("s", "other", "x")));
    snapshot.pods.push(Pod::read("west", &pod("s", 0, 1)));
    let found = said(&snapshot);
    assert!(found[0].starts_with("invariant 1: PyTorchJob team-a/a has several live runs: "), "{found:?}");
    assert_eq!(found[1..], ["invariant 3: quota root/a: nvidia.com/gpu 4 used by pods in members, max 3"]);
    // Its job names another leaf, which has room.
    let labels = json!({"quota.scheduling.koordinator.sh/name": "root/b"});
    snapshot.jobs = vec![json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": "a", "namespace": "team-a", "labels": labels}})];
    assert_eq!(said(&snapshot).len(), 1);
    // It was relabelled while it ran: it counts where it was admitted.
    snapshot.bindings[0]["spec"]["queue"] = json!("root/a");
    let found = said(&snapshot);
    assert_eq!(found[1..], ["invariant 3: quota root/a: nvidia.com/gpu 4 used by pods in members, max 3"]);
    snapshot.bindings[0]["spec"]["components"][0]["replicas"] = json!(4);
    let by_hub = "invariant 3: quota root/a: nvidia.com/gpu 4 used, max 3";
    assert!(said(&snapshot).iter().any(|text| text == by_hub), "{:?}", said(&snapshot));
}

fn succeeded(mut run: Value, epoch: i64) -> Value {
    run["metadata"]["annotations"]["fleet.dev/epoch"] = epoch.to_string().into();
    run["status"] = json!({"conditions": [{"type": "Succeeded", "status": "True"}]});
    run
}

#[test]
fn a_restored_hub_may_forget_an_end_that_it_knew_and_nothing_that_it_knows() {
    let mut known = binding("b1", "train", 1);
    known["status"]["result"] = json!({"outcome": "Succeeded", "cluster": "east", "epoch": 1});
    for (restored, knows) in [(binding("b1", "train", 1), false), (known.clone(), true)] {
        let mut judge = Judge::new(Default::default(), None);
        let see = |judge: &mut Judge, changes: Vec<ObservedChange>| -> usize {
            changes.iter().map(|change| judge.see(change).len()).sum()
        };
        let ended = east(succeeded(run("r1", "train", "b1"), 1));
        let before = vec![hub(binding("b1", "train", 1)), ended.clone(), hub(known.clone()), gone(ended)];
        assert_eq!(see(&mut judge, before), 0);
        judge.hub_goes_back();
        let again = vec![hub(restored), east(succeeded(run("r2", "train", "b1"), 2))];
        assert_eq!(see(&mut judge, again), usize::from(knows), "the hub knows the result: {knows}");
    }
}

#[test]
fn the_end_of_the_next_run_says_nothing_of_one_that_a_restored_hub_has_forgotten() {
    let mut judge = Judge::new(Default::default(), None);
    let mut found = judge.see(&hub(binding("b1", "train", 1)));
    found.extend(judge.see(&east(succeeded(run("r1", "train", "b1"), 1))));
    judge.hub_goes_back();
    let mut again = binding("b1", "train", 1);
    found.extend(judge.see(&hub(again.clone())));
    let in_west = |object: Value| ObservedChange { cluster: Some("west".to_string()), ..east(object) };
    let ended = succeeded(run("r2", "train", "b1"), 1);
    found.extend(judge.see(&in_west(ended.clone())));
    again["status"]["result"] = json!({"outcome": "Succeeded", "cluster": "west", "epoch": 1});
    found.extend(judge.see(&hub(again)));
    found.extend(judge.see(&in_west(ended)));
    assert_eq!(found, []);
}

#[test]
fn quota_that_a_restored_hub_believes_in_counts_when_it_is_seen() {
    let quota = Quota::read(&tree());
    let mut judge = Judge::new(Default::default(), Some(quota));
    let mut waits = binding("b2", "second", 3);
    waits["spec"]["clusters"] = json!([]);
    waits["spec"]["suspension"]["scheduling"] = true.into();
    assert!(judge.see(&hub(binding("b1", "first", 3))).is_empty());
    assert!(judge.see(&gone(hub(binding("b1", "first", 3)))).is_empty());
    assert!(judge.see(&hub(binding("b2", "second", 3))).is_empty());
    judge.hub_goes_back();
    // Both are seen as they were, one after the other.
    assert!(judge.see(&hub(binding("b1", "first", 3))).is_empty());
    assert!(judge.see(&hub(waits)).is_empty());
    assert!(!judge.see(&hub(binding("b2", "second", 3))).is_empty(), "and from then on they count");
}
