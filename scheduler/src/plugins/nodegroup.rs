//! Plugin nodegroup: queues have affinity to groups of nodes, which a label names.
//!
//! If the plugin's hierarchy is on, a queue without affinity has that of the nearest queue above it. Source:
//! Volcano's plugin of that name, without its limits of resources per group.

use std::collections::BTreeSet;

use super::rules::Rules;
use crate::ids::{NodeId, PodId, QueueId};
use crate::misfit::Misfit;
use crate::node::NodeState;
use crate::node_groups::NodeGroups;
use crate::score::FULL;
use crate::settings::{ArgumentError, Hook, Settings};
use crate::state::State;

/// Label of a node: the group it belongs to.
const LABEL: &str = "volcano.sh/nodegroup-name";
const OTHER_GROUP: Misfit = Misfit::Rule("were not of the node groups of the pod's queue");

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeGroup {
    /// True: nodes without a group are for no queue. False: for queues without affinity.
    strict: bool,
    /// Affinity is inherited from queues above.
    hierarchy: bool,
}

impl Rules for NodeGroup {
    const NAME: &'static str = "nodegroup";
    const ARGUMENTS: &'static [&'static str] = &["strict"];
    const HOOKS: &'static [Hook] = &[Hook::Predicate, Hook::NodeOrder, Hook::Hierarchy];

    fn compile(settings: &Settings<'_>) -> Result<Self, ArgumentError> {
        Ok(Self { strict: settings.flag("strict", true)?, hierarchy: settings.hooks.has(Hook::Hierarchy) })
    }

    fn admits_queue(&self, state: &State, queue: QueueId, node: &NodeState) -> Result<(), Misfit> {
        let admitted = match (node.labels.get(LABEL), self.groups_of(state, queue)) {
            (Some(group), Some(groups)) => groups.allows(group),
            (None, None) => !self.strict,
            _ => false,
        };
        if admitted { Ok(()) } else { Err(OTHER_GROUP) }
    }

    fn scores_pod(&self, _: &State, _: PodId) -> bool {
        true
    }

    fn pod_score(&self, state: &State, pod: PodId, node: NodeId) -> i64 {
        let queue = state.group(state.pod(pod).group).queue;
        let group = state.nodes.get(node).labels.get(LABEL);
        let groups = self.groups_of(state, queue);
        groups.zip(group).map_or(0, |(groups, group)| score(groups, group))
    }
}

impl NodeGroup {
    fn groups_of<'s>(&self, state: &'s State, queue: QueueId) -> Option<&'s NodeGroups> {
        let above = state.queue(queue).ancestors.iter().copied().filter(|_| self.hierarchy);
        let mut groups = std::iter::once(queue).chain(above).map(|id| &state.queue(id).input.node_groups);
        groups.find(|groups| !groups.is_empty())
    }
}

fn score(groups: &NodeGroups, group: &str) -> i64 {
    if groups.rather_not.contains(group) {
        return -FULL / 100;
    }
    let part = |set: &BTreeSet<String>, score: i64| if set.contains(group) { score } else { 0 };
    part(&groups.required, FULL) + part(&groups.preferred, FULL / 2)
}
