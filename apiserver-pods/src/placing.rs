//! Checks of where a pod may run: affinity, tolerations, taints, spreading.
//!
//! Inputs: parts of a pod's spec, and of nodes and volumes that name nodes the same way.

use super::names;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What a taint does to a pod that does not tolerate it.
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Which values the expressions of a term may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Values {
    /// Those that labels can have.
    Labels,
    /// Any: what is only preferred may match nothing.
    Any,
}

/// Checks `affinity`.
pub fn affinity(at: &At) {
    if !at.is_set() {
        return;
    }
    let node = at.at("nodeAffinity");
    let needed = node.at("requiredDuringSchedulingIgnoredDuringExecution");
    if needed.is_set() {
        node_selector(&needed);
    }
    for preferred in node.at("preferredDuringSchedulingIgnoredDuringExecution").items() {
        weight(&preferred);
        node_term(&preferred.at("preference"), Values::Any);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let kind = at.at(kind);
        for term in kind.at("requiredDuringSchedulingIgnoredDuringExecution").items() {
            pod_term(&term);
        }
        for preferred in kind.at("preferredDuringSchedulingIgnoredDuringExecution").items() {
            weight(&preferred);
            pod_term(&preferred.at("podAffinityTerm"));
        }
    }
}

/// Notes what is wrong with a number that counts as 0 where it is not written.
fn number(at: &At, why: &str) {
    at.note(Cause::invalid(at.path(), &Value::from(at.number().unwrap_or(0)), why));
}

fn weight(at: &At) {
    let weight = at.at("weight");
    if !weight.number().is_some_and(|n| (1..=100).contains(&n)) {
        number(&weight, "must be in the range 1-100");
    }
}

/// Checks a selector of nodes.
pub fn node_selector(at: &At) {
    let terms = at.at("nodeSelectorTerms");
    if terms.is_empty() {
        terms.required("must have at least one node selector term");
    }
    terms.items().for_each(|term| node_term(&term, Values::Labels));
}

fn node_term(term: &At, allowed: Values) {
    for e in term.at("matchExpressions").items() {
        names::operator_and_key(&e, true);
        for value in e.at("values").items().filter(|_| allowed == Values::Labels) {
            names::tell(&value, value.text(), names::label_value(value.text()));
        }
    }
    for f in term.at("matchFields").items() {
        let (operator, values, key) = (f.at("operator"), f.at("values"), f.at("key"));
        match operator.text() {
            "In" | "NotIn" if values.len() != 1 => {
                values.required(
                    "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
                );
            }
            "In" | "NotIn" => {}
            other => names::tell_one(&operator, other, "not a valid selector operator"),
        }
        if key.text() != "metadata.name" {
            names::tell_one(&key, key.text(), "not a valid field selector key");
            continue;
        }
        values.items().for_each(|value| names::must_be_subdomain(&value));
    }
}

fn pod_term(term: &At) {
    names::selector(&term.at("labelSelector"));
    names::selector(&term.at("namespaceSelector"));
    for namespace in term.at("namespaces").items() {
        // Told at a field of no item.
        names::tell(&term.at("namespace"), namespace.text(), names::label(namespace.text()));
    }
    label_keys(term);
    let key = term.at("topologyKey");
    if key.text().is_empty() {
        key.required("can not be empty");
    }
    names::must_be_qualified(&key);
}

/// Keys of labels whose values a pod brings itself. In a pod they are merged into the selector by now, so that a key
/// which the selector had before is there twice.
fn label_keys(owner: &At) {
    let selector = owner.at("labelSelector");
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        let keys = owner.at(field);
        if !keys.is_empty() && !selector.is_set() {
            keys.forbidden("must not be specified when labelSelector is not set");
            continue;
        }
        keys.items().for_each(|key| names::must_be_qualified(&key));
    }
    let (matched, not_matched) = (owner.at("matchLabelKeys"), owner.at("mismatchLabelKeys"));
    if matched.is_empty() {
        return;
    }
    if selector.is_set() {
        let places: BTreeMap<&str, usize> =
            matched.items().enumerate().map(|(i, key)| (key.text(), i)).collect();
        let mut known: BTreeSet<&str> = selector.at("matchLabels").entries().map(|(key, _)| key).collect();
        for e in selector.at("matchExpressions").items() {
            let key = e.at("key").text();
            if !known.insert(key)
                && let Some(i) = places.get(key)
            {
                let why = "exists in both matchLabelKeys and labelSelector";
                owner.note(Cause::invalid(format!("{}[{i}]", owner.path()), &Value::from(key), why));
            }
        }
    }
    let mismatched: BTreeSet<&str> = not_matched.items().map(|other| other.text()).collect();
    for key in matched.items() {
        if mismatched.contains(key.text()) {
            key.invalid("exists in both matchLabelKeys and mismatchLabelKeys");
        }
    }
}

/// Checks tolerations.
pub fn tolerations(at: &At) {
    for t in at.items() {
        let (key, operator, value) = (t.at("key"), t.at("operator"), t.at("value"));
        let (effect, seconds) = (t.at("effect"), t.at("tolerationSeconds"));
        if !key.text().is_empty() {
            names::must_be_qualified(&key);
        } else if operator.text() != "Exists" {
            names::tell_one(
                &operator,
                operator.text(),
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            );
        }
        if seconds.is_set() && effect.text() != "NoExecute" {
            names::tell_one(
                &effect,
                effect.text(),
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            );
        }
        match operator.text() {
            "" | "Equal" => {
                let whys = names::label_value(value.text());
                if !whys.is_empty() {
                    names::tell_one(&operator, value.text(), &whys.join(";"));
                }
            }
            "Exists" if value.text().is_empty() => {}
            "Exists" => {
                let why = "value must be empty when `operator` is 'Exists'";
                names::tell_one(&operator, value.text(), why);
            }
            // Comparing is a feature that is off in this version.
            "Lt" | "Gt" => operator.unsupported(&["Equal", "Exists", "Lt", "Gt"]),
            _ => operator.unsupported(&["Equal", "Exists"]),
        }
        effect.one_of(&EFFECTS);
    }
}

/// Checks the taints of a node.
pub fn taints(at: &At) {
    let mut seen = BTreeSet::new();
    for t in at.items() {
        let (key, value, effect) = (t.at("key"), t.at("value"), t.at("effect"));
        names::must_be_qualified(&key);
        let whys = names::label_value(value.text());
        if !whys.is_empty() {
            names::tell_one(&value, value.text(), &whys.join(";"));
        }
        names::need_one_of(&effect, &EFFECTS);
        if !seen.insert((effect.text(), key.text())) {
            // The real server shows it in its own form.
            let text = |field: &At| Value::from(field.text());
            let message = format!(
                "Duplicate value: {{\"Key\":{},\"Value\":{},\"Effect\":{},\"TimeAdded\":{}}}: taints must be unique by \
                 key and effect pair",
                text(&key),
                text(&value),
                text(&effect),
                t.at("timeAdded").value(),
            );
            t.note(Cause::new("FieldValueDuplicate", t.path(), message));
        }
    }
}

/// Checks the constraints of spreading.
pub fn spread(at: &At) {
    // Where each pair is for the last time: all before are told of.
    let pair = |c: &At| (c.at("topologyKey").text().to_owned(), c.at("whenUnsatisfiable").text().to_owned());
    let last: BTreeMap<(String, String), usize> =
        at.items().enumerate().map(|(i, c)| (pair(&c), i)).collect();
    for (i, c) in at.items().enumerate() {
        let (skew, key, when) = (c.at("maxSkew"), c.at("topologyKey"), c.at("whenUnsatisfiable"));
        if skew.number().unwrap_or(0) <= 0 {
            number(&skew, "must be greater than zero");
        }
        if key.text().is_empty() {
            key.required("can not be empty");
        }
        if !matches!(when.text(), "DoNotSchedule" | "ScheduleAnyway") {
            when.unsupported(&["DoNotSchedule", "ScheduleAnyway"]);
        }
        if last.get(&pair(&c)).is_some_and(|last| *last > i) {
            let pair = c.at("{topologyKey, whenUnsatisfiable}");
            names::duplicate(&pair, &format!("{{{}, {}}}", key.text(), when.text()));
        }
        let least = c.at("minDomains");
        if least.number().is_some_and(|n| n <= 0) {
            least.invalid("must be greater than zero");
        }
        if least.is_set() && when.text() != "DoNotSchedule" {
            let why =
                format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}", when.text());
            least.invalid(&why);
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            names::if_set_one_of(&c.at(policy), &["Honor", "Ignore"]);
        }
        label_keys(&c);
        names::selector(&c.at("labelSelector"));
    }
}
