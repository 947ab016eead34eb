//! The writes of a stage: pure functions of an object and a time.

use fleet_apiserver::Stored;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Stage;
use crate::hollow::{pod::Pod, status};
use fleet_simulator::run_plan::Ending;

/// The pod after a stage.
pub fn pod(object: &Stored, stage: Stage, node_index: usize, now: Timestamp) -> Value {
    let mut value = object.value();
    // A stored pod always reads; what the reading leaves out is not written.
    let reading = serde_json::from_value::<Pod>(value.clone()).unwrap_or_default();
    let patch = match stage {
        Stage::PodCreate => {
            let ready = status::running(&reading, node_index, now);
            let keep = ["hostIP", "hostIPs", "podIP", "podIPs", "startTime"];
            let kept = keep.iter().map(|field| (field.to_string(), ready["status"][*field].clone()));
            json!({"status": Value::Object(kept.collect())})
        }
        Stage::PodReady => status::running(&reading, node_index, now),
        Stage::PodComplete => status::finished(&reading, Ending::Succeeds, now),
        _ => failed(object, &reading, now),
    };
    merge(&mut value, &patch);
    value
}

/// A running pod that chaos ends; its annotations say how.
fn failed(object: &Stored, reading: &Pod, now: Timestamp) -> Value {
    let mut patch = status::finished(reading, Ending::Fails, now);
    let read = |field: &str| object.text(&["metadata", "annotations", &Stage::PodRunningFailed.key(field)]);
    let (reason, message, code) = (read("reason"), read("message"), read("exit-code"));
    for container in patch["status"]["containerStatuses"].as_array_mut().into_iter().flatten() {
        let ended = &mut container["state"]["terminated"];
        if !reason.is_empty() {
            ended["reason"] = reason.as_str().into();
        }
        if !message.is_empty() {
            ended["message"] = message.as_str().into();
        }
        if let Ok(code) = code.parse::<i64>() {
            ended["exitCode"] = code.into();
        }
    }
    patch
}

fn merge(value: &mut Value, patch: &Value) {
    for (field, new) in patch["status"].as_object().into_iter().flatten() {
        value["status"][field] = new.clone();
    }
}

/// Whether a node says it is ready.
pub fn node_is_ready(node: &Stored) -> bool {
    let conditions = node.at(&["status", "conditions"]).unwrap_or_default();
    conditions
        .as_array()
        .is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
}

/// The node after a stage.
pub fn node(object: &Stored, stage: Stage, now: Timestamp) -> Value {
    let mut value = object.value();
    let (is, reason) = match stage {
        Stage::NodeNotReady => ("False", "NodeStatusUnknown"),
        _ => ("True", "KubeletReady"),
    };
    let time = status::time_text(now);
    let ready = json!({"type": "Ready", "status": is, "reason": reason, "lastHeartbeatTime": time,
        "lastTransitionTime": time});
    let standing = value["status"]["conditions"].take();
    let mut conditions: Vec<Value> = standing.as_array().cloned().unwrap_or_default();
    conditions.retain(|condition| condition["type"] != "Ready");
    conditions.push(ready);
    value["status"]["conditions"] = conditions.into();
    value
}
