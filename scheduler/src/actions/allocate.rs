//! Allocate: places groups that fit now, queue by queue, group by group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::cycle::{Limits, Outcome};
use crate::group::JobKey;
use crate::group::Shape;
use crate::ids::{GroupId, QueueId};
use crate::order::QueueKey;

type Head = (JobKey, GroupId, Arc<Shape>);

impl Cluster {
    /// Places what fits. Stops after [`Limits::turns`] and says so.
    pub(crate) fn allocate(&mut self, limits: &Limits, outcome: &mut Outcome) {
        let mut heads: BTreeMap<QueueId, BTreeSet<Head>> = BTreeMap::new();
        let mut queues: BTreeSet<(QueueKey, QueueId)> = BTreeSet::new();
        for id in self.queue_ids() {
            if self.queue(id).waiting.is_empty() {
                continue;
            }
            if let Some(why) = self.queue(id).closed_because() {
                self.refuse_all(id, why.into());
                continue;
            }
            if self.queue(id).input.fifo {
                let first: Option<Head> = self.fifo_head(id);
                let open = first.filter(|head| {
                    let waiting = self.queue(id).waiting.get(&head.2);
                    waiting.is_some_and(|waiting| !waiting.is_refused(self.room))
                });
                if let Some(head) = open {
                    heads.insert(id, [head].into());
                    queues.insert((self.queue_key(id), id));
                }
                continue;
            }
            let queue = self.queue(id);
            let open = queue.waiting.iter().filter(|(_, waiting)| !waiting.is_refused(self.room));
            let first: BTreeSet<Head> = open
                .filter_map(|(shape, waiting)| {
                    waiting.groups.first().map(|(key, id)| (*key, *id, shape.clone()))
                })
                .collect();
            if !first.is_empty() {
                heads.insert(id, first);
                queues.insert((self.queue_key(id), id));
            }
        }
        let mut turns = 0;
        while let Some((_, queue)) = queues.pop_first() {
            if turns >= limits.turns {
                outcome.more = true;
                return;
            }
            if self.is_overused(queue) {
                let name = &self.queue(queue).input.name;
                self.refuse_all(queue, format!("queue {name} holds all that it deserves").into());
                continue;
            }
            let Some(waiting) = heads.get_mut(&queue) else { continue };
            let Some((_, group, shape)) = waiting.pop_first() else { continue };
            turns += 1;
            let placed = self.place_group(group);
            match placed {
                Ok(bound) => {
                    self.bound_pods += bound.len() as u64;
                    outcome.bind(group, bound);
                    self.group_mut(group).why = None;
                    self.refresh_group(group);
                    let next: Vec<Head> = if self.queue(queue).input.fifo {
                        self.fifo_head(queue).into_iter().collect()
                    } else {
                        let shapes = [Some(shape), self.shape_waited(group)].into_iter().flatten();
                        shapes.filter_map(|shape| self.head_of(queue, &shape)).collect()
                    };
                    heads.entry(queue).or_default().extend(next);
                }
                Err(stopped) => {
                    let why = self.explain(group, &stopped);
                    self.refuse(queue, &shape, group, why);
                    self.hold_behind(queue, group);
                }
            }
            queues.insert((self.queue_key(queue), queue));
            // One turn changes the whole branch of the tree.
            if self.refresh_fair() {
                queues = queues.into_iter().map(|(_, queue)| (self.queue_key(queue), queue)).collect();
            }
        }
    }

    fn shape_waited(&self, group: GroupId) -> Option<Arc<Shape>> {
        match &self.group(group).waits {
            crate::group::Waits::Inside(shape, _) => Some(shape.clone()),
            _ => None,
        }
    }

    /// The first of all groups that wait for places in a queue.
    pub(crate) fn fifo_head(&self, queue: QueueId) -> Option<Head> {
        let waiting = self.queue(queue).waiting.iter();
        waiting
            .filter_map(|(shape, waiting)| waiting.groups.first().map(|(key, id)| (*key, *id, shape.clone())))
            .min()
    }

    /// Tells groups behind the head of a fifo queue which group they wait for.
    fn hold_behind(&mut self, queue: QueueId, first: GroupId) {
        if !self.queue(queue).input.fifo {
            return;
        }
        let (name, of) = (&self.group(first).input.name, &self.queue(queue).input.name);
        let why: Arc<str> =
            format!("behind {name}, for which there is no room: dequeueStrategy of queue {of} is fifo")
                .into();
        let groups = self.queue(queue).waiting.values().flat_map(|waiting| waiting.groups.iter());
        let behind: Vec<GroupId> = groups.map(|(_, id)| *id).filter(|id| *id != first).collect();
        behind.into_iter().for_each(|id| self.say_why(id, &why));
    }

    fn head_of(&self, queue: QueueId, shape: &Arc<Shape>) -> Option<Head> {
        let waiting =
            self.queue(queue).waiting.get(shape).filter(|waiting| !waiting.is_refused(self.room))?;
        waiting.groups.first().map(|(key, id)| (*key, *id, shape.clone()))
    }

    /// Tells all groups that wait for places in a queue why none is considered.
    fn refuse_all(&mut self, queue: QueueId, why: Arc<str>) {
        let room = self.room;
        let mut news = Vec::new();
        for waiting in self.queue_mut(queue).waiting.values_mut() {
            let said = waiting.refused.replace((room, why.clone()));
            if said.is_none_or(|(_, said)| said != why) {
                news.extend(waiting.groups.iter().map(|(_, id)| *id));
            }
        }
        news.into_iter().for_each(|id| self.say_why(id, &why));
    }

    pub(crate) fn say_why(&mut self, id: GroupId, why: &Arc<str>) {
        if self.group(id).why.as_ref() != Some(why) {
            self.group_mut(id).why = Some(why.clone());
            self.mark(id);
        }
    }

    /// Records why, for the group and its equals.
    fn refuse(&mut self, queue: QueueId, shape: &Arc<Shape>, group: GroupId, why: Arc<str>) {
        let room = self.room;
        let mut new = Vec::new();
        if let Some(waiting) = self.queue_mut(queue).waiting.get_mut(shape) {
            let first = waiting.refused.is_none();
            waiting.refused = Some((room, why.clone()));
            if first {
                new = waiting.groups.iter().map(|(_, id)| *id).collect();
            }
        }
        new.push(group);
        let bound = self.bound_pods;
        for id in new {
            self.group_mut(id).refused_since.get_or_insert(bound);
            if self.group(id).why.as_ref() != Some(&why) {
                self.group_mut(id).why = Some(why.clone());
                self.mark(id);
            }
        }
    }
}
