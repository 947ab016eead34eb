//! Why a group waits and why a request is refused: as types, and as one sentence each.

use std::fmt;

use crate::topology::NodeName;

/// The cells that were searched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    VirtualCluster(String),
    PinnedCell { vc: String, pin: String },
    PhysicalCluster,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::VirtualCluster(vc) => write!(f, "VC {vc}"),
            Scope::PinnedCell { vc, pin } => write!(f, "pinned cell {pin} of VC {vc}"),
            Scope::PhysicalCluster => write!(f, "the physical cluster"),
        }
    }
}

/// Why a group waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitReason {
    pub scope: Scope,
    /// The cell type that blocks; empty if no single one does.
    pub level: String,
    pub cause: WaitCause,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitCause {
    /// Fewer leaves than the group requests.
    TooFewLeaves { asked: u64, free: u64 },
    /// Enough leaves, but not enough of them within cells of the level.
    NoCellForPods { pods: u32, fitting: u32, leaves_each: u32 },
    /// No cell of the level, which must hold the whole group, has enough free leaves.
    NoCellForGroup { asked: u64, largest_free: u64 },
    /// It would fit if this node were good.
    BadNode {
        node: NodeName,
        /// Its cluster has no such node.
        absent: bool,
    },
    /// It would fit if this node had been suggested.
    NotSuggested { node: NodeName },
    /// It would fit if this node took its pods.
    Excluded { node: NodeName },
    /// The search was given up after so many steps; a smaller group may fit.
    SearchLimit { steps: u32 },
    /// The group itself is being preempted. It must leave before it can be placed again.
    BeingPreempted { by: String },
    /// The group cannot use this part of the fleet: nothing was tried there.
    NoChain { why: String },
}

impl WaitReason {
    /// A name for metrics and events.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self.cause {
            WaitCause::TooFewLeaves { .. } => "InsufficientCells",
            WaitCause::NoCellForPods { .. } => "CellsFragmented",
            WaitCause::NoCellForGroup { .. } => "WithinOneCell",
            WaitCause::BadNode { .. } => "BadNode",
            WaitCause::NotSuggested { .. } => "NodeNotSuggested",
            WaitCause::Excluded { .. } => "NodeExcluded",
            WaitCause::SearchLimit { .. } => "SearchLimit",
            WaitCause::BeingPreempted { .. } => "BeingPreempted",
            WaitCause::NoChain { .. } => "NoCells",
        }
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scope, level, cause } = self;
        match cause {
            WaitCause::TooFewLeaves { asked, free } => {
                write!(
                    f,
                    "insufficient capacity in {scope}: {asked} cells of type {level} asked for, {free} free"
                )
            }
            WaitCause::NoCellForPods { pods, fitting, leaves_each } => write!(
                f,
                "insufficient capacity in {scope} at level {level}: {pods} pods of {leaves_each} leaf cells asked \
                 for, {fitting} fit"
            ),
            WaitCause::NoCellForGroup { asked, largest_free } => write!(
                f,
                "insufficient capacity in {scope} at level {level}: {asked} leaf cells must lie within one \
                 {level}, at most {largest_free} are free in one"
            ),
            WaitCause::BadNode { node, absent } => {
                let why = if *absent { ", which its cluster does not have" } else { "" };
                write!(f, "only possible in {scope} with bad node {node}{why}")
            }
            WaitCause::NotSuggested { node } => {
                write!(f, "only possible in {scope} with node {node}, which is not suggested")
            }
            WaitCause::Excluded { node } => {
                write!(f, "only possible in {scope} with node {node}, which does not take its pods")
            }
            WaitCause::SearchLimit { steps } => {
                write!(f, "no placement found in {scope} after {steps} steps of search")
            }
            WaitCause::BeingPreempted { by } => write!(f, "the group is being preempted by {by}"),
            WaitCause::NoChain { why } => write!(f, "insufficient capacity in {scope}: {why}"),
        }
    }
}

/// Why a request is refused: it is invalid, or can never be placed. Nothing changes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("affinityGroup.name: found nothing; allowed: a name")]
    GroupNameEmpty,
    #[error("virtualCluster: found nothing; allowed: the name of a virtual cluster")]
    VcEmpty,
    #[error("priority: found {found}; allowed: -1 (opportunistic), or 0 to 1000")]
    Priority { found: i32 },
    #[error("virtualCluster: found {vc}; allowed: {}", any(known))]
    UnknownVc { vc: String, known: Vec<String> },
    #[error("affinityGroup.members: found no pods; allowed: at least one")]
    NoPods,
    #[error("affinityGroup.members: found more pods; allowed: at most {most}")]
    TooManyPods { most: u32 },
    #[error("affinityGroup.childGroups: found deeper groups; allowed: at most {most} levels")]
    TooDeep { most: usize },
    #[error("affinityGroup.members.podNumber: found {found}; allowed: 1 or more")]
    PodNumber { found: i64 },
    /// `cellNumber` where the request names a type of cells, else `leafCellNumber`.
    #[error("{field}: found {found}; allowed: 1 or more")]
    LeafCellNumber { field: &'static str, found: i64 },
    #[error("pinnedCellId: found {pin}; allowed in VC {vc}: {}", any(known))]
    UnknownPin { vc: String, pin: String, known: Vec<String> },
    #[error("pinnedCellId: found {pin} on an opportunistic group; allowed: priority 0 or more, or no pin")]
    OpportunisticPin { pin: String },
    #[error("leafCellType: found {leaf_type}; allowed: {}", any(known))]
    UnknownLeafType { leaf_type: String, known: Vec<String> },
    #[error("leafCellType: found {leaf_type}, of which VC {vc} has none; allowed: {}", any(known))]
    LeafTypeNotInVc { vc: String, leaf_type: String, known: Vec<String> },
    #[error("withinOneCell: found {cell_type}; allowed: {}", any(known))]
    UnknownWithin { cell_type: String, known: Vec<String> },
    #[error("cellType: found {cell_type}; allowed: {}", any(known))]
    UnknownCellType { cell_type: String, known: Vec<String> },
    #[error("cellType: found {cell_type}, which is above node level; allowed: {}", any(known))]
    AboveNodeLevel { cell_type: String, known: Vec<String> },
    /// A pod that belongs to no member of its group.
    #[error("leafCellNumber: found {found}; allowed in group {group}: {}", join(allowed))]
    NoSuchMember { group: String, found: i64, allowed: Vec<i64> },
    /// One pod more than the group declared.
    #[error("group {group}: found a pod more; allowed: {declared} pods of {leaf_cells} leaf cells")]
    TooManyOfMember { group: String, declared: u32, leaf_cells: i64 },
    /// An existing group now requests something else.
    #[error(
        "group {group}: found another {field} than when it was allocated; allowed: the same, or another name"
    )]
    ChangedGroup { group: String, field: &'static str },
    /// It could not be placed even if everything were free and good.
    #[error("{0}")]
    NeverFits(String),
}

fn any(names: &[String]) -> String {
    if names.is_empty() { "none".to_string() } else { names.join(", ") }
}

fn join(numbers: &[i64]) -> String {
    numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")
}
