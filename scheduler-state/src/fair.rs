//! The tree of queues by which plugin drf orders them (`enableHierarchy`): by the shares of the nodes above them.
//!
//! The tree comes from the annotations `volcano.sh/hierarchy` and `volcano.sh/hierarchy-weights`. A queue without
//! them is below its `spec.parent`, with `spec.weight`. Jobs are leaves below their queue's node. A node's sum over
//! its own jobs is kept until one of them changes, so a turn costs by the changed queue and by the number of
//! queues.

use std::collections::BTreeMap;

use crate::{
    ids::QueueId,
    shares::{
        WHOLE,
        fair_tree::{Children, Fair},
    },
};

/// Levels below the root that order queues; Volcano allows five.
pub const LEVELS: usize = 6;
/// Shares that differ by less are equal.
const STEP: i64 = WHOLE / 1_000_000;
/// A saturated node comes after all nodes that can use more.
const BEHIND: i64 = 1 << 60;

/// Position of a queue in the order of the tree, level by level from the root.
pub type TreeKey = [i64; LEVELS];

#[derive(Clone, Debug, Default)]
pub struct Node {
    pub parent: Option<usize>,
    pub weight: i64,
    pub queues: Vec<QueueId>,
    /// Sum over the jobs of its own queues.
    pub own: Children,
    pub stale: bool,
}

#[derive(Clone, Debug, Default)]
pub struct FairTree {
    /// Parents come before their children; the first is the root.
    pub nodes: Vec<Node>,
    pub of_queue: BTreeMap<QueueId, usize>,
    /// Queues were added, changed or removed.
    pub restructure: bool,
    /// Dimensions of which something is left.
    pub demanding: Vec<bool>,
    pub keys: BTreeMap<QueueId, TreeKey>,
    pub changed: bool,
}

impl FairTree {
    pub fn touch(&mut self, queue: QueueId) {
        if let Some(at) = self.of_queue.get(&queue) {
            self.nodes[*at].stale = true;
            self.changed = true;
        }
    }

    pub fn key(&self, queue: QueueId) -> TreeKey {
        self.keys.get(&queue).copied().unwrap_or_default()
    }

    /// Shares of all nodes, given the sums over jobs.
    pub fn shares<'c>(
        &'c self,
        total: &[i64],
        own: impl Fn(usize) -> std::borrow::Cow<'c, Children>,
    ) -> Vec<Fair> {
        let mut sums: Vec<Children> = (0..self.nodes.len()).map(|at| own(at).into_owned()).collect();
        let mut found = vec![Fair::default(); self.nodes.len()];
        for at in (0..self.nodes.len()).rev() {
            found[at] = sums[at].node(total);
            if let Some(parent) = self.nodes[at].parent {
                sums[parent].add(&found[at]);
            }
        }
        found
    }

    pub fn key_of(&self, shares: &[Fair], at: usize) -> TreeKey {
        let mut path = Vec::new();
        let mut next = Some(at);
        while let Some(at) = next {
            path.push(at);
            next = self.nodes[at].parent;
        }
        let mut key = TreeKey::default();
        for (level, at) in path.into_iter().rev().skip(1).take(LEVELS).enumerate() {
            let (fair, weight) = (&shares[at], self.nodes[at].weight.max(1));
            // In thousandths of a step: weights up to a thousand keep shares apart.
            let weighted = (fair.share + STEP / 2) / STEP * 1_000_000 / weight;
            key[level] = weighted + if fair.saturated { BEHIND } else { 0 };
        }
        key
    }
}
