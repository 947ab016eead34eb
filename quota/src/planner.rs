//! The planner: which jobs wait, which are admitted, and what to do now.
//!
//! Each event marks only the leaves that it can unblock. [`Planner::plan`] then serves jobs in the order of the
//! tree: jobs inside min before borrowers; among borrowers, from the root down, the child with the smallest
//! dominant share after the job; ties by priority, age, name. A job is admitted when its quota path has capacity
//! and [`Places`] can hold its gang: that is one decision. A job that cannot start only because of other jobs may
//! preempt. A job that others have passed for too long gets a claim.

mod backoff;
mod claims;
mod contest;
mod edit;
mod events;
mod explain;
mod holds;
mod index;
mod pass;
mod preemption;
mod searches;
mod starts;
mod state;
#[cfg(test)]
mod tests;
mod watches;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use fleet_resources::Resources;

use crate::ledger::{AdmittedJob, Ledger};
use crate::names::{ClusterName, JobId};
use crate::places::Places;
use crate::plan::{Claim, NotAdmitted, PlanLimits, QuotaPlan};
use crate::queues::{ClassId, QueuePolicy, Queues, Stop, WaitingJob};
use backoff::Backoffs;
use contest::Contest;
use fleet_quota_tree::{NodeId, QuotaTree};
use holds::{Holds, Visitor};
use index::Index;
use starts::evicted_key;
use watches::Watches;

pub use edit::TreeEdit;
pub use explain::Position;
pub(crate) use starts::{FRESH_MS, StartEnd, Started};
pub use state::Planner;

/// How many times one plan may continue after it has taken starts back.
const ROUNDS: usize = 16;

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
            unclaimed: BTreeSet::new(),
            preemptors: BTreeSet::new(),
            rested: None,
            searched: BTreeSet::new(),
            backoffs: Backoffs::default(),
            started: BTreeMap::new(),
            started_at_ms: i64::MIN,
            fresh: BTreeMap::new(),
            behind: BTreeMap::new(),
            given: BTreeMap::new(),
            shared: VecDeque::new(),
            protections: BTreeSet::new(),
            pauses: BTreeSet::new(),
            freed: BTreeSet::new(),
            places_changed: false,
            kept_changed: false,
            cut_short: false,
            version: 0,
        }
    }

    pub fn tree(&self) -> &Arc<QuotaTree> {
        self.ledger.tree()
    }

    /// What admitted jobs use.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Waiting jobs.
    pub fn queues(&self) -> &Queues {
        &self.queues
    }

    /// Jobs with a claim, by leaf.
    pub fn claims(&self) -> impl Iterator<Item = (&JobId, Claim)> {
        self.holds.claims.values().map(|claim| (&claim.job, self.claim_of(claim)))
    }

    /// Whether capacity is reserved for the job, by a preemption or a claim.
    pub fn holds_room(&self, id: &JobId) -> bool {
        self.holds.of(id)
    }

    /// Whether a job that waits elsewhere, such as for cells, may be admitted in the leaf now. What preemptors and claims
    /// reserve is not for it. `over_ms`: when it ends if it starts now; only with a declared run time.
    ///
    /// # Errors
    /// The first limit that it would exceed, or who holds the capacity that it would need.
    pub fn may_admit(
        &self,
        id: &JobId,
        leaf: NodeId,
        request: &Resources,
        preemptible: bool,
        over_ms: Option<i64>,
    ) -> Result<(), NotAdmitted> {
        let request = self.ledger.tree().request(request);
        self.ledger.check_request(leaf, &request, preemptible).map_err(NotAdmitted::Quota)?;
        let visitor = Visitor {
            job: id,
            leaf,
            request: &request,
            preemptible,
            over_ms,
            claim_since_ms: None,
            promised: None,
        };
        let free = self.holds.leave_room(&self.ledger, &visitor);
        free.map_err(NotAdmitted::Reserved)
    }

    pub fn set_policy(&mut self, leaf: NodeId, policy: QueuePolicy) {
        if self.queues.line_of(leaf).map(|line| line.policy) != Some(policy) {
            self.queues.set_policy(leaf, policy);
            self.preemptors.insert(leaf);
            self.look_at(leaf);
        }
    }

    /// Adds a waiting job, or updates it. A job that has quota is released first.
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
        self.preemptors.insert(leaf);
        if self.holds.of(&id) {
            self.queues.set_aside(&id, None);
        } else if until_ms > 0 {
            self.back_off(&id, until_ms);
        }
    }

    /// The job no longer waits.
    pub fn remove(&mut self, id: &JobId) -> Option<WaitingJob> {
        let job = self.queues.remove(id)?;
        self.watches.forget(id);
        self.behind.remove(id);
        // It may have been part of other jobs' searches for victims.
        self.version += 1;
        self.forget_shape(job.shape);
        self.pauses.remove(&(job.not_before_ms, id.clone()));
        self.drop_holds(id);
        self.look_at(job.leaf);
        self.preemptors.insert(job.leaf);
        Some(job)
    }

    /// The job keeps its place in the queue, but is not considered before `until_ms`.
    pub fn back_off(&mut self, id: &JobId, until_ms: i64) {
        let Some(job) = self.queues.get(id) else { return };
        let leaf = job.leaf;
        self.pauses.remove(&(job.not_before_ms, id.clone()));
        self.pauses.insert((until_ms, id.clone()));
        self.queues.set_aside(id, Some(until_ms));
        self.version += 1;
        self.look_at(leaf);
    }

    /// Counts a job as admitted, whether or not it fits: after a restart, running jobs are added this way. Returns
    /// false if the job is counted already. Its data is then updated, and jobs that wait for its end still do.
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

    /// The job releases its quota.
    pub fn release(&mut self, id: &JobId) -> Option<AdmittedJob> {
        self.ending.remove(id);
        let job = self.ledger.release(id)?;
        self.evicted.remove(&evicted_key(&job));
        self.holds.victim_ended(&self.ledger, id);
        self.room_grew(&job);
        Some(job)
    }

    /// An admitted job is ending: its capacity is about to free up.
    pub fn ending(&mut self, id: &JobId) {
        if self.ledger.job(id).is_some() && self.ending.insert(id.clone()) {
            self.version += 1;
        }
    }

    /// A job that waits for this admitted job to end, and where it will start: a preemptor, or the holder of a claim.
    pub fn waits_for(&self, id: &JobId) -> Option<(&JobId, &ClusterName)> {
        self.holds.waits_for(id)
    }

    /// Admitted jobs that are ending.
    pub fn ending_jobs(&self) -> impl Iterator<Item = &JobId> {
        self.ending.iter()
    }

    /// Places in one cluster have become free.
    pub fn places_freed(&mut self, cluster: &ClusterName) {
        self.freed.insert(cluster.clone());
        self.version += 1;
    }

    /// Any answer of [`Places`] may have changed.
    pub fn places_changed(&mut self) {
        self.places_changed = true;
        self.version += 1;
    }

    /// Makes a plan. An admitted job holds quota and places on return and no longer waits. To give back a job that
    /// cannot be bound, call [`enqueue`](Self::enqueue).
    pub fn plan(&mut self, now_ms: i64, limits: PlanLimits, places: &mut dyn Places) -> QuotaPlan {
        let mut plan = QuotaPlan::default();
        self.begin_starts(now_ms);
        self.end_pauses(now_ms);
        self.end_backoffs(now_ms);
        self.end_protections(now_ms);
        self.end_claims(now_ms, places, &mut plan);
        let mut left = limits;
        let mut rounds = 0;
        loop {
            self.read_freed(places);
            self.ask_again(places);
            self.read_kept();
            self.start_holders(now_ms, places, &mut plan);
            self.let_claims_reclaim();
            self.start_winners(now_ms, &mut left, places, &mut plan);
            let undone = self.preempt(now_ms, &mut left, places, &mut plan);
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
        self.tell(now_ms, &mut plan);
        if plan.more {
            // Not all leaves were considered: their reasons are recorded next time.
            self.touched.extend(self.contest.leaves_below(self.ledger.tree(), NodeId::ROOT));
        }
        let pause = self.pauses.first().map(|(until_ms, _)| *until_ms);
        let backoff = self.backoffs.next_end_ms(|id| self.queues.get(id).is_some());
        let protection = self.protections.first().map(|(until_ms, _)| *until_ms);
        let wakes = [pause, backoff, protection, self.watches.next_due_ms(), self.next_recompute_ms()];
        plan.wake_at_ms = wakes.into_iter().flatten().min();
        plan
    }

    /// Drops all derived state, so that the next plan considers everything. Changes no decision, only the cost of
    /// the plan. What [`Places`] has refused is kept until places are freed, and what is reserved until less is: a job that
    /// is asked about again stands for its leaf until it is refused again, and others go first meanwhile.
    pub fn look_again(&mut self) {
        self.contest = Contest::new(self.ledger.tree());
        let ids = self.queues.class_ids();
        let stops = ids.iter().filter_map(|id| Some((*id, self.queues.class(*id)?.stop.clone())));
        let kept: Vec<(ClassId, Stop)> = stops.filter(|(_, stop)| matches!(stop, Stop::Kept(_))).collect();
        self.queues.forget_stops();
        let placeless = std::mem::take(&mut self.index);
        for id in ids {
            let Some(class) = self.queues.class(id) else { continue };
            self.contest.waits(self.ledger.tree(), class.key.leaf, &class.request);
            if placeless.is_placeless(class.key.shape) {
                self.index.stop(&mut self.queues, id, Stop::Place);
            }
        }
        kept.into_iter().for_each(|(id, stop)| self.index.stop(&mut self.queues, id, stop));
        let leaves: Vec<NodeId> = self.queues.lines().map(|(leaf, _)| leaf).collect();
        for leaf in leaves {
            self.look_at(leaf);
            self.preemptors.insert(leaf);
        }
        self.version += 1;
    }
}
