//! Requests of pods and capacity of nodes, as types of `placement`.

use fleet_agent_ground::lean::{LeanNode, LeanPodSpec};
use fleet_placement::{Node, NodeSelectorTerm, PodShape, Taint, Toleration};
use fleet_resources::{PodSum, QuantityError, ResourceName, Resources, quantity};
use serde_json::Value;

use crate::devices;

/// The pod's requests and node constraints.
///
/// # Errors
/// The first invalid quantity.
pub fn shape(spec: &LeanPodSpec) -> Result<PodShape, QuantityError> {
    Ok(PodShape {
        requests: requests(spec)?,
        node_selector: spec.node_selector.clone(),
        node_affinity: required_terms(spec),
        tolerations: spec.tolerations.iter().filter_map(read::<Toleration>).collect(),
    })
}

fn required_terms(spec: &LeanPodSpec) -> Vec<NodeSelectorTerm> {
    let terms = spec.affinity.as_ref().and_then(|affinity| {
        affinity
            .pointer("/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms")?
            .as_array()
    });
    // The default term is empty and matches nothing.
    terms.into_iter().flatten().map(|term| read(term).unwrap_or_default()).collect()
}

fn requests(spec: &LeanPodSpec) -> Result<Resources, QuantityError> {
    let mut sum = PodSum::default();
    for container in &spec.containers {
        sum.container(&container.resources.requests()?);
    }
    for container in &spec.init_containers {
        let requests = container.resources.requests()?;
        match container.restart_policy.as_deref() {
            Some("Always") => sum.sidecar(&requests),
            _ => sum.init(&requests),
        }
    }
    let mut asked = sum.requests(&spec.resources.requests()?, &spec.overhead.parse()?);
    asked.set(ResourceName::PODS, 0);
    asked.set(devices::VGPU_PERCENT, 0);
    Ok(asked)
}

/// The empty node; an invalid allocatable quantity counts as zero.
pub fn node(node: &LeanNode) -> Node {
    let amounts = node.status.allocatable.0.iter();
    let mut allocatable: Resources =
        amounts.filter_map(|(name, text)| Some((name.as_str(), quantity::parse(name, text).ok()?))).collect();
    let max_pods = allocatable.get(ResourceName::PODS);
    allocatable.set(ResourceName::PODS, 0);
    for (name, amount) in devices::offered(&devices::cards(node)) {
        if amount > 0 && allocatable.get(name) == 0 {
            allocatable.set(name, amount);
        }
    }
    let ready = node.status.conditions.iter().any(|c| c.r#type == "Ready" && c.status == "True");
    Node {
        name: node.metadata.name.clone().unwrap_or_default(),
        labels: node.metadata.labels.clone().unwrap_or_default(),
        taints: node.spec.taints.iter().filter_map(read::<Taint>).collect(),
        unschedulable: node.spec.unschedulable,
        ready,
        allocatable,
        used: Resources::new(),
        max_pods,
        pods: 0,
    }
}

fn read<T: serde::de::DeserializeOwned>(value: &Value) -> Option<T> {
    T::deserialize(value).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn requests(spec: Value) -> String {
        shape(&serde_json::from_value(spec).unwrap()).unwrap().requests.to_string()
    }

    #[test]
    fn requests_follow_the_rule_of_kubernetes() {
        let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let sidecar = |cpu: &str| json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
        assert_eq!(requests(json!({"containers": [container("1"), container("500m")]})), "cpu 1500m");
        assert_eq!(
            requests(json!({"containers": [container("1")], "initContainers": [container("3")]})),
            "cpu 3"
        );
        assert_eq!(
            requests(
                json!({"containers": [container("1")], "initContainers": [sidecar("1"), container("3")]})
            ),
            "cpu 4"
        );
        assert_eq!(requests(json!({"containers": [container("1")], "overhead": {"cpu": "1"}})), "cpu 2");
        assert_eq!(
            requests(json!({"containers": [{"resources": {"limits": {"nvidia.com/gpu": 8, "cpu": "2"},
                                                          "requests": {"cpu": "1"}}}]})),
            "cpu 1, nvidia.com/gpu 8"
        );
        assert_eq!(
            requests(json!({"containers": [container("1")], "resources": {"requests": {"cpu": "7"}}})),
            "cpu 7"
        );
    }

    #[test]
    fn what_is_not_known_admits_nothing() {
        let spec: LeanPodSpec = serde_json::from_value(json!({
            "tolerations": [{"key": "a", "operator": "Sometimes"}, {"operator": "Exists"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Like", "values": ["x"]}]}]
            }}},
        }))
        .unwrap();
        let shape = shape(&spec).unwrap();
        assert_eq!(shape.tolerations.len(), 1);
        assert_eq!(shape.node_affinity, [NodeSelectorTerm::default()]);
    }

    #[test]
    fn a_node_is_read() {
        let node: LeanNode = serde_json::from_value(json!({
            "metadata": {"name": "n", "labels": {"zone": "a"}, "managedFields": [{"manager": "x"}]},
            "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "64", "pods": "110"},
                       "conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap();
        let node = super::node(&node);
        assert!(node.ready && !node.unschedulable);
        assert_eq!((node.allocatable.to_string().as_str(), node.max_pods), ("cpu 64", 110));
        assert_eq!(node.taints.len(), 1);
    }
}
