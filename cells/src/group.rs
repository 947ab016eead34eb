//! Groups that hold cells, with a total transition function over their states.
//!
//! Pending groups are not stored. Allocated survives a restart, because bound pods carry it. The other states do
//! not: after a restart a Preempting group is pending again, and a BeingPreempted group is Allocated.

use std::collections::BTreeMap;

use crate::{
    request::GroupRequest,
    topology::{ChainNo, GroupNo, LeafNo, SlotNo},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub enum GroupState {
    Allocated,
    /// Waits for its victims to leave the cells that it has reserved.
    Preempting,
    /// Some of its cells are reserved for another group; it has to be evicted as a whole.
    BeingPreempted,
}

/// What can happen to a group that holds cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupEvent {
    /// The last of its victims is gone and it takes its cells.
    VictimsGone,
    /// A cell of it was reserved by another.
    CellReserved,
    /// None of its cells is reserved any more.
    CellsReturned,
}

impl GroupState {
    /// The state after an event. An event that already holds changes nothing.
    pub(crate) fn apply(self, event: GroupEvent) -> GroupState {
        match (self, event) {
            (GroupState::Preempting, GroupEvent::VictimsGone) => GroupState::Allocated,
            (GroupState::Allocated | GroupState::BeingPreempted, GroupEvent::VictimsGone) => self,
            // A preempting group loses its reservation as a whole instead of being preempted.
            (GroupState::Preempting, GroupEvent::CellReserved | GroupEvent::CellsReturned) => self,
            (GroupState::Allocated | GroupState::BeingPreempted, GroupEvent::CellReserved) => {
                GroupState::BeingPreempted
            }
            (GroupState::Allocated | GroupState::BeingPreempted, GroupEvent::CellsReturned) => {
                GroupState::Allocated
            }
        }
    }
}

/// Whether a pod of a group is present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PodState {
    /// Its place is kept; the pod is not there yet.
    Expected,
    Live(String),
    Gone,
}

#[derive(Clone, Debug)]
pub(crate) struct GroupPod {
    /// In order of the tree; empty if they were released.
    pub leaves: Vec<LeafNo>,
    /// The promise to which its leaves belong; none for opportunistic pods.
    pub slot: Option<SlotNo>,
    pub state: PodState,
}

/// Why and when a group became opportunistic.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LazyPreemption {
    /// The group that took its promise, or another cause.
    pub preemptor: String,
    pub at_ms: i64,
}

#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub request: GroupRequest,
    pub state: GroupState,
    /// Its priority on its leaves: -1 if it is opportunistic, also by lazy preemption.
    pub priority: i16,
    pub chain: ChainNo,
    pub pods: Vec<GroupPod>,
    pub lazy: Option<LazyPreemption>,
    /// Pods that wait for its victims to leave.
    pub waiting: std::collections::BTreeSet<String>,
    /// Work since then would be lost: since its allocation, or its last checkpoint.
    pub work_since_ms: i64,
}

impl Group {
    pub(crate) fn leaves(&self) -> impl Iterator<Item = LeafNo> + '_ {
        self.pods.iter().flat_map(|pod| pod.leaves.iter().copied())
    }

    pub(crate) fn slots(&self) -> Vec<SlotNo> {
        let mut slots: Vec<_> = self.pods.iter().filter_map(|pod| pod.slot).collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// Leaf-milliseconds that an eviction now would lose.
    pub(crate) fn lost_work(&self, now_ms: i64) -> i64 {
        let leaves: usize = self.pods.iter().map(|pod| pod.leaves.len()).sum();
        let leaves = i64::try_from(leaves).unwrap_or(i64::MAX);
        now_ms.saturating_sub(self.work_since_ms).max(0).saturating_mul(leaves)
    }
}

/// Groups by number and name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    slab: Vec<Option<Group>>,
    free: Vec<GroupNo>,
    names: BTreeMap<String, GroupNo>,
}

impl Groups {
    pub(crate) fn number(&self, name: &str) -> Option<GroupNo> {
        self.names.get(name).copied()
    }

    pub(crate) fn get(&self, group: GroupNo) -> Option<&Group> {
        self.slab.get(group.at()).and_then(Option::as_ref)
    }

    pub(crate) fn get_mut(&mut self, group: GroupNo) -> Option<&mut Group> {
        self.slab.get_mut(group.at()).and_then(Option::as_mut)
    }

    pub(crate) fn named(&self, name: &str) -> Option<(GroupNo, &Group)> {
        let number = self.number(name)?;
        Some((number, self.get(number)?))
    }

    pub(crate) fn name(&self, group: GroupNo) -> String {
        self.get(group).map(|group| group.request.name().to_string()).unwrap_or_default()
    }

    pub(crate) fn insert(&mut self, group: Group) -> GroupNo {
        let number = self.free.pop().unwrap_or_else(|| {
            self.slab.push(None);
            GroupNo::of(self.slab.len() - 1)
        });
        self.names.insert(group.request.name().to_string(), number);
        self.slab[number.at()] = Some(group);
        number
    }

    pub(crate) fn remove(&mut self, number: GroupNo) -> Option<Group> {
        let group = self.slab.get_mut(number.at())?.take()?;
        self.names.remove(group.request.name());
        self.free.push(number);
        Some(group)
    }

    /// By name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (GroupNo, &Group)> {
        self.names.values().filter_map(|number| self.get(*number).map(|group| (*number, group)))
    }
}
