//! Places for one group: all that it needs, or none.

use std::collections::BTreeSet;
use std::ops::Bound;

use super::domains::SubGroupDomains;
use super::stopped::Stopped;
use crate::cluster::Cluster;
use crate::ids::{ClassId, GroupId, NodeId, PodId};
use crate::index::Allowed;
use crate::pod::{Status, TaskOrder};
use crate::task_topology::{Buckets, Task};

impl Cluster {
    /// Takes places for the group's minimum, or for one more pod of a group that has its minimum. All or nothing.
    pub(crate) fn place_group(&mut self, id: GroupId) -> Result<Vec<(PodId, NodeId)>, Stopped> {
        if let Some(extender) = &self.policy.plugins.extender
            && let Some(why) = extender.rules.not_to_place(&mut self.state, id)
        {
            return Err(Stopped::Queue(why.to_string()));
        }
        // A hard topology is a promise to the user; a soft one is up to the plugin.
        if let Some(topology) =
            self.group(id).input.topology.filter(|wish| wish.hard || self.policy.prefers_domains())
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
        let started = self.group(id).ready() >= self.group(id).min();
        let gang = self.places_whole(id);
        let (mut placed, stopped) = self.place_each(id, allowed);
        if !gang && !placed.is_empty() {
            return Ok(placed);
        }
        let ready = self.group(id).is_ready();
        if !placed.is_empty() && ready && self.place_best_effort(id, allowed, &mut placed) {
            return Ok(placed);
        }
        let stopped = stopped.unwrap_or(Stopped::Queue("no pod of it waits for a place".to_owned()));
        // The packing search knows no domains.
        let divided = self.group(id).input.sub_groups.iter().any(|policy| policy.topology.is_some());
        if started || divided || allowed.is_some() || matches!(stopped, Stopped::Queue(_)) {
            return Err(stopped);
        }
        // Placing pod by pod failed; look for a packing of all of them.
        self.rollback(0);
        let packed = self.pack(id);
        // The search knows the number of pods, not that partitions must be complete.
        packed.filter(|_| self.group(id).is_ready()).ok_or(stopped)
    }

    /// It gets all of its places or none. A group that is only asked about needs all whatever plugins are on.
    fn places_whole(&self, id: GroupId) -> bool {
        self.policy.gang || self.group(id).input.manual
    }

    /// Places one waiting pod after the other, until the group has its minimum or cannot have it; and what stopped
    /// it first.
    fn place_each(&mut self, id: GroupId, allowed: Allowed<'_>) -> (Vec<(PodId, NodeId)>, Option<Stopped>) {
        let gang = self.places_whole(id);
        let (mut placed, mut stopped) = (Vec::new(), None);
        let mut failed: BTreeSet<ClassId> = BTreeSet::new();
        let (mut buckets, order) = self.buckets_of(id);
        let mut ordered = order.map(Vec::into_iter);
        let mut last: Option<TaskOrder> = None;
        let mut domains = SubGroupDomains::default();
        loop {
            let next = match &mut ordered {
                Some(ordered) => ordered.next(),
                None => self.next_waiting(id, &mut last),
            };
            let Some(pod) = next else { break };
            let class = self.pod(pod).class;
            if failed.contains(&class) {
                continue;
            }
            if let Err(why) = self.queue_has_room(id, pod) {
                stopped.get_or_insert(Stopped::Queue(why));
                break;
            }
            let within = match self.domain_for(id, pod, allowed, &mut domains) {
                Ok(within) => within,
                Err(why) => {
                    stopped.get_or_insert(Stopped::Queue(why));
                    continue;
                }
            };
            if let Some(node) = self.find_node_near(pod, within.as_deref().or(allowed), buckets.as_ref()) {
                self.set_place(pod, Status::Binding, Some(node));
                placed.push((pod, node));
                if let Some(buckets) = &mut buckets {
                    buckets.placed(pod, node);
                }
                if !gang || self.group(id).is_ready() {
                    break;
                }
                continue;
            }
            stopped.get_or_insert(Stopped::Pod(pod));
            // Pods with terms differ by their labels.
            if within.is_none() && !self.class(class).has_pod_terms() && self.pod(pod).matches.is_empty() {
                failed.insert(class);
                if gang && self.waiting_beside(id, &failed) < self.group(id).need() {
                    break;
                }
            }
        }
        (placed, stopped)
    }

    /// The waiting pod after the last one. A placed pod leaves the list.
    fn next_waiting(&self, id: GroupId, last: &mut Option<TaskOrder>) -> Option<PodId> {
        let pending = &self.group(id).pending;
        let next = match *last {
            None => pending.first(),
            Some(last) => pending.range((Bound::Excluded(last), Bound::Unbounded)).next(),
        };
        *last = Some(*next?);
        next.map(|order| order.3)
    }

    /// Waiting pods of other classes.
    fn waiting_beside(&self, id: GroupId, failed: &BTreeSet<ClassId>) -> i64 {
        let classes = self.group(id).pending_by_class.iter();
        classes.filter(|(class, _)| !failed.contains(class)).map(|(_, n)| i64::from(*n)).sum()
    }

    /// Whether the queue of the group may use one more pod. A group that is only asked about has none.
    fn queue_has_room(&self, id: GroupId, pod: PodId) -> Result<(), String> {
        let group = self.group(id);
        if group.input.manual {
            return Ok(());
        }
        let request = &self.class(self.pod(pod).class).request;
        self.queue_admits(group.queue, request).map_err(|(at, place)| {
            let asked = request.iter().find(|(d, _)| usize::from(*d) == place).map_or(0, |(_, n)| *n);
            let used = crate::amounts::get(&self.queue(at).allocated, place);
            self.queue_sentence(at, place, used, asked)
        })
    }

    /// The group's tasks in buckets, and its waiting pods in that order, if its annotations ask for it.
    fn buckets_of(&self, id: GroupId) -> (Option<Buckets>, Option<Vec<PodId>>) {
        let group = self.group(id);
        let (weight, orders) = self.policy.buckets();
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
        let buckets = Buckets::new(rules, tasks);
        let order = orders.then(|| buckets.order(&waiting));
        (Some(buckets).filter(|_| weight != 0), order)
    }

    /// The minimum may need best-effort pods; they are placed along.
    pub(super) fn place_best_effort(
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
}
