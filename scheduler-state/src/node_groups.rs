//! Affinity of queues to groups of nodes, which a label names.

use std::collections::BTreeSet;

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

    /// Whether pods may go to nodes of the group.
    pub fn allows(&self, group: &str) -> bool {
        let wanted = self.required.contains(group) || self.preferred.contains(group);
        // A group that is only not preferred is allowed, even beside a refusal.
        (wanted && !self.never.contains(group)) || self.rather_not.contains(group)
    }
}
