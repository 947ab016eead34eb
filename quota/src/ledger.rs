//! What admitted jobs use on each node of the tree.
//!
//! Admitting and releasing are idempotent by job id. They cost the depth of the leaf times the number of resources
//! in the request. Three counts are kept by node and resource: the use of jobs below; what the node counts to
//! itself when children keep back part of their min (lend limits); and the use of jobs that may not be preempted.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_resources::Resources;

use crate::names::JobId;
use crate::refusal::{QuotaRefusal, Rule, Shortfall};
use fleet_quota_tree::{JOBS, NodeId, QuotaTree, Request};

/// A job that holds quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmittedJob {
    pub id: JobId,
    pub leaf: NodeId,
    pub request: Resources,
    pub preemptible: bool,
    pub priority: i64,
    /// When it was first enqueued, in milliseconds of the caller's clock.
    pub enqueued_at_ms: i64,
    /// When it was admitted, in milliseconds of the caller's clock.
    pub admitted_at_ms: i64,
    /// How often it was preempted before.
    pub preemptions: u32,
}

/// An admitted job, with its request in the tree's terms.
#[derive(Debug)]
pub(crate) struct Counted {
    pub job: AdmittedJob,
    pub request: Request,
}

/// A limit that a request would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Short {
    pub rule: Rule,
    pub node: NodeId,
    pub r: usize,
    pub asked: i64,
    /// What the job would add there: less than it requests if part of a min is not lent.
    pub need: i64,
}

#[derive(Clone, Debug)]
pub struct Ledger {
    tree: Arc<QuotaTree>,
    jobs: BTreeMap<JobId, Arc<Counted>>,
    /// Jobs that may be preempted, by leaf, lowest priority first.
    preemptible: BTreeMap<NodeId, BTreeMap<(i64, JobId), Arc<Counted>>>,
    /// By node and resource.
    used: Vec<i64>,
    held: Vec<i64>,
    firm: Vec<i64>,
    state: State,
    /// The last one that was new, and by node the one in which its use last changed.
    latest: State,
    changed: Vec<State>,
}

/// Tells states of the ledger apart, and is no part of them.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct State(u64);

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("_")
    }
}

impl Ledger {
    pub fn new(tree: Arc<QuotaTree>) -> Self {
        let cells = tree.len() * tree.resources().len();
        let changed = vec![State::default(); tree.len()];
        let mut ledger = Self {
            tree,
            jobs: BTreeMap::new(),
            preemptible: BTreeMap::new(),
            used: vec![0; cells],
            held: vec![0; cells],
            firm: vec![0; cells],
            state: State::default(),
            latest: State::default(),
            changed,
        };
        ledger.hold_kept();
        ledger
    }

    pub fn tree(&self) -> &Arc<QuotaTree> {
        &self.tree
    }

    /// It differs after each change of use.
    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Whether use below the node may differ from that in this earlier state.
    pub(crate) fn has_changed(&self, node: NodeId, since: State) -> bool {
        self.changed[node.index()] > since
    }

    /// All changes since this state were undone.
    pub(crate) fn restored(&mut self, state: State) {
        self.state = state;
    }

    pub fn job(&self, id: &JobId) -> Option<&AdmittedJob> {
        self.jobs.get(id).map(|counted| &counted.job)
    }

    /// Admitted jobs by id.
    pub fn jobs(&self) -> impl Iterator<Item = &AdmittedJob> {
        self.jobs.values().map(|counted| &counted.job)
    }

    /// Counts a job, whether or not it fits (see [`check`](Self::check)): after a restart the ledger is rebuilt
    /// from running jobs. Returns false and changes nothing if the job is already counted.
    pub fn admit(&mut self, job: AdmittedJob) -> bool {
        if self.jobs.contains_key(&job.id) {
            return false;
        }
        let request = self.tree.request(&job.request);
        self.change(job.leaf, &request, job.preemptible, 1);
        let counted = Arc::new(Counted { job, request });
        let job = &counted.job;
        if job.preemptible {
            let of_leaf = self.preemptible.entry(job.leaf).or_default();
            of_leaf.insert((job.priority, job.id.clone()), Arc::clone(&counted));
        }
        self.jobs.insert(job.id.clone(), counted);
        true
    }

    /// As [`admit`](Self::admit), for a job that only a search supposes to run: it cannot be preempted.
    pub(crate) fn suppose(&mut self, job: AdmittedJob) -> bool {
        let (leaf, key) = (job.leaf, (job.priority, job.id.clone()));
        let fresh = self.admit(job);
        if fresh && let Some(jobs) = self.preemptible.get_mut(&leaf) {
            jobs.remove(&key);
            if jobs.is_empty() {
                self.preemptible.remove(&leaf);
            }
        }
        fresh
    }

    /// Releases the quota of the job; `None` if it has none.
    pub fn release(&mut self, id: &JobId) -> Option<AdmittedJob> {
        let counted = self.jobs.remove(id)?;
        let job = &counted.job;
        self.change(job.leaf, &counted.request, job.preemptible, -1);
        if let Some(jobs) = self.preemptible.get_mut(&job.leaf) {
            jobs.remove(&(job.priority, job.id.clone()));
            if jobs.is_empty() {
                self.preemptible.remove(&job.leaf);
            }
        }
        Some(Arc::try_unwrap(counted).map_or_else(|shared| shared.job.clone(), |counted| counted.job))
    }

    /// Whether a job may be admitted now.
    ///
    /// # Errors
    /// The first limit it would exceed, from the leaf to the root.
    pub fn check(&self, leaf: NodeId, request: &Resources, preemptible: bool) -> Result<(), QuotaRefusal> {
        self.check_request(leaf, &self.tree.request(request), preemptible)
    }

    pub(crate) fn check_request(
        &self,
        leaf: NodeId,
        request: &Request,
        preemptible: bool,
    ) -> Result<(), QuotaRefusal> {
        self.first_short(leaf, request, preemptible, |_| 0)
            .map_or(Ok(()), |short| Err(self.verdict(leaf, &short)))
    }

    /// The first limit that the request would exceed, from the leaf to the root, if `extra` is used under each
    /// limit (see [`bound`](Self::bound)) in addition.
    pub(crate) fn first_short(
        &self,
        leaf: NodeId,
        request: &Request,
        preemptible: bool,
        extra: impl Fn(usize) -> i64,
    ) -> Option<Short> {
        let keeps = self.tree.keeps_back();
        let mut added: Vec<i64> = Vec::new();
        if keeps {
            added.extend(request.amounts.iter().map(|(_, amount)| *amount));
        }
        for node in self.tree.path_to_root(leaf) {
            for (i, (r, asked)) in request.amounts.iter().enumerate() {
                let cell = self.tree.cell(node, *r);
                let need = if keeps { added[i] } else { *asked };
                let held = self.held[cell].saturating_add(extra(cell));
                if held.saturating_add(need) > self.tree.max_at(node, *r) {
                    return Some(Short { rule: Rule::Max, node, r: *r, asked: *asked, need });
                }
                let firm_room = || self.firm_room_at(node, *r).saturating_sub(extra(self.firm_bound(cell)));
                if !preemptible && *asked > firm_room() {
                    return Some(Short { rule: Rule::Min, node, r: *r, asked: *asked, need: *asked });
                }
                if keeps {
                    let kept = self.tree.kept_at(node, *r);
                    added[i] = self.held[cell].saturating_add(need).max(kept) - self.held[cell].max(kept);
                }
            }
        }
        None
    }

    /// Resources of the request that do not fit under the node's max; `known` is one of them.
    pub(crate) fn short_at(&self, node: NodeId, request: &Request, known: usize) -> Vec<usize> {
        let amounts = request.amounts.iter();
        amounts.filter(|(r, asked)| *r == known || *asked > self.room_at(node, *r)).map(|(r, _)| *r).collect()
    }

    /// A limit as a verdict, with its numbers.
    pub(crate) fn verdict(&self, leaf: NodeId, short: &Short) -> QuotaRefusal {
        let cell = self.tree.cell(short.node, short.r);
        let (limit, used) = match short.rule {
            Rule::Max => (self.tree.max_at(short.node, short.r), self.held[cell]),
            Rule::Min => (self.guaranteed_at(short.node, short.r), self.firm[cell]),
        };
        QuotaRefusal::of(Shortfall {
            rule: short.rule,
            resource: self.tree.resources()[short.r].clone(),
            path: self.tree.node(short.node).path.clone(),
            in_parent: short.node != leaf,
            request: short.asked,
            limit,
            used,
            unqueued: 0,
        })
    }

    /// Limits are numbered: first each cell's max, then each cell's min for jobs that may not be preempted.
    pub(crate) fn bound(&self, short: &Short) -> usize {
        let cell = self.tree.cell(short.node, short.r);
        if short.rule == Rule::Max { cell } else { self.firm_bound(cell) }
    }

    /// The limit that a cell's min is for jobs that may not be preempted.
    pub(crate) fn firm_bound(&self, cell: usize) -> usize {
        self.used.len() + cell
    }

    /// What is free under a limit.
    pub(crate) fn room_under(&self, bound: usize) -> i64 {
        let (node, r) = (self.node_of(bound), bound % self.used.len() % self.tree.resources().len());
        if bound < self.used.len() { self.room_at(node, r) } else { self.firm_room_at(node, r) }
    }

    pub(crate) fn node_of(&self, bound: usize) -> NodeId {
        // Ids are dense.
        NodeId::at((bound % self.used.len()) / self.tree.resources().len())
    }

    /// The request exceeds the limit even if nothing else is used.
    pub(crate) fn is_beyond(&self, bound: usize, request: &Request) -> bool {
        let cell = bound % self.used.len();
        let asked = request.amount(cell % self.tree.resources().len());
        let node = self.node_of(bound);
        let r = cell % self.tree.resources().len();
        asked > if bound < self.used.len() { self.tree.max_at(node, r) } else { self.guaranteed_at(node, r) }
    }

    /// Some limit of its path is below the job's request: as the tree is, the job never starts, whichever limit
    /// stops it first today.
    pub(crate) fn is_hopeless(&self, leaf: NodeId, request: &Request, preemptible: bool) -> bool {
        self.tree.path_to_root(leaf).any(|node| {
            // Above a node that keeps back part of its min, a job may add less than it requests.
            let counts = !self.tree.keeps_back() || node == leaf;
            let beyond = |r: usize| {
                let cell = self.tree.cell(node, r);
                self.is_beyond(cell, request)
                    || (!preemptible && self.is_beyond(self.firm_bound(cell), request))
            };
            counts && request.amounts.iter().any(|(r, _)| beyond(*r))
        })
    }

    /// The first limit that the request exceeds even if nothing else is used.
    pub(crate) fn first_beyond(&self, leaf: NodeId, request: &Request, preemptible: bool) -> Option<Short> {
        if !self.is_hopeless(leaf, request, preemptible) {
            return None;
        }
        self.tree.path_to_root(leaf).find_map(|node| {
            request.amounts.iter().find_map(|(r, asked)| {
                let (asked, r) = (*asked, *r);
                let short = |rule| Short { rule, node, r, asked, need: asked };
                let beyond_min = !preemptible && asked > self.guaranteed_at(node, r);
                let beyond_max = asked > self.tree.max_at(node, r);
                beyond_max.then(|| short(Rule::Max)).or_else(|| beyond_min.then(|| short(Rule::Min)))
            })
        })
    }

    /// All limits that apply to a job of the leaf.
    pub(crate) fn bounds_of(&self, leaf: NodeId, request: &Request) -> Vec<usize> {
        let cells = self.tree.path_to_root(leaf).flat_map(|node| {
            request.amounts.iter().map(move |(r, _)| self.tree.cell(node, *r)).collect::<Vec<_>>()
        });
        cells.flat_map(|cell| [cell, self.firm_bound(cell)]).collect()
    }

    /// Jobs of a leaf that may be preempted, lowest priority first.
    pub(crate) fn preemptible_in(&self, leaf: NodeId) -> impl Iterator<Item = &Arc<Counted>> {
        self.preemptible.get(&leaf).into_iter().flat_map(BTreeMap::values)
    }

    /// The first of them, as long as their priority is one that is asked for.
    pub(crate) fn preemptible_while<F: Fn(i64) -> bool>(
        &self,
        leaf: NodeId,
        asked: F,
    ) -> impl Iterator<Item = &AdmittedJob> + use<'_, F> {
        let jobs = self.preemptible.get(&leaf).into_iter().flat_map(BTreeMap::values);
        jobs.map(|counted| &counted.job).take_while(move |job| asked(job.priority))
    }

    pub(crate) fn lowest_priority_in(&self, leaf: NodeId) -> Option<i64> {
        self.preemptible.get(&leaf)?.first_key_value().map(|((priority, _), _)| *priority)
    }

    /// The use of admitted jobs below the node, for every resource of the tree; the number of jobs is
    /// `kube-queue/max-jobs`.
    pub fn used(&self, node: NodeId) -> Resources {
        let names = self.tree.resources().iter().enumerate();
        names.map(|(r, name)| (name.clone(), self.used_at(node, r))).collect()
    }

    /// Number of admitted jobs below the node.
    pub fn job_count(&self, node: NodeId) -> i64 {
        self.used_at(node, JOBS)
    }

    /// With this request, every node of the path below the root stays inside its min, for the resources requested.
    /// The root is left out, because it borrows from nobody.
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

    /// The job is inside min where the other one is not: on its whole path, or up to where their paths meet. In one leaf
    /// the other one would have to ask for more than the min.
    pub(crate) fn goes_before(&self, job: (NodeId, &Request), other: (NodeId, &Request)) -> bool {
        let (leaf, request) = job;
        if leaf == other.0 {
            let beyond = |(r, asked): &(usize, i64)| *r != JOBS && *asked > self.tree.min_at(leaf, *r);
            return self.node_inside_min(leaf, request) && other.1.amounts.iter().any(beyond);
        }
        let side_inside = |(leaf, request): (NodeId, &Request), beside: NodeId| {
            let mut side = self.tree.path_to_root(leaf).take_while(|node| !self.tree.is_below(beside, *node));
            side.all(|node| self.node_inside_min(node, request))
        };
        side_inside(job, other.0)
            && (!side_inside(other, leaf)
                || (self.inside_min(leaf, request) && !self.inside_min(other.0, other.1)))
    }

    pub(crate) fn used_at(&self, node: NodeId, r: usize) -> i64 {
        self.used[self.tree.cell(node, r)]
    }

    /// What is free at the node under its max.
    pub(crate) fn room_at(&self, node: NodeId, r: usize) -> i64 {
        self.tree.max_at(node, r).saturating_sub(self.held[self.tree.cell(node, r)])
    }

    /// What is free for jobs that may not be preempted, of the tree's `r`th resource.
    pub fn firm_room_at(&self, node: NodeId, r: usize) -> i64 {
        self.guaranteed_at(node, r).saturating_sub(self.firm[self.tree.cell(node, r)])
    }

    /// Others that may not be preempted hold the min that the job needs. Nobody else can take or leave it.
    pub(crate) fn lacks_min(&self, leaf: NodeId, request: &Request, preemptible: bool) -> bool {
        let held =
            |node: NodeId| request.amounts.iter().any(|(r, asked)| *asked > self.firm_room_at(node, *r));
        !preemptible && self.tree.path_to_root(leaf).any(held)
    }

    /// The root guarantees its whole capacity: it borrows from nobody. There is no min for the number of jobs.
    fn guaranteed_at(&self, node: NodeId, r: usize) -> i64 {
        if r == JOBS {
            return i64::MAX;
        }
        if node == NodeId::ROOT { self.tree.max_at(node, r) } else { self.tree.min_at(node, r) }
    }

    /// `sign` is 1 to add and -1 to release.
    fn change(&mut self, leaf: NodeId, request: &Request, preemptible: bool, sign: i64) {
        self.latest.0 += 1;
        self.state = self.latest;
        let tree = Arc::clone(&self.tree);
        for node in tree.path_to_root(leaf) {
            self.changed[node.index()] = self.latest;
        }
        for (r, amount) in &request.amounts {
            let mut delta = sign * amount;
            for node in tree.path_to_root(leaf) {
                let cell = tree.cell(node, *r);
                self.used[cell] = self.used[cell].saturating_add(sign * amount);
                if !preemptible {
                    self.firm[cell] = self.firm[cell].saturating_add(sign * amount);
                }
                let kept = tree.kept_at(node, *r);
                let before = self.held[cell];
                self.held[cell] = before.saturating_add(delta);
                delta = self.held[cell].max(kept) - before.max(kept);
            }
        }
    }

    /// What counts as used without any job: parts of min that are never lent.
    fn hold_kept(&mut self) {
        let tree = Arc::clone(&self.tree);
        for node in tree.ids().rev() {
            let Some(parent) = tree.node(node).parent else { continue };
            for r in 0..tree.resources().len() {
                let counted = self.held[tree.cell(node, r)].max(tree.kept_at(node, r));
                let above = &mut self.held[tree.cell(parent, r)];
                *above = above.saturating_add(counted);
            }
        }
    }
}
