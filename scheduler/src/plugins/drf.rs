//! Plugin drf: jobs with the smallest dominant share first; with `enableHierarchy` queues, too, along their tree.
//!
//! The tree comes from the annotations `volcano.sh/hierarchy` and `volcano.sh/hierarchy-weights`. A queue without
//! them is below its `spec.parent`, with `spec.weight`.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_scheduler_state::shares::{
    WHOLE, dominant_share,
    fair_tree::{self, Children},
};

use super::rules::{Rules, Taking};
use crate::amounts::{PODS, Request, add, get};
use crate::fair::{FairTree, Node};
use crate::group::Group;
use crate::ids::{ClassId, GroupId, PodId, QueueId};
use crate::queue::ROOT_QUEUE;
use crate::settings::{Action, ArgumentError, Hook, Settings};
use crate::state::State;

/// Shares that differ by less than a millionth are equal.
const STEP: i64 = WHOLE / 1_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drf {
    /// It has shares over a tree of queues.
    hierarchy: bool,
}

impl Rules for Drf {
    const NAME: &'static str = "drf";
    const HOOKS: &'static [Hook] =
        &[Hook::JobOrder, Hook::QueueOrder, Hook::Hierarchy, Hook::Preemptable, Hook::Reclaimable];
    const REPAIRS_FIRST: bool = true;

    fn compile(settings: &Settings<'_>) -> Result<Self, ArgumentError> {
        Ok(Self { hierarchy: settings.hooks.has(Hook::Hierarchy) })
    }

    fn job_order(&self, state: &State, group: &Group) -> i64 {
        dominant_share(&group.allocated, state.nodes.total())
    }

    fn victims(&self, state: &State, taking: Taking, candidates: &[PodId]) -> Option<Vec<PodId>> {
        Some(if taking.action == Action::Reclaim && self.hierarchy {
            behind_in_tree(state, taking.taker, candidates)
        } else {
            larger_shares(state, taking.taker, candidates)
        })
    }
}

/// Pods of jobs that would still have the larger share, with the preemptor placed and the pod evicted.
fn larger_shares(state: &State, taker: PodId, candidates: &[PodId]) -> Vec<PodId> {
    let total = state.nodes.total();
    let mut own = state.group(state.pod(taker).group).allocated.clone();
    add(&mut own, &state.request_of(taker), 1, 1);
    let own = dominant_share(&own, total);
    let mut left: BTreeMap<GroupId, Vec<i64>> = BTreeMap::new();
    let mut found = Vec::new();
    for pod in candidates {
        let group = state.pod(*pod).group;
        let held = left.entry(group).or_insert_with(|| state.group(group).allocated.clone());
        add(held, &state.request_of(*pod), 1, -1);
        let other = dominant_share(held, total);
        if own < other || (own - other).abs() <= STEP {
            found.push(*pod);
        }
    }
    found
}

/// A supposed change of what a job holds.
struct Trial<'t> {
    group: GroupId,
    request: &'t Request,
    sign: i64,
}

/// Updates the order of the tree; returns whether any queue's position may have changed.
pub(crate) fn refresh_tree(state: &mut State) -> bool {
    let mut tree = std::mem::take(&mut state.fair);
    if std::mem::take(&mut tree.restructure) || tree.nodes.is_empty() {
        tree = build_fair(state);
    }
    let demanding = demanding(state, |_| 0);
    if demanding != tree.demanding {
        tree.demanding = demanding;
        tree.nodes.iter_mut().for_each(|node| node.stale = true);
        tree.changed = true;
    }
    let changed = std::mem::take(&mut tree.changed);
    if changed {
        for at in 0..tree.nodes.len() {
            if std::mem::take(&mut tree.nodes[at].stale) {
                tree.nodes[at].own = sum_of_jobs(state, &tree.nodes[at].queues, &tree.demanding, &[]);
            }
        }
        let shares = tree.shares(state.nodes.total(), |at| std::borrow::Cow::Borrowed(&tree.nodes[at].own));
        tree.keys = tree.of_queue.iter().map(|(queue, at)| (*queue, tree.key_of(&shares, *at))).collect();
    }
    state.fair = tree;
    changed
}

/// Of which dimensions something is left if `more` of each were held.
fn demanding(state: &State, more: impl Fn(usize) -> i64) -> Vec<bool> {
    let total = state.nodes.total();
    let mut held = vec![0_i64; total.len()];
    for id in state.queue_ids().filter(|id| state.queue(*id).parent.is_none()) {
        held.iter_mut().enumerate().for_each(|(d, sum)| *sum += get(&state.queue(id).allocated, d));
    }
    (0..total.len()).map(|d| held[d] + more(d) < total[d]).collect()
}

fn build_fair(state: &State) -> FairTree {
    let mut tree = FairTree { changed: true, ..FairTree::default() };
    tree.nodes.push(Node { weight: 1, stale: true, ..Node::default() });
    let mut known: BTreeMap<Vec<Arc<str>>, usize> = BTreeMap::from([(Vec::new(), 0)]);
    for id in state.queue_ids() {
        let mut path: Vec<Arc<str>> = Vec::new();
        let mut at = 0;
        for (name, weight) in tree_path(state, id) {
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
fn tree_path(state: &State, id: QueueId) -> Vec<(Arc<str>, i64)> {
    let input = &state.queue(id).input;
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
    let named = |id: QueueId| (state.queue(id).input.name.clone(), state.queue(id).input.weight.max(1));
    let mut path: Vec<(Arc<str>, i64)> = state.lineage(id).into_iter().map(named).collect();
    path.reverse();
    path.retain(|(name, _)| &**name != ROOT_QUEUE);
    path
}

fn sum_of_jobs(state: &State, queues: &[QueueId], demanding: &[bool], trials: &[Trial<'_>]) -> Children {
    let total = state.nodes.total();
    let mut sum = Children::default();
    for id in queues.iter().flat_map(|queue| state.queue(*queue).groups.iter()) {
        let group = state.group(*id);
        let mine = || trials.iter().filter(|trial| trial.group == *id);
        if mine().next().is_none() {
            sum.add(&fair_tree::job(total, demanding, &group.allocated, asked(group), PODS + 1));
            continue;
        }
        let mut allocated = group.allocated.clone();
        mine().for_each(|trial| add(&mut allocated, trial.request, 1, trial.sign));
        sum.add(&fair_tree::job(total, demanding, &allocated, asked(group), PODS + 1));
    }
    sum
}

/// Pods of queues that would still come after the preemptor's queue, with the preemptor placed and the pod
/// evicted. Each is judged on its own.
fn behind_in_tree(state: &State, taker: PodId, candidates: &[PodId]) -> Vec<PodId> {
    let group = state.pod(taker).group;
    let asked = state.request_of(taker);
    let mut known: BTreeMap<(GroupId, ClassId), bool> = BTreeMap::new();
    let mut found = Vec::new();
    for victim in candidates {
        let pod = state.pod(*victim);
        let allowed = *known.entry((pod.group, pod.class)).or_insert_with(|| {
            let given = state.request_of(*victim);
            let trials = [
                Trial { group, request: &asked, sign: 1 },
                Trial { group: pod.group, request: &given, sign: -1 },
            ];
            let own = state.group(group).queue;
            precedes(state, own, state.group(pod.group).queue, &trials)
        });
        if allowed {
            found.push(*victim);
        }
    }
    found
}

/// Whether `own` would come strictly before `other` after these changes.
fn precedes(state: &State, own: QueueId, other: QueueId, trials: &[Trial<'_>]) -> bool {
    let (Some(a), Some(b)) = (state.fair.of_queue.get(&own), state.fair.of_queue.get(&other)) else {
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
    let demanding = demanding(state, more);
    let everything = demanding != state.fair.demanding;
    let shares = state.fair.shares(state.nodes.total(), |at| {
        let node = &state.fair.nodes[at];
        if everything || at == *a || at == *b {
            std::borrow::Cow::Owned(sum_of_jobs(state, &node.queues, &demanding, trials))
        } else {
            std::borrow::Cow::Borrowed(&node.own)
        }
    });
    state.fair.key_of(&shares, *a) < state.fair.key_of(&shares, *b)
}

/// The request of all pods of a job, placed or not.
fn asked(group: &Group) -> impl Fn(usize) -> i64 {
    |d| get(&group.allocated, d) + get(&group.requested, d)
}
