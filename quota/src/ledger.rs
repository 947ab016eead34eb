//! What admitted jobs hold on each node of the tree.
//!
//! Admitting and releasing are idempotent by job id and cost the depth of the
//! leaf times the resources asked for. Three counts are kept by node and
//! resource: what jobs below use; what the node counts to itself when children
//! keep back part of their min (lend limits); and what jobs that may not be
//! preempted use.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_resources::Resources;
use serde::{Deserialize, Serialize};

use crate::tree::{JOBS, NodeId, QuotaTree, Request};
use crate::verdict::{Rule, Shortfall, Verdict};

/// A job's id, unique over the hub and stable over restarts (its uid, or
/// namespace and name of its unit).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(Arc<str>);

impl JobId {
    pub fn new(id: &str) -> Self {
        Self(Arc::from(id))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for JobId {
    fn from(id: &str) -> Self {
        Self::new(id)
    }
}

impl std::fmt::Display for JobId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for JobId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for JobId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|id| Self::new(&id))
    }
}

/// A job that holds quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmittedJob {
    pub id: JobId,
    pub leaf: NodeId,
    pub request: Resources,
    pub preemptible: bool,
    pub priority: i64,
    /// When it was admitted, in milliseconds of the caller's clock.
    pub admitted_at_ms: i64,
}

#[derive(Clone, Debug)]
pub struct Ledger {
    tree: Arc<QuotaTree>,
    jobs: BTreeMap<JobId, (AdmittedJob, Request)>,
    /// By node and resource.
    used: Vec<i64>,
    held: Vec<i64>,
    firm: Vec<i64>,
}

impl Ledger {
    pub fn new(tree: Arc<QuotaTree>) -> Self {
        let cells = tree.len() * tree.resources().len();
        let mut ledger = Self {
            tree,
            jobs: BTreeMap::new(),
            used: vec![0; cells],
            held: vec![0; cells],
            firm: vec![0; cells],
        };
        ledger.hold_kept();
        ledger
    }

    /// The same jobs on an edited tree. Jobs follow `leaf_of`; those for which
    /// it says `None` have lost their leaf and are returned, holding nothing.
    pub fn rebuilt(
        &self,
        tree: Arc<QuotaTree>,
        mut leaf_of: impl FnMut(&AdmittedJob) -> Option<NodeId>,
    ) -> (Self, Vec<AdmittedJob>) {
        let mut ledger = Self::new(tree);
        let mut lost = Vec::new();
        for (job, _) in self.jobs.values() {
            match leaf_of(job) {
                Some(leaf) => {
                    ledger.admit(AdmittedJob { leaf, ..job.clone() });
                }
                None => lost.push(job.clone()),
            }
        }
        (ledger, lost)
    }

    pub fn tree(&self) -> &Arc<QuotaTree> {
        &self.tree
    }

    pub fn job(&self, id: &JobId) -> Option<&AdmittedJob> {
        self.jobs.get(id).map(|(job, _)| job)
    }

    /// Admitted jobs by id.
    pub fn jobs(&self) -> impl Iterator<Item = &AdmittedJob> {
        self.jobs.values().map(|(job, _)| job)
    }

    /// Takes quota without asking whether it is there (see
    /// [`check`](Self::check)): a restart rebuilds the ledger from jobs that run.
    /// Returns false, changing nothing, when the job holds quota already.
    pub fn admit(&mut self, job: AdmittedJob) -> bool {
        if self.jobs.contains_key(&job.id) {
            return false;
        }
        let request = self.tree.request(&job.request);
        self.change(job.leaf, &request, job.preemptible, 1);
        self.jobs.insert(job.id.clone(), (job, request));
        true
    }

    /// Gives back what the job holds; `None` when it holds nothing.
    pub fn release(&mut self, id: &JobId) -> Option<AdmittedJob> {
        let (job, request) = self.jobs.remove(id)?;
        self.change(job.leaf, &request, job.preemptible, -1);
        Some(job)
    }

    /// Whether a job may be admitted now.
    ///
    /// # Errors
    /// The first bound it meets, from the leaf to the root.
    pub fn check(&self, leaf: NodeId, request: &Resources, preemptible: bool) -> Result<(), Verdict> {
        self.check_request(leaf, &self.tree.request(request), preemptible)
    }

    pub(crate) fn check_request(
        &self,
        leaf: NodeId,
        request: &Request,
        preemptible: bool,
    ) -> Result<(), Verdict> {
        let mut deltas = request.amounts.clone();
        for node in self.tree.path_to_root(leaf) {
            for (i, (r, asked)) in request.amounts.iter().enumerate() {
                let cell = self.tree.cell(node, *r);
                let (held, delta) = (self.held[cell], deltas[i].1);
                let max = self.tree.max_at(node, *r);
                if held.saturating_add(delta) > max {
                    return Err(self.shortfall(Rule::Max, leaf, node, *r, *asked, max, held));
                }
                let (firm, min) = (self.firm[cell], self.guaranteed_at(node, *r));
                if !preemptible && *r != JOBS && firm.saturating_add(*asked) > min {
                    return Err(self.shortfall(Rule::Min, leaf, node, *r, *asked, min, firm));
                }
                let kept = self.tree.kept_at(node, *r);
                deltas[i].1 = held.saturating_add(delta).max(kept) - held.max(kept);
            }
        }
        Ok(())
    }

    /// What admitted jobs below the node use, every resource of the tree named,
    /// the count of jobs as `kube-queue/max-jobs`.
    pub fn used(&self, node: NodeId) -> Resources {
        let names = self.tree.resources().iter().enumerate();
        names.map(|(r, name)| (name.clone(), self.used_at(node, r))).collect()
    }

    /// How many admitted jobs are below the node.
    pub fn job_count(&self, node: NodeId) -> i64 {
        self.used_at(node, JOBS)
    }

    /// The job would stay inside min on every node of its path below the root
    /// for the resources it asks for. The root borrows from nobody.
    pub fn is_inside_min(&self, leaf: NodeId, request: &Resources) -> bool {
        self.inside_min(leaf, &self.tree.request(request))
    }

    pub(crate) fn inside_min(&self, leaf: NodeId, request: &Request) -> bool {
        self.tree
            .path_to_root(leaf)
            .filter(|node| *node != NodeId::ROOT)
            .all(|node| self.node_inside_min(node, request))
    }

    pub(crate) fn node_inside_min(&self, node: NodeId, request: &Request) -> bool {
        let asked = request.amounts.iter().filter(|(r, _)| *r != JOBS);
        asked
            .into_iter()
            .all(|(r, amount)| self.used_at(node, *r).saturating_add(*amount) <= self.tree.min_at(node, *r))
    }

    pub(crate) fn used_at(&self, node: NodeId, r: usize) -> i64 {
        self.used[self.tree.cell(node, r)]
    }

    /// What may still be taken at the node under its max.
    pub(crate) fn room_at(&self, node: NodeId, r: usize) -> i64 {
        self.tree.max_at(node, r).saturating_sub(self.held[self.tree.cell(node, r)])
    }

    /// What jobs that may not be preempted may still take.
    pub(crate) fn firm_room_at(&self, node: NodeId, r: usize) -> i64 {
        if r == JOBS {
            return i64::MAX;
        }
        self.guaranteed_at(node, r).saturating_sub(self.firm[self.tree.cell(node, r)])
    }

    /// The root guarantees its whole capacity: it borrows from nobody.
    fn guaranteed_at(&self, node: NodeId, r: usize) -> i64 {
        if node == NodeId::ROOT { self.tree.max_at(node, r) } else { self.tree.min_at(node, r) }
    }

    /// `sign` is 1 to take and -1 to give back.
    fn change(&mut self, leaf: NodeId, request: &Request, preemptible: bool, sign: i64) {
        let tree = Arc::clone(&self.tree);
        for (r, amount) in &request.amounts {
            let mut delta = sign * amount;
            for node in tree.path_to_root(leaf) {
                let cell = tree.cell(node, *r);
                self.used[cell] += sign * amount;
                if !preemptible {
                    self.firm[cell] += sign * amount;
                }
                let kept = tree.kept_at(node, *r);
                let before = self.held[cell];
                self.held[cell] += delta;
                delta = self.held[cell].max(kept) - before.max(kept);
            }
        }
    }

    /// What is held with no job at all: parts of min that are never lent.
    fn hold_kept(&mut self) {
        let tree = Arc::clone(&self.tree);
        for node in tree.ids().rev() {
            let Some(parent) = tree.node(node).parent else { continue };
            for r in 0..tree.resources().len() {
                let counted = self.held[tree.cell(node, r)].max(tree.kept_at(node, r));
                self.held[tree.cell(parent, r)] += counted;
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "one cell of the tree, described in full")]
    fn shortfall(
        &self,
        rule: Rule,
        leaf: NodeId,
        node: NodeId,
        r: usize,
        request: i64,
        limit: i64,
        used: i64,
    ) -> Verdict {
        Verdict::of(Shortfall {
            rule,
            resource: self.tree.resources()[r].clone(),
            path: self.tree.node(node).path.clone(),
            in_parent: node != leaf,
            request,
            limit,
            used,
        })
    }
}
