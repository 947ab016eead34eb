//! Preempt and reclaim: places for a starving group by evicting others, of its own queue or of queues that hold
//! more than they deserve.
//!
//! One statement per group. Pods beyond their gangs' minima are considered first, then whole gangs; unnecessary
//! victims are reprieved. The group gets its places as `Pipelined`, and is bound when all of them are free.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::Cluster;
use crate::config::PluginName;
use crate::cycle::{Eviction, Limits, Outcome};
use crate::group::JobKey;
use crate::group::Phase;
use crate::ids::{ClassId, GroupId, NodeId, PodId, QueueId};
use crate::misfit::Fit;
use crate::order::QueueKey;
use crate::pod::Status;
use crate::settings::Action;

/// Most gangs that are evicted as a whole for one group.
const MAX_WHOLE_GANGS: usize = 32;
/// Most searches without a result in a cycle, one for each class of groups; the rest waits for the next cycle.
const MAX_TRIED: usize = 256;

/// The cost of a place: the highest priority among the victims, their number, then the worse node.
type Cost = (i64, usize, std::cmp::Reverse<i64>);

struct Offer {
    cost: Cost,
    victims: Vec<PodId>,
}

/// The pods of a group for which places are taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takers {
    Asking,
    /// Best-effort pods; only best-effort pods are evicted for them.
    BestEffort,
}

impl Cluster {
    pub(crate) fn take(&mut self, action: Action, limits: &Limits, outcome: &mut Outcome) {
        let tiers =
            if action == Action::Preempt { &self.policy.preemptable } else { &self.policy.reclaimable };
        if tiers.is_empty() || self.policy.starving.is_empty() {
            return;
        }
        let mut takers: Vec<(QueueKey, JobKey, GroupId)> = Vec::new();
        for id in self.queue_ids() {
            let queue = self.queue(id);
            if queue.closed_because().is_some() || (action == Action::Reclaim && self.is_overused(id)) {
                continue;
            }
            let key = self.queue_key(id);
            if queue.input.fifo {
                let head = self.fifo_head(id).filter(|(_, _, shape)| {
                    queue.waiting.get(shape).is_some_and(|known| !known.is_untakeable(action, self.stand()))
                });
                takers.extend(head.map(|(job, group, _)| (key, job, group)));
                continue;
            }
            for waiting in
                queue.waiting.values().filter(|waiting| !waiting.is_untakeable(action, self.stand()))
            {
                // Equal groups are refused alike: the first answers for all.
                takers
                    .extend(waiting.groups.iter().take(limits.takes).map(|(job, group)| (key, *job, *group)));
            }
        }
        takers.sort_unstable();
        let (mut taken, mut tried) = (0, 0);
        let mut hopeless: BTreeSet<(QueueId, std::sync::Arc<crate::group::Shape>)> = BTreeSet::new();
        for (_, _, id) in takers {
            if taken >= limits.takes || tried >= MAX_TRIED {
                outcome.more |= taken > 0;
                return;
            }
            if !self.group(id).is_waiting() || !self.may_take(id) {
                continue;
            }
            let queue = self.group(id).queue;
            let crate::group::Waits::Inside(shape, _) = &self.group(id).waits else { continue };
            let shape = shape.clone();
            if hopeless.contains(&(queue, shape.clone())) {
                continue;
            }
            tried += 1;
            match self.take_places(id, action, Takers::Asking) {
                Some(victims) => {
                    taken += 1;
                    self.note_taken(id, action, victims, outcome);
                }
                None => {
                    let stand = self.stand();
                    if let Some(waiting) = self.queue_mut(queue).waiting.get_mut(&shape) {
                        waiting.set_untakeable(action, stand);
                    }
                    hopeless.insert((queue, shape));
                }
            }
        }
        if action == Action::Preempt {
            self.take_for_best_effort(limits, outcome);
        }
    }

    fn note_taken(
        &mut self,
        id: GroupId,
        action: Action,
        victims: BTreeMap<PodId, Status>,
        outcome: &mut Outcome,
    ) {
        self.promised.insert(id);
        let evictions = victims.keys().map(|pod| Eviction { pod: *pod, taker: Some(id), action });
        outcome.evicted.extend(evictions);
        outcome.stood.extend(victims);
        self.refresh_group(id);
    }

    /// Places in the same queue for groups whose waiting pods are best-effort: a node takes a limited number of
    /// pods.
    fn take_for_best_effort(&mut self, limits: &Limits, outcome: &mut Outcome) {
        let stand = self.stand();
        if self.best_effort_refused.0 != stand {
            self.best_effort_refused = (stand, BTreeSet::new());
        }
        let waits = |id: &GroupId| {
            self.try_group(*id).is_some_and(|group| {
                group.pending.is_empty()
                    && !group.pending_best_effort.is_empty()
                    && !group.input.manual
                    && self.queue(group.queue).closed_because().is_none()
            }) && !self.best_effort_refused.1.contains(id)
                && self.may_take(*id)
        };
        let mut takers: Vec<GroupId> = self.best_effort.iter().copied().filter(waits).collect();
        takers.sort_by_cached_key(|id| {
            let group = self.group(*id);
            (self.queue_key(group.queue), self.job_key(group), *id)
        });
        for id in takers.into_iter().take(limits.takes) {
            match self.take_places(id, Action::Preempt, Takers::BestEffort) {
                Some(victims) => self.note_taken(id, Action::Preempt, victims, outcome),
                None => drop(self.best_effort_refused.1.insert(id)),
            }
        }
    }

    fn may_take(&self, id: GroupId) -> bool {
        let group = self.group(id);
        let starving = self.policy.starving.iter().all(|name| self.policy.plugins.starves(*name, group));
        group.phase != Phase::Pending && group.validity().is_ok() && !group.is_bound_to_domains() && starving
    }

    /// Reserves places for the group's minimum by evicting others. Returns the victims with their former status;
    /// `None` changes nothing.
    fn take_places(
        &mut self,
        id: GroupId,
        action: Action,
        takers: Takers,
    ) -> Option<BTreeMap<PodId, Status>> {
        self.begin();
        self.promise_to_the_peaceful(id, action, takers);
        let peaceful = self.mark_point();
        let mut found = self.promise_all(id, action, takers);
        if !found && self.policy.whole_gangs {
            self.rollback(peaceful);
            found = self.take_whole_gangs(id, action, takers, peaceful);
        }
        if !found {
            self.rollback(0);
            self.commit();
            return None;
        }
        self.spare_the_unneeded(id);
        let stood = self.statuses_before();
        self.commit();
        let leaves = |pod: PodId| self.pod(pod).group != id && self.pod(pod).status == Status::Releasing;
        Some(stood.into_iter().filter(|(pod, _)| leaves(*pod)).collect())
    }

    /// Pods with `preemptionPolicy: Never` take free places first, and no others.
    fn promise_to_the_peaceful(&mut self, id: GroupId, action: Action, takers: Takers) {
        let mut peaceful = self.takers(id, takers);
        peaceful.retain(|pod| self.pod(*pod).never_preempts);
        self.promise_each(id, &peaceful, action, takers);
    }

    /// Reserves a place for one pod after the other until the group has its minimum. The victims are pods beyond
    /// their gangs' minima.
    fn promise_all(&mut self, id: GroupId, action: Action, takers: Takers) -> bool {
        let mut pods = self.takers(id, takers);
        pods.retain(|pod| !self.pod(*pod).never_preempts);
        self.promise_each(id, &pods, action, takers);
        self.has_minimum(id, takers) && self.group(id).count(Status::Pipelined) > 0
    }

    fn takers(&self, id: GroupId, takers: Takers) -> Vec<PodId> {
        let group = self.group(id);
        let waiting = if takers == Takers::Asking { &group.pending } else { &group.pending_best_effort };
        waiting.iter().map(|order| order.3).collect()
    }

    /// While other pods are considered, best-effort pods count as placed: backfill places them.
    fn has_minimum(&self, id: GroupId, takers: Takers) -> bool {
        let group = self.group(id);
        match takers {
            Takers::Asking => group.is_pipelined(),
            Takers::BestEffort => group.ready() + group.count(Status::Pipelined) >= group.min(),
        }
    }

    fn promise_each(&mut self, id: GroupId, pods: &[PodId], action: Action, takers: Takers) {
        let mut offers: BTreeMap<ClassId, BTreeSet<(Cost, NodeId)>> = BTreeMap::new();
        let mut failed: BTreeSet<ClassId> = BTreeSet::new();
        for pod in pods.iter().copied() {
            let every_pod = self.policy.starving.contains(&PluginName::Priority) && self.group(id).min() <= 0;
            if self.has_minimum(id, takers) && !every_pod {
                return;
            }
            let class = self.pod(pod).class;
            if failed.contains(&class) {
                continue;
            }
            if let Entry::Vacant(entry) = offers.entry(class) {
                let all: Vec<NodeId> = self.nodes.iter().map(|(node, _)| node).collect();
                let first: BTreeSet<(Cost, NodeId)> = all
                    .into_iter()
                    .filter_map(|node| Some((self.offer(pod, node, action)?.cost, node)))
                    .collect();
                entry.insert(first);
            }
            let mut placed = false;
            while let Some((cost, node)) = offers.get_mut(&class).and_then(BTreeSet::pop_first) {
                let Some(offer) = self.offer(pod, node, action) else { continue };
                // Places reserved since may have made this one more expensive.
                let next = offers.get(&class).and_then(|offers| offers.first()).map(|(cost, _)| *cost);
                if offer.cost > cost && next.is_some_and(|next| next < offer.cost) {
                    offers.entry(class).or_default().insert((offer.cost, node));
                    continue;
                }
                for victim in &offer.victims {
                    let at = self.pod(*victim).node;
                    self.set_place(*victim, Status::Releasing, at);
                }
                self.set_place(pod, Status::Pipelined, Some(node));
                offers.entry(class).or_default().insert((offer.cost, node));
                placed = true;
                break;
            }
            if !placed {
                failed.insert(class);
            }
        }
    }

    /// The victims on the node for the pod; `None` if no victims help.
    fn offer(&mut self, pod: PodId, node: NodeId, action: Action) -> Option<Offer> {
        let class = self.pod(pod).class;
        let group = self.pod(pod).group;
        if self.admits(self.class(class), self.nodes.get(node)).is_err() {
            return None;
        }
        let score = std::cmp::Reverse(self.score(self.class(class), node));
        if self.holds(pod, node) {
            return Some(Offer { cost: (i64::MIN, 0, score), victims: Vec::new() });
        }
        if self.pod(pod).never_preempts {
            return None;
        }
        let standing = self.nodes.get(node).pods.iter().copied();
        let candidates: Vec<PodId> =
            standing.filter(|victim| self.is_candidate(group, *victim, action)).collect();
        let candidates = self.of_equal_effort(pod, candidates);
        if candidates.is_empty() {
            return None;
        }
        let allowed = self.allowed_victims(pod, &candidates, action, false);
        let point = self.mark_point();
        let mut victims: Vec<PodId> = Vec::new();
        let mut fits = false;
        for victim in allowed {
            self.set_place(victim, Status::Releasing, Some(node));
            victims.push(victim);
            if self.holds(pod, node) {
                fits = true;
                break;
            }
        }
        if fits && !self.are_alike(&victims) {
            // Victims before the one that made it fit may be unnecessary.
            let mut at = victims.len();
            while at > 0 {
                at -= 1;
                let victim = victims[at];
                let was = self.status_before(victim, point);
                self.set_place(victim, was, Some(node));
                if self.holds(pod, node) {
                    victims.remove(at);
                } else {
                    self.set_place(victim, Status::Releasing, Some(node));
                }
            }
        }
        self.rollback(point);
        if !fits {
            return None;
        }
        let highest = victims.iter().map(|victim| self.group(self.pod(*victim).group).input.priority).max();
        Some(Offer { cost: (highest.unwrap_or(i64::MIN), victims.len(), score), victims })
    }

    /// A best-effort pod preempts best-effort pods only.
    fn of_equal_effort(&self, taker: PodId, mut victims: Vec<PodId>) -> Vec<PodId> {
        let best_effort = |pod: PodId| self.class(self.pod(pod).class).is_best_effort();
        if best_effort(taker) {
            victims.retain(|victim| best_effort(*victim));
        }
        victims
    }

    /// Only their number matters: the last one was necessary, so each of them is.
    fn are_alike(&self, pods: &[PodId]) -> bool {
        let Some(first) = pods.first().map(|pod| self.pod(*pod)) else { return true };
        let plain = self.is_plain(self.class(first.class));
        plain
            && pods
                .iter()
                .map(|pod| self.pod(*pod))
                .all(|pod| pod.class == first.class && pod.matches.is_empty() && pod.node == first.node)
            && pods.iter().all(|pod| self.group(self.pod(*pod).group).queue == self.group(first.group).queue)
    }

    /// The pod fits once everything that is terminating is gone, in its queue, too.
    fn holds(&self, pod: PodId, node: NodeId) -> bool {
        let class = self.class(self.pod(pod).class);
        let queue = self.group(self.pod(pod).group).queue;
        self.fits(class, node, Fit::Future).is_ok()
            && self.queue_admits(queue, &class.request).is_ok()
            && self.agrees(pod, node, &self.spreads(class), Fit::Future).is_ok()
    }

    /// Evicts gangs without spare pods as a whole, first victims first, until the group has its places. Moves
    /// before `start` are kept: those of pods that preempt nobody.
    fn take_whole_gangs(&mut self, id: GroupId, action: Action, takers: Takers, start: usize) -> bool {
        let mut pods = self.takers(id, takers).into_iter();
        let Some(pod) = pods.find(|pod| !self.pod(*pod).never_preempts) else { return false };
        let mut gangs: BTreeMap<GroupId, Vec<PodId>> = BTreeMap::new();
        for (node, state) in self.nodes.iter() {
            let _ = node;
            for victim in &state.pods {
                if self.pod(*victim).group != id
                    && matches!(self.pod(*victim).status, Status::Running | Status::Bound | Status::Binding)
                {
                    gangs.entry(self.pod(*victim).group).or_default().push(*victim);
                }
            }
        }
        gangs.retain(|_, pods| {
            pods.iter().all(|victim| self.is_candidate(id, *victim, action))
                && self.of_equal_effort(pod, pods.clone()).len() == pods.len()
        });
        // All pods of a gang must be allowed as victims, or none is.
        let mut order: Vec<(crate::order::VictimKey, GroupId)> = Vec::new();
        for (gang, pods) in &gangs {
            let mut allowed = self.allowed_victims(pod, pods, action, true);
            allowed.sort_unstable();
            let enough =
                if action == Action::Reclaim { !allowed.is_empty() } else { allowed.len() == pods.len() };
            let critical = pods.iter().any(|pod| self.pod(*pod).critical);
            if enough
                && !critical
                && let Some(first) = pods.iter().map(|pod| self.victim_key(*pod)).max()
            {
                order.push((first, *gang));
            }
        }
        order.sort_unstable_by(|a, b| b.cmp(a));
        let mut evicted: Vec<GroupId> = Vec::new();
        for (_, gang) in order.into_iter().take(MAX_WHOLE_GANGS) {
            // Its queue may be down to what it deserves by now.
            if action == Action::Reclaim && self.allowed_victims(pod, &gangs[&gang], action, true).is_empty()
            {
                continue;
            }
            self.evict_all(&gangs[&gang]);
            evicted.push(gang);
            let point = self.mark_point();
            if self.promise_all(id, action, takers) {
                return self.keep_needed_gangs(id, (action, takers), &gangs, evicted, start);
            }
            self.rollback(point);
        }
        false
    }

    fn evict_all(&mut self, pods: &[PodId]) {
        for pod in pods {
            let node = self.pod(*pod).node;
            self.set_place(*pod, Status::Releasing, node);
        }
    }

    /// Reprieves each gang without which the group still has its places.
    fn keep_needed_gangs(
        &mut self,
        id: GroupId,
        (action, takers): (Action, Takers),
        gangs: &BTreeMap<GroupId, Vec<PodId>>,
        evicted: Vec<GroupId>,
        start: usize,
    ) -> bool {
        let mut needed = evicted;
        let mut at = 0;
        while at < needed.len() {
            let mut fewer = needed.clone();
            fewer.remove(at);
            self.rollback(start);
            fewer.iter().for_each(|gang| self.evict_all(&gangs[gang]));
            if !fewer.is_empty() && self.promise_all(id, action, takers) {
                needed = fewer;
            } else {
                at += 1;
            }
        }
        self.rollback(start);
        needed.iter().for_each(|gang| self.evict_all(&gangs[gang]));
        self.promise_all(id, action, takers)
    }
}
