//! Plans as text: a job, its pods as `name phase`, and what is to be done.

use std::sync::Arc;

use serde_json::{Value, json};

use fleet_agent_ground::{Object, Pod, resource};
use jiff::Timestamp;

use super::{limits::BURST, *};

const NOW: &str = "2026-01-01T00:01:00Z";

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "x"}, "annotations": {"note": "y"}},
        "spec": {"containers": [{"name": "pytorch", "image": "i"}, {"name": "side", "image": "j"}]}})
}

fn role(replicas: i64, restart: &str) -> Value {
    json!({"replicas": replicas, "restartPolicy": restart, "template": template()})
}

fn job(kind: &str, spec: Value) -> Object {
    serde_json::from_value(json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}, "spec": spec,
        "kind": kind}))
    .unwrap()
}

fn torch(policy: Value) -> Object {
    let roles = json!({"Master": role(1, "OnFailure"), "Worker": role(2, "OnFailure")});
    job("PyTorchJob", json!({"runPolicy": policy, "pytorchReplicaSpecs": roles}))
}

/// Pods of lines `name phase [exit code]`; `Running-` is one that is being deleted.
fn pods(lines: &[&str]) -> Pods {
    lines
        .iter()
        .map(|line| {
            let mut words = line.split(' ');
            let (name, phase) = (words.next().unwrap(), words.next().unwrap());
            let mut pod = json!({"metadata": {"name": name, "namespace": "n", "uid": format!("uid-{name}"),
                "ownerReferences": [{"apiVersion": "v1", "kind": "Job", "name": "a", "uid": "u", "controller": true}]},
                "status": {"phase": phase.trim_end_matches('-')}});
            if phase.ends_with('-') {
                pod["metadata"]["deletionTimestamp"] = NOW.into();
            }
            if let Some(code) = words.next() {
                pod["status"]["containerStatuses"] =
                    json!([{"state": {"terminated": {"exitCode": code.parse::<i64>().unwrap()}}}]);
            }
            let pod: Pod = serde_json::from_value(pod).unwrap();
            (name.to_owned(), Arc::new(pod))
        })
        .collect()
}

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn plan_of(job: &Object, found: &Pods) -> JobPlan {
    let (framework, kind, version) = if job.spec.get("tfReplicaSpecs").is_some() {
        (Framework::TensorFlow, "TFJob", "v1")
    } else if job.spec.get("mpiReplicaSpecs").is_some() {
        (Framework::Mpi, "MPIJob", "v2beta1")
    } else if job.spec.get("pytorchReplicaSpecs").is_some() {
        (Framework::PyTorch, "PyTorchJob", "v1")
    } else {
        return batch(&resource("batch", "v1", "Job", "jobs"), job, found, now());
    };
    kubeflow(framework, &resource("kubeflow.org", version, kind, ""), job, found, now())
}

/// The plan as lines: `+pod`, `-pod`, `Condition=Status`, `role: active/succeeded/failed`.
fn lines(plan: &JobPlan) -> Vec<String> {
    let mut lines: Vec<String> =
        plan.create.iter().map(|pod| format!("+{}", pod["metadata"]["name"].as_str().unwrap())).collect();
    lines.extend(plan.delete.iter().map(|name| format!("-{name}")));
    let status = plan.status.clone().unwrap_or_default();
    for condition in status["conditions"].as_array().into_iter().flatten() {
        lines.push(format!(
            "{}={}",
            condition["type"].as_str().unwrap(),
            condition["status"].as_str().unwrap()
        ));
    }
    for (role, one) in status["replicaStatuses"].as_object().into_iter().flatten() {
        let number = |field: &str| one[field].as_i64().unwrap_or(0);
        lines.push(format!("{role}: {}/{}/{}", number("active"), number("succeeded"), number("failed")));
    }
    for field in ["active", "succeeded", "failed"] {
        lines.extend(status[field].as_i64().map(|number| format!("{field} {number}")));
    }
    lines.extend(plan.annotations.iter().map(|(name, value)| format!("{name}: {value}")));
    if plan.delete_job {
        lines.push("delete the job".to_owned());
    }
    lines.extend(plan.look_again.map(|wait| format!("again in {wait:?}")));
    lines
}

fn check(job: &Object, found: &[&str], expected: &[&str]) -> Object {
    let plan = plan_of(job, &pods(found));
    assert_eq!(lines(&plan), expected, "with {found:?}");
    let mut after = job.clone();
    if let Some(status) = plan.status {
        after.status = status;
    }
    after.metadata.annotations.get_or_insert_default().extend(plan.annotations);
    after
}

#[test]
fn the_life_of_a_pytorch_job() {
    let job = torch(json!({"cleanPodPolicy": "Running", "ttlSecondsAfterFinished": 60}));
    let none =
        ["+a-master-0", "+a-worker-0", "+a-worker-1", "Created=True", "Master: 0/0/0", "Worker: 0/0/0"];
    check(&job, &[], &none);
    let job = check(
        &job,
        &["a-master-0 Pending", "a-worker-0 Pending", "a-worker-1 Pending"],
        &["Created=True", "Master: 0/0/0", "Worker: 0/0/0"],
    );
    let job = check(
        &job,
        &["a-master-0 Running", "a-worker-0 Running", "a-worker-1 Pending"],
        &["Created=True", "Running=True", "Master: 1/0/0", "Worker: 1/0/0"],
    );
    check(&job, &["a-master-0 Running", "a-worker-0 Running", "a-worker-1 Pending"], &[]);
    let end = ["a-master-0 Succeeded 0", "a-worker-0 Running", "a-worker-1 Running"];
    let job = check(
        &job,
        &end,
        &["Created=True", "Running=False", "Succeeded=True", "Master: 0/1/0", "Worker: 0/2/0"],
    );
    assert_eq!(job.status["completionTime"], NOW);
    let created = &job.status["conditions"][0];
    assert_eq!(
        (&created["reason"], &created["message"]),
        (&json!("PyTorchJobCreated"), &json!("PyTorchJob a is created."))
    );
    let mut job = check(&job, &end, &["-a-worker-0", "-a-worker-1", "again in 60s"]);
    job.status["completionTime"] = "2026-01-01T00:00:00Z".into();
    check(&job, &["a-master-0 Succeeded 0"], &["delete the job"]);
    job.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
    check(&job, &["a-master-0 Succeeded 0", "a-worker-0 Running-"], &["-a-master-0"]);
}

#[test]
fn failures() {
    let failed = ["a-master-0 Running", "a-worker-0 Failed 1", "a-worker-1 Running"];
    let job = torch(json!({"backoffLimit": 1}));
    let again = check(
        &job,
        &failed,
        &[
            "-a-worker-0",
            "Created=True",
            "Restarting=True",
            "Master: 1/0/0",
            "Worker: 1/0/1",
            "fleet.dev/pod-restarts: 1 uid-a-worker-0",
        ],
    );
    // The same failure is counted once.
    let plan = plan_of(&again, &pods(&failed));
    assert!(plan.annotations.is_empty() && plan.delete == ["a-worker-0"]);
    let mut second = again.clone();
    second.metadata.annotations =
        Some([(RESTARTS_ANNOTATION.to_owned(), "1 uid-of-another".to_owned())].into());
    let ended = check(
        &second,
        &failed,
        &["Created=True", "Restarting=True", "Failed=True", "Master: 1/0/0", "Worker: 1/0/1"],
    );
    // What still runs of a failed gang is stopped, whatever the policy.
    check(&ended, &failed, &["-a-master-0", "-a-worker-1"]);

    let by_code = |code: &str, expected: &[&str]| {
        let roles = json!({"Master": role(1, "ExitCode")});
        let job = self::job("PyTorchJob", json!({"pytorchReplicaSpecs": roles}));
        let plan = plan_of(&job, &pods(&[&format!("a-master-0 Failed {code}")]));
        let conditions: Vec<String> = lines(&plan).into_iter().filter(|line| line.contains('=')).collect();
        assert_eq!(conditions, expected, "exit code {code}");
    };
    by_code("137", &["Created=True", "Restarting=True"]);
    by_code("1", &["Created=True", "Failed=True"]);
}

#[test]
fn deadline_suspension_and_scale() {
    let mut job = torch(json!({"activeDeadlineSeconds": 50}));
    job.status = json!({"startTime": "2026-01-01T00:00:20Z"});
    let running = ["a-master-0 Running", "a-worker-0 Running", "a-worker-1 Running"];
    check(
        &job,
        &running,
        &["Created=True", "Running=True", "Master: 1/0/0", "Worker: 2/0/0", "again in 10s"],
    );
    job.status = json!({"startTime": "2026-01-01T00:00:10Z"});
    check(&job, &running, &["Created=True", "Failed=True", "Master: 1/0/0", "Worker: 2/0/0"]);
    let mut job = torch(json!({"suspend": true}));
    job.status = json!({"conditions": [{"type": "Running", "status": "True"}], "startTime": NOW});
    let suspended = check(
        &job,
        &["a-master-0 Running", "a-worker-0 Running-"],
        &["-a-master-0", "Created=True", "Running=False", "Suspended=True", "Master: 0/0/0", "Worker: 0/0/0"],
    );
    assert!(suspended.status["startTime"].is_null());
    check(
        &torch(json!({})),
        &["a-worker-5 Running"],
        &[
            "+a-master-0",
            "+a-worker-0",
            "+a-worker-1",
            "-a-worker-5",
            "Created=True",
            "Master: 0/0/0",
            "Worker: 0/0/0",
        ],
    );
}

#[test]
fn a_pytorch_pod() {
    let mut job = torch(json!({}));
    let marks = [("fleet.dev/reservation", "r"), ("fleet.dev/on-cells", "true")];
    job.metadata.annotations = Some(marks.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    let plan = plan_of(&job, &Pods::new());
    let worker = &plan.create[2];
    assert_eq!(
        worker["metadata"]["labels"],
        json!({"app": "x", "fleet.dev/component": "worker", "training.kubeflow.org/job-name": "a",
            "training.kubeflow.org/operator-name": "pytorchjob-controller",
            "training.kubeflow.org/replica-index": "1", "training.kubeflow.org/replica-type": "worker"})
    );
    assert_eq!(
        worker["metadata"]["annotations"],
        json!({"note": "y", "fleet.dev/gang": "a-pytorchjob", "fleet.dev/gang-size": "3", "fleet.dev/reservation": "r",
            "fleet.dev/on-cells": "true"})
    );
    let env: Vec<String> = worker["spec"]["containers"][0]["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| format!("{}={}", one["name"].as_str().unwrap(), one["value"].as_str().unwrap()))
        .collect();
    assert_eq!(
        env,
        [
            "PYTHONUNBUFFERED=1",
            "MASTER_PORT=23456",
            "PET_MASTER_PORT=23456",
            "MASTER_ADDR=a-master-0",
            "PET_MASTER_ADDR=a-master-0",
            "WORLD_SIZE=3",
            "RANK=2",
            "PET_NODE_RANK=2",
            "PET_NNODES=3",
            "PET_NPROC_PER_NODE=auto",
        ]
    );
    assert_eq!(worker["spec"]["containers"][0]["ports"][0]["containerPort"], 23456);
    assert!(worker["spec"]["containers"][1]["ports"].is_null());
    assert_eq!(plan.create[0]["metadata"]["labels"]["training.kubeflow.org/job-role"], "master");
    assert_eq!(plan.support.len(), 1);
    assert_eq!(plan.support[0]["metadata"]["name"], "a-master-0");
}

#[test]
fn tf_jobs_end_with_their_chief_or_first_worker() {
    let ends = |roles: Value, policy: Value, found: &[&str], ended: bool| {
        let job = self::job("TFJob", json!({"tfReplicaSpecs": roles, "successPolicy": policy}));
        let says = lines(&plan_of(&job, &pods(found)));
        assert_eq!(says.contains(&"Succeeded=True".to_owned()), ended, "{says:?}");
    };
    let workers = || json!({"PS": role(1, "Never"), "Worker": role(2, "Never")});
    let first = ["a-ps-0 Running", "a-worker-0 Succeeded", "a-worker-1 Running"];
    ends(workers(), Value::Null, &first, true);
    ends(workers(), json!("AllWorkers"), &first, false);
    ends(
        workers(),
        json!("AllWorkers"),
        &["a-ps-0 Running", "a-worker-0 Succeeded", "a-worker-1 Succeeded"],
        true,
    );
    let chief = || json!({"Chief": role(1, "Never"), "Worker": role(1, "Never")});
    ends(chief(), Value::Null, &["a-chief-0 Running", "a-worker-0 Succeeded"], false);
    ends(chief(), Value::Null, &["a-chief-0 Succeeded", "a-worker-0 Running"], true);
}

#[test]
fn an_mpi_job_runs_when_launcher_and_workers_do() {
    let roles = json!({"Launcher": role(1, "Never"), "Worker": role(2, "Never")});
    let job = self::job("MPIJob", json!({"slotsPerWorker": 4, "mpiReplicaSpecs": roles}));
    check(
        &job,
        &["a-launcher-0 Running", "a-worker-0 Running", "a-worker-1 Pending"],
        &["Created=True", "Launcher: 1/0/0", "Worker: 1/0/0"],
    );
    check(
        &job,
        &["a-launcher-0 Running", "a-worker-0 Running", "a-worker-1 Running"],
        &["Created=True", "Running=True", "Launcher: 1/0/0", "Worker: 2/0/0"],
    );
    let plan = plan_of(&job, &Pods::new());
    assert_eq!(
        plan.support[1]["data"]["hostfile"],
        "a-worker-0.a.n.svc slots=4\na-worker-1.a.n.svc slots=4\n"
    );
    assert_eq!(plan.create[0]["metadata"]["labels"]["fleet.dev/component"], "Launcher");
}

#[test]
fn batch_jobs() {
    let spec = |more: Value| {
        let mut spec = json!({"template": template()});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        job("Job", spec)
    };
    check(&spec(json!({})), &[], &["+a-0"]);
    check(&spec(json!({})), &["a-0 Succeeded"], &["SuccessCriteriaMet=True", "Complete=True", "succeeded 1"]);
    let three = || spec(json!({"parallelism": 2, "completions": 3}));
    check(&three(), &[], &["+a-0", "+a-1"]);
    check(&three(), &["a-0 Succeeded", "a-1 Running"], &["+a-2", "active 1", "succeeded 1"]);
    check(&three(), &["a-0 Succeeded", "a-1 Succeeded", "a-2 Running"], &["active 1", "succeeded 2"]);
    check(&three(), &["a-0 Failed", "a-1 Running"], &["+a-2", "active 1", "failed 1"]);
    let indexed = || spec(json!({"parallelism": 2, "completions": 2, "completionMode": "Indexed"}));
    check(&indexed(), &["a-0 Failed", "a-1 Running"], &["+a-0-r1", "active 1", "failed 1"]);
    check(
        &indexed(),
        &["a-0 Failed", "a-0-r1 Succeeded", "a-1 Succeeded"],
        &["SuccessCriteriaMet=True", "Complete=True", "succeeded 2", "failed 1"],
    );
    check(
        &spec(json!({"backoffLimit": 0, "parallelism": 2, "completions": 2})),
        &["a-0 Failed", "a-1 Running"],
        &["-a-1", "FailureTarget=True", "Failed=True", "failed 1"],
    );
    check(&spec(json!({"suspend": true})), &["a-0 Running"], &["-a-0", "Suspended=True", "active 1"]);
    // Suspended and resumed: the pods that still go use what was counted for two.
    check(&three(), &["a-0 Running-", "a-1 Running-"], &[]);
    check(&three(), &["a-0 Running-", "a-1 Running"], &["active 1"]);
    check(&three(), &["a-0 Failed-", "a-1 Running"], &["+a-2", "active 1", "failed 1"]);
    let pod = &plan_of(&indexed(), &Pods::new()).create[1];
    assert_eq!(pod["spec"]["containers"][0]["env"][0], json!({"name": "JOB_COMPLETION_INDEX", "value": "1"}));
    assert!(pod["metadata"]["annotations"]["fleet.dev/gang"].is_null(), "a gang only by reservation");
}

/// Pods `0..count` of the names `name` makes, running.
fn running(count: i64, name: impl Fn(i64) -> String) -> Pods {
    let lines: Vec<String> = (0..count).map(|number| format!("{} Running", name(number))).collect();
    pods(&lines.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn a_pass_creates_and_deletes_a_burst_and_the_next_goes_on() {
    let worker = |number: i64| format!("a-worker-{number}");
    let torch =
        |workers: i64| job("PyTorchJob", json!({"pytorchReplicaSpecs": {"Worker": role(workers, "Never")}}));
    let names = |plan: &JobPlan| -> Vec<String> {
        plan.create.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let first = plan_of(&torch(1100), &Pods::new());
    assert_eq!((first.create.len(), names(&first)[499].as_str()), (BURST, "a-worker-499"));
    let second = plan_of(&torch(1100), &running(500, worker));
    assert_eq!((second.create.len(), names(&second)[0].as_str()), (BURST, "a-worker-500"));
    assert_eq!(second.status.as_ref().unwrap()["replicaStatuses"]["Worker"]["active"], 500);
    assert_eq!(plan_of(&torch(1100), &running(1000, worker)).create.len(), 100);
    let mut fewer = plan_of(&torch(1), &running(1100, worker));
    fewer.bound_deletions();
    assert_eq!(fewer.delete.len(), BURST);

    let batch = |spec: Value| {
        let mut spec = spec;
        spec["template"] = template();
        job("Job", spec)
    };
    for indexed in ["Indexed", "NonIndexed"] {
        let of = json!({"parallelism": 1100, "completions": 1100, "completionMode": indexed});
        let plan = plan_of(&batch(of.clone()), &running(700, |number| format!("a-{number}")));
        assert_eq!((plan.create.len(), names(&plan)[0].as_str()), (400, "a-700"), "{indexed}");
        assert_eq!(plan_of(&batch(of), &Pods::new()).create.len(), BURST, "{indexed}");
    }

    // Templates of half a megabyte: the pods of a pass stay small, and there is always one.
    let mut large = torch(100);
    large.spec["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"]["annotations"]["x"] =
        "x".repeat(500_000).into();
    assert_eq!(plan_of(&large, &Pods::new()).create.len(), 9);
    let set = job("ReplicaSet", json!({"replicas": 1100, "template": template()}));
    let of_set = |pods: &Pods| plan_replica_set(&resource("apps", "v1", "ReplicaSet", ""), &set, pods);
    assert_eq!(of_set(&Pods::new()).create.len(), BURST);
    let alive = of_set(&running(1000, |number| format!("a-{number}")));
    assert_eq!((alive.create.len(), &alive.status.unwrap()["replicas"]), (100, &json!(1000)));
}

#[test]
fn a_job_of_more_pods_than_the_limit_gets_none_and_says_so() {
    let refused = |plan: JobPlan, expected: &str| {
        assert!(plan.create.is_empty() && plan.delete.is_empty());
        assert_eq!(plan.refused.as_deref(), Some(expected));
    };
    let pods = running(3, |number| format!("a-worker-{number}"));
    for replicas in [i64::from(i32::MAX), i64::MAX] {
        let roles = json!({"Worker": role(replicas, "Never"), "Master": role(replicas, "Never")});
        let all = replicas.saturating_mul(2);
        let torch = job("PyTorchJob", json!({"nprocPerNode": "9", "pytorchReplicaSpecs": roles}));
        let why = format!("field spec.pytorchReplicaSpecs: found {all} pods; allowed: at most 100000 in all");
        refused(plan_of(&torch, &pods), &why);
        let lists = "at most 5000 in all, since its pods get a list of the addresses of all";
        for (kind, field, role_name) in
            [("TFJob", "tfReplicaSpecs", "PS"), ("MPIJob", "mpiReplicaSpecs", "Launcher")]
        {
            let roles = json!({"Worker": role(replicas, "Never"), role_name: role(1, "Never")});
            let found = replicas.saturating_add(1);
            let job = job(kind, json!({field: roles, "slotsPerWorker": i64::MAX}));
            let plan = plan_of(&job, &pods);
            assert!(plan.support.len() <= 5001, "{}", plan.support.len());
            refused(plan, &format!("field spec.{field}: found {found} pods; allowed: {lists}"));
        }
        let why = format!("found {replicas} pods; allowed: at most 100000 in all");
        let of = json!({"parallelism": 2, "completions": replicas, "template": template()});
        refused(plan_of(&job("Job", of), &Pods::new()), &format!("field spec.completions: {why}"));
        let of = json!({"parallelism": replicas, "template": template()});
        refused(plan_of(&job("Job", of), &Pods::new()), &format!("field spec.parallelism: {why}"));
        let set = job("ReplicaSet", json!({"replicas": replicas, "template": template()}));
        let plan = plan_replica_set(&resource("apps", "v1", "ReplicaSet", ""), &set, &pods);
        refused(plan, &format!("field spec.replicas: {why}"));
    }
}

#[test]
fn numbers_that_others_wrote_end_no_controller() {
    let mut job = torch(json!({"backoffLimit": i64::MAX, "ttlSecondsAfterFinished": i64::MIN,
        "activeDeadlineSeconds": i64::MAX}));
    job.metadata.annotations =
        Some([(RESTARTS_ANNOTATION.to_owned(), format!("{} x", i64::MAX))].into_iter().collect());
    job.spec["nprocPerNode"] = i64::MAX.into();
    assert_eq!(plan_of(&job, &pods(&["a-worker-0 Failed 1"])).create.len(), 2);
    let set = |replicas: i64| -> Arc<Object> {
        let set = json!({"metadata": {"name": format!("s{replicas}"), "uid": "s"}, "spec": {"replicas": replicas},
            "status": {"replicas": i64::MAX, "readyReplicas": i64::MIN, "availableReplicas": i64::MAX}});
        Arc::new(serde_json::from_value(set).unwrap())
    };
    let deployment = self::job("Deployment", json!({"replicas": i64::MAX, "template": template()}));
    let resource = resource("apps", "v1", "Deployment", "deployments");
    let (plan, _) = plan_deployment(&resource, &deployment, &[set(1), set(2)], now());
    assert_eq!(plan.status.unwrap()["replicas"], i64::MAX);
}
