//! Node shapes: the nodes of a cluster, summarized so that the hub can judge a gang without seeing each node.

use std::collections::BTreeMap;

use fleet_resources::constraints::{self, Taint};
use fleet_resources::{Resources, Shortage};
use serde::{Deserialize, Serialize};

use crate::gang::{Gang, PodShape};
use crate::node::{Node, admits, free_pods};
use crate::refusal::{Refusal, refuse};
use crate::solver::Problem;

/// Nodes that are equal for placement.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeShape {
    /// Labels, except those that only name the node.
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    pub allocatable: Resources,
    /// Of one node, in base units.
    pub free: Resources,
    /// 0: no limit.
    pub max_pods: i64,
    pub pods: i64,
    /// Number of nodes of this shape.
    pub count: i64,
}

/// Labels that differ on every node: they would make each node a shape of its own.
const OWN_LABELS: &[&str] =
    &["kubernetes.io/hostname", "node.kubernetes.io/name", "csi.volume.kubernetes.io/nodeid"];

/// Ready, schedulable nodes grouped by labels, taints, allocatable and free, in
/// a stable order.
pub fn summarize<'n>(nodes: impl IntoIterator<Item = &'n Node>) -> Vec<NodeShape> {
    summarize_named(nodes).into_iter().map(|(shape, _)| shape).collect()
}

/// As [`summarize`], with the names of each shape's nodes in the order given.
pub fn summarize_named<'n>(nodes: impl IntoIterator<Item = &'n Node>) -> Vec<(NodeShape, Vec<&'n str>)> {
    let mut found: BTreeMap<NodeShape, Vec<&'n str>> = BTreeMap::new();
    for node in nodes.into_iter().filter(|node| node.ready && !node.unschedulable) {
        let mut labels = node.labels.clone();
        labels.retain(|key, value| !OWN_LABELS.contains(&key.as_str()) && *value != node.name);
        let mut taints = node.taints.clone();
        taints.sort_unstable();
        let shape = NodeShape {
            labels,
            taints,
            allocatable: node.allocatable.clone(),
            free: node.free(),
            max_pods: node.max_pods,
            pods: node.pods,
            count: 0,
        };
        found.entry(shape).or_default().push(&node.name);
    }
    let counted =
        |(shape, names): (NodeShape, Vec<&'n str>)| (NodeShape { count: names.len() as i64, ..shape }, names);
    found.into_iter().map(counted).collect()
}

/// Nodes as the shapes describe them, with made-up names, for planners that look several jobs ahead.
pub fn expand(shapes: &[NodeShape]) -> Vec<Node> {
    let mut nodes = Vec::new();
    for (i, shape) in shapes.iter().enumerate() {
        nodes.extend((0..shape.count).map(|n| Node {
            name: format!("shape-{i:05}-{n:06}"),
            labels: shape.labels.clone(),
            taints: shape.taints.clone(),
            unschedulable: false,
            ready: true,
            allocatable: shape.allocatable.clone(),
            used: shape.allocatable.minus(&shape.free),
            max_pods: shape.max_pods,
            pods: shape.pods,
        }));
    }
    nodes
}

/// Per component, how many pods go to which shape (index into the summary).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShapePlacement {
    pub components: BTreeMap<String, Vec<(usize, i64)>>,
}

/// As [`place_gang`](crate::place_gang), on a summary.
///
/// # Errors
/// A [`Refusal`], as there.
pub fn place_on_shapes(shapes: &[NodeShape], gang: &Gang) -> Result<ShapePlacement, Refusal> {
    let problem = problem(shapes, gang, |shape| (shape.free.clone(), free_pods(shape.max_pods, shape.pods)));
    let Some(counts) = problem.solve_between(&gang.minimum(), &gang.wanted()) else {
        return Err(refuse(&problem, gang));
    };
    let mut placement = ShapePlacement::default();
    for (k, component) in gang.components.iter().enumerate() {
        let mut sums: BTreeMap<usize, i64> = BTreeMap::new();
        for (shape, taken) in counts.iter().filter(|(_, taken)| taken[k] > 0) {
            *sums.entry(*shape).or_default() += taken[k];
        }
        placement.components.insert(component.name.clone(), sums.into_iter().collect());
    }
    Ok(placement)
}

/// Whether the gang's minimum would fit if the nodes were empty.
pub fn fits_shapes_empty(shapes: &[NodeShape], gang: &Gang) -> bool {
    problem(shapes, gang, |shape| (shape.allocatable.clone(), free_pods(shape.max_pods, 0)))
        .solve(&gang.minimum())
        .is_some()
}

fn problem(shapes: &[NodeShape], gang: &Gang, free: impl Fn(&NodeShape) -> (Resources, i64)) -> Problem {
    let mut problem = Problem::new(gang);
    for (i, shape) in shapes.iter().enumerate().filter(|(_, shape)| shape.count > 0) {
        let (amounts, pods) = free(shape);
        let admitted = gang.components.iter().map(|component| shape_admits(shape, &component.shape));
        problem.offer(i, shape.count, admitted, &amounts, pods);
    }
    problem.seal();
    problem
}

fn shape_admits(shape: &NodeShape, pod: &PodShape) -> bool {
    admits(pod, "", &shape.labels) && constraints::tolerates(&pod.tolerations, &shape.taints)
}

/// The sum of free amounts, to compare with a gang's total.
pub fn free_sum(shapes: &[NodeShape]) -> Resources {
    let mut sum = Resources::new();
    for shape in shapes {
        sum.add(&shape.free.scaled(shape.count));
    }
    sum
}

/// For clusters without reservations: whether the sum of free amounts covers the gang's total. It may say yes
/// although no node can hold a pod.
///
/// # Errors
/// What the sum lacks.
pub fn fits_sum(free_sum: &Resources, gang: &Gang) -> Result<(), Vec<Shortage>> {
    let short = gang.total().shortages(free_sum);
    if short.is_empty() { Ok(()) } else { Err(short) }
}

/// How many copies of the gang's minimum fit on the nodes one after the other; at most `limit`.
pub fn first_fit_counts(nodes: &[Node], gang: &Gang, limit: i64) -> i64 {
    let mut index = crate::node::NodeIndex::new(nodes.iter().cloned());
    let mut sets = 0;
    while sets < limit {
        let Ok(placement) = crate::place::place_gang(&index, gang) else { break };
        placement.apply(&mut index, gang);
        sets += 1;
    }
    sets
}
