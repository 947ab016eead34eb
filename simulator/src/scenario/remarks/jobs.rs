//! Values of a job that do not count.

use std::collections::BTreeSet;

use fleet_api::names::{SIM_FAIL_ON_ANNOTATION, SIM_RESULT_ANNOTATION, SIM_RUNTIME_ANNOTATION};
use fleet_quota_tree::PREEMPTIBLE_LABEL;
use fleet_resources::{ResourceName, quantity};
use serde_json::Value;

use crate::run_plan::RunTime;

/// Classes that every cluster has.
const BUILT_IN: [&str; 2] = ["system-cluster-critical", "system-node-critical"];
/// Resources whose names have no domain.
const OWN: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pods"];

/// What else the file has.
pub(super) struct Known<'s> {
    pub classes: BTreeSet<&'s str>,
    pub clusters: BTreeSet<&'s str>,
}

/// One sentence for each value of the job that does not count.
pub(super) fn broken(value: &Value, known: &Known) -> Vec<String> {
    let mut found = Vec::new();
    let label = &value["metadata"]["labels"][PREEMPTIBLE_LABEL];
    if let Some(text) = label.as_str().filter(|text| !["true", "false"].contains(text)) {
        let field = format!("metadata.labels[{PREEMPTIBLE_LABEL}]");
        found.push(format!("{field}: found {text:?}; allowed: \"true\", \"false\"; it counts as \"true\""));
    }
    annotations(&value["metadata"], "metadata", known, &mut found);
    walk(&value["spec"], "spec", known, &mut found);
    found
}

fn walk(value: &Value, path: &str, known: &Known, found: &mut Vec<String>) {
    match value {
        Value::Object(entries) => {
            for (name, value) in entries {
                let path = format!("{path}.{name}");
                match (name.as_str(), value) {
                    ("priorityClassName", Value::String(class)) => {
                        if !known.classes.contains(class.as_str()) && !BUILT_IN.contains(&class.as_str()) {
                            let known: Vec<&str> = known.classes.iter().copied().collect();
                            let known = if known.is_empty() { "none".to_string() } else { known.join(", ") };
                            found.push(format!(
                                "{path}: found {class:?}; allowed: a PriorityClass of this file, which has {known}; \
                                 a job that names another one is refused"
                            ));
                        }
                    }
                    ("requests" | "limits", Value::Object(_)) => amounts(value, &path, found),
                    ("metadata", _) => annotations(value, &path, known, found),
                    _ => walk(value, &path, known, found),
                }
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                walk(item, &format!("{path}[{at}]"), known, found);
            }
        }
        _ => {}
    }
}

/// Amounts of resources, of a container or of a node. Limits repeat requests, so each sentence is said once.
pub(super) fn amounts(amounts: &Value, path: &str, found: &mut Vec<String>) {
    for (name, amount) in amounts.as_object().into_iter().flatten() {
        let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_string);
        let of_kubernetes = OWN.contains(&name.as_str()) || name.starts_with("hugepages-");
        if !name.contains('/') && !of_kubernetes {
            found.push(format!(
                "{path}: found the resource {name:?}; allowed: {}, hugepages-SIZE, or a name with a domain such as \
                 nvidia.com/gpu",
                OWN.join(", ")
            ));
        }
        let milli = quantity::parse(ResourceName::CPU, &text);
        if name != ResourceName::CPU
            && milli.is_ok_and(|milli| milli % 1000 != 0)
            && let Ok(counts) = quantity::parse(name, &text)
            && !path.ends_with(".limits")
        {
            let counts = quantity::format(name, counts);
            found.push(format!(
                "{path}[{name}]: found {text}; allowed: a whole number; it counts as {counts}"
            ));
        }
    }
}

fn annotations(metadata: &Value, path: &str, known: &Known, found: &mut Vec<String>) {
    let text = |name: &str| metadata["annotations"][name].as_str();
    let field = |name: &str| format!("{path}.annotations[{name}]");
    if let Some(text) = text(SIM_RUNTIME_ANNOTATION)
        && text.parse::<RunTime>().is_err()
    {
        found.push(format!(
            "{}: found {text:?}; allowed: forever, or numbers with units h, m, s, ms, such as 90s; it is ignored",
            field(SIM_RUNTIME_ANNOTATION)
        ));
    }
    if let Some(text) = text(SIM_RESULT_ANNOTATION).filter(|text| !["succeed", "fail"].contains(text)) {
        let field = field(SIM_RESULT_ANNOTATION);
        found.push(format!("{field}: found {text:?}; allowed: succeed, fail; it counts as succeed"));
    }
    let on = text(SIM_FAIL_ON_ANNOTATION).into_iter().flat_map(|text| text.split(','));
    for name in on.map(str::trim).filter(|name| !known.clusters.contains(name)) {
        let known: Vec<&str> = known.clusters.iter().copied().collect();
        let field = field(SIM_FAIL_ON_ANNOTATION);
        found.push(format!("{field}: found {name:?}; allowed: {}; it is ignored", known.join(", ")));
    }
}
