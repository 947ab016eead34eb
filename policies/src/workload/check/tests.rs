use serde_json::json;

use super::*;

fn role(replicas: Value) -> Value {
    json!({"replicas": replicas, "template": {"spec": {"containers": [{"name": "c"}]}}})
}

fn refused(kind: WorkloadKind, spec: Value, expected: &[&str]) {
    let found = check(kind, &json!({"spec": spec})).map_err(|error| error.to_string());
    match expected {
        [] => assert_eq!(found, Ok(()), "{spec}"),
        parts => {
            let text = found.expect_err("it cannot run");
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
    }
}

#[test]
fn jobs_that_cannot_run() {
    let torch = |roles: Value| json!({"pytorchReplicaSpecs": roles});
    let kind = WorkloadKind::PyTorchJob;
    refused(kind, torch(json!({"Master": role(json!(1)), "Worker": role(json!(3))})), &[]);
    refused(
        kind,
        torch(json!({"Mastre": role(json!(1))})),
        &["spec.pytorchReplicaSpecs", "\"Mastre\"", "Master, Worker"],
    );
    refused(kind, torch(json!({"Master": role(json!(-1))})), &["Master.replicas", "-1", "0 or more"]);
    refused(kind, torch(json!({"Master": role(json!(0))})), &["0 replicas in all"]);
    refused(kind, torch(json!({})), &["no role"]);
    refused(kind, json!({}), &["no role", "Master, Worker"]);
    refused(kind, torch(json!({"Worker": {"replicas": 1}})), &["Worker.template.spec.containers"]);
    let mut restart = role(json!(1));
    restart["restartPolicy"] = json!("Sometimes");
    refused(kind, torch(json!({"Master": restart})), &["Master.restartPolicy", "Sometimes", "OnFailure"]);
    let mut asks = role(json!(1));
    asks["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "abc"}});
    refused(
        kind,
        torch(json!({"Master": asks})),
        &["Master.template.spec.containers[0].resources.requests", "\"abc\""],
    );
    let run = json!({"pytorchReplicaSpecs": {"Master": role(json!(1))}, "runPolicy": {"backoffLimit": -2}});
    refused(kind, run, &["spec.runPolicy.backoffLimit", "-2"]);
    let run = json!({"pytorchReplicaSpecs": {"Master": role(json!(1))},
        "runPolicy": {"ttlSecondsAfterFinished": i64::MAX}});
    refused(kind, run, &["spec.runPolicy.ttlSecondsAfterFinished", "9223372036854775807", "2147483647"]);
    refused(
        WorkloadKind::TFJob,
        json!({"tfReplicaSpecs": {"PS": role(json!(1)), "worker": role(json!(1))}}),
        &["\"worker\"", "PS, Worker"],
    );
    refused(WorkloadKind::MPIJob, json!({"mpiReplicaSpecs": {"Worker": role(json!(2))}}), &["no Launcher"]);
    let named = |name: &str, workers: i64| {
        let roles = json!({"Launcher": role(json!(1)), "Worker": role(json!(workers))});
        let job = json!({"metadata": {"name": name}, "spec": {"mpiReplicaSpecs": roles}});
        check(WorkloadKind::MPIJob, &job).map_err(|error| error.to_string())
    };
    assert_eq!((named("1a", 2), named(&"z".repeat(54), 10)), (Ok(()), Ok(())));
    for (name, workers) in [("a.b", 1), (&*"z".repeat(54), 11), (&*"z".repeat(63), 1)] {
        assert!(named(name, workers).is_err_and(|text| text.contains("metadata.name")), "{name}");
    }
    let task = |replicas: i64, min: i64| {
        json!({"name": "t", "replicas": replicas, "minAvailable": min,
            "template": {"spec": {"containers": [{"name": "c"}]}}})
    };
    refused(WorkloadKind::VolcanoJob, json!({"tasks": [task(2, 2)], "minAvailable": 2}), &[]);
    refused(WorkloadKind::VolcanoJob, json!({"tasks": []}), &["spec.tasks", "no task"]);
    refused(
        WorkloadKind::VolcanoJob,
        json!({"tasks": [task(2, 3)]}),
        &["spec.tasks[0].minAvailable", "3 of 2"],
    );
    refused(
        WorkloadKind::VolcanoJob,
        json!({"tasks": [task(2, 2)], "minAvailable": 5}),
        &["spec.minAvailable", "5 of 2"],
    );
    refused(
        WorkloadKind::VolcanoJob,
        json!({"tasks": [task(2, 2)], "minAvailable": i64::MIN}),
        &["spec.minAvailable", "-9223372036854775808"],
    );
    refused(WorkloadKind::BatchJob, json!({"template": {"spec": {}}}), &["spec.template.spec.containers"]);
    refused(WorkloadKind::Deployment, json!({"replicas": 2}), &[]);
}

#[test]
fn only_jobs_are_gangs() {
    let placement: Placement = serde_json::from_value(json!({"replicaScheduling": {
        "replicaSchedulingType": "Divided", "customSchedulingType": "Gang"}}))
    .expect("a placement");
    let template = json!({"spec": {"containers": [{"name": "c"}]}});
    let cron = json!({"jobTemplate": {"spec": {"template": template}}});
    let torch = json!({"pytorchReplicaSpecs": {"Worker": {"template": template}}});
    for (api_version, kind, spec, is_allowed) in [
        ("apps/v1", "Deployment", json!({"template": template}), false),
        ("apps/v1", "StatefulSet", json!({"template": template}), false),
        ("batch/v1", "CronJob", cron, false),
        ("v1", "Pod", template["spec"].clone(), false),
        ("example.com/v1", "Set", json!({"template": template}), false),
        ("batch/v1", "Job", json!({"template": template}), true),
        ("kubeflow.org/v1", "PyTorchJob", torch, true),
        ("v1", "ConfigMap", Value::Null, true),
    ] {
        let object = json!({"apiVersion": api_version, "kind": kind, "spec": spec});
        let workload = WorkloadKind::of(api_version, kind);
        let found = check_placement(workload, &object, &placement);
        assert_eq!(found.is_ok(), is_allowed, "{kind}");
        assert_eq!(check_placement(workload, &object, &Placement::default()), Ok(()), "{kind}");
        if let Err(error) = found {
            let text = error.to_string();
            let words = ["customSchedulingType of its policy", "Gang, for a", kind, "PyTorchJob"];
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        }
    }
}
