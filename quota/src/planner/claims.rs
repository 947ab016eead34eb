//! Claims: a leaf's first job that others have passed for too long.
//!
//! It is passed when it cannot start and, after that, someone started who took
//! of what it waits for: quota below the node that stopped it, or places.

use std::collections::BTreeSet;

use super::Planner;
use super::holds::{Claiming, Visitor};
use crate::ledger::JobId;
use crate::places::{ClusterName, Places};
use crate::plan::{Claim, Decision, Outcome, Plan, PlanLimits};
use crate::queues::{Stop, WaitingJob};
use crate::tree::{NodeId, QuotaTree};

/// The first job of a leaf that cannot start.
#[derive(Clone, Debug)]
struct Watch {
    job: JobId,
    /// Whose starts pass it: those below a node, or all.
    below: NodeId,
    /// How many had started there when it could not.
    seen: u64,
    passed_since_ms: Option<i64>,
}

#[derive(Clone, Debug)]
pub(super) struct Watches {
    /// By node: jobs that have started below it.
    started: Vec<u64>,
    /// By node; of leaves only.
    heads: Vec<Option<Watch>>,
    due: BTreeSet<(i64, NodeId)>,
}

impl Watches {
    pub fn new(nodes: usize) -> Self {
        Self { started: vec![0; nodes], heads: vec![None; nodes], due: BTreeSet::new() }
    }

    /// `count` jobs started below the leaf; fewer where starts were taken back.
    pub fn started(&mut self, tree: &QuotaTree, leaf: NodeId, count: i64) {
        for node in tree.path_to_root(leaf) {
            let started = &mut self.started[node.index()];
            *started = started.saturating_add_signed(count);
        }
    }

    pub fn next_due_ms(&self) -> Option<i64> {
        self.due.first().map(|(due_ms, _)| *due_ms)
    }

    /// Since when a job has been passed.
    pub fn passed_since_ms(&self, leaf: NodeId, job: &JobId) -> Option<i64> {
        self.heads.get(leaf.index())?.as_ref().filter(|watch| watch.job == *job)?.passed_since_ms
    }

    /// The leaf's head lost its claim: it is looked at in the next plan.
    pub fn claim_again(&mut self, leaf: NodeId) {
        self.due.insert((i64::MIN, leaf));
    }

    /// Who has been passed, and since when.
    pub fn passed(&self) -> impl Iterator<Item = (JobId, i64)> + '_ {
        self.heads.iter().flatten().filter_map(|watch| Some((watch.job.clone(), watch.passed_since_ms?)))
    }

    /// A job that has been passed is known to another tree.
    pub fn carry(&mut self, tree: &QuotaTree, leaf: NodeId, job: JobId, since_ms: i64) {
        let watch = Watch { job, below: NodeId::ROOT, seen: 0, passed_since_ms: Some(since_ms) };
        self.heads[leaf.index()] = Some(watch);
        self.due.insert((since_ms.saturating_add(tree.node(leaf).max_bypass_ms), leaf));
    }

    /// The leaf's head is this job, stopped by what starts below a node.
    fn watch(&mut self, leaf: NodeId, head: Option<(JobId, NodeId)>) {
        let slot = &mut self.heads[leaf.index()];
        let Some((job, below)) = head else {
            *slot = None;
            return;
        };
        let seen = self.started[below.index()];
        match slot {
            Some(watch) if watch.job == job && watch.below == below => {}
            Some(watch) if watch.job == job => (watch.below, watch.seen) = (below, seen),
            _ => *slot = Some(Watch { job, below, seen, passed_since_ms: None }),
        }
    }

    /// Notes who has been passed since the last plan.
    fn note(&mut self, tree: &QuotaTree, now_ms: i64) {
        for (at, slot) in self.heads.iter_mut().enumerate() {
            let Some(watch) = slot else { continue };
            if watch.passed_since_ms.is_none() && self.started[watch.below.index()] > watch.seen {
                // Ids are dense.
                let leaf = NodeId(at as u32);
                watch.passed_since_ms = Some(now_ms);
                self.due.insert((now_ms.saturating_add(tree.node(leaf).max_bypass_ms), leaf));
            }
        }
    }
}

impl Planner {
    pub(super) fn claim(
        &mut self,
        now_ms: i64,
        limits: PlanLimits,
        places: &mut dyn Places,
        plan: &mut Plan,
    ) {
        self.watches.note(self.ledger.tree(), now_ms);
        let leaves: Vec<NodeId> = self.touched.iter().copied().collect();
        for leaf in leaves.into_iter().filter(|leaf| leaf.index() < self.ledger.tree().len()) {
            let head = self.head_to_watch(leaf);
            self.watches.watch(leaf, head);
        }
        self.watches.note(self.ledger.tree(), now_ms);
        let mut looked_at = 0;
        while let Some((due_ms, leaf)) =
            self.watches.due.first().copied().filter(|(due_ms, _)| *due_ms <= now_ms)
        {
            if looked_at >= limits.probes {
                plan.more = true;
                break;
            }
            looked_at += 1;
            self.watches.due.remove(&(due_ms, leaf));
            let Some(watch) = &self.watches.heads[leaf.index()] else { continue };
            let bypass_ms = self.ledger.tree().node(leaf).max_bypass_ms;
            let job = watch.job.clone();
            let Some(since_ms) = watch.passed_since_ms else { continue };
            let ripe_ms = since_ms.saturating_add(bypass_ms);
            if ripe_ms > now_ms {
                self.watches.due.insert((ripe_ms, leaf));
            } else if !self.holds.claims.contains_key(&leaf)
                && !self.make_claim(leaf, &job, now_ms, places, plan)
            {
                // No cluster could hold it; asked again when one may.
                self.watches.due.insert((now_ms.saturating_add(bypass_ms.max(1)), leaf));
            }
        }
    }

    /// The first job of the leaf, if something stops it that ends.
    fn head_to_watch(&self, leaf: NodeId) -> Option<(JobId, NodeId)> {
        let id = &self.queues.head(leaf)?.id;
        if self.holds.taking(id).is_some() {
            return None;
        }
        let class = self.queues.class(self.queues.class_of(id)?)?;
        if self.ledger.is_hopeless(leaf, &class.request, class.key.preemptible) {
            return None;
        }
        match self.stop_of(class) {
            Stop::Quota { bound, .. } => Some((id.clone(), self.ledger.node_of(bound))),
            Stop::Place | Stop::Kept(_) => Some((id.clone(), NodeId::ROOT)),
            Stop::None => {
                let known = self.watches.heads[leaf.index()].as_ref().filter(|watch| watch.job == *id);
                known.map(|watch| (id.clone(), watch.below))
            }
        }
    }

    /// Keeps room for the job on the cluster where it can start soonest.
    fn make_claim(
        &mut self,
        leaf: NodeId,
        id: &JobId,
        now_ms: i64,
        places: &mut dyn Places,
        plan: &mut Plan,
    ) -> bool {
        let Some(job) = self.queues.get(id).cloned() else { return true };
        let request = self.ledger.tree().request(&job.request);
        let by_quota = self.quota_start_ms(&job, now_ms, places);
        let mut best: Option<((bool, i64), Claiming)> = None;
        for cluster in places.could_hold(&job) {
            let visitor = Visitor::of(&job, &request, now_ms, &self.holds);
            let claimed = self.holds.is_claimed(&self.ledger, &visitor, &cluster);
            let (by_places, waits_for) = places_start_ms(&job, &cluster, now_ms, places);
            let start_ms = by_places.zip(by_quota).map(|(a, b)| a.max(b));
            let rank = (claimed, start_ms.unwrap_or(i64::MAX));
            // Of equals the first: clusters come best first.
            if best.as_ref().is_none_or(|(known, _)| rank < *known) {
                let claim = Claiming {
                    job: id.clone(),
                    leaf,
                    request: request.clone(),
                    preemptible: job.preemptible,
                    cluster,
                    since_ms: now_ms,
                    start_ms,
                    waits_for,
                    tried_at: None,
                };
                best = Some((rank, claim));
            }
        }
        let Some((_, claim)) = best else { return false };
        let outcome = Outcome::Claim(self.claim_of(&claim));
        self.holds.claims.insert(leaf, claim);
        self.queues.set_aside(id, None);
        self.look_at(leaf);
        self.holds_grew();
        plan.decisions.push(Decision { job: id.clone(), leaf, outcome });
        true
    }

    pub(super) fn claim_of(&self, claim: &Claiming) -> Claim {
        Claim {
            cluster: claim.cluster.clone(),
            path: self.ledger.tree().node(claim.leaf).path.clone(),
            since_ms: claim.since_ms,
            passed_since_ms: self.passed_since_ms(claim.leaf, &claim.job).unwrap_or(claim.since_ms),
            start_ms: claim.start_ms,
        }
    }

    /// Clusters have changed: a claim on one that cannot hold its job any more
    /// ends, and is due at once elsewhere.
    pub(super) fn drop_lost_claims(&mut self, places: &mut dyn Places) {
        let claims: Vec<(NodeId, JobId, ClusterName)> =
            self.holds.claims.values().map(|c| (c.leaf, c.job.clone(), c.cluster.clone())).collect();
        for (leaf, id, cluster) in claims {
            let holds = self.queues.get(&id).is_some_and(|job| places.could_hold(job).contains(&cluster));
            if !holds {
                self.drop_holds(&id);
                self.queues.set_running(&id);
                self.look_at(leaf);
            }
        }
    }

    /// When the job's path has room by the declared run times of those that use
    /// it; now, where it has room.
    fn quota_start_ms(&mut self, job: &WaitingJob, now_ms: i64, places: &dyn Places) -> Option<i64> {
        let request = self.ledger.tree().request(&job.request);
        let fits =
            |planner: &Self| planner.ledger.first_short(job.leaf, &request, job.preemptible, |_| 0).is_none();
        if fits(self) {
            return Some(now_ms);
        }
        let mut ends: Vec<(i64, JobId)> = self
            .ledger
            .jobs()
            .filter_map(|running| Some((places.ends_at_ms(&running.id)?, running.id.clone())))
            .collect();
        ends.sort_unstable();
        let mut released = Vec::new();
        let mut start_ms = None;
        for (end_ms, id) in ends {
            released.extend(self.ledger.release(&id));
            if fits(self) {
                start_ms = Some(end_ms.max(now_ms));
                break;
            }
        }
        for running in released {
            self.ledger.admit(running);
        }
        start_ms
    }
}

/// When the gang fits in the cluster by the declared run times of those there,
/// and whose places that takes; all of them where that cannot be known.
fn places_start_ms(
    job: &WaitingJob,
    cluster: &ClusterName,
    now_ms: i64,
    places: &mut dyn Places,
) -> (Option<i64>, Vec<JobId>) {
    let running = places.running_in(cluster);
    let mut ends: Vec<(i64, JobId)> =
        running.iter().filter_map(|id| Some((places.ends_at_ms(id)?, id.clone()))).collect();
    ends.sort_unstable();
    let gone: Vec<JobId> = ends.iter().map(|(_, id)| id.clone()).collect();
    if !places.fits_without(&[job], cluster, &gone) {
        return (None, running);
    }
    // The fewest first ends after which it fits: more never makes it worse.
    let (mut low, mut high) = (0, gone.len());
    while low < high {
        let middle = low + (high - low) / 2;
        if places.fits_without(&[job], cluster, &gone[..middle]) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    let start_ms = if low == 0 { now_ms } else { ends[low - 1].0.max(now_ms) };
    (Some(start_ms), gone[..low].to_vec())
}
