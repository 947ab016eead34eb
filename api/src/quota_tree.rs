//! Group `scheduling.sigs.k8s.io/v1beta1`: the ElasticQuotaTree, one object in kube-system.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
#[cfg(feature = "schemas")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[cfg_attr(not(feature = "schemas"), kube(schema = "disabled"))]
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
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::quota_node"))]
    pub root: QuotaNode,
}

/// One node of the tree. Quantities are Kubernetes quantities, numbers or strings; a missing min is
/// 0, a missing max unlimited.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct QuotaNode {
    pub name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Settings of the node, such as `fleet.dev/weight`, and who may submit to the leaves below it:
    /// `fleet.dev/submitter-namespaces` and `fleet.dev/submitters` (docs/operations.md, "Who may use which
    /// queue").
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub min: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub max: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::any_object_list"))]
    pub children: Vec<QuotaNode>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ElasticQuotaTreeStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::any_object"))]
    pub root: Option<QuotaNodeStatus>,
    /// The tree in force, if this object provides it: that of the spec, or while the spec is invalid the last
    /// valid one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force: Option<TreeInForce>,
    /// `Valid`: the tree is usable. `RulesKept`: False if a documented rule is broken; the message says
    /// which.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The tree by which jobs are admitted.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct TreeInForce {
    /// The object's generation that it was read from.
    pub generation: i64,
    /// `spec.root` of that generation.
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::any_object"))]
    pub root: QuotaNode,
}

/// What a node's subtree uses (admitted, unfinished jobs) and requests (including waiting and unqueued jobs).
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct QuotaNodeStatus {
    pub name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub used: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub request: BTreeMap<String, String>,
    /// Use of running jobs whose policy has no queue. Not included in `used`, and not limited by the max.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unqueued: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::any_object_list"))]
    pub children: Vec<QuotaNodeStatus>,
}

/// The state of a hub's quota trees, from their objects alone.
#[derive(Clone, Copy, Debug)]
pub struct TreeView<'t> {
    /// The object that holds the tree in force.
    pub object: &'t ElasticQuotaTree,
    /// The root by which jobs are admitted: that of `object.spec`, unless it is not usable.
    pub root: &'t QuotaNode,
    /// The generation of the object that it was read from.
    pub generation: i64,
}

/// The tree in force among those of the namespace: the one kept in a status, else the oldest that is not
/// marked invalid.
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

/// Why the object's tree is not in force, from its condition.
pub fn invalid(tree: &ElasticQuotaTree) -> Option<&str> {
    let conditions = tree.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let valid = conditions.iter().find(|condition| condition.type_ == "Valid")?;
    (valid.status == "False").then_some(valid.message.as_str())
}
