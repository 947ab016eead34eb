//! The quota tree: parsed once, read often.
//!
//! Resource names are interned, so an amount is found by two small indexes. Checking a job costs the depth of its
//! leaf times the resources it requests. The number of jobs is a resource, of which each job requests one.

mod attributes;
mod build;
mod drain;
mod model;
mod spec;
mod submit;
#[cfg(test)]
mod tests;
mod warnings;

use std::collections::BTreeMap;

use fleet_resources::{ResourceName, Resources};

pub use attributes::{ATTRIBUTES, Attribute, On, REQUIRE_QUEUE, Values};
use model::MAX_AMOUNT;
pub use model::{
    JOBS, LeafError, MAX_JOBS, NodeId, PREEMPTIBLE_LABEL, QUOTA_LABELS, QuotaTree, Reclaim, Request,
    TreeError, TreeNode, TreeWarning, Within,
};
pub use spec::NodeSpec;
pub use submit::{SUBMITTER_NAMESPACES, SUBMITTERS, is_namespace, subject};

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
    pub fn is_below(&self, id: NodeId, node: NodeId) -> bool {
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
        let mut amounts = Vec::with_capacity(self.resources().len());
        amounts.push((JOBS, 1));
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

    /// The nodes whose `fleet.dev/require-queue` holds for an object: its leaf and the leaf of its namespace, so that no
    /// label leads out of one; or the root, if it belongs to no leaf.
    pub fn requiring_queue(
        &self,
        labels: &BTreeMap<String, String>,
        namespace: &str,
    ) -> impl Iterator<Item = &TreeNode> {
        let own = self.leaf_for(labels, namespace).ok();
        let home = self.leaf_of_namespace(namespace).filter(|home| own != Some(*home));
        let nowhere = (own.is_none() && home.is_none()).then_some(NodeId::ROOT);
        let nodes = [own, home, nowhere].into_iter().flatten();
        nodes.map(|id| self.node(id)).filter(|node| node.requires_queue)
    }

    /// The first of the requested resources that has a max at the node or above it.
    pub fn first_bounded<'r>(&self, node: &TreeNode, request: &'r Resources) -> Option<&'r ResourceName> {
        let id = self.find(&node.path)?;
        let asked = request.iter().filter(|(_, amount)| *amount > 0).map(|(name, _)| name);
        let is_bounded = |r| self.lendable_at(id, r) < i64::MAX;
        asked.into_iter().find(|name| self.resource_index(name.as_str()).is_some_and(is_bounded))
    }

    /// The index of a resource in the tree's arrays; [`JOBS`] is [`MAX_JOBS`].
    pub fn resource_index(&self, name: &str) -> Option<usize> {
        if name == MAX_JOBS {
            return Some(JOBS);
        }
        let named = self.names[1..].binary_search_by(|known| known.as_str().cmp(name));
        named.ok().map(|at| at + 1)
    }

    /// Where the amount of a resource of a node is in an array by node and resource.
    pub fn cell(&self, id: NodeId, r: usize) -> usize {
        id.index() * self.names.len() + r
    }

    /// The guaranteed amount, by the resource's index.
    pub fn min_at(&self, id: NodeId, r: usize) -> i64 {
        self.min[self.cell(id, r)]
    }

    /// The max, by the resource's index; `i64::MAX` is unlimited.
    pub fn max_at(&self, id: NodeId, r: usize) -> i64 {
        self.max[self.cell(id, r)]
    }

    /// The part of min that is never lent, by the resource's index.
    pub fn kept_at(&self, id: NodeId, r: usize) -> i64 {
        self.kept[self.cell(id, r)]
    }

    /// Whether some min is not lent in full. Then what a job adds to a node depends on what else is below it.
    pub fn keeps_back(&self) -> bool {
        self.keeps
    }

    /// GPU time that may be lost for each unit that a preemptor gains, in thousandths; `None` if the root does not say.
    pub fn max_loss_milli(&self) -> Option<i64> {
        self.max_loss_milli
    }

    /// Whether the root lets borrowers preempt larger borrowers.
    pub fn preempts_by_share(&self) -> bool {
        self.by_share
    }

    /// What the node can lend its children. No child can ever use more.
    pub fn lendable_at(&self, id: NodeId, r: usize) -> i64 {
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
