//! The hub's status of an object of which nothing runs: between two runs, and before clusters take it again.

use serde_json::{Value, json};

use super::WorkloadKind;
use super::conditions::{FAILED_CREATE, REPLICA_FAILURE};

/// Phases of a Volcano Job that say that a run stands in a cluster.
const VOLCANO_OF_RUN: [&str; 6] =
    ["Running", "Restarting", "Completing", "Aborting", "Terminating", "Aborted"];
/// What is counted of the pods of a run, without what a later run adds to.
const VOLCANO_COUNTS: [&str; 7] =
    ["pending", "running", "succeeded", "failed", "terminating", "unknown", "taskStatusCount"];
const BATCH_COUNTS: [&str; 3] = ["active", "ready", "terminating"];
const DEPLOYMENT_COUNTS: [&str; 4] =
    ["updatedReplicas", "readyReplicas", "availableReplicas", "terminatingReplicas"];
const MESSAGE: &str = "the run was evicted and the job is placed again";

/// Removes from a status what the last run reported: an object that is placed again has no running pods, and a job
/// has neither failed nor does it run. `reason` ended the last run. Called again, it changes nothing.
pub fn between_runs(kind: WorkloadKind, status: &mut Value, reason: &str, time: &str) {
    match kind {
        WorkloadKind::PyTorchJob | WorkloadKind::TFJob | WorkloadKind::MPIJob => {
            kubeflow(status, reason, time);
        }
        WorkloadKind::BatchJob => {
            drop_condition(status, FAILED_CREATE);
            remove(status, &BATCH_COUNTS);
        }
        WorkloadKind::VolcanoJob => volcano(status, reason, time),
        WorkloadKind::Deployment => deployment(status, time),
        WorkloadKind::Other => {}
    }
}

fn remove(status: &mut Value, fields: &[&str]) {
    if let Some(status) = status.as_object_mut() {
        for field in fields {
            status.remove(*field);
        }
    }
}

fn drop_condition(status: &mut Value, type_: &str) {
    let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) else { return };
    conditions.retain(|condition| condition["type"] != type_);
}

fn kubeflow(status: &mut Value, reason: &str, time: &str) {
    let Some(conditions) = status["conditions"].as_array_mut() else { return };
    conditions.retain(|c| c["type"] != "Failed" && c["type"] != "Running" && c["type"] != FAILED_CREATE);
    if !conditions.iter().any(|c| c["type"] == "Restarting") {
        conditions.push(json!({
            "type": "Restarting",
            "status": "True",
            "reason": reason,
            "message": MESSAGE,
            "lastUpdateTime": time,
            "lastTransitionTime": time,
        }));
    }
    remove(status, &["replicaStatuses"]);
}

fn volcano(status: &mut Value, reason: &str, time: &str) {
    let state = &status["state"];
    let is_of_run = state["phase"].as_str().is_some_and(|phase| VOLCANO_OF_RUN.contains(&phase));
    if !is_of_run && state["reason"] != FAILED_CREATE {
        return;
    }
    status["state"] =
        json!({"phase": "Pending", "reason": reason, "message": MESSAGE, "lastTransitionTime": time});
    remove(status, &VOLCANO_COUNTS);
}

fn deployment(status: &mut Value, time: &str) {
    drop_condition(status, REPLICA_FAILURE);
    if status["replicas"].as_i64().unwrap_or(0) == 0 {
        return;
    }
    remove(status, &DEPLOYMENT_COUNTS);
    status["unavailableReplicas"] = status["replicas"].clone();
    status["replicas"] = json!(0);
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        if condition["type"] == "Available" && condition["status"] != "False" {
            condition["status"] = json!("False");
            condition["reason"] = json!("MinimumReplicasUnavailable");
            condition["message"] = json!("no cluster runs the object");
            condition["lastTransitionTime"] = json!(time);
            condition["lastUpdateTime"] = json!(time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(kind: WorkloadKind, mut status: Value) -> Value {
        between_runs(kind, &mut status, "ClusterDraining", "T");
        let once = status.clone();
        between_runs(kind, &mut status, "ClusterDraining", "later");
        assert_eq!(status, once, "{kind:?}: called again, it changes nothing");
        once
    }

    #[test]
    fn what_refused_the_pods_of_an_evicted_run_is_told_no_more() {
        let said = |type_: &str| json!({"replicas": 1, "conditions": [{"type": type_, "status": "True", "message": "no such class"}]});
        for (kind, type_) in [
            (WorkloadKind::PyTorchJob, FAILED_CREATE),
            (WorkloadKind::BatchJob, FAILED_CREATE),
            (WorkloadKind::Deployment, REPLICA_FAILURE),
        ] {
            let status = after(kind, said(type_));
            assert!(!status.to_string().contains("no such class"), "{kind:?}: {status}");
        }
        let state = json!({"phase": "Pending", "reason": FAILED_CREATE, "message": "no such class"});
        let status = after(WorkloadKind::VolcanoJob, json!({"state": state}));
        assert_eq!(status["state"]["reason"], "ClusterDraining");
    }

    #[test]
    fn nothing_of_an_evicted_run_runs() {
        let running = json!({"conditions": [{"type": "Created", "status": "True"}, {"type": "Running", "status": "True"}],
            "replicaStatuses": {"Worker": {"active": 2}}});
        for kind in [WorkloadKind::PyTorchJob, WorkloadKind::TFJob, WorkloadKind::MPIJob] {
            let status = after(kind, running.clone());
            assert_eq!(status["conditions"][1]["type"], "Restarting");
            assert_eq!(status["conditions"][1]["reason"], "ClusterDraining", "why the last run ended");
            assert_eq!(status["conditions"].as_array().map(Vec::len), Some(2));
            assert!(status["replicaStatuses"].is_null());
        }
        let batch = json!({"active": 2, "ready": 2, "terminating": 1, "succeeded": 3, "startTime": "S"});
        assert_eq!(after(WorkloadKind::BatchJob, batch), json!({"succeeded": 3, "startTime": "S"}));
        let volcano = json!({"state": {"phase": "Running", "lastTransitionTime": "S"}, "running": 2, "minAvailable": 2,
            "retryCount": 1, "taskStatusCount": {"w": {"phase": {"Running": 2}}}});
        assert_eq!(
            after(WorkloadKind::VolcanoJob, volcano),
            json!({"state": {"phase": "Pending", "reason": "ClusterDraining", "message": MESSAGE,
                "lastTransitionTime": "T"}, "minAvailable": 2, "retryCount": 1})
        );
        let deployment = json!({"observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2,
            "availableReplicas": 2, "conditions": [{"type": "Available", "status": "True"}]});
        let status = after(WorkloadKind::Deployment, deployment);
        assert_eq!((&status["replicas"], &status["unavailableReplicas"]), (&json!(0), &json!(2)));
        assert!(status["availableReplicas"].is_null() && status["readyReplicas"].is_null());
        assert_eq!(status["observedGeneration"], 3);
        assert_eq!(status["conditions"][0]["status"], "False");
    }

    #[test]
    fn what_has_not_run_stays() {
        for status in [json!({}), json!({"state": {"phase": "Pending"}}), json!({"replicas": 0})] {
            for kind in [WorkloadKind::BatchJob, WorkloadKind::VolcanoJob, WorkloadKind::Deployment] {
                assert_eq!(after(kind, status.clone()), status);
            }
        }
    }
}
