//! Cells of virtual clusters as reservations carry them: the leaf cells of each pod of a job, and the nodes
//! of a member that are cells.
//!
//! A restarted controller rebuilds the cells from this alone: [`CellGroup`] has the request and what was
//! allocated.

#[cfg(feature = "schemas")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A group of pods that got its cells as a whole.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CellGroup {
    /// Unique in the fleet: the job's binding, and the group within it.
    #[cfg_attr(feature = "schemas", schemars(length(max = 1024)))]
    pub name: String,
    /// The virtual cluster to which it belongs.
    pub virtual_cluster: String,
    /// -1 is opportunistic, 0 to 1000 guaranteed.
    pub priority: i32,
    /// The group's request in HiveD's terms (`GroupRequest` of crate `cells`).
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::any_object"))]
    pub request: Value,
    /// Type of the top cell that contains its leaf cells.
    pub cell_chain: String,
    /// Type of its leaf cells.
    pub leaf_cell_type: String,
    /// One for each pod of the group, by its number in the group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<CellPlace>,
    /// Set once it has lost its promised cells and runs on as an opportunistic group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lazily_preempted: Option<LazilyPreempted>,
    /// Set while its pods must leave their cells to another job: the member deletes them. Other pods of the job run on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempted: Option<Preempted>,
}

/// Leaf cells of one pod.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CellPlace {
    /// Component of the job.
    pub component: String,
    /// The pod's index in its component.
    #[serde(default)]
    pub index: i64,
    /// Empty once the pod has ended and its cells are allocated to another one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// Numbers of the devices in the node, in order of the cell tree.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaf_cells: Vec<i32>,
    /// Type of the promised cell that contains them; empty for opportunistic pods.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cell_type: String,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LazilyPreempted {
    /// The group, or other cause, that took its promise.
    pub by: String,
    /// Milliseconds since 1970.
    pub at_ms: i64,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Preempted {
    /// The job that gets the cells.
    pub by: String,
    /// Milliseconds since 1970.
    pub at_ms: i64,
}

/// Name prefix of the reservations that keep whole nodes of a member for cells.
pub const CELL_NODES_PREFIX: &str = "cell-nodes-";
