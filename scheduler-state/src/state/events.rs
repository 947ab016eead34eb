//! Events: nodes, groups and pods that are added, changed and removed.

use fleet_placement::Node;
use fleet_resources::Resources;

use super::{State, add_vector};
use crate::group::{Group, GroupInput, Phase};
use crate::ids::{ClassId, GroupId, NodeId, PodId, QueueId, TermId};
use crate::node::Cell;
use crate::pod::{Pod, PodInput, Reserved, index_of};

impl State {
    /// Keeps a node for pods that are placed by name, as cells of virtual clusters are; their capacity counts on.
    pub fn keep_node(&mut self, name: &str, kept: bool) {
        self.nodes.keep(name, kept);
    }

    pub fn put_node(&mut self, node: &Node) {
        let moved = self
            .nodes
            .find(&node.name)
            .filter(|id| !self.terms.is_empty() && self.nodes.get(*id).labels != node.labels);
        let standing: Vec<PodId> = moved.map_or(Vec::new(), |id| self.nodes.get(id).pods.clone());
        standing.iter().for_each(|pod| self.count_standing(*pod, -1));
        let positions = self.dimensions.len();
        let changed = self.nodes.put(&mut self.dimensions, node);
        standing.iter().for_each(|pod| self.count_standing(*pod, 1));
        if let Some(id) = changed {
            self.shares_stale = true;
            self.fair.restructure = true;
            self.hypernodes.node_changed(&self.nodes, id);
            self.freed();
        }
        self.complete_requests(positions);
    }

    pub fn remove_node(&mut self, name: &str) {
        let Some(id) = self.nodes.find(name) else { return };
        let standing = if self.terms.is_empty() { Vec::new() } else { self.nodes.get(id).pods.clone() };
        standing.iter().for_each(|pod| self.count_standing(*pod, -1));
        if self.nodes.remove(name).is_some() {
            self.nodes.state_mut(id).labels.clear();
            self.shares_stale = true;
            self.fair.restructure = true;
        }
        standing.iter().for_each(|pod| self.count_standing(*pod, 1));
        self.hypernodes.node_changed(&self.nodes, id);
    }

    /// Uses capacity for which no pod of this cluster counts; `pods` below zero releases it.
    pub fn reserve(&mut self, node: &str, requests: &Resources, pods: i64) {
        let positions = self.dimensions.len();
        let request = self.dimensions.request(requests);
        self.nodes.widen(self.dimensions.len());
        let id = self.nodes.intern(node);
        let sign = pods.signum();
        self.nodes.change(id, &request, pods.abs(), |cell: &mut Cell, n| cell.used += sign * n);
        self.complete_requests(positions);
        if pods < 0 {
            self.freed();
        }
    }

    pub fn put_group(&mut self, input: GroupInput) -> GroupId {
        let queue = self.intern_queue(&input.queue);
        let key = (input.namespace.clone(), input.name.clone());
        let minimum = input.min_resources.as_ref().map(|resources| self.minimum_of(resources));
        self.nodes.widen(self.dimensions.len());
        let known = self.group_ids.get(&key).copied();
        let id = match known {
            Some(id) => id,
            None => {
                let group = Group::new(input.clone(), queue);
                let id = match self.free_groups.pop() {
                    Some(id) => {
                        self.groups[id as usize] = Some(group);
                        id
                    }
                    None => {
                        self.groups.push(Some(group));
                        self.groups.len() as GroupId - 1
                    }
                };
                self.group_ids.insert(key, id);
                self.queues[queue as usize].groups.insert(id);
                self.shares_stale = true;
                id
            }
        };
        let before = self.group(id);
        if known.is_some() && before.input == input && before.min_resources == minimum {
            return id;
        }
        if before.queue != queue {
            self.move_group(id, queue);
        }
        let group = self.group_mut(id);
        // Pods may be seen before the PodGroup that describes them. From then on its phase counts, not the free
        // pass of a group without an object.
        match (group.input.no_gate, input.no_gate) {
            (false, true) => group.phase = Phase::Inqueue,
            (true, false) => group.phase = input.phase,
            _ => {}
        }
        group.min_resources = minimum;
        let divided_anew = group.input.sub_groups != input.sub_groups;
        let minima_changed = known.is_none() || group.input.min_roles != input.min_roles;
        group.input = input;
        if minima_changed {
            group.set_minima();
        }
        if divided_anew {
            self.divide(id);
        }
        self.mark(id);
        self.freed();
        id
    }

    /// Assigns the pods of a group to its changed sub-groups.
    fn divide(&mut self, id: GroupId) {
        let pods: Vec<PodId> = self.group(id).pods.iter().copied().collect();
        pods.iter().for_each(|pod| self.count(*pod, -1));
        self.group_mut(id).forget_sub_groups();
        for pod in &pods {
            let labels = self.pod(*pod).labels.clone();
            let sub_group = self.group_mut(id).sub_group_of(&labels);
            self.pod_mut(*pod).sub_group = sub_group;
        }
        pods.iter().for_each(|pod| self.count(*pod, 1));
    }

    fn move_group(&mut self, id: GroupId, to: QueueId) {
        self.unlist(id);
        let (from, allocated, requested) = {
            let group = self.group(id);
            (group.queue, group.allocated.clone(), group.requested.clone())
        };
        for (queue, sign) in [(from, -1), (to, 1)] {
            self.add_up(queue, |queue| {
                add_vector(&mut queue.allocated, &allocated, sign);
                add_vector(&mut queue.requested, &requested, sign);
            });
            self.mark_queue(queue);
        }
        self.queues[from as usize].groups.remove(&id);
        self.queues[to as usize].groups.insert(id);
        self.fair.touch(from);
        self.fair.touch(to);
        self.group_mut(id).queue = to;
        self.shares_stale = true;
    }

    /// Sets the phase, which the scheduler itself decides.
    pub fn set_phase(&mut self, id: GroupId, phase: Phase) {
        if self.group(id).phase != phase {
            self.group_mut(id).phase = phase;
            if phase != Phase::Pending {
                self.group_mut(id).over = false;
            }
            self.mark(id);
        }
    }

    /// Removes a group; its pods must be gone or have moved to another.
    pub fn remove_group(&mut self, id: GroupId) {
        if self.try_group(id).is_none() {
            return;
        }
        let pods: Vec<PodId> = self.group(id).pods.iter().copied().collect();
        pods.into_iter().for_each(|pod| self.remove_pod(pod));
        self.unlist(id);
        self.drop_claims(id);
        self.extender.forget(id);
        let Some(group) = self.groups[id as usize].take() else { return };
        let key = (group.input.namespace, group.input.name);
        self.group_ids.remove(&key);
        self.queues[group.queue as usize].groups.remove(&id);
        self.fair.touch(group.queue);
        self.mark_queue(group.queue);
        self.free_groups.push(id);
        self.shares_stale |= self.shares_follow_pods;
    }

    pub(super) fn domain_of(&self, node: NodeId, term: TermId) -> Option<String> {
        self.nodes.get(node).labels.get(self.terms.key(term)).cloned()
    }

    /// Adds a pod. Its group must exist.
    pub fn add_pod(&mut self, input: PodInput) -> PodId {
        let class = self.intern_class(&input.spec);
        self.count_of_class(class, 1);
        let role = self.group_mut(input.group).role_index(&input.role);
        let sub_group = self.group_mut(input.group).sub_group_of(&input.labels);
        let matches = if self.terms.is_empty() {
            Vec::new()
        } else {
            self.terms.selected_by(&input.namespace, &input.labels)
        };
        let node = input.node.as_ref().map(|name| self.nodes.intern(name));
        let pod = Pod {
            index: index_of(&input.name),
            namespace: input.namespace,
            name: input.name,
            group: input.group,
            class,
            role,
            sub_group,
            status: input.status,
            node,
            priority: input.priority,
            created: input.created,
            preemptable: input.preemptable,
            never_preempts: input.never_preempts,
            critical: input.critical,
            cooldown_s: input.cooldown_s,
            started: None,
            labels: input.labels,
            reserved: Reserved::default(),
            matches,
        };
        let id = match self.free_pods.pop() {
            Some(id) => {
                self.pods[id as usize] = Some(pod);
                id
            }
            None => {
                self.pods.push(Some(pod));
                self.pods.len() as PodId - 1
            }
        };
        self.count_cards(class, 1);
        let group = self.pod(id).group;
        self.group_mut(group).pods.insert(id);
        let namespace = self.pod(id).namespace.clone();
        self.by_namespace.entry(namespace).or_default().insert(id);
        self.count(id, 1);
        self.shares_stale |= self.shares_follow_pods;
        id
    }

    /// When the pod started, in seconds since the epoch.
    pub fn set_started(&mut self, id: PodId, at: i64) {
        if self.find_pod(id).is_none_or(|pod| pod.started == Some(at)) {
            return;
        }
        if let Some(until) = self.pod(id).cools_until() {
            self.cooling.remove(&(until, id));
        }
        self.pod_mut(id).started = Some(at);
        if let Some(until) = self.pod(id).cools_until().filter(|until| *until > self.now) {
            self.cooling.insert((until, id));
        }
    }

    /// Sets the time, in seconds since the epoch. A pod whose cooldown is over may be a victim.
    pub fn set_now(&mut self, now: i64) {
        self.now = now;
        while self.cooling.first().is_some_and(|(until, _)| *until <= now) {
            self.cooling.pop_first();
            self.freed();
        }
    }

    /// Counts pods of a class that requests cards.
    fn count_cards(&mut self, class: ClassId, sign: i64) {
        if self.class(class).extras().is_none_or(|extras| extras.devices.is_empty()) {
            return;
        }
        let count = self.card_pods.entry(class).or_default();
        *count += sign;
        if *count == 0 {
            self.card_pods.remove(&class);
        }
    }

    pub fn remove_pod(&mut self, id: PodId) {
        if self.find_pod(id).is_none() {
            return;
        }
        self.count(id, -1);
        self.extender.kept.remove(&id);
        if let Some(until) = self.pod(id).cools_until() {
            self.cooling.remove(&(until, id));
        }
        let Some(pod) = self.pods[id as usize].take() else { return };
        self.count_cards(pod.class, -1);
        self.count_of_class(pod.class, -1);
        self.group_mut(pod.group).pods.remove(&id);
        if let Some(others) = self.by_namespace.get_mut(&pod.namespace) {
            others.remove(&id);
            if others.is_empty() {
                self.by_namespace.remove(&pod.namespace);
            }
        }
        self.mark(pod.group);
        self.free_pods.push(id);
        if pod.node.is_some() {
            self.freed();
        }
        self.shares_stale |= self.shares_follow_pods;
    }
}
