//! Group `scheduling.sigs.k8s.io/v1beta1`: the ElasticQuotaTree, one object in kube-system.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[kube(
    group = "scheduling.sigs.k8s.io",
    version = "v1beta1",
    kind = "ElasticQuotaTree",
    plural = "elasticquotatrees",
    shortname = "eqtree",
    namespaced,
    status = "ElasticQuotaTreeStatus",
    derive = "Default",
    printcolumn = r#"{"name":"AGE","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct ElasticQuotaTreeSpec {
    #[schemars(schema_with = "crate::schema::quota_node")]
    pub root: QuotaNode,
}

/// One node of the tree. Quantities are Kubernetes quantities, numbers or strings; a missing min is
/// 0, a missing max unlimited.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
pub struct QuotaNode {
    pub name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Settings of the node, such as `fleet.dev/weight`, and who may submit to the leaves below it:
    /// `fleet.dev/submitter-namespaces` and `fleet.dev/submitters` (docs/operations.md, "Who may use which queue").
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub min: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub max: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::any_object_list")]
    pub children: Vec<QuotaNode>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
pub struct ElasticQuotaTreeStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub root: Option<QuotaNodeStatus>,
    /// `Valid` (the tree is usable) and `RulesKept` (False: a documented rule is broken, and which).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What a node's subtree uses (admitted, unfinished jobs) and asks for (waiting ones included).
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
pub struct QuotaNodeStatus {
    pub name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub used: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub request: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::any_object_list")]
    pub children: Vec<QuotaNodeStatus>,
}
