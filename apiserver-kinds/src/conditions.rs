//! Conditions in the form that kinds share: a type, a status, a reason, and since when.
//!
//! Inputs: a list of conditions of a status that a client writes. Absent on purpose: kinds with a form of their own.

use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const MOST_REASON: usize = 1024;
const MOST_MESSAGE: usize = 32 * 1024;
const REASON: &str = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";

/// Checks a list of conditions.
pub fn check(list: &At) {
    let mut seen = BTreeSet::new();
    for condition in list.items() {
        let kind = condition.at("type");
        if !seen.insert(kind.text()) {
            let message = format!("Duplicate value: {}", Value::from(kind.text()));
            kind.note(Cause::new("FieldValueDuplicate", kind.path(), message));
        }
        one(&condition);
    }
}

fn one(condition: &At) {
    condition.at("type").qualified();
    let status = condition.at("status");
    if !matches!(status.text(), "True" | "False" | "Unknown") {
        status.unsupported(&["False", "True", "Unknown"]);
    }
    let generation = condition.at("observedGeneration");
    if generation.number().is_some_and(|n| n < 0) {
        generation.invalid("must be greater than or equal to zero");
    }
    let since = condition.at("lastTransitionTime");
    if !since.is_set() {
        since.required("");
    }
    let reason = condition.at("reason");
    if reason.text().is_empty() {
        reason.required("");
    } else if !is_reason(reason.text()) {
        reason.note(Cause::invalid(reason.path(), &json!(reason.text()), REASON));
    }
    if reason.text().len() > MOST_REASON {
        reason.too_long(MOST_REASON);
    }
    let message = condition.at("message");
    if message.text().len() > MOST_MESSAGE {
        message.too_long(MOST_MESSAGE);
    }
}

fn is_reason(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with(word)
        && text.chars().all(|c| word(c) || matches!(c, ',' | ':'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet_apiserver_schema::field::Causes;

    fn found(list: Value) -> Vec<String> {
        let causes = Causes::default();
        let value = json!({"status": {"conditions": list}});
        check(&At::root(&value, &causes).at("status.conditions"));
        causes.into_inner().into_iter().map(|c| format!("{}: {}", c.field, c.message)).collect()
    }

    #[test]
    fn what_a_condition_has_to_say() {
        let fine = json!({"type": "Ready", "status": "True", "reason": "ReasonA:b", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        assert!(found(json!([fine])).is_empty());
        let at = "status.conditions[0]";
        let empty = found(json!([{"type": "Ready"}]));
        let wants = [
            "status: Unsupported value: \"\": supported values: \"False\", \"True\", \"Unknown\"",
            "lastTransitionTime: Required value",
            "reason: Required value",
        ];
        assert_eq!(empty, wants.map(|want| format!("{at}.{want}")));
        let mut bad = fine.clone();
        bad["reason"] = json!("1");
        bad["observedGeneration"] = json!(-1);
        let bad = found(json!([bad]));
        let generation = "observedGeneration: Invalid value: -1: must be greater than or equal to zero";
        assert_eq!(bad[0], format!("{at}.{generation}"));
        assert!(
            bad[1].starts_with(&format!("{at}.reason: Invalid value: \"1\": a condition reason must start"))
        );
        assert_eq!(found(json!([fine, fine])), ["status.conditions[1].type: Duplicate value: \"Ready\""]);
        for (text, want) in [("a", true), ("a_", true), ("a,", false), ("_a", false), ("a b", false)] {
            assert_eq!(is_reason(text), want, "{text}");
        }
    }
}
