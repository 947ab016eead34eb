//! The sums: what changes when a pod moves.

use super::{State, add_vector};
use crate::amounts::{self, Request};
use crate::group::{Admission, Phase, Waits};
use crate::ids::{GroupId, NodeId, PodId, QueueId};
use crate::pod::{Reserved, Status};

impl State {
    /// The group must be considered again, and its status may have changed.
    pub fn mark(&mut self, id: GroupId) {
        let Some(group) = self.groups.get_mut(id as usize).and_then(Option::as_mut) else { return };
        if !group.dirty {
            group.dirty = true;
            self.dirty_groups.push(id);
        }
        if !group.changed {
            group.changed = true;
            self.changed_groups.push(id);
        }
    }

    /// Groups whose status may have changed.
    pub fn take_changed_groups(&mut self) -> Vec<GroupId> {
        let changed = std::mem::take(&mut self.changed_groups);
        let live = |id: &GroupId| self.groups.get(*id as usize).is_some_and(Option::is_some);
        let changed: Vec<GroupId> = changed.into_iter().filter(live).collect();
        changed.iter().for_each(|id| self.group_mut(*id).changed = false);
        changed
    }

    /// Removes the group from its queue's lists and sums.
    pub(super) fn unlist(&mut self, id: GroupId) {
        self.unlist_waits(id);
        self.uncount_admission(id);
    }

    pub fn unlist_waits(&mut self, id: GroupId) {
        let (waits, queue) = {
            let group = self.group_mut(id);
            (std::mem::take(&mut group.waits), group.queue as usize)
        };
        match waits {
            Waits::No => {}
            Waits::Outside(key) => {
                self.queues[queue].pending.remove(&(key, id));
            }
            Waits::Inside(shape, key) => {
                if let Some(waiting) = self.queues[queue].waiting.get_mut(&shape) {
                    waiting.groups.remove(&(key, id));
                    if waiting.groups.is_empty() {
                        self.queues[queue].waiting.remove(&shape);
                    }
                }
            }
        }
    }

    pub fn uncount_admission(&mut self, id: GroupId) {
        let queue = self.group(id).queue as usize;
        let old = std::mem::take(&mut self.group_mut(id).counted);
        if let Some(phase) = old.phase {
            self.queues[queue].phases[phase as usize] -= 1;
            self.add_up(queue as QueueId, |queue| {
                add_vector(&mut queue.inqueue, &old.inqueue, -1);
                add_vector(&mut queue.elastic, &old.elastic, -1);
            });
        }
    }

    /// Counts the group in its queue's admission.
    pub fn count_admission(&mut self, id: GroupId) {
        let group = self.group(id);
        let mut counted = Admission { phase: Some(group.phase), ..Default::default() };
        if let Some(minimum) = &group.min_resources {
            let n = minimum.len().max(group.allocated.len());
            let each = |f: &dyn Fn(i64, i64) -> i64| -> Vec<i64> {
                (0..n)
                    .map(|d| f(amounts::get(minimum, d), amounts::get(&group.allocated, d)).max(0))
                    .collect()
            };
            counted.elastic = each(&|minimum, allocated| allocated - minimum);
            let started = group.phase == Phase::Running && group.ready() >= group.min();
            // A gang that lost pods keeps capacity for their replacements.
            if matches!(group.phase, Phase::Inqueue | Phase::Unknown) || started {
                counted.inqueue = each(&|minimum, allocated| minimum - allocated);
            }
        }
        let (queue, phase) = (group.queue, group.phase);
        self.queues[queue as usize].phases[phase as usize] += 1;
        self.add_up(queue, |queue| {
            add_vector(&mut queue.inqueue, &counted.inqueue, 1);
            add_vector(&mut queue.elastic, &counted.elastic, 1);
        });
        self.mark_queue(queue);
        self.group_mut(id).counted = counted;
    }

    /// Moves a pod, with what plugins reserve for it there. Every sum follows.
    pub fn move_pod(&mut self, id: PodId, status: Status, node: Option<NodeId>, reserved: Option<Reserved>) {
        self.count(id, -1);
        let pod = self.pod_mut(id);
        pod.status = status;
        pod.node = node;
        if let Some(reserved) = reserved {
            pod.reserved = reserved;
        }
        self.count(id, 1);
    }

    pub(super) fn count(&mut self, id: PodId, sign: i64) {
        let (class, group, role, status, node, order) = {
            let pod = self.pod(id);
            (pod.class, pod.group, pod.role, pod.status, pod.node, pod.order(id))
        };
        let sub_group = self.pod(id).sub_group;
        let (request, best_effort) = {
            let class = self.class(class);
            (class.request.clone(), class.is_best_effort())
        };
        if let Some(node) = node {
            self.count_on_node(id, node, &request, status, sign);
        }
        match (status == Status::Releasing, sign > 0) {
            (false, _) => false,
            (true, true) => self.leaving.insert(id),
            (true, false) => self.leaving.remove(&id),
        };
        let entry = self.groups[group as usize].as_mut().unwrap_or_else(|| unreachable!("group of a pod"));
        entry.count_pod((role, sub_group), status, best_effort, sign);
        let queue = entry.queue;
        self.fair.touch(queue);
        if status == Status::Pending && best_effort {
            if sign > 0 {
                entry.pending_best_effort.insert(order)
            } else {
                entry.pending_best_effort.remove(&order)
            };
        } else if status == Status::Pending {
            let of_class = entry.pending_by_class.entry(class).or_default();
            if sign > 0 {
                *of_class += 1;
                entry.pending.insert(order);
            } else {
                *of_class -= 1;
                if *of_class == 0 {
                    entry.pending_by_class.remove(&class);
                }
                entry.pending.remove(&order);
            }
        }
        if status.is_allocated() {
            amounts::add(&mut entry.allocated, &request, 1, sign);
            self.add_up(queue, |queue| amounts::add(&mut queue.allocated, &request, 1, sign));
        } else if status == Status::Pending {
            amounts::add(&mut entry.requested, &request, 1, sign);
            self.add_up(queue, |queue| amounts::add(&mut queue.requested, &request, 1, sign));
        }
        self.mark(group);
    }

    fn count_on_node(&mut self, id: PodId, node: NodeId, request: &Request, status: Status, sign: i64) {
        if !status.uses_node() && status != Status::Pipelined {
            return;
        }
        match status {
            Status::Pipelined => self.nodes.change(node, request, 1, |cell, n| cell.pipelined += sign * n),
            Status::Releasing => self.nodes.change(node, request, 1, |cell, n| {
                cell.used += sign * n;
                cell.releasing += sign * n;
            }),
            _ => self.nodes.change(node, request, 1, |cell, n| cell.used += sign * n),
        }
        let ports = self.class(self.pod(id).class).extras().map(|extras| extras.ports.clone());
        let state = self.nodes.state_mut(node);
        if sign > 0 {
            state.pods.push(id);
        } else if let Some(at) = state.pods.iter().rposition(|pod| *pod == id) {
            state.pods.swap_remove(at);
        }
        // Ports and neighbours of a terminating pod are checked where they matter: for pods that start now.
        if status == Status::Releasing {
            return;
        }
        for port in ports.into_iter().flatten() {
            if sign > 0 {
                state.ports.push(port);
            } else if let Some(at) = state.ports.iter().position(|known| *known == port) {
                state.ports.swap_remove(at);
            }
        }
        self.count_terms(id, sign);
    }

    pub(super) fn count_standing(&mut self, id: PodId, sign: i64) {
        if self.pod(id).status != Status::Releasing {
            self.count_terms(id, sign);
        }
    }

    pub(super) fn count_terms(&mut self, id: PodId, sign: i64) {
        if self.terms.is_empty() {
            return;
        }
        let (node, matches, class) = {
            let pod = self.pod(id);
            (pod.node, pod.matches.clone(), pod.class)
        };
        let Some(node) = node else { return };
        for term in matches {
            let domain = self.domain_of(node, term);
            self.terms.count_selected(term, domain.as_deref(), sign);
        }
        for term in self.class(class).anti_affinity.clone() {
            let domain = self.domain_of(node, term);
            self.terms.count_repelling(term, domain.as_deref(), sign);
        }
    }
}
