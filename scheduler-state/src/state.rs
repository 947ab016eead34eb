//! The scheduler's cache: nodes, pods, groups and queues in numbered lists, updated by events.
//!
//! Every sum (use of nodes, what groups and queues hold and wait for, selected pods per domain) changes in the one
//! function that moves a pod, [`State::move_pod`]. It knows no plugin; plugins read it. Deliberately absent: rules,
//! clocks, resource versions, IO.

mod accounting;
mod answers;
mod classes;
mod events;
mod reports;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::amounts::{Dimensions, Request};
use crate::budgets::Budgets;
use crate::devices::Usual;
use crate::extender::ExtenderAnswers;
use crate::fair::FairTree;
use crate::group::Group;
use crate::ids::{ClassId, GroupId, NodeId, PodId, QueueId};
use crate::node::Nodes;
use crate::pod::{Class, Pod, PodSpec};
use crate::queue::Queue;
use crate::resource_quotas::ResourceQuotas;
use crate::terms::Terms;
use crate::topology::HyperNodes;

type GroupKey = (Arc<str>, Arc<str>);

#[derive(Debug)]
pub struct State {
    pub dimensions: Dimensions,
    pub nodes: Nodes,
    pub hypernodes: HyperNodes,
    pub terms: Terms,
    classes: Vec<Option<Class>>,
    free_classes: Vec<ClassId>,
    class_ids: BTreeMap<Arc<PodSpec>, ClassId>,
    /// Classes that the last sweep left.
    classes_left: usize,
    /// Serial number of the newest class.
    last_serial: u64,
    /// Classes whose request is not all that their pods ask for.
    cut_classes: BTreeSet<ClassId>,
    /// Some group's minimum is not all that its owner wrote.
    has_cut_minima: bool,
    pods: Vec<Option<Pod>>,
    free_pods: Vec<PodId>,
    by_namespace: BTreeMap<Arc<str>, BTreeSet<PodId>>,
    groups: Vec<Option<Group>>,
    free_groups: Vec<GroupId>,
    pub group_ids: BTreeMap<GroupKey, GroupId>,
    pub queues: Vec<Queue>,
    queue_ids: BTreeMap<Arc<str>, QueueId>,
    free_queues: Vec<QueueId>,
    /// Queues that the last sweep left.
    queues_left: usize,
    pub resource_quotas: ResourceQuotas,
    /// Grows when capacity may have become free.
    pub room: u64,
    pub dirty_groups: Vec<GroupId>,
    changed_groups: Vec<GroupId>,
    changed_queues: Vec<QueueId>,
    pub shares_stale: bool,
    /// Shares of queues depend on what their pods request.
    pub shares_follow_pods: bool,
    /// Order of queues by their tree (plugin drf).
    pub fair: FairTree,
    /// Groups with pipelined places.
    pub promised: BTreeSet<GroupId>,
    /// Groups with waiting best-effort pods.
    pub best_effort: BTreeSet<GroupId>,
    /// Those of them for which no victim was found, and the state in which that was so.
    pub best_effort_refused: (u64, BTreeSet<GroupId>),
    /// Terminating pods.
    pub leaving: BTreeSet<PodId>,
    /// Number of pods of each class that requests cards.
    pub card_pods: BTreeMap<ClassId, i64>,
    /// What is usually asked of cards.
    pub usual: Usual,
    /// PodDisruptionBudgets.
    pub budgets: Budgets,
    /// Counts pods that got places.
    pub bound_pods: u64,
    /// Counts pods that came to hold places.
    pub placed: u64,
    /// Nodes reserved for a group, by group.
    pub claims: BTreeMap<GroupId, Vec<NodeId>>,
    /// Answers of the extender.
    pub extender: ExtenderAnswers,
    /// The age of the oldest load measurement, in seconds.
    pub oldest_load: Option<i64>,
    /// Time of the last cycle, in seconds since the epoch.
    pub now: i64,
    /// Ends of the cooldowns of pods (plugin cdp).
    pub cooling: BTreeSet<(i64, PodId)>,
    /// When plugin rescheduling last looked.
    pub rescheduled_at: Option<i64>,
    /// Minute of the day, for nodes that are revoked by time.
    pub minute: i64,
}

impl Default for State {
    fn default() -> Self {
        let mut state = Self {
            dimensions: Dimensions::default(),
            nodes: Nodes::default(),
            hypernodes: HyperNodes::default(),
            terms: Terms::default(),
            classes: Vec::new(),
            free_classes: Vec::new(),
            class_ids: BTreeMap::new(),
            classes_left: 0,
            last_serial: 0,
            cut_classes: BTreeSet::new(),
            has_cut_minima: false,
            pods: Vec::new(),
            free_pods: Vec::new(),
            by_namespace: BTreeMap::new(),
            groups: Vec::new(),
            free_groups: Vec::new(),
            group_ids: BTreeMap::new(),
            queues: Vec::new(),
            queue_ids: BTreeMap::new(),
            free_queues: Vec::new(),
            queues_left: 0,
            resource_quotas: ResourceQuotas::new(),
            room: 1,
            dirty_groups: Vec::new(),
            changed_groups: Vec::new(),
            changed_queues: Vec::new(),
            shares_stale: true,
            shares_follow_pods: false,
            fair: FairTree::default(),
            promised: BTreeSet::new(),
            best_effort: BTreeSet::new(),
            best_effort_refused: (0, BTreeSet::new()),
            leaving: BTreeSet::new(),
            card_pods: BTreeMap::new(),
            usual: Usual::default(),
            budgets: Default::default(),
            bound_pods: 0,
            placed: 0,
            claims: BTreeMap::new(),
            extender: ExtenderAnswers::default(),
            oldest_load: None,
            now: 0,
            cooling: BTreeSet::new(),
            rescheduled_at: None,
            minute: 0,
        };
        state.nodes.widen(state.dimensions.len());
        state
    }
}

impl State {
    /// Something may fit now that did not before.
    pub fn freed(&mut self) {
        self.room += 1;
    }

    #[inline]
    pub fn pod(&self, id: PodId) -> &Pod {
        self.pods[id as usize].as_ref().unwrap_or_else(|| unreachable!("pod {id} was removed"))
    }

    #[inline]
    pub fn find_pod(&self, id: PodId) -> Option<&Pod> {
        self.pods.get(id as usize)?.as_ref()
    }

    #[inline]
    pub fn pod_mut(&mut self, id: PodId) -> &mut Pod {
        self.pods[id as usize].as_mut().unwrap_or_else(|| unreachable!("pod {id} was removed"))
    }

    #[inline]
    pub fn group(&self, id: GroupId) -> &Group {
        self.groups[id as usize].as_ref().unwrap_or_else(|| unreachable!("group {id} was removed"))
    }

    pub fn find_group(&self, namespace: &str, name: &str) -> Option<GroupId> {
        self.group_ids.get(&(Arc::from(namespace), Arc::from(name))).copied()
    }

    #[inline]
    pub fn try_group(&self, id: GroupId) -> Option<&Group> {
        self.groups.get(id as usize)?.as_ref()
    }

    #[inline]
    pub fn group_mut(&mut self, id: GroupId) -> &mut Group {
        self.groups[id as usize].as_mut().unwrap_or_else(|| unreachable!("group {id} was removed"))
    }

    pub fn group_list(&self) -> Vec<GroupId> {
        self.group_ids.values().copied().collect()
    }

    #[inline]
    pub fn queue(&self, id: QueueId) -> &Queue {
        &self.queues[id as usize]
    }

    pub fn queue_mut(&mut self, id: QueueId) -> &mut Queue {
        &mut self.queues[id as usize]
    }

    pub fn queue_ids(&self) -> impl Iterator<Item = QueueId> + use<> {
        0..self.queues.len() as QueueId
    }

    pub fn find_queue(&self, name: &str) -> Option<QueueId> {
        self.queue_ids.get(name).copied()
    }

    /// Numbers of classes are below this.
    #[inline]
    pub fn class_slots(&self) -> usize {
        self.classes.len()
    }

    #[inline]
    pub fn class(&self, id: ClassId) -> &Class {
        self.classes[id as usize].as_ref().unwrap_or_else(|| unreachable!("class {id} was dropped"))
    }

    pub fn request_of(&self, id: PodId) -> Request {
        self.class(self.pod(id).class).request.clone()
    }

    pub fn is_best_effort(&self, id: PodId) -> bool {
        self.class(self.pod(id).class).is_best_effort()
    }

    /// The state that decides about victims: capacity, and which pods hold places.
    pub fn stand(&self) -> u64 {
        self.room.wrapping_mul(1 << 20).wrapping_add(self.placed)
    }

    pub fn groups_has(&self, id: GroupId) -> bool {
        self.groups.get(id as usize).is_some_and(Option::is_some)
    }

    pub fn drop_claims(&mut self, id: GroupId) {
        for node in self.claims.remove(&id).unwrap_or_default() {
            self.nodes.claim(node, None);
            self.freed();
        }
    }
}

pub fn add_vector(to: &mut Vec<i64>, what: &[i64], sign: i64) {
    if to.len() < what.len() {
        to.resize(what.len(), 0);
    }
    to.iter_mut().zip(what).for_each(|(to, n)| *to = to.saturating_add(sign * n));
}
