//! Enqueue: which groups their queues admit, so that their pods are created.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::amounts::{PODS, get};
use crate::cluster::Cluster;
use crate::config::PluginName;
use crate::group::JobKey;
use crate::group::{Group, Phase};
use crate::ids::{GroupId, QueueId};
use crate::order::QueueKey;
use crate::plugins::resourcequota;
use crate::plugins::rules::On;
use crate::resource_quotas::Promised;
use crate::settings::{Action, Hook};

/// Refused amounts per queue that are remembered within a cycle.
const REFUSED_KEPT: usize = 8;

/// A refused group: who asks for as much at no higher priority is refused alike.
struct Refused {
    amounts: Vec<i64>,
    priority: i64,
    why: Arc<str>,
}

impl Refused {
    fn covers(&self, minimum: &[i64], priority: i64) -> bool {
        priority <= self.priority && (0..self.amounts.len()).all(|d| self.amounts[d] <= get(minimum, d))
    }
}

/// What the groups before have left, in one cycle.
struct EnqueueBudget {
    now: i64,
    /// What may still be requested, by dimension; `None`: anything.
    room: Option<Vec<i64>>,
    promised: Promised,
    refused: BTreeMap<QueueId, Vec<Refused>>,
}

/// What the group's minimum resources ask for beside what its pods hold. A group that waits has pods with places if the
/// scheduler was restarted after their bindings and before its admission was written.
fn lacks(group: &Group) -> Option<Vec<i64>> {
    let minimum = group.min_resources.as_ref()?;
    let asks = minimum.iter().enumerate().map(|(d, n)| (n - get(&group.allocated, d)).max(0));
    Some(asks.collect())
}

impl Cluster {
    /// Admits groups, queue by queue in their order, one group a turn.
    pub(crate) fn enqueue(&mut self, now: i64) {
        let with_pending = self.queue_ids().filter(|id| !self.queue(*id).pending.is_empty());
        let mut queues: BTreeSet<(QueueKey, QueueId)> =
            with_pending.map(|id| (self.queue_key(id), id)).collect();
        if queues.is_empty() {
            return;
        }
        let overcommit = On::at(&self.policy.plugins.overcommit, Hook::JobEnqueued);
        let room = overcommit.map(|overcommit| self.room_to_promise(overcommit.factor));
        let mut budget = EnqueueBudget { now, room, promised: Promised::new(), refused: BTreeMap::new() };
        // Others would get what these were promised.
        for group in self.outside_with_places(&queues) {
            if self.enter(group, &mut budget).is_ok() {
                self.admit(group, &mut budget);
            }
        }
        let mut next: BTreeMap<QueueId, (JobKey, GroupId)> = BTreeMap::new();
        while let Some((_, queue)) = queues.pop_first() {
            let pending = &self.queue(queue).pending;
            let candidate = match next.get(&queue) {
                None => pending.first().copied(),
                Some(after) => pending.range((Bound::Excluded(*after), Bound::Unbounded)).next().copied(),
            };
            let Some((key, group)) = candidate else { continue };
            next.insert(queue, (key, group));
            let admitted = match self.enter(group, &mut budget) {
                Ok(()) => {
                    self.admit(group, &mut budget);
                    true
                }
                Err(why) => {
                    self.say_why(group, &why);
                    false
                }
            };
            // No group passes the head of a fifo queue.
            if admitted || !self.queue(queue).input.fifo {
                queues.insert((self.queue_key(queue), queue));
            }
        }
    }

    /// Groups that wait although pods of theirs hold places, in the order of queues and groups. Before its restart the
    /// scheduler had admitted them, and did not write it.
    fn outside_with_places(&self, queues: &BTreeSet<(QueueKey, QueueId)>) -> Vec<GroupId> {
        let waiting =
            queues.iter().flat_map(|(_, id)| self.queue(*id).pending.iter().map(|(_, group)| *group));
        waiting.filter(|id| self.group(*id).allocated.iter().any(|amount| *amount > 0)).collect()
    }

    /// Whether the group may be admitted now, or why not.
    fn enter(&mut self, id: GroupId, budget: &mut EnqueueBudget) -> Result<(), Arc<str>> {
        // An equal group of another namespace may be admitted.
        if self.policy.plugins.is_on(PluginName::ResourceQuota, Hook::JobEnqueued)
            && let Some(why) = resourcequota::refused_by_quota(&self.state, id, &mut budget.promised)
        {
            return Err(why.into());
        }
        let group = self.group(id);
        let queue = group.queue;
        let asks = lacks(group);
        let minimum = asks.clone().unwrap_or_default();
        let (late, priority) = (self.is_late(group, budget.now), group.input.priority);
        let known = budget.refused.entry(queue).or_default();
        let judged = !late && !minimum.is_empty();
        if let Some(equal) = known.iter().find(|refused| judged && refused.covers(&minimum, priority)) {
            return Err(equal.why.clone());
        }
        let asks = asks.as_deref().filter(|_| !late);
        if let Err(why) = self.may_enter(id, asks, budget.room.as_deref()) {
            let why: Arc<str> = why.into();
            let known = budget.refused.entry(queue).or_default();
            if known.len() < REFUSED_KEPT && !minimum.is_empty() {
                known.push(Refused { amounts: minimum, priority, why: why.clone() });
            }
            return Err(why);
        }
        match &self.policy.plugins.extender {
            Some(extender) => extender.rules.not_to_enter(&mut self.state, id).map_or(Ok(()), Err),
            None => Ok(()),
        }
    }

    fn admit(&mut self, id: GroupId, budget: &mut EnqueueBudget) {
        let minimum = lacks(self.group(id)).unwrap_or_default();
        for (d, room) in budget.room.iter_mut().flatten().enumerate() {
            *room -= get(&minimum, d);
        }
        resourcequota::promise(&self.state, id, &mut budget.promised);
        self.group_mut(id).why = None;
        self.set_phase(id, Phase::Inqueue);
        self.refresh_group(id);
    }

    fn is_late(&self, group: &Group, now: i64) -> bool {
        On::at(&self.policy.plugins.sla, Hook::JobEnqueued).is_some_and(|sla| sla.due(group) <= now)
    }

    /// What may still be requested beside what is used and promised, per dimension.
    fn room_to_promise(&self, factor: i64) -> Vec<i64> {
        let mut room: Vec<i64> =
            self.nodes.total().iter().map(|n| (i128::from(*n) * i128::from(factor) / 1000) as i64).collect();
        for (id, _) in self.nodes.iter() {
            for (room, cell) in room.iter_mut().zip(self.nodes.cells(id)) {
                *room -= cell.used;
            }
        }
        for id in self.queue_ids().filter(|id| self.queue(*id).parent.is_none()) {
            for (d, room) in room.iter_mut().enumerate() {
                *room -= get(&self.queue(id).inqueue, d);
            }
        }
        room
    }

    /// Whether the group may be admitted now, or why not. `asks`: what it needs beside what it holds, if that counts.
    fn may_enter(&self, id: GroupId, asks: Option<&[i64]>, room: Option<&[i64]>) -> Result<(), String> {
        let group = self.group(id);
        let queue = self.queue(group.queue);
        if let Some(why) = queue.closed_because() {
            return Err(why);
        }
        if self.policy.queues.hierarchy && !queue.is_leaf() {
            return Err(format!(
                "queue {} has queues below it; allowed: a queue without any",
                queue.input.name
            ));
        }
        let Some(minimum) = asks else { return Ok(()) };
        if self.policy.queues.admission {
            let lineage =
                if self.policy.queues.capacity { self.lineage(group.queue) } else { vec![group.queue] };
            for at in lineage {
                self.has_room_for(at, group, minimum)?;
            }
        }
        if let Some(room) = room {
            let short = (PODS + 1..minimum.len()).find(|d| minimum[*d] > 0 && minimum[*d] > get(room, *d));
            // A full cluster does not block a queue that has less than it deserves: others may have to make room.
            if let Some(d) = short.filter(|_| !self.is_below_deserved(group.queue, minimum)) {
                let name = self.dimensions.name(d).as_str();
                let text = |n: i64| fleet_resources::quantity::format(name, n / self.dimensions.parts(d));
                return Err(format!(
                    "the cluster is full: {} {name} are asked for, {} may be promised",
                    text(minimum[d]),
                    text(get(room, d).max(0))
                ));
            }
        }
        Ok(())
    }

    fn is_below_deserved(&self, id: QueueId, minimum: &[i64]) -> bool {
        let queue = self.queue(id);
        let asked = || (PODS + 1..minimum.len()).filter(|d| minimum[*d] > 0);
        asked().next().is_some()
            && asked().all(|d| {
                let held = get(&queue.allocated, d) + get(&queue.inqueue, d);
                held.saturating_add(minimum[d]) <= self.deserves(id, d)
            })
    }

    fn has_room_for(&self, at: QueueId, group: &Group, minimum: &[i64]) -> Result<(), String> {
        let queue = self.queue(at);
        for d in (PODS + 1..minimum.len()).filter(|d| minimum[*d] > 0) {
            let held = get(&queue.allocated, d) + get(&queue.inqueue, d) - get(&queue.elastic, d);
            if held.saturating_add(minimum[d]) <= self.may_have(at, d) {
                continue;
            }
            // A queue that is full of lower priorities does not block a group that may preempt them.
            let firm =
                if self.policy.has(Action::Preempt) { self.held_by_equals(at, group, d) } else { held };
            if firm.saturating_add(minimum[d]) > self.may_have(at, d) {
                return Err(self.queue_sentence(at, d, held, minimum[d]));
            }
        }
        Ok(())
    }

    /// What groups of at least this group's priority hold or are promised in a queue.
    fn held_by_equals(&self, at: QueueId, group: &Group, d: usize) -> i64 {
        let below = self.queue_ids().filter(|id| *id == at || self.queue(*id).ancestors.contains(&at));
        let groups = below.flat_map(|id| self.queue(id).groups.iter().copied());
        groups
            .map(|other| self.group(other))
            .filter(|other| other.input.priority >= group.input.priority)
            .map(|other| get(&other.allocated, d) + get(&other.counted.inqueue, d))
            .sum()
    }
}
