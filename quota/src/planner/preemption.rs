//! Which jobs preempt: those that cannot start only because of other jobs.
//!
//! Preemptors are served in the order of the tree. During the search for one, earlier preemptors count as started
//! and their victims as gone, so no two count on one victim. At the end the ledger is as before.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::contest::{Candidate, Contest};
use super::holds::Preemption;
use super::starts::{StartEnd, evicted_key};
use super::state::Planner;
use crate::ledger::AdmittedJob;
use crate::names::{ClusterName, JobId};
use crate::places::Places;
use crate::plan::{Decision, Outcome, PlanLimits, QuotaPlan, Take, TakeRule, Victim, WaitReason};
use crate::queues::{Behind, Class, ClassId, Line, Missed, OrderKey, Stop, WaitingJob};
use crate::share::Share;
use crate::victims::{Rights, Searched, VictimSet};
use fleet_quota_tree::{NodeId, Request};

/// Changes of the ledger that last only for the search.
#[derive(Default)]
struct Supposed {
    released: Vec<AdmittedJob>,
    admitted: Vec<JobId>,
}

/// Classes that may preempt, by leaf.
#[derive(Default)]
struct Preemptors {
    /// Classes in the order of their first jobs.
    lines: BTreeMap<NodeId, Vec<ClassId>>,
    /// Some classes were left out because they were searched already.
    left_out: bool,
}

impl Planner {
    /// Searches victims for the jobs that may preempt, one after the other. A search without a result is repeated
    /// only after something changes, and a bounded plan goes on where the last one stopped. So with no new event,
    /// every job is searched for after a bounded number of plans.
    ///
    /// Returns whether starts of this plan were taken back, so that it may make others.
    pub(super) fn preempt(
        &mut self,
        now_ms: i64,
        limits: &mut PlanLimits,
        places: &mut dyn Places,
        plan: &mut QuotaPlan,
    ) -> bool {
        if limits.searches == 0 {
            return false;
        }
        self.let_claims_reclaim();
        let Preemptors { mut lines, left_out } = self.preemptors(now_ms);
        let mut supposed = Supposed::default();
        if lines.is_empty() {
            return false;
        }
        for preemptor in self.holds.preemptor_ids() {
            self.suppose(&preemptor, now_ms, &mut supposed);
        }
        let mut round = self.begin_round(limits, now_ms);
        if let Some(bounded) = self.all_miss(&lines, &mut round, limits, places) {
            // In whichever order they were searched, none would find more.
            plan.more |= bounded || left_out;
            if !bounded {
                self.searched.clear();
            }
            self.rested =
                Some(self.version).filter(|_| !(bounded || left_out) && self.tree().preempts_by_share());
            return self.settle_preemptions(false, supposed, places, plan);
        }
        let mut contest = Contest::open(self.ledger.tree());
        for leaf in lines.keys() {
            contest.set(&self.ledger, *leaf, self.next_preemptor(&lines, *leaf, now_ms));
        }
        let (mut bounded, mut begun) = (false, false);
        let mut behind = Behind::default();
        while let Some(leaf) = contest.winner(&self.ledger) {
            let candidate = contest.candidate(leaf).map(|c| (c.class, c.job.id.clone()));
            let Some((class, id)) = candidate else { break };
            // A job that came since may have put another one first that fits behind others: then less is left than was searched.
            let known = self.missed(class).filter(|missed| missed.after == behind);
            let searched = match known {
                Some(_) => Some(Searched::default()),
                None => self.search_for(class, &id, &mut round, limits, places),
            };
            bounded = searched.is_none();
            let Some(searched) = searched else { break };
            if let Some(found) = searched.found.as_ref().filter(|found| found.changed() > 0) {
                begun = true;
                self.begin_preemption(&id, found, now_ms, plan);
                self.suppose(&id, now_ms, &mut supposed);
                let released = supposed.released.iter().rev().take(found.changed());
                released.for_each(|job| contest.used_changed(&self.ledger, job.leaf));
            } else {
                let missed = self.miss(class, leaf, searched, known, &behind);
                lines.entry(leaf).or_default().retain(|other| *other != class);
                if missed.fits_behind {
                    // Victims of others leave capacity for it, too: no later job may count on that.
                    self.suppose_started(&id, now_ms, &mut supposed);
                    behind = missed.after.iter().copied().chain([class]).collect();
                }
            }
            contest.used_changed(&self.ledger, leaf);
            contest.set(&self.ledger, leaf, self.next_preemptor(&lines, leaf, now_ms));
        }
        // The state in which the classes left out were searched may be over.
        plan.more |= bounded || left_out;
        if !bounded {
            self.searched.clear();
        }
        self.settle_preemptions(begun, supposed, places, plan)
    }

    /// Records since when the job could have preempted by share, but for the work lost.
    pub(super) fn note_behind(&mut self, id: &JobId, searched: &Searched, now_ms: i64) {
        if searched.is_behind && searched.found.is_none() {
            self.behind.entry(id.clone()).or_insert(now_ms);
        } else {
            self.behind.remove(id);
        }
    }

    /// Records a search without victims.
    pub(super) fn miss(
        &mut self,
        class: ClassId,
        leaf: NodeId,
        searched: Searched,
        known: Option<Missed>,
        after: &Behind,
    ) -> Missed {
        if let Some(known) = known {
            return known;
        }
        let Searched { found, protected, again_ms, .. } = searched;
        if protected.is_some() {
            self.touched.insert(leaf);
        }
        let missed = Missed {
            version: self.version,
            fits_behind: found.is_some(),
            after: Behind::clone(after),
            protected,
            again_ms,
        };
        if let Some(known) = self.queues.class_mut(class) {
            if let Some(before_ms) = known.missed.replace(missed.clone()).and_then(|before| before.again_ms) {
                self.protections.remove(&(before_ms, class));
            }
            self.protections.extend(again_ms.map(|again_ms| (again_ms, class)));
        }
        missed
    }

    /// All preemptors of the plan are known: restores the ledger, and completes the plan.
    fn settle_preemptions(
        &mut self,
        begun: bool,
        mut supposed: Supposed,
        places: &mut dyn Places,
        plan: &mut QuotaPlan,
    ) -> bool {
        let spared = if begun { self.reprieve(places, plan, &mut supposed) } else { Vec::new() };
        self.restore(supposed);
        for preemptor in spared {
            self.holds.weigh(&self.ledger, &preemptor);
        }
        if begun {
            self.ask_kept_again();
        }
        let evicts = plan.takes().next().is_some();
        let taken_back = self.started.values().any(|started| started.end == StartEnd::TakenBack);
        let undone = (evicts || taken_back) && self.take_starts_back(places, plan);
        // Victims wait again, maybe before other jobs that were to start: those start in the next plan.
        plan.more |= undone && evicts;
        undone && !evicts
    }

    /// The class's last search, if nothing has changed since. Others may be searched before it now.
    pub(super) fn missed(&self, class: ClassId) -> Option<Missed> {
        self.queues.class(class)?.missed.clone().filter(|missed| missed.version == self.version)
    }

    fn preemptors(&mut self, now_ms: i64) -> Preemptors {
        let leaves = std::mem::take(&mut self.preemptors);
        let mut lines = BTreeMap::new();
        let rests = self.rested == Some(self.version);
        let by_share = self.tree().preempts_by_share();
        if rests || !by_share {
            lines = self.lines_of(leaves, by_share, now_ms);
        }
        if by_share && !(rests && self.open_in(&lines).is_empty()) {
            // Shares change everywhere.
            let all = self.queues.lines().map(|(leaf, _)| leaf).collect();
            lines = self.lines_of(all, by_share, now_ms);
        }
        let open = self.open_in(&lines);
        // Classes already searched since the limit was reached let the others go first.
        if open.is_subset(&self.searched) {
            self.searched.clear();
        }
        let settled = |class: &ClassId| self.missed(*class).is_some_and(|missed| missed.in_any_order());
        if open.is_empty() && lines.values().flatten().all(settled) {
            self.rested = Some(self.version).filter(|_| by_share);
            return Preemptors::default();
        }
        let left_out = !open.is_disjoint(&self.searched);
        for line in lines.values_mut() {
            line.retain(|class| !(open.contains(class) && self.searched.contains(class)));
        }
        lines.retain(|_, line| !line.is_empty());
        Preemptors { lines, left_out }
    }

    fn open_in(&self, lines: &BTreeMap<NodeId, Vec<ClassId>>) -> BTreeSet<ClassId> {
        lines.values().flatten().filter(|class| self.missed(**class).is_none()).copied().collect()
    }

    fn lines_of(
        &mut self,
        leaves: BTreeSet<NodeId>,
        by_share: bool,
        now_ms: i64,
    ) -> BTreeMap<NodeId, Vec<ClassId>> {
        let mut shares = BTreeMap::new();
        let mut lines = BTreeMap::new();
        for leaf in leaves {
            let classes = self.preemptors_of(leaf, now_ms, by_share.then_some(&mut shares));
            if !classes.is_empty() {
                lines.insert(leaf, classes);
            }
        }
        if !by_share {
            self.preemptors.extend(lines.keys());
        }
        lines
    }

    /// A job behind a blocking head does not preempt: the head goes first.
    fn preemptors_of(
        &mut self,
        leaf: NodeId,
        now_ms: i64,
        mut shares: Option<&mut LargestShares>,
    ) -> Vec<ClassId> {
        let Some(line) = self.queues.line_of(leaf) else { return Vec::new() };
        let mut found = Vec::new();
        let fronts: Vec<ClassId> = line.fronts.values().copied().collect();
        for id in &fronts {
            let Some(class) = self.queues.class(*id) else { continue };
            let Some(front) = class.front() else { continue };
            if line.blocked_by_aside(front).is_some() {
                break;
            }
            // A job that could never run does not preempt, whatever stopped it last.
            let beyond = || self.ledger.is_hopeless(leaf, &class.request, class.key.preemptible);
            let stopped =
                || self.stop_of(class) != Stop::None && !self.backs_off(class, front, now_ms) && !beyond();
            // Nothing has changed since it had a right.
            let searched = class.missed.as_ref();
            let known = searched.is_some_and(|missed| missed.version == self.version && !missed.fits_behind);
            let has_right = known
                || (Rights::reclaim(&self.ledger, leaf, &class.request)
                    || Rights::within(&self.ledger, leaf, front.priority.0, front.enqueued_at_ms)
                    || shares.as_mut().is_some_and(|shares| self.may_share(leaf, &class.request, shares)));
            if has_right && (known || stopped()) {
                found.push(*id);
            }
            if line.policy.blocks(front.priority.0) && !class.never && !beyond() {
                break;
            }
        }
        for id in fronts {
            if let Some(class) = self.queues.class_mut(id) {
                class.weighed = true;
            }
        }
        found
    }

    /// Whether the job backs off after a preemption. A job that reclaims inside its min never does.
    fn backs_off(&self, class: &Class, front: &OrderKey, now_ms: i64) -> bool {
        self.backoffs.backs_off(&front.id, now_ms)
            && !Rights::reclaim(&self.ledger, class.key.leaf, &class.request)
    }

    /// Whether some sibling on the path has at least the share that the job would lead to.
    fn may_share(&self, leaf: NodeId, request: &Request, shares: &mut LargestShares) -> bool {
        let tree = self.ledger.tree();
        tree.path_to_root(leaf).any(|node| {
            let Some(parent) = tree.node(node).parent else { return false };
            let largest = shares.entry(parent).or_insert_with(|| {
                let none = Request::default();
                let share = |child: &NodeId| (Share::after(&self.ledger, *child, &none, 0), *child);
                let mut all: Vec<(Share, NodeId)> = tree.node(parent).children.iter().map(share).collect();
                all.sort_by(|a, b| b.cmp(a));
                all.truncate(2);
                all
            });
            let own = Share::after(&self.ledger, node, request, 1);
            largest.iter().any(|(share, child)| *child != node && *share >= own)
        })
    }

    /// The first job of a leaf's first class that may preempt.
    fn next_preemptor(
        &self,
        lines: &BTreeMap<NodeId, Vec<ClassId>>,
        leaf: NodeId,
        now_ms: i64,
    ) -> Option<Candidate> {
        let line = self.queues.line_of(leaf)?;
        let classes = lines.get(&leaf)?.iter();
        let (id, class, front) = classes.filter_map(|id| self.preempting(line, *id, now_ms)).next()?;
        Some(Candidate {
            class: id,
            job: front.clone(),
            request: class.request.clone(),
            preemptible: class.key.preemptible,
            borrower: !self.ledger.inside_min(leaf, &class.request),
        })
    }

    /// The class and its first job, if that may preempt now.
    pub(super) fn preempting(
        &self,
        line: &Line,
        id: ClassId,
        now_ms: i64,
    ) -> Option<(ClassId, &Class, &OrderKey)> {
        let class = self.queues.class(id)?;
        let front = class.front()?;
        let may = line.blocked_by_aside(front).is_none()
            && !self.backs_off(class, front, now_ms)
            && !self.is_behind_evicted(class, front);
        may.then_some((id, class, front))
    }

    /// Whether an earlier job of the leaf is a victim now: it goes first when it waits again. If nobody waits for its end any
    /// more, it still counts in the leaf, and does not keep a job from the min that is left beside it.
    fn is_behind_evicted(&self, class: &Class, front: &OrderKey) -> bool {
        let leaf = class.key.leaf;
        let from = (leaf, Reverse(i64::MAX), i64::MIN, JobId::new(""));
        let mut earlier = self.evicted.range(from..).take_while(|(at, priority, enqueued_at_ms, _)| {
            *at == leaf && (*priority, *enqueued_at_ms) < (front.priority, front.enqueued_at_ms)
        });
        earlier
            .any(|(.., id)| self.holds.counts_on(id) || !Rights::reclaim(&self.ledger, leaf, &class.request))
    }

    /// Reprieve: one preemption may make another one's victims unnecessary. Victims that fit beside all preemptors
    /// of this plan are kept. All preemptors count as started and all victims as gone. Returns the preemptors whose
    /// victims those were.
    fn reprieve(
        &mut self,
        places: &mut dyn Places,
        plan: &mut QuotaPlan,
        supposed: &mut Supposed,
    ) -> Vec<JobId> {
        let mut spared = Vec::new();
        let takes = plan.decisions.iter().rev().filter_map(|decision| match &decision.outcome {
            Outcome::Take(take) => Some((decision.job.clone(), take.victims.clone())),
            _ => None,
        });
        let takes: Vec<(JobId, Vec<Victim>)> = takes.collect();
        if takes.len() < 2 {
            return spared;
        }
        for (preemptor, victims) in takes {
            for victim in victims.iter().rev() {
                let Some(at) = supposed.released.iter().position(|job| job.id == victim.job) else {
                    continue;
                };
                if !self.may_stay(&supposed.released[at], places) {
                    continue;
                }
                let job = supposed.released.remove(at);
                self.ending.remove(&job.id);
                self.evicted.remove(&evicted_key(&job));
                self.ledger.admit(job);
                self.holds.spare(&preemptor, &victim.job);
                spare(plan, &preemptor, &victim.job);
                spared.push(preemptor.clone());
                // It starts before anything else happens.
                plan.more = true;
            }
        }
        spared
    }

    fn may_stay(&mut self, job: &AdmittedJob, places: &mut dyn Places) -> bool {
        let request = self.ledger.tree().request(&job.request);
        if self.ledger.first_short(job.leaf, &request, job.preemptible, |_| 0).is_some() {
            return false;
        }
        let Some(cluster) = places.cluster_of(&job.id) else { return false };
        let (preemptors, mut gone) = self.holds.preemptors_in(&cluster, None);
        gone.retain(|id| *id != job.id);
        preemptors.is_empty() || places.fits_without(&preemptors, &cluster, &gone)
    }

    /// Victims that this plan has started are not evicted: their starts are taken back.
    fn begin_preemption(&mut self, id: &JobId, found: &VictimSet, now_ms: i64, plan: &mut QuotaPlan) {
        let Some(job) = self.queues.get(id).cloned() else { return };
        let leaf = job.leaf;
        let new = found.victims.iter().map(|victim| victim.job.clone());
        let victims: Vec<JobId> = found.awaited.iter().cloned().chain(new).collect();
        self.drop_holds(id);
        let preemption = Preemption {
            request: self.ledger.tree().request(&job.request),
            job,
            cluster: found.cluster.clone(),
            left: victims.iter().cloned().collect(),
            victims,
            awaited: found.awaited.len(),
            tried_at: None,
            kept: Vec::new(),
        };
        self.holds.begin_preemption(&self.ledger, preemption);
        self.queues.set_aside(id, None);
        self.touched.insert(leaf);
        self.version += 1;
        let mut evicted = Vec::new();
        for victim in &found.victims {
            match self.started.get_mut(&victim.job) {
                Some(started) => started.end = StartEnd::TakenBack,
                None => evicted.push(victim.clone()),
            }
        }
        for victim in &evicted {
            self.ending.insert(victim.job.clone());
            let Some(job) = self.ledger.job(&victim.job) else { continue };
            self.evicted.insert(evicted_key(job));
            if victim.rule == TakeRule::FairShare {
                self.given.extend(self.ledger.tree().path_to_root(job.leaf).map(|node| (node, now_ms)));
                self.shared.push_back(now_ms);
            }
        }
        let cluster = found.cluster.clone();
        let outcome = if !evicted.is_empty() {
            self.backoffs.preempted(id, now_ms);
            Outcome::Take(Take { cluster, victims: evicted, awaited: found.awaited.clone() })
        } else if !found.awaited.is_empty() {
            Outcome::Wait(WaitReason::WaitingForVictims { cluster, victims: found.awaited.clone() })
        } else {
            return;
        };
        plan.decisions.push(Decision { job: id.clone(), leaf, outcome });
    }

    /// Whether a preemptor whose own victims have ended will fit in the cluster once the other preemptors, without those in
    /// `but`, have started and all ending jobs are gone, which its preemption relied on. Victims of others end even if
    /// their preemptor has started without them.
    pub(super) fn comes_by_itself(
        &mut self,
        job: &WaitingJob,
        cluster: &ClusterName,
        but: &[JobId],
        now_ms: i64,
        places: &mut dyn Places,
    ) -> bool {
        let mut supposed = Supposed::default();
        let others = self.holds.preemptor_ids();
        for other in others.iter().filter(|other| **other != job.id && !but.contains(other)) {
            self.suppose(other, now_ms, &mut supposed);
        }
        for id in &self.ending {
            supposed.released.extend(self.ledger.release(id));
        }
        let request = self.ledger.tree().request(&job.request);
        let short = self.ledger.first_short(job.leaf, &request, job.preemptible, |_| 0);
        self.restore(supposed);
        if short.is_some() || !places.could_hold(job).contains(cluster) {
            return false;
        }
        let (mut jobs, mut gone) = self.holds.preemptors_in(cluster, Some(&job.id));
        jobs.retain(|other| !but.contains(&other.id));
        gone.extend(self.ending.iter().cloned());
        jobs.push(job);
        places.will_fit_without(&jobs, cluster, &gone)
    }

    /// Counts a preemptor as started and its victims as gone.
    fn suppose(&mut self, id: &JobId, now_ms: i64, supposed: &mut Supposed) {
        let Some(preemption) = self.holds.preemption(id) else { return };
        for victim in &preemption.left {
            supposed.released.extend(self.ledger.release(victim));
        }
        self.suppose_started(id, now_ms, supposed);
    }

    fn suppose_started(&mut self, id: &JobId, now_ms: i64, supposed: &mut Supposed) {
        let Some(job) = self.queues.get(id) else { return };
        // A job that has not started is no victim.
        let admitted = self.ledger.suppose(job.admitted(now_ms));
        if admitted {
            supposed.admitted.push(id.clone());
        }
    }

    fn restore(&mut self, supposed: Supposed) {
        for id in &supposed.admitted {
            self.ledger.release(id);
        }
        for job in supposed.released {
            self.ledger.admit(job);
        }
    }
}

/// Removes a victim that is reprieved from the plan.
fn spare(plan: &mut QuotaPlan, preemptor: &JobId, victim: &JobId) {
    plan.decisions.retain_mut(|decision| match &mut decision.outcome {
        Outcome::Take(take) if decision.job == *preemptor => {
            take.victims.retain(|other| other.job != *victim);
            !take.victims.is_empty()
        }
        _ => true,
    });
}

/// By parent: its two children with the largest shares.
type LargestShares = BTreeMap<NodeId, Vec<(Share, NodeId)>>;
