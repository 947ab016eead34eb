//! Nodes and pods as lean types: only the fields that placing needs are read, so that a watch over a
//! whole member stays cheap.
//!
//! A field that this build does not know never breaks a watch: an unknown toleration tolerates nothing,
//! an unknown affinity term matches nothing.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use fleet_placement::{Node, NodeSelectorTerm, PodShape, Taint, Toleration};
use fleet_resources::{QuantityError, ResourceName, Resources, quantity};
use k8s_openapi::{
    ClusterResourceScope, NamespaceResourceScope,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time},
};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::Value;

use crate::lean_devices;

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LeanPod {
    #[serde(deserialize_with = "lean_meta")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: LeanPodSpec,
    #[serde(default)]
    pub status: LeanPodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LeanPodSpec {
    pub node_name: Option<String>,
    pub scheduler_name: Option<String>,
    pub priority: Option<i32>,
    pub priority_class_name: Option<String>,
    pub preemption_policy: Option<String>,
    pub topology_spread_constraints: Vec<Value>,
    pub host_network: bool,
    pub scheduling_gates: Vec<LeanGate>,
    pub node_selector: BTreeMap<String, String>,
    pub affinity: Option<Value>,
    pub tolerations: Vec<Value>,
    pub containers: Vec<LeanContainer>,
    pub init_containers: Vec<LeanContainer>,
    pub overhead: Amounts,
    /// Requests of the pod as a whole.
    pub resources: LeanRequirements,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LeanGate {
    pub name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LeanContainer {
    pub resources: LeanRequirements,
    pub ports: Vec<LeanPort>,
    /// `Always` makes an init container a sidecar.
    pub restart_policy: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LeanPort {
    pub container_port: i64,
    pub host_port: i64,
    #[serde(rename = "hostIP")]
    pub host_ip: String,
    pub protocol: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LeanRequirements {
    pub requests: Amounts,
    pub limits: Amounts,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LeanPodStatus {
    pub phase: Option<String>,
    pub start_time: Option<Time>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LeanNode {
    #[serde(deserialize_with = "lean_meta")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: LeanNodeSpec,
    #[serde(default)]
    pub status: LeanNodeStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LeanNodeSpec {
    pub unschedulable: bool,
    pub taints: Vec<Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LeanNodeStatus {
    pub allocatable: Amounts,
    pub conditions: Vec<LeanCondition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LeanCondition {
    pub r#type: String,
    pub status: String,
}

/// Resource name to quantity, as text or as a number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Amounts(pub BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Amounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Map;
        impl<'de> Visitor<'de> for Map {
            type Value = Amounts;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("quantities by resource name")
            }
            fn visit_unit<E>(self) -> Result<Amounts, E> {
                Ok(Amounts::default())
            }
            fn visit_none<E>(self) -> Result<Amounts, E> {
                Ok(Amounts::default())
            }
            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Amounts, D::Error> {
                deserializer.deserialize_map(self)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Amounts, A::Error> {
                let mut found = BTreeMap::new();
                while let Some((name, Text(text))) = map.next_entry()? {
                    found.insert(name, text);
                }
                Ok(Amounts(found))
            }
        }
        deserializer.deserialize_option(Map)
    }
}

/// A text, or a number as text: without a tree in between.
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Scalar;
        impl Visitor<'_> for Scalar {
            type Value = Text;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity, as text or as a number")
            }
            fn visit_str<E>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.to_owned()))
            }
            fn visit_string<E>(self, text: String) -> Result<Text, E> {
                Ok(Text(text))
            }
            fn visit_u64<E>(self, number: u64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }
            fn visit_i64<E>(self, number: i64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }
            fn visit_f64<E>(self, number: f64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }
        }
        deserializer.deserialize_any(Scalar)
    }
}

impl Amounts {
    fn parse(&self) -> Result<Resources, QuantityError> {
        Resources::parse(self.0.iter().map(|(name, text)| (name.as_str(), text.as_str())))
    }
}

impl LeanRequirements {
    /// A limit without a request is a request, as API servers default it.
    pub fn requests(&self) -> Result<Resources, QuantityError> {
        let mut requests = self.limits.parse()?;
        for (name, amount) in self.requests.parse()?.iter() {
            requests.set(name.clone(), amount);
        }
        Ok(requests)
    }
}

impl LeanPodSpec {
    /// What the pod asks for and where it may run.
    ///
    /// # Errors
    /// The first text that is not a quantity.
    pub fn shape(&self) -> Result<PodShape, QuantityError> {
        Ok(PodShape {
            requests: self.requests()?,
            node_selector: self.node_selector.clone(),
            node_affinity: self.required_terms(),
            tolerations: self.tolerations.iter().filter_map(read::<Toleration>).collect(),
        })
    }

    fn required_terms(&self) -> Vec<NodeSelectorTerm> {
        let terms = self.affinity.as_ref().and_then(|affinity| {
            affinity
                .pointer("/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms")?
                .as_array()
        });
        // The default term is empty and matches nothing.
        terms.into_iter().flatten().map(|term| read(term).unwrap_or_default()).collect()
    }

    /// Kubernetes' rule: the sum over containers and sidecars, or the largest step of the init
    /// containers where that is more; requests of the pod as a whole win; overhead comes on top.
    fn requests(&self) -> Result<Resources, QuantityError> {
        let mut running = Resources::new();
        for container in &self.containers {
            running.add(&container.resources.requests()?);
        }
        let mut sidecars = Resources::new();
        let mut starting = Resources::new();
        for container in &self.init_containers {
            let requests = container.resources.requests()?;
            if container.restart_policy.as_deref() == Some("Always") {
                sidecars.add(&requests);
                starting.raise_to(&sidecars);
            } else {
                starting.raise_to(&sidecars.plus(&requests));
            }
        }
        running.add(&sidecars);
        running.raise_to(&starting);
        for (name, amount) in self.resources.requests()?.iter() {
            running.set(name.clone(), amount);
        }
        running.add(&self.overhead.parse()?);
        running.set(ResourceName::PODS, 0);
        running.set(lean_devices::VGPU_PERCENT, 0);
        Ok(running)
    }
}

impl LeanNode {
    /// The node without anything on it; an allocatable text that is not a quantity counts as zero.
    pub fn read(&self) -> Node {
        let amounts = self.status.allocatable.0.iter();
        let mut allocatable: Resources = amounts
            .filter_map(|(name, text)| Some((name.as_str(), quantity::parse(name, text).ok()?)))
            .collect();
        let max_pods = allocatable.get(ResourceName::PODS);
        allocatable.set(ResourceName::PODS, 0);
        for (name, amount) in lean_devices::offered(&lean_devices::cards(self)) {
            if amount > 0 && allocatable.get(name) == 0 {
                allocatable.set(name, amount);
            }
        }
        let ready = self.status.conditions.iter().any(|c| c.r#type == "Ready" && c.status == "True");
        Node {
            name: self.metadata.name.clone().unwrap_or_default(),
            labels: self.metadata.labels.clone().unwrap_or_default(),
            taints: self.spec.taints.iter().filter_map(read::<Taint>).collect(),
            unschedulable: self.spec.unschedulable,
            ready,
            allocatable,
            used: Resources::new(),
            max_pods,
            pods: 0,
        }
    }
}

fn read<T: serde::de::DeserializeOwned>(value: &Value) -> Option<T> {
    T::deserialize(value).ok()
}

/// Metadata without managed fields and the like; of its owners the one that controls it.
fn lean_meta<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct LeanMeta {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        creation_timestamp: Option<Time>,
        deletion_timestamp: Option<Time>,
        labels: Option<BTreeMap<String, String>>,
        annotations: Option<BTreeMap<String, String>>,
        #[serde(default)]
        owner_references: Vec<OwnerReference>,
    }
    let meta = LeanMeta::deserialize(deserializer)?;
    let mut owners = meta.owner_references;
    owners.retain(|owner| owner.controller == Some(true));
    Ok(ObjectMeta {
        owner_references: Some(owners).filter(|owners| !owners.is_empty()),
        name: meta.name,
        namespace: meta.namespace,
        uid: meta.uid,
        resource_version: meta.resource_version,
        creation_timestamp: meta.creation_timestamp,
        deletion_timestamp: meta.deletion_timestamp,
        labels: meta.labels,
        annotations: meta.annotations,
        ..ObjectMeta::default()
    })
}

macro_rules! core_resource {
    ($type:ty, $scope:ty, $kind:literal, $plural:literal) => {
        impl kube::Resource for $type {
            type DynamicType = ();
            type Scope = $scope;
            fn kind((): &()) -> Cow<'_, str> {
                $kind.into()
            }
            fn group((): &()) -> Cow<'_, str> {
                "".into()
            }
            fn version((): &()) -> Cow<'_, str> {
                "v1".into()
            }
            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

core_resource!(LeanPod, NamespaceResourceScope, "Pod", "pods");
core_resource!(LeanNode, ClusterResourceScope, "Node", "nodes");

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn requests(spec: Value) -> String {
        serde_json::from_value::<LeanPodSpec>(spec).unwrap().shape().unwrap().requests.to_string()
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
        let shape = spec.shape().unwrap();
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
        let node = node.read();
        assert!(node.ready && !node.unschedulable);
        assert_eq!((node.allocatable.to_string().as_str(), node.max_pods), ("cpu 64", 110));
        assert_eq!(node.taints.len(), 1);
    }
}
