//! Cells of virtual clusters as reservations carry them: which leaf cells each pod of a job has, and which nodes of a
//! member are cells.
//!
//! This is all that a restart of the controller has: [`CellGroup`] says what was asked for and what was given.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A group of pods that got its cells as a whole.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CellGroup {
    /// Unique in the fleet: the job's binding, and the group in it.
    #[schemars(length(max = 1024))]
    pub name: String,
    /// The virtual cluster that it belongs to.
    pub virtual_cluster: String,
    /// -1 is opportunistic, 0 to 1000 guaranteed.
    pub priority: i32,
    /// The group as it was asked for, in HiveD's words (`GroupRequest` of the room of cells).
    #[schemars(schema_with = "crate::schema::any_object")]
    pub request: Value,
    /// Type of the top cell that the leaf cells are part of.
    pub cell_chain: String,
    /// Type of its leaf cells.
    pub leaf_cell_type: String,
    /// One for each pod of the group, by its number in the group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<CellPlace>,
    /// It lost its promise and goes on as an opportunistic group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lazily_preempted: Option<LazilyPreempted>,
}

/// Leaf cells of one pod.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CellPlace {
    /// Component of the job.
    pub component: String,
    /// The pod's index in its component.
    #[serde(default)]
    pub index: i64,
    /// Empty once the pod has ended and its cells are another's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// Numbers of the devices in the node, in order of the cell tree.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaf_cells: Vec<i32>,
    /// Type of the promised cell that they are part of; empty for opportunistic pods.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cell_type: String,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LazilyPreempted {
    /// The group that took its promise, or what else did.
    pub by: String,
    /// Milliseconds since 1970.
    pub at_ms: i64,
}

/// Name prefix of the reservations that keep whole nodes of a member for cells.
pub const CELL_NODES_PREFIX: &str = "cell-nodes-";
