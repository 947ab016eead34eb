//! Override policies as users write them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::choice::PolicyScope;
use crate::selector::{ResourceSelector, breadth};
use crate::spec::ClusterAffinity;

/// The spec of an OverridePolicy or ClusterOverridePolicy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OverrideSpec {
    /// Empty: everything in the policy's scope.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_selectors: Vec<ResourceSelector>,
    pub override_rules: Vec<OverrideRule>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OverrideRule {
    /// Absent: every cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_cluster: Option<ClusterAffinity>,
    pub overriders: Overriders,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Overriders {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub image_overrider: Vec<ImageOverrider>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command_overrider: Vec<CommandOverrider>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args_overrider: Vec<CommandOverrider>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels_overrider: Vec<MapOverrider>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub annotations_overrider: Vec<MapOverrider>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub field_overrider: Vec<FieldOverrider>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plaintext: Vec<PlaintextOverrider>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operator {
    Add,
    Remove,
    Replace,
}

/// `path` is a JSON pointer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlaintextOverrider {
    pub path: String,
    pub operator: Operator,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub value: Value,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImageOverrider {
    /// Absent: every container of every pod template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicate: Option<ImagePredicate>,
    pub component: ImageComponent,
    pub operator: Operator,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImagePredicate {
    pub path: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImageComponent {
    Registry,
    Repository,
    Tag,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandOverrider {
    pub container_name: String,
    pub operator: Operator,
    #[serde(default)]
    pub value: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MapOverrider {
    pub operator: Operator,
    #[serde(default)]
    pub value: Map<String, Value>,
}

/// Changes a document embedded as text in one field, such as a ConfigMap's `/data/config.json`. The caller changes
/// YAML, because it has a YAML module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FieldOverrider {
    pub field_path: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub json: Vec<EmbeddedOperation>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub yaml: Vec<EmbeddedOperation>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EmbeddedOperation {
    pub sub_path: String,
    pub operator: Operator,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub value: Value,
}

/// An override policy, for the rules.
#[derive(Clone, Debug, PartialEq)]
pub struct OverridePolicy {
    pub scope: PolicyScope,
    /// Empty for cluster scope.
    pub namespace: String,
    pub name: String,
    pub spec: OverrideSpec,
}

impl OverridePolicy {
    /// How many comparisons it takes to see whether it selects an object.
    pub fn breadth(&self) -> usize {
        breadth(&self.spec.resource_selectors).max(1)
    }
}

/// A rule that cannot be applied to an object it selects.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("override policy {policy}: {field} of {object}: found {found}; allowed: {allowed}")]
pub struct OverrideError {
    pub policy: String,
    pub object: String,
    pub field: String,
    pub found: String,
    pub allowed: String,
}
