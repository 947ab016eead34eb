//! The planner: what waits, what is admitted, and what to do about it now.
//!
//! Events come in through its methods, each of which marks only what it can
//! unblock; [`Planner::plan`] then walks the jobs in the order of the tree: jobs
//! that stay inside min before borrowers; among borrowers, from the root down,
//! the child with the smallest dominant share after the job; ties by priority,
//! age, name. A job is admitted when its quota path has room and the oracle
//! holds its gang: one decision. Who may not start only because others hold the
//! room may take it; whom others have passed for too long gets a claim.

mod claims;
mod contest;
mod edit;
mod explain;
mod holds;
mod index;
mod pass;
mod retake;
mod taking;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ledger::{AdmittedJob, JobId, Ledger};
use crate::places::{ClusterName, Places};
use crate::plan::{Claim, Plan, PlanLimits};
use crate::queues::{ClassId, QueuePolicy, Queues, Stop, WaitingJob};
use crate::tree::{NodeId, QuotaTree};
use claims::Watches;
use contest::Contest;
use holds::Holds;
use index::Index;
use retake::Retakes;
use taking::evicted_key;

pub use edit::TreeEdit;
pub use explain::Position;
pub(crate) use explain::ReasonKind;
pub(crate) use pass::{FRESH_MS, StartEnd, Started};

/// How often one plan starts jobs again after starts were taken back.
const ROUNDS: usize = 16;

/// Jobs, quota and what follows from both, kept between plans.
#[derive(Clone, Debug)]
pub struct Planner {
    ledger: Ledger,
    queues: Queues,
    /// Admitted jobs on their way out.
    ending: BTreeSet<JobId>,
    /// Of these the ones that make room: leaf, priority and age.
    evicted: BTreeSet<(NodeId, Reverse<i64>, i64, JobId)>,
    holds: Holds,
    watches: Watches,
    contest: Contest,
    index: Index,
    /// Leaves whose candidate has to be found anew.
    dirty: BTreeSet<NodeId>,
    /// Leaves whose reasons may have changed in kind.
    touched: BTreeSet<NodeId>,
    /// Leaves that may have someone with a right to take.
    takers: BTreeSet<NodeId>,
    /// Classes that had their turn since the bound on searches was hit.
    searched: BTreeSet<ClassId>,
    retakes: Retakes,
    /// Jobs started at the moment of the last plan.
    started: BTreeMap<JobId, Started>,
    started_at_ms: i64,
    /// When jobs started that did so a short while ago.
    fresh: BTreeMap<JobId, i64>,
    /// When jobs have run for long enough to be taken by those who would.
    protections: BTreeSet<i64>,
    /// Pauses that end, by moment.
    pauses: BTreeSet<(i64, JobId)>,
    freed: BTreeSet<ClusterName>,
    places_changed: bool,
    /// What is kept from waiting jobs may be less than what their classes say.
    kept_changed: bool,
    /// Counts changes of use and places.
    version: u64,
}

impl Planner {
    pub fn new(tree: Arc<QuotaTree>) -> Self {
        Self {
            contest: Contest::new(&tree),
            watches: Watches::new(tree.len()),
            ledger: Ledger::new(tree),
            queues: Queues::default(),
            ending: BTreeSet::new(),
            evicted: BTreeSet::new(),
            holds: Holds::default(),
            index: Index::default(),
            dirty: BTreeSet::new(),
            touched: BTreeSet::new(),
            takers: BTreeSet::new(),
            searched: BTreeSet::new(),
            retakes: Retakes::default(),
            started: BTreeMap::new(),
            started_at_ms: i64::MIN,
            fresh: BTreeMap::new(),
            protections: BTreeSet::new(),
            pauses: BTreeSet::new(),
            freed: BTreeSet::new(),
            places_changed: false,
            kept_changed: false,
            version: 0,
        }
    }

    pub fn tree(&self) -> &Arc<QuotaTree> {
        self.ledger.tree()
    }

    /// What admitted jobs hold.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What waits.
    pub fn queues(&self) -> &Queues {
        &self.queues
    }

    /// Who has a claim, by leaf.
    pub fn claims(&self) -> impl Iterator<Item = (&JobId, Claim)> {
        self.holds.claims.values().map(|claim| (&claim.job, self.claim_of(claim)))
    }

    /// Whether victims end for the job, or room is kept for it.
    pub fn holds_room(&self, id: &JobId) -> bool {
        self.holds.of(id)
    }

    pub fn set_policy(&mut self, leaf: NodeId, policy: QueuePolicy) {
        if self.queues.line_of(leaf).map(|line| line.policy) != Some(policy) {
            self.queues.set_policy(leaf, policy);
            self.look_at(leaf);
        }
    }

    /// A job waits, or what is known of a waiting one has changed. One that
    /// holds quota is released first.
    pub fn enqueue(&mut self, job: WaitingJob) {
        self.release(&job.id);
        let same = self.queues.get(&job.id).is_some_and(|known| {
            known.leaf == job.leaf && known.request == job.request && known.preemptible == job.preemptible
        });
        let old_shape = self.queues.get(&job.id).map(|known| known.shape);
        if !same {
            self.remove(&job.id);
        } else if let Some(known) = self.queues.get(&job.id) {
            self.pauses.remove(&(known.not_before_ms, known.id.clone()));
        }
        let (id, leaf, until_ms) = (job.id.clone(), job.leaf, job.not_before_ms);
        let tree = Arc::clone(self.ledger.tree());
        self.contest.waits(&tree, leaf, &tree.request(&job.request));
        self.holds.know(&job);
        self.queues.enqueue(&tree, job);
        if let Some(shape) = old_shape {
            self.forget_shape(shape);
        }
        self.look_at(leaf);
        self.takers.insert(leaf);
        if self.holds.of(&id) {
            self.queues.set_aside(&id, None);
        } else if until_ms > 0 {
            self.back_off(&id, until_ms);
        }
    }

    /// A job waits no longer.
    pub fn remove(&mut self, id: &JobId) -> Option<WaitingJob> {
        let job = self.queues.remove(id)?;
        self.watches.forget(id);
        // Others may have been searched victims for beside it.
        self.version += 1;
        self.forget_shape(job.shape);
        self.pauses.remove(&(job.not_before_ms, id.clone()));
        self.drop_holds(id);
        self.look_at(job.leaf);
        self.takers.insert(job.leaf);
        Some(job)
    }

    /// Keeps the job's place in line but does not look at it before `until_ms`.
    pub fn back_off(&mut self, id: &JobId, until_ms: i64) {
        let Some(job) = self.queues.get(id) else { return };
        let leaf = job.leaf;
        self.pauses.remove(&(job.not_before_ms, id.clone()));
        self.pauses.insert((until_ms, id.clone()));
        self.queues.set_aside(id, Some(until_ms));
        self.version += 1;
        self.look_at(leaf);
    }

    /// A job holds quota, whether there is room or not: a restart tells what
    /// runs. False when it is known to hold it; what has changed of it is taken
    /// in, and whoever waits for its end goes on waiting.
    pub fn admit(&mut self, job: AdmittedJob) -> bool {
        self.remove(&job.id);
        let leaf = job.leaf;
        if self.ledger.job(&job.id).is_some_and(|known| *known != job)
            && let Some(old) = self.ledger.release(&job.id)
        {
            self.ledger.admit(job);
            self.room_grew(&old);
            self.room_shrank(leaf);
            return false;
        }
        let fresh = self.ledger.admit(job);
        if fresh {
            self.room_shrank(leaf);
        }
        fresh
    }

    /// A job holds nothing any more.
    pub fn release(&mut self, id: &JobId) -> Option<AdmittedJob> {
        self.ending.remove(id);
        let job = self.ledger.release(id)?;
        self.evicted.remove(&evicted_key(&job));
        self.holds.victim_ended(&self.ledger, id);
        self.room_grew(&job);
        Some(job)
    }

    /// An admitted job is on its way out: its room is coming.
    pub fn ending(&mut self, id: &JobId) {
        if self.ledger.job(id).is_some() && self.ending.insert(id.clone()) {
            self.version += 1;
        }
    }

    /// Admitted jobs on their way out.
    pub fn ending_jobs(&self) -> impl Iterator<Item = &JobId> {
        self.ending.iter()
    }

    /// Places in one cluster have become free.
    pub fn places_freed(&mut self, cluster: &ClusterName) {
        self.freed.insert(cluster.clone());
        self.version += 1;
    }

    /// Any answer of the oracle may have changed.
    pub fn places_changed(&mut self) {
        self.places_changed = true;
        self.version += 1;
    }

    /// Decides what to do now. Who is admitted holds quota and places when this
    /// returns and waits no longer; who cannot be bound is given back with
    /// [`enqueue`](Self::enqueue).
    pub fn plan(&mut self, now_ms: i64, limits: PlanLimits, places: &mut dyn Places) -> Plan {
        let mut plan = Plan::default();
        self.begin_starts(now_ms);
        self.end_pauses(now_ms);
        self.end_rests(now_ms);
        self.end_protections(now_ms);
        self.end_claims(now_ms, places, &mut plan);
        let mut left = limits;
        let mut rounds = 0;
        loop {
            self.read_freed(places);
            self.read_kept();
            self.start_holders(now_ms, places, &mut plan);
            self.start_winners(now_ms, &mut left, places, &mut plan);
            let undone = self.take(now_ms, &mut left, places, &mut plan);
            rounds += 1;
            if !undone {
                break;
            }
            if rounds >= ROUNDS {
                plan.more = true;
                break;
            }
        }
        self.claim(now_ms, limits, places, &mut plan);
        self.tell(&mut plan);
        if plan.more {
            // Not all were looked at: what stops them is noted next time.
            self.touched.extend(self.contest.leaves_below(self.ledger.tree(), NodeId::ROOT));
        }
        let pause = self.pauses.first().map(|(until_ms, _)| *until_ms);
        let rest = self.retakes.next_end_ms(|id| self.queues.get(id).is_some());
        let protection = self.protections.first().copied();
        let wakes = [pause, rest, protection, self.watches.next_due_ms(), self.next_reckoning_ms()];
        plan.wake_at_ms = wakes.into_iter().flatten().min();
        plan
    }

    /// Forgets what follows from other state, so that the next plan looks at
    /// everything. Changes no decision: only what a plan costs. What the oracle
    /// has refused stays known until places are free again.
    pub fn look_again(&mut self) {
        self.contest = Contest::new(self.ledger.tree());
        self.queues.forget_stops();
        let placeless = std::mem::take(&mut self.index);
        for id in self.queues.class_ids() {
            let Some(class) = self.queues.class(id) else { continue };
            self.contest.waits(self.ledger.tree(), class.key.leaf, &class.request);
            if placeless.is_placeless(class.key.shape) {
                self.index.stop(&mut self.queues, id, Stop::Place);
            }
        }
        let leaves: Vec<NodeId> = self.queues.lines().map(|(leaf, _)| leaf).collect();
        for leaf in leaves {
            self.look_at(leaf);
            self.takers.insert(leaf);
        }
        self.version += 1;
    }
}
