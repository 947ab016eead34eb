//! Events of queues, and the tree of queues.

use super::{State, add_vector};
use crate::ids::{GroupId, QueueId};
use crate::queue::{Queue, QueueInput, ROOT_QUEUE};

/// Number of queues at which those that nobody needs any more are given back.
const QUEUES_SWEPT_AT: usize = 1024;

impl State {
    /// The number of the queue with that name, known or not.
    pub fn intern_queue(&mut self, name: &str) -> QueueId {
        if let Some(id) = self.find_queue(name) {
            return id;
        }
        self.sweep_queues();
        let id = self.free_queues.pop().unwrap_or_else(|| {
            self.queues.push(Queue::default());
            self.queues.len() as QueueId - 1
        });
        let input = QueueInput::named(name);
        self.queue_ids.insert(input.name.clone(), id);
        self.fair.restructure = true;
        self.shares_stale = true;
        let queue = &mut self.queues[id as usize];
        // It may still be listed as changed.
        *queue = Queue { input, changed: queue.changed, ..Queue::default() };
        id
    }

    /// Gives back numbers of queues that are no objects and have no groups: pods name what they like as their queue.
    fn sweep_queues(&mut self) {
        if self.queue_ids.len() < QUEUES_SWEPT_AT.max(self.queues_left * 2) {
            return;
        }
        let queues = &self.queues;
        let is_used = |id: QueueId| {
            let queue = &queues[id as usize];
            let in_tree = queue.parent.is_some() || !queue.children.is_empty() || queue.problem.is_some();
            queue.known || in_tree || !queue.groups.is_empty()
        };
        let gone: Vec<QueueId> = self.queue_ids.values().copied().filter(|id| !is_used(*id)).collect();
        self.queue_ids.retain(|_, id| is_used(*id));
        self.free_queues.extend(gone);
        self.queues_left = self.queue_ids.len();
    }

    pub fn put_queue(&mut self, input: QueueInput) {
        let id = self.intern_queue(&input.name);
        if self.queues[id as usize].known && self.queues[id as usize].input == input {
            return;
        }
        let positions = self.dimensions.len();
        for resources in [&input.capability, &input.deserved, &input.guarantee] {
            self.dimensions.vector(resources);
        }
        self.nodes.widen(self.dimensions.len());
        self.complete_requests(positions);
        self.queues[id as usize].input = input;
        self.queues[id as usize].known = true;
        self.queue_changed(id);
    }

    /// Whether the queue has a parent or children, now or before the last rebuild.
    fn in_tree(&self, id: QueueId) -> bool {
        let queue = &self.queues[id as usize];
        let named = queue.input.parent.as_ref().is_some_and(|name| **name != *ROOT_QUEUE);
        named || queue.parent.is_some() || !queue.children.is_empty() || queue.problem.is_some()
    }

    pub fn remove_queue(&mut self, name: &str) {
        if let Some(id) = self.find_queue(name) {
            self.queues[id as usize].known = false;
            self.queue_changed(id);
        }
    }

    fn queue_changed(&mut self, id: QueueId) {
        self.fair.restructure = true;
        if self.in_tree(id) {
            self.rebuild_tree();
        }
        let groups: Vec<GroupId> = self.queues[id as usize].groups.iter().copied().collect();
        groups.into_iter().for_each(|group| self.mark(group));
        self.shares_stale = true;
        self.freed();
        self.mark_queue(id);
    }

    /// Parents, children and the sums along them.
    fn rebuild_tree(&mut self) {
        for group in self.group_list() {
            self.unlist(group);
            self.mark(group);
        }
        for id in self.queue_ids() {
            let named = self.queues[id as usize].input.parent.clone().filter(|name| &**name != ROOT_QUEUE);
            let parent = named.as_ref().map(|name| self.intern_queue(name));
            let queue = &mut self.queues[id as usize];
            queue.parent = parent;
            queue.children.clear();
            queue.problem = None;
        }
        for id in self.queue_ids() {
            let mut path = vec![id];
            let mut at = self.queues[id as usize].parent;
            while let Some(parent) = at {
                if path.contains(&parent) {
                    let names: Vec<&str> =
                        path.iter().chain([&parent]).map(|q| &*self.queues[*q as usize].input.name).collect();
                    let text = format!(
                        "field spec.parent: found the cycle {}; allowed: parents that lead to {ROOT_QUEUE}",
                        names.join(" -> ")
                    );
                    self.queues[id as usize].problem = Some(text.into());
                    break;
                }
                path.push(parent);
                at = self.queues[parent as usize].parent;
            }
            if self.queues[id as usize].problem.is_none() {
                self.queues[id as usize].ancestors = path.split_off(1);
            } else {
                self.queues[id as usize].ancestors = Vec::new();
            }
        }
        for id in self.queue_ids() {
            if let Some(parent) = self.queues[id as usize].parent {
                self.queues[parent as usize].children.insert(id);
                if !self.queues[parent as usize].known && self.queues[id as usize].problem.is_none() {
                    let name = &self.queues[parent as usize].input.name;
                    let text = format!(
                        "field spec.parent: found {name}, which does not exist; allowed: a queue, or {ROOT_QUEUE}"
                    );
                    self.queues[id as usize].problem = Some(text.into());
                }
            }
        }
        self.queue_ids().for_each(|id| self.mark_queue(id));
        for id in self.queue_ids() {
            let queue = &mut self.queues[id as usize];
            queue.allocated.clear();
            queue.requested.clear();
        }
        for group in self.group_list() {
            let (queue, allocated, requested) = {
                let group = self.group(group);
                (group.queue, group.allocated.clone(), group.requested.clone())
            };
            self.add_up(queue, |queue| {
                add_vector(&mut queue.allocated, &allocated, 1);
                add_vector(&mut queue.requested, &requested, 1);
            });
        }
    }

    /// The queue and, in a tree, everything above it.
    pub fn lineage(&self, id: QueueId) -> Vec<QueueId> {
        let mut found = vec![id];
        found.extend(&self.queue(id).ancestors);
        found
    }

    /// Changes a queue and everything above it.
    pub fn add_up(&mut self, id: QueueId, mut change: impl FnMut(&mut Queue)) {
        change(&mut self.queues[id as usize]);
        for at in 0..self.queues[id as usize].ancestors.len() {
            let ancestor = self.queues[id as usize].ancestors[at];
            change(&mut self.queues[ancestor as usize]);
        }
    }

    pub(super) fn mark_queue(&mut self, id: QueueId) {
        let queue = &mut self.queues[id as usize];
        if !queue.changed {
            queue.changed = true;
            self.changed_queues.push(id);
        }
    }

    /// Queues whose status may have changed.
    pub fn take_changed_queues(&mut self) -> Vec<QueueId> {
        let changed = std::mem::take(&mut self.changed_queues);
        changed.iter().for_each(|id| self.queues[*id as usize].changed = false);
        changed
    }
}
