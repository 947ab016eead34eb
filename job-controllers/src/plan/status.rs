//! The status of Kubeflow jobs as the training operator writes it: conditions in order of occurrence, because
//! kubectl shows the type of the last one as STATE.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{pod::list_mut, rfc3339};

/// The condition of that type is True.
pub(super) fn is_true(status: &Value, kind: &str) -> bool {
    find(status, kind).is_some_and(|condition| condition["status"] == "True")
}

pub(super) fn find<'s>(status: &'s Value, kind: &str) -> Option<&'s Value> {
    status["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// Sets a condition and moves it to the end, unless it has this status and reason already. Running and
/// Restarting exclude each other; an end sets Running to False.
pub(super) fn set(status: &mut Value, kind: &str, value: bool, reason: &str, message: &str, now: Timestamp) {
    let value = if value { "True" } else { "False" };
    let old = find(status, kind).cloned();
    if let Some(old) = &old
        && old["status"] == value
        && old["reason"] == reason
    {
        return;
    }
    let now = rfc3339(now);
    let transition = match &old {
        Some(old) if old["status"] == value => old["lastTransitionTime"].clone(),
        _ => Value::from(now.as_str()),
    };
    if !status.is_object() {
        *status = json!({});
    }
    let list = list_mut(status, "conditions");
    list.retain(|condition| {
        let other = condition["type"].as_str().unwrap_or_default();
        other != kind && !matches!((kind, other), ("Running", "Restarting") | ("Restarting", "Running"))
    });
    if matches!(kind, "Failed" | "Succeeded") {
        for condition in list.iter_mut().filter(|c| c["type"] == "Running" && c["status"] == "True") {
            condition["status"] = "False".into();
            condition["lastTransitionTime"] = now.as_str().into();
            condition["lastUpdateTime"] = now.as_str().into();
        }
    }
    list.push(json!({
        "type": kind,
        "status": value,
        "reason": reason,
        "message": message,
        "lastUpdateTime": now,
        "lastTransitionTime": transition,
    }));
}
