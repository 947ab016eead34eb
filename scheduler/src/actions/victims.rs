//! Victims: which candidates the plugins allow, tier by tier.

use std::collections::BTreeMap;

use crate::amounts::{PODS, get};
use crate::cluster::Cluster;
use crate::config::PluginName;
use crate::ids::{GroupId, NodeId, PodId, QueueId};
use crate::plugins::rules::Taking;
use crate::pod::Status;
use crate::settings::Action;

impl Cluster {
    /// Whether the pod may be a victim at all.
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

    /// The `candidates` that the plugins allow, in the order of eviction. With `whole`, gangs below their minimum
    /// are allowed: the caller evicts all of them.
    pub(crate) fn allowed_victims(
        &self,
        taker: PodId,
        candidates: &[PodId],
        action: Action,
        whole: bool,
    ) -> Vec<PodId> {
        let tiers =
            if action == Action::Preempt { &self.policy.preemptable } else { &self.policy.reclaimable };
        // What queues deserve is asked in whatever tier it is configured. Otherwise, an earlier tier that allows
        // everybody would let two queues preempt each other forever.
        let mut ordered = candidates.to_vec();
        ordered.sort_by_cached_key(|pod| std::cmp::Reverse(self.victim_key(*pod)));
        let candidates = &*ordered;
        let by_queue = [PluginName::Proportion, PluginName::Capacity];
        let queues_decide = tiers.iter().flatten().any(|plugin| by_queue.contains(plugin));
        let owed =
            (action == Action::Reclaim && queues_decide).then(|| self.over_deserved(taker, candidates));
        let candidates = owed.as_deref().unwrap_or(candidates);
        let taking = Taking { taker, action, whole };
        for tier in tiers {
            let mut found: Option<Vec<PodId>> = None;
            for plugin in tier {
                let allowed = self.policy.plugins.victims(*plugin, &self.state, taking, candidates);
                let Some(allowed) = allowed else { continue };
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

    /// Queues from `of` up to the first common ancestor with `other`, that one excluded.
    fn path_below(&self, of: QueueId, other: QueueId) -> Vec<QueueId> {
        let above = self.lineage(other);
        self.lineage(of).into_iter().take_while(|queue| !above.contains(queue)).collect()
    }

    /// What the preemptor's gang still needs for its minimum, the pod itself included: half a gang is owed nothing.
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

    /// Dimensions in which the preemptor's queues, below the common ancestor with the victim's, stay within what
    /// they deserve.
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
        // By weight, a queue is owed everything it requests or nothing.
        if self.policy.queues.proportion && !self.policy.queues.capacity && owed.len() < request.len() {
            return Vec::new();
        }
        owed
    }

    /// Pods of queues that hold more than they deserve of what is owed to the preemptor and short there.
    fn over_deserved(&self, taker: PodId, candidates: &[PodId]) -> Vec<PodId> {
        let mut left: BTreeMap<QueueId, Vec<i64>> = BTreeMap::new();
        let mut useful: BTreeMap<(QueueId, Option<NodeId>), Vec<usize>> = BTreeMap::new();
        let own = self.group(self.pod(taker).group).queue;
        let levels =
            if self.policy.queues.capacity { self.policy.queues.ancestor_reclaim_level + 1 } else { 1 };
        let mut ordered = candidates.to_vec();
        ordered.retain(|pod| {
            let (queue, node) = (self.group(self.pod(*pod).group).queue, self.pod(*pod).node);
            let useful = useful.entry((queue, node)).or_insert_with(|| {
                let short = self.short_for(taker, node, queue);
                let mut owed = self.owed_dimensions(taker, queue);
                owed.retain(|d| short.contains(d));
                owed
            });
            let request = self.request_of(*pod);
            let amount =
                |d: usize| request.iter().find(|(at, _)| usize::from(*at) == d).map_or(0, |(_, n)| *n);
            let path: Vec<QueueId> = self.path_below(queue, own).into_iter().take(levels).collect();
            let over = |d: usize| {
                path.iter().all(|queue| {
                    let held = left.get(queue).unwrap_or(&self.queue(*queue).allocated);
                    self.is_over_deserved(*queue, held, d, &request)
                })
            };
            if !useful.iter().any(|d| amount(*d) > 0 && over(*d)) {
                return false;
            }
            let guarantee = &self.queue(queue).guarantee;
            let held = left.get(&queue).unwrap_or(&self.queue(queue).allocated);
            let guaranteed = (PODS + 1..guarantee.len())
                .all(|d| amount(d) == 0 || get(held, d) - amount(d) >= guarantee[d]);
            if !guaranteed {
                return false;
            }
            for queue in path {
                let held = left.entry(queue).or_insert_with(|| self.queue(queue).allocated.clone());
                crate::amounts::add(held, &request, 1, -1);
            }
            true
        });
        ordered
    }

    /// Whether a queue that holds `held` exceeds what it deserves of dimension `d`. If its `deserved` does not name
    /// `d`, the other requested dimensions that it names decide; if it names none, the queue deserves nothing.
    fn is_over_deserved(&self, queue: QueueId, held: &[i64], d: usize, request: &[(u16, i64)]) -> bool {
        let deserved = |d: usize| self.queue(queue).deserved.get(d).copied().flatten();
        if let Some(deserved) = deserved(d) {
            return get(held, d) > deserved;
        }
        let named = request.iter().filter_map(|(d, _)| Some((usize::from(*d), deserved(usize::from(*d))?)));
        let mut named = named.peekable();
        named.peek().is_none() || named.any(|(d, deserved)| get(held, d) > deserved)
    }

    /// Dimensions in which the preemptor lacks capacity on the node, or in the common ancestors of both queues:
    /// only what is freed there helps. All requested dimensions if neither can be said, for example if ports or
    /// devices are missing.
    fn short_for(&self, taker: PodId, node: Option<NodeId>, victims_queue: QueueId) -> Vec<usize> {
        let request = self.request_of(taker);
        let own = self.group(self.pod(taker).group).queue;
        let shared: Vec<QueueId> = match self.policy.queues.capacity && self.policy.queues.allocatable {
            true => {
                let others = self.lineage(victims_queue);
                self.lineage(own).into_iter().filter(|queue| others.contains(queue)).collect()
            }
            false => Vec::new(),
        };
        let short_of = |asked: &[(u16, i64)]| -> Vec<usize> {
            let asked = asked.iter().map(|(d, amount)| (usize::from(*d), *amount));
            asked
                .filter(|(d, amount)| {
                    let on_node = node.is_some_and(|node| self.nodes.cell(node, *d).future_idle() < *amount);
                    on_node
                        || shared.iter().any(|queue| {
                            let held = get(&self.queue(*queue).allocated, *d);
                            held.saturating_add(*amount) > self.may_have(*queue, *d)
                        })
                })
                .map(|(d, _)| d)
                .collect()
        };
        // A pod that would fit alone waits for the rest of its gang.
        let mut short = short_of(&request);
        if short.is_empty() {
            short = short_of(&self.needed_by(taker));
        }
        if short.is_empty() {
            short = request.iter().map(|(d, _)| usize::from(*d)).collect();
        }
        short
    }
}
