//! The data types of a quota tree, and the errors and warnings about it.

use std::collections::BTreeMap;
use std::fmt;

use fleet_resources::{QuantityError, ResourceName};
use thiserror::Error;

use crate::submit::Submit;

/// The pseudo-resource that counts jobs.
pub const MAX_JOBS: &str = "kube-queue/max-jobs";
/// Labels of a job that name its leaf, by name or by path; the first wins.
pub const QUOTA_LABELS: [&str; 2] =
    ["quota.scheduling.alibabacloud.com/name", "quota.scheduling.koordinator.sh/name"];
/// Label of a job; `false`: it may not be preempted.
pub const PREEMPTIBLE_LABEL: &str = "quota.scheduling.alibabacloud.com/preemptible";

/// A max of this or more is unlimited, as in other queue systems.
pub(crate) const UNLIMITED_FROM: i64 = i32::MAX as i64;
/// Deepest tree accepted; the root has depth 1.
pub(crate) const MAX_DEPTH: usize = 64;
/// Largest tree accepted.
pub(crate) const MAX_NODES: usize = 100_000;
/// More than any real job; the sum of a thousand such jobs still fits.
pub(crate) const MAX_AMOUNT: i64 = 1 << 53;
/// The index of [`MAX_JOBS`] among the tree's resources.
pub const JOBS: usize = 0;

/// A node of one tree; ids are dense, the root is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    pub const ROOT: Self = Self(0);

    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The node with this index; of one tree only.
    pub fn at(index: usize) -> Self {
        // Trees are bounded far below 2^32.
        Self(index as u32)
    }
}

/// From whom jobs of a leaf reclaim inside min.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reclaim {
    #[default]
    Any,
    LowerPriority,
    Never,
}

/// Which jobs of a leaf give way to its others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Within {
    #[default]
    LowerPriority,
    LowerOrNewerEqualPriority,
    Never,
}

impl Reclaim {
    pub(crate) fn of(text: Option<&String>) -> Self {
        match text.map(String::as_str) {
            Some("LowerPriority") => Self::LowerPriority,
            Some("Never") => Self::Never,
            _ => Self::Any,
        }
    }
}

impl Within {
    pub(crate) fn of(text: Option<&String>) -> Self {
        match text.map(String::as_str) {
            Some("LowerOrNewerEqualPriority") => Self::LowerOrNewerEqualPriority,
            Some("Never") => Self::Never,
            _ => Self::LowerPriority,
        }
    }
}

/// One node, for callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeNode {
    pub name: String,
    /// Names from the root, joined by `/`; the root is always `root`.
    pub path: String,
    pub parent: Option<NodeId>,
    pub children: Vec<NodeId>,
    pub namespaces: Vec<String>,
    pub attributes: BTreeMap<String, String>,
    /// Attribute `fleet.dev/weight` in thousandths; 0 is served last.
    pub weight_milli: i64,
    /// Attribute `fleet.dev/max-bypass`: how long others may pass the first job of this leaf before it gets a claim.
    pub max_bypass_ms: i64,
    /// Attribute `fleet.dev/max-claim`: how long a claim lasts for a job of this leaf whose start is not in sight.
    pub max_claim_ms: i64,
    /// Attribute `fleet.dev/min-runtime`: how long a job of this leaf runs before it may be preempted by priority
    /// or by share.
    pub min_runtime_ms: i64,
    /// Attribute `fleet.dev/reclaim`: from whom jobs of this leaf reclaim inside min.
    pub reclaim: Reclaim,
    /// Attribute `fleet.dev/preempt-within`: which jobs of this leaf give way to its others.
    pub within: Within,
    /// Attribute `fleet.dev/guarantee`: the node lends its own min to any job below it.
    pub lends_min: bool,
    /// Attribute `fleet.dev/require-queue`, or that of the node above: nothing runs here without having queued.
    pub requires_queue: bool,
    /// The leaf was deleted, and stays until its jobs have ended: nothing is admitted here.
    pub draining: bool,
}

impl TreeNode {
    pub fn is_leaf(&self) -> bool {
        self.children.is_empty()
    }
}

/// A job's request by the tree's resource index, including one job. Resources that the tree does not name are not
/// limited by it, and are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    /// Resource index and amount, by index.
    pub amounts: Vec<(usize, i64)>,
}

impl Request {
    /// The amount of one resource.
    pub fn amount(&self, r: usize) -> i64 {
        self.amounts.iter().find(|(index, _)| *index == r).map_or(0, |(_, amount)| *amount)
    }
}

/// The tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaTree {
    pub(crate) nodes: Vec<TreeNode>,
    pub(crate) names: Vec<ResourceName>,
    /// By node and resource.
    pub(crate) min: Vec<i64>,
    /// By node and resource; `i64::MAX` is unlimited.
    pub(crate) max: Vec<i64>,
    /// By node and resource: the smallest max from the node to the root.
    pub(crate) effective_max: Vec<i64>,
    /// By node and resource: the part of min that is never lent.
    pub(crate) kept: Vec<i64>,
    /// Whether any part of any min is never lent.
    pub(crate) keeps: bool,
    /// The root's `fleet.dev/share-preemption`.
    pub(crate) by_share: bool,
    /// The root's `fleet.dev/max-gpu-loss` in thousandths.
    pub(crate) max_loss_milli: Option<i64>,
    pub(crate) by_namespace: BTreeMap<String, NodeId>,
    pub(crate) by_name: BTreeMap<String, NodeId>,
    pub(crate) by_path: BTreeMap<String, NodeId>,
    /// By node; draining leaves, which are added later, have none.
    pub(crate) submit: Vec<Submit>,
}

/// A tree that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TreeError {
    #[error(
        "quota tree: namespace {namespace:?} is listed in {first} and in {second}; allowed: a namespace in at most one \
         leaf"
    )]
    DuplicateNamespace { namespace: String, first: String, second: String },
    #[error("quota tree: {parent} has two children named {name:?}; allowed: sibling names that differ")]
    DuplicateName { parent: String, name: String },
    #[error(
        "quota tree: a child of {parent} is named {name:?}; allowed: 1 to 253 characters without \"/\" and white space"
    )]
    BadName { parent: String, name: String },
    #[error("quota tree: {path} is at depth {depth}; allowed: at most {MAX_DEPTH}")]
    TooDeep { path: String, depth: usize },
    #[error("quota tree: more than {MAX_NODES} nodes; allowed: at most that")]
    TooManyNodes,
    #[error("quota tree: {path}, {field}: {source}")]
    Quantity {
        path: String,
        field: &'static str,
        #[source]
        source: QuantityError,
    },
    #[error("quota tree: {path}, {field}, resource {resource}: found {found}; allowed: 0 or more")]
    Negative { path: String, field: &'static str, resource: String, found: String },
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Several(Vec<TreeError>),
}

/// A documented rule that a valid tree breaks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TreeWarning {
    pub path: String,
    pub field: String,
    pub found: String,
    pub allowed: String,
    /// True: the value is unknown or impossible, and ignored. False: the value is used, but breaks a documented rule.
    pub is_mistake: bool,
    /// One sentence naming node, field and values.
    pub sentence: String,
}

impl fmt::Display for TreeWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

/// A job that belongs to no leaf.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LeafError {
    #[error("the job's label {label}={value:?} names no node of the quota tree")]
    UnknownName { label: &'static str, value: String },
    #[error("the job's label {label}={value:?} names {path}, which has children; allowed: a leaf")]
    NotALeaf { label: &'static str, value: String, path: String },
    #[error(
        "the job does not belong to any elastic quota: no leaf of the quota tree lists namespace {namespace:?}"
    )]
    UnknownNamespace { namespace: String },
    #[error(
        "the job's label {label}={value:?} names {path}, which admits no jobs of namespace {namespace:?}; allowed: {allowed}"
    )]
    NotAdmitted { label: &'static str, value: String, path: String, namespace: String, allowed: String },
}
