//! What jobs ask of virtual clusters, and what members say of nodes, as plain data.

use std::{collections::BTreeSet, sync::Arc};

use fleet_cells::GroupRequest;

/// What a job asks of a virtual cluster; made once and shared.
#[derive(Clone, Debug, PartialEq)]
pub struct CellJob {
    pub vc: String,
    /// -1 is opportunistic, 0 to 1000 guaranteed.
    pub class: i32,
    /// All groups start together; else each as it gets its cells.
    pub whole: bool,
    pub groups: Vec<CellGroupAsk>,
}

/// Pods that get their cells as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct CellGroupAsk {
    pub request: GroupRequest,
    /// Component and index of each pod, by its number in the group.
    pub pods: Vec<(String, i64)>,
}

/// What a member says of the nodes that are cells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellNodes {
    pub good: BTreeSet<String>,
}

/// Shared, so that a job costs little to copy.
pub type SharedCellJob = Arc<CellJob>;
