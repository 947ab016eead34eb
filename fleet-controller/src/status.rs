//! Building status patches: conditions whose times move only when they do, and the difference between
//! what stands and what should.

use fleet_policies::reason::Reason;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Map, Value, json};

/// Longest message written to an object (bytes); longer ones are cut at a character.
pub const MAX_MESSAGE: usize = 1024;

/// RFC 3339, whole seconds, as Kubernetes writes times.
pub fn rfc3339(now: jiff::Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub fn find_condition<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// A condition as JSON. Its transition time stays that of `known` while the status does.
pub fn condition(
    kind: &str,
    status: &str,
    reason: Reason,
    message: &str,
    known: Option<&Condition>,
    now: jiff::Timestamp,
) -> Value {
    let since = known
        .filter(|known| known.status == status)
        .map_or_else(|| rfc3339(now), |known| rfc3339(known.last_transition_time.0));
    json!({
        "type": kind,
        "status": status,
        "reason": reason.as_str(),
        "message": cut(message),
        "lastTransitionTime": since,
    })
}

/// Cuts a message to [`MAX_MESSAGE`] bytes.
pub fn cut(message: &str) -> &str {
    let mut end = message.len().min(MAX_MESSAGE);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    &message[..end]
}

/// The merge patch (RFC 7386) that turns `from` into `to`; `None` where they are equal.
pub fn merge_patch(from: &Value, to: &Value) -> Option<Value> {
    if from == to {
        return None;
    }
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return Some(to.clone());
    };
    let mut patch = Map::new();
    for (key, value) in to {
        let change = match from.get(key) {
            Some(known) => merge_patch(known, value),
            None => Some(value.clone()),
        };
        if let Some(change) = change {
            patch.insert(key.clone(), change);
        }
    }
    for key in from.keys().filter(|key| !to.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_patch_says_only_what_differs() {
        let from = json!({"a": 1, "b": {"c": [1], "d": 2}, "e": 3});
        let to = json!({"a": 1, "b": {"c": [2], "d": 2}});
        assert_eq!(merge_patch(&from, &to), Some(json!({"b": {"c": [2]}, "e": null})));
        assert_eq!(merge_patch(&to, &to), None);
        assert_eq!(merge_patch(&Value::Null, &to), Some(to.clone()));
    }

    #[test]
    fn messages_are_cut_at_a_character() {
        let long = "ä".repeat(MAX_MESSAGE);
        assert!(cut(&long).len() <= MAX_MESSAGE);
        assert_eq!(cut("short"), "short");
    }
}
