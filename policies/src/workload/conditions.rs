//! The list of conditions in a job's status.
//!
//! kubectl prints the last condition's type as a Kubeflow job's STATE, so the order matters: `Queuing` is last
//! while the job waits in its queue, and first afterwards.

use serde_json::{Map, Value, json};

use super::WorkloadKind;

/// One condition; times are RFC 3339 text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub type_: String,
    pub status: bool,
    pub reason: String,
    pub message: String,
    /// The last time anything about the condition changed.
    pub update_time: String,
    /// The last time its status changed.
    pub transition_time: String,
}

/// The type of the condition that says whether a job waits in its queue.
pub const QUEUING: &str = "Queuing";

/// The type of the condition of a job, and the reason of a Volcano Job's state, that says that its pods cannot be created.
pub(super) const FAILED_CREATE: &str = "FailedCreate";
/// The same of a Deployment.
pub(super) const REPLICA_FAILURE: &str = "ReplicaFailure";

impl Condition {
    pub fn to_value(&self) -> Value {
        let mut value = json!({
            "type": self.type_,
            "status": if self.status { "True" } else { "False" },
            "reason": self.reason,
            "message": self.message,
        });
        for (field, time) in
            [("lastUpdateTime", &self.update_time), ("lastTransitionTime", &self.transition_time)]
        {
            if !time.is_empty() {
                value[field] = Value::from(time.as_str());
            }
        }
        value
    }
}

/// Adds or updates the condition Queuing. `waiting` is reason and message while the job waits, `None` once it is
/// dequeued; `now` is RFC 3339. A job that never waited gets no condition. Returns whether anything changed.
pub fn queuing_condition(status: &mut Value, waiting: Option<(&str, &str)>, now: &str) -> bool {
    if waiting.is_none() && find(status, QUEUING).is_none() {
        return false;
    }
    let before = status.clone();
    let list = conditions_mut(status);
    let old = list.iter().position(|c| c["type"] == QUEUING).map(|at| list.remove(at));
    match (waiting, old) {
        (None, None) => {}
        (Some((reason, message)), old) => list.push(renewed(old.as_ref(), true, reason, message, now)),
        (None, Some(old)) => {
            let message = "The job has left its queue.";
            list.insert(0, renewed(Some(&old), false, "Dequeued", message, now));
        }
    }
    *status != before
}

/// Adds the condition Created if the status has no conditions yet, as the job's own controller would; it comes
/// before a Queuing that waits. Returns whether anything changed.
pub fn created_condition(status: &mut Value, kind: &str, name: &str, now: &str) -> bool {
    let list = conditions_mut(status);
    if list.iter().any(|c| c["type"] == "Created") {
        return false;
    }
    let created = Condition {
        type_: "Created".to_owned(),
        status: true,
        reason: format!("{kind}Created"),
        message: format!("{kind} {name} is created."),
        update_time: now.to_owned(),
        transition_time: now.to_owned(),
    };
    let at = usize::from(list.first().is_some_and(|c| c["type"] == QUEUING && !is_true(c)));
    list.insert(at, created.to_value());
    true
}

/// Makes a status say that the job has failed, as its kind does. `now` is RFC 3339.
pub fn set_failed(kind: WorkloadKind, status: &mut Value, reason: &str, message: &str, now: &str) {
    if kind == WorkloadKind::VolcanoJob {
        if !status.is_object() {
            *status = Value::Object(Map::new());
        }
        status["state"] = json!({
            "phase": "Failed", "reason": reason, "message": message, "lastTransitionTime": now});
        return;
    }
    let list = conditions_mut(status);
    for condition in list.iter_mut().filter(|c| c["type"] == "Running" && is_true(c)) {
        condition["status"] = json!("False");
    }
    list.retain(|c| c["type"] != "Failed" && c["type"] != "Restarting");
    let mut failed = Condition {
        type_: "Failed".to_owned(),
        status: true,
        reason: reason.to_owned(),
        message: message.to_owned(),
        update_time: now.to_owned(),
        transition_time: now.to_owned(),
    }
    .to_value();
    if kind == WorkloadKind::BatchJob {
        failed.as_object_mut().map(|fields| fields.remove("lastUpdateTime"));
        failed["lastProbeTime"] = json!(now);
    }
    if kind == WorkloadKind::BatchJob {
        // An API server accepts the end of a batch Job only after it was announced, and only of a Job that has
        // started and stopped.
        if !list.iter().any(|c| c["type"] == "FailureTarget" && is_true(c)) {
            let mut announced = failed.clone();
            announced["type"] = json!("FailureTarget");
            list.retain(|c| c["type"] != "FailureTarget");
            list.push(announced);
        }
        list.push(failed);
        if !status["startTime"].is_string() {
            status["startTime"] = json!(now);
        }
        for field in ["active", "ready", "terminating"] {
            status.as_object_mut().map(|fields| fields.remove(field));
        }
        return;
    }
    list.push(failed);
}

/// The conditions of a status; empty if it has none.
pub(super) fn conditions_of(status: &Value) -> &[Value] {
    status["conditions"].as_array().map_or(&[], Vec::as_slice)
}

/// The condition of that type.
pub(super) fn find<'s>(status: &'s Value, type_: &str) -> Option<&'s Value> {
    conditions_of(status).iter().find(|c| c["type"] == type_)
}

/// The condition of that type is True.
pub(super) fn has_condition(status: &Value, type_: &str) -> bool {
    find(status, type_).is_some_and(is_true)
}

pub(super) fn is_true(condition: &Value) -> bool {
    condition["status"] == "True"
}

fn conditions_mut(status: &mut Value) -> &mut Vec<Value> {
    if !status.is_object() {
        *status = Value::Object(Map::new());
    }
    let list = &mut status["conditions"];
    if !list.is_array() {
        *list = Value::Array(Vec::new());
    }
    match list {
        Value::Array(list) => list,
        // Made an array by the lines above.
        _ => unreachable!("conditions is an array"),
    }
}

/// Times change only with something else, so that an unchanged status is equal.
fn renewed(old: Option<&Value>, status: bool, reason: &str, message: &str, now: &str) -> Value {
    let text = |field: &str| old.and_then(|old| old[field].as_str()).unwrap_or_default();
    let same_status = old.is_some_and(|old| is_true(old) == status);
    let same = same_status && text("reason") == reason && text("message") == message;
    let kept = |field: &str, keep: bool| if keep { text(field) } else { now }.to_owned();
    Condition {
        type_: QUEUING.to_owned(),
        status,
        reason: reason.to_owned(),
        message: message.to_owned(),
        update_time: kept("lastUpdateTime", same),
        transition_time: kept("lastTransitionTime", same_status),
    }
    .to_value()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types(status: &Value) -> Vec<String> {
        conditions_of(status)
            .iter()
            .map(|c| format!("{}={}", c["type"].as_str().unwrap(), c["status"].as_str().unwrap()))
            .collect()
    }

    #[test]
    fn a_job_that_fleet_ends_reads_as_failed() {
        use crate::workload::{Outcome, outcome};
        for kind in [WorkloadKind::PyTorchJob, WorkloadKind::BatchJob, WorkloadKind::VolcanoJob] {
            let mut status = json!({"conditions": [{"type": "Running", "status": "True"}]});
            set_failed(kind, &mut status, "BackoffLimitExceeded", "no run ended well", "t0");
            assert_eq!(outcome(kind, &status), Some(Outcome::Failed), "{kind:?}: {status}");
        }
    }

    #[test]
    fn a_waiting_job_shows_queuing_and_a_dequeued_one_what_it_does() {
        let mut status = Value::Null;
        assert!(!queuing_condition(&mut status, None, "t0"));
        assert!(created_condition(&mut status, "PyTorchJob", "a", "t0"));
        assert!(queuing_condition(&mut status, Some(("Enqueued", "waits")), "t1"));
        assert_eq!(types(&status), ["Created=True", "Queuing=True"]);
        assert!(!queuing_condition(&mut status, Some(("Enqueued", "waits")), "t2"), "unchanged");
        assert!(queuing_condition(&mut status, Some(("InsufficientQuota", "cpu")), "t3"));
        let queuing = find(&status, QUEUING).unwrap();
        assert_eq!(
            (&queuing["lastTransitionTime"], &queuing["lastUpdateTime"]),
            (&json!("t1"), &json!("t3"))
        );
        assert!(queuing_condition(&mut status, None, "t4"));
        assert_eq!(types(&status), ["Queuing=False", "Created=True"]);
        assert!(!queuing_condition(&mut status, None, "t5"));
        assert!(!created_condition(&mut status, "PyTorchJob", "a", "t5"));
    }
}
