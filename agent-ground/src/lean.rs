//! Nodes and pods as lean types: only the fields that placement needs are parsed, so that watching a whole
//! member is cheap.
//!
//! An unknown field never breaks a watch: an unknown toleration tolerates nothing, an unknown affinity term
//! matches nothing.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use fleet_resources::{QuantityError, Resources};
use k8s_openapi::{
    ClusterResourceScope, NamespaceResourceScope,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time},
};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::Value;

#[derive(Clone, Debug, Deserialize)]
pub struct LeanPod {
    #[serde(deserialize_with = "lean_meta")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: LeanPodSpec,
    #[serde(default)]
    pub status: LeanPodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeanPodSpec {
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
    /// Pod-level requests.
    pub resources: LeanRequirements,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LeanGate {
    pub name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeanContainer {
    pub resources: LeanRequirements,
    pub ports: Vec<LeanPort>,
    /// `Always` makes an init container a sidecar.
    pub restart_policy: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeanPort {
    pub container_port: i64,
    pub host_port: i64,
    #[serde(rename = "hostIP")]
    pub host_ip: String,
    pub protocol: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LeanRequirements {
    pub requests: Amounts,
    pub limits: Amounts,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeanPodStatus {
    pub phase: Option<String>,
    pub start_time: Option<Time>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct LeanNode {
    #[serde(deserialize_with = "lean_meta")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: LeanNodeSpec,
    #[serde(default)]
    pub status: LeanNodeStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LeanNodeSpec {
    pub unschedulable: bool,
    pub taints: Vec<Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LeanNodeStatus {
    pub allocatable: Amounts,
    pub conditions: Vec<LeanCondition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LeanCondition {
    pub r#type: String,
    pub status: String,
}

/// Resource name to quantity, as a string or a number.
#[derive(Clone, Debug, Default)]
pub struct Amounts(pub BTreeMap<String, String>);

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

/// A string, or a number as a string, without an intermediate tree.
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
    /// # Errors
    /// The first invalid quantity.
    pub fn parse(&self) -> Result<Resources, QuantityError> {
        Resources::parse(self.0.iter().map(|(name, text)| (name.as_str(), text.as_str())))
    }
}

impl LeanRequirements {
    /// A limit without a request is a request, as API servers default it.
    ///
    /// # Errors
    /// The first invalid quantity.
    pub fn requests(&self) -> Result<Resources, QuantityError> {
        let mut requests = self.limits.parse()?;
        for (name, amount) in self.requests.parse()?.iter() {
            requests.set(name.clone(), amount);
        }
        Ok(requests)
    }
}

/// Metadata without managed fields and the like; of the owners only the controller.
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
