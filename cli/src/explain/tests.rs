use fleet_api::{Cluster, ElasticQuotaTree};
use fleet_portal::explain::{could_ever_start, judge};
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

fn explained<'a>(entry: &'a BindingEntry, unit: Option<&'a QueueUnit>, said: Said) -> Explained<'a> {
    let (path, verdicts, policy, hidden) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    Explained { entry, unit, said, path, verdicts, policy, invalid: String::new(), hidden }
}

/// A job that waits after a run.
fn waiting() -> BindingEntry {
    BindingEntry::read(
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
    )
}

#[test]
fn a_waiting_job_is_explained_in_full() {
    let entry = waiting();
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
    let said = Said::of(&entry, Some(&units[0]), &units, None, true, now);
    let policy = vec!["PropagationPolicy team/p".to_string()];
    let found = Explained { verdicts, policy, ..explained(&entry, Some(&units[0]), said) };
    let text = found.print(now, None).expect("a text");
    insta::assert_snapshot!(text, @r"
    Job:       team/train (PyTorchJob)
    State:     waits, for 40s
    Reason:    NoClusterFits, for 30s
               0 of 1 clusters hold it
    Queue:     root/team, position 2 of 2 in this queue
    Requests:  nvidia.com/gpu 8 in [{worker 2}]
    Priority:  0
    Policy:    PropagationPolicy team/p

    CLUSTER   FITS   WHY
    east      no     1 of 2 pods fits, then 0/4 nodes are available: 4 Insufficient nvidia.com/gpu
    west      no     0 of 2 pods fit; 0/9 nodes are available: 9 Insufficient nvidia.com/gpu (requested 4, available 2); it could not hold the job even if empty

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
    let said = Said::of(entry, None, &[], None, true, now);
    let (verdicts, policy) = (verdicts(entry, clusters), vec!["p".to_string()]);
    let found = Explained { verdicts, policy, ..explained(entry, None, said) };
    let text = found.print(now, None).expect("a text");
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
    State:     Starting in east (run 2)
    east      here   the job is bound here (run 2)
    west      no     0 of 2 pods fit; 0/1 node is available: 1 Insufficient nvidia.com/gpu (requested 4, available 0)
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

/// State and reason of a job of two workers; `status` is that of its binding.
fn said(clusters: Value, status: Value) -> String {
    let mut entry = bound("PyTorchJob", json!({}), clusters);
    entry.object.status = Some(read(status));
    let now = "2026-01-01T10:01:00Z".parse().expect("a time");
    let said = Said::of(&entry, None, &[], None, true, now);
    let text = explained(&entry, None, said).print(now, None).expect("a text");
    let kept = text.lines().skip(1).take_while(|line| !line.starts_with("Requests"));
    kept.map(str::trim_end).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_job_in_a_cluster_says_whether_it_runs_and_why_not() {
    let east = json!([{"name": "east"}]);
    let refused = json!([{"clusterName": "east", "applied": true, "status": {"conditions": [
        {"type": "FailedCreate", "status": "True", "reason": "FailedCreate", "message": "Error creating: no robot",
            "lastTransitionTime": "2026-01-01T10:00:30Z"},
        {"type": "Created", "status": "True"}]}}]);
    insta::assert_snapshot!(said(east.clone(), json!({"aggregatedStatus": refused})), @r"
    State:     Starting in east (run 2)
    Reason:    FailedCreate, for 30s
               east: Error creating: no robot
    ");
    let volcano = json!([{"clusterName": "east", "applied": true, "status": {"state": {"phase": "Pending",
        "reason": "FailedCreate", "message": "no"}}}]);
    let volcano = said(east.clone(), json!({"aggregatedStatus": volcano}));
    assert!(volcano.contains("FailedCreate\n           east: no"), "{volcano}");
    let run =
        json!({"run": {"epoch": 2, "since": "2026-01-01T10:00:00Z", "startedAt": "2026-01-01T10:00:05Z"}});
    assert_eq!(said(east.clone(), run), "State:     Running in east (run 2)");
    let suspended = json!([{"clusterName": "east", "applied": true,
        "status": {"conditions": [{"type": "Suspended", "status": "True"}]}}]);
    assert_eq!(said(east, json!({"aggregatedStatus": suspended})), "State:     Suspended in east (run 2)");
}

#[test]
fn a_cluster_that_refused_the_job_or_has_no_room_for_a_replica_does_not_fit() {
    let node = |free: &str| json!([{"count": 2, "allocatable": {"nvidia.com/gpu": "8"}, "free": {"nvidia.com/gpu": free}}]);
    let clusters = [cluster("east", node("8")), cluster("west", node("2"))];
    let mut entry = bound("PyTorchJob", json!({}), json!([]));
    entry.object.status =
        Some(read(json!({"attempts": [{"cluster": "east", "epoch": 1, "reason": "NameTaken",
        "message": "it is taken", "endedAt": "2026-01-01T10:00:30Z"}]})));
    let east = judge(&entry, &clusters[0]);
    assert_eq!(
        (east.fits, east.sentence.as_str()),
        (false, "refused the object in run 1: NameTaken: it is taken")
    );
    let web = bound("Deployment", json!({}), json!([]));
    assert!(judge(&web, &clusters[0]).fits);
    let west = judge(&web, &clusters[1]);
    assert!(!west.fits && west.sentence.contains("no room for one replica"), "{}", west.sentence);
}

#[test]
fn an_end_has_its_reason_and_a_job_that_never_started_no_cluster() {
    let result = |cluster: &str, reason: &str| {
        json!({"result": {"outcome": "Failed", "cluster": cluster, "epoch": 1,
            "recordedAt": "2026-01-01T10:00:30Z", "reason": reason, "message": "so it is"}})
    };
    insta::assert_snapshot!(said(json!([]), result("", "Stopped")), @r"
    State:     Stopped, never started
    Reason:    Stopped, 30s ago
               so it is
    ");
    insta::assert_snapshot!(said(json!([{"name": "east"}]), result("east", "DeadlineExceeded")), @r"
    State:     Failed in east
    Reason:    DeadlineExceeded, 30s ago
               so it is
    ");
}

#[test]
fn a_claim_says_when_the_job_starts_as_of_now() {
    let mut entry = bound("PyTorchJob", json!({}), json!([]));
    let mut unit = unit("x", "root/team", 0, "2026-01-01T10:00:00Z");
    entry.object.status = Some(read(json!({"conditions": [{"type": "Scheduled", "status": "False",
        "reason": "Claimed", "message": "", "lastTransitionTime": "2026-01-01T10:00:10Z"}]})));
    unit.status =
        Some(read(json!({"phase": "Enqueued", "reason": "Claimed", "message": "holds a claim on east",
        "claim": {"cluster": "east", "since": "2026-01-01T10:00:00Z", "start": "2026-01-01T10:02:00Z",
            "until": "2026-01-01T10:09:00Z"}})));
    let message = |now: &str| {
        let said = Said::of(&entry, Some(&unit), &[], None, true, now.parse().expect("a time"));
        said.why.expect("a reason").message
    };
    assert_eq!(message("2026-01-01T10:01:00Z"), "holds a claim on east; it starts in about 60s");
    assert_eq!(message("2026-01-01T10:01:50Z"), "holds a claim on east; it starts in about 10s");
}

#[test]
fn a_job_larger_than_every_cluster_would_never_start() {
    let node = |gpus: &str| json!([{"count": 2, "allocatable": {"nvidia.com/gpu": gpus}, "free": {"nvidia.com/gpu": "0"}}]);
    let (small, large) = (cluster("west", node("2")), cluster("east", node("8")));
    let job = bound("PyTorchJob", json!({}), json!([]));
    let starts = |entry: &BindingEntry, clusters: &[&Cluster]| could_ever_start(entry, clusters);
    assert!(!starts(&job, &[&small]));
    // Full is not too small; and of no cluster nothing is known.
    assert!(starts(&job, &[&small, &large]) && starts(&job, &[]));
    let affinity = json!({"clusterAffinity": {"clusterNames": ["west"]}});
    assert!(!starts(&bound("PyTorchJob", affinity, json!([])), &[&small, &large]));
    assert!(starts(&bound("Deployment", json!({}), json!([])), &[&small]));
}

fn tree(name: &str, max: &str, status: Value) -> ElasticQuotaTree {
    read(json!({"apiVersion": "scheduling.sigs.k8s.io/v1beta1", "kind": "ElasticQuotaTree",
        "metadata": {"name": name, "namespace": "kube-system", "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"root": {"name": "root", "max": {"cpu": max}, "children": [{"name": "team", "max": {"cpu": max}}]}},
        "status": status}))
}

/// Whoever reads the data sees that the limits in it are not those of the object that was applied last.
#[test]
fn trees_that_are_not_in_force_are_data() {
    let refused = json!({"conditions": [{"type": "Valid", "status": "False", "reason": "QuotaTreeInvalid",
        "message": "root/team, max: found banana; allowed: amounts", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    let (good, bad) = (tree("good", "64", Value::Null), tree("bad", "banana", refused));
    let mut kept = bad.clone();
    let root = json!({"name": "root", "max": {"cpu": "32"}, "children": [{"name": "team"}]});
    kept.status.get_or_insert_default().in_force = Some(read(json!({"generation": 2, "root": root})));
    let (entry, unit) = (waiting(), unit("train", "root/team", 0, "2026-01-01T10:00:00Z"));
    let data = |trees: &[ElasticQuotaTree]| {
        let said = Said { why: None, position: None };
        let rows = queue::rows(trees, &[]);
        let (path, invalid) = (rows.iter().collect(), queue::invalid(trees));
        let data = Explained { path, invalid, ..explained(&entry, Some(&unit), said) }.data();
        (data["notInForce"].clone(), data["quota"][0]["max"]["cpu"].clone())
    };
    assert_eq!(data(std::slice::from_ref(&good)), (Value::Null, json!("64")));
    let told = "INVALID: ElasticQuotaTree bad: root/team, max: found banana; allowed: amounts\nIn force: ";
    let told = |instead: &str| json!(format!("{told}{instead}\n"));
    assert_eq!(data(&[bad.clone(), good]), (told("ElasticQuotaTree good, generation 3"), json!("64")));
    assert_eq!(data(&[kept]), (told("ElasticQuotaTree bad, generation 2"), json!("32")));
    let none = told("no tree; jobs whose policy uses a queue wait");
    assert_eq!(data(&[bad]), (none, Value::Null));
}

/// Its tables wrap what they say; no column is left out, and no line is longer than the terminal.
#[test]
fn an_explanation_fits_80_columns() {
    let entry = waiting();
    let unit = unit("train", "root/team", 0, "2026-01-01T10:00:00Z");
    let used = json!({"nvidia.com/gpu": "128", "kube-queue/max-jobs": "123", "memory": "2048Gi"});
    let status =
        json!({"root": {"name": "root", "used": used, "children": [{"name": "team", "used": used}]}});
    let rows = queue::rows(&[tree("teams", "64", status)], std::slice::from_ref(&unit));
    let node = |gpus: &str, free: &str, count: i64| json!({"count": count, "allocatable": {"nvidia.com/gpu": gpus}, "free": {"nvidia.com/gpu": free}});
    let clusters =
        [cluster("eu-central-1", json!([node("8", "2", 300)])), cluster("west", json!([node("2", "2", 9)]))];
    let now = "2026-01-01T10:01:00Z".parse().expect("a time");
    let said = Said::of(&entry, Some(&unit), std::slice::from_ref(&unit), None, true, now);
    let found = Explained {
        path: rows.iter().collect(),
        verdicts: verdicts(&entry, &clusters),
        policy: vec!["PropagationPolicy team/training-on-accelerators".to_string()],
        invalid:
            "INVALID: ElasticQuotaTree teams: root/team, max: found banana; allowed: amounts of resources\n"
                .into(),
        hidden: vec![Hidden::OtherJobs],
        ..explained(&entry, Some(&unit), said)
    };
    let print = |width: Option<usize>| terminal::fold(&found.print(now, width).expect("a text"), width);
    let (wide, narrow) = (print(None), print(Some(80)));
    let longest = narrow.lines().map(|line| line.chars().count()).max();
    assert!(longest.is_some_and(|longest| longest <= 80), "{narrow}");
    assert!(wide.lines().any(|line| line.chars().count() > 80), "{wide}");
    let left_out: Vec<&str> =
        wide.split_whitespace().filter(|word| !narrow.split_whitespace().any(|kept| kept == *word)).collect();
    assert_eq!(left_out, [""; 0], "{narrow}");
    // A tree that is not in force is told beside the limits that are.
    let invalid =
        "INVALID: ElasticQuotaTree teams: root/team, max: found banana; allowed: amounts of resources";
    assert!(wide.lines().any(|line| line == invalid), "{wide}");
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

#[test]
fn a_job_that_lost_its_place_is_behind_those_that_came_before_its_edit() {
    let first = unit("train", "root/team", 0, "2026-01-01T10:00:00Z");
    let mut units = [first, unit("other", "root/team", 0, "2026-01-01T10:00:05Z")];
    let place = |units: &[QueueUnit]| position(units, Some(&units[0])).map(|at| (at.place, at.of));
    assert_eq!(place(&units), Some((1, 2)));
    units[0].annotations_mut().insert(QUEUE_PLACE_ANNOTATION.to_owned(), "2026-01-01T10:00:09Z".to_owned());
    assert_eq!(place(&units), Some((2, 2)));
}
