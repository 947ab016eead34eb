//! Enqueue: which groups their queues admit, so that their pods are created.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::amounts::{PODS, get};
use crate::cluster::Cluster;
use crate::config::Action;
use crate::group::{Group, GroupId, Phase};
use crate::order::{JobKey, QueueKey};
use crate::queue::QueueId;
use crate::resource_quotas::Promised;

/// Refused amounts per queue that are remembered within a cycle.
const REFUSED_KEPT: usize = 8;

impl Cluster {
    /// Admits groups, queue by queue in their order, one group a turn.
    pub(crate) fn enqueue(&mut self, now: i64) {
        let with_pending = self.queue_ids().filter(|id| !self.queue(*id).pending.is_empty());
        let mut queues: BTreeSet<(QueueKey, QueueId)> =
            with_pending.map(|id| (self.queue_key(id), id)).collect();
        if queues.is_empty() {
            return;
        }
        let mut overcommitted = self.policy.overcommit.map(|factor| self.room_to_promise(factor));
        let mut promised = Promised::new();
        let mut next: std::collections::BTreeMap<QueueId, (JobKey, GroupId)> = Default::default();
        let mut refused: std::collections::BTreeMap<QueueId, Vec<Vec<i64>>> = Default::default();
        while let Some((_, queue)) = queues.pop_first() {
            let after = next.get(&queue).copied();
            let pending = &self.queue(queue).pending;
            let candidate = match after {
                None => pending.first().copied(),
                Some(after) => pending
                    .range((std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded))
                    .next()
                    .copied(),
            };
            let Some((key, group)) = candidate else { continue };
            next.insert(queue, (key, group));
            let known = refused.entry(queue).or_default();
            let minimum = self.group(group).min_resources.clone().unwrap_or_default();
            let hopeless = known.iter().any(|refused| {
                !minimum.is_empty() && (0..refused.len()).all(|d| refused[d] <= get(&minimum, d))
            });
            let late = self.is_late(self.group(group), now);
            // An equal group of another namespace may be admitted.
            if let Some(why) = self.over_resource_quota(group, &mut promised) {
                if self.group(group).why.as_deref() != Some(&why) {
                    self.group_mut(group).why = Some(why.into());
                    self.mark(group);
                }
                if !self.queue(queue).input.fifo {
                    queues.insert((self.queue_key(queue), queue));
                }
                continue;
            }
            let answer = if hopeless && !late {
                // As its equal before it.
                self.queue(queue)
                    .closed_because()
                    .map_or_else(|| self.group(group).why.clone(), |why| Some(why.into()))
            } else {
                self.may_enter(group, late, overcommitted.as_deref()).err().map(Arc::from)
            };
            match answer {
                None if (!hopeless || late)
                    && let Some(why) = self.not_to_enter(group) =>
                {
                    if self.group(group).why.as_ref() != Some(&why) {
                        self.group_mut(group).why = Some(why);
                        self.mark(group);
                    }
                    if self.queue(queue).input.fifo {
                        continue;
                    }
                }
                None if !hopeless || late => {
                    if let Some(room) = &mut overcommitted {
                        for (d, room) in room.iter_mut().enumerate() {
                            *room -= get(&minimum, d);
                        }
                    }
                    self.promise_of_quota(group, &mut promised);
                    self.group_mut(group).why = None;
                    self.set_phase(group, Phase::Inqueue);
                    self.refresh_group(group);
                }
                why => {
                    if why.is_some() && self.group(group).why != why {
                        self.group_mut(group).why = why;
                        self.mark(group);
                    }
                    if known.len() < REFUSED_KEPT && !minimum.is_empty() {
                        known.push(minimum);
                    }
                    // No group passes the head.
                    if self.queue(queue).input.fifo {
                        continue;
                    }
                }
            }
            queues.insert((self.queue_key(queue), queue));
        }
    }

    fn is_late(&self, group: &Group, now: i64) -> bool {
        let Some(default) = self.policy.sla else { return false };
        let wait = group.input.sla_wait.or(default);
        wait.is_some_and(|wait| group.input.created.saturating_add(wait) <= now)
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

    /// Whether the group may be admitted now, or why not.
    fn may_enter(&self, id: GroupId, late: bool, room: Option<&[i64]>) -> Result<(), String> {
        let group = self.group(id);
        let queue = self.queue(group.queue);
        if let Some(why) = queue.closed_because() {
            return Err(why);
        }
        if self.policy.hierarchy && !queue.is_leaf() {
            return Err(format!(
                "queue {} has queues below it; allowed: a queue without any",
                queue.input.name
            ));
        }
        let Some(minimum) = group.min_resources.as_ref().filter(|_| !late) else { return Ok(()) };
        if self.policy.queue_admission {
            let lineage = if self.policy.capacity { self.lineage(group.queue) } else { vec![group.queue] };
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
