//! OverridePolicy and ClusterOverridePolicy: what is changed of objects for certain clusters.

use std::collections::BTreeMap;

use kube::CustomResource;
#[cfg(feature = "schemas")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ClusterAffinity, ResourceSelector};

/// Changes made to objects on their way to certain clusters.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[cfg_attr(not(feature = "schemas"), kube(schema = "disabled"))]
#[kube(
    group = "policy.one.alibabacloud.com",
    version = "v1alpha1",
    kind = "OverridePolicy",
    plural = "overridepolicies",
    shortname = "op",
    namespaced,
    derive = "Default",
    printcolumn = r#"{"name":"AGE","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct OverrideSpec {
    /// Empty: every object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_selectors: Vec<ResourceSelector>,
    #[cfg_attr(feature = "schemas", schemars(length(max = 64)))]
    pub override_rules: Vec<OverrideRule>,
}

/// The cluster-scoped form of [`OverridePolicy`]; applied before it.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[cfg_attr(not(feature = "schemas"), kube(schema = "disabled"))]
#[kube(
    group = "policy.one.alibabacloud.com",
    version = "v1alpha1",
    kind = "ClusterOverridePolicy",
    plural = "clusteroverridepolicies",
    shortname = "cop",
    derive = "Default",
    printcolumn = r#"{"name":"AGE","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct ClusterOverridePolicySpec {
    #[serde(flatten)]
    pub overrides: OverrideSpec,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct OverrideRule {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_cluster: Option<ClusterAffinity>,
    pub overriders: Overriders,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Overriders {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(length(max = 256)))]
    pub plaintext: Vec<PlaintextOverrider>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(length(max = 256)))]
    pub image_overrider: Vec<ImageOverrider>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(length(max = 256)))]
    pub command_overrider: Vec<CommandOverrider>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(length(max = 256)))]
    pub args_overrider: Vec<CommandOverrider>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(length(max = 256)))]
    pub labels_overrider: Vec<MapOverrider>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(length(max = 256)))]
    pub annotations_overrider: Vec<MapOverrider>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(length(max = 256)))]
    pub field_overrider: Vec<FieldOverrider>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct PlaintextOverrider {
    /// JSON pointer.
    pub path: String,
    /// `add`, `remove` or `replace`.
    pub operator: String,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::any_value"))]
    pub value: Value,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct ImageOverrider {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicate: Option<ImagePredicate>,
    /// `Registry`, `Repository` or `Tag`.
    pub component: String,
    pub operator: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct ImagePredicate {
    pub path: String,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CommandOverrider {
    pub container_name: String,
    /// `add` or `remove`.
    pub operator: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(length(max = 10_000)))]
    pub value: Vec<String>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct MapOverrider {
    pub operator: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub value: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FieldOverrider {
    pub field_path: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(length(max = 256)))]
    pub json: Vec<FieldPatch>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(length(max = 256)))]
    pub yaml: Vec<FieldPatch>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FieldPatch {
    pub sub_path: String,
    pub operator: String,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::any_value"))]
    pub value: Value,
}
