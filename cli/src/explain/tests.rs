use fleet_portal::explain::judge;
use serde_json::{Value, json};

use super::*;

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

fn unit(name: &str, queue: &str, priority: i32, created: &str) -> QueueUnit {
    read(json!({"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "QueueUnit",
        "metadata": {"name": format!("{name}-pytorchjob-rb-qu"), "namespace": "team",
            "creationTimestamp": created},
        "spec": {"queue": queue, "priority": priority, "consumerRef": {"apiVersion": "fleet.dev/v1alpha1",
            "kind": "ResourceBinding", "namespace": "team", "name": format!("{name}-pytorchjob")}},
        "status": {"phase": "Enqueued", "reason": "NoClusterFits", "message": "0 of 1 clusters hold it",
            "lastUpdateTime": "2026-01-01T10:00:30Z"}}))
}

fn cluster(name: &str, shapes: Value) -> Cluster {
    read(
        json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": name}, "spec": {},
        "status": {"reportSequence": 1, "nodeShapes": shapes,
            "conditions": [{"type": "Ready", "status": "True", "reason": "ClusterReady", "message": "",
                "lastTransitionTime": "2026-01-01T10:00:00Z"}]}}),
    )
}

#[test]
fn a_waiting_job_is_explained_in_full() {
    let entry = BindingEntry::read(
        read(json!({
        "apiVersion": "fleet.dev/v1alpha1", "kind": "ResourceBinding",
        "metadata": {"name": "train-pytorchjob", "namespace": "team", "creationTimestamp": "2026-01-01T10:00:00Z"},
        "spec": {"resource": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "namespace": "team",
                "name": "train"},
            "policy": {"kind": "PropagationPolicy", "name": "p"}, "suspension": {"scheduling": true},
            "components": [{"name": "worker", "replicas": 2, "request": {"nvidia.com/gpu": "4"}}]},
        "status": {"conditions": [{"type": "Scheduled", "status": "False", "reason": "NoClusterFits",
                "message": "0 of 1 clusters hold it", "lastTransitionTime": "2026-01-01T10:00:10Z"}],
            "attempts": [{"cluster": "east", "epoch": 1, "reason": "Preempted",
                "message": "preempted by team/a in east (Reclaim); 30 s of work since its last checkpoint are lost",
                "endedAt": "2026-01-01T10:00:20Z"}]}})),
        None,
    );
    let units = [
        unit("train", "root/team", 0, "2026-01-01T10:00:00Z"),
        unit("other", "root/team", 5, "2026-01-01T10:00:05Z"),
        unit("else", "root/b", 9, "2026-01-01T10:00:00Z"),
    ];
    let node = |gpus: &str, free: &str, count: i64| json!({"count": count, "allocatable": {"nvidia.com/gpu": gpus}, "free": {"nvidia.com/gpu": free}});
    let clusters = [
        cluster("east", json!([node("8", "2", 3), node("8", "4", 1)])),
        cluster("west", json!([node("2", "2", 9)])),
    ];
    let verdicts: Vec<ClusterVerdict> = clusters.iter().map(|c| judge(&entry, c)).collect();
    let now = "2026-01-01T10:01:00Z".parse().expect("a time");
    let text = print(
        &entry,
        Some(&units[0]),
        &units,
        &[],
        &verdicts,
        &["PropagationPolicy team/p".to_string()],
        now,
    )
    .expect("a text");
    insta::assert_snapshot!(text, @r"
    Job:       team/train (PyTorchJob)
    State:     waits, for 60s
    Reason:    NoClusterFits, for 30s
               0 of 1 clusters hold it
    Queue:     root/team, position 2 of 2 in this queue, 3 of 3 in all queues
    Requests:  nvidia.com/gpu 8 in [{worker 2}]
    Priority:  0
    Policy:    PropagationPolicy team/p

    CLUSTER   FITS   WHY
    east      no     1 of 2 worker fit: 3 of 4 nodes lack 2 nvidia.com/gpu
    west      no     0 of 2 worker fit: 9 of 9 nodes lack 2 nvidia.com/gpu; it could not hold the job even if empty

    RUN   CLUSTER   ENDED     REASON      MESSAGE
    1     east      40s ago   Preempted   preempted by team/a in east (Reclaim); 30 s of work since its last checkpoint are lost
    ");
}

fn bound(kind: &str, placement: Value, clusters: Value) -> BindingEntry {
    let version = if kind == "Deployment" { "apps/v1" } else { "kubeflow.org/v1" };
    BindingEntry::read(
        read(json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "ResourceBinding",
            "metadata": {"name": "x", "namespace": "team", "creationTimestamp": "2026-01-01T10:00:00Z"},
            "spec": {"resource": {"apiVersion": version, "kind": kind, "namespace": "team", "name": "x"},
                "policy": {"kind": "PropagationPolicy", "name": "p"}, "epoch": 2, "clusters": clusters,
                "placement": placement,
                "components": [{"name": "worker", "replicas": 2, "request": {"nvidia.com/gpu": "4"}}]}})),
        None,
    )
}

/// State line and table of a job that is somewhere.
fn shown(entry: &BindingEntry, clusters: &[Cluster]) -> String {
    let now = "2026-01-01T10:01:00Z".parse().expect("a time");
    let text =
        print(entry, None, &[], &[], &verdicts(entry, clusters), &["p".to_string()], now).expect("a text");
    let kept = text.lines().filter(|line| {
        line.starts_with("State")
            || line.contains("  here")
            || line.contains("   no ")
            || line.contains("   yes ")
    });
    kept.collect::<Vec<_>>().join("\n")
}

#[test]
fn where_a_job_is_and_what_its_policy_names() {
    let full = json!([{"count": 1, "allocatable": {"nvidia.com/gpu": "8"}, "free": {"nvidia.com/gpu": "0"}}]);
    let clusters = [cluster("east", full.clone()), cluster("west", full)];
    // The places that a running job takes are not free; that is no reason against its own cluster.
    insta::assert_snapshot!(shown(&bound("PyTorchJob", json!({}), json!([{"name": "east"}])), &clusters), @r"
    State:     Bound in east (run 2)
    east      here   the job is bound here (run 2)
    west      no     0 of 2 worker fit: 1 of 1 nodes lack 4 nvidia.com/gpu
    ");
    let web = bound(
        "Deployment",
        json!({}),
        json!([{"name": "east", "replicas": 2}, {"name": "west", "replicas": 1}]),
    );
    insta::assert_snapshot!(shown(&web, &clusters), @r"
    State:     in east (2), west (1)
    east      here   2 replicas are here
    west      here   1 replica is here
    ");
    let affinity = json!({"clusterAffinity": {"clusterNames": ["east", "esat"]}});
    let named = shown(&bound("PyTorchJob", affinity, json!([{"name": "east"}])), &clusters);
    assert!(named.contains("esat      no     has not joined the fleet"), "{named}");
}

#[test]
fn words_name_a_job() {
    let check = |words: &[&str], kind: Option<&str>, name: &str| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_string()).collect();
        assert_eq!(wanted(&words), (kind.map(str::to_string), name.to_string()));
    };
    check(&["a"], None, "a");
    check(&["deploy/a"], Some("deploy"), "a");
    check(&["deploy", "a"], Some("deploy"), "a");
}
