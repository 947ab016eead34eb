//! Which requests webhooks and policies are about: rules, selectors, match conditions.
//!
//! Inputs: decoded registrations, defaults applied. Source: the validation of Kubernetes 1.36.

use fleet_apiserver_cel::rules::{Known, Wanted};
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use fleet_apiserver_schema::validate::NameRule;
use serde_json::json;
use std::collections::BTreeSet;

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];

/// What an expression may read, what it has to be, and what is said where it is missing.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    pub known: &'a Known,
    pub wanted: Wanted,
    pub missing: &'a str,
}

/// Checks the text of an expression at its place.
pub fn expression(at: &At, text: &str, asked: Asked<'_>) {
    if text.trim().is_empty() {
        at.required(asked.missing);
    } else if let Some(why) = asked.known.problem(text, asked.wanted) {
        at.note(Cause::invalid(at.path(), &json!(text), &why));
    }
}

/// Checks match conditions.
pub fn match_conditions(list: &At, known: &Known) {
    /// As the real server has it.
    const MOST: usize = 64;
    if list.len() > MOST {
        list.too_many(MOST);
    }
    let asked = Asked { known, wanted: Wanted::Bool, missing: "" };
    let mut seen = BTreeSet::new();
    for condition in list.items().take(MOST) {
        let judged = condition.at("expression");
        expression(&judged, judged.text().trim(), asked);
        let name = condition.at("name");
        if name.need() {
            name.qualified();
            if !seen.insert(name.text()) {
                name.duplicate();
            }
        }
    }
}

/// Checks what a policy or a binding is about.
pub fn match_resources(at: &At) {
    match_policy(at);
    selectors(at);
    for list in ["resourceRules", "excludeResourceRules"] {
        for rule in at.at(list).items() {
            let mut seen = BTreeSet::new();
            for name in rule.at("resourceNames").items() {
                name.name(NameRule::Path);
                if !seen.insert(name.text()) {
                    name.duplicate();
                }
            }
            self::rule(&rule);
        }
    }
}

/// Checks how kinds are matched.
pub fn match_policy(at: &At) {
    at.at("matchPolicy").if_set_one_of(&["Equivalent", "Exact"]);
}

/// Checks the selectors of namespaces and objects.
pub fn selectors(at: &At) {
    for selector in ["namespaceSelector", "objectSelector"] {
        at.at(selector).label_selector();
    }
}

/// Checks a rule.
pub fn rule(rule: &At) {
    let (operations, versions) = (rule.at("operations"), rule.at("apiVersions"));
    whole_or_parts(&operations, "operations");
    for operation in operations.items().filter(|operation| !OPERATIONS.contains(&operation.text())) {
        operation.unsupported(&OPERATIONS);
    }
    whole_or_parts(&rule.at("apiGroups"), "API groups");
    whole_or_parts(&versions, "API versions");
    for version in versions.items().filter(|version| version.text().is_empty()) {
        version.required("");
    }
    resources(&rule.at("resources"));
    rule.at("scope").if_set_one_of(&["*", "Cluster", "Namespaced"]);
}

/// A list has items, and `*` stands alone.
fn whole_or_parts(list: &At, others: &str) {
    if list.is_empty() {
        list.required("");
    } else if list.len() > 1 && list.items().any(|item| item.text() == "*") {
        list.invalid(&format!("if '*' is present, must not specify other {others}"));
    }
}

/// Resources, each with a subresource or without.
fn resources(list: &At) {
    if list.is_empty() {
        list.required("");
    }
    let (mut whole, mut everywhere) = (BTreeSet::new(), BTreeSet::new());
    let mut last = "";
    for item in list.items() {
        let text = item.text();
        if text.is_empty() {
            item.required("");
            continue;
        }
        let Some((resource, part)) = text.split_once('/') else {
            last = text;
            continue;
        };
        if whole.contains(resource) {
            item.invalid(&format!("if '{resource}/*' is present, must not specify {text}"));
        }
        if everywhere.contains(part) {
            item.invalid(&format!("if '*/{part}' is present, must not specify {text}"));
        }
        if part == "*" {
            whole.insert(resource);
        }
        if resource == "*" {
            everywhere.insert(part);
        }
    }
    let has = |one: &str| list.items().any(|item| item.text() == one);
    if list.len() > 1 && has("*/*") {
        list.invalid("if '*/*' is present, must not specify other resources");
    }
    // As there, the last one without a subresource decides.
    if has("*") && !matches!(last, "" | "*") {
        list.invalid("if '*' is present, must not specify other resources without subresources");
    }
}
