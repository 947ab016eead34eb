//! Jobs that others pass: the guarded jobs of each leaf, since when they are passed, and when a claim for them is
//! due. See [`claims`](super::claims).

use std::collections::{BTreeMap, BTreeSet};

use crate::names::JobId;
use crate::places::Places;
use crate::queues::{OrderKey, WaitingJob};
use fleet_quota_tree::{NodeId, QuotaTree};

/// A guarded job.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    pub job: OrderKey,
    /// Starts below this node pass the job; the root: all starts.
    pub below: NodeId,
    /// The number of starts there when the job could not start.
    seen: u64,
    passed_since_ms: Option<i64>,
}

/// What earlier claims of a waiting job mean for its next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PastClaims {
    /// How many were given up. Another one needs a start in sight and waits twice as long each time.
    pub given_up: u32,
    /// Until when the job may claim without a start in sight, since it first did: a claim that is lost to an edit of
    /// the tree or of a cluster gives no new time.
    pub blind_until_ms: Option<i64>,
}

#[derive(Clone, Debug)]
pub(super) struct Watches {
    /// By node: number of starts below it.
    started: Vec<u64>,
    /// By node, leaves only; in the order of the leaf.
    pub heads: Vec<Vec<Watch>>,
    pub due: BTreeSet<(i64, NodeId)>,
    /// Earlier claims of waiting jobs, even if other jobs were first meanwhile or the tree was edited.
    past: BTreeMap<JobId, PastClaims>,
    /// Leaves whose guarded jobs are found in the next plan.
    pub unfinished: BTreeSet<NodeId>,
    /// Shapes that no cluster could hold even if it were empty.
    nowhere: BTreeSet<u64>,
    /// How many of these are to be asked about again, after this one, since clusters changed.
    asks_left: usize,
    asked_last: u64,
    somewhere: BTreeSet<u64>,
}

impl Watches {
    pub fn new(nodes: usize) -> Self {
        Self {
            started: vec![0; nodes],
            heads: vec![Vec::new(); nodes],
            due: BTreeSet::new(),
            past: BTreeMap::new(),
            unfinished: BTreeSet::new(),
            nowhere: BTreeSet::new(),
            asks_left: 0,
            asked_last: 0,
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
        let ripe_ms = watch.ripe_ms(tree, leaf, self.past_of(&watch.job.id).given_up).unwrap_or(since_ms);
        self.heads[leaf.index()].push(watch);
        self.due.insert((ripe_ms, leaf));
    }

    pub fn past_of(&self, job: &JobId) -> PastClaims {
        self.past.get(job).copied().unwrap_or_default()
    }

    /// As known before the job's start was taken back, or under another tree.
    pub fn set_past(&mut self, job: &JobId, past: PastClaims) {
        if past != PastClaims::default() {
            self.past.insert(job.clone(), past);
        }
    }

    /// The job makes a claim whose start is not in sight.
    pub fn claims_blindly(&mut self, job: &JobId, until_ms: i64) {
        self.past.entry(job.clone()).or_default().blind_until_ms.get_or_insert(until_ms);
    }

    /// The job no longer waits.
    pub fn forget(&mut self, job: &JobId) {
        self.past.remove(job);
    }

    /// Jobs that had claims.
    pub fn all_past(&self) -> impl Iterator<Item = (&JobId, PastClaims)> {
        self.past.iter().map(|(job, past)| (job, *past))
    }

    /// A shape that no cluster could hold may fit one now; if clusters changed, also the other way round.
    pub fn places_changed(&mut self, all: bool) {
        self.asks_left = self.nowhere.len();
        if all {
            self.somewhere.clear();
        }
    }

    /// The next shape to ask about again. In turn, so that each is asked about however often clusters change.
    pub fn next_nowhere(&mut self) -> Option<u64> {
        self.asks_left = self.asks_left.checked_sub(1)?;
        let after = (std::ops::Bound::Excluded(self.asked_last), std::ops::Bound::Unbounded);
        let next = self.nowhere.range(after).next().or_else(|| self.nowhere.first()).copied();
        self.asked_last = next.unwrap_or(0);
        next
    }

    pub fn asks_left(&self) -> bool {
        self.asks_left > 0
    }

    /// No job of the shape is left, or a cluster could hold it now.
    pub fn forget_nowhere(&mut self, shape: u64) {
        self.nowhere.remove(&shape);
    }

    /// Whether a cluster could hold the job if it were empty.
    pub fn could_run(&mut self, job: &WaitingJob, places: &mut dyn Places) -> bool {
        if self.somewhere.contains(&job.shape) {
            return true;
        }
        if self.nowhere.contains(&job.shape) {
            return false;
        }
        let holds = !places.could_hold(job).is_empty();
        let known = if holds { &mut self.somewhere } else { &mut self.nowhere };
        known.insert(job.shape);
        holds
    }

    /// Sets the leaf's guarded jobs, each with the node whose starts pass it.
    pub fn watch(&mut self, leaf: NodeId, heads: Vec<(OrderKey, NodeId)>) {
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
    pub fn note(&mut self, tree: &QuotaTree, now_ms: i64) {
        for (at, watches) in self.heads.iter_mut().enumerate() {
            for watch in watches {
                if watch.passed_since_ms.is_none() && self.started[watch.below.index()] > watch.seen {
                    // Ids are dense.
                    let leaf = NodeId::at(at);
                    watch.passed_since_ms = Some(now_ms);
                    let given_up = self.past.get(&watch.job.id).map_or(0, |past| past.given_up);
                    self.due.insert((watch.ripe_ms(tree, leaf, given_up).unwrap_or(now_ms), leaf));
                }
            }
        }
    }

    /// The job's claim was given up: it must be passed again, and for longer.
    pub fn give_up(&mut self, leaf: NodeId, job: &JobId) {
        let started = &self.started;
        for watch in self.heads[leaf.index()].iter_mut().filter(|watch| watch.job.id == *job) {
            (watch.seen, watch.passed_since_ms) = (started[watch.below.index()], None);
        }
        self.past.entry(job.clone()).or_default().given_up += 1;
    }
}

impl Watch {
    /// When the next claim is due, after this number of claims given up.
    pub fn ripe_ms(&self, tree: &QuotaTree, leaf: NodeId, given_up: u32) -> Option<i64> {
        let node = tree.node(leaf);
        let wait_ms = match given_up.checked_sub(1) {
            None => node.max_bypass_ms,
            Some(before) => node.max_bypass_ms.max(node.max_claim_ms).saturating_mul(1 << before.min(20)),
        };
        Some(self.passed_since_ms?.saturating_add(wait_ms))
    }
}
