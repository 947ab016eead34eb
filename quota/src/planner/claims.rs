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

use std::collections::{BTreeMap, BTreeSet};

use fleet_resources::Resources;

use super::Planner;
use super::holds::{Claiming, Visitor};
use crate::ledger::JobId;
use crate::places::{ClusterName, Places};
use crate::plan::{Claim, Decision, Outcome, Plan, PlanLimits};
use crate::queues::{OrderKey, Stop, WaitingJob};
use crate::tree::{JOBS, NodeId, QuotaTree};

/// Guarded jobs of each leaf.
const GUARDED: usize = 2;
/// Most jobs of a leaf considered to find those.
const LOOKED_AT: usize = 64;
/// Least time from a claim that could not be made to the next try.
const RETRY_MS: i64 = 10_000;
/// Longest time between two computations of a claim's start.
const RECOMPUTE_MS: i64 = 60_000;

/// A guarded job.
#[derive(Clone, Debug)]
struct Watch {
    job: OrderKey,
    /// Starts below this node pass the job; the root: all starts.
    below: NodeId,
    /// The number of starts there when the job could not start.
    seen: u64,
    passed_since_ms: Option<i64>,
}

#[derive(Clone, Debug)]
pub(super) struct Watches {
    /// By node: number of starts below it.
    started: Vec<u64>,
    /// By node, leaves only; in the order of the leaf.
    heads: Vec<Vec<Watch>>,
    due: BTreeSet<(i64, NodeId)>,
    /// How many claims of each waiting job were given up. Another claim needs a start in sight and waits twice as
    /// long each time, even if other jobs were first meanwhile or the tree was edited.
    given_up: BTreeMap<JobId, u32>,
    /// Shapes that no cluster could hold even if it were empty.
    nowhere: BTreeSet<u64>,
    somewhere: BTreeSet<u64>,
}

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

impl Watches {
    pub fn new(nodes: usize) -> Self {
        Self {
            started: vec![0; nodes],
            heads: vec![Vec::new(); nodes],
            due: BTreeSet::new(),
            given_up: BTreeMap::new(),
            nowhere: BTreeSet::new(),
            somewhere: BTreeSet::new(),
        }
    }

    /// `count` is 1 for a job of the leaf that has started, -1 for a start that was taken back. Later jobs of its
    /// own leaf are not passed by it.
    pub fn started(&mut self, tree: &QuotaTree, leaf: NodeId, job: &OrderKey, count: i64) {
        for node in tree.path_to_root(leaf) {
            let started = &mut self.started[node.index()];
            *started = started.saturating_add_signed(count);
        }
        for watch in self.heads[leaf.index()].iter_mut().filter(|watch| watch.job > *job) {
            watch.seen = watch.seen.saturating_add_signed(count);
        }
    }

    pub fn next_due_ms(&self) -> Option<i64> {
        self.due.first().map(|(due_ms, _)| *due_ms)
    }

    /// Since when a job has been passed.
    pub fn passed_since_ms(&self, leaf: NodeId, job: &JobId) -> Option<i64> {
        let watches = self.heads.get(leaf.index())?;
        watches.iter().find(|watch| watch.job.id == *job)?.passed_since_ms
    }

    /// The leaf has no claim any more: consider its jobs in the next plan.
    pub fn claim_again(&mut self, leaf: NodeId) {
        self.due.insert((i64::MIN, leaf));
    }

    /// Jobs that were passed, and since when.
    pub fn passed(&self) -> impl Iterator<Item = (JobId, i64)> + '_ {
        let watches = self.heads.iter().flatten();
        watches.filter_map(|watch| Some((watch.job.id.clone(), watch.passed_since_ms?)))
    }

    /// A passed job is carried over into another tree.
    pub fn carry(&mut self, tree: &QuotaTree, job: &WaitingJob, since_ms: i64) {
        let (leaf, job) = (job.leaf, job.order_key());
        let passed_since_ms = Some(since_ms);
        let watch = Watch { job, below: NodeId::ROOT, seen: 0, passed_since_ms };
        let ripe_ms = watch.ripe_ms(tree, leaf, self.given_up_of(&watch.job.id)).unwrap_or(since_ms);
        self.heads[leaf.index()].push(watch);
        self.due.insert((ripe_ms, leaf));
    }

    pub fn given_up_of(&self, job: &JobId) -> u32 {
        self.given_up.get(job).copied().unwrap_or(0)
    }

    /// As known before the job's start was taken back, or under another tree.
    pub fn set_given_up(&mut self, job: &JobId, times: u32) {
        if times > 0 {
            self.given_up.insert(job.clone(), times);
        }
    }

    /// The job no longer waits.
    pub fn forget(&mut self, job: &JobId) {
        self.given_up.remove(job);
    }

    /// Jobs with claims that were given up, and their number.
    pub fn all_given_up(&self) -> impl Iterator<Item = (&JobId, u32)> {
        self.given_up.iter().map(|(job, times)| (job, *times))
    }

    /// A shape that no cluster could hold may fit one now; if clusters changed, also the other way round.
    pub fn places_changed(&mut self, all: bool) {
        self.nowhere.clear();
        if all {
            self.somewhere.clear();
        }
    }

    fn could_run(&mut self, job: &WaitingJob, places: &mut dyn Places) -> bool {
        if self.somewhere.contains(&job.shape) {
            return true;
        }
        if self.nowhere.contains(&job.shape) {
            return false;
        }
        let holds = !places.could_hold(job).is_empty();
        if holds {
            self.somewhere.insert(job.shape)
        } else {
            self.nowhere.insert(job.shape)
        };
        holds
    }

    /// Sets the leaf's guarded jobs, each with the node whose starts pass it.
    fn watch(&mut self, leaf: NodeId, heads: Vec<(OrderKey, NodeId)>) {
        let mut known = std::mem::take(&mut self.heads[leaf.index()]);
        for (job, below) in heads {
            let seen = self.started[below.index()];
            let at = known.iter().position(|watch| watch.job.id == job.id);
            let mut watch = match at {
                Some(at) => known.swap_remove(at),
                None => Watch { job: job.clone(), below, seen, passed_since_ms: None },
            };
            if watch.below != below {
                (watch.below, watch.seen) = (below, seen);
            }
            watch.job = job;
            self.heads[leaf.index()].push(watch);
        }
    }

    /// Records which jobs were passed since the last plan.
    fn note(&mut self, tree: &QuotaTree, now_ms: i64) {
        for (at, watches) in self.heads.iter_mut().enumerate() {
            for watch in watches {
                if watch.passed_since_ms.is_none() && self.started[watch.below.index()] > watch.seen {
                    // Ids are dense.
                    let leaf = NodeId(at as u32);
                    watch.passed_since_ms = Some(now_ms);
                    let given_up = self.given_up.get(&watch.job.id).copied().unwrap_or(0);
                    self.due.insert((watch.ripe_ms(tree, leaf, given_up).unwrap_or(now_ms), leaf));
                }
            }
        }
    }

    /// The job's claim was given up: it must be passed again, and for longer.
    fn give_up(&mut self, leaf: NodeId, job: &JobId) {
        let started = &self.started;
        for watch in self.heads[leaf.index()].iter_mut().filter(|watch| watch.job.id == *job) {
            (watch.seen, watch.passed_since_ms) = (started[watch.below.index()], None);
        }
        *self.given_up.entry(job.clone()).or_default() += 1;
    }
}

impl Watch {
    /// When the next claim is due, after this number of claims given up.
    fn ripe_ms(&self, tree: &QuotaTree, leaf: NodeId, given_up: u32) -> Option<i64> {
        let node = tree.node(leaf);
        let wait_ms = match given_up.checked_sub(1) {
            None => node.max_bypass_ms,
            Some(before) => node.max_bypass_ms.max(node.max_claim_ms).saturating_mul(1 << before.min(20)),
        };
        Some(self.passed_since_ms?.saturating_add(wait_ms))
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
        let nodes = self.ledger.tree().len();
        let leaves: Vec<NodeId> = self.touched.iter().copied().filter(|leaf| leaf.index() < nodes).collect();
        for leaf in leaves {
            let heads = self.heads_to_watch(leaf, places);
            self.watches.watch(leaf, heads);
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
            self.claim_in(leaf, now_ms, places, plan);
        }
        self.count_idle(now_ms);
    }

    /// The first guarded job of the leaf whose claim is due and has a start in sight.
    fn claim_in(&mut self, leaf: NodeId, now_ms: i64, places: &mut dyn Places, plan: &mut Plan) {
        if self.holds.claims.contains_key(&leaf) {
            return;
        }
        let tree = self.ledger.tree();
        let ripe = self.watches.heads[leaf.index()].iter().filter_map(|watch| {
            let given_up = self.watches.given_up_of(&watch.job.id);
            Some((watch.ripe_ms(tree, leaf, given_up)?, watch.job.id.clone(), given_up))
        });
        let ripe: Vec<(i64, JobId, u32)> = ripe.collect();
        let retry_ms = tree.node(leaf).max_bypass_ms.max(RETRY_MS);
        let mut next_ms: Option<i64> = None;
        for (ripe_ms, id, given_up) in ripe {
            let again_ms = match ripe_ms > now_ms {
                true => ripe_ms,
                false if self.make_claim(leaf, &id, given_up, now_ms, places, plan) => return,
                false => now_ms.saturating_add(retry_ms),
            };
            next_ms = Some(next_ms.map_or(again_ms, |known| known.min(again_ms)));
        }
        self.watches.due.extend(next_ms.map(|next_ms| (next_ms, leaf)));
    }

    /// The first jobs of the leaf that wait for something that ends.
    fn heads_to_watch(&mut self, leaf: NodeId, places: &mut dyn Places) -> Vec<(OrderKey, NodeId)> {
        let mut heads = Vec::new();
        let keys: Vec<OrderKey> = self.queues.in_line(leaf).take(LOOKED_AT).cloned().collect();
        for key in keys {
            if heads.len() == GUARDED {
                break;
            }
            if self.holds.preemption(&key.id).is_some() {
                continue;
            }
            let known = self.watches.heads[leaf.index()].iter().find(|watch| watch.job.id == key.id);
            let known_below = known.map(|watch| watch.below);
            let Some(class) = self.queues.class_of(&key.id).and_then(|id| self.queues.class(id)) else {
                continue;
            };
            if self.ledger.is_hopeless(leaf, &class.request, class.key.preemptible) {
                continue;
            }
            let below = match self.stop_of(class) {
                Stop::Quota { bound, .. } => Some(self.ledger.node_of(bound)),
                Stop::Place | Stop::Kept(_) => Some(NodeId::ROOT),
                Stop::None => known_below,
            };
            let Some(below) = below else { continue };
            let Some(job) = self.queues.get(&key.id) else { continue };
            // A job that backs off may fit nowhere only for as long as it does.
            if known_below.is_some() || self.watches.could_run(job, places) {
                heads.push((key, below));
            }
        }
        heads
    }

    /// Reserves capacity for the job in the cluster where it can start soonest.
    fn make_claim(
        &mut self,
        leaf: NodeId,
        id: &JobId,
        given_up: u32,
        now_ms: i64,
        places: &mut dyn Places,
        plan: &mut Plan,
    ) -> bool {
        let Some(job) = self.queues.get(id).cloned() else { return false };
        let request = self.ledger.tree().request(&job.request);
        let by_quota = self.quota_start(&job, now_ms, places);
        let mut best: Option<((bool, Start), Claiming)> = None;
        for cluster in places.could_hold(&job) {
            let visitor = Visitor::of(&job, &request, now_ms, &self.holds);
            let claimed = self.holds.is_claimed(&self.ledger, &visitor, &cluster);
            let (by_places, waits_for) = places_start(&job, &cluster, now_ms, places);
            let start = by_places.max(by_quota);
            if start == Start::Unforeseen || (given_up > 0 && start == Start::Unknown) {
                continue;
            }
            let max_ms = self.ledger.tree().node(leaf).max_claim_ms;
            let until_ms = start.at_ms().unwrap_or(now_ms).saturating_add(max_ms);
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
        let outcome = Outcome::Claim(self.claim_of(&claim));
        self.holds.claims.insert(leaf, claim);
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
    pub(super) fn end_claims(&mut self, now_ms: i64, places: &mut dyn Places, plan: &mut Plan) {
        let due = self.holds.claims.values().filter(|claim| claim.recompute_ms <= now_ms);
        let due: Vec<(NodeId, JobId, ClusterName)> =
            due.map(|claim| (claim.leaf, claim.job.clone(), claim.cluster.clone())).collect();
        for (leaf, id, cluster) in due {
            let Some(job) = self.queues.get(&id).cloned() else { continue };
            let by_quota = self.quota_start(&job, now_ms, places);
            let (by_places, waits_for) = places_start(&job, &cluster, now_ms, places);
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
            self.drop_holds(&id);
            self.queues.set_running(&id);
            self.look_at(leaf);
            self.preemptors.insert(leaf);
            let outcome = given_up.map(Outcome::GiveUp);
            plan.decisions.extend(outcome.map(|outcome| Decision { job: id, leaf, outcome }));
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

    /// Clusters have changed: a claim in a cluster that can no longer hold its job ends, and is due at once
    /// elsewhere.
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

/// When the gang will fit in the cluster, by the known ends of the jobs there, and the jobs whose places that
/// takes; all jobs if that cannot be known.
fn places_start(
    job: &WaitingJob,
    cluster: &ClusterName,
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
    if !places.fits_without(&[job], cluster, &gone) {
        return (Start::Unforeseen, running);
    }
    // The smallest number of first ends after which it fits: more ends never make it worse.
    let (mut low, mut high) = (0, gone.len());
    while low < high {
        let middle = low + (high - low) / 2;
        if places.fits_without(&[job], cluster, &gone[..middle]) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
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
