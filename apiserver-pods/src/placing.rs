//! Checks of where a pod may run: affinity, tolerations, taints, spreading.
//!
//! Inputs: parts of a pod's spec, and of nodes and volumes that name nodes the same way.

use fleet_apiserver_schema::field::At;
use fleet_apiserver_schema::validate::{self, NameRule};

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
        node_term(&preferred.at("preference"));
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

fn weight(at: &At) {
    let weight = at.at("weight");
    if !weight.number().is_some_and(|n| (1..=100).contains(&n)) {
        weight.invalid("must be in the range 1-100");
    }
}

/// Checks a selector of nodes.
pub fn node_selector(at: &At) {
    let terms = at.at("nodeSelectorTerms");
    if terms.is_empty() {
        terms.required("must have at least one node selector term");
    }
    terms.items().for_each(|term| node_term(&term));
}

fn node_term(term: &At) {
    for e in term.at("matchExpressions").items() {
        let (operator, values) = (e.at("operator"), e.at("values"));
        match operator.text() {
            "In" | "NotIn" if values.is_empty() => {
                values.required("must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
            }
            "Gt" | "Lt" if values.len() != 1 => {
                values.required("must be specified single value when `operator` is 'Lt' or 'Gt'");
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            _ => operator.invalid("not a valid selector operator"),
        }
        e.at("key").qualified();
    }
    for f in term.at("matchFields").items() {
        let (operator, values) = (f.at("operator"), f.at("values"));
        match operator.text() {
            "In" | "NotIn" if values.len() != 1 => {
                values.required(
                    "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
                );
            }
            "In" | "NotIn" => {}
            _ => operator.invalid("not a valid selector operator"),
        }
        let key = f.at("key");
        if key.text() != "metadata.name" {
            key.invalid("not a valid field selector key");
        }
    }
}

fn pod_term(term: &At) {
    term.at("labelSelector").label_selector();
    term.at("namespaceSelector").label_selector();
    for namespace in term.at("namespaces").items() {
        namespace.name(NameRule::Label);
    }
    let key = term.at("topologyKey");
    if key.text().is_empty() { key.required("can not be empty") } else { key.qualified() }
}

/// Checks tolerations.
pub fn tolerations(at: &At) {
    for t in at.items() {
        let (key, operator, value) = (t.at("key"), t.at("operator"), t.at("value"));
        let (effect, seconds) = (t.at("effect"), t.at("tolerationSeconds"));
        if !key.text().is_empty() {
            key.qualified();
        } else if operator.text() != "Exists" {
            operator.invalid(
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            );
        }
        if seconds.is_set() && effect.text() != "NoExecute" {
            effect.invalid("effect must be 'NoExecute' when `tolerationSeconds` is set");
        }
        match operator.text() {
            "" | "Equal" => {
                if !validate::is_label_value(value.text()) {
                    operator.note(fleet_apiserver_schema::error::Cause::invalid(
                        operator.path(),
                        value.value(),
                        validate::LABEL_VALUE,
                    ));
                }
            }
            "Exists" => {
                if !value.text().is_empty() {
                    operator.note(fleet_apiserver_schema::error::Cause::invalid(
                        operator.path(),
                        t.value(),
                        "value must be empty when `operator` is 'Exists'",
                    ));
                }
            }
            _ => operator.unsupported(&["Equal", "Exists"]),
        }
        effect.one_of(&["NoSchedule", "PreferNoSchedule", "NoExecute"]);
    }
}

/// Checks the taints of a node.
pub fn taints(at: &At) {
    let mut seen = std::collections::BTreeSet::new();
    for t in at.items() {
        let (key, value, effect) = (t.at("key"), t.at("value"), t.at("effect"));
        key.qualified();
        if !validate::is_label_value(value.text()) {
            value.invalid(validate::LABEL_VALUE);
        }
        effect.need_one_of(&["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        if !seen.insert((effect.text(), key.text())) {
            t.duplicate();
        }
    }
}

/// Checks the constraints of spreading.
pub fn spread(at: &At) {
    let mut seen = std::collections::BTreeSet::new();
    for c in at.items() {
        let skew = c.at("maxSkew");
        if skew.number().unwrap_or(0) <= 0 {
            skew.invalid("must be greater than zero");
        }
        let (key, when) = (c.at("topologyKey"), c.at("whenUnsatisfiable"));
        if key.text().is_empty() {
            key.required("can not be empty")
        } else {
            key.qualified()
        }
        if !matches!(when.text(), "DoNotSchedule" | "ScheduleAnyway") {
            when.unsupported(&["DoNotSchedule", "ScheduleAnyway"]);
        }
        if !seen.insert((key.text(), when.text())) {
            c.duplicate();
        }
        let least = c.at("minDomains");
        if least.number().is_some_and(|n| n <= 0) {
            least.invalid("must be greater than zero");
        }
        if least.is_set() && when.text() != "DoNotSchedule" {
            least.invalid("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway");
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            c.at(policy).one_of(&["Honor", "Ignore"]);
        }
        let selector = c.at("labelSelector");
        selector.label_selector();
        let keys = c.at("matchLabelKeys");
        if !keys.is_empty() && !selector.is_set() {
            keys.forbidden("must not be specified when labelSelector is not set");
        }
        for key in keys.items() {
            key.qualified();
            if selector.at("matchExpressions").items().any(|e| e.at("key").text() == key.text())
                || selector.at("matchLabels").value().get(key.text()).is_some()
            {
                key.invalid("exists in both matchLabelKeys and labelSelector");
            }
        }
    }
}
