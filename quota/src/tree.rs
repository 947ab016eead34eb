//! The quota tree: parsed once, read often.
//!
//! Resource names are interned, so an amount is found by two small indexes. Checking a job costs the depth of its
//! leaf times the resources it requests. The number of jobs is a resource, of which each job requests one.

mod attributes;
mod build;
mod drain;
mod submit;
mod warnings;

use std::collections::BTreeMap;
use std::fmt;

use fleet_resources::{QuantityError, ResourceName, Resources};
use thiserror::Error;

use crate::spec::NodeSpec;
pub use attributes::known_attributes;
pub(crate) use attributes::{GUARANTEE, RECLAIM, SHARE_PREEMPTION, WITHIN};

pub use submit::{SUBMITTER_NAMESPACES, SUBMITTERS, is_namespace, subject};

/// The pseudo-resource that counts jobs.
pub const MAX_JOBS: &str = "kube-queue/max-jobs";
/// Labels of a job that name its leaf, by name or by path; the first wins.
pub const QUOTA_LABELS: [&str; 2] =
    ["quota.scheduling.alibabacloud.com/name", "quota.scheduling.koordinator.sh/name"];
/// Label of a job; `false`: it may not be preempted.
pub const PREEMPTIBLE_LABEL: &str = "quota.scheduling.alibabacloud.com/preemptible";

/// A max of this or more is unlimited, as in other queue systems.
const UNLIMITED_FROM: i64 = i32::MAX as i64;
/// Deepest tree accepted; the root has depth 1.
const MAX_DEPTH: usize = 64;
/// Largest tree accepted.
const MAX_NODES: usize = 100_000;
/// More than any real job; the sum of a thousand such jobs still fits.
const MAX_AMOUNT: i64 = 1 << 53;
/// The index of [`MAX_JOBS`] among the tree's resources.
pub(crate) const JOBS: usize = 0;

/// A node of one tree; ids are dense, the root is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    pub const ROOT: Self = Self(0);

    pub fn index(self) -> usize {
        self.0 as usize
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
    /// Attribute `fleet.dev/max-bypass`: how long others may pass the first job of this leaf before it gets a
    /// claim.
    pub max_bypass_ms: i64,
    /// Attribute `fleet.dev/max-claim`: how long a claim lasts for a job of this leaf whose start is not in sight.
    pub max_claim_ms: i64,
    /// Attribute `fleet.dev/min-runtime`: how long a job of this leaf runs before it may be preempted by priority
    /// or by share.
    pub min_runtime_ms: i64,
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
    pub(crate) amounts: Vec<(usize, i64)>,
}

impl Request {
    pub(crate) fn amount(&self, r: usize) -> i64 {
        self.amounts.iter().find(|(index, _)| *index == r).map_or(0, |(_, amount)| *amount)
    }
}

/// The tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaTree {
    nodes: Vec<TreeNode>,
    names: Vec<ResourceName>,
    /// By node and resource.
    min: Vec<i64>,
    /// By node and resource; `i64::MAX` is unlimited.
    pub(crate) max: Vec<i64>,
    /// By node and resource: the smallest max from the node to the root.
    effective_max: Vec<i64>,
    /// By node and resource: the part of min that is never lent.
    kept: Vec<i64>,
    /// Whether any part of any min is never lent.
    keeps: bool,
    /// The root's `fleet.dev/max-gpu-loss` in thousandths.
    max_loss_milli: Option<i64>,
    by_namespace: BTreeMap<String, NodeId>,
    by_name: BTreeMap<String, NodeId>,
    by_path: BTreeMap<String, NodeId>,
    /// By node; draining leaves, which are added later, have none.
    submit: Vec<submit::Submit>,
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
}

/// A documented rule that a valid tree breaks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TreeWarning {
    pub path: String,
    pub field: String,
    pub found: String,
    pub allowed: String,
    /// True: the value is unknown or impossible, and ignored. False: the value is used, but breaks a documented
    /// rule.
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
        "the job's label {label}={value:?} names {path}, which takes no jobs of namespace {namespace:?}; allowed: {allowed}"
    )]
    NotAdmitted { label: &'static str, value: String, path: String, namespace: String, allowed: String },
}

impl QuotaTree {
    /// Parses a tree. Broken rules that leave it valid are returned as warnings.
    ///
    /// # Errors
    /// What makes a tree invalid: overlapping namespaces, equal sibling names, bad names or quantities, too deep or
    /// too large.
    pub fn build(root: &NodeSpec) -> Result<(Self, Vec<TreeWarning>), TreeError> {
        let (tree, mut found) = build::build(root)?;
        found.extend(warnings::broken_rules(&tree, root));
        found.sort();
        found.dedup();
        Ok((tree, found))
    }

    pub fn node(&self, id: NodeId) -> &TreeNode {
        &self.nodes[id.index()]
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Never true: a tree has a root.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Every node, parents before children.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        // MAX_NODES fits.
        (0..self.nodes.len() as u32).map(NodeId)
    }

    pub fn leaves(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.ids().filter(|id| self.node(*id).is_leaf())
    }

    /// The node at a path such as `root/team-a`.
    pub fn find(&self, path: &str) -> Option<NodeId> {
        self.by_path.get(path).copied()
    }

    /// The node and its ancestors, root last.
    pub fn path_to_root(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        std::iter::successors(Some(id), |id| self.node(*id).parent)
    }

    /// Whether `node` is on the path from `id` to the root, `id` included.
    pub(crate) fn is_below(&self, id: NodeId, node: NodeId) -> bool {
        self.path_to_root(id).any(|on_path| on_path == node)
    }

    /// Resource names the tree knows, [`MAX_JOBS`] first, then by name.
    pub fn resources(&self) -> &[ResourceName] {
        &self.names
    }

    /// The guaranteed amount; zero if the tree has none. The root's is as written, not its capacity.
    pub fn min(&self, id: NodeId, resource: &str) -> i64 {
        self.resource_index(resource).map_or(0, |r| self.min_at(id, r))
    }

    /// The max, `None` if unlimited.
    pub fn max(&self, id: NodeId, resource: &str) -> Option<i64> {
        let max = self.max_at(id, self.resource_index(resource)?);
        (max != i64::MAX).then_some(max)
    }

    /// A request in the tree's terms, counting one job.
    pub fn request(&self, resources: &Resources) -> Request {
        let mut amounts = vec![(JOBS, 1)];
        for (name, amount) in resources.iter().filter(|(_, amount)| *amount > 0) {
            if let Some(r) = self.resource_index(name.as_str()).filter(|r| *r != JOBS) {
                amounts.push((r, amount.min(MAX_AMOUNT)));
            }
        }
        amounts.sort_unstable();
        Request { amounts }
    }

    /// The leaf that lists the namespace.
    pub fn leaf_of_namespace(&self, namespace: &str) -> Option<NodeId> {
        self.by_namespace.get(namespace).copied()
    }

    /// The leaf of a job, by its labels, else by its namespace.
    ///
    /// # Errors
    /// The job belongs to no leaf, or names one that does not admit its namespace.
    pub fn leaf_for(&self, labels: &BTreeMap<String, String>, namespace: &str) -> Result<NodeId, LeafError> {
        for label in QUOTA_LABELS {
            let Some(value) = labels.get(label).filter(|value| !value.is_empty()) else {
                continue;
            };
            let at_path = self.find(value).filter(|id| !self.node(*id).draining);
            return match at_path.or_else(|| self.by_name.get(value).copied()) {
                Some(id) if self.node(id).is_leaf() && self.admits(id, namespace) => Ok(id),
                Some(id) if self.node(id).is_leaf() => Err(LeafError::NotAdmitted {
                    label,
                    value: value.clone(),
                    path: self.node(id).path.clone(),
                    namespace: namespace.to_owned(),
                    allowed: self.allowed_namespaces(id),
                }),
                Some(id) => {
                    Err(LeafError::NotALeaf { label, value: value.clone(), path: self.node(id).path.clone() })
                }
                None => Err(LeafError::UnknownName { label, value: value.clone() }),
            };
        }
        self.leaf_of_namespace(namespace)
            .ok_or_else(|| LeafError::UnknownNamespace { namespace: namespace.to_owned() })
    }

    pub(crate) fn resource_index(&self, name: &str) -> Option<usize> {
        if name == MAX_JOBS {
            return Some(JOBS);
        }
        let named = self.names[1..].binary_search_by(|known| known.as_str().cmp(name));
        named.ok().map(|at| at + 1)
    }

    pub(crate) fn cell(&self, id: NodeId, r: usize) -> usize {
        id.index() * self.names.len() + r
    }

    pub(crate) fn min_at(&self, id: NodeId, r: usize) -> i64 {
        self.min[self.cell(id, r)]
    }

    pub(crate) fn max_at(&self, id: NodeId, r: usize) -> i64 {
        self.max[self.cell(id, r)]
    }

    pub(crate) fn kept_at(&self, id: NodeId, r: usize) -> i64 {
        self.kept[self.cell(id, r)]
    }

    /// Whether some min is not lent in full. Then what a job adds to a node depends on what else is below it.
    pub(crate) fn keeps_back(&self) -> bool {
        self.keeps
    }

    /// GPU time that may be lost for each unit that a preemptor gains, in thousandths; `None` if the root does not
    /// say.
    pub(crate) fn max_loss_milli(&self) -> Option<i64> {
        self.max_loss_milli
    }

    /// What the node can lend its children. No child can ever use more.
    pub(crate) fn lendable_at(&self, id: NodeId, r: usize) -> i64 {
        self.effective_max[self.cell(id, r)]
    }
}

/// Longest prefix kept of a Queue's generated name.
const QUEUE_PREFIX: usize = 58;

/// The generateName of the Queue of the node at `path`: `root/child-2` gives
/// `root-child-2-`, long paths keep their end.
pub fn queue_prefix(path: &str) -> String {
    let mut prefix = path.to_lowercase().replace(['/', '_'], "-");
    prefix.push('-');
    let count = prefix.chars().count();
    prefix.chars().skip(count.saturating_sub(QUEUE_PREFIX)).collect()
}
