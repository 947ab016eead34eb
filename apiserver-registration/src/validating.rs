//! Checks of policies that refuse objects, and of their bindings.

use super::matching::{Scope, expression};
use super::policies::{bound, frame, known, undeclared};
use fleet_apiserver_cel::rules::Wanted;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use fleet_apiserver_schema::validate;
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
    let declared = frame(&spec);
    let (known, _) = known(&spec);
    let (checks, notes) = (spec.at("validations"), spec.at("auditAnnotations"));
    if checks.is_empty() && notes.is_empty() {
        for list in [&checks, &notes] {
            list.required("validations or auditAnnotations must contain at least one item");
        }
    }
    let missing = Some("expression is not specified");
    for check in checks.items() {
        let (judged, message) = (check.at("expression"), check.at("messageExpression"));
        expression(&judged, Scope { variables: &known, wanted: Wanted::Bool, required: missing });
        undeclared(&judged, &declared);
        if !message.text().is_empty() && message.text().trim().is_empty() {
            message.invalid("must be non-empty if specified");
        }
        expression(&message, Scope { variables: &known, wanted: Wanted::Text, required: None });
        undeclared(&message, &declared);
        worded(&check);
    }
    if notes.len() > MOST_NOTES {
        notes.invalid(&format!("must not have more than {MOST_NOTES} auditAnnotations"));
    }
    let policy = new.at("metadata.name");
    for note in notes.items() {
        key(&note.at("key"), policy.text());
        let value = note.at("valueExpression");
        if value.text().trim().len() > LONGEST_NOTE {
            value.required(&format!("must not exceed {LONGEST_NOTE} bytes in length"));
            continue;
        }
        let required = Some("valueExpression is not specified");
        expression(&value, Scope { variables: &known, wanted: Wanted::TextOrNull, required });
        undeclared(&value, &declared);
    }
    notes.unique("key");
}

/// The key of a note stands behind the name of its policy.
fn key(key: &At, policy: &str) {
    let whole = format!("{policy}/{}", key.text());
    if policy.is_empty() {
        key.note(Cause::invalid(key.path(), &json!(key.text()), "requires metadata.name be non-empty"));
    } else if key.text().is_empty() {
        key.note(Cause::invalid(key.path(), &json!(whole), validate::NO_NAME_PART));
        key.note(Cause::invalid(key.path(), &json!(whole), validate::QUALIFIED));
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
    check.at("reason").one_of(&REASONS);
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
