//! Which requests webhooks and policies are about: rules, selectors, match conditions.
//!
//! Inputs: decoded registrations, defaults applied. Source: the validation of Kubernetes 1.36.

use fleet_apiserver_cel::rules::{Wanted, problem};
use fleet_apiserver_schema::field::At;
use fleet_apiserver_schema::validate::NameRule;
use std::collections::BTreeSet;

/// Variables of match conditions.
pub const CONDITION: [&str; 4] = ["object", "oldObject", "request", "authorizer"];

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const MATCH_POLICIES: [&str; 2] = ["Equivalent", "Exact"];

/// What an expression may use, what it must be, and what is wrong where it is missing, if it has to be there.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    pub variables: &'a [&'a str],
    pub wanted: Wanted,
    pub required: Option<&'a str>,
}

/// Checks an expression.
pub fn expression(at: &At, scope: Scope<'_>) {
    if at.text().trim().is_empty() {
        if let Some(why) = scope.required {
            at.required(why);
        }
    } else if let Some(why) = problem(at.text(), scope.variables, scope.wanted) {
        at.invalid(&why);
    }
}

/// Checks match conditions.
pub fn match_conditions(list: &At, variables: &[&str]) {
    /// As the real server has it.
    const MOST: usize = 64;
    if list.len() > MOST {
        list.too_many(MOST);
    }
    for condition in list.items().take(MOST) {
        let scope = Scope { variables, wanted: Wanted::Bool, required: Some("") };
        expression(&condition.at("expression"), scope);
        let name = condition.at("name");
        if name.need() {
            name.qualified();
        }
    }
    list.unique("name");
}

/// Checks what a policy or a binding is about.
pub fn match_resources(at: &At) {
    selecting(at);
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

/// Checks how kinds are matched, and the selectors of namespaces and objects.
pub fn selecting(at: &At) {
    at.at("matchPolicy").one_of(&MATCH_POLICIES);
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
    rule.at("scope").one_of(&["*", "Cluster", "Namespaced"]);
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
