//! Plugin drf over a tree of queues (`enableHierarchy`): the order of queues by the shares of the nodes above them.
//!
//! The tree comes from the annotations `volcano.sh/hierarchy` and `volcano.sh/hierarchy-weights`. A queue without
//! them is below its `spec.parent`, with `spec.weight`. Jobs are leaves below their queue's node. A node's sum over
//! its own jobs is kept until one of them changes, so a turn costs by the changed queue and by the number of
//! queues.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_quota::shares::{
    WHOLE,
    fair_tree::{self, Children, Fair},
};

use crate::amounts::{PODS, Request, get};
use crate::cluster::Cluster;
use crate::group::{Group, GroupId};
use crate::pod::{ClassId, PodId};
use crate::queue::{QueueId, ROOT_QUEUE};

/// Levels below the root that order queues; Volcano allows five.
pub const LEVELS: usize = 6;
/// Shares that differ by less are equal.
const STEP: i64 = WHOLE / 1_000_000;
/// A saturated node comes after all nodes that can use more.
const BEHIND: i64 = 1 << 60;

/// Position of a queue in the order of the tree, level by level from the root.
pub type TreeKey = [i64; LEVELS];

#[derive(Clone, Debug, Default)]
struct Node {
    parent: Option<usize>,
    weight: i64,
    queues: Vec<QueueId>,
    /// Sum over the jobs of its own queues.
    own: Children,
    stale: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct FairTree {
    /// Parents come before their children; the first is the root.
    nodes: Vec<Node>,
    of_queue: BTreeMap<QueueId, usize>,
    /// Queues were added, changed or removed.
    pub(crate) restructure: bool,
    /// Dimensions of which something is left.
    demanding: Vec<bool>,
    keys: BTreeMap<QueueId, TreeKey>,
    changed: bool,
}

/// A supposed change of what a job holds.
struct Trial<'t> {
    group: GroupId,
    request: &'t Request,
    sign: i64,
}

impl FairTree {
    pub(crate) fn touch(&mut self, queue: QueueId) {
        if let Some(at) = self.of_queue.get(&queue) {
            self.nodes[*at].stale = true;
            self.changed = true;
        }
    }

    pub(crate) fn key(&self, queue: QueueId) -> TreeKey {
        self.keys.get(&queue).copied().unwrap_or_default()
    }

    /// Shares of all nodes, given the sums over jobs.
    fn shares<'c>(
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

    fn key_of(&self, shares: &[Fair], at: usize) -> TreeKey {
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

impl Cluster {
    /// Updates the order of the tree; returns whether any queue's position may have changed.
    pub(crate) fn refresh_fair(&mut self) -> bool {
        if self.policy.fair_tree.is_none() {
            return false;
        }
        let mut tree = std::mem::take(&mut self.fair);
        if std::mem::take(&mut tree.restructure) || tree.nodes.is_empty() {
            tree = self.build_fair();
        }
        let demanding = self.demanding(|_| 0);
        if demanding != tree.demanding {
            tree.demanding = demanding;
            tree.nodes.iter_mut().for_each(|node| node.stale = true);
            tree.changed = true;
        }
        let changed = std::mem::take(&mut tree.changed);
        if changed {
            for at in 0..tree.nodes.len() {
                if std::mem::take(&mut tree.nodes[at].stale) {
                    tree.nodes[at].own = self.sum_of_jobs(&tree.nodes[at].queues, &tree.demanding, &[]);
                }
            }
            let shares =
                tree.shares(self.nodes.total(), |at| std::borrow::Cow::Borrowed(&tree.nodes[at].own));
            tree.keys = tree.of_queue.iter().map(|(queue, at)| (*queue, tree.key_of(&shares, *at))).collect();
        }
        self.fair = tree;
        changed
    }

    /// Of which dimensions something is left if `more` of each were held.
    fn demanding(&self, more: impl Fn(usize) -> i64) -> Vec<bool> {
        let total = self.nodes.total();
        let mut held = vec![0_i64; total.len()];
        for id in self.queue_ids().filter(|id| self.queue(*id).parent.is_none()) {
            held.iter_mut().enumerate().for_each(|(d, sum)| *sum += get(&self.queue(id).allocated, d));
        }
        (0..total.len()).map(|d| held[d] + more(d) < total[d]).collect()
    }

    fn build_fair(&self) -> FairTree {
        let mut tree = FairTree { changed: true, ..FairTree::default() };
        tree.nodes.push(Node { weight: 1, stale: true, ..Node::default() });
        let mut known: BTreeMap<Vec<Arc<str>>, usize> = BTreeMap::from([(Vec::new(), 0)]);
        for id in self.queue_ids() {
            let mut path: Vec<Arc<str>> = Vec::new();
            let mut at = 0;
            for (name, weight) in self.tree_path(id) {
                path.push(name);
                at = match known.get(&path) {
                    Some(at) => *at,
                    None => {
                        tree.nodes.push(Node { parent: Some(at), weight, stale: true, ..Node::default() });
                        known.insert(path.clone(), tree.nodes.len() - 1);
                        tree.nodes.len() - 1
                    }
                };
            }
            tree.nodes[at].queues.push(id);
            tree.of_queue.insert(id, at);
        }
        tree
    }

    /// Names and weights from below the root down to the queue.
    fn tree_path(&self, id: QueueId) -> Vec<(Arc<str>, i64)> {
        let input = &self.queue(id).input;
        let mut said: &[(String, i64)] = &input.hierarchy;
        if said.first().is_some_and(|(name, _)| name == ROOT_QUEUE) {
            said = &said[1..];
        }
        if !said.is_empty() {
            return said.iter().map(|(name, weight)| (Arc::from(name.as_str()), (*weight).max(1))).collect();
        }
        if &*input.name == ROOT_QUEUE {
            return Vec::new();
        }
        let named = |id: QueueId| (self.queue(id).input.name.clone(), self.queue(id).input.weight.max(1));
        let mut path: Vec<(Arc<str>, i64)> = self.lineage(id).into_iter().map(named).collect();
        path.reverse();
        path.retain(|(name, _)| &**name != ROOT_QUEUE);
        path
    }

    fn sum_of_jobs(&self, queues: &[QueueId], demanding: &[bool], trials: &[Trial<'_>]) -> Children {
        let total = self.nodes.total();
        let mut sum = Children::default();
        for id in queues.iter().flat_map(|queue| self.queue(*queue).groups.iter()) {
            let group = self.group(*id);
            let mine = || trials.iter().filter(|trial| trial.group == *id);
            if mine().next().is_none() {
                sum.add(&fair_tree::job(total, demanding, &group.allocated, asked(group), PODS + 1));
                continue;
            }
            let mut allocated = group.allocated.clone();
            mine().for_each(|trial| crate::amounts::add(&mut allocated, trial.request, 1, trial.sign));
            sum.add(&fair_tree::job(total, demanding, &allocated, asked(group), PODS + 1));
        }
        sum
    }

    /// Pods of queues that would still come after the preemptor's queue, with the preemptor placed and the pod
    /// evicted. Each is judged on its own.
    pub(crate) fn behind_in_tree(&self, taker: PodId, candidates: &[PodId]) -> Vec<PodId> {
        let group = self.pod(taker).group;
        let asked = self.request_of(taker);
        let mut known: BTreeMap<(GroupId, ClassId), bool> = BTreeMap::new();
        let mut found = Vec::new();
        for victim in candidates {
            let pod = self.pod(*victim);
            let allowed = *known.entry((pod.group, pod.class)).or_insert_with(|| {
                let given = self.request_of(*victim);
                let trials = [
                    Trial { group, request: &asked, sign: 1 },
                    Trial { group: pod.group, request: &given, sign: -1 },
                ];
                let own = self.group(group).queue;
                self.precedes(own, self.group(pod.group).queue, &trials)
            });
            if allowed {
                found.push(*victim);
            }
        }
        found
    }

    /// Whether `own` would come strictly before `other` after these changes.
    fn precedes(&self, own: QueueId, other: QueueId, trials: &[Trial<'_>]) -> bool {
        let (Some(a), Some(b)) = (self.fair.of_queue.get(&own), self.fair.of_queue.get(&other)) else {
            return false;
        };
        let more = |d: usize| -> i64 {
            let of = |trial: &Trial<'_>| {
                trial
                    .request
                    .iter()
                    .filter(|(at, _)| usize::from(*at) == d)
                    .map(|(_, n)| trial.sign * n)
                    .sum::<i64>()
            };
            trials.iter().map(of).sum()
        };
        let demanding = self.demanding(more);
        let everything = demanding != self.fair.demanding;
        let shares = self.fair.shares(self.nodes.total(), |at| {
            let node = &self.fair.nodes[at];
            if everything || at == *a || at == *b {
                std::borrow::Cow::Owned(self.sum_of_jobs(&node.queues, &demanding, trials))
            } else {
                std::borrow::Cow::Borrowed(&node.own)
            }
        });
        self.fair.key_of(&shares, *a) < self.fair.key_of(&shares, *b)
    }
}

/// The request of all pods of a job, placed or not.
fn asked(group: &Group) -> impl Fn(usize) -> i64 {
    |d| get(&group.allocated, d) + get(&group.requested, d)
}
