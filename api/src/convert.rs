//! Conversion between the API types and the types of the pure crates.

use std::collections::{BTreeMap, BTreeSet};

use fleet_placement::{self as placement, Gang, GangComponent, PodShape};
use fleet_policies::workload;
use fleet_resources::{QuantityError, Resources, constraints};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    binding::Component,
    cluster::{ClusterTaint, NodeShape},
};

/// Resource name under which a node shape carries the number of pods that a node can hold.
const PODS: &str = "pods";

/// Parses a resource list of an API object, name to quantity.
pub fn resources(quantities: &BTreeMap<String, String>) -> Result<Resources, QuantityError> {
    Resources::parse(quantities.iter().map(|(name, text)| (name.as_str(), text.as_str())))
}

/// A workload's component as a binding and a reservation carry it.
pub fn component(component: &workload::Component) -> Component {
    let pod = &component.pod_spec;
    let mut claim = serde_json::Map::new();
    if !pod.node_selector.is_empty() {
        claim.insert("nodeSelector".to_string(), json!(pod.node_selector));
    }
    if !pod.node_affinity.is_empty() {
        let terms = json!({"nodeSelectorTerms": pod.node_affinity});
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
        claim.insert("affinity".to_string(), affinity);
    }
    if !pod.tolerations.is_empty() {
        claim.insert("tolerations".to_string(), json!(pod.tolerations));
    }
    Component {
        name: component.name.clone(),
        replicas: component.replicas,
        request: component.requests.to_quantities(),
        node_claim: if claim.is_empty() { Value::Null } else { Value::Object(claim) },
    }
}

/// The parts of a pod spec (or of a component's node claim) that restrict where the pod may run.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct NodeClaim {
    node_selector: Option<BTreeMap<String, String>>,
    affinity: Option<Affinity>,
    tolerations: Option<Vec<constraints::Toleration>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Affinity {
    node_affinity: Option<NodeAffinity>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct NodeAffinity {
    required_during_scheduling_ignored_during_execution: Option<Terms>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Terms {
    node_selector_terms: Vec<constraints::NodeSelectorTerm>,
}

/// Requests and node constraints of a pod, from its requests and the `nodeSelector`, `affinity` and
/// `tolerations` of its spec. Fields that cannot be parsed count as absent.
pub fn pod_shape(requests: Resources, claim: &Value) -> PodShape {
    let claim = NodeClaim::deserialize(claim).unwrap_or_default();
    let terms = claim
        .affinity
        .and_then(|affinity| affinity.node_affinity)
        .and_then(|node| node.required_during_scheduling_ignored_during_execution)
        .map(|terms| terms.node_selector_terms)
        .unwrap_or_default();
    PodShape {
        requests,
        node_selector: claim.node_selector.unwrap_or_default(),
        node_affinity: terms,
        tolerations: claim.tolerations.unwrap_or_default(),
    }
}

/// The gang of a binding's or a reservation's components: all replicas of each.
pub fn gang(components: &[Component]) -> Result<Gang, QuantityError> {
    let components = components
        .iter()
        .map(|component| {
            let shape = pod_shape(resources(&component.request)?, &component.node_claim);
            Ok(GangComponent::whole(&component.name, component.replicas, shape))
        })
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Gang { components })
}

/// A node shape as a Cluster's status carries it.
pub fn node_shape(shape: &placement::NodeShape) -> NodeShape {
    let mut allocatable = shape.allocatable.to_quantities();
    let mut free = shape.free.to_quantities();
    if shape.max_pods > 0 {
        allocatable.insert(PODS.to_string(), shape.max_pods.to_string());
        free.insert(PODS.to_string(), shape.max_pods.saturating_sub(shape.pods).max(0).to_string());
    }
    NodeShape {
        count: shape.count,
        labels: shape.labels.clone(),
        taints: shape.taints.iter().map(taint_to_wire).collect(),
        allocatable,
        free,
        nodes: Vec::new(),
        hyper_node: None,
    }
}

/// Most nodes of one cluster that are planned with: the planner keeps each of them. A member that reports more does not
/// tell the truth, or has twenty times the nodes that Kubernetes supports.
pub const MOST_NODES: i64 = 100_000;

/// Most names of resources in one cluster's report that are planned with: the planner keeps an amount of each for each
/// kind of node. Nodes have a dozen or two.
pub const MOST_RESOURCES: usize = 128;

/// The names of resources in lists that a member reports, up to [`MOST_RESOURCES`], and how many names are left out. Those
/// of Kubernetes itself (`cpu`) come before others (`example.com/gpu`), and each in the order of their letters.
pub fn planned_names<'l>(
    lists: impl Iterator<Item = &'l BTreeMap<String, String>>,
) -> (BTreeSet<&'l str>, usize) {
    let mut all: BTreeSet<(bool, &str)> = BTreeSet::new();
    let mut before: Option<&BTreeMap<String, String>> = None;
    for list in lists {
        // Most nodes have the same resources.
        if before.is_none_or(|before| !before.keys().eq(list.keys())) {
            all.extend(list.keys().map(|name| (name.contains('/'), name.as_str())));
        }
        before = Some(list);
    }
    let left_out = all.len().saturating_sub(MOST_RESOURCES);
    (all.into_iter().take(MOST_RESOURCES).map(|(_, name)| name).collect(), left_out)
}

/// All lists of resources in the shapes.
pub fn lists_of(shapes: &[NodeShape]) -> impl Iterator<Item = &BTreeMap<String, String>> {
    shapes.iter().map(|shape| &shape.allocatable).chain(shapes.iter().map(|shape| &shape.free))
}

/// The node shapes of a Cluster's status, up to [`MOST_NODES`] nodes and [`MOST_RESOURCES`] names of resources.
pub fn placement_shapes(shapes: &[NodeShape]) -> Vec<placement::NodeShape> {
    let mut left = MOST_NODES;
    let (names, _) = planned_names(lists_of(shapes));
    let shapes = shapes.iter().map(|shape| {
        let mut shape = placement_shape(shape, &names);
        shape.count = shape.count.clamp(0, left);
        left -= shape.count;
        shape
    });
    shapes.collect()
}

/// A node shape from a Cluster's status, of resources with these names; quantities that cannot be parsed count as absent.
fn placement_shape(shape: &NodeShape, names: &BTreeSet<&str>) -> placement::NodeShape {
    let planned = |list: &BTreeMap<String, String>| {
        let known = list.iter().filter(|(name, _)| names.contains(name.as_str()));
        Resources::parse(known.map(|(name, text)| (name.as_str(), text.as_str()))).unwrap_or_default()
    };
    let (mut allocatable, mut free) = (planned(&shape.allocatable), planned(&shape.free));
    let max_pods = allocatable.get(PODS);
    let pods = max_pods.saturating_sub(free.get(PODS));
    allocatable.set(PODS, 0);
    free.set(PODS, 0);
    placement::NodeShape {
        labels: shape.labels.clone(),
        taints: shape.taints.iter().filter_map(taint_from_wire).collect(),
        allocatable,
        free,
        max_pods,
        pods,
        count: shape.count,
    }
}

/// A taint of a cluster or a node; `None` for an effect that does not keep pods away.
pub fn taint_from_wire(taint: &ClusterTaint) -> Option<constraints::Taint> {
    let effect = match taint.effect.as_str() {
        "NoSchedule" => constraints::TaintEffect::NoSchedule,
        "NoExecute" => constraints::TaintEffect::NoExecute,
        "PreferNoSchedule" => constraints::TaintEffect::PreferNoSchedule,
        _ => return None,
    };
    Some(constraints::Taint {
        key: taint.key.clone(),
        value: taint.value.clone().unwrap_or_default(),
        effect,
    })
}

fn taint_to_wire(taint: &constraints::Taint) -> ClusterTaint {
    ClusterTaint {
        key: taint.key.clone(),
        value: Some(taint.value.clone()).filter(|value| !value.is_empty()),
        effect: format!("{:?}", taint.effect),
        time_added: None,
    }
}

/// Whether the requests are within those that were counted.
///
/// # Errors
/// The first component that requests more, as a sentence.
pub fn within(asked: &[Component], counted: &[Component]) -> Result<(), String> {
    for component in asked.iter().filter(|component| component.replicas > 0) {
        let name = &component.name;
        let Some(known) = counted.iter().find(|known| known.name == *name) else {
            return Err(format!("component {name}: found {} replicas; counted: none", component.replicas));
        };
        if component.replicas > known.replicas {
            let (found, counted) = (component.replicas, known.replicas);
            return Err(format!("component {name}: found {found} replicas; counted: {counted}"));
        }
        let amounts = |component: &Component| resources(&component.request).unwrap_or_default();
        let (asked, counted) = (amounts(component), amounts(known));
        if let Some((resource, amount)) =
            asked.iter().find(|(name, amount)| *amount > counted.get(name.as_str()))
        {
            let counted = counted.get(resource.as_str());
            return Err(format!("component {name}: found {amount} {resource} per pod; counted: {counted}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
