//! Claims: capacity reserved for jobs that others have passed for too long.
//!
//! Guarded are the first job of a leaf that could run on an empty fleet, and the first behind it. Jobs that could
//! never run, or wait for something without an end in sight, are skipped. A job is *passed* when it cannot start
//! and another job starts that uses what it waits for: quota below the node that stopped it, or places. Earlier
//! jobs of its own leaf do not pass it.
//!
//! A claim needs a start in sight, computed from the ends of the jobs in its way, declared or learnt from similar
//! jobs. If some end is not known, the claim is given up after the leaf's `fleet.dev/max-claim`. If a job in its
//! way has outrun everything learnt, there is no claim.

use std::collections::BTreeSet;

use fleet_resources::Resources;

use super::holds::{Claiming, Visitor};
use super::state::Planner;
use super::watches::PastClaims;
use crate::names::{ClusterName, JobId};
use crate::places::Places;
use crate::plan::{Claim, Decision, Outcome, PlanLimits, QuotaPlan};
use crate::queues::{OrderKey, QueuePolicy, Stop, WaitingJob};
use crate::victims::Rights;
use fleet_quota_tree::{JOBS, NodeId};

/// Guarded jobs of each leaf.
const GUARDED: usize = 2;
/// Most jobs of a leaf considered to find those. Jobs that could never run are not counted.
const LOOKED_AT: usize = 64;
/// Most jobs found in one plan that could never run. The next plan goes on behind them.
const RULED_OUT: usize = 256;
/// Most shapes in one plan about which clusters are asked again after they changed.
const ASKED_AGAIN: usize = 128;
/// Least time from a claim that could not be made to the next try.
const RETRY_MS: i64 = 10_000;
/// Longest time between two computations of a claim's start.
const RECOMPUTE_MS: i64 = 60_000;

/// When a job can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Start {
    At(i64),
    /// The end of some job in its way is not known.
    Unknown,
    /// Some job in its way has outrun everything learnt.
    Unforeseen,
}

impl Start {
    fn at_ms(self) -> Option<i64> {
        match self {
            Self::At(at_ms) => Some(at_ms),
            Self::Unknown | Self::Unforeseen => None,
        }
    }
}

/// What a job means for the guarded jobs of its leaf.
enum Head {
    /// It is guarded, against starts below this node.
    Waits(NodeId),
    /// It will start, or waits for something without an end in sight.
    Other,
    /// It could not run even on an empty fleet.
    Never,
}

impl Planner {
    pub(super) fn claim(
        &mut self,
        now_ms: i64,
        limits: PlanLimits,
        places: &mut dyn Places,
        plan: &mut QuotaPlan,
    ) {
        self.watches.note(self.ledger.tree(), now_ms);
        let mut left = RULED_OUT;
        let nodes = self.ledger.tree().len();
        let mut leaves = std::mem::take(&mut self.watches.unfinished);
        leaves.extend(self.touched.iter().copied().filter(|leaf| leaf.index() < nodes));
        for leaf in leaves {
            let before = left;
            let heads = self.heads_to_watch(leaf, &mut left, places);
            if left < before
                && self.queues.line_of(leaf).is_some_and(|line| line.policy != QueuePolicy::Priority)
            {
                // These no longer block the others.
                self.dirty.insert(leaf);
                self.preemptors.insert(leaf);
                plan.more = true;
            }
            if left == 0 {
                // Those guarded so far stay so until all are found.
                self.watches.unfinished.insert(leaf);
            } else {
                self.watches.watch(leaf, heads);
            }
        }
        plan.more |= left == 0 || self.watches.asks_left();
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
            self.claim_in(leaf, now_ms, places, plan);
        }
        self.count_idle(now_ms);
    }

    /// The first guarded job of the leaf whose claim is due and has a start in sight.
    fn claim_in(&mut self, leaf: NodeId, now_ms: i64, places: &mut dyn Places, plan: &mut QuotaPlan) {
        if self.holds.claims.contains_key(&leaf) {
            return;
        }
        let tree = self.ledger.tree();
        let ripe = self.watches.heads[leaf.index()].iter().filter_map(|watch| {
            let past = self.watches.past_of(&watch.job.id);
            Some((watch.ripe_ms(tree, leaf, past.given_up)?, watch.job.id.clone(), past))
        });
        let ripe: Vec<(i64, JobId, PastClaims)> = ripe.collect();
        let retry_ms = tree.node(leaf).max_bypass_ms.max(RETRY_MS);
        let mut next_ms: Option<i64> = None;
        for (ripe_ms, id, past) in ripe {
            let again_ms = match ripe_ms > now_ms {
                true => ripe_ms,
                false if self.make_claim(leaf, &id, past, now_ms, places, plan) => return,
                false => now_ms.saturating_add(retry_ms),
            };
            next_ms = Some(next_ms.map_or(again_ms, |known| known.min(again_ms)));
        }
        self.watches.due.extend(next_ms.map(|next_ms| (next_ms, leaf)));
    }

    /// Clusters have changed: asks again about shapes that none could hold, some in each plan.
    pub(super) fn ask_again(&mut self, places: &mut dyn Places) {
        for _ in 0..ASKED_AGAIN {
            let Some(shape) = self.watches.next_nowhere() else { return };
            let job = self.queues.one_of_shape(shape);
            if job.is_some_and(|job| places.could_hold(job).is_empty()) {
                continue;
            }
            self.watches.forget_nowhere(shape);
            for class in self.queues.classes_of_shape(shape) {
                // Those that quota rules out are found again.
                if let Some(leaf) = self.queues.set_never(class, false) {
                    self.look_at(leaf);
                }
            }
        }
    }

    /// The first jobs of the leaf that wait for something that ends. Rules out at most `left` jobs that could never
    /// run.
    fn heads_to_watch(
        &mut self,
        leaf: NodeId,
        left: &mut usize,
        places: &mut dyn Places,
    ) -> Vec<(OrderKey, NodeId)> {
        let mut heads = Vec::new();
        let mut looked_at = 0;
        let keys: Vec<OrderKey> = self.queues.possible(leaf).take(LOOKED_AT + *left).cloned().collect();
        for key in keys {
            if heads.len() == GUARDED || looked_at == LOOKED_AT || *left == 0 {
                break;
            }
            match self.look_at_head(leaf, &key, places) {
                Head::Waits(below) => heads.push((key, below)),
                Head::Other => looked_at += 1,
                Head::Never => *left -= 1,
            }
        }
        heads
    }

    fn look_at_head(&mut self, leaf: NodeId, key: &OrderKey, places: &mut dyn Places) -> Head {
        if self.holds.preemption(&key.id).is_some() {
            return Head::Other;
        }
        let known = self.watches.heads[leaf.index()].iter().find(|watch| watch.job.id == key.id);
        let known_below = known.map(|watch| watch.below);
        let Some(id) = self.queues.class_of(&key.id) else { return Head::Other };
        let Some(class) = self.queues.class(id) else { return Head::Other };
        let Some(job) = self.queues.get(&key.id) else { return Head::Other };
        if self.ledger.is_hopeless(leaf, &class.request, class.key.preemptible) {
            self.queues.set_never(id, true);
            return Head::Never;
        }
        // What it waits for is not for those who pass it.
        if self.ledger.lacks_min(leaf, &class.request, class.key.preemptible) {
            return Head::Other;
        }
        let below = match self.stop_of(class) {
            Stop::Quota { bound, .. } => Some(self.ledger.node_of(bound)),
            Stop::Place | Stop::Kept(_) => Some(NodeId::ROOT),
            Stop::None => known_below,
        };
        // A job that backs off may fit nowhere only for as long as it does.
        let pauses = self.pauses.contains(&(job.not_before_ms, key.id.clone()));
        match below {
            Some(below) if known_below.is_some() => Head::Waits(below),
            None => Head::Other,
            Some(_) if pauses && places.could_hold(job).is_empty() => Head::Other,
            Some(below) if self.watches.could_run(job, places) => Head::Waits(below),
            Some(_) => {
                self.queues.set_never(id, true);
                Head::Never
            }
        }
    }

    /// Reserves capacity for the job in the cluster where it can start soonest.
    fn make_claim(
        &mut self,
        leaf: NodeId,
        id: &JobId,
        past: PastClaims,
        now_ms: i64,
        places: &mut dyn Places,
        plan: &mut QuotaPlan,
    ) -> bool {
        let Some(job) = self.queues.get(id).cloned() else { return false };
        let request = self.ledger.tree().request(&job.request);
        let by_quota = self.quota_start(&job, now_ms, places);
        let mut best: Option<((bool, Start), Claiming)> = None;
        for cluster in places.could_hold(&job) {
            let visitor = Visitor::of(&job, &request, now_ms, &self.holds);
            let claimed = self.holds.is_claimed(&self.ledger, &visitor, &cluster);
            let (by_places, waits_for) = places_start(&job, &cluster, 0, now_ms, places);
            let start = by_places.max(by_quota);
            if start == Start::Unforeseen || (past.given_up > 0 && start == Start::Unknown) {
                continue;
            }
            let max_ms = self.ledger.tree().node(leaf).max_claim_ms;
            let mut until_ms = start.at_ms().unwrap_or(now_ms).saturating_add(max_ms);
            if start == Start::Unknown {
                until_ms = until_ms.min(past.blind_until_ms.unwrap_or(until_ms));
            }
            // It would end as it begins.
            if until_ms <= now_ms {
                continue;
            }
            // Of equals the first: the best cluster comes first.
            if best.as_ref().is_none_or(|(known, _)| (claimed, start) < *known) {
                let claim = Claiming {
                    job: id.clone(),
                    leaf,
                    request: request.clone(),
                    preemptible: job.preemptible,
                    cluster,
                    since_ms: now_ms,
                    start_ms: start.at_ms(),
                    until_ms,
                    recompute_ms: now_ms,
                    waits_for,
                    tried_at: None,
                    idle: Vec::new(),
                    idled: Vec::new(),
                    counted_ms: now_ms,
                };
                best = Some(((claimed, start), claim));
            }
        }
        let Some((_, mut claim)) = best else { return false };
        claim.recompute_next(now_ms);
        if claim.start_ms.is_none() {
            self.watches.claims_blindly(id, claim.until_ms);
        }
        let outcome = Outcome::Claim(self.claim_of(&claim));
        self.holds.claims.insert(leaf, claim);
        // Once it gives up, it is told anew why it waits.
        if let Some(class) = self.queues.class_of(id).and_then(|class| self.queues.class_mut(class)) {
            class.told = None;
        }
        self.queues.set_aside(id, None);
        self.look_at(leaf);
        self.holds_grew();
        plan.decisions.push(Decision { job: id.clone(), leaf, outcome });
        true
    }

    pub(super) fn claim_of(&self, claim: &Claiming) -> Claim {
        let names = self.ledger.tree().resources();
        Claim {
            cluster: claim.cluster.clone(),
            path: self.ledger.tree().node(claim.leaf).path.clone(),
            since_ms: claim.since_ms,
            passed_since_ms: self.passed_since_ms(claim.leaf, &claim.job).unwrap_or(claim.since_ms),
            start_ms: claim.start_ms,
            until_ms: claim.until_ms,
            idled: claim
                .idled
                .iter()
                .map(|(r, ms)| (names[*r].clone(), (ms / 1000) as i64))
                .collect::<Resources>(),
        }
    }

    /// Gives up claims whose time is over, or whose start is no longer in sight.
    pub(super) fn end_claims(&mut self, now_ms: i64, places: &mut dyn Places, plan: &mut QuotaPlan) {
        let due = self.holds.claims.values().filter(|claim| claim.recompute_ms <= now_ms);
        let due: Vec<(NodeId, JobId, ClusterName, usize)> = due
            .map(|claim| (claim.leaf, claim.job.clone(), claim.cluster.clone(), claim.waits_for.len()))
            .collect();
        for (leaf, id, cluster, near) in due {
            let Some(job) = self.queues.get(&id).cloned() else { continue };
            let by_quota = self.quota_start(&job, now_ms, places);
            let (by_places, waits_for) = places_start(&job, &cluster, near, now_ms, places);
            let start = by_places.max(by_quota);
            let Some(claim) = self.holds.claims.get_mut(&leaf) else { continue };
            if start != Start::Unforeseen && claim.until_ms > now_ms {
                (claim.start_ms, claim.waits_for) = (start.at_ms(), waits_for);
                claim.recompute_next(now_ms);
                continue;
            }
            claim.count_idle(now_ms);
            let given_up = self.holds.claims.get(&leaf).map(|claim| self.claim_of(claim));
            self.watches.give_up(leaf, &id);
            self.search_again(&id);
            let outcome = given_up.map(Outcome::GiveUp);
            plan.decisions.extend(outcome.map(|outcome| Decision { job: id, leaf, outcome }));
        }
    }

    /// A claim does not keep its job from its min: a job inside it may reclaim, with a claim or without.
    pub(super) fn let_claims_reclaim(&mut self) {
        let claims: Vec<(NodeId, JobId)> =
            self.holds.claims.values().map(|claim| (claim.leaf, claim.job.clone())).collect();
        for (leaf, id) in claims {
            let Some(job) = self.queues.get(&id) else { continue };
            let Some(claim) = self.holds.claims.get(&leaf) else { continue };
            let pauses = || self.pauses.contains(&(job.not_before_ms, id.clone()));
            let reclaims = Rights::reclaim(&self.ledger, leaf, &claim.request) && !pauses();
            if self.queues.is_aside(&id) != reclaims {
                continue;
            }
            if reclaims {
                self.queues.set_running(&id);
                self.preemptors.insert(leaf);
            } else {
                self.queues.set_aside(&id, None);
            }
            self.look_at(leaf);
        }
    }

    pub(super) fn next_recompute_ms(&self) -> Option<i64> {
        self.holds.claims.values().map(|claim| claim.recompute_ms).min()
    }

    /// What claims keep idle from now on: free capacity on their paths, up to their request.
    fn count_idle(&mut self, now_ms: i64) {
        let ledger = &self.ledger;
        for claim in self.holds.claims.values_mut() {
            claim.count_idle(now_ms);
            let asked = claim.request.amounts.iter().filter(|(r, _)| *r != JOBS);
            claim.idle = asked
                .map(|(r, amount)| {
                    let rooms = ledger.tree().path_to_root(claim.leaf).map(|node| ledger.room_at(node, *r));
                    (*r, rooms.fold(*amount, i64::min).max(0))
                })
                .collect();
        }
    }

    /// Clusters have changed: a claim in a cluster that can no longer hold its job ends, and is due at once elsewhere.
    pub(super) fn drop_lost_claims(&mut self, places: &mut dyn Places) {
        let claims: Vec<(JobId, ClusterName)> =
            self.holds.claims.values().map(|claim| (claim.job.clone(), claim.cluster.clone())).collect();
        for (id, cluster) in claims {
            if !self.queues.get(&id).is_some_and(|job| places.could_hold(job).contains(&cluster)) {
                self.search_again(&id);
            }
        }
    }

    /// When the job's path will have quota, by the known ends of the jobs that use it; now, if it has.
    fn quota_start(&mut self, job: &WaitingJob, now_ms: i64, places: &dyn Places) -> Start {
        let request = self.ledger.tree().request(&job.request);
        let fits =
            |planner: &Self| planner.ledger.first_short(job.leaf, &request, job.preemptible, |_| 0).is_none();
        if fits(self) {
            return Start::At(now_ms);
        }
        let mut ends: Vec<(Start, JobId)> = self
            .ledger
            .jobs()
            .map(|running| (end_of(&running.id, &self.ending, now_ms, places), running.id.clone()))
            .filter(|(end, _)| *end != Start::Unforeseen)
            .collect();
        ends.sort_unstable();
        let mut released = Vec::new();
        let mut start = Start::Unforeseen;
        for (end, id) in ends {
            released.extend(self.ledger.release(&id));
            if fits(self) {
                start = end;
                break;
            }
        }
        for running in released {
            self.ledger.admit(running);
        }
        start
    }
}

fn end_of(id: &JobId, ending: &BTreeSet<JobId>, now_ms: i64, places: &dyn Places) -> Start {
    if ending.contains(id) {
        return Start::At(now_ms);
    }
    match places.ends_at_ms(id) {
        Some(end_ms) => Start::At(end_ms.max(now_ms)),
        None if places.has_outrun(id) => Start::Unforeseen,
        None => Start::Unknown,
    }
}

/// The smallest number of ends, of so many, after which it fits: more ends never make it worse. It is sought near the
/// last answer, because jobs end one by one, and a question about few other jobs than the last one is cheap.
fn first_that_fits(all: usize, near: usize, mut fits: impl FnMut(usize) -> bool) -> Option<usize> {
    let (mut high, mut step) = (near.min(all), 1);
    let mut low;
    if fits(high) {
        while high > 0 && fits(high.saturating_sub(step)) {
            high = high.saturating_sub(step);
            step *= 2;
        }
        low = if high == 0 { 0 } else { high.saturating_sub(step) + 1 };
    } else {
        loop {
            if high == all {
                return None;
            }
            (low, high) = (high + 1, (high + step).min(all));
            step *= 2;
            if fits(high) {
                break;
            }
        }
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if fits(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(low)
}

/// When the gang will fit in the cluster, by the known ends of the jobs there, and the jobs whose places that
/// takes; all jobs if that cannot be known. `near`: how many these were before.
fn places_start(
    job: &WaitingJob,
    cluster: &ClusterName,
    near: usize,
    now_ms: i64,
    places: &mut dyn Places,
) -> (Start, Vec<JobId>) {
    let running = places.running_in(cluster);
    let none = BTreeSet::new();
    let mut ends: Vec<(Start, JobId)> = running
        .iter()
        .map(|id| (end_of(id, &none, now_ms, places), id.clone()))
        .filter(|(end, _)| *end != Start::Unforeseen)
        .collect();
    ends.sort_unstable();
    let gone: Vec<JobId> = ends.iter().map(|(_, id)| id.clone()).collect();
    let fits_after = |count: usize| places.fits_without(&[job], cluster, &gone[..count]);
    let Some(low) = first_that_fits(gone.len(), near, fits_after) else {
        return (Start::Unforeseen, running);
    };
    let start = if low == 0 { Start::At(now_ms) } else { ends[low - 1].0 };
    let waits_for = if start == Start::Unknown { gone } else { gone[..low].to_vec() };
    (start, waits_for)
}

impl Claiming {
    /// When to compute the start again.
    fn recompute_next(&mut self, now_ms: i64) {
        let soon_ms = now_ms.saturating_add(RECOMPUTE_MS);
        let start_ms = self.start_ms.filter(|start_ms| *start_ms > now_ms).unwrap_or(i64::MAX);
        // A moment after the start: jobs that end at that time have ended.
        self.recompute_ms =
            soon_ms.min(self.until_ms).min(start_ms.saturating_add(1)).max(now_ms.saturating_add(1));
    }

    fn count_idle(&mut self, now_ms: i64) {
        let passed_ms = now_ms.saturating_sub(self.counted_ms).max(0);
        self.counted_ms = now_ms;
        for (r, amount) in &self.idle {
            let idle_ms = i128::from(*amount) * i128::from(passed_ms);
            match self.idled.iter_mut().find(|(known, _)| known == r) {
                Some((_, sum)) => *sum += idle_ms,
                None => self.idled.push((*r, idle_ms)),
            }
        }
    }
}

#[cfg(test)]
mod tests;
