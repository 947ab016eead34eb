//! Capacity reports: the member's resources and their use. Pure.

use std::collections::BTreeMap;

use fleet_api::{
    ClusterStatus,
    cluster::{NodeShape, NodeSummary, ResourceSummary, UnusableNode},
    convert,
};
use fleet_member_state::MemberState;
use fleet_placement::{Node, summarize_named};
use fleet_resources::{ResourceName, Resources};

/// One report, without the results of discovery.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Rises with every report.
    pub sequence: i64,
    /// Highest report number that an answer to a reservation has promised.
    pub promised: i64,
    pub status: ClusterStatus,
}

/// The report of the current state; the caller sets the sequence number.
pub(crate) fn report(state: &mut MemberState) -> ClusterStatus {
    let hyper_nodes = state.hyper_node_of_each();
    let state = &*state;
    let nodes = || state.nodes().iter();
    let is_usable = |node: &&Node| node.ready && !node.unschedulable;
    let (of_cells, others): (Vec<&Node>, Vec<&Node>) =
        nodes().partition(|node| state.is_cell_node(&node.name));
    let mut names = Names { left: NODES_NAMED, hyper_nodes };
    // Cell nodes have capacity only for cells.
    let (node_shapes, idle) = names.shapes(&others);
    let cell_node_shapes = names.cell_shapes(&of_cells);
    let unusable = nodes().filter(|node| !is_usable(node));
    ClusterStatus {
        node_summary: Some(NodeSummary {
            total_num: state.nodes().len() as i64,
            ready_num: nodes().filter(|node| node.ready).count() as i64,
        }),
        resource_summary: Some(ResourceSummary {
            allocatable: sum(nodes().filter(is_usable), |node| (&node.allocatable, node.max_pods)),
            allocated: sum(nodes().filter(is_usable), |node| (&node.used, node.pods)),
            allocating: state.unbound().to_quantities(),
        }),
        node_shapes,
        cell_node_shapes,
        unusable_nodes: unusable.take(names.left).map(unusable_node).collect(),
        idle_nodes: idle.into_iter().take(names.left).map(str::to_string).collect(),
        ..ClusterStatus::default()
    }
}

/// Most node names in each part of a report; the rest of a larger member is reported as numbers only.
const NODES_NAMED: usize = 2000;
const GPU: &str = "nvidia.com/gpu";

struct Names {
    left: usize,
    hyper_nodes: BTreeMap<String, String>,
}

impl Names {
    /// Nodes by shape, those named on which something runs, and the names of the others.
    fn shapes<'n>(&mut self, nodes: &[&'n Node]) -> (Vec<NodeShape>, Vec<&'n str>) {
        let mut idle = Vec::new();
        let shapes = self.grouped(nodes).into_iter().map(|(hyper_node, shape, names)| {
            if shape.pods > 0 || shape.free != shape.allocatable {
                return self.named(hyper_node, &shape, &names);
            }
            idle.extend(names);
            NodeShape { hyper_node, ..convert::node_shape(&shape) }
        });
        (shapes.collect(), idle)
    }

    /// Nodes by shape, all named.
    fn cell_shapes(&mut self, nodes: &[&Node]) -> Vec<NodeShape> {
        let groups = self.grouped(nodes).into_iter();
        groups.map(|(hyper_node, shape, names)| self.named(hyper_node, &shape, &names)).collect()
    }

    fn named(
        &mut self,
        hyper_node: Option<String>,
        shape: &fleet_placement::NodeShape,
        names: &[&str],
    ) -> NodeShape {
        let named = names.len().min(self.left);
        self.left -= named;
        let nodes = names.iter().take(named).map(|name| (*name).to_string()).collect();
        NodeShape { nodes, hyper_node, ..convert::node_shape(shape) }
    }

    /// Each domain of the network by itself.
    fn grouped<'n>(
        &self,
        nodes: &[&'n Node],
    ) -> Vec<(Option<String>, fleet_placement::NodeShape, Vec<&'n str>)> {
        let mut domains: BTreeMap<Option<&String>, Vec<&'n Node>> = BTreeMap::new();
        for node in nodes {
            domains.entry(self.hyper_nodes.get(&node.name)).or_default().push(node);
        }
        let shapes = |(domain, nodes): (Option<&String>, Vec<&'n Node>)| {
            let found = summarize_named(nodes).into_iter();
            found.map(move |(shape, names)| (domain.cloned(), shape, names)).collect::<Vec<_>>()
        };
        domains.into_iter().flat_map(shapes).collect()
    }
}

fn unusable_node(node: &Node) -> UnusableNode {
    let reason = if node.ready { "Cordoned" } else { "NotReady" };
    UnusableNode { name: node.name.clone(), reason: reason.to_string(), gpus: node.allocatable.get(GPU) }
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
