//! Where the pods of a gang go: all of them, or none and why.

use std::collections::BTreeMap;

use fleet_resources::Resources;
use serde::{Deserialize, Serialize};

use crate::gang::Gang;
use crate::node::{Node, NodeIndex};
use crate::refusal::{Refusal, refuse};
use crate::solver::Problem;

/// The nodes of each component's pods: one node name for each pod, sorted; a node occurs as often as it gets pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangPlacement {
    pub components: BTreeMap<String, Vec<String>>,
}

impl GangPlacement {
    /// Takes the places on `nodes`.
    pub fn apply(&self, nodes: &mut NodeIndex, gang: &Gang) {
        self.each(gang, |name, requests| nodes.assign(name, requests, 1));
    }

    /// Releases the places.
    pub fn undo(&self, nodes: &mut NodeIndex, gang: &Gang) {
        self.each(gang, |name, requests| nodes.unassign(name, requests, 1));
    }

    fn each(&self, gang: &Gang, mut change: impl FnMut(&str, &Resources) -> bool) {
        for component in &gang.components {
            for name in self.components.get(&component.name).into_iter().flatten() {
                change(name, &component.shape.requests);
            }
        }
    }
}

/// Places every pod of the gang, or at least each component's minimum; or says what is missing and changes nothing.
///
/// Nodes with the least capacity are filled first, so that large holes stay for large pods. Nodes with equal free
/// amounts and constraints are considered once. A gang that fits is found unless the search, which is bounded in
/// steps, gives up; on a few nodes it never does.
///
/// # Errors
/// A [`Refusal`] that says per component how many pods would fit and what the nodes lack.
pub fn place_gang(nodes: &NodeIndex, gang: &Gang) -> Result<GangPlacement, Refusal> {
    let all: Vec<&Node> = nodes.iter().collect();
    let problem = problem(&all, gang, |node| node.free(), Node::free_pods);
    let Some(counts) = problem.solve_between(&gang.minimum(), &gang.wanted()) else {
        return Err(refuse(&problem, gang));
    };
    Ok(name_places(&counts, &all, gang))
}

/// Whether the gang's minimum would fit if the nodes were empty.
pub fn fits_empty(nodes: &NodeIndex, gang: &Gang) -> bool {
    let all: Vec<&Node> = nodes.iter().collect();
    let empty = |node: &Node| node.allocatable.clone();
    let problem = problem(&all, gang, empty, |node| crate::node::free_pods(node.max_pods, 0));
    problem.solve(&gang.minimum()).is_some()
}

fn problem(
    nodes: &[&Node],
    gang: &Gang,
    free: impl Fn(&Node) -> Resources,
    free_pods: impl Fn(&Node) -> i64,
) -> Problem {
    let mut problem = Problem::new(gang);
    for (i, node) in nodes.iter().enumerate() {
        let admitted = gang.components.iter().map(|component| node.admits(&component.shape));
        problem.offer(i, 1, admitted, &free(node), free_pods(node));
    }
    problem.seal();
    problem
}

/// `counts` says, per member node, how many pods of each component it gets.
fn name_places(counts: &[(usize, Vec<i64>)], nodes: &[&Node], gang: &Gang) -> GangPlacement {
    let mut placement = GangPlacement::default();
    for (k, component) in gang.components.iter().enumerate() {
        let mut names: Vec<String> = Vec::new();
        for (node, taken) in counts {
            names.extend((0..taken[k]).map(|_| nodes[*node].name.clone()));
        }
        names.sort_unstable();
        placement.components.insert(component.name.clone(), names);
    }
    placement
}
