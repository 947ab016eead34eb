//! The health and the outcome of a workload, from its status.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::WorkloadKind;
use super::conditions::{conditions_of, find, has_condition};

/// Whether failover applies. `Unknown` never counts against a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Health {
    Healthy,
    Unhealthy,
    Unknown,
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Outcome {
    Succeeded,
    Failed,
}

/// A job is unhealthy once it failed, or while its controller has not reported on it; a Deployment while replicas
/// are missing.
pub fn health(kind: WorkloadKind, status: &Value) -> Health {
    let healthy = match kind {
        WorkloadKind::PyTorchJob | WorkloadKind::TFJob | WorkloadKind::MPIJob => {
            !has_condition(status, "Failed") && !conditions_of(status).is_empty()
        }
        WorkloadKind::BatchJob => !has_condition(status, "Failed"),
        WorkloadKind::VolcanoJob => volcano_phase(status) != "Failed",
        WorkloadKind::Deployment => return deployment_health(status),
        WorkloadKind::Other => return Health::Unknown,
    };
    if healthy { Health::Healthy } else { Health::Unhealthy }
}

/// `None` while the workload has not ended. A job that both failed and succeeded counts as failed.
pub fn outcome(kind: WorkloadKind, status: &Value) -> Option<Outcome> {
    let (succeeded, failed) = match kind {
        WorkloadKind::PyTorchJob | WorkloadKind::TFJob | WorkloadKind::MPIJob => {
            (has_condition(status, "Succeeded"), has_condition(status, "Failed"))
        }
        WorkloadKind::BatchJob => (has_condition(status, "Complete"), has_condition(status, "Failed")),
        WorkloadKind::VolcanoJob => {
            let phase = volcano_phase(status);
            (phase == "Completed", matches!(phase, "Failed" | "Aborted" | "Terminated"))
        }
        WorkloadKind::Deployment | WorkloadKind::Other => (false, false),
    };
    match (failed, succeeded) {
        (true, _) => Some(Outcome::Failed),
        (false, true) => Some(Outcome::Succeeded),
        (false, false) => None,
    }
}

/// Reason and message with which a job failed, as its own status says; `None` of a job that has not failed.
pub fn failure(kind: WorkloadKind, status: &Value) -> Option<(&str, &str)> {
    outcome(kind, status).filter(|outcome| *outcome == Outcome::Failed)?;
    let said = match kind {
        WorkloadKind::VolcanoJob => &status["state"],
        _ => find(status, "Failed")?,
    };
    let text = |field: &str| said[field].as_str().unwrap_or_default();
    Some((text("reason"), text("message")))
}

/// How often pods of a job, or all of it, started anew in the same run. Kubeflow's jobs do not count that: 0.
pub fn restarts(kind: WorkloadKind, status: &Value) -> i64 {
    match kind {
        WorkloadKind::VolcanoJob => number(status, "retryCount"),
        WorkloadKind::BatchJob => number(status, "failed"),
        _ => 0,
    }
}

/// When a job ended (RFC 3339), from its status.
pub fn ended_at(kind: WorkloadKind, status: &Value) -> Option<&str> {
    if kind == WorkloadKind::VolcanoJob {
        return status["state"]["lastTransitionTime"].as_str();
    }
    let ends = ["Succeeded", "Failed", "Complete"];
    let mut conditions = conditions_of(status).iter();
    let ended = conditions.find(|c| c["status"] == "True" && ends.iter().any(|end| c["type"] == *end));
    ended.and_then(|ended| ended["lastTransitionTime"].as_str()).or_else(|| status["completionTime"].as_str())
}

/// Its pods run and it has not ended.
pub fn is_running(kind: WorkloadKind, status: &Value) -> bool {
    let running = match kind {
        WorkloadKind::PyTorchJob | WorkloadKind::TFJob | WorkloadKind::MPIJob => {
            has_condition(status, "Running")
        }
        WorkloadKind::BatchJob => number(status, "active") > 0,
        WorkloadKind::VolcanoJob => volcano_phase(status) == "Running",
        WorkloadKind::Deployment => number(status, "readyReplicas") > 0,
        WorkloadKind::Other => false,
    };
    running && outcome(kind, status).is_none()
}

/// The text of kubectl's STATE column: for Kubeflow jobs the type of the last condition. Empty if the status has
/// none.
pub fn state_text(kind: WorkloadKind, status: &Value) -> String {
    match kind {
        WorkloadKind::PyTorchJob | WorkloadKind::TFJob | WorkloadKind::MPIJob => {
            let last = conditions_of(status).last();
            last.and_then(|c| c["type"].as_str()).unwrap_or_default().to_owned()
        }
        WorkloadKind::VolcanoJob => volcano_phase(status).to_owned(),
        WorkloadKind::BatchJob => {
            let text = match outcome(kind, status) {
                Some(Outcome::Succeeded) => "Complete",
                Some(Outcome::Failed) => "Failed",
                None if has_condition(status, "Suspended") => "Suspended",
                None if number(status, "active") > 0 => "Running",
                None => "",
            };
            text.to_owned()
        }
        WorkloadKind::Deployment => {
            format!("{}/{}", number(status, "readyReplicas"), number(status, "replicas"))
        }
        WorkloadKind::Other => String::new(),
    }
}

fn deployment_health(status: &Value) -> Health {
    if status.as_object().is_none_or(serde_json::Map::is_empty) {
        return Health::Unknown;
    }
    let wanted = number(status, "replicas");
    let observed = status.get("updatedReplicas").map_or(wanted, |_| number(status, "updatedReplicas"));
    let available = number(status, "availableReplicas").max(number(status, "readyReplicas"));
    if observed == wanted && available >= wanted { Health::Healthy } else { Health::Unhealthy }
}

pub(super) fn volcano_phase(status: &Value) -> &str {
    status["state"]["phase"].as_str().unwrap_or_default()
}

pub(super) fn number(status: &Value, field: &str) -> i64 {
    counted(&status[field])
}

/// A count that a member reports. A hostile one reports any number; controllers count in 32 bits.
pub(super) fn counted(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0).clamp(0, i64::from(i32::MAX))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kubeflow(conditions: &[(&str, &str)]) -> Value {
        let list: Vec<Value> = conditions.iter().map(|(t, s)| json!({"type": t, "status": s})).collect();
        json!({"conditions": list})
    }

    #[test]
    fn kubeflow_jobs() {
        let check = |conditions: &[(&str, &str)], health_is, outcome_is, running, state: &str| {
            let status = kubeflow(conditions);
            let kind = WorkloadKind::PyTorchJob;
            assert_eq!(health(kind, &status), health_is, "{conditions:?}");
            assert_eq!(outcome(kind, &status), outcome_is, "{conditions:?}");
            assert_eq!(is_running(kind, &status), running, "{conditions:?}");
            assert_eq!(state_text(kind, &status), state, "{conditions:?}");
        };
        check(&[], Health::Unhealthy, None, false, "");
        check(&[("Created", "True")], Health::Healthy, None, false, "Created");
        check(&[("Created", "True"), ("Running", "True")], Health::Healthy, None, true, "Running");
        check(
            &[("Created", "True"), ("Running", "False"), ("Succeeded", "True")],
            Health::Healthy,
            Some(Outcome::Succeeded),
            false,
            "Succeeded",
        );
        check(
            &[("Created", "True"), ("Running", "False"), ("Failed", "True")],
            Health::Unhealthy,
            Some(Outcome::Failed),
            false,
            "Failed",
        );
    }

    #[test]
    fn other_kinds() {
        let volcano = |phase: &str| json!({"state": {"phase": phase}});
        for phase in [
            "Running",
            "Completed",
            "Pending",
            "Aborting",
            "Aborted",
            "Restarting",
            "Completing",
            "Terminating",
            "Terminated",
        ] {
            assert_eq!(health(WorkloadKind::VolcanoJob, &volcano(phase)), Health::Healthy, "{phase}");
        }
        assert_eq!(health(WorkloadKind::VolcanoJob, &volcano("Failed")), Health::Unhealthy);
        assert_eq!(outcome(WorkloadKind::VolcanoJob, &volcano("Completed")), Some(Outcome::Succeeded));
        assert_eq!(
            outcome(WorkloadKind::BatchJob, &kubeflow(&[("Complete", "True")])),
            Some(Outcome::Succeeded)
        );
        assert_eq!(state_text(WorkloadKind::BatchJob, &json!({"active": 1})), "Running");
        let ready = json!({"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2});
        assert_eq!(health(WorkloadKind::Deployment, &ready), Health::Healthy);
        assert_eq!(health(WorkloadKind::Deployment, &json!({"replicas": 2})), Health::Unhealthy);
        assert_eq!(health(WorkloadKind::Deployment, &Value::Null), Health::Unknown);
    }

    #[test]
    fn a_job_that_failed_says_why_and_how_often_it_began_anew() {
        let check = |kind, status: Value, said: Option<(&str, &str)>, again: i64| {
            assert_eq!((failure(kind, &status), restarts(kind, &status)), (said, again), "{status}");
        };
        let failed = json!({"failed": 3, "conditions": [{"type": "Failed", "status": "True",
            "reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}]});
        let said = ("BackoffLimitExceeded", "Job has reached the specified backoff limit");
        check(WorkloadKind::BatchJob, failed.clone(), Some(said), 3);
        check(WorkloadKind::PyTorchJob, failed, Some(said), 0);
        check(WorkloadKind::PyTorchJob, kubeflow(&[("Failed", "False")]), None, 0);
        let state = |phase: &str| {
            json!({"retryCount": 2,
            "state": {"phase": phase, "reason": "MaxRetryReached", "message": "3 of 3 retries"}})
        };
        check(WorkloadKind::VolcanoJob, state("Running"), None, 2);
        check(WorkloadKind::VolcanoJob, state("Failed"), Some(("MaxRetryReached", "3 of 3 retries")), 2);
        check(WorkloadKind::BatchJob, json!({"failed": -1, "conditions": "odd"}), None, 0);
    }
}
