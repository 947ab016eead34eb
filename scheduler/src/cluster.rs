//! The scheduler's cache: nodes, pods, groups and queues in numbered lists, updated by events.
//!
//! Every sum (use of nodes, what groups and queues hold and wait for, selected pods per domain) changes in the one
//! function that moves a pod, [`Cluster::set_place`]; undo moves the pod back. Nothing is copied for a search.
//! Deliberately absent: clocks, resource versions, IO.

mod accounting;
pub mod asked;
mod events;
mod statements;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::amounts::{Dimensions, Request};
use crate::config::Policy;
use crate::extender::ExtenderAnswers;
use crate::fair::FairTree;
use crate::group::{Group, GroupId};
use crate::index::ClassIndex;
use crate::node::{NodeId, Nodes};
use crate::pod::{Class, ClassId, Pod, PodId, PodSpec, Status};
use crate::queue::{Queue, QueueId};
use crate::resource_quotas::ResourceQuotas;
use crate::terms::Terms;
use crate::topology::HyperNodes;

type GroupKey = (Arc<str>, Arc<str>);

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
    pub(crate) group_ids: BTreeMap<GroupKey, GroupId>,
    queues: Vec<Queue>,
    queue_ids: BTreeMap<Arc<str>, QueueId>,
    pub(crate) resource_quotas: ResourceQuotas,
    /// Grows when capacity may have become free.
    pub(crate) room: u64,
    dirty_groups: Vec<GroupId>,
    changed_groups: Vec<GroupId>,
    changed_queues: Vec<QueueId>,
    pub(crate) shares_stale: bool,
    /// Order of queues by their tree (plugin drf).
    pub(crate) fair: FairTree,
    /// Moves since a statement began, oldest first.
    undo: Vec<(PodId, Status, Option<NodeId>)>,
    recording: bool,
    /// Groups with pipelined places.
    pub(crate) promised: BTreeSet<GroupId>,
    /// Groups with waiting best-effort pods.
    pub(crate) best_effort: BTreeSet<GroupId>,
    /// Those of them for which no victim was found, and the state in which that was so.
    pub(crate) best_effort_refused: (u64, BTreeSet<GroupId>),
    /// Terminating pods.
    pub(crate) leaving: BTreeSet<PodId>,
    /// PodDisruptionBudgets.
    pub(crate) budgets: crate::budgets::Budgets,
    /// Counts pods that got places.
    pub(crate) bound_pods: u64,
    /// Counts pods that came to hold places.
    pub(crate) placed: u64,
    /// Nodes reserved for a group, by group.
    pub(crate) claims: BTreeMap<GroupId, Vec<NodeId>>,
    /// Answers of the extender.
    pub(crate) extender: ExtenderAnswers,
    /// The age of the oldest load measurement, in seconds.
    pub(crate) oldest_load: Option<i64>,
    /// Minute of the day, for nodes that are revoked by time.
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
            resource_quotas: ResourceQuotas::new(),
            room: 1,
            dirty_groups: Vec::new(),
            changed_groups: Vec::new(),
            changed_queues: Vec::new(),
            shares_stale: true,
            fair: FairTree::default(),
            undo: Vec::new(),
            recording: false,
            promised: BTreeSet::new(),
            best_effort: BTreeSet::new(),
            best_effort_refused: (0, BTreeSet::new()),
            leaving: BTreeSet::new(),
            budgets: Default::default(),
            bound_pods: 0,
            placed: 0,
            claims: BTreeMap::new(),
            extender: ExtenderAnswers::default(),
            oldest_load: None,
            minute: 0,
        };
        cluster.nodes.widen(cluster.dimensions.len());
        cluster
    }

    /// Sets another policy: everything refused is considered again.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
        self.indexes.iter_mut().for_each(|index| *index = None);
        self.shares_stale = true;
        self.fair.restructure = true;
        self.freed();
        for id in self.group_list() {
            self.mark(id);
        }
    }

    /// Something may fit now that did not before.
    pub fn freed(&mut self) {
        self.room += 1;
    }

    pub fn pod(&self, id: PodId) -> &Pod {
        self.pods[id as usize].as_ref().unwrap_or_else(|| unreachable!("pod {id} was removed"))
    }

    pub fn find_pod(&self, id: PodId) -> Option<&Pod> {
        self.pods.get(id as usize)?.as_ref()
    }

    pub(crate) fn pod_mut(&mut self, id: PodId) -> &mut Pod {
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

    /// The state that decides about victims: capacity, and which pods hold places.
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

pub(crate) fn add_vector(to: &mut Vec<i64>, what: &[i64], sign: i64) {
    if to.len() < what.len() {
        to.resize(what.len(), 0);
    }
    to.iter_mut().zip(what).for_each(|(to, n)| *to = to.saturating_add(sign * n));
}
