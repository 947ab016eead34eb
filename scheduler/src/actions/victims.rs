//! Who may have to leave for whom: what the plugins say of candidates, tier by tier.

use std::collections::BTreeMap;

use crate::amounts::{PODS, get};
use crate::cluster::Cluster;
use crate::config::{Action, PluginName};
use crate::group::GroupId;
use crate::pod::{PodId, Status};
use crate::queue::QueueId;

/// Shares that differ by less are equal: a millionth.
const SHARE_STEP: i64 = fleet_quota::shares::WHOLE / 1_000_000;

impl Cluster {
    /// Whether the pod may be asked to leave at all.
    pub(crate) fn is_candidate(&self, taker: GroupId, victim: PodId, action: Action) -> bool {
        let pod = self.pod(victim);
        if !pod.preemptable || pod.group == taker || self.is_kept(victim) {
            return false;
        }
        let (own, other) = (self.group(taker), self.group(pod.group));
        if other.input.preemptable == Some(false) {
            return false;
        }
        match action {
            Action::Preempt => {
                matches!(pod.status, Status::Running | Status::Bound) && other.queue == own.queue
            }
            _ => {
                pod.status == Status::Running
                    && other.queue != own.queue
                    && self.queue(other.queue).input.reclaimable
            }
        }
    }

    /// Those of `candidates` that the plugins allow, in the order in which they leave. `whole` takes gangs below
    /// their minimum: the caller takes all of them then.
    pub(crate) fn allowed_victims(
        &self,
        taker: PodId,
        candidates: &[PodId],
        action: Action,
        whole: bool,
    ) -> Vec<PodId> {
        let tiers =
            if action == Action::Preempt { &self.policy.preemptable } else { &self.policy.reclaimable };
        // What queues deserve is asked in whatever tier it stands: else an earlier tier that allows anybody lets two
        // queues take from each other for ever.
        let mut ordered = candidates.to_vec();
        ordered.sort_by_cached_key(|pod| std::cmp::Reverse(self.victim_key(*pod)));
        let candidates = &*ordered;
        let by_queue = [PluginName::Proportion, PluginName::Capacity];
        let queues_decide = tiers.iter().flatten().any(|plugin| by_queue.contains(plugin));
        let owed =
            (action == Action::Reclaim && queues_decide).then(|| self.over_deserved(taker, candidates));
        let candidates = owed.as_deref().unwrap_or(candidates);
        for tier in tiers {
            let mut found: Option<Vec<PodId>> = None;
            for plugin in tier {
                let Some(allowed) = self.ask(*plugin, taker, candidates, action, whole) else { continue };
                found = Some(match found {
                    None => allowed,
                    // Both are in the same order.
                    Some(found) => found.into_iter().filter(|pod| allowed.contains(pod)).collect(),
                });
            }
            if let Some(found) = found.filter(|found| !found.is_empty()) {
                return found;
            }
        }
        Vec::new()
    }

    /// `None`: the plugin has nothing to say. The answer is in the order of `candidates`, most dispensable first.
    fn ask(
        &self,
        plugin: PluginName,
        taker: PodId,
        candidates: &[PodId],
        action: Action,
        whole: bool,
    ) -> Option<Vec<PodId>> {
        let keep =
            |rule: &dyn Fn(PodId) -> bool| candidates.iter().copied().filter(|pod| rule(*pod)).collect();
        match plugin {
            PluginName::Gang if whole => None,
            PluginName::Gang => Some(self.beyond_minimum(candidates)),
            PluginName::Priority if action == Action::Preempt => {
                let own = self.group(self.pod(taker).group).input.priority;
                Some(keep(&|pod| self.group(self.pod(pod).group).input.priority < own))
            }
            PluginName::Pdb => Some(self.within_budgets(candidates)),
            PluginName::Conformance => Some(keep(&|pod| !self.pod(pod).critical)),
            PluginName::Drf if action == Action::Reclaim && self.policy.fair_tree.is_some() => {
                Some(self.behind_in_tree(taker, candidates))
            }
            PluginName::Drf => Some(self.larger_shares(taker, candidates)),
            PluginName::Proportion | PluginName::Capacity if action == Action::Reclaim => {
                Some(candidates.to_vec())
            }
            _ => None,
        }
    }

    /// Pods their gangs can do without, most dispensable first.
    fn beyond_minimum(&self, candidates: &[PodId]) -> Vec<PodId> {
        let mut left: BTreeMap<GroupId, i64> = BTreeMap::new();
        let mut ordered = candidates.to_vec();
        ordered.retain(|pod| {
            let group = self.pod(*pod).group;
            let surplus = left.entry(group).or_insert_with(|| self.group(group).surplus());
            *surplus -= 1;
            *surplus >= 0
        });
        ordered
    }

    fn larger_shares(&self, taker: PodId, candidates: &[PodId]) -> Vec<PodId> {
        let total = self.nodes.total();
        let mut own = self.group(self.pod(taker).group).allocated.clone();
        crate::amounts::add(&mut own, &self.request_of(taker), 1, 1);
        let own = fleet_quota::shares::dominant_share(&own, total);
        let mut left: BTreeMap<GroupId, Vec<i64>> = BTreeMap::new();
        let mut found = Vec::new();
        for pod in candidates {
            let group = self.pod(*pod).group;
            let held = left.entry(group).or_insert_with(|| self.group(group).allocated.clone());
            crate::amounts::add(held, &self.request_of(*pod), 1, -1);
            let other = fleet_quota::shares::dominant_share(held, total);
            if own < other || (own - other).abs() <= SHARE_STEP {
                found.push(*pod);
            }
        }
        found
    }

    /// Queues from `of` up to, and without, the first that is also above `other`.
    fn path_below(&self, of: QueueId, other: QueueId) -> Vec<QueueId> {
        let above = self.lineage(other);
        self.lineage(of).into_iter().take_while(|queue| !above.contains(queue)).collect()
    }

    /// What the taker's gang still needs for its minimum, the taker included: half a gang is owed nothing.
    fn needed_by(&self, taker: PodId) -> Vec<(u16, i64)> {
        let group = self.group(self.pod(taker).group);
        let need = (group.need() - group.count(Status::Pipelined)).max(1);
        if group.pending_by_class.len() == 1 {
            return self.request_of(taker).iter().map(|(d, n)| (*d, n.saturating_mul(need))).collect();
        }
        let mut sum: BTreeMap<u16, i64> = self.request_of(taker).iter().copied().collect();
        let others = group.pending.iter().map(|order| order.3).filter(|pod| *pod != taker);
        for pod in others.take(usize::try_from(need - 1).unwrap_or(0)) {
            for (d, n) in self.request_of(pod).iter() {
                *sum.entry(*d).or_default() += n;
            }
        }
        sum.into_iter().collect()
    }

    /// Dimensions in which the taker's queues, as far as they are not the victim's too, stay within what they
    /// deserve.
    pub(crate) fn owed_dimensions(&self, taker: PodId, victims_queue: QueueId) -> Vec<usize> {
        let queue = self.group(self.pod(taker).group).queue;
        let path = self.path_below(queue, victims_queue);
        let request = self.needed_by(taker);
        let within = |place: usize, amount: i64| {
            let mut said = false;
            for queue in &path {
                let Some(deserved) = self.queue(*queue).deserved.get(place).copied().flatten() else {
                    continue;
                };
                said = true;
                if get(&self.queue(*queue).allocated, place).saturating_add(amount) > deserved {
                    return false;
                }
            }
            said
        };
        let asked = request.iter().map(|(place, amount)| (usize::from(*place), *amount));
        let owed: Vec<usize> =
            asked.filter(|(place, amount)| within(*place, *amount)).map(|(place, _)| place).collect();
        // By weight a queue is owed everything it asks for or nothing.
        if self.policy.proportion && !self.policy.capacity && owed.len() < request.len() {
            return Vec::new();
        }
        owed
    }

    /// Pods of queues that hold more than they deserve of what the taker is owed.
    fn over_deserved(&self, taker: PodId, candidates: &[PodId]) -> Vec<PodId> {
        let mut left: BTreeMap<QueueId, Vec<i64>> = BTreeMap::new();
        let mut owed: BTreeMap<QueueId, Vec<usize>> = BTreeMap::new();
        let own = self.group(self.pod(taker).group).queue;
        let mut ordered = candidates.to_vec();
        ordered.retain(|pod| {
            let queue = self.group(self.pod(*pod).group).queue;
            let owed = owed.entry(queue).or_insert_with(|| self.owed_dimensions(taker, queue));
            let request = self.request_of(*pod);
            let path = self.path_below(queue, own);
            let amount =
                |d: usize| request.iter().find(|(at, _)| usize::from(*at) == d).map_or(0, |(_, n)| *n);
            let levels = if self.policy.capacity { self.policy.ancestor_reclaim_level + 1 } else { 1 };
            let shared: Vec<usize> = owed.iter().copied().filter(|d| amount(*d) > 0).collect();
            let over = |d: usize, left: &BTreeMap<QueueId, Vec<i64>>| {
                path.iter().take(levels).all(|queue| {
                    let held = left
                        .get(queue)
                        .map_or_else(|| get(&self.queue(*queue).allocated, d), |held| get(held, d));
                    held > self.deserves(*queue, d)
                })
            };
            if !shared.iter().any(|d| over(*d, &left)) {
                return false;
            }
            let guarantee = &self.queue(queue).guarantee;
            let held = left.get(&queue).unwrap_or(&self.queue(queue).allocated);
            let guaranteed = (PODS + 1..guarantee.len())
                .all(|d| amount(d) == 0 || get(held, d) - amount(d) >= guarantee[d]);
            if !guaranteed {
                return false;
            }
            for queue in path.iter().take(levels) {
                let held = left.entry(*queue).or_insert_with(|| self.queue(*queue).allocated.clone());
                crate::amounts::add(held, &request, 1, -1);
            }
            true
        });
        ordered
    }
}
