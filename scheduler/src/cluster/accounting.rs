//! The sums: what changes when a pod moves, and where groups wait.

use std::sync::Arc;

use super::{Cluster, add_vector};
use crate::amounts::{self, Request};
use crate::devices::Part;
use crate::group::{GroupId, Phase, Shape, Waits};
use crate::index::Fit;
use crate::node::NodeId;
use crate::pod::{ClassId, PodId, Status};
use crate::queue::QueueId;

impl Cluster {
    /// The group must be considered again, and its status may have changed.
    pub(crate) fn mark(&mut self, id: GroupId) {
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

    /// Puts changed groups into the lists in which they wait now.
    pub(crate) fn refresh(&mut self) {
        for id in std::mem::take(&mut self.dirty_groups) {
            if self.try_group(id).is_some() {
                self.refresh_group(id);
            }
        }
    }

    pub(crate) fn refresh_group(&mut self, id: GroupId) {
        self.uncount_admission(id);
        let group = self.group_mut(id);
        group.dirty = false;
        group.see_end();
        if group.ready() >= group.min() {
            group.was_ready = true;
        }
        if group.pods.is_empty() {
            group.was_ready = false;
        }
        if !group.is_waiting() || group.need() == 0 {
            group.refused_since = None;
        }
        let (best_effort, promised) = {
            let group = self.group(id);
            (!group.pending_best_effort.is_empty(), group.count(Status::Pipelined) > 0)
        };
        if best_effort {
            self.best_effort.insert(id)
        } else {
            self.best_effort.remove(&id)
        };
        if promised {
            self.promised.insert(id);
        }
        let group = self.group(id);
        let key = self.job_key(group);
        let queue = group.queue as usize;
        let waits = if group.input.manual {
            Waits::No
        } else if group.phase == Phase::Pending {
            if group.over { Waits::No } else { Waits::Outside(key) }
        } else if group.is_waiting() && group.validity().is_ok() {
            let shape = self.shape_of(id);
            let known = self.queues[queue].waiting.get_key_value(&shape).map(|(known, _)| known.clone());
            Waits::Inside(known.unwrap_or_else(|| Arc::new(shape)), key)
        } else {
            Waits::No
        };
        // A group that waits as before keeps its refusal.
        if group.waits != waits {
            self.unlist_waits(id);
            match &waits {
                Waits::Outside(key) => {
                    self.queues[queue].pending.insert((*key, id));
                }
                Waits::Inside(shape, key) => {
                    self.queues[queue].waiting.entry(shape.clone()).or_default().groups.insert((*key, id));
                }
                Waits::No => {}
            }
            self.group_mut(id).waits = waits;
        }
        self.count_admission(id);
    }

    fn shape_of(&self, id: GroupId) -> Shape {
        let group = self.group(id);
        let pods: Vec<(ClassId, u32)> =
            group.pending_by_class.iter().map(|(class, n)| (*class, *n)).collect();
        let own = |class: &ClassId| self.class(*class).has_pod_terms();
        let selected = !self.terms.is_empty()
            && group.pending.iter().any(|(.., pod)| !self.pod(*pod).matches.is_empty());
        let special = selected
            || pods.iter().any(|(class, _)| own(class))
            || group.input.topology.is_some()
            || group.roles.iter().any(|role| role.min > 0)
            || self.nodes_claimed_by(id)
            || self.is_spoken_of(id);
        Shape { pods, need: group.need(), only: special.then_some(id) }
    }

    fn nodes_claimed_by(&self, id: GroupId) -> bool {
        self.claims.contains_key(&id)
    }

    /// Removes the group from its queue's lists and sums.
    pub(super) fn unlist(&mut self, id: GroupId) {
        self.unlist_waits(id);
        self.uncount_admission(id);
    }

    pub(super) fn unlist_waits(&mut self, id: GroupId) {
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

    pub(super) fn uncount_admission(&mut self, id: GroupId) {
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
    fn count_admission(&mut self, id: GroupId) {
        let group = self.group(id);
        let mut counted = crate::group::Admission { phase: Some(group.phase), ..Default::default() };
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

    /// Moves a pod. Every sum follows; while a statement is open, the move can be undone.
    pub(crate) fn set_place(&mut self, id: PodId, status: Status, node: Option<NodeId>) {
        let (old_status, old_node) = {
            let pod = self.pod(id);
            (pod.status, pod.node)
        };
        if (old_status, old_node) == (status, node) {
            return;
        }
        if self.recording {
            self.undo.push((id, old_status, old_node));
        }
        self.count(id, -1);
        let pod = self.pod_mut(id);
        pod.status = status;
        pod.node = node;
        if old_node != node {
            self.pod_mut(id).parts = self.parts_for(id, status, node);
            self.pod_mut(id).given = self.given_to(id, status, node);
        }
        self.count(id, 1);
    }

    /// Parts of cards that the pod gets on the node. They stay as long as the pod stays there.
    fn parts_for(&self, id: PodId, status: Status, node: Option<NodeId>) -> Vec<Part> {
        let class = &self.classes[self.pod(id).class as usize];
        let Some(node) = node.filter(|_| !self.asks(class).is_empty()) else { return Vec::new() };
        let fit = if status == Status::Pipelined { Fit::Future } else { Fit::Now };
        self.choose_cards(class, node, fit).unwrap_or_default()
    }

    pub(super) fn count(&mut self, id: PodId, sign: i64) {
        let (class, group, role, status, node, order) = {
            let pod = self.pod(id);
            (pod.class, pod.group, pod.role, pod.status, pod.node, pod.order(id))
        };
        let sub_group = self.pod(id).sub_group;
        let request = self.classes[class as usize].request.clone();
        let best_effort = request.is_empty();
        if let Some(node) = node {
            self.count_on_node(id, node, &request, status, sign);
        }
        match (status == Status::Releasing, sign > 0) {
            (false, _) => false,
            (true, true) => self.leaving.insert(id),
            (true, false) => self.leaving.remove(&id),
        };
        let entry = self.groups[group as usize].as_mut().unwrap_or_else(|| unreachable!("group of a pod"));
        entry.counts[status as usize] += sign;
        if let Some(sub_group) = sub_group.and_then(|at| entry.sub_groups.get_mut(usize::from(at))) {
            sub_group.counts[status as usize] += sign;
        }
        let role = &mut entry.roles[usize::from(role)];
        role.counts[status as usize] += sign;
        let queue = entry.queue;
        if self.policy.fair_tree.is_some() {
            self.fair.touch(queue);
        }
        if status == Status::Pending && best_effort {
            role.best_effort_pending += sign;
            entry.best_effort_pending += sign;
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
        let ports = self.classes[self.pod(id).class as usize].extras().map(|extras| extras.ports.clone());
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
        for term in self.classes[class as usize].anti_affinity.clone() {
            let domain = self.domain_of(node, term);
            self.terms.count_repelling(term, domain.as_deref(), sign);
        }
    }
}
