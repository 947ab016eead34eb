//! What the scheduler knows: nodes, pods, groups and queues in numbered lists, kept up to date by events.
//!
//! Every sum (use of nodes, what groups and queues hold and wait for, selected pods per domain) changes with the
//! one function that moves a pod, [`Cluster::set_place`]; undoing is moving back. Nothing is copied for a
//! search. Deliberately absent: clocks, names of API objects' versions, IO.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_placement::Node;
use fleet_resources::Resources;

use crate::amounts::{self, Dimensions, Request};
use crate::config::Policy;
use crate::group::{Group, GroupId, GroupInput, Phase, Shape, Waits};
use crate::index::ClassIndex;
use crate::node::{Cell, NodeId, Nodes};
use crate::pod::{Class, ClassId, Pod, PodId, PodInput, PodSpec, PodTerm, Status, index_of};
use crate::queue::{Queue, QueueId, QueueInput, ROOT_QUEUE};
use crate::terms::{TermId, Terms};
use crate::topology::HyperNodes;

type GroupKey = (Arc<str>, Arc<str>);

/// Name of the group of pods that are only asked about.
const ASKED: &str = "asked";
/// Most pods that are asked about at once.
const MAX_ASKED: i64 = 200_000;

#[derive(Debug)]
pub struct Cluster {
    pub dimensions: Dimensions,
    pub nodes: Nodes,
    pub policy: Policy,
    pub hypernodes: HyperNodes,
    pub(crate) terms: Terms,
    classes: Vec<Class>,
    class_ids: BTreeMap<Arc<PodSpec>, ClassId>,
    pub(crate) indexes: Vec<Option<Box<ClassIndex>>>,
    pub(crate) index_uses: u64,
    pods: Vec<Option<Pod>>,
    free_pods: Vec<PodId>,
    groups: Vec<Option<Group>>,
    free_groups: Vec<GroupId>,
    group_ids: BTreeMap<GroupKey, GroupId>,
    queues: Vec<Queue>,
    queue_ids: BTreeMap<Arc<str>, QueueId>,
    /// Grows when room may have come free.
    pub(crate) room: u64,
    dirty_groups: Vec<GroupId>,
    changed_groups: Vec<GroupId>,
    changed_queues: Vec<QueueId>,
    pub(crate) shares_stale: bool,
    /// Moves since a statement began, oldest first.
    undo: Vec<(PodId, Status, Option<NodeId>)>,
    recording: bool,
    /// Groups with promised places.
    pub(crate) promised: BTreeSet<GroupId>,
    /// Groups with pods that wait and ask for nothing.
    pub(crate) best_effort: BTreeSet<GroupId>,
    /// Counts pods that were given places.
    pub(crate) bound_pods: u64,
    /// Counts pods that came to hold places.
    pub(crate) placed: u64,
    /// Nodes kept for a group, by group.
    pub(crate) claims: BTreeMap<GroupId, Vec<NodeId>>,
    /// Minute of the day, for nodes that are revoked by the clock.
    pub(crate) minute: i64,
}

impl Cluster {
    pub fn new(policy: Policy) -> Self {
        let mut cluster = Self {
            dimensions: Dimensions::default(),
            nodes: Nodes::default(),
            policy,
            hypernodes: HyperNodes::default(),
            terms: Terms::default(),
            classes: Vec::new(),
            class_ids: BTreeMap::new(),
            indexes: Vec::new(),
            index_uses: 0,
            pods: Vec::new(),
            free_pods: Vec::new(),
            groups: Vec::new(),
            free_groups: Vec::new(),
            group_ids: BTreeMap::new(),
            queues: Vec::new(),
            queue_ids: BTreeMap::new(),
            room: 1,
            dirty_groups: Vec::new(),
            changed_groups: Vec::new(),
            changed_queues: Vec::new(),
            shares_stale: true,
            undo: Vec::new(),
            recording: false,
            promised: BTreeSet::new(),
            best_effort: BTreeSet::new(),
            bound_pods: 0,
            placed: 0,
            claims: BTreeMap::new(),
            minute: 0,
        };
        cluster.nodes.widen(cluster.dimensions.len());
        cluster
    }

    /// Other rules from now on: everything that was refused is looked at again.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
        self.indexes.iter_mut().for_each(|index| *index = None);
        self.shares_stale = true;
        self.freed();
        for id in self.group_list() {
            self.mark(id);
        }
    }

    /// Something may fit now that did not.
    pub fn freed(&mut self) {
        self.room += 1;
    }

    // ---- reading

    pub fn pod(&self, id: PodId) -> &Pod {
        self.pods[id as usize].as_ref().unwrap_or_else(|| unreachable!("pod {id} was removed"))
    }

    pub fn find_pod(&self, id: PodId) -> Option<&Pod> {
        self.pods.get(id as usize)?.as_ref()
    }

    fn pod_mut(&mut self, id: PodId) -> &mut Pod {
        self.pods[id as usize].as_mut().unwrap_or_else(|| unreachable!("pod {id} was removed"))
    }

    pub fn group(&self, id: GroupId) -> &Group {
        self.groups[id as usize].as_ref().unwrap_or_else(|| unreachable!("group {id} was removed"))
    }

    pub fn find_group(&self, namespace: &str, name: &str) -> Option<GroupId> {
        self.group_ids.get(&(Arc::from(namespace), Arc::from(name))).copied()
    }

    pub fn try_group(&self, id: GroupId) -> Option<&Group> {
        self.groups.get(id as usize)?.as_ref()
    }

    pub(crate) fn group_mut(&mut self, id: GroupId) -> &mut Group {
        self.groups[id as usize].as_mut().unwrap_or_else(|| unreachable!("group {id} was removed"))
    }

    pub fn group_list(&self) -> Vec<GroupId> {
        self.group_ids.values().copied().collect()
    }

    pub fn queue(&self, id: QueueId) -> &Queue {
        &self.queues[id as usize]
    }

    pub(crate) fn queue_mut(&mut self, id: QueueId) -> &mut Queue {
        &mut self.queues[id as usize]
    }

    pub fn queue_ids(&self) -> impl Iterator<Item = QueueId> + use<> {
        0..self.queues.len() as QueueId
    }

    pub fn find_queue(&self, name: &str) -> Option<QueueId> {
        self.queue_ids.get(name).copied()
    }

    pub(crate) fn classes(&self) -> &[Class] {
        &self.classes
    }

    pub fn class(&self, id: ClassId) -> &Class {
        &self.classes[id as usize]
    }

    pub(crate) fn request_of(&self, id: PodId) -> Request {
        self.classes[self.pod(id).class as usize].request.clone()
    }

    pub fn is_best_effort(&self, id: PodId) -> bool {
        self.class(self.pod(id).class).is_best_effort()
    }

    // ---- nodes

    pub fn put_node(&mut self, node: &Node) {
        let moved = self
            .nodes
            .find(&node.name)
            .filter(|id| !self.terms.is_empty() && self.nodes.get(*id).labels != node.labels);
        let standing: Vec<PodId> = moved.map_or(Vec::new(), |id| self.nodes.get(id).pods.clone());
        standing.iter().for_each(|pod| self.count_standing(*pod, -1));
        let changed = self.nodes.put(&mut self.dimensions, node);
        standing.iter().for_each(|pod| self.count_standing(*pod, 1));
        if let Some(id) = changed {
            self.shares_stale = true;
            self.hypernodes.node_changed(&self.nodes, id);
            self.freed();
        }
    }

    pub fn remove_node(&mut self, name: &str) {
        let Some(id) = self.nodes.find(name) else { return };
        let standing = if self.terms.is_empty() { Vec::new() } else { self.nodes.get(id).pods.clone() };
        standing.iter().for_each(|pod| self.count_standing(*pod, -1));
        if self.nodes.remove(name).is_some() {
            self.nodes.state_mut(id).labels.clear();
            self.shares_stale = true;
        }
        standing.iter().for_each(|pod| self.count_standing(*pod, 1));
        self.hypernodes.node_changed(&self.nodes, id);
    }

    /// Keeps room that no pod of this cluster counts for, or gives it back (`pods` below zero).
    pub fn reserve(&mut self, node: &str, requests: &Resources, pods: i64) {
        let request = self.dimensions.request(requests);
        self.nodes.widen(self.dimensions.len());
        let id = self.nodes.intern(node);
        let sign = pods.signum();
        self.nodes.change(id, &request, pods.abs(), |cell: &mut Cell, n| cell.used += sign * n);
        if pods < 0 {
            self.freed();
        }
    }

    // ---- queues

    /// The number of the queue of that name, known or not.
    pub fn intern_queue(&mut self, name: &str) -> QueueId {
        if let Some(id) = self.find_queue(name) {
            return id;
        }
        let id = self.queues.len() as QueueId;
        let input = QueueInput::named(name);
        self.queue_ids.insert(input.name.clone(), id);
        self.queues.push(Queue { input, ..Queue::default() });
        id
    }

    pub fn put_queue(&mut self, input: QueueInput) {
        let id = self.intern_queue(&input.name);
        if self.queues[id as usize].known && self.queues[id as usize].input == input {
            return;
        }
        for resources in [&input.capability, &input.deserved, &input.guarantee] {
            self.dimensions.vector(resources);
        }
        self.nodes.widen(self.dimensions.len());
        self.queues[id as usize].input = input;
        self.queues[id as usize].known = true;
        self.queue_changed(id);
    }

    /// Whether other queues stand above or below, now or as it was told last.
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

    /// Changes a queue and everything above it.
    pub(crate) fn add_up(&mut self, id: QueueId, mut change: impl FnMut(&mut Queue)) {
        change(&mut self.queues[id as usize]);
        for at in 0..self.queues[id as usize].ancestors.len() {
            let ancestor = self.queues[id as usize].ancestors[at];
            change(&mut self.queues[ancestor as usize]);
        }
    }

    fn mark_queue(&mut self, id: QueueId) {
        let queue = &mut self.queues[id as usize];
        if !queue.changed {
            queue.changed = true;
            self.changed_queues.push(id);
        }
    }

    /// Queues whose status may say something new.
    pub fn take_changed_queues(&mut self) -> Vec<QueueId> {
        let changed = std::mem::take(&mut self.changed_queues);
        changed.iter().for_each(|id| self.queues[*id as usize].changed = false);
        changed
    }

    // ---- groups

    pub fn put_group(&mut self, input: GroupInput) -> GroupId {
        let queue = self.intern_queue(&input.queue);
        let key = (input.namespace.clone(), input.name.clone());
        let minimum =
            input.min_resources.as_ref().map(|resources| self.dimensions.vector(&quota_keys(resources)));
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
        for role in &mut group.roles {
            role.min = input.min_roles.get(&role.name).copied().unwrap_or(0);
        }
        if input.no_gate && !group.input.no_gate {
            group.phase = Phase::Inqueue;
        }
        group.min_resources = minimum;
        group.input = input;
        let roles: Vec<Arc<str>> = group.input.min_roles.keys().cloned().collect();
        roles.iter().for_each(|role| {
            group.role_index(role);
        });
        self.mark(id);
        self.freed();
        id
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
        self.group_mut(id).queue = to;
        self.shares_stale = true;
    }

    /// Sets the phase that the scheduler itself decides.
    pub fn set_phase(&mut self, id: GroupId, phase: Phase) {
        if self.group(id).phase != phase {
            self.group_mut(id).phase = phase;
            self.mark(id);
        }
    }

    /// Finds places for pods that do not exist yet, by component, and takes none of them.
    ///
    /// # Errors
    /// What is missing, per component.
    pub fn find_places(
        &mut self,
        components: &[(String, Arc<PodSpec>, i64)],
    ) -> Result<BTreeMap<String, Vec<String>>, fleet_placement::Refusal> {
        let total: i64 = components.iter().map(|(_, _, count)| (*count).max(0)).sum();
        let group = self.put_group(GroupInput {
            name: ASKED.into(),
            min_member: total,
            no_gate: true,
            manual: true,
            ..GroupInput::default()
        });
        let mut pods: Vec<PodId> = Vec::new();
        let (mut places, mut names) = (BTreeMap::new(), Vec::new());
        let refused =
            |components: Vec<fleet_placement::ComponentRefusal>| fleet_placement::Refusal { components };
        let answer;
        if total > MAX_ASKED {
            let component =
                |(name, _, wanted): &(String, Arc<PodSpec>, i64)| fleet_placement::ComponentRefusal {
                    name: name.clone(),
                    fit: 0,
                    wanted: *wanted,
                    nodes: self.nodes.iter().count() as i64,
                    admitted: 0,
                    lacking: 0,
                    short: Vec::new(),
                };
            answer = Err(refused(components.iter().map(component).collect()));
        } else {
            for (name, spec, count) in components {
                places.entry(name.clone()).or_insert_with(Vec::new);
                for _ in 0..*count {
                    let input = PodInput {
                        group,
                        spec: spec.clone(),
                        role: name.as_str().into(),
                        ..PodInput::default()
                    };
                    pods.push(self.add_pod(input));
                    names.push(name);
                }
            }
            match self.place_exactly(group, &pods) {
                Ok(placed) => {
                    let of: BTreeMap<PodId, &String> = pods.iter().copied().zip(names).collect();
                    for (pod, node) in &placed {
                        let Some(name) = of.get(pod) else { continue };
                        places
                            .entry((*name).clone())
                            .or_default()
                            .push(self.nodes.get(*node).name.to_string());
                    }
                    placed.iter().for_each(|(pod, _)| self.set_place(*pod, Status::Pending, None));
                    places.values_mut().for_each(|names| names.sort_unstable());
                    answer = Ok(places);
                }
                Err(_) => answer = Err(refused(self.refusals_of(group, &pods))),
            }
        }
        self.remove_group(group);
        answer
    }

    /// Forgets a group; its pods must be gone or have moved to another.
    pub fn remove_group(&mut self, id: GroupId) {
        if self.try_group(id).is_none() {
            return;
        }
        let pods: Vec<PodId> = self.group(id).pods.iter().copied().collect();
        pods.into_iter().for_each(|pod| self.remove_pod(pod));
        self.unlist(id);
        self.drop_claims(id);
        let Some(group) = self.groups[id as usize].take() else { return };
        let key = (group.input.namespace, group.input.name);
        self.group_ids.remove(&key);
        self.queues[group.queue as usize].groups.remove(&id);
        self.mark_queue(group.queue);
        self.free_groups.push(id);
        self.shares_stale |= self.policy.proportion;
    }

    /// The group is to be looked at again, and its status may be new.
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

    /// Groups whose status may say something new.
    pub fn take_changed_groups(&mut self) -> Vec<GroupId> {
        let changed = std::mem::take(&mut self.changed_groups);
        let live = |id: &GroupId| self.groups.get(*id as usize).is_some_and(Option::is_some);
        let changed: Vec<GroupId> = changed.into_iter().filter(live).collect();
        changed.iter().for_each(|id| self.group_mut(*id).changed = false);
        changed
    }

    /// Puts groups that have changed where they wait now.
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
            if group.is_over() { Waits::No } else { Waits::Outside(key) }
        } else if group.is_waiting() && group.validity().is_ok() {
            let shape = self.shape_of(id);
            let known = self.queues[queue].waiting.get_key_value(&shape).map(|(known, _)| known.clone());
            Waits::Inside(known.unwrap_or_else(|| Arc::new(shape)), key)
        } else {
            Waits::No
        };
        // What waits where it did keeps what was found out about it.
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
            || self.nodes_claimed_by(id);
        Shape { pods, need: group.need(), only: special.then_some(id) }
    }

    fn nodes_claimed_by(&self, id: GroupId) -> bool {
        self.claims.contains_key(&id)
    }

    /// Takes the group out of its queue's lists and sums.
    fn unlist(&mut self, id: GroupId) {
        self.unlist_waits(id);
        self.uncount_admission(id);
    }

    fn unlist_waits(&mut self, id: GroupId) {
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

    fn uncount_admission(&mut self, id: GroupId) {
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

    /// Counts what the group stands for in its queue's admission.
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
            if group.phase == Phase::Inqueue || started {
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

    // ---- pods

    fn intern_class(&mut self, spec: &Arc<PodSpec>) -> ClassId {
        if let Some(id) = self.class_ids.get(spec) {
            return *id;
        }
        let request = self.dimensions.request(&spec.shape.requests);
        self.nodes.widen(self.dimensions.len());
        let mut class = Class {
            spec: spec.clone(),
            request,
            affinity: Vec::new(),
            anti_affinity: Vec::new(),
            preferred_pods: Vec::new(),
            spread: Vec::new(),
        };
        if let Some(extras) = spec.extras.clone() {
            class.affinity = extras.affinity.iter().map(|term| self.intern_term(term)).collect();
            class.anti_affinity = extras.anti_affinity.iter().map(|term| self.intern_term(term)).collect();
            let preferred = extras.preferred_pods.iter();
            class.preferred_pods =
                preferred.map(|(weight, term)| (*weight, self.intern_term(term))).collect();
            let spread = extras.spread.iter();
            class.spread = spread.map(|spread| (spread.clone(), self.intern_term(&spread.term))).collect();
        }
        let id = self.classes.len() as ClassId;
        self.classes.push(class);
        self.class_ids.insert(spec.clone(), id);
        self.indexes.push(None);
        id
    }

    fn intern_term(&mut self, term: &PodTerm) -> TermId {
        let (id, new) = self.terms.intern(term);
        if new {
            // Pods that came before the term was known.
            for pod in 0..self.pods.len() as PodId {
                let Some(known) = self.find_pod(pod) else { continue };
                if self.terms.selects(id, &known.namespace, &known.labels) {
                    let domain = known.node.and_then(|node| self.domain_of(node, id));
                    if known.node.is_some()
                        && (known.status.uses_node() || known.status == Status::Pipelined)
                        && known.status != Status::Releasing
                    {
                        self.terms.count_selected(id, domain.as_deref(), 1);
                    }
                    self.pod_mut(pod).matches.push(id);
                }
            }
        }
        id
    }

    fn domain_of(&self, node: NodeId, term: TermId) -> Option<String> {
        self.nodes.get(node).labels.get(self.terms.key(term)).cloned()
    }

    /// Adds a pod. Its group must exist.
    pub fn add_pod(&mut self, input: PodInput) -> PodId {
        let class = self.intern_class(&input.spec);
        let role = self.group_mut(input.group).role_index(&input.role);
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
            status: input.status,
            node,
            priority: input.priority,
            created: input.created,
            preemptable: input.preemptable,
            never_preempts: input.never_preempts,
            critical: input.critical,
            labels: input.labels,
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
        let group = self.pod(id).group;
        self.group_mut(group).pods.insert(id);
        self.count(id, 1);
        self.shares_stale |= self.policy.proportion;
        id
    }

    /// A pod has moved on, as the API server says. Its place is not forgotten while a binding is under way.
    pub fn update_pod(&mut self, id: PodId, status: Status, node: Option<&str>) {
        let node = node.map(|name| self.nodes.intern(name));
        let before = self.pod(id);
        let frees = before.node.is_some()
            && (before.node != node
                || (before.status.uses_node() && !status.uses_node())
                || status == Status::Releasing);
        self.placed += u64::from(status.is_allocated() && before.status != status);
        let before = self.pod(id);
        let wakes = before.status == Status::Gated && status == Status::Pending;
        self.set_place(id, status, node);
        if frees || wakes {
            self.freed();
        }
    }

    pub fn remove_pod(&mut self, id: PodId) {
        if self.find_pod(id).is_none() {
            return;
        }
        self.count(id, -1);
        let Some(pod) = self.pods[id as usize].take() else { return };
        self.group_mut(pod.group).pods.remove(&id);
        self.mark(pod.group);
        self.free_pods.push(id);
        if pod.node.is_some() {
            self.freed();
        }
        self.shares_stale |= self.policy.proportion;
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
        self.count(id, 1);
    }

    fn count(&mut self, id: PodId, sign: i64) {
        let (class, group, role, status, node, order) = {
            let pod = self.pod(id);
            (pod.class, pod.group, pod.role, pod.status, pod.node, pod.order(id))
        };
        let request = self.classes[class as usize].request.clone();
        let best_effort = request.is_empty();
        if let Some(node) = node {
            self.count_on_node(id, node, &request, status, sign);
        }
        let entry = self.groups[group as usize].as_mut().unwrap_or_else(|| unreachable!("group of a pod"));
        entry.counts[status as usize] += sign;
        let role = &mut entry.roles[usize::from(role)];
        role.counts[status as usize] += sign;
        let queue = entry.queue;
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
        // Ports and neighbours of a pod on its way out are looked at where they matter: for what starts now.
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

    fn count_standing(&mut self, id: PodId, sign: i64) {
        if self.pod(id).status != Status::Releasing {
            self.count_terms(id, sign);
        }
    }

    fn count_terms(&mut self, id: PodId, sign: i64) {
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

    // ---- statements

    /// From here on moves can be undone.
    pub(crate) fn begin(&mut self) {
        self.undo.clear();
        self.recording = true;
    }

    pub(crate) fn mark_point(&self) -> usize {
        self.undo.len()
    }

    /// Undoes the moves since `point`, newest first.
    pub(crate) fn rollback(&mut self, point: usize) {
        self.recording = false;
        while self.undo.len() > point {
            if let Some((id, status, node)) = self.undo.pop() {
                self.set_place(id, status, node);
            }
        }
        self.recording = true;
    }

    /// Keeps the moves since the statement began: each pod moved, once.
    pub(crate) fn commit(&mut self) -> BTreeSet<PodId> {
        self.recording = false;
        std::mem::take(&mut self.undo).into_iter().map(|(id, ..)| id).collect()
    }

    /// Pods moved since the statement began, each once.
    pub(crate) fn moved(&self) -> BTreeSet<PodId> {
        self.undo.iter().map(|(id, ..)| *id).collect()
    }

    /// A pod's status before it was first moved after `point`.
    pub(crate) fn status_before(&self, pod: PodId, point: usize) -> Status {
        let first = self.undo[point.min(self.undo.len())..].iter().find(|(id, ..)| *id == pod);
        first.map_or(self.pod(pod).status, |(_, status, _)| *status)
    }

    /// State of things for who might be taken from: room, and who holds places.
    pub(crate) fn stand(&self) -> u64 {
        self.room.wrapping_mul(1 << 20).wrapping_add(self.placed)
    }

    pub(crate) fn groups_has(&self, id: GroupId) -> bool {
        self.groups.get(id as usize).is_some_and(Option::is_some)
    }

    pub(crate) fn drop_claims(&mut self, id: GroupId) {
        for node in self.claims.remove(&id).unwrap_or_default() {
            self.nodes.claim(node, None);
            self.freed();
        }
    }
}

/// The keys of a resource quota as the resources they stand for: `requests.cpu` is cpu, limits and counts are no
/// part of what is shared.
fn quota_keys(resources: &Resources) -> Resources {
    let mut found = Resources::new();
    for (name, amount) in resources.iter() {
        let text = name.as_str();
        if text.starts_with("limits.") || text.starts_with("count/") {
            continue;
        }
        let name = text.strip_prefix("requests.").unwrap_or(text);
        if found.get(name) < amount {
            found.set(name, amount);
        }
    }
    found
}

pub(crate) fn add_vector(to: &mut Vec<i64>, what: &[i64], sign: i64) {
    if to.len() < what.len() {
        to.resize(what.len(), 0);
    }
    to.iter_mut().zip(what).for_each(|(to, n)| *to = to.saturating_add(sign * n));
}
