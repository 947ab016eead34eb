//! Plugin nodegroup: queues have affinity to groups of nodes, which a label names.
//!
//! If the plugin's hierarchy is on, a queue without affinity has that of the nearest queue above it. Source:
//! Volcano's plugin of that name, without its limits of resources per group.

use std::collections::BTreeSet;

use crate::cluster::Cluster;
use crate::config::{ArgumentError, Hook, Plugin, read_bool};
use crate::node::NodeState;
use crate::queue::QueueId;
use crate::score::FULL;

/// Label of a node: the group it belongs to.
const LABEL: &str = "volcano.sh/nodegroup-name";

/// A queue's affinity to groups of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeGroups {
    pub required: BTreeSet<String>,
    pub preferred: BTreeSet<String>,
    pub never: BTreeSet<String>,
    pub rather_not: BTreeSet<String>,
}

impl NodeGroups {
    pub fn is_empty(&self) -> bool {
        [&self.required, &self.preferred, &self.never, &self.rather_not].iter().all(|set| set.is_empty())
    }

    fn allows(&self, group: &str) -> bool {
        let wanted = self.required.contains(group) || self.preferred.contains(group);
        // A group that is only not preferred is allowed, even beside a refusal.
        (wanted && !self.never.contains(group)) || self.rather_not.contains(group)
    }

    fn score(&self, group: &str) -> i64 {
        if self.rather_not.contains(group) {
            return -FULL / 100;
        }
        let part = |set: &BTreeSet<String>, score: i64| if set.contains(group) { score } else { 0 };
        part(&self.required, FULL) + part(&self.preferred, FULL / 2)
    }
}

/// The plugin's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeGroupPolicy {
    /// True: nodes without a group are for no queue. False: for queues without affinity.
    strict: bool,
    /// Affinity is inherited from queues above.
    hierarchy: bool,
    filters: bool,
    scores: bool,
}

impl NodeGroupPolicy {
    pub(crate) fn compile(plugin: &Plugin) -> Result<Self, ArgumentError> {
        Ok(Self {
            strict: read_bool(plugin, "strict")?.unwrap_or(true),
            hierarchy: plugin.hooks.has(Hook::Hierarchy),
            filters: plugin.hooks.has(Hook::Predicate),
            scores: plugin.hooks.has(Hook::NodeOrder),
        })
    }
}

impl Cluster {
    fn node_groups_of(&self, queue: QueueId, policy: NodeGroupPolicy) -> Option<&NodeGroups> {
        let above = self.queue(queue).ancestors.iter().copied().filter(|_| policy.hierarchy);
        let mut groups = std::iter::once(queue).chain(above).map(|id| &self.queue(id).input.node_groups);
        groups.find(|groups| !groups.is_empty())
    }

    /// Whether pods of the queue may go to the node.
    pub(crate) fn in_node_group(&self, queue: QueueId, node: &NodeState) -> bool {
        let Some(policy) = self.policy.node_groups.filter(|policy| policy.filters) else { return true };
        match (node.labels.get(LABEL), self.node_groups_of(queue, policy)) {
            (Some(group), Some(groups)) => groups.allows(group),
            (None, None) => !policy.strict,
            _ => false,
        }
    }

    /// The queue's preference for the node's group; `None`: the plugin is off.
    pub(crate) fn node_group_score(&self, queue: QueueId, node: &NodeState) -> Option<i64> {
        let policy = self.policy.node_groups.filter(|policy| policy.scores)?;
        let groups = self.node_groups_of(queue, policy)?;
        Some(node.labels.get(LABEL).map_or(0, |group| groups.score(group)))
    }
}
