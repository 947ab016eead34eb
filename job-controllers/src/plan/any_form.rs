//! Jobs of any form: a pod template is stored as it is written, and one that is none fells nobody.

use std::{collections::BTreeMap, sync::Arc};

use fleet_agent_ground::{Object, Pod, resource};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{volcano, *};

fn now() -> Timestamp {
    "2026-01-01T00:01:00Z".parse().expect("a time")
}

/// Every place in a value, as JSON pointers.
fn places(value: &Value, path: &str, found: &mut Vec<String>) {
    found.push(path.to_owned());
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                places(value, &format!("{path}/{}", name.replace('~', "~0").replace('/', "~1")), found);
            }
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, value)| places(value, &format!("{path}/{at}"), found));
        }
        _ => {}
    }
}

fn values() -> [Value; 8] {
    [
        json!("x"),
        json!(7),
        json!(-1),
        json!([]),
        json!({}),
        json!(["x", 1, null, {}]),
        json!(true),
        Value::Null,
    ]
}

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "x"}, "annotations": {"note": "y"}},
        "spec": {"restartPolicy": "Never", "schedulingGates": [{"name": "g"}], "volumes": [{"name": "v", "emptyDir": {}}],
            "initContainers": [{"name": "i", "image": "j", "env": []}],
            "containers": [{"name": "pytorch", "image": "i", "env": [{"name": "A", "value": "b"}],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}], "ports": [{"name": "p", "containerPort": 1}],
                "resources": {"requests": {"cpu": "1"}}}]}})
}

fn pods(names: &[&str]) -> Pods {
    let pod = |(at, name): (usize, &&str)| {
        let phase = ["Running", "Failed", "Succeeded", "Pending"][at % 4];
        let pod = json!({"metadata": {"name": name, "namespace": "n", "uid": format!("uid-{name}"),
            "labels": {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "x",
                "batch.kubernetes.io/job-completion-index": "x"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Job", "name": "a", "uid": "u", "controller": true}]},
            "status": {"phase": phase}});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        ((*name).to_owned(), Arc::new(pod))
    };
    names.iter().enumerate().map(pod).collect::<BTreeMap<_, _>>()
}

fn planned(job: &Object, kind: &str) {
    let found =
        pods(&["a-0", "a-1", "a-worker-0", "a-worker-1", "a-master-0", "a-launcher", "a-t-0", "a-t-1"]);
    for found in [Pods::new(), found] {
        let of = |version: &str, plural: &str| resource("kubeflow.org", version, kind, plural);
        match kind {
            "PyTorchJob" => drop(kubeflow(Framework::PyTorch, &of("v1", "pytorchjobs"), job, &found, now())),
            "TFJob" => drop(kubeflow(Framework::TensorFlow, &of("v1", "tfjobs"), job, &found, now())),
            "MPIJob" => drop(kubeflow(Framework::Mpi, &of("v2beta1", "mpijobs"), job, &found, now())),
            "Job" => drop(batch(&resource("batch", "v1", "Job", "jobs"), job, &found, now())),
            "Deployment" => {
                let apps = |kind: &str, plural: &str| resource("apps", "v1", kind, plural);
                let sets = [Arc::new(job.clone())];
                drop(plan_deployment(&apps("Deployment", "deployments"), job, &sets, now()));
                drop(plan_replica_set(&apps("ReplicaSet", "replicasets"), job, &found));
            }
            _ => drop(volcano::plan(&volcano::Input {
                resource: &resource("batch.volcano.sh", "v1alpha1", "Job", "jobs"),
                job,
                pods: &found,
                lost: &[],
                delayed: &[],
                updated: true,
                pod_group: None,
                command: None,
                gate: &Ok(()),
                session: "s",
                priority_of: &|_| 0,
                now: now(),
            })),
        }
    }
}

fn check(kind: &str, spec: Value, status: Value) {
    let job = json!({"kind": kind, "metadata": {"name": "a", "namespace": "n", "uid": "u",
        "labels": {"a": "b"}, "annotations": {"fleet.dev/pod-restarts": "x y,z"}}, "spec": spec, "status": status});
    let mut all = Vec::new();
    places(&job["spec"], "/spec", &mut all);
    places(&job["status"], "/status", &mut all);
    for place in all {
        for value in values() {
            let mut changed = job.clone();
            *changed.pointer_mut(&place).expect("it is there") = value;
            // What is no object at all is read by nobody.
            if let Ok(read) = serde_json::from_value::<Object>(changed) {
                planned(&read, kind);
            }
        }
    }
}

#[test]
fn a_job_of_any_form_is_planned() {
    let role = json!({"replicas": 2, "restartPolicy": "ExitCode", "template": template()});
    let run = json!({"suspend": false, "cleanPodPolicy": "Running", "activeDeadlineSeconds": 9, "backoffLimit": 1,
        "ttlSecondsAfterFinished": 3, "schedulingPolicy": {"minAvailable": 1, "queue": "q", "minResources": {"cpu": "1"}}});
    let replicas = json!({"Worker": {"active": 1, "succeeded": 1, "failed": 1}});
    let kubeflow_status = json!({"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:30Z",
        "replicaStatuses": replicas, "conditions": [{"type": "Running", "status": "True", "lastTransitionTime": "x"}]});
    check(
        "PyTorchJob",
        json!({"runPolicy": run, "nprocPerNode": "auto", "elasticPolicy": {"minReplicas": 1, "maxReplicas": 1, "rdzvBackend": "c10d"},
            "pytorchReplicaSpecs": {"Master": role, "Worker": role}}),
        kubeflow_status.clone(),
    );
    check(
        "TFJob",
        json!({"runPolicy": run, "successPolicy": "AllWorkers", "tfReplicaSpecs": {"PS": role, "Worker": role, "Chief": role}}),
        kubeflow_status.clone(),
    );
    check(
        "MPIJob",
        json!({"runPolicy": run, "slotsPerWorker": 1, "sshAuthMountPath": "/s", "mpiImplementation": "OpenMPI",
            "launcherCreationPolicy": "AtStartup", "mpiReplicaSpecs": {"Launcher": role, "Worker": role}}),
        kubeflow_status,
    );
    check(
        "Job",
        json!({"parallelism": 2, "completions": 2, "completionMode": "Indexed", "backoffLimit": 1, "suspend": false,
            "activeDeadlineSeconds": 9, "ttlSecondsAfterFinished": 3, "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}]},
            "selector": {"matchLabels": {"a": "b"}}, "template": template()}),
        json!({"startTime": "2026-01-01T00:00:00Z", "active": 1, "succeeded": 1, "failed": 1, "completedIndexes": "0",
            "uncountedTerminatedPods": {"succeeded": ["x"]}, "conditions": [{"type": "Suspended", "status": "False"}]}),
    );
    check(
        "Deployment",
        json!({"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template()}),
        json!({"replicas": 2, "observedGeneration": 1, "conditions": [{"type": "Available", "status": "True"}]}),
    );
    check(
        "Volcano",
        json!({"minAvailable": 1, "minSuccess": 1, "queue": "q", "schedulerName": "volcano", "maxRetry": 3,
            "ttlSecondsAfterFinished": 3, "priorityClassName": "p", "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
            "plugins": {"env": [], "svc": ["--publish-not-ready-addresses"], "ssh": ["--no-root"],
                "pytorch": ["--master=t", "--port=1"], "tensorflow": ["--ps=t"], "mpi": ["--master=t"], "ray": []},
            "policies": [{"event": "PodFailed", "action": "RestartJob", "exitCode": 3, "timeout": "9s", "events": ["PodEvicted"]}],
            "volumes": [{"mountPath": "/v", "volumeClaim": {"accessModes": ["ReadWriteOnce"]}, "volumeClaimName": "c"}],
            "tasks": [{"name": "t", "replicas": 2, "minAvailable": 1, "maxRetry": 1, "template": template(), "topologyPolicy": "none",
                "dependsOn": {"name": ["t"], "iteration": "any"}, "partitionPolicy": {"totalPartitions": 1, "partitionSize": 2},
                "policies": [{"event": "TaskCompleted", "action": "CompleteJob"}]}]}),
        json!({"state": {"phase": "Running", "lastTransitionTime": "2026-01-01T00:00:00Z"}, "retryCount": 1, "version": 1,
            "minAvailable": 1, "taskStatusCount": {"t": {"phase": {"Running": 1}}}, "controlledResources": {"volume-pvc-c": "c"},
            "conditions": [{"status": "Pending"}]}),
    );
}
