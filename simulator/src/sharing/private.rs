//! The private cluster of a tenant: physical cells as many and as large as it was promised, and nothing else.

use std::collections::BTreeMap;

use fleet_cells::config::{CellType, ClusterConfig, PhysicalCell, PhysicalCluster, VirtualCluster};

/// Each promised cell lies in a tree of its own. Pinned cells are left out: jobs of a trace name none.
pub(super) fn cluster_of(config: &ClusterConfig, name: &str) -> ClusterConfig {
    let types = &config.physical_cluster.cell_types;
    let cells = config.virtual_clusters.get(name).map(|vc| vc.virtual_cells.clone()).unwrap_or_default();
    let mut trees = Vec::new();
    for cell in &cells {
        let top = cell.cell_type.split('.').next().unwrap_or_default();
        let last = cell.cell_type.rsplit('.').next().unwrap_or_default();
        let number = usize::try_from(cell.cell_number).unwrap_or(0);
        trees.extend(std::iter::repeat_n(tree(types, top, last), number));
    }
    let own = VirtualCluster { virtual_cells: cells, pinned_cells: Vec::new() };
    ClusterConfig {
        physical_cluster: PhysicalCluster {
            sku_types: BTreeMap::new(),
            cell_types: types.clone(),
            physical_cells: trees,
        },
        virtual_clusters: BTreeMap::from([(name.to_string(), own)]),
    }
}

/// A top cell that has one cell of the promised type, and no more below the levels between.
fn tree(types: &BTreeMap<String, CellType>, top: &str, promised: &str) -> PhysicalCell {
    let mut between = 0;
    let mut at = top;
    while at != promised
        && let Some(below) = types.get(at)
    {
        between += 1;
        at = &below.child_cell_type;
    }
    let mut cell = PhysicalCell::default();
    for _ in 0..between {
        cell = PhysicalCell { cell_children: vec![cell], ..PhysicalCell::default() };
    }
    PhysicalCell { cell_type: top.to_string(), ..cell }
}

/// Leaf cells that a virtual cluster was promised, without pinned cells: its quota.
pub(super) fn promised_leaves(config: &ClusterConfig, name: &str) -> i64 {
    let types = &config.physical_cluster.cell_types;
    let cells = config.virtual_clusters.get(name).map(|vc| vc.virtual_cells.as_slice()).unwrap_or_default();
    let of_cell = |path: &str| leaves(types, path.rsplit('.').next().unwrap_or_default());
    cells.iter().map(|cell| cell.cell_number.saturating_mul(of_cell(&cell.cell_type))).sum()
}

/// Leaf cells of one cell of a type.
pub(super) fn leaves(types: &BTreeMap<String, CellType>, cell_type: &str) -> i64 {
    let (mut leaves, mut at) = (1_i64, cell_type);
    // The configuration was checked: no type contains itself.
    while let Some(below) = types.get(at) {
        leaves = leaves.saturating_mul(below.child_cell_number);
        at = &below.child_cell_type;
    }
    leaves
}
