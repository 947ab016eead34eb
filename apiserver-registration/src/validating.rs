//! Checks of policies that refuse objects, and of their bindings.

use super::matching::{Asked, expression};
use super::policies::{Variables, bound, frame};
use fleet_apiserver_cel::go_text;
use fleet_apiserver_cel::rules::{Known, Wanted};
use fleet_apiserver_schema::conditions;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use fleet_apiserver_schema::jsonpath::JsonPath;
use serde_json::json;
use std::collections::BTreeSet;

/// Most notes in the audit log that a policy makes.
const MOST_NOTES: usize = 20;
/// Longest expression of one, in bytes.
const LONGEST_NOTE: usize = 5 * 1024;

const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];

/// Checks a policy.
pub fn policy(new: &At) {
    let spec = new.at("spec");
    let known = frame(&spec, Variables::IfAny, |_| {});
    let (checks, notes) = (spec.at("validations"), spec.at("auditAnnotations"));
    if checks.is_empty() && notes.is_empty() {
        for list in [&checks, &notes] {
            list.required("validations or auditAnnotations must contain at least one item");
        }
    }
    // Who may do what is no part of a message.
    let of_message = known.without_authorizer();
    for check in checks.items() {
        let (judged, message) = (check.at("expression"), check.at("messageExpression"));
        let missing = "expression is not specified";
        expression(&judged, judged.text(), Asked { known: &known, wanted: Wanted::Bool, missing });
        if !message.text().is_empty() {
            let blank = message.text().trim().is_empty();
            let asked = Asked { known: &of_message, wanted: Wanted::Text, missing: "" };
            if blank {
                message.invalid("must be non-empty if specified");
            } else {
                expression(&message, message.text(), asked);
            }
        }
        worded(&check);
    }
    audit(new.at("metadata.name").text(), &notes, &known);
}

/// Checks the notes that a policy makes in the audit log.
fn audit(policy: &str, notes: &At, known: &Known) {
    if notes.len() > MOST_NOTES {
        let part = |note: &At, field: &str| go_text::json(&json!(note.at(field).text()));
        let shown = notes.items().map(|note| {
            format!(
                "{{\"Key\":{},\"ValueExpression\":{}}}",
                part(&note, "key"),
                part(&note, "valueExpression")
            )
        });
        let shown = go_text::cut(format!("[{}]", shown.collect::<Vec<_>>().join(",")));
        notes.wrong(&format!("{shown}: must not have more than {MOST_NOTES} auditAnnotations"));
    }
    let mut seen = BTreeSet::new();
    for note in notes.items() {
        let name = note.at("key");
        key(&name, policy);
        let value = note.at("valueExpression");
        let text = value.text().trim();
        if text.is_empty() {
            value.required("valueExpression is not specified");
        } else if text.len() > LONGEST_NOTE {
            value.required(&format!("must not exceed {LONGEST_NOTE} bytes in length"));
        } else if let Some(why) = known.problem(text, Wanted::TextOrNull) {
            value.invalid(&why);
        }
        if !seen.insert(name.text()) {
            name.duplicate();
        }
    }
}

/// The key of a note stands behind the name of its policy.
fn key(key: &At, policy: &str) {
    let whole = format!("{policy}/{}", key.text());
    if policy.is_empty() {
        key.note(Cause::invalid(key.path(), &json!(key.text()), "requires metadata.name be non-empty"));
    } else {
        key.qualified_as(&whole);
    }
}

/// The words of a check, and the reason it refuses for.
fn worded(check: &At) {
    let message = check.at("message");
    let text = message.text().trim();
    if text.is_empty() && !message.text().is_empty() {
        message.invalid("must be non-empty if specified");
    } else if text.contains(['\n', '\r']) {
        message.invalid("must not contain line breaks");
    }
    check.at("reason").if_set_one_of(&REASONS);
}

/// Checks the spec of a binding.
pub fn binding(spec: &At) {
    bound(spec);
    let list = spec.at("validationActions");
    let mut actions = BTreeSet::new();
    for action in list.items() {
        if !ACTIONS.contains(&action.text()) {
            action.unsupported(&ACTIONS);
        }
        if !actions.insert(action.text()) {
            action.duplicate();
        }
    }
    if actions.contains("Deny") && actions.contains("Warn") {
        list.invalid(
            "must not contain both Deny and Warn (repeating the same validation failure information in the API \
             response and headers serves no purpose)",
        );
    }
    if actions.is_empty() {
        list.required("at least one validation action is required");
    }
}

/// Checks the status of a policy: what the server found in its expressions.
pub fn status(status: &At) {
    for warning in status.at("typeChecking.expressionWarnings").items() {
        warning.at("warning").need();
        let place = warning.at("fieldRef");
        let text = place.text().trim();
        if text.is_empty() {
            place.required("");
        } else if JsonPath::new(text).is_none() {
            let open = text.rfind('[').is_some_and(|at| !text[at..].contains(']'));
            let why = if open { "unterminated array" } else { "unrecognized character in action" };
            place.note(Cause::invalid(place.path(), &json!(text), &format!("invalid JSONPath: {why}")));
        }
    }
    conditions::check(&status.at("conditions"));
}
