use serde_json::json;

use super::*;

fn role(replicas: Value, resources: Value) -> Value {
    json!({"replicas": replicas, "template": {"spec": {"containers": [{"name": "c", "resources": resources}]}}})
}

fn requests(cpu: &str, memory: &str) -> Value {
    json!({"requests": {"cpu": cpu, "memory": memory}})
}

/// Components as `name replicas: requests`.
fn check(kind: WorkloadKind, spec: Value, expected: &[&str]) {
    let found = components(kind, &json!({"spec": spec})).unwrap();
    let lines: Vec<String> =
        found.iter().map(|c| format!("{} {}: {}", c.name, c.replicas, c.requests)).collect();
    assert_eq!(lines, expected);
}

#[test]
fn the_facts_table() {
    let torch = |roles: Value| json!({"pytorchReplicaSpecs": roles});
    check(
        WorkloadKind::PyTorchJob,
        torch(
            json!({"Worker": role(json!(4), requests("1", "512Mi")), "Master": role(json!(2), requests("500m", "256Mi"))}),
        ),
        &["master 2: cpu 500m, memory 256Mi", "worker 4: cpu 1, memory 512Mi"],
    );
    check(WorkloadKind::PyTorchJob, torch(json!({"Worker": role(json!(3), json!({}))})), &["worker 3: "]);
    check(
        WorkloadKind::PyTorchJob,
        torch(json!({"Master": role(json!("1"), json!({})), "Worker": role(json!("2"), json!({}))})),
        &["master 1: ", "worker 2: "],
    );
    check(
        WorkloadKind::PyTorchJob,
        torch(json!({"Master": role(Value::Null, json!({"limits": {"cpu": 2}})), "Worker": {}})),
        &["master 1: cpu 2", "worker 1: "],
    );
}

#[test]
fn pods_of_a_batch_job_follow_one_another() {
    let of = |kind, spec: Value| completions(kind, &json!({"spec": spec})).into_values().collect::<Vec<_>>();
    assert_eq!(of(WorkloadKind::BatchJob, json!({"parallelism": 2, "completions": 5})), [5]);
    assert_eq!(of(WorkloadKind::BatchJob, json!({"parallelism": 2})), [2]);
    assert_eq!(of(WorkloadKind::BatchJob, json!({})), [1]);
    assert_eq!(of(WorkloadKind::VolcanoJob, json!({"completions": 5})), [0; 0]);
}

#[test]
fn other_kinds() {
    check(
        WorkloadKind::MPIJob,
        json!({"mpiReplicaSpecs": {"Launcher": role(Value::Null, json!({})), "Worker": role(Value::Null, json!({}))}}),
        &["Launcher 1: ", "Worker 0: "],
    );
    check(
        WorkloadKind::VolcanoJob,
        json!({"tasks": [
            {"replicas": 3, "minAvailable": 1, "name": "ps", "template": {"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}}},
            {"template": {}}]}),
        &["ps 3: cpu 1", "default1 1: "],
    );
    check(WorkloadKind::BatchJob, json!({"parallelism": 4, "completions": 3, "template": {}}), &["job 3: "]);
    check(WorkloadKind::Deployment, json!({"replicas": 2, "template": {}}), &["replica 2: "]);
    check(WorkloadKind::Other, json!({"data": {}}), &[]);
}

#[test]
fn a_pod_counts_as_kubernetes_counts() {
    let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
    let mut sidecar = container("1");
    sidecar["restartPolicy"] = json!("Always");
    let pod = |init: Value| {
        let spec = json!({"containers": [container("1"), container("2")], "initContainers": init, "overhead": {"cpu": "250m"}});
        json!({"template": {"spec": spec}})
    };
    check(WorkloadKind::BatchJob, pod(json!([])), &["job 1: cpu 3250m"]);
    check(WorkloadKind::BatchJob, pod(json!([container("5")])), &["job 1: cpu 5250m"]);
    check(WorkloadKind::BatchJob, pod(json!([sidecar, container("5")])), &["job 1: cpu 6250m"]);
    check(WorkloadKind::BatchJob, pod(json!([container("3"), sidecar])), &["job 1: cpu 4250m"]);
}

#[test]
fn what_could_not_be_counted_is_refused() {
    let check = |kind: WorkloadKind, spec: Value, expected: &str| {
        let error = components(kind, &json!({"spec": spec})).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    };
    // Where one is named as another without a name is, both would be one component.
    check(
        WorkloadKind::VolcanoJob,
        json!({"tasks": [{"name": "default1"}, {}]}),
        "spec.tasks[1].name: found",
    );
    let claims = json!({"template": {"spec": {"resourceClaims": [{"name": "gpu"}]}}});
    check(WorkloadKind::BatchJob, claims, "spec.template.spec.resourceClaims: found 1 claims");
    let elastic = json!({"elasticPolicy": {"maxReplicas": 9, "metrics": []}, "pytorchReplicaSpecs": {}});
    check(WorkloadKind::PyTorchJob, elastic, "spec.elasticPolicy.metrics: found");
}

#[test]
fn a_job_of_many_tasks_is_read_in_one_pass_or_refused() {
    // Each component of a form looked for among all takes minutes.
    const FORM: usize = 100_000;
    let job = |tasks: usize, last: &str| {
        let mut all: Vec<Value> = (1..tasks).map(|i| json!({"name": format!("t{i}")})).collect();
        all.push(json!({"name": last}));
        components(WorkloadKind::VolcanoJob, &json!({"spec": {"tasks": all}})).map_err(|e| e.to_string())
    };
    let found = job(1_000, "last").expect("legal");
    assert_eq!((found.len(), found[999].name.as_str()), (1_000, "last"));
    let error = job(1_001, "last").unwrap_err();
    assert_eq!(error, "spec.tasks: found 1001 tasks; allowed: at most 1000 tasks");
    let error = job(1_000, "t7").unwrap_err();
    assert!(error.starts_with("spec.tasks[999].name: found \"t7\" twice"), "{error}");
    let like = |i: usize| Component { name: format!("t{i}"), replicas: i as i64, ..found[0].clone() };
    let form = || (0..FORM).map(like);
    let covering = most(vec![form().collect(), form().rev().collect()]);
    assert_eq!((covering.len(), covering[FORM - 1].replicas), (FORM, 99_999));
}

#[test]
fn requests_of_the_whole_pod_raise_the_sum_and_never_lower_it() {
    let pod = |resources: Value| {
        json!({"template": {"spec": {"resources": resources, "containers": [
            {"resources": {"requests": {"cpu": "2", "nvidia.com/gpu": "8"}}}]}}})
    };
    let none = json!({"requests": {"cpu": "0", "nvidia.com/gpu": "0"}});
    check(WorkloadKind::BatchJob, pod(none), &["job 1: cpu 2, nvidia.com/gpu 8"]);
    let more = json!({"requests": {"cpu": "3"}});
    check(WorkloadKind::BatchJob, pod(more), &["job 1: cpu 3, nvidia.com/gpu 8"]);
    let limits = json!({"limits": {"cpu": "4"}});
    check(WorkloadKind::BatchJob, pod(limits), &["job 1: cpu 4, nvidia.com/gpu 8"]);
}

#[test]
fn a_pod_that_passes_every_scheduler() {
    let spec = json!({"template": {"spec": {"nodeName": "node-0", "containers": []}}});
    let error = components(WorkloadKind::BatchJob, &json!({"spec": spec})).unwrap_err().to_string();
    assert!(error.starts_with("spec.template.spec.nodeName: found \"node-0\"; allowed: none"), "{error}");
}

#[test]
fn a_name_that_pods_cannot_carry() {
    let job = |length: usize| json!({"metadata": {"name": "n".repeat(length)}, "spec": {}});
    let error = components(WorkloadKind::BatchJob, &job(64)).unwrap_err();
    let expected =
        "metadata.name: found 64 characters; allowed: at most 63, since its pods carry it in a label";
    assert_eq!(error.to_string(), expected);
    assert!(components(WorkloadKind::BatchJob, &job(63)).is_ok());
    assert!(components(WorkloadKind::Deployment, &job(240)).is_ok());
}

#[test]
fn a_request_above_its_limit_is_refused() {
    let job = |requests: Value, limits: Value| {
        let container =
            json!({"name": "c", "image": "i", "resources": {"requests": requests, "limits": limits}});
        json!({"spec": {"template": {"spec": {"containers": [container]}}}})
    };
    let refused = |requests: Value, limits: Value| {
        components(WorkloadKind::BatchJob, &job(requests, limits)).unwrap_err().to_string()
    };
    let place = "spec.template.spec.containers[0].resources.requests";
    let allowed = "allowed: at most the limit of this resource";
    let found = refused(json!({"cpu": 4}), json!({"cpu": "3999m"}));
    assert_eq!(found, format!("{place}.cpu: found 4; {allowed}"));
    let found = refused(json!({"nvidia.com/gpu": "2"}), json!({"nvidia.com/gpu": 1, "cpu": 8}));
    assert_eq!(found, format!("{place}.nvidia.com/gpu: found 2; {allowed}"));
    for (requests, limits) in [
        (json!({"cpu": 4}), json!({"cpu": "4000m"})),
        (json!({"cpu": 4}), json!({})),
        (json!({"cpu": 0}), json!({"cpu": 4, "memory": "1Gi"})),
    ] {
        components(WorkloadKind::BatchJob, &job(requests, limits)).unwrap();
    }
}

#[test]
fn a_number_of_pods_that_nothing_could_hold_is_refused() {
    let refused = |kind: WorkloadKind, spec: Value, expected: &str| {
        let error = components(kind, &json!({"spec": spec})).unwrap_err().to_string();
        assert_eq!(error, expected);
    };
    let range = "allowed: a whole number of 0 or more, at most 2147483647";
    for replicas in [json!(i64::MAX), json!("9223372036854775807"), json!(2_147_483_648_i64), json!(1e300)] {
        let error = format!("spec.pytorchReplicaSpecs.Worker.replicas: found {replicas}; {range}");
        let roles = json!({"Worker": role(replicas, json!({}))});
        refused(WorkloadKind::PyTorchJob, json!({"pytorchReplicaSpecs": roles}), &error);
    }
    let roles = json!({"Launcher": role(json!(1), json!({})), "Worker": role(json!(100_000), json!({}))});
    let error = "spec.mpiReplicaSpecs: found 100001 pods; allowed: at most 5000 pods in all, since they get a list of the addresses of all";
    refused(WorkloadKind::MPIJob, json!({"mpiReplicaSpecs": roles}), error);
    let tasks = json!({"tasks": [{"replicas": i32::MAX}, {"name": "b", "replicas": i32::MAX}]});
    let error = "spec.tasks: found 4294967294 pods; allowed: at most 100000 pods in all";
    refused(WorkloadKind::VolcanoJob, tasks, error);
    let error = "spec.replicas: found 2147483647 pods; allowed: at most 100000 pods in all";
    refused(WorkloadKind::Deployment, json!({"replicas": i32::MAX}), error);
    let error = "spec.completions: found 100001 pods; allowed: at most 100000 pods in all";
    refused(WorkloadKind::BatchJob, json!({"completions": 100_001}), error);
    let error = "spec.parallelism: found 100001 pods; allowed: at most 100000 pods in all";
    refused(WorkloadKind::BatchJob, json!({"parallelism": 100_001}), error);
    check(WorkloadKind::BatchJob, json!({"completions": 100_000, "parallelism": 2}), &["job 2: "]);
}

#[test]
fn what_cannot_be_read_is_named() {
    let check = |spec: Value, expected: &str| {
        let error = components(WorkloadKind::PyTorchJob, &json!({"spec": {"pytorchReplicaSpecs": spec}}))
            .unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    };
    check(
        json!({"Master": role(json!(-1), json!({}))}),
        "spec.pytorchReplicaSpecs.Master.replicas: found -1;",
    );
    check(
        json!({"Worker": role(json!(1), requests("two", "1Gi"))}),
        "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].resources.requests: resource \"cpu\": \"two\" is not",
    );
    check(
        json!({"Worker": role(json!(1), requests("-2", "1Gi"))}),
        "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].resources.requests.cpu: found -2;",
    );
}

#[test]
fn several_forms_are_covered_by_the_most_of_each() {
    let form = |replicas: i64, cpu: &str, role_name: &str| {
        let spec = json!({role_name: role(json!(replicas), requests(cpu, "1Gi"))});
        components(WorkloadKind::PyTorchJob, &json!({"spec": {"pytorchReplicaSpecs": spec}})).unwrap()
    };
    let found = most(vec![form(2, "4", "Worker"), form(5, "1", "Worker"), form(1, "1", "Master")]);
    let lines: Vec<String> =
        found.iter().map(|c| format!("{} {}: {}", c.name, c.replicas, c.requests)).collect();
    assert_eq!(lines, ["worker 5: cpu 4, memory 1Gi", "master 1: cpu 1, memory 1Gi"]);
}

#[test]
fn totals_and_requirements() {
    let object = json!({"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": {"spec": {
        "nodeSelector": {"gpu": "a100"}, "schedulerName": "volcano", "priorityClassName": "high",
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}}},
        "containers": [{"resources": {"limits": {"nvidia.com/gpu": 8}}}]}}}}}});
    let found = components(WorkloadKind::PyTorchJob, &object).unwrap();
    assert_eq!(total(&found).get("nvidia.com/gpu"), 16);
    let pod = &found[0].pod_spec;
    assert_eq!(pod.node_selector["gpu"], "a100");
    assert_eq!(pod.node_affinity[0].match_expressions[0].key, "zone");
    assert_eq!(pod.tolerations.len(), 1);
    assert_eq!(pod.scheduler_name.as_deref(), Some("volcano"));
    assert_eq!(pod.priority_class_name.as_deref(), Some("high"));
}
