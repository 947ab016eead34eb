//! Defaults of a scenario.

use std::collections::BTreeSet;

use fleet_api::names;
use serde_json::{Value, json};

use super::model::{ASSUMED, Action, Manifest, Scenario};

/// PriorityClasses of the shorthand's numbers are named after them.
const PRIORITY_PREFIX: &str = "priority-";

/// The PriorityClass for a number of the shorthand; empty for 0, which needs none.
pub(super) fn priority_class(value: i64) -> String {
    match value {
        0 => String::new(),
        1.. => format!("{PRIORITY_PREFIX}{value}"),
        _ => format!("{PRIORITY_PREFIX}minus-{}", value.unsigned_abs()),
    }
}

fn value_of(class: &str) -> Option<i64> {
    let number = class.strip_prefix(PRIORITY_PREFIX)?;
    let value = match number.strip_prefix("minus-") {
        Some(number) => number.parse::<i64>().ok().map(|value| -value),
        None => number.parse().ok(),
    };
    // Only what `priority_class` writes.
    value.filter(|value| priority_class(*value) == class)
}

/// Adds the assumed policy and quota tree, and the PriorityClasses of the shorthand.
pub(super) fn fill(scenario: &mut Scenario) {
    let applied: Vec<&Manifest> = manifests(scenario).collect();
    let has = |kinds: &[&str]| applied.iter().any(|manifest| kinds.contains(&manifest.kind.as_str()));
    let mut assumed = classes(&applied);
    if !has(&["PropagationPolicy", "ClusterPropagationPolicy"]) {
        assumed.push(policy());
    }
    if !has(&["ElasticQuotaTree"]) {
        let namespaces = applied
            .iter()
            .filter(|manifest| !manifest.namespace.is_empty())
            .map(|manifest| manifest.namespace.clone());
        assumed.push(tree(namespaces.collect()));
    }
    assumed.append(&mut scenario.objects);
    scenario.objects = assumed;
}

fn manifests(scenario: &Scenario) -> impl Iterator<Item = &Manifest> {
    let applied = scenario.events.iter().filter_map(|event| match &event.action {
        Action::Apply(manifest) => Some(manifest),
        _ => None,
    });
    scenario.objects.iter().chain(applied)
}

fn classes(applied: &[&Manifest]) -> Vec<Manifest> {
    let mut named = BTreeSet::new();
    for manifest in applied {
        named_classes(&manifest.value["spec"], &mut named);
    }
    let known = |name: &str| applied.iter().any(|m| m.kind == "PriorityClass" && m.name == name);
    let missing = named.into_iter().filter(|name| !known(name));
    missing
        .filter_map(|name| {
            let value = value_of(&name)?;
            let value = json!({
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
            });
            Some(assumed("scheduling.k8s.io/v1", "PriorityClass", "", &name, value))
        })
        .collect()
}

/// Every `priorityClassName` below.
fn named_classes(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                match (key.as_str(), value) {
                    ("priorityClassName", Value::String(name)) => {
                        found.insert(name.clone());
                    }
                    _ => named_classes(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| named_classes(item, found)),
        _ => {}
    }
}

/// All job kinds, as gangs, through the queue.
fn policy() -> Manifest {
    let jobs = [
        ("kubeflow.org/v1", "PyTorchJob"),
        ("kubeflow.org/v1", "TFJob"),
        ("kubeflow.org/v2beta1", "MPIJob"),
        ("batch/v1", "Job"),
        ("batch.volcano.sh/v1alpha1", "Job"),
    ];
    let selectors: Vec<Value> =
        jobs.iter().map(|(api_version, kind)| json!({"apiVersion": api_version, "kind": kind})).collect();
    let (api_version, kind) = ("policy.one.alibabacloud.com/v1alpha1", "ClusterPropagationPolicy");
    let value = json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": ASSUMED},
        "spec": {
            "resourceSelectors": selectors,
            "suspension": {"scheduling": true},
            "placement": {"replicaScheduling": {
                "replicaSchedulingType": "Divided",
                "customSchedulingType": "Gang",
            }},
        },
    });
    assumed(api_version, kind, "", ASSUMED, value)
}

/// One leaf without bounds for every namespace of the file.
fn tree(mut namespaces: BTreeSet<String>) -> Manifest {
    namespaces.retain(|namespace| namespace != names::QUEUE_NAMESPACE);
    let (api_version, kind) = ("scheduling.sigs.k8s.io/v1beta1", "ElasticQuotaTree");
    let value = json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": ASSUMED, "namespace": names::QUOTA_NAMESPACE},
        "spec": {"root": {
            "name": "root",
            "children": [{"name": ASSUMED, "namespaces": namespaces}],
        }},
    });
    assumed(api_version, kind, names::QUOTA_NAMESPACE, ASSUMED, value)
}

fn assumed(api_version: &str, kind: &str, namespace: &str, name: &str, value: Value) -> Manifest {
    Manifest {
        line: 0,
        api_version: api_version.to_string(),
        kind: kind.to_string(),
        namespace: namespace.to_string(),
        name: name.to_string(),
        value,
        is_new: false,
    }
}
