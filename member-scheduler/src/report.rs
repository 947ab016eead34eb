//! What the member offers and what of it is taken, as the Cluster's status says it. Pure.

use std::collections::BTreeMap;

use fleet_api::{
    ClusterStatus,
    cluster::{NodeShape, NodeSummary, ResourceSummary},
    convert,
};
use fleet_member_state::MemberState;
use fleet_placement::{Node, summarize_named};
use fleet_resources::{ResourceName, Resources};

/// One report, without what discovery adds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Rises with every report.
    pub sequence: i64,
    /// Highest number that an answer to a reservation has named as the one that counts it.
    pub promised: i64,
    pub status: ClusterStatus,
}

/// What the state amounts to; the sequence is for the caller to set.
pub(crate) fn report(state: &MemberState) -> ClusterStatus {
    let nodes = || state.nodes().iter();
    let usable = || nodes().filter(|node| node.ready && !node.unschedulable);
    ClusterStatus {
        node_summary: Some(NodeSummary {
            total_num: state.nodes().len() as i64,
            ready_num: nodes().filter(|node| node.ready).count() as i64,
        }),
        resource_summary: Some(ResourceSummary {
            allocatable: sum(usable(), |node| (&node.allocatable, node.max_pods)),
            allocated: sum(usable(), |node| (&node.used, node.pods)),
            allocating: state.unbound().to_quantities(),
        }),
        // Nodes of cells have no room but for cells.
        node_shapes: shapes(nodes().filter(|node| !state.is_cell_node(&node.name))),
        ..ClusterStatus::default()
    }
}

/// Names of nodes in one report at most; of a larger member the hub knows the rest as numbers.
const NODES_NAMED: usize = 2000;

/// Nodes on which something runs are named.
fn shapes<'n>(nodes: impl Iterator<Item = &'n Node>) -> Vec<NodeShape> {
    let mut left = NODES_NAMED;
    let wire = |(shape, names): (fleet_placement::NodeShape, Vec<&str>)| {
        let named = if shape.pods > 0 || shape.free != shape.allocatable { names.len().min(left) } else { 0 };
        left -= named;
        let nodes = names.into_iter().take(named).map(str::to_string).collect();
        NodeShape { nodes, ..convert::node_shape(&shape) }
    };
    summarize_named(nodes).into_iter().map(wire).collect()
}

fn sum<'n>(
    nodes: impl Iterator<Item = &'n Node>,
    amounts: impl Fn(&'n Node) -> (&'n Resources, i64),
) -> BTreeMap<String, String> {
    let mut total = Resources::new();
    let mut pods = 0;
    for node in nodes {
        let (resources, count) = amounts(node);
        total.add(resources);
        pods += count;
    }
    total.set(ResourceName::PODS, pods);
    total.to_quantities()
}
