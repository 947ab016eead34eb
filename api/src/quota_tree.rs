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
    printcolumn = r#"{"name":"VALID","type":"string","jsonPath":".status.conditions[?(@.type==\"Valid\")].status"}"#,
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
#[serde(rename_all = "camelCase")]
pub struct ElasticQuotaTreeStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub root: Option<QuotaNodeStatus>,
    /// The tree in force, where this object gave it: the spec's, or while that cannot be used the last one that could.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force: Option<TreeInForce>,
    /// `Valid` (the tree is usable) and `RulesKept` (False: a documented rule is broken, and which).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The tree by which jobs are admitted.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
pub struct TreeInForce {
    /// The object's generation that it was read from.
    pub generation: i64,
    /// As `spec.root` was then.
    #[schemars(schema_with = "crate::schema::any_object")]
    pub root: QuotaNode,
}

/// What a node's subtree uses (admitted, unfinished jobs) and asks for (waiting and unqueued ones included).
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
pub struct QuotaNodeStatus {
    pub name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub used: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub request: BTreeMap<String, String>,
    /// Of running jobs whose policy asks for no queue: beside `used`, and not bounded by the max.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unqueued: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::any_object_list")]
    pub children: Vec<QuotaNodeStatus>,
}

/// What is known of the trees of a hub, from their objects alone.
#[derive(Clone, Copy, Debug)]
pub struct TreeView<'t> {
    /// The object that holds the tree in force.
    pub object: &'t ElasticQuotaTree,
    /// The root by which jobs are admitted; that of `object.spec` unless that one is not usable.
    pub root: &'t QuotaNode,
    /// The generation of the object that it was read from.
    pub generation: i64,
}

/// The tree in force among those of the namespace: what a status keeps, else the oldest that is not called invalid.
pub fn in_force(trees: &[ElasticQuotaTree]) -> Option<TreeView<'_>> {
    let mut sorted: Vec<&ElasticQuotaTree> = trees.iter().collect();
    sorted.sort_by_cached_key(|tree| {
        let created = tree.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (created, tree.metadata.name.clone())
    });
    let kept = sorted.iter().find_map(|tree| {
        let kept = tree.status.as_ref()?.in_force.as_ref()?;
        Some(TreeView { object: tree, root: &kept.root, generation: kept.generation })
    });
    kept.or_else(|| {
        let object = sorted.into_iter().find(|tree| invalid(tree).is_none())?;
        let generation = object.metadata.generation.unwrap_or(0);
        Some(TreeView { object, root: &object.spec.root, generation })
    })
}

/// Why the object's tree is not in force, by its own condition.
pub fn invalid(tree: &ElasticQuotaTree) -> Option<&str> {
    let conditions = tree.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let valid = conditions.iter().find(|condition| condition.type_ == "Valid")?;
    (valid.status == "False").then_some(valid.message.as_str())
}
