//! The rules of Volcano's Job, case by case: phases, policies, minResources, plugins.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use fleet_agent_ground::{Object, Pod, resource};
use jiff::Timestamp;

use super::{view::VERSION, *};
use crate::plan::{Delayed, JobPlan, Pods};

mod completion;
mod limits;

const NOW: &str = "2026-01-01T00:01:00Z";

fn job(spec: Value, status: Value) -> Object {
    serde_json::from_value(json!({
        "metadata": {"name": "j", "namespace": "default", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": spec, "status": status,
    }))
    .unwrap()
}

fn task(name: &str, replicas: i64) -> Value {
    json!({"name": name, "replicas": replicas, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}})
}

fn in_phase(phase: &str) -> Value {
    json!({"state": {"phase": phase}})
}

/// `name phase`, with `!` behind a pod that is being deleted.
fn pods(list: &[&str]) -> Pods {
    let mut pods = Pods::new();
    for text in list {
        let (name, phase) = text.split_once(' ').unwrap();
        let deleting = phase.ends_with('!').then_some(NOW);
        let phase = phase.trim_end_matches('!');
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "uid": name, "deletionTimestamp": deleting,
                "ownerReferences": [{"apiVersion": "v1", "kind": "Job", "name": "j", "uid": "u", "controller": true}],
                "annotations": {VERSION: "0"}},
            "status": {"phase": phase, "conditions": [
                {"type": "Ready", "status": if phase == "Running" { "True" } else { "False" }},
                {"type": "PodScheduled", "status": if phase == "Pending" { "False" } else { "True" },
                    "message": "no node fits"}],
                "containerStatuses": [{"restartCount": 0, "state": {"terminated":
                    (phase == "Failed").then(|| json!({"exitCode": 3}))}}]},
        }))
        .unwrap();
        pods.insert(name.to_string(), Arc::new(pod));
    }
    pods
}

struct Case {
    job: Object,
    pods: Pods,
    lost: Vec<Arc<Pod>>,
    group: Option<Object>,
    command: Option<Command>,
    delayed: Vec<Delayed>,
    updated: bool,
    now: Timestamp,
}

impl Case {
    fn new(spec: Value, status: Value, list: &[&str]) -> Self {
        Self {
            job: job(spec, status),
            pods: pods(list),
            lost: Vec::new(),
            group: None,
            command: None,
            delayed: Vec::new(),
            updated: false,
            now: NOW.parse().unwrap(),
        }
    }

    fn command(mut self, action: &str) -> Self {
        self.command = Some(Command { name: "c".into(), uid: "c".into(), action: action.into() });
        self
    }

    fn admitted(mut self) -> Self {
        let group = json!({"metadata": {"name": "g"}, "status": {"phase": "Inqueue"}});
        self.group = Some(serde_json::from_value(group).unwrap());
        self
    }

    fn plan(&self) -> JobPlan {
        self.plan_with(&|_| 0)
    }

    fn plan_with(&self, priority_of: &dyn Fn(&str) -> i64) -> JobPlan {
        plan(&Input {
            resource: &resource("batch.volcano.sh", "v1alpha1", "Job", "jobs"),
            job: &self.job,
            pods: &self.pods,
            lost: &self.lost,
            delayed: &self.delayed,
            updated: self.updated,
            pod_group: self.group.as_ref(),
            command: self.command.as_ref(),
            gate: &Ok(()),
            session: "s",
            priority_of,
            now: self.now,
        })
    }

    /// Looks as the driver does, `after` seconds later: the job's phase then.
    fn look_after(&mut self, after: i64) -> String {
        self.now += jiff::SignedDuration::from_secs(after);
        let phase = self.phase();
        self.delayed = self.plan().delayed.unwrap_or_default();
        self.lost.clear();
        self.updated = false;
        phase
    }

    /// Phase after this look.
    fn phase(&self) -> String {
        let plan = self.plan();
        let status = plan.status.unwrap_or_else(|| self.job.status.clone());
        status["state"]["phase"].as_str().unwrap_or_default().to_owned()
    }
}

#[test]
fn phases_follow_actions_and_pods() {
    let one = || json!({"minAvailable": 1, "tasks": [task("t", 2)]});
    let by = |phase: &str, list: &[&str], action: &str| {
        Case::new(one(), in_phase(phase), list).command(action).phase()
    };
    assert_eq!(by("Aborted", &[], "ResumeJob"), "Restarting");
    assert_eq!(by("Aborting", &["j-t-0 Running"], "ResumeJob"), "Restarting");
    assert_eq!(by("Aborting", &["j-t-0 Pending"], "RestartJob"), "Aborting");
    assert_eq!(by("Terminating", &["j-t-0 Running", "j-t-1 Running"], "TerminateJob"), "Terminating");
    assert_eq!(by("Terminating", &[], "TerminateJob"), "Terminated");
    for phase in ["Pending", "Running"] {
        for (action, end) in [
            ("RestartJob", "Restarting"),
            ("AbortJob", "Aborting"),
            ("TerminateJob", "Terminating"),
            ("CompleteJob", "Completing"),
        ] {
            assert_eq!(by(phase, &["j-t-0 Running!", "j-t-1 Running!"], action), end, "{phase} {action}");
        }
    }
    for phase in ["Completed", "Terminated", "Failed"] {
        assert_eq!(by(phase, &[], "ResumeJob"), phase);
    }
    let three = || json!({"minAvailable": 3, "tasks": [task("t", 5)]});
    let stands = |phase: &str, list: &[&str]| Case::new(three(), in_phase(phase), list).phase();
    assert_eq!(stands("Pending", &["j-t-0 Running", "j-t-1 Running"]), "Pending");
    assert_eq!(stands("Pending", &["j-t-0 Running", "j-t-1 Running", "j-t-2 Succeeded"]), "Running");
    let short = ["j-t-0 Pending", "j-t-1 Pending", "j-t-2 Pending", "j-t-3 Running", "j-t-4 Running"];
    assert_eq!(stands("Running", &short), "Pending");
    assert_eq!(stands("Running", &["j-t-0 Succeeded", "j-t-1 Running"]), "Running");
}

#[test]
fn a_running_job_ends_by_its_rules() {
    let two = |extra: Value| {
        let mut spec = json!({"minAvailable": 2, "tasks": [task("a", 1), task("b", 1)]});
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        spec
    };
    let ends = |extra, list: &[&str]| Case::new(two(extra), in_phase("Running"), list).phase();
    assert_eq!(ends(json!({}), &["j-a-0 Succeeded", "j-b-0 Succeeded"]), "Completed");
    assert_eq!(ends(json!({}), &["j-a-0 Succeeded", "j-b-0 Failed"]), "Failed");
    assert_eq!(ends(json!({"minAvailable": 1}), &["j-a-0 Succeeded", "j-b-0 Failed"]), "Completed");
    assert_eq!(ends(json!({"minSuccess": 1}), &["j-a-0 Succeeded", "j-b-0 Running"]), "Completed");
    assert_eq!(
        ends(json!({"minAvailable": 1, "minSuccess": 2}), &["j-a-0 Succeeded", "j-b-0 Failed"]),
        "Failed"
    );
}

#[test]
fn a_restart_ends_after_the_last_retry() {
    let spec = |retry| json!({"minAvailable": 2, "maxRetry": retry, "tasks": [task("a", 1), task("b", 1)]});
    let status =
        || json!({"state": {"phase": "Restarting"}, "retryCount": 1, "minAvailable": 1, "version": 1});
    assert_eq!(Case::new(spec(3), status(), &[]).phase(), "Pending");
    assert_eq!(Case::new(spec(1), status(), &[]).phase(), "Failed");
    // Old pods go first; at the last retry those that have ended stay, for their logs.
    let plan = Case::new(spec(3), status(), &["j-a-0 Running", "j-b-0 Failed"]).plan();
    assert_eq!(plan.delete, ["j-a-0", "j-b-0"]);
    let plan = Case::new(spec(1), status(), &["j-a-0 Running", "j-b-0 Failed"]).plan();
    assert_eq!(plan.delete, ["j-a-0"]);
}

#[test]
fn the_first_policy_that_applies_decides() {
    let with = |policies: Value, list: &[&str]| {
        let mut spec = json!({"minAvailable": 1, "tasks": [task("t", 2)]});
        spec["policies"] = policies;
        Case::new(spec, in_phase("Running"), list).phase()
    };
    let failed = ["j-t-0 Failed", "j-t-1 Running"];
    assert_eq!(with(json!([{"event": "PodFailed", "action": "RestartJob"}]), &failed), "Restarting");
    assert_eq!(
        with(json!([{"events": ["PodEvicted", "PodFailed"], "action": "AbortJob"}]), &failed),
        "Aborting"
    );
    assert_eq!(with(json!([{"event": "*", "action": "TerminateJob"}]), &failed), "Terminating");
    assert_eq!(with(json!([{"exitCode": 3, "action": "CompleteJob"}]), &failed), "Completing");
    assert_eq!(with(json!([{"exitCode": 4, "action": "CompleteJob"}]), &failed), "Running");
    let evicted = ["j-t-0 Running!", "j-t-1 Running"];
    assert_eq!(with(json!([{"event": "PodEvicted", "action": "RestartJob"}]), &evicted), "Restarting");
    let waits = ["j-t-0 Pending", "j-t-1 Running"];
    assert_eq!(with(json!([{"event": "PodPending", "action": "AbortJob"}]), &waits), "Running");
    let done = ["j-t-0 Succeeded", "j-t-1 Succeeded"];
    assert_eq!(with(json!([{"event": "TaskCompleted", "action": "CompleteJob"}]), &done), "Completing");
    // The task's policies come before the job's.
    let mut spec = json!({"minAvailable": 1, "tasks": [task("t", 2)],
        "policies": [{"event": "PodFailed", "action": "AbortJob"}]});
    spec["tasks"][0]["policies"] = json!([{"event": "PodFailed", "action": "RestartJob"}]);
    assert_eq!(Case::new(spec, in_phase("Running"), &failed).phase(), "Restarting");
}

#[test]
fn a_timeout_lets_an_event_stand_first() {
    let mut spec = json!({"minAvailable": 1, "tasks": [task("t", 1)]});
    spec["policies"] = json!([{"event": "PodPending", "action": "RestartPod", "timeout": "90s"}]);
    let mut case = Case::new(spec, in_phase("Pending"), &["j-t-0 Pending"]);
    let mut pod = Pod::clone(&case.pods["j-t-0"]);
    // A minute old, as NOW has it.
    pod.metadata.creation_timestamp = case.job.metadata.creation_timestamp.clone();
    case.pods.insert("j-t-0".into(), Arc::new(pod));
    let plan = case.plan();
    assert_eq!(plan.look_again, Some(std::time::Duration::from_secs(30)));
    assert!(!plan.status_first);
    case.job.spec["policies"][0]["timeout"] = "1m".into();
    let plan = case.plan();
    assert!(plan.status_first);
    assert_eq!(plan.mark, ["j-t-0"], "only that pod goes");
    assert_eq!(plan.status.unwrap()["retryCount"], 1);
}

/// A job of two pods whose policy acts a minute after the event.
fn patient(event: &str, list: &[&str]) -> Case {
    let mut spec = json!({"minAvailable": 1, "tasks": [task("t", 2)]});
    spec["policies"] = json!([{"event": event, "action": "AbortJob", "timeout": "1m"}]);
    Case::new(spec, in_phase("Running"), list)
}

#[test]
fn a_timeout_ends_also_where_nothing_says_when_it_began() {
    let check = |mut case: Case, what: &str| {
        assert_eq!(case.look_after(0), "Running", "{what}");
        assert_eq!(case.look_after(40), "Running", "{what}");
        assert_eq!(case.plan().look_again, Some(std::time::Duration::from_secs(20)), "{what}");
        assert_eq!(case.look_after(20), "Aborting", "{what}");
        assert!(case.delayed.is_empty(), "{what}");
    };
    // A node that is gone lets pods fail without a container that ended.
    let mut case = patient("PodFailed", &["j-t-0 Failed", "j-t-1 Running"]);
    let mut pod = Pod::clone(&case.pods["j-t-0"]);
    pod.status.container_statuses.clear();
    case.pods.insert("j-t-0".into(), Arc::new(pod));
    check(case, "PodFailed");
    let mut case = patient("TaskFailed", &["j-t-0 Running", "j-t-1 Running"]);
    let mut pod = Pod::clone(&case.pods["j-t-0"]);
    pod.status.container_statuses[0].restart_count = 3;
    case.pods.insert("j-t-0".into(), Arc::new(pod));
    check(case, "TaskFailed");
    let mut case = patient("Unknown", &["j-t-0 Running", "j-t-1 Pending"]).admitted();
    case.group.as_mut().unwrap().status = json!({"phase": "Unknown"});
    check(case, "Unknown");
    let mut case = patient("TaskCompleted", &["j-t-0 Succeeded", "j-t-1 Succeeded", "j-u-0 Running"]);
    case.job.spec["tasks"].as_array_mut().unwrap().push(task("u", 1));
    check(case, "TaskCompleted");
    let mut case = patient("PodEvicted", &["j-t-1 Running"]);
    case.lost = pods(&["j-t-0 Running"]).values().cloned().collect();
    check(case, "PodEvicted");
}

#[test]
fn a_timeout_goes_on_while_a_lost_pod_is_made_anew_and_ends_when_it_runs() {
    let mut case = patient("PodEvicted", &["j-t-0 Running!", "j-t-1 Running"]);
    assert_eq!(case.look_after(0), "Running");
    case.pods = pods(&["j-t-1 Running"]);
    assert_eq!(case.look_after(30), "Running");
    case.pods = pods(&["j-t-0 Pending", "j-t-1 Running"]);
    assert_eq!(case.look_after(29), "Running");
    let mut well = patient("PodEvicted", &["j-t-0 Running", "j-t-1 Running"]);
    well.delayed = case.delayed.clone();
    well.now = case.now;
    assert_eq!(case.look_after(1), "Aborting");
    assert_eq!(well.look_after(1), "Running");
    assert!(well.delayed.is_empty());
    // Nor does what happened in an earlier run of the job count.
    case.job.status["version"] = 1.into();
    assert_eq!(case.phase(), "Running");
}

#[test]
fn a_running_gang_that_lost_a_pod_is_unknown_until_it_is_whole() {
    let mut spec = json!({"minAvailable": 3, "tasks": [task("t", 3)]});
    spec["policies"] = json!([{"event": "Unknown", "action": "AbortJob"}]);
    let phase = |before: &str, list: &[&str]| {
        // A job that is short of running pods is Pending.
        let of_job = if list.iter().any(|pod| pod.ends_with("Pending")) { "Pending" } else { "Running" };
        let mut case = Case::new(spec.clone(), in_phase(of_job), list).admitted();
        case.group.as_mut().unwrap().status = json!({"phase": before});
        let status = case.plan().pod_group_status.map(|status| status["phase"].clone());
        status.map_or(before.to_owned(), |phase| phase.as_str().unwrap().to_owned())
    };
    // Between the loss and the new pod, with the new pod waiting, and with it bound.
    assert_eq!(phase("Running", &["j-t-0 Running", "j-t-1 Running"]), "Unknown");
    assert_eq!(phase("Running", &["j-t-0 Running", "j-t-1 Running", "j-t-2 Running!"]), "Unknown");
    let waits = ["j-t-0 Running", "j-t-1 Running", "j-t-2 Pending"];
    assert_eq!(phase("Running", &waits), "Unknown");
    assert_eq!(phase("Inqueue", &waits), "Inqueue", "it has not run as a whole");
    assert_eq!(phase("Running", &["j-t-0 Running", "j-t-1 Running", "j-t-2 Running"]), "Running");
    let mut case = Case::new(spec, in_phase("Running"), &waits).admitted();
    case.group.as_mut().unwrap().status = json!({"phase": "Unknown"});
    assert_eq!(case.phase(), "Aborting");
}

#[test]
fn a_lost_pod_is_an_eviction_and_an_old_one_is_none() {
    let mut spec = json!({"minAvailable": 1, "tasks": [task("t", 1)]});
    spec["policies"] = json!([{"event": "PodEvicted", "action": "RestartJob"}]);
    let lost = pods(&["j-t-0 Running"]);
    let mut case = Case::new(spec, in_phase("Running"), &[]);
    case.lost = lost.values().cloned().collect();
    assert_eq!(case.phase(), "Restarting");
    case.job.status["version"] = 1.into();
    assert_eq!(case.phase(), "Running");
}

#[test]
fn pods_come_after_the_group_is_let_in_and_in_order_of_dependence() {
    let mut spec = json!({"minAvailable": 2, "tasks": [task("a", 1), task("b", 1)]});
    spec["tasks"][1]["dependsOn"] = json!({"name": ["a"]});
    let names = |case: &Case| -> Vec<String> {
        let plan = case.plan();
        plan.create.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let case = Case::new(spec.clone(), in_phase("Pending"), &[]);
    assert!(case.plan().pod_group.is_some());
    assert!(names(&case).is_empty(), "the group waits");
    assert_eq!(names(&Case::new(spec.clone(), in_phase("Pending"), &[]).admitted()), ["j-a-0"]);
    let waits = Case::new(spec.clone(), in_phase("Pending"), &["j-a-0 Pending"]).admitted();
    assert!(names(&waits).is_empty());
    assert_eq!(names(&Case::new(spec, in_phase("Pending"), &["j-a-0 Running"]).admitted()), ["j-b-0"]);
}

#[test]
fn what_the_job_says_to_the_scheduler_stands_on_its_group() {
    let mut case = Case::new(json!({"tasks": [task("a", 1)]}), in_phase("Pending"), &[]);
    let annotations = [
        ("volcano.sh/task-topology-affinity", "a,b"),
        ("volcano.sh/sla-waiting-time", "1h"),
        ("example.com/volcano.sh", "not for the scheduler"),
    ];
    case.job.metadata.annotations = Some(annotations.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    let group = case.plan().pod_group.unwrap();
    let wanted = json!({"volcano.sh/task-topology-affinity": "a,b", "volcano.sh/sla-waiting-time": "1h"});
    assert_eq!(group["metadata"]["annotations"], wanted);
}

#[test]
fn min_resources_as_upstream_counts_them() {
    let spec = |m: Option<i64>, w: Option<i64>, j: i64| {
        let one = |name: &str, class: &str, cpu: &str, min: Option<i64>| {
            json!({"name": name, "replicas": 2, "minAvailable": min, "template": {"spec": {"priorityClassName": class,
                "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}})
        };
        json!({"minAvailable": j, "tasks": [one("master", "m", "50m", m), one("worker", "w", "100m", w)]})
    };
    for (m, w, j, first, cpu, pods) in [
        (Some(1), Some(1), 2, "", "150m", "2"),
        (Some(1), None, 3, "", "250m", "3"),
        (Some(1), Some(1), 3, "w", "250m", "3"),
        (None, Some(1), 4, "w", "300m", "4"),
        (Some(1), None, 2, "", "100m", "2"),
        (None, None, 3, "", "200m", "3"),
    ] {
        let case = Case::new(spec(m, w, j), in_phase("Pending"), &[]);
        let plan = case.plan_with(&|class| i64::from(class == first && !first.is_empty()));
        let group = plan.pod_group.unwrap();
        let wanted = json!({"cpu": cpu, "requests.cpu": cpu, "pods": pods, "count/pods": pods});
        assert_eq!(group["spec"]["minResources"], wanted, "{m:?} {w:?} {j} {first}");
    }
}

/// Environment of the first container of a pod.
fn env(plan: &JobPlan, pod: &str) -> BTreeMap<String, String> {
    let pod = plan.create.iter().find(|made| made["metadata"]["name"] == pod).unwrap();
    let env = pod["spec"]["containers"][0]["env"].as_array().cloned().unwrap_or_default();
    env.iter()
        .filter_map(|e| Some((e["name"].as_str()?.to_owned(), e["value"].as_str()?.to_owned())))
        .collect()
}

#[test]
fn pytorch_finds_its_master() {
    let spec = json!({"plugins": {"pytorch": []}, "tasks": [task("master", 1), task("worker", 2), task("extra", 2)]});
    let mut case = Case::new(spec, in_phase("Pending"), &[]).admitted();
    case.job.spec["tasks"][0]["template"]["spec"]["containers"][0]["ports"] =
        json!([{"name": "pytorchjob-port", "containerPort": 123}]);
    let plan = case.plan();
    let master = env(&plan, "j-master-0");
    assert_eq!(master["MASTER_ADDR"], "j-master-0.j");
    assert_eq!(master["MASTER_PORT"], "23456");
    assert_eq!((master["WORLD_SIZE"].as_str(), master["RANK"].as_str()), ("3", "0"));
    assert_eq!(env(&plan, "j-worker-0")["RANK"], "1");
    assert_eq!(env(&plan, "j-worker-1")["RANK"], "2");
    let ports = &plan.create[0]["spec"]["containers"][0]["ports"];
    assert_eq!(ports, &json!([{"name": "pytorchjob-port", "containerPort": 123}]));
    let alone = json!({"plugins": {"pytorch": []}, "tasks": [task("worker", 2)]});
    let plan = Case::new(alone, in_phase("Pending"), &[]).admitted().plan();
    assert!(!env(&plan, "j-worker-0").contains_key("MASTER_ADDR"));
}

#[test]
fn tensorflow_mpi_and_ranks() {
    let spec = json!({"plugins": {"tensorflow": ["--port=5000"]},
        "tasks": [task("ps", 2), task("worker", 2), task("chief", 1)]});
    let plan = Case::new(spec, in_phase("Pending"), &[]).admitted().plan();
    assert_eq!(
        env(&plan, "j-worker-1")["TF_CONFIG"],
        r#"{"cluster":{"ps":["j-ps-0.j:5000","j-ps-1.j:5000"],"worker":["j-worker-0.j:5000","j-worker-1.j:5000"],"chief":["j-chief-0.j:5000"]},"task":{"type":"worker","index":1}}"#
    );
    let spec = json!({"plugins": {"mpi": []}, "tasks": [task("master", 1), task("worker", 2)]});
    let plan = Case::new(spec, in_phase("Pending"), &[]).admitted().plan();
    assert_eq!(env(&plan, "j-master-0")["MPI_HOST"], "j-worker-0.j,j-worker-1.j");
    let alone = json!({"plugins": {"mpi": []}, "tasks": [task("master", 1)]});
    assert_eq!(Case::new(alone, in_phase("Pending"), &[]).admitted().plan().create.len(), 1);
    let spec = json!({"plugins": {"hcclrank": []}, "tasks": [task("master", 3), task("worker", 2)]});
    let plan = Case::new(spec, in_phase("Pending"), &[]).admitted().plan();
    let rank = |name: &str| {
        let pod = plan.create.iter().find(|pod| pod["metadata"]["name"] == name).unwrap();
        pod["metadata"]["annotations"]["hccl/rankIndex"].clone()
    };
    assert_eq!((rank("j-master-2"), rank("j-worker-1")), ("2".into(), "4".into()));
}

#[test]
fn svc_and_ssh_objects() {
    let spec = json!({"plugins": {"svc": [], "ssh": ["--ssh-port=2026"], "env": []},
        "tasks": [task("ps", 1), task("gpu-worker", 2)]});
    let plan = Case::new(spec, in_phase("Pending"), &[]).admitted().plan();
    let kinds: Vec<&str> = plan.support.iter().map(|one| one["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ConfigMap", "Service", "NetworkPolicy", "Secret"]);
    let data = &plan.support[0]["data"];
    assert_eq!(data["gpu_worker.host"], "j-gpu-worker-0.j\nj-gpu-worker-1.j", "no newline at the end");
    assert_eq!(data["VC_GPU_WORKER_HOSTS"], "j-gpu-worker-0.j,j-gpu-worker-1.j");
    assert_eq!(data["VC_GPU_WORKER_NUM"], "2");
    let config = plan.support[3]["stringData"]["config"].as_str().unwrap();
    assert!(config.contains("Host j-ps-0\n  HostName j-ps-0.j\n  Port 2026\n"), "{config}");
    let pod = &plan.create[1];
    assert_eq!(
        (&pod["spec"]["hostname"], &pod["spec"]["subdomain"]),
        (&json!("j-gpu-worker-0"), &json!("j"))
    );
    let container = &pod["spec"]["containers"][0];
    let mounts: Vec<&str> = container["volumeMounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["mountPath"].as_str().unwrap())
        .collect();
    assert_eq!(mounts, ["/etc/volcano", "/root/.ssh"]);
    assert_eq!(env(&plan, "j-gpu-worker-1")["VK_TASK_INDEX"], "1");
    assert_eq!(pod["spec"]["volumes"][1]["secret"]["defaultMode"], 0o600);
    assert_eq!(
        plan.status.unwrap()["controlledResources"],
        json!({"plugin-env": "env", "plugin-svc": "svc", "plugin-ssh": "ssh"})
    );
}

#[test]
fn partitions_divide_by_size() {
    for (size, index, partition) in [(2, 0, 0), (2, 1, 0), (2, 2, 1), (5, 10, 2), (1, 0, 0), (0, 5, 0)] {
        let spec =
            json!({"tasks": [{"name": "t", "replicas": 12, "partitionPolicy": {"partitionSize": size}}]});
        let job = job(spec, json!({}));
        assert_eq!(task::of(&job)[0].partition_of(index), partition, "{size} {index}");
    }
}

#[test]
fn the_group_of_the_mpi_example_ends_as_the_walkthrough_shows_it() {
    let mut master = task("mpimaster", 1);
    master["policies"] = json!([{"event": "TaskCompleted", "action": "CompleteJob"}]);
    let spec = json!({"minAvailable": 4, "tasks": [master, task("mpiworker", 3)]});
    let list = [
        "j-mpimaster-0 Succeeded",
        "j-mpiworker-0 Running",
        "j-mpiworker-1 Running",
        "j-mpiworker-2 Running",
    ];
    let mut case = Case::new(spec, in_phase("Completing"), &list);
    let group = json!({"metadata": {"name": "g"}, "status": {"phase": "Running", "running": 4, "conditions": [
        {"type": "Scheduled", "status": "True", "reason": "tasks in gang are ready to be scheduled"}]}});
    case.group = Some(serde_json::from_value(group).unwrap());
    let plan = case.plan();
    assert_eq!(plan.delete.len(), 3);
    let status = plan.pod_group_status.unwrap();
    assert_eq!(
        status["conditions"][0]["message"],
        "3/4 tasks in gang unschedulable: pod group is not ready, 1 Succeeded, 3 Releasing, 4 minAvailable"
    );
    assert_eq!(status["conditions"][0]["reason"], "NotEnoughResources");
    assert_eq!(status["conditions"][1]["type"], "Scheduled");
    // The workers are gone: the message stays, the phase is what is left.
    case.group.as_mut().unwrap().status = status.clone();
    case.pods = pods(&["j-mpimaster-0 Succeeded"]);
    let last = case.plan();
    assert!(last.status_first, "the job is complete");
    case.job.status = last.status.unwrap();
    let status = case.plan().pod_group_status.unwrap_or(status);
    assert_eq!((&status["phase"], &status["succeeded"]), (&json!("Pending"), &json!(1)));
    assert!(status["running"].is_null());
}

#[test]
fn tasks_that_wait_for_each_other_are_told_so() {
    let after = |name: &str, other: &str| {
        let mut task = task(name, 1);
        task["dependsOn"] = json!({"name": [other]});
        task
    };
    let spec = json!({"tasks": [after("a", "b"), after("b", "c"), after("c", "a")]});
    let plan = Case::new(spec, in_phase("Pending"), &[]).admitted().plan();
    let state = &plan.status.unwrap()["state"];
    assert_eq!(state["reason"], "InvalidSpec");
    assert_eq!(
        state["message"],
        "field spec.tasks: found the cycle a -> b -> c -> a; allowed: dependsOn without a cycle"
    );
}

#[test]
fn a_job_that_says_no_minimum_is_told_the_one_it_has() {
    let first = |spec: Value| Case::new(spec, json!({}), &[]).plan().spec;
    let mut some = task("b", 3);
    some["minAvailable"] = 1.into();
    assert_eq!(first(json!({"tasks": [task("a", 2), some]})), Some(json!({"minAvailable": 3})));
    assert_eq!(first(json!({"minAvailable": 0, "tasks": [task("a", 2)]})), None);
    assert_eq!(Case::new(json!({"tasks": [task("a", 2)]}), in_phase("Pending"), &[]).plan().spec, None);
}

#[test]
fn a_changed_job_restarts_where_its_policies_say_so() {
    let mut spec = json!({"minAvailable": 1, "tasks": [task("t", 2)]});
    let running = ["j-t-0 Running", "j-t-1 Running"];
    let mut case = Case::new(spec.clone(), in_phase("Running"), &running);
    case.updated = true;
    assert_eq!(case.phase(), "Running");
    spec["policies"] = json!([{"event": "JobUpdated", "action": "RestartJob"}]);
    let mut case = Case::new(spec.clone(), in_phase("Running"), &running);
    assert_eq!(case.look_after(0), "Running");
    case.updated = true;
    assert_eq!(case.look_after(0), "Restarting");
    // With a timeout the change is remembered.
    spec["policies"][0]["timeout"] = "1m".into();
    let mut case = Case::new(spec, in_phase("Running"), &running);
    case.updated = true;
    assert_eq!(case.look_after(0), "Running");
    assert_eq!(case.look_after(59), "Running");
    assert_eq!(case.look_after(1), "Restarting");
}
