//! Virtual clusters (`fleet.dev/v1alpha1`, cluster-scoped): the CellConfiguration that an administrator writes, and a
//! VirtualCluster for each of its virtual clusters, which the controller makes.
//!
//! `fleet-cells` interprets the configuration; [`read`] converts one to the other. Deliberately absent: who
//! has which cell. That is on the jobs' bindings ([`CellBinding`]), as HiveD has it on bound pods.

pub mod access;
pub mod class;
pub mod read;
#[cfg(feature = "schemas")]
mod schema;
pub mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
#[cfg(feature = "schemas")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use access::{AccessRules, VcAccess};
#[cfg(feature = "schemas")]
pub(crate) use schema::NESTED;

/// Name of the CellConfiguration that `fleet vc apply` writes.
pub const CONFIGURATION_NAME: &str = "cells";

#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[cfg_attr(not(feature = "schemas"), kube(schema = "disabled"))]
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
    /// The hardware: SKU types, cell types and trees of physical cells, as in HiveD's file.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "schema::physical_cluster"))]
    pub physical_cluster: Value,
    /// Virtual clusters by name: the cells that each is promised, as in HiveD's file.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "schema::virtual_clusters"))]
    pub virtual_clusters: Value,
    /// Who may use which virtual cluster, by its name (docs/operations.md, "Who may use which virtual
    /// cluster"). A virtual cluster without an entry is open to everybody.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(extend("maxProperties" = 1_000)))]
    pub access: AccessRules,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CellConfigurationStatus {
    /// The configuration in force, if this object provides it: that of the spec, or while the spec is invalid
    /// the last valid one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force: Option<CellsInForce>,
    /// Virtual clusters of the configuration in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_clusters: Option<i64>,
    /// Nodes of the configuration in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<i64>,
    /// Bad nodes of the configuration in force, as CLUSTER/NODE: not ready, cordoned, or in no known member.
    /// Truncated if there are very many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(length(max = 10_000)))]
    pub bad_nodes: Vec<String>,
    /// `Valid`: the configuration of the spec is in force; if False, the message has the path of the mistake
    /// and what is in force. `NodesPermitted`: if False, the message names nodes that their member does not
    /// let the hub keep for cells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The configuration by which cells are allocated.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CellsInForce {
    /// The object's generation that it was read from.
    pub generation: i64,
    /// `spec.physicalCluster` of that generation.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::any_object"))]
    pub physical_cluster: Value,
    /// `spec.virtualClusters` of that generation.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::any_object"))]
    pub virtual_clusters: Value,
    /// `spec.access` of that generation.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::any_object"))]
    pub access: AccessRules,
}

#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[cfg_attr(not(feature = "schemas"), kube(schema = "disabled"))]
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
    /// Name in the configuration; the object's own name is the same in lower case.
    #[cfg_attr(feature = "schemas", schemars(length(max = 63)))]
    pub name: String,
    /// The CellConfiguration that promises it.
    #[cfg_attr(feature = "schemas", schemars(length(max = 253)))]
    pub configuration: String,
    /// Cells that are promised, by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(length(max = 1024)))]
    pub virtual_cells: Vec<VirtualCell>,
    /// Physical cells that are promised by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(length(max = 1024)))]
    pub pinned_cells: Vec<PinnedCell>,
    /// Who may use it; absent: everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<VcAccess>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct VirtualCell {
    /// Path of cell types, joined by dots: the chain first, the promised type last.
    #[cfg_attr(feature = "schemas", schemars(length(max = 1024)))]
    pub cell_type: String,
    /// How many of them.
    pub cell_number: i64,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PinnedCell {
    /// The pinnedCellId of a physical cell.
    #[cfg_attr(feature = "schemas", schemars(length(max = 253)))]
    pub pinned_cell_id: String,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct VirtualClusterStatus {
    /// How much of the guaranteed, good resources is in use: the largest share of GPUs, CPUs and memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<String>,
    /// GPUs: used/good, or - if none is promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// CPUs: used/good, or - if none is promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Memory: used/good, or - if none is promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Leaf cells of all types that are promised.
    #[serde(default)]
    pub guaranteed: i64,
    /// Leaf cells of all types that a guaranteed job of this virtual cluster uses.
    #[serde(default)]
    pub used: i64,
    /// Leaf cells of all types that are on bad nodes, or that the remaining good nodes cannot provide.
    #[serde(default)]
    pub bad: i64,
    /// Leaf cells of all types that opportunistic jobs of others use.
    #[serde(default)]
    pub borrowed_out: i64,
    /// Leaf cells of all types that opportunistic jobs of this virtual cluster use.
    #[serde(default)]
    pub borrowed_in: i64,
    /// Jobs that wait, also those of which some pods wait and others run.
    #[serde(default)]
    pub waiting: i64,
    /// Jobs that have cells.
    #[serde(default)]
    pub running: i64,
    /// Leaf cells by their type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(length(max = 256)))]
    pub leaf_cells: Vec<LeafCells>,
    /// Promised cells by chain and type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(length(max = 1024)))]
    pub cells: Vec<PromisedCells>,
    /// Jobs by class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(length(max = 1002)))]
    pub jobs: Vec<ClassJobs>,
    /// Resources of the leaf cells, by the SKU types of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<VcResources>,
}

/// Leaf cells of one type, over all chains.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LeafCells {
    /// Type of the leaf cells: the SKU.
    #[cfg_attr(feature = "schemas", schemars(length(max = 253)))]
    pub cell_type: String,
    /// Promised leaf cells.
    pub guaranteed: i64,
    /// Leaf cells that a guaranteed job of this virtual cluster uses.
    pub used: i64,
    /// Leaf cells on bad nodes, or that the remaining good nodes cannot provide.
    pub bad: i64,
    /// Promised here, used by opportunistic jobs of others.
    pub borrowed_out: i64,
    /// Used by opportunistic jobs of this virtual cluster.
    pub borrowed_in: i64,
}

/// Promised cells of one type in one chain.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PromisedCells {
    /// Type of the top cells of the trees.
    #[cfg_attr(feature = "schemas", schemars(length(max = 253)))]
    pub chain: String,
    /// The promised type.
    #[cfg_attr(feature = "schemas", schemars(length(max = 253)))]
    pub cell_type: String,
    /// Promised cells.
    pub guaranteed: i64,
    /// Cells that a guaranteed job uses.
    pub used: i64,
    /// Cells on a bad node, or that the remaining good nodes cannot provide.
    pub bad: i64,
}

/// Jobs of one class.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ClassJobs {
    /// oppo, test, prod, crit, or another number from -1 to 1000.
    #[cfg_attr(feature = "schemas", schemars(length(max = 63)))]
    pub class: String,
    /// Jobs that wait, also those of which some pods wait and others run.
    pub waiting: i64,
    /// Jobs that have cells.
    pub running: i64,
}

/// Amounts of a virtual cluster, as OpenPAI's clients read them.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct VcResources {
    /// Of leaf cells in use.
    pub used: VcAmounts,
    /// Of leaf cells that are good.
    pub guaranteed: VcAmounts,
    /// Of all leaf cells.
    pub total: VcAmounts,
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct VcAmounts {
    /// GPUs.
    pub gpu: i64,
    /// CPUs.
    pub cpu: i64,
    /// Memory in MiB.
    pub memory_mb: i64,
}

/// The cells allocated to a job's groups, on its binding. A restart rebuilds them from this alone.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CellBinding {
    /// One group for a gang; one for each pod of a job whose pods start one by one.
    #[cfg_attr(feature = "schemas", schemars(length(max = 10_000)))]
    pub groups: Vec<CellGroup>,
}

/// One placed group.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CellGroup {
    /// The request: virtualCluster, priority, affinityGroup and the rest of HiveD's pod scheduling spec.
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::any_object"))]
    pub request: Value,
    /// The member cluster of its nodes, as the configuration names it; empty where it names none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(length(max = 253)))]
    pub cluster: String,
    /// Type of the top cell of its tree.
    #[cfg_attr(feature = "schemas", schemars(length(max = 253)))]
    pub cell_chain: String,
    /// Type of its leaf cells.
    #[cfg_attr(feature = "schemas", schemars(length(max = 253)))]
    pub leaf_cell_type: String,
    /// Its pods in order of the request's members.
    #[cfg_attr(feature = "schemas", schemars(length(max = 10_000)))]
    pub pods: Vec<CellPod>,
    /// Set once it has lost its promised cells and runs on as an opportunistic group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lazily_preempted: Option<LazilyPreempted>,
}

/// The cells of one pod.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CellPod {
    /// Component and index in it, such as worker-1.
    #[cfg_attr(feature = "schemas", schemars(length(max = 253)))]
    pub name: String,
    /// Its node.
    #[cfg_attr(feature = "schemas", schemars(length(max = 253)))]
    pub node: String,
    /// Numbers of its devices in the node.
    #[cfg_attr(feature = "schemas", schemars(length(max = 1024)))]
    pub leaf_cells: Vec<i32>,
    /// Type of the promised cell that contains them; empty for an opportunistic pod.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(length(max = 253)))]
    pub preassigned_cell_type: String,
}

/// Why and when a group became opportunistic.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LazilyPreempted {
    /// The group, or other cause, that took its promise.
    #[cfg_attr(feature = "schemas", schemars(length(max = 1024)))]
    pub preemptor: String,
    /// Milliseconds since 1970.
    pub at_ms: i64,
}
