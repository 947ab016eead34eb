//! Virtual clusters (`fleet.dev/v1alpha1`, cluster-scoped): the CellConfiguration that an administrator writes, and a
//! VirtualCluster for each of its virtual clusters, which the controller makes.
//!
//! What the configuration means is decided by `fleet-cells`; [`read`] takes one to the other. Deliberately absent: who
//! has which cell. That stands on the jobs' bindings ([`CellBinding`]), as HiveD has it on bound pods.

pub mod access;
pub mod class;
pub mod read;
mod schema;
pub mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use access::{AccessRules, VcAccess};
pub(crate) use schema::NESTED;

/// Name of the one CellConfiguration that `fleet vc apply` writes.
pub const CONFIGURATION_NAME: &str = "cells";

#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[kube(
    group = "fleet.dev",
    version = "v1alpha1",
    kind = "CellConfiguration",
    plural = "cellconfigurations",
    shortname = "cellconfig",
    status = "CellConfigurationStatus",
    derive = "Default",
    printcolumn = r#"{"name":"VALID","type":"string","jsonPath":".status.conditions[?(@.type==\"Valid\")].status"}"#,
    printcolumn = r#"{"name":"VIRTUALCLUSTERS","type":"integer","jsonPath":".status.virtualClusters"}"#,
    printcolumn = r#"{"name":"NODES","type":"integer","jsonPath":".status.nodes"}"#,
    printcolumn = r#"{"name":"AGE","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"MESSAGE","type":"string","jsonPath":".status.conditions[?(@.type==\"Valid\")].message","priority":1}"#
)]
#[serde(rename_all = "camelCase")]
pub struct CellConfigurationSpec {
    /// What there is: SKU types, cell types and trees of physical cells, as in HiveD's file.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "schema::physical_cluster")]
    pub physical_cluster: Value,
    /// Virtual clusters by name: the cells that each is promised, as in HiveD's file.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "schema::virtual_clusters")]
    pub virtual_clusters: Value,
    /// Who may use which virtual cluster, by its name (docs/operations.md, "Who may use which virtual cluster"). One that
    /// is not named here is open to everybody.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 1_000))]
    pub access: AccessRules,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CellConfigurationStatus {
    /// The configuration in force, where this object gave it: the spec's, or while that is not valid the last one that
    /// was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force: Option<CellsInForce>,
    /// Virtual clusters of the configuration in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_clusters: Option<i64>,
    /// Nodes of the configuration in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<i64>,
    /// Nodes of the configuration in force that are bad, as CLUSTER/NODE: not ready, cordoned, or of no known member.
    /// The first ones, where there are very many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10_000))]
    pub bad_nodes: Vec<String>,
    /// `Valid`: the configuration of the spec is in force; False says at which path it is wrong, and what is in force.
    /// `NodesPermitted`: False names nodes that their member does not let the hub keep for cells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The configuration by which cells are given.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CellsInForce {
    /// The object's generation that it was read from.
    pub generation: i64,
    /// As `spec.physicalCluster` was then.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub physical_cluster: Value,
    /// As `spec.virtualClusters` was then.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub virtual_clusters: Value,
    /// As `spec.access` was then.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub access: AccessRules,
}

#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[kube(
    group = "fleet.dev",
    version = "v1alpha1",
    kind = "VirtualCluster",
    plural = "virtualclusters",
    shortname = "vc",
    status = "VirtualClusterStatus",
    derive = "Default",
    printcolumn = r#"{"name":"ALLOCATION","type":"string","jsonPath":".status.allocation"}"#,
    printcolumn = r#"{"name":"MEMORY","type":"string","jsonPath":".status.memory"}"#,
    printcolumn = r#"{"name":"CPU","type":"string","jsonPath":".status.cpu"}"#,
    printcolumn = r#"{"name":"GPU","type":"string","jsonPath":".status.gpu"}"#,
    printcolumn = r#"{"name":"BAD","type":"integer","jsonPath":".status.bad"}"#,
    printcolumn = r#"{"name":"LENT","type":"integer","jsonPath":".status.borrowedOut"}"#,
    printcolumn = r#"{"name":"BORROWED","type":"integer","jsonPath":".status.borrowedIn"}"#,
    printcolumn = r#"{"name":"WAITING","type":"integer","jsonPath":".status.waiting"}"#,
    printcolumn = r#"{"name":"RUNNING","type":"integer","jsonPath":".status.running"}"#,
    printcolumn = r#"{"name":"AGE","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct VirtualClusterSpec {
    /// Name in the configuration; the object's own name is this one in small letters.
    #[schemars(length(max = 63))]
    pub name: String,
    /// The CellConfiguration that promises it.
    #[schemars(length(max = 253))]
    pub configuration: String,
    /// Cells that are promised, by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub virtual_cells: Vec<VirtualCell>,
    /// Physical cells that are promised by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub pinned_cells: Vec<PinnedCell>,
    /// Who may use it; absent: everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<VcAccess>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualCell {
    /// Path of cell types, joined by dots: the chain first, the promised type last.
    #[schemars(length(max = 1024))]
    pub cell_type: String,
    /// How many of them.
    pub cell_number: i64,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PinnedCell {
    /// The pinnedCellId of a physical cell.
    #[schemars(length(max = 253))]
    pub pinned_cell_id: String,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualClusterStatus {
    /// How much of what is guaranteed and good is in use: the greatest share of GPUs, CPUs and memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<String>,
    /// GPUs: used/good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// CPUs: used/good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Memory: used/good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Leaf cells of all types that are promised.
    #[serde(default)]
    pub guaranteed: i64,
    /// Leaf cells of all types with a guaranteed job of this virtual cluster on them.
    #[serde(default)]
    pub used: i64,
    /// Leaf cells of all types on bad nodes, or beyond what good nodes could give now.
    #[serde(default)]
    pub bad: i64,
    /// Leaf cells of all types that opportunistic jobs of others use.
    #[serde(default)]
    pub borrowed_out: i64,
    /// Leaf cells of all types that opportunistic jobs of this virtual cluster use.
    #[serde(default)]
    pub borrowed_in: i64,
    /// Jobs that wait.
    #[serde(default)]
    pub waiting: i64,
    /// Jobs that have cells.
    #[serde(default)]
    pub running: i64,
    /// Leaf cells by their type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub leaf_cells: Vec<LeafCells>,
    /// Promised cells by chain and type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub cells: Vec<PromisedCells>,
    /// Jobs by class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1002))]
    pub jobs: Vec<ClassJobs>,
    /// What leaf cells amount to, by the SKU types of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<VcResources>,
}

/// Leaf cells of one type, over all chains.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeafCells {
    /// Type of the leaf cells: the SKU.
    #[schemars(length(max = 253))]
    pub cell_type: String,
    /// Promised.
    pub guaranteed: i64,
    /// With a guaranteed job of this virtual cluster on them.
    pub used: i64,
    /// On bad nodes, or beyond what good nodes could give now.
    pub bad: i64,
    /// Promised here, used by opportunistic jobs of others.
    pub borrowed_out: i64,
    /// Used by opportunistic jobs of this virtual cluster.
    pub borrowed_in: i64,
}

/// Promised cells of one type in one chain.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromisedCells {
    /// Type of the top cells of the trees.
    #[schemars(length(max = 253))]
    pub chain: String,
    /// The promised type.
    #[schemars(length(max = 253))]
    pub cell_type: String,
    /// Promised.
    pub guaranteed: i64,
    /// With a guaranteed job on them.
    pub used: i64,
    /// Standing on a bad node, or beyond what good nodes could give now.
    pub bad: i64,
}

/// Jobs of one class.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClassJobs {
    /// oppo, test, prod, crit, or another number of -1 to 1000.
    #[schemars(length(max = 63))]
    pub class: String,
    /// Jobs that wait.
    pub waiting: i64,
    /// Jobs that have cells.
    pub running: i64,
}

/// Amounts of a virtual cluster, as OpenPAI's clients read them.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VcResources {
    /// Of leaf cells in use.
    pub used: VcAmounts,
    /// Of leaf cells that are good.
    pub guaranteed: VcAmounts,
    /// Of all leaf cells.
    pub total: VcAmounts,
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VcAmounts {
    /// GPUs.
    pub gpu: i64,
    /// CPUs.
    pub cpu: i64,
    /// Memory in MiB.
    pub memory_mb: i64,
}

/// The cells that a job's groups were given, on its binding: all that a restart knows of them.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CellBinding {
    /// One group for a gang; one for each pod of a job whose pods start one by one.
    #[schemars(length(max = 10_000))]
    pub groups: Vec<CellGroup>,
}

/// One group as it was placed.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CellGroup {
    /// What was asked for: virtualCluster, priority, affinityGroup and the rest of HiveD's pod scheduling spec.
    #[schemars(schema_with = "crate::schema::any_object")]
    pub request: Value,
    /// The member cluster of its nodes, as the configuration names it; empty where it names none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub cluster: String,
    /// Type of the top cell of its tree.
    #[schemars(length(max = 253))]
    pub cell_chain: String,
    /// Type of its leaf cells.
    #[schemars(length(max = 253))]
    pub leaf_cell_type: String,
    /// Its pods in order of the request's members.
    #[schemars(length(max = 10_000))]
    pub pods: Vec<CellPod>,
    /// It lost its promise and goes on as an opportunistic one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lazily_preempted: Option<LazilyPreempted>,
}

/// The cells of one pod.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CellPod {
    /// Component and index in it, such as worker-1.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Its node.
    #[schemars(length(max = 253))]
    pub node: String,
    /// Numbers of its devices in the node.
    #[schemars(length(max = 1024))]
    pub leaf_cells: Vec<i32>,
    /// Type of the promised cell that they are part of; empty for an opportunistic pod.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub preassigned_cell_type: String,
}

/// Why and when a group became opportunistic.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LazilyPreempted {
    /// The group that took its promise, or what else did.
    #[schemars(length(max = 1024))]
    pub preemptor: String,
    /// Milliseconds since 1970.
    pub at_ms: i64,
}
