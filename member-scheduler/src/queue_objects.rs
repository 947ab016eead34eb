//! Parses Queue objects.

use std::{collections::BTreeSet, sync::Arc};

use fleet_agent_ground::Object;
use fleet_resources::Resources;
use fleet_scheduler::{QueueInput, QueueState, node_groups::NodeGroups};
use serde_json::Value;

/// The scheduler's input for a Queue.
pub fn read_queue(queue: &Object) -> QueueInput {
    let spec = &queue.spec;
    let annotation = |name: &str| queue.metadata.annotations.as_ref().and_then(|all| all.get(name));
    let weights = annotation("volcano.sh/hierarchy-weights").map_or("", String::as_str).split('/');
    let path = annotation("volcano.sh/hierarchy").map_or("", String::as_str).split('/');
    let hierarchy = path
        .zip(weights.chain(std::iter::repeat("1")))
        .map(|(name, weight)| (name.to_owned(), weight.parse().unwrap_or(1).max(1)));
    QueueInput {
        name: queue.name().into(),
        weight: spec["weight"].as_i64().unwrap_or(1).max(1),
        priority: spec["priority"].as_i64().unwrap_or(0),
        parent: spec["parent"].as_str().filter(|parent| !parent.is_empty()).map(Arc::from),
        capability: amounts(&spec["capability"]),
        deserved: amounts(&spec["deserved"]),
        deserved_names: spec["deserved"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name.clone())
            .collect(),
        guarantee: amounts(&spec["guarantee"]["resource"]),
        reclaimable: spec["reclaimable"].as_bool().unwrap_or(true),
        node_groups: node_groups(&spec["affinity"]),
        fifo: spec["dequeueStrategy"] == "fifo",
        state: QueueState::read(queue.status["state"].as_str().unwrap_or_default()),
        hierarchy: hierarchy.filter(|(name, _)| !name.is_empty()).collect(),
        unreadable: hierarchy_problem(
            annotation("volcano.sh/hierarchy"),
            annotation("volcano.sh/hierarchy-weights"),
        )
        .map(Arc::from),
    }
}

fn node_groups(affinity: &Value) -> NodeGroups {
    let names = |kind: &str, how: &str| -> BTreeSet<String> {
        let list = affinity[kind][how].as_array().into_iter().flatten();
        list.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    NodeGroups {
        required: names("nodeGroupAffinity", REQUIRED),
        preferred: names("nodeGroupAffinity", PREFERRED),
        never: names("nodeGroupAntiAffinity", REQUIRED),
        rather_not: names("nodeGroupAntiAffinity", PREFERRED),
    }
}

/// Mistakes in a queue's annotations about its place in the tree of plugin drf.
fn hierarchy_problem(path: Option<&String>, weights: Option<&String>) -> Option<String> {
    let (path, weights) = match (path, weights) {
        (None, None) => return None,
        (path, weights) => (path.map_or("", String::as_str), weights.map_or("", String::as_str)),
    };
    if path.is_empty() || path.split('/').any(str::is_empty) {
        return Some(format!(
            "field metadata.annotations[volcano.sh/hierarchy]: found {path:?}; allowed: a path such as root/team/project"
        ));
    }
    let field = "field metadata.annotations[volcano.sh/hierarchy-weights]";
    let (depth, given) = (path.split('/').count(), weights.split('/').count());
    if weights.is_empty() || depth != given {
        let given = if weights.is_empty() { 0 } else { given };
        return Some(format!(
            "{field}: found {weights:?}, {given} weights for the {depth} levels of {path}; allowed: one weight per level"
        ));
    }
    let bad = weights
        .split('/')
        .find(|weight| !weight.parse::<f64>().is_ok_and(|weight| weight > 0.0 && weight.is_finite()));
    bad.map(|weight| format!("{field}: found weight {weight:?}; allowed: numbers above 0"))
}

fn amounts(list: &Value) -> Resources {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let pairs: Vec<(&String, String)> =
        list.as_object().into_iter().flatten().map(|(name, value)| (name, text(value))).collect();
    Resources::parse(pairs.iter().map(|(name, text)| (name.as_str(), text.as_str()))).unwrap_or_default()
}
