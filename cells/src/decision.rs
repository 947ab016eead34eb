//! Questions to [`crate::Cells::schedule`], and its answers.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::{
    reason::{Refusal, WaitReason},
    request::GroupRequest,
    topology::{CellNo, ChainNo, GroupNo, LeafNo, NodeName, SlotNo},
};

/// HiveD's phases. They differ for a group with reservations: only in phase Preempting does it give up those on
/// nodes that became bad or are not suggested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    Filtering,
    #[default]
    Preempting,
}

/// The context of a question.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask<'a> {
    /// The present time, from which lost work is computed.
    pub now_ms: i64,
    pub phase: Phase,
    /// Suggested nodes, for groups that do not ignore them; none: all nodes.
    pub suggested: Option<&'a BTreeSet<NodeName>>,
    /// Nodes that are known not to take the group's pods. No group ignores these.
    pub excluded: Option<&'a BTreeSet<NodeName>>,
    /// Member clusters that may be used, best first; none: all, in the order of the configuration. A group never
    /// spans clusters.
    pub clusters: Option<&'a [String]>,
}

/// The decision. Nothing changes before it is committed.
#[derive(Clone, Debug)]
pub enum Decision {
    /// The group can have its cells now.
    Place(Proposal),
    /// It can have them when the victims are gone; a commit reserves them.
    Preempt(Proposal),
    Wait(WaitReason),
    Refuse(Refusal),
}

/// A placement that can be committed until something else changes.
#[derive(Clone, Debug)]
pub struct Proposal {
    pub placement: Placement,
    /// Groups to evict as a whole.
    pub victims: Vec<Victim>,
    /// Groups that become opportunistic in place.
    pub lazily_preempted: Vec<String>,
    /// Groups of a lower priority that lose their reservations and are pending again.
    pub cancelled: Vec<String>,
    pub(crate) plan: CommitPlan,
}

/// What a commit does.
#[derive(Clone, Debug)]
pub(crate) struct CommitPlan {
    pub generation: u64,
    pub request: GroupRequest,
    pub now_ms: i64,
    pub step: Step,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// The group already has its cells; the answer is the same as before.
    Nothing,
    /// The victims of a preempting group are gone.
    TakeReserved(GroupNo),
    New(NewGroup),
}

#[derive(Clone, Debug)]
pub(crate) struct NewGroup {
    pub chain: ChainNo,
    pub priority: i16,
    /// Leaves and promise of each pod, by number.
    pub pods: Vec<(Vec<LeafNo>, Option<SlotNo>)>,
    pub binds: Vec<(SlotNo, CellNo)>,
    pub lazy: Vec<GroupNo>,
    pub cancels: Vec<GroupNo>,
    pub victims: Vec<GroupNo>,
}

/// Where the pods of a group go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    pub cell_chain: String,
    pub leaf_cell_type: String,
    /// By number: members in order, a group's own pods before those of its child groups.
    pub pods: Vec<PodPlacement>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodPlacement {
    pub node: String,
    /// Numbers of the devices in the node, in order of the cell tree.
    pub leaf_cells: Vec<i32>,
    /// Type of the promised cell that the leaves are part of; empty for opportunistic pods.
    pub preassigned_cell_type: String,
}

/// A group to evict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Victim {
    pub group: String,
    pub vc: String,
    pub priority: i32,
    /// Leaf-milliseconds since its start or last checkpoint.
    pub lost_work_ms: i64,
    pub nodes: Vec<NodeName>,
    /// Names of its present pods.
    pub pods: Vec<String>,
}

/// A proposal that can no longer be committed: schedule again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the proposal is out of date: made at generation {made}, now {now}")]
pub struct Stale {
    pub made: u64,
    pub now: u64,
}

impl Decision {
    #[must_use]
    pub fn is_place(&self) -> bool {
        matches!(self, Decision::Place(_))
    }
}
