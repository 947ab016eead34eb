//! Which jobs start: holders of reserved capacity first, then the winners of the contest.
//!
//! A start is final only at the end of the plan. If another job of the same plan has a right to preempt it, the
//! start is taken back, so that no job is evicted as it starts.

use std::collections::BTreeSet;

use super::contest::Candidate;
use super::holds::{Preemption, Visitor};
use super::starts::{FRESH_MS, StartEnd, Started, evicted_key};
use super::state::Planner;
use crate::names::{ClusterName, JobId};
use crate::places::Places;
use crate::plan::{Decision, Outcome, PlanLimits, QuotaPlan, WaitReason};
use crate::queues::{ClassId, OrderKey, Stop, WaitingJob};
use fleet_quota_tree::NodeId;

/// After this many candidates in a row that no longer fit, all are computed again at once.
const MISFITS: usize = 8;
/// Back-off of a preemptor that could not start although its victims have ended.
const PREEMPTOR_PAUSE_MS: i64 = 5_000;

impl Planner {
    /// Preemptors whose victims have ended, then claims, oldest first.
    pub(super) fn start_holders(&mut self, now_ms: i64, places: &mut dyn Places, plan: &mut QuotaPlan) {
        let mut preemptors = self.holds.preemptor_ids();
        let mut unable = Vec::new();
        while !preemptors.is_empty() || !unable.is_empty() {
            let before = (plan.decisions.len(), unable.len());
            for id in &preemptors {
                self.start_preemptor(id, now_ms, places, plan, &mut unable);
            }
            // More may have been reserved for a preemptor that has started than it used; no other event reports that.
            preemptors
                .retain(|id| self.holds.preemption(id).is_some_and(|preemption| preemption.left.is_empty()));
            if (plan.decisions.len(), unable.len()) == before {
                preemptors = self.give_up(std::mem::take(&mut unable), now_ms, places, plan);
            }
        }
        let mut claims: Vec<(i64, NodeId, JobId)> =
            self.holds.claims.values().map(|claim| (claim.since_ms, claim.leaf, claim.job.clone())).collect();
        claims.sort_unstable();
        for (_, leaf, id) in claims {
            let version = self.version;
            let Some(claim) = self.holds.claims.get_mut(&leaf) else { continue };
            if claim.tried_at.replace(version) == Some(version) {
                continue;
            }
            let Some(job) = self.queues.get(&id).filter(|job| !self.index.is_placeless(job.shape)).cloned()
            else {
                continue;
            };
            if !self.fits_path(&job, now_ms) {
                continue;
            }
            match self.find_places(&job, &BTreeSet::new(), now_ms, places) {
                Ok(cluster) => self.start(&id, cluster, now_ms, plan),
                Err(Stop::Place) => drop(self.index.shapes.entry(job.shape).or_default()),
                Err(_) => {}
            }
        }
    }

    /// A preemption is over when its victims have ended. It goes on if what is missing will become free without it:
    /// places that no report shows as free yet, or capacity that other preemptions leave over. Otherwise it is among those
    /// that are `unable` to.
    fn start_preemptor(
        &mut self,
        id: &JobId,
        now_ms: i64,
        places: &mut dyn Places,
        plan: &mut QuotaPlan,
        unable: &mut Vec<Preemption>,
    ) {
        let version = self.version;
        let Some(preemption) = self.holds.preemption_mut(id) else { return };
        if preemption.tried_at.replace(version) == Some(version) {
            return;
        }
        let (over, cluster) = (preemption.left.is_empty(), preemption.cluster.clone());
        let Some(job) = self.queues.get(id).cloned() else { return };
        let fits_path = self.fits_path(&job, now_ms);
        if !fits_path && !over {
            return;
        }
        if fits_path {
            let others: BTreeSet<ClusterName> =
                places.could_hold(&job).into_iter().filter(|name| *name != cluster).collect();
            let found = self.find_places(&job, &others, now_ms, places);
            let found = match found {
                Err(_) if over => self.find_places(&job, &BTreeSet::new(), now_ms, places),
                found => found,
            };
            if let Ok(cluster) = found {
                self.start(id, cluster, now_ms, plan);
                return;
            }
        }
        if over && !self.comes_by_itself(&job, &cluster, &[], now_ms, places) {
            unable.extend(self.holds.preemption(id).cloned());
            self.drop_holds(id);
        }
    }

    /// These preemptions cannot go on beside all others, because of an edit of the tree. As some of them end, others can:
    /// each is judged again beside those that go on. Those go last for whom nobody is evicted. Returns the preemptors that
    /// go on.
    fn give_up(
        &mut self,
        unable: Vec<Preemption>,
        now_ms: i64,
        places: &mut dyn Places,
        plan: &mut QuotaPlan,
    ) -> Vec<JobId> {
        let mut able = Vec::new();
        for preemption in unable {
            let job = preemption.job.clone();
            let idle = self.holds.preemptions().filter(|other| other.victims.len() <= other.awaited);
            let idle: Vec<JobId> = idle.map(|other| other.job.id.clone()).collect();
            let mut comes =
                |but: &[JobId]| self.comes_by_itself(&job, &preemption.cluster, but, now_ms, places);
            let beside_all = comes(&[]);
            if beside_all || comes(&idle) {
                let last = idle.iter().filter(|_| !beside_all);
                last.for_each(|other| self.search_again(other));
                self.holds.begin_preemption(&self.ledger, preemption);
                self.version += 1;
                able.push(job.id);
                continue;
            }
            // Its victims did not help: it must not preempt again at once.
            let until_ms = now_ms.saturating_add(PREEMPTOR_PAUSE_MS);
            self.back_off(&job.id, until_ms);
            let outcome = Outcome::Wait(WaitReason::Backoff { until_ms });
            plan.decisions.push(Decision { job: job.id, leaf: job.leaf, outcome });
        }
        able
    }

    /// What is reserved for the job ends, and it is a job like the others again.
    pub(super) fn search_again(&mut self, id: &JobId) {
        self.drop_holds(id);
        self.queues.set_running(id);
        if let Some(leaf) = self.queues.get(id).map(|job| job.leaf) {
            self.look_at(leaf);
            self.preemptors.insert(leaf);
        }
    }

    fn fits_path(&self, job: &WaitingJob, now_ms: i64) -> bool {
        let request = self.ledger.tree().request(&job.request);
        let visitor = Visitor::of(job, &request, now_ms, &self.holds);
        self.ledger.first_short(job.leaf, &request, job.preemptible, |_| 0).is_none()
            && self.holds.leave_room(&self.ledger, &visitor).is_ok()
    }

    pub(super) fn start_winners(
        &mut self,
        now_ms: i64,
        limits: &mut PlanLimits,
        places: &mut dyn Places,
        plan: &mut QuotaPlan,
    ) {
        if !std::mem::take(&mut self.cut_short) {
            self.find_misfits(now_ms);
        }
        let mut misfits = 0;
        loop {
            self.put_up_dirty(now_ms);
            if self.index.placeless() >= self.queues.shapes() {
                return;
            }
            let Some(leaf) = self.contest.winner(&self.ledger) else { return };
            if !self.still_fits(leaf, now_ms) {
                misfits += 1;
                self.dirty.insert(leaf);
                // For many, it is cheaper to compute all again.
                if misfits >= MISFITS {
                    misfits = 0;
                    self.dirty.extend(self.contest.leaves_below(self.ledger.tree(), NodeId::ROOT));
                }
                continue;
            }
            if limits.probes == 0 || limits.admissions == 0 {
                (plan.more, self.cut_short) = (true, true);
                return;
            }
            let Some(candidate) = self.contest.candidate(leaf) else { return };
            let (class, id) = (candidate.class, candidate.job.id.clone());
            self.dirty.insert(leaf);
            let Some(job) = self.queues.get(&id).cloned() else { continue };
            misfits = 0;
            limits.probes -= 1;
            match self.find_places(&job, &BTreeSet::new(), now_ms, places) {
                Ok(cluster) => {
                    limits.admissions -= 1;
                    self.start(&id, cluster, now_ms, plan);
                }
                Err(stop) => {
                    let no_place = stop == Stop::Place;
                    self.refuse(class, stop);
                    if no_place {
                        self.close_shapes(places);
                    }
                }
            }
        }
    }

    fn put_up_dirty(&mut self, now_ms: i64) {
        while let Some(leaf) = self.dirty.pop_first() {
            self.put_up(leaf, now_ms);
        }
    }

    /// Candidates that earlier plans have left may fit no longer. Such a candidate would stand for its node in the
    /// contest, in the place of another one below the node that fits. Costs nothing where nothing can start. A plan that
    /// goes on with one that was cut short keeps them, as that one would have.
    fn find_misfits(&mut self, now_ms: i64) {
        self.put_up_dirty(now_ms);
        if self.index.placeless() >= self.queues.shapes() || self.contest.winner(&self.ledger).is_none() {
            return;
        }
        let mut leaves = self.contest.open_leaves(&self.ledger);
        leaves.retain(|leaf| !self.still_fits(*leaf, now_ms));
        self.dirty.extend(leaves);
    }

    /// The winner's capacity may be gone since it became a candidate.
    fn still_fits(&self, leaf: NodeId, now_ms: i64) -> bool {
        let Some(candidate) = self.contest.candidate(leaf) else { return false };
        let Some(job) = self.queues.get(&candidate.job.id) else { return false };
        if self.index.is_placeless(job.shape) {
            return false;
        }
        let short = self.ledger.first_short(leaf, &candidate.request, candidate.preemptible, |_| 0);
        let visitor = || Visitor::of(job, &candidate.request, now_ms, &self.holds);
        short.is_none() && (self.holds.is_empty() || self.holds.leave_room(&self.ledger, &visitor()).is_ok())
    }

    /// Finds the leaf's first candidate whose quota path has capacity, and records what stops the jobs before it.
    fn put_up(&mut self, leaf: NodeId, now_ms: i64) {
        // Inner nodes have queues with a policy, too; their candidate is the best of their children's.
        if leaf.index() >= self.tree().len() || !self.tree().node(leaf).is_leaf() {
            return;
        }
        let candidate = self.find_candidate(leaf, now_ms);
        self.contest.set(&self.ledger, leaf, candidate);
    }

    fn find_candidate(&mut self, leaf: NodeId, now_ms: i64) -> Option<Candidate> {
        if self.tree().node(leaf).draining {
            return None;
        }
        let mut after: Option<OrderKey> = None;
        loop {
            let line = self.queues.line_of(leaf)?;
            let mut left = line.fronts.range::<OrderKey, _>((
                after.as_ref().map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded),
                std::ops::Bound::Unbounded,
            ));
            let (key, class) = left.next().map(|(key, class)| (key.clone(), *class))?;
            if line.blocked_by_aside(&key).is_some() {
                return None;
            }
            let blocks = line.policy.blocks(key.priority.0) && !self.is_never(class);
            if let Some(candidate) = self.try_class(class, &key, now_ms) {
                return Some(candidate);
            }
            if blocks {
                return None;
            }
            after = Some(key);
        }
    }

    /// Whether jobs of the class could not run even on an empty fleet. They block nobody.
    pub(super) fn is_never(&self, id: ClassId) -> bool {
        self.queues.class(id).is_some_and(|class| {
            class.never || self.ledger.is_hopeless(class.key.leaf, &class.request, class.key.preemptible)
        })
    }

    fn try_class(&mut self, id: ClassId, key: &OrderKey, now_ms: i64) -> Option<Candidate> {
        let class = self.queues.class(id)?;
        let still = match &class.stop {
            Stop::Quota { bound, need } => {
                !self.tree().keeps_back() && self.ledger.room_under(*bound) < *need
            }
            Stop::Place => self.index.is_placeless(class.key.shape),
            Stop::Kept(_) => true,
            Stop::None => false,
        };
        if still {
            return None;
        }
        let (leaf, preemptible) = (class.key.leaf, class.key.preemptible);
        if let Some(short) = self.ledger.first_short(leaf, &class.request, preemptible, |_| 0) {
            let bound = self.ledger.bound(&short);
            self.refuse(id, Stop::Quota { bound, need: short.need });
            return None;
        }
        if self.index.is_placeless(class.key.shape) {
            self.refuse(id, Stop::Place);
            return None;
        }
        if !self.holds.is_empty() {
            let job = self.queues.get(&key.id)?;
            let visitor = Visitor::of(job, &class.request, now_ms, &self.holds);
            if let Err(holder) = self.holds.leave_room(&self.ledger, &visitor) {
                self.refuse(id, Stop::Kept(holder));
                return None;
            }
        }
        let request = class.request.clone();
        let borrower = !self.ledger.inside_min(leaf, &request);
        if class.stop != Stop::None {
            self.touched.insert(leaf);
            self.index.stop(&mut self.queues, id, Stop::None);
        }
        Some(Candidate { class: id, job: key.clone(), request, preemptible, borrower })
    }

    /// A class cannot start: its jobs wait for what stopped them.
    fn refuse(&mut self, id: ClassId, stop: Stop) {
        let Some(class) = self.queues.class(id) else { return };
        let (leaf, weighed) = (class.key.leaf, class.weighed);
        self.touched.insert(leaf);
        if !weighed || self.rested.is_some() {
            self.preemptors.insert(leaf);
        }
        self.index.stop(&mut self.queues, id, stop);
    }

    /// Holds places that are not reserved for others.
    ///
    /// # Errors
    /// What stops the job.
    pub(super) fn find_places(
        &self,
        job: &WaitingJob,
        avoid: &BTreeSet<ClusterName>,
        now_ms: i64,
        places: &mut dyn Places,
    ) -> Result<ClusterName, Stop> {
        let request = self.ledger.tree().request(&job.request);
        let visitor = Visitor::of(job, &request, now_ms, &self.holds);
        let mut avoid = avoid.clone();
        let mut stop = Stop::Place;
        loop {
            let Some(cluster) = places.take(job, &avoid) else { return Err(stop) };
            match self.holds.leave_places(&self.ledger, &self.queues, places, &visitor, &cluster) {
                Ok(()) => return Ok(cluster),
                Err(holder) => {
                    places.put_back(job, &cluster);
                    stop = Stop::Kept(holder);
                    avoid.insert(cluster);
                }
            }
        }
    }

    /// The job holds places: it gets its quota and no longer waits.
    fn start(&mut self, id: &JobId, cluster: ClusterName, now_ms: i64, plan: &mut QuotaPlan) {
        let Some(waiting) = self.queues.get(id).cloned() else { return };
        let leaf = waiting.leaf;
        let claim = self.holds.claims.get(&leaf).filter(|claim| claim.job == *id).cloned();
        let preempted = self.holds.preemption(id).is_some();
        let past_claims = self.watches.past_of(id);
        self.remove(id);
        self.fresh.insert(id.clone(), now_ms);
        self.ledger.admit(waiting.admitted(now_ms));
        self.room_shrank(leaf);
        self.watches.started(self.ledger.tree(), leaf, &waiting.order_key(), 1);
        if preempted {
            self.revoke_preemption(id, plan);
        }
        let end = if preempted { StartEnd::Stands } else { StartEnd::Open };
        self.started
            .insert(id.clone(), Started { job: waiting, cluster: cluster.clone(), claim, past_claims, end });
        plan.decisions.push(Decision { job: id.clone(), leaf, outcome: Outcome::Admit { cluster } });
    }

    /// A job that was to preempt in this plan starts without: nobody is evicted for it.
    fn revoke_preemption(&mut self, id: &JobId, plan: &mut QuotaPlan) {
        let takes = |d: &Decision| d.job == *id && matches!(d.outcome, Outcome::Take(_));
        let Some(at) = plan.decisions.iter().rposition(takes) else { return };
        if let Outcome::Take(take) = plan.decisions.remove(at).outcome {
            for victim in take.victims {
                self.ending.remove(&victim.job);
                if let Some(job) = self.ledger.job(&victim.job) {
                    self.evicted.remove(&evicted_key(job));
                }
            }
        }
    }

    /// A new plan begins: earlier starts are final.
    pub(super) fn begin_starts(&mut self, now_ms: i64) {
        if self.started.values().any(|started| started.end == StartEnd::Open) {
            // Who was searched for beside it could have had it taken back for nothing.
            self.version += 1;
        }
        if std::mem::replace(&mut self.started_at_ms, now_ms) != now_ms {
            self.started.clear();
            self.fresh.retain(|_, started_ms| now_ms.saturating_sub(*started_ms) < FRESH_MS);
        }
        self.started.values_mut().for_each(|started| started.end = StartEnd::Stands);
    }

    /// Takes back all starts of this plan but those of preemptors: victims among them must not run, and the others
    /// were placed beside them. Returns whether there was one.
    pub(super) fn take_starts_back(&mut self, places: &mut dyn Places, plan: &mut QuotaPlan) -> bool {
        let open = |id: &JobId| self.started.get(id).is_some_and(|started| started.end != StartEnd::Stands);
        let taken: Vec<JobId> = plan.admitted().map(|(id, _)| id.clone()).filter(open).collect();
        for id in taken.iter().rev() {
            let Some(Started { job, cluster, claim, past_claims, .. }) = self.started.remove(id) else {
                continue;
            };
            self.fresh.remove(id);
            let (leaf, key) = (job.leaf, job.order_key());
            places.put_back(&job, &cluster);
            // It was a candidate, so its back-off is over.
            self.enqueue(WaitingJob { not_before_ms: 0, ..job });
            self.watches.started(self.ledger.tree(), leaf, &key, -1);
            self.watches.set_past(id, past_claims);
            self.places_freed(&cluster);
            if let Some(claim) = claim {
                self.holds.claims.insert(leaf, claim);
                self.queues.set_aside(id, None);
            }
        }
        let taken: BTreeSet<JobId> = taken.into_iter().collect();
        let undone = |d: &Decision| matches!(d.outcome, Outcome::Admit { .. }) && taken.contains(&d.job);
        plan.decisions.retain(|decision| !undone(decision));
        !taken.is_empty()
    }
}
