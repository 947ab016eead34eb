//! Allocate: places groups that fit now, queue by queue, group by group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::cycle::{Limits, Outcome};
use crate::group::{GroupId, Shape};
use crate::index::Allowed;
use crate::node::NodeId;
use crate::order::{JobKey, QueueKey};
use crate::pod::{ClassId, PodId, Status, TaskOrder};
use crate::queue::QueueId;
use crate::task_topology::{Buckets, Task};

/// A topology domain: its tier, its name, its nodes.
type Domain = (i64, Arc<str>, BTreeSet<NodeId>);

type Head = (JobKey, GroupId, Arc<Shape>);

/// What stopped a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// No node fits this pod.
    Pod(PodId),
    /// Its queue may not use more.
    Queue(String),
}

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

    /// Takes places for the group's minimum, or for one more pod of a group that has its minimum. All or nothing.
    pub(crate) fn place_group(&mut self, id: GroupId) -> Result<Vec<(PodId, NodeId)>, Stopped> {
        if let Some(why) = self.not_to_place(id) {
            return Err(Stopped::Queue(why.to_string()));
        }
        // A hard topology is a promise to the user; a soft one is up to the plugin.
        if let Some(topology) = self.group(id).input.topology.filter(|wish| wish.hard || self.policy.topology)
        {
            return self.place_in_domains(id, topology);
        }
        self.begin();
        let placed = self.place_within(id, None);
        if placed.is_err() {
            self.rollback(0);
        }
        self.commit();
        placed
    }

    /// As [`place_group`](Self::place_group) on some nodes only, inside an open statement: on an error the caller
    /// rolls back.
    pub(crate) fn place_within(
        &mut self,
        id: GroupId,
        allowed: Allowed<'_>,
    ) -> Result<Vec<(PodId, NodeId)>, Stopped> {
        let mut placed = Vec::new();
        let mut failed: BTreeSet<ClassId> = BTreeSet::new();
        let mut stopped = None;
        let mut last: Option<TaskOrder> = None;
        // A group that is only asked about needs all of its places, and has no queue.
        let asked = self.group(id).input.manual;
        let gang = self.policy.gang || asked;
        let (mut buckets, order) = self.buckets_of(id);
        let mut ordered = order.map(Vec::into_iter);
        let started = self.group(id).ready() >= self.group(id).min();
        loop {
            let group = self.group(id);
            let pod = if let Some(ordered) = &mut ordered {
                let Some(pod) = ordered.next() else { break };
                pod
            } else {
                // A placed pod leaves the list, so the next one is after the last that was skipped.
                let next = match last {
                    None => group.pending.first(),
                    Some(last) => {
                        let after = (std::ops::Bound::Excluded(last), std::ops::Bound::Unbounded);
                        group.pending.range(after).next()
                    }
                };
                let Some(order) = next.copied() else { break };
                last = Some(order);
                order.3
            };
            let class = self.pod(pod).class;
            if failed.contains(&class) {
                continue;
            }
            let queue = group.queue;
            let request = self.request_of(pod);
            if let Err((at, place)) = self.queue_admits(queue, &request)
                && !asked
            {
                let asked = request.iter().find(|(d, _)| usize::from(*d) == place).map_or(0, |(_, n)| *n);
                let used = crate::amounts::get(&self.queue(at).allocated, place);
                stopped.get_or_insert(Stopped::Queue(self.queue_sentence(at, place, used, asked)));
                break;
            }
            match self.find_node_near(pod, allowed, buckets.as_ref()) {
                Some(node) => {
                    self.set_place(pod, Status::Binding, Some(node));
                    placed.push((pod, node));
                    if let Some(buckets) = &mut buckets {
                        buckets.placed(pod, node);
                    }
                    if !gang || self.group(id).is_ready() {
                        break;
                    }
                }
                None => {
                    stopped.get_or_insert(Stopped::Pod(pod));
                    // Pods with terms differ by their labels.
                    if !self.class(class).has_pod_terms() && self.pod(pod).matches.is_empty() {
                        failed.insert(class);
                        let left: i64 = self
                            .group(id)
                            .pending_by_class
                            .iter()
                            .filter(|(class, _)| !failed.contains(class))
                            .map(|(_, n)| i64::from(*n))
                            .sum();
                        if gang && left < self.group(id).need() {
                            break;
                        }
                    }
                }
            }
        }
        if !gang && !placed.is_empty() {
            return Ok(placed);
        }
        let ready = self.group(id).is_ready();
        if !placed.is_empty() && ready && self.place_best_effort(id, allowed, &mut placed) {
            return Ok(placed);
        }
        let stopped = stopped.unwrap_or(Stopped::Queue("no pod of it waits for a place".to_owned()));
        if started || allowed.is_some() || matches!(stopped, Stopped::Queue(_)) {
            return Err(stopped);
        }
        // Placing pod by pod failed; look for a packing of all of them.
        self.rollback(0);
        let packed = self.pack(id);
        // The search knows the number of pods, not that partitions must be complete.
        packed.filter(|_| self.group(id).is_ready()).ok_or(stopped)
    }

    /// The group's tasks in buckets, and its waiting pods in that order, if its annotations ask for it.
    fn buckets_of(&self, id: GroupId) -> (Option<Buckets>, Option<Vec<PodId>>) {
        let group = self.group(id);
        let (weight, orders) = self.policy.task_topology;
        let Some(rules) = group.input.task_topology.as_ref().filter(|_| weight != 0 || orders) else {
            return (None, None);
        };
        let task = |pod: &PodId| {
            let known = self.pod(*pod);
            let node = known.node.filter(|_| known.status.is_allocated());
            (node.is_some() || known.status == Status::Pending).then(|| Task {
                pod: *pod,
                role: group.roles[usize::from(known.role)].name.clone(),
                node,
                request: self.request_of(*pod),
            })
        };
        let waiting: Vec<PodId> = group.pending.iter().map(|order| order.3).collect();
        let standing = group.pods.iter().filter(|pod| self.pod(**pod).status.is_allocated());
        let tasks = waiting.iter().chain(standing).filter_map(task).collect();
        let buckets = Buckets::new((**rules).clone(), tasks);
        let order = orders.then(|| buckets.order(&waiting));
        (Some(buckets).filter(|_| weight != 0), order)
    }

    /// The minimum may need best-effort pods; they are placed along.
    fn place_best_effort(
        &mut self,
        id: GroupId,
        allowed: Allowed<'_>,
        placed: &mut Vec<(PodId, NodeId)>,
    ) -> bool {
        while self.group(id).ready() < self.group(id).min() {
            let Some((.., pod)) = self.group(id).pending_best_effort.first().copied() else { return false };
            let Some(node) = self.find_node(pod, allowed) else { return false };
            self.set_place(pod, Status::Binding, Some(node));
            placed.push((pod, node));
        }
        true
    }

    /// Places the pods that the group needs by the packing search, which tries other orders.
    fn pack(&mut self, id: GroupId) -> Option<Vec<(PodId, NodeId)>> {
        let group = self.group(id);
        let need = usize::try_from(group.need()).ok()?;
        let mut pods: Vec<PodId> = Vec::with_capacity(need);
        // The tasks' own minima first, then in order.
        let wanted: Vec<i64> = group
            .roles
            .iter()
            .map(|role| {
                let have = [Status::Bound, Status::Binding, Status::Running, Status::Succeeded];
                (role.min - have.map(|status| role.counts[status as usize]).iter().sum::<i64>()).max(0)
            })
            .collect();
        let mut taken = vec![0_i64; wanted.len()];
        for demanded in [true, false] {
            for (.., pod) in &group.pending {
                let role = usize::from(self.pod(*pod).role);
                let of_role = taken[role] < wanted[role];
                if pods.len() < need && of_role == demanded && !pods.contains(pod) {
                    taken[role] += 1;
                    pods.push(*pod);
                }
            }
        }
        if pods.len() < need {
            return None;
        }
        let mut placed = self.pack_pods(id, &pods)?;
        self.place_best_effort(id, None, &mut placed).then_some(placed)
    }

    /// Places exactly these pods of a waiting group, or none and says why.
    ///
    /// # Errors
    /// One sentence.
    pub fn place_exactly(&mut self, id: GroupId, pods: &[PodId]) -> Result<Vec<(PodId, NodeId)>, Arc<str>> {
        self.refresh();
        self.refresh_shares();
        self.begin();
        let mut placed = Vec::with_capacity(pods.len());
        let mut unplaced = None;
        for pod in pods {
            match self.find_node(*pod, None) {
                Some(node) => {
                    self.set_place(*pod, Status::Binding, Some(node));
                    placed.push((*pod, node));
                }
                None => {
                    unplaced = Some(*pod);
                    break;
                }
            }
        }
        if let Some(pod) = unplaced {
            self.rollback(0);
            match self.pack_pods(id, pods) {
                Some(found) => placed = found,
                None => {
                    self.rollback(0);
                    self.commit();
                    return Err(self.explain_pods(id, pods, pod));
                }
            }
        }
        self.commit();
        Ok(placed)
    }

    fn pack_pods(&mut self, id: GroupId, pods: &[PodId]) -> Option<Vec<(PodId, NodeId)>> {
        let mut by_class: BTreeMap<ClassId, Vec<PodId>> = BTreeMap::new();
        for pod in pods {
            by_class.entry(self.pod(*pod).class).or_default().push(*pod);
        }
        let special = |class: &ClassId| {
            let class = self.class(*class);
            class.has_pod_terms()
                || class.extras().is_some_and(|extras| !extras.ports.is_empty() || !extras.devices.is_empty())
                || self.whole_cpus(class).is_some()
        };
        let selected = pods.iter().any(|pod| !self.pod(*pod).matches.is_empty());
        let vetoed = self.is_spoken_of(id);
        if by_class.len() < 2 || vetoed || selected || by_class.keys().any(special) {
            return None;
        }
        let places: BTreeSet<u16> = by_class
            .keys()
            .flat_map(|class| self.class(*class).request.iter().map(|(place, _)| *place))
            .collect();
        let places: Vec<usize> = places.into_iter().map(usize::from).collect();
        let requests: Vec<Vec<i64>> = by_class
            .keys()
            .map(|class| {
                let request = &self.class(*class).request;
                let of = |place: &usize| {
                    request.iter().find(|(at, _)| usize::from(*at) == *place).map_or(0, |(_, amount)| *amount)
                };
                places.iter().map(of).chain([1]).collect()
            })
            .collect();
        let wanted: Vec<i64> = by_class.values().map(|pods| pods.len() as i64).collect();
        let mut nodes: Vec<NodeId> = Vec::new();
        let mut offers = Vec::new();
        for (node, state) in self.nodes.iter() {
            let admitted: Vec<bool> =
                by_class.keys().map(|class| self.admits(self.class(*class), state).is_ok()).collect();
            let claimed = state.claimed_by.is_some_and(|group| group != id);
            let elsewhere = !self.in_node_group(self.group(id).queue, state) && !self.group(id).input.manual;
            if claimed || elsewhere || !admitted.iter().any(|admitted| *admitted) {
                continue;
            }
            let cells = self.nodes.cells(node);
            let free =
                places.iter().chain([&crate::amounts::PODS]).map(|place| cells[*place].free()).collect();
            nodes.push(node);
            offers.push((admitted, free));
        }
        let counts = fleet_placement::pack(&requests, &wanted, &offers)?;
        let mut left: Vec<std::vec::IntoIter<PodId>> = by_class.into_values().map(Vec::into_iter).collect();
        let mut placed = Vec::with_capacity(pods.len());
        for (at, counts) in counts {
            for (k, count) in counts.iter().enumerate() {
                for pod in left[k].by_ref().take(usize::try_from(*count).unwrap_or(0)) {
                    self.set_place(pod, Status::Binding, Some(nodes[at]));
                    placed.push((pod, nodes[at]));
                }
            }
        }
        let queue = self.group(id).queue;
        let over = self.queue_admits(queue, &[]).is_err() || self.over_queue(queue);
        (!over).then_some(placed)
    }

    /// The queue, or one above it, uses more than it may.
    fn over_queue(&self, id: QueueId) -> bool {
        self.policy.allocatable
            && self.lineage(id).into_iter().any(|queue| {
                (1..self.dimensions.len()).any(|d| {
                    let most =
                        if self.policy.capacity { self.may_have(queue, d) } else { self.deserves(queue, d) };
                    crate::amounts::get(&self.queue(queue).allocated, d) > most
                })
            })
    }

    /// A group with a topology constraint: the lowest tier with a domain that can hold all of it, and there the
    /// domain with the least capacity left.
    pub(crate) fn place_in_domains(
        &mut self,
        id: GroupId,
        topology: crate::group::Topology,
    ) -> Result<Vec<(PodId, NodeId)>, Stopped> {
        let most = if topology.hard { topology.highest_tier } else { None };
        let nodes = std::mem::take(&mut self.nodes);
        let domains = self.hypernodes.domains(&nodes, most);
        self.nodes = nodes;
        let standing: BTreeSet<NodeId> = self
            .group(id)
            .pods
            .iter()
            .map(|pod| self.pod(*pod))
            .filter(|pod| pod.status.is_allocated())
            .filter_map(|pod| pod.node)
            .collect();
        let mut why = None;
        let mut best: Option<(i64, i64, &BTreeSet<NodeId>)> = None;
        for (tier, _, nodes) in &domains {
            if best.is_some_and(|(found, ..)| found < *tier) {
                break;
            }
            if !standing.is_subset(nodes) {
                continue;
            }
            self.begin();
            let placed = self.place_within(id, Some(nodes));
            let room: i64 = nodes
                .iter()
                .map(|node| self.nodes.cells(*node)[crate::amounts::PODS].idle().min(1 << 20))
                .sum();
            let idle: i64 = nodes
                .iter()
                .map(|node| self.nodes.cells(*node).iter().skip(1).map(|cell| cell.idle() >> 10).sum::<i64>())
                .sum();
            self.rollback(0);
            self.commit();
            match placed {
                Ok(_) if best.is_none_or(|(_, known, _)| idle.saturating_add(room) < known) => {
                    best = Some((*tier, idle.saturating_add(room), nodes));
                }
                Ok(_) => {}
                Err(stopped) => why = Some(stopped),
            }
        }
        if best.is_none() && topology.hard && (topology.highest_tier.is_some() || !domains.is_empty()) {
            // A refusal by the queue holds in every domain.
            if let Some(stopped @ Stopped::Queue(_)) = why {
                return Err(stopped);
            }
            return Err(Stopped::Queue(self.domains_sentence(id, &domains, most)));
        }
        self.begin();
        let placed = self.place_within(id, best.map(|(_, _, nodes)| nodes));
        if placed.is_err() {
            self.rollback(0);
        }
        self.commit();
        placed
    }
    /// `none of 2 hypernodes up to tier 1 has room for 3 pods of the gang`
    fn domains_sentence(&self, id: GroupId, domains: &[Domain], most: Option<i64>) -> String {
        let tier = most.map_or(String::new(), |tier| format!(" up to tier {tier}"));
        let need = self.group(id).need().max(1);
        match domains.len() {
            0 => format!("there is no hypernode{tier} that could hold the gang"),
            n => format!("none of {n} hypernodes{tier} has room for {need} pods of the gang"),
        }
    }
}
