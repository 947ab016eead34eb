//! Checks the invariants after each step, on the simulation's own state instead of the planner's, so that an error
//! there shows.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fleet_quota_tree::{MAX_JOBS, QuotaTree};
use fleet_resources::{Resources, quantity};

use crate::scenario::log::Violation;

/// What each node of the quota tree uses, counted from the jobs that hold quota. Nodes are known by their paths:
/// a leaf that drains is in the planner's tree and not in the object's, and the numbers of nodes change with either.
#[derive(Default)]
pub(super) struct Checker {
    tree: Option<Arc<QuotaTree>>,
    /// By path.
    used: BTreeMap<String, Resources>,
    /// By job number: path of the leaf, and request.
    holding: BTreeMap<usize, (String, Resources)>,
    seen: BTreeSet<(u8, String)>,
    found: Vec<Violation>,
}

impl Checker {
    /// A new tree: jobs are counted again where it puts them.
    pub fn set_tree(&mut self, tree: Option<Arc<QuotaTree>>, leaf_of: impl Fn(usize) -> Option<String>) {
        self.tree = tree;
        self.used.clear();
        let holding = std::mem::take(&mut self.holding);
        for (job, (_, request)) in holding {
            if let Some(leaf) = leaf_of(job) {
                self.count(&leaf, &request, 1);
                self.holding.insert(job, (leaf, request));
            }
        }
    }

    /// A job takes quota: on no node of its path more than max may be used then.
    pub fn take(&mut self, job: usize, name: &str, leaf: &str, request: &Resources, at_ms: i64) {
        let Some(tree) = self.tree.clone() else { return };
        let mut request = request.clone();
        request.set(MAX_JOBS, 1);
        if self.holding.contains_key(&job) {
            self.broken(3, at_ms, vec![name.to_string()], "a job takes quota twice".to_string());
            return;
        }
        self.count(leaf, &request, 1);
        for path in to_root(leaf) {
            let Some(node) = tree.find(path) else { continue };
            let used = self.used.get(path).cloned().unwrap_or_default();
            for (resource, _) in request.iter() {
                let amount = used.get(resource.as_str());
                if let Some(max) = tree.max(node, resource.as_str()).filter(|max| amount > *max) {
                    let text = |amount| quantity::format(resource.as_str(), amount);
                    let what = format!("{path} uses {} {resource}, max {}", text(amount), text(max));
                    self.broken(3, at_ms, vec![path.to_string(), name.to_string()], what);
                }
            }
        }
        self.holding.insert(job, (leaf.to_string(), request));
    }

    pub fn give_back(&mut self, job: usize) {
        if let Some((leaf, request)) = self.holding.remove(&job) {
            self.count(&leaf, &request, -1);
        }
    }

    /// Whether the job holds quota.
    pub fn holds(&self, job: usize) -> bool {
        self.holding.contains_key(&job)
    }

    pub fn holders(&self) -> impl Iterator<Item = usize> {
        self.holding.keys().copied()
    }

    fn count(&mut self, leaf: &str, request: &Resources, sign: i64) {
        let change = request.scaled(sign);
        for path in to_root(leaf) {
            if let Some(used) = self.used.get_mut(path) {
                used.add(&change);
            } else {
                self.used.insert(path.to_string(), change.clone());
            }
        }
    }

    /// Each violation is reported once for the same objects.
    pub fn broken(&mut self, invariant: u8, at_ms: i64, objects: Vec<String>, what: String) {
        if self.seen.insert((invariant, objects.join(" "))) {
            self.found.push(Violation { invariant, t: at_ms as f64 / 1000.0, objects, what });
        }
    }

    pub fn take_found(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.found)
    }
}

/// The path and those of the nodes above it.
fn to_root(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| path.rfind('/').map(|at| &path[..at]))
}
