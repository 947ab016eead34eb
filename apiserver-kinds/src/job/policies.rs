//! When a Job fails or succeeds before all of its pods have ended: its policies.
//!
//! Inputs: the spec of a Job, defaults applied. Source: the validation of Kubernetes 1.36.

use super::indexes;
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::field::At;
use serde_json::Value;
use std::collections::BTreeSet;

/// Most rules of a policy, and most patterns of conditions of a rule.
const MOST_RULES: usize = 20;
/// Most exit codes of a rule.
const MOST_CODES: usize = 255;
/// Longest text of indexes, in bytes.
const LONGEST_INDEXES: usize = 64 * 1024;

const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];

/// A word that has to be there and be one of these, which are told if it is not there.
fn need_one_of(at: &At, allowed: &[&str]) {
    if at.text().is_empty() {
        let list: Vec<String> = allowed.iter().map(|word| format!("{word:?}")).collect();
        at.required(&format!("valid values: [{}]", list.join(" ")));
    } else if !allowed.contains(&at.text()) {
        at.unsupported(allowed);
    }
}

/// Checks the rules by which failed pods count.
pub fn failure(spec: &At) {
    let rules = spec.at("podFailurePolicy.rules");
    if rules.len() > MOST_RULES {
        rules.too_many(MOST_RULES);
    }
    let mut containers = BTreeSet::new();
    for list in ["containers", "initContainers"] {
        let found = tree::list(spec.value(), &["template", "spec", list]);
        containers.extend(found.iter().map(|container| tree::text(container, &["name"])));
    }
    for rule in rules.items() {
        failure_rule(&rule, spec.at("backoffLimitPerIndex").is_set(), &containers);
    }
}

fn failure_rule(rule: &At, by_index: bool, containers: &BTreeSet<&str>) {
    let action = rule.at("action");
    need_one_of(&action, &ACTIONS);
    if action.text() == "FailIndex" && !by_index {
        action.invalid("requires the backoffLimitPerIndex to be set");
    }
    let (codes, conditions) = (rule.at("onExitCodes"), rule.at("onPodConditions"));
    if codes.is_set() {
        exit_codes(&codes, containers);
    }
    if conditions.len() > MOST_RULES {
        conditions.too_many(MOST_RULES);
    }
    for condition in conditions.items() {
        condition.at("type").qualified();
        need_one_of(&condition.at("status"), &STATUSES);
    }
    match (codes.is_set(), conditions.is_empty()) {
        (true, false) => rule.wrong("specifying both OnExitCodes and OnPodConditions is not supported"),
        (false, true) => rule.wrong("specifying one of OnExitCodes and OnPodConditions is required"),
        _ => {}
    }
}

fn exit_codes(codes: &At, containers: &BTreeSet<&str>) {
    let (operator, name, values) = (codes.at("operator"), codes.at("containerName"), codes.at("values"));
    need_one_of(&operator, &OPERATORS);
    if name.is_set() && !containers.contains(name.text()) {
        name.invalid("must be one of the container or initContainer names in the pod template");
    }
    if values.is_empty() {
        values.invalid("at least one value is required");
    } else if values.len() > MOST_CODES {
        values.too_many(MOST_CODES);
    }
    let (mut seen, mut last, mut ordered) = (BTreeSet::new(), i64::MIN, true);
    for value in values.items() {
        let code = value.number().unwrap_or(0);
        if operator.text() == "In" && code == 0 {
            value.invalid("must not be 0 for the In operator");
        }
        if !seen.insert(code) {
            value.duplicate();
        }
        ordered = ordered && last <= code;
        last = code;
    }
    if !ordered {
        values.invalid("must be ordered");
    }
}

/// Checks by which indexes a Job has succeeded.
pub fn success(spec: &At, indexed: bool) {
    let policy = spec.at("successPolicy");
    if !policy.is_set() {
        return;
    }
    if !indexed {
        policy.wrong(&format!("{}: requires indexed completion mode", shown_success(policy.value())));
        return;
    }
    let rules = policy.at("rules");
    if rules.is_empty() {
        rules.required("at least one rules must be specified when the successPolicy is specified");
    }
    if rules.len() > MOST_RULES {
        rules.too_many(MOST_RULES);
    }
    let completions = spec.at("completions").number().unwrap_or(0);
    for rule in rules.items() {
        success_rule(&rule, completions);
    }
}

fn success_rule(rule: &At, completions: i64) {
    let (count, text) = (rule.at("succeededCount"), rule.at("succeededIndexes"));
    if !count.is_set() && !text.is_set() {
        rule.required("at least one of succeededCount or succeededIndexes must be specified");
    }
    let mut named = 0;
    if text.is_set() {
        if text.text().len() > LONGEST_INDEXES {
            text.too_long(LONGEST_INDEXES);
        }
        match indexes::count(text.text(), completions) {
            Ok(found) => named = found,
            Err(why) => text.invalid(&format!("error parsing succeededIndexes: {why}")),
        }
    }
    count.non_negative();
    let wanted = count.number().unwrap_or(0);
    if wanted > completions {
        count.invalid(&format!(
            "must be less than or equal to {completions} (the number of specified completions)"
        ));
    }
    if text.is_set() && wanted > named {
        count.invalid(&format!(
            "must be less than or equal to {named} (the number of indexes in the specified succeededIndexes field)"
        ));
    }
}

/// A list as messages show it; one that is empty is not there.
fn shown_list(value: &Value, key: &str, item: impl Fn(&Value) -> String) -> String {
    let list = tree::list(value, &[key]);
    if list.is_empty() {
        return "null".to_string();
    }
    format!("[{}]", list.iter().map(item).collect::<Vec<_>>().join(","))
}

fn part<'a>(value: &'a Value, key: &str) -> &'a Value {
    value.get(key).unwrap_or(&Value::Null)
}

fn text(value: &Value, key: &str) -> Value {
    tree::text(value, &[key]).into()
}

/// The rules of success as messages show them.
fn shown_success(policy: &Value) -> String {
    let rule = |rule: &Value| {
        let (named, count) = (part(rule, "succeededIndexes"), part(rule, "succeededCount"));
        format!("{{\"SucceededIndexes\":{named},\"SucceededCount\":{count}}}")
    };
    format!("{{\"Rules\":{}}}", shown_list(policy, "rules", rule))
}

/// The rules of failure as messages show them.
fn shown_failure(policy: &Value) -> String {
    let condition = |condition: &Value| {
        format!("{{\"Type\":{},\"Status\":{}}}", text(condition, "type"), text(condition, "status"))
    };
    let rule = |rule: &Value| {
        let codes = part(rule, "onExitCodes");
        let shown_codes = if codes.is_null() {
            "null".to_string()
        } else {
            format!(
                "{{\"ContainerName\":{},\"Operator\":{},\"Values\":{}}}",
                part(codes, "containerName"),
                text(codes, "operator"),
                shown_list(codes, "values", Value::to_string)
            )
        };
        format!(
            "{{\"Action\":{},\"OnExitCodes\":{shown_codes},\"OnPodConditions\":{}}}",
            text(rule, "action"),
            shown_list(rule, "onPodConditions", condition)
        )
    };
    format!("{{\"Rules\":{}}}", shown_list(policy, "rules", rule))
}

/// A policy stays what it was.
pub fn lasting(spec: &At, before: &At, field: &str) {
    let (now, was) = (spec.at(field), before.at(field));
    if now.value() == was.value() {
        return;
    }
    let shown = match field {
        _ if !now.is_set() => "null".to_string(),
        "successPolicy" => shown_success(now.value()),
        _ => shown_failure(now.value()),
    };
    now.wrong(&format!("{shown}: field is immutable"));
}
