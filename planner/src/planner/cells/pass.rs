//! One pass over the queues of the virtual clusters.

use std::collections::{BTreeMap, BTreeSet};

use fleet_api::mutation::{self, Mutation};
use fleet_cells::{Ask, Decision as CellDecision, GroupState, Phase, Proposal, WaitCause, WaitReason};
use fleet_policies::reason::Reason;
use fleet_quota::{JobId, NotAdmitted, TakeRule};

use crate::{
    cells::{
        Place,
        ask::{CellGroupAsk, CellJob},
        groups::has_cells,
        suits::kinds,
    },
    decision::{Decision, Plan, earliest},
    entry::JobEntry,
    job::{Held, Job, JobPhase, Waiting},
    planner::{
        Planner,
        plan::{no_quota, told_apart},
    },
    refusals::mark,
};

/// Most requests to the allocator in one pass; the rest follow in the next.
const ASKED_AT_ONCE: usize = 512;
/// Victims named in a preemptor's reason.
const VICTIMS_NAMED: usize = 5;
/// Most refusals remembered.
const REFUSALS_KEPT: usize = 4096;

/// Result for one group.
enum Tried {
    /// It has its cells.
    Placed,
    /// It has reserved cells; these jobs must leave them.
    Reserved(BTreeSet<JobId>),
    Waits(Waiting),
}

/// Result for one job.
struct Looked {
    cluster: Option<String>,
    placed: Vec<String>,
    victims: BTreeSet<JobId>,
    waits: Option<Waiting>,
}

impl Planner {
    /// Decides on all jobs that wait for cells.
    pub(in crate::planner) fn plan_cells(&mut self, now_ms: i64, plan: &mut Plan) {
        if !self.cells.is_on() {
            return;
        }
        self.cells.take_in(now_ms);
        let doubts_end = self.cells.end_doubts(now_ms);
        plan.wake_ms = earliest(plan.wake_ms, doubts_end);
        if self.cells.refused.len() > REFUSALS_KEPT {
            self.cells.refused.clear();
        }
        let growing: BTreeSet<&JobId> = self.cells.growing.iter().map(|place| &place.4).collect();
        let complete: Vec<JobId> =
            self.verdicts.partials().filter(|id| !growing.contains(id)).cloned().collect();
        for id in complete {
            self.verdicts.tell_partial(&id, None);
        }
        let line: BTreeSet<Place> = self.cells.waiting.union(&self.cells.growing).cloned().collect();
        self.cells.claims.begin(&line, now_ms);
        let mut asked = 0;
        for place in line {
            if asked >= ASKED_AT_ONCE {
                plan.more = true;
                break;
            }
            let id = &place.4;
            match self.jobs.get(id).map(|entry| &entry.job.phase) {
                Some(JobPhase::Waits) => asked += self.look_at_waiting(&place, now_ms, plan),
                Some(JobPhase::Holds(_)) => asked += self.grow(&place, now_ms, plan),
                None => {}
            }
        }
        plan.wake_ms = earliest(plan.wake_ms, self.cells.claims.wake_ms(now_ms));
        for job in std::mem::take(&mut self.cells.changed) {
            if let Some(JobPhase::Holds(held)) = self.jobs.get(&job).map(|entry| &entry.job.phase) {
                let cluster = held.cluster.clone();
                plan.decisions.push(Decision::Regroup { job, cluster });
            }
        }
    }

    /// Tries a job that waits for its first cells. Returns the number of requests to the allocator.
    fn look_at_waiting(&mut self, place: &Place, now_ms: i64, plan: &mut Plan) -> usize {
        let id = place.4.clone();
        let Some(entry) = self.jobs.get(&id) else { return 0 };
        let job = entry.job.clone();
        let Some(asks) = job.cells.clone() else { return 0 };
        if let Some(until) = entry.refusals.until_ms.filter(|until| *until > now_ms) {
            plan.wake_ms = earliest(plan.wake_ms, Some(until));
            let message = entry.refusals.message.clone();
            self.verdicts.tell(&id, Waiting::new(Reason::ReservationRefused, message));
            return 0;
        }
        let clusters = match self.may_start(&job, &asks, place, now_ms) {
            Ok(clusters) => clusters,
            Err(waiting) => {
                self.verdicts.tell(&id, waiting);
                return 0;
            }
        };
        let clusters = self.cells.suited(&asks, clusters);
        let mut asked = 0;
        let looked = self.ask_for(&job, &asks, asks.groups.iter(), clusters, now_ms, plan, &mut asked);
        let complete = looked.waits.is_none() && looked.victims.is_empty();
        let starts = complete || (!asks.whole && !looked.placed.is_empty());
        match looked.cluster.filter(|_| starts) {
            Some(cluster) => {
                self.cells.claims.started(place, now_ms);
                self.start(&id, cluster, now_ms, plan);
                return asked;
            }
            None if looked.victims.is_empty() => {
                // All or nothing: cells of some of its groups stay available to others.
                for name in &looked.placed {
                    self.cells.release_group(name);
                }
            }
            None => {}
        }
        let waiting = match looked.waits {
            Some(waiting) if looked.victims.is_empty() => waiting,
            _ => self.waits_for(&looked.victims),
        };
        if waiting.reason == Reason::InsufficientCells || waiting.reason == Reason::CellsFragmented {
            self.cells.claims.waits(place);
            self.end_lingering_in(&asks, &id, plan);
        }
        self.verdicts.tell(&id, waiting);
        asked
    }

    /// Pods that jobs of its virtual cluster have left behind keep promised cells from a job that waits for such cells.
    fn end_lingering_in(&self, asks: &CellJob, taker: &JobId, plan: &mut Plan) {
        for id in self.lingering.iter().filter(|_| asks.class >= 0) {
            let Some(Job { phase: JobPhase::Holds(held), .. }) = self.jobs.get(id).map(|entry| &entry.job)
            else {
                continue;
            };
            if held.cells.first().is_some_and(|group| group.virtual_cluster == asks.vc) {
                let (job, taker, cluster) = (id.clone(), taker.clone(), held.cluster.clone());
                plan.decisions.push(Decision::EndPods { job, taker, cluster });
            }
        }
    }

    /// Tries a running job that lacks some of its groups.
    fn grow(&mut self, place: &Place, now_ms: i64, plan: &mut Plan) -> usize {
        let id = place.4.clone();
        let Some(entry) = self.jobs.get(&id) else { return 0 };
        let job = entry.job.clone();
        let (JobPhase::Holds(held), Some(asks)) = (&job.phase, job.cells.clone()) else { return 0 };
        if held.ending {
            self.verdicts.tell_partial(&id, None);
            return 0;
        }
        if let Some(holder) = self.cells.claims.keeps_from(place) {
            self.verdicts.tell_partial(&id, Some(kept_for(&asks.vc, &self.shown(holder))));
            return 0;
        }
        let missing: Vec<CellGroupAsk> = self.cells.missing(&job, held).cloned().collect();
        let (clusters, mut asked) = (vec![held.cluster.clone()], 0);
        let looked = self.ask_for(&job, &asks, missing.iter(), clusters, now_ms, plan, &mut asked);
        let waiting = match looked.victims.is_empty() {
            true => looked.waits,
            false => Some(self.waits_for(&looked.victims)),
        };
        if looked.placed.is_empty()
            && looked.victims.is_empty()
            && let Some(waiting) = &waiting
            && self.is_stranded(&job, held, &asks, &missing)
        {
            let message = format!(
                "no pod of it is left on cells in {}, which can give its other pods none: {}",
                held.cluster, waiting.message
            );
            plan.decisions.push(Decision::Move { job: id.clone(), cluster: held.cluster.clone(), message });
        }
        self.verdicts.tell_partial(&id, waiting);
        if !looked.placed.is_empty() {
            self.cells.changed.insert(id);
        }
        asked
    }

    /// Whether a run has no pod on cells any more, its cluster could not hold any of those that wait even if it were empty,
    /// and it keeps the job from a cluster that could hold it, or quota from other jobs.
    pub(super) fn is_stranded(
        &mut self,
        job: &Job,
        held: &Held,
        asks: &CellJob,
        missing: &[CellGroupAsk],
    ) -> bool {
        if self.cells.cells.is_none() || self.cells.groups_of(&job.id, Some(held)).iter().any(has_cells) {
            return false;
        }
        // Cells that are still to be recovered may have pods.
        let mut groups = self.cells.of_job.get(&job.id).into_iter().flatten();
        if groups.any(|(name, _)| self.cells.unrecovered.contains_key(name)) {
            return false;
        }
        let waiting = kinds(missing.iter());
        if waiting.iter().any(|ask| self.cells.could_hold(&[ask], &held.cluster)) {
            return false;
        }
        let holds_quota = self.jobs.get(&job.id).is_some_and(|entry| entry.leaf.is_ok());
        if self.quota.is_some() && holds_quota {
            return true;
        }
        let all = kinds(asks.groups.iter());
        let others = self.clusters_for(job).unwrap_or_default();
        others.iter().any(|cluster| *cluster != held.cluster && self.cells.could_hold(&all, cluster))
    }

    /// Whether quota, configuration and claims let the job start, and the clusters that may be used.
    fn may_start(
        &mut self,
        job: &Job,
        asks: &CellJob,
        place: &Place,
        now_ms: i64,
    ) -> Result<Vec<String>, Waiting> {
        self.never_runs(job, asks)?;
        if let (true, Some(quota), Some(Ok(leaf))) =
            (job.queued, &self.quota, self.jobs.get(&job.id).map(|entry| &entry.leaf))
        {
            let over_ms = job.runtime_ms.map(|run| now_ms.saturating_add(run));
            let may = quota.may_admit(&job.id, *leaf, &job.shape.total, job.preemptible, over_ms);
            may.map_err(|why| match why {
                NotAdmitted::Quota(verdict) => no_quota(&told_apart(verdict, &self.unqueued_use())),
                NotAdmitted::Reserved(holder) => self.reserved_for(&holder),
            })?;
        }
        if let Some(holder) = self.cells.claims.keeps_from(place) {
            return Err(kept_for(&asks.vc, &self.shown(holder)));
        }
        self.clusters_for(job)
    }

    /// Checks once for each job whether its request can ever be satisfied.
    fn never_runs(&mut self, job: &Job, asks: &CellJob) -> Result<(), Waiting> {
        if let Some(waiting) = self.cells.never.get(&job.id) {
            return Err(waiting.clone());
        }
        if self.cells.admitted.contains(&job.id) {
            return Ok(());
        }
        let Some(cells) = self.cells.cells.as_mut() else { return Ok(()) };
        // Groups of pods that start one by one are alike; it is enough to check one of each kind.
        let mut seen: Vec<fleet_cells::GroupRequest> = Vec::new();
        for ask in &asks.groups {
            let mut plain = ask.request.clone();
            plain.affinity_group.name.clear();
            if seen.contains(&plain) {
                continue;
            }
            seen.push(plain);
            if let Err(refusal) = cells.admit(&ask.request) {
                let waiting = Waiting::new(Reason::InvalidCells, refusal.to_string());
                self.cells.never.insert(job.id.clone(), waiting.clone());
                return Err(waiting);
            }
        }
        self.cells.admitted.insert(job.id.clone());
        Ok(())
    }

    fn clusters_for(&mut self, job: &Job) -> Result<Vec<String>, Waiting> {
        if self.rooms.is_empty() {
            let message = "no member cluster has reported its capacity yet";
            return Err(Waiting::new(Reason::ClusterNotReady, message));
        }
        let open = self.open.of(&self.rooms, &job.shape).as_ref().map_err(|why| {
            Waiting::new(Reason::ClusterNotAdmitted, format!("no cluster admits it: {why}"))
        })?;
        let barred = open.iter().find_map(|(name, _)| job.barred.get(name));
        let usable = open.iter().filter(|(name, _)| {
            !job.barred.contains_key(name) && self.rooms.get(name).is_some_and(|room| room.reserves)
        });
        // Clusters in which runs of it ended before come last.
        let mut names: Vec<(bool, usize, String)> =
            usable.map(|(name, group)| (job.avoided.contains(name), *group, name.clone())).collect();
        names.sort();
        match (names.is_empty(), barred) {
            (true, Some(waiting)) => Err(waiting.clone()),
            (true, None) => {
                let message = "no cluster that admits the job supports reservations, which cells require";
                Err(Waiting::new(Reason::ClusterNotAdmitted, message))
            }
            _ => Ok(names.into_iter().map(|(_, _, name)| name).collect()),
        }
    }

    /// Requests the groups of one job, all in one cluster.
    #[expect(clippy::too_many_arguments, reason = "one question in its circumstances")]
    fn ask_for<'g>(
        &mut self,
        job: &Job,
        asks: &CellJob,
        groups: impl Iterator<Item = &'g CellGroupAsk>,
        mut clusters: Vec<String>,
        now_ms: i64,
        plan: &mut Plan,
        asked: &mut usize,
    ) -> Looked {
        let mut looked = Looked { cluster: None, placed: Vec::new(), victims: BTreeSet::new(), waits: None };
        for ask in groups {
            let before = self.cells.state_of(ask.request.name());
            match self.ask_group(&job.id, ask, &clusters, now_ms, plan, asked) {
                Tried::Placed => {
                    if before != Some(GroupState::Allocated) {
                        looked.placed.push(ask.request.name().to_string());
                    }
                    let placed =
                        self.cells.cells.as_ref().and_then(|cells| cells.placement(ask.request.name()));
                    if let Some(placed) = placed {
                        clusters = vec![placed.cluster.clone()];
                        looked.cluster = Some(placed.cluster);
                    }
                }
                Tried::Reserved(victims) => {
                    looked.victims.extend(victims);
                    let placed =
                        self.cells.cells.as_ref().and_then(|cells| cells.placement(ask.request.name()));
                    clusters = placed.map(|placed| vec![placed.cluster]).unwrap_or(clusters);
                }
                Tried::Waits(waiting) => {
                    looked.waits.get_or_insert(waiting);
                    if asks.whole {
                        break;
                    }
                }
            }
        }
        looked
    }

    fn ask_group(
        &mut self,
        id: &JobId,
        ask: &CellGroupAsk,
        clusters: &[String],
        now_ms: i64,
        plan: &mut Plan,
        asked: &mut usize,
    ) -> Tried {
        let Some(cells) = self.cells.cells.as_mut() else {
            return Tried::Waits(Waiting::new(Reason::InvalidCells, "no CellConfiguration is in force"));
        };
        let (mut excluded, mut refusal) = (BTreeSet::new(), "");
        if let Some(JobEntry { refusals, .. }) = self.jobs.get_mut(id) {
            plan.wake_ms = earliest(plan.wake_ms, refusals.excluded.end(now_ms));
            excluded = refusals.excluded.of(ask.pods.iter().map(|(component, _)| component.as_str()));
            refusal = &refusals.message;
        }
        let key = (ask.plain(), clusters.to_vec(), mark(&excluded));
        if cells.group(ask.request.name()).is_none()
            && let Some((_, waiting)) =
                self.cells.refused.get(&key).filter(|(at, _)| *at == self.cells.growth)
        {
            return Tried::Waits(with_refusal(waiting.clone(), refusal));
        }
        *asked += 1;
        let question = Ask {
            now_ms,
            phase: Phase::Preempting,
            suggested: None,
            excluded: Some(&excluded),
            clusters: Some(clusters),
        };
        let decision = cells.schedule(&ask.request, &question);
        let (proposal, preempts) = match decision {
            CellDecision::Place(proposal) => (proposal, false),
            CellDecision::Preempt(proposal) => (proposal, true),
            CellDecision::Wait(reason) => {
                let waiting = wait_text(&reason);
                self.cells.refused.insert(key, (self.cells.growth, waiting.clone()));
                return Tried::Waits(with_refusal(waiting, refusal));
            }
            CellDecision::Refuse(refusal) => {
                return Tried::Waits(Waiting::new(Reason::InvalidCells, refusal.to_string()));
            }
        };
        if cells.commit(&proposal).is_err() {
            // Nothing changes between a proposal and its commit.
            return Tried::Waits(Waiting::new(Reason::Backoff, "the cells changed during the decision"));
        }
        self.cells.note_group(id, ask);
        self.cells.note_commit(&proposal);
        if preempts {
            Tried::Reserved(self.evict_for_cells(id, &proposal, now_ms, plan))
        } else {
            Tried::Placed
        }
    }

    /// Evicts the jobs whose groups are in the way. A job whose pods start one by one loses only those pods.
    fn evict_for_cells(
        &mut self,
        taker: &JobId,
        proposal: &Proposal,
        now_ms: i64,
        plan: &mut Plan,
    ) -> BTreeSet<JobId> {
        let victims = self.cells.jobs_of(proposal.victims.iter().map(|victim| victim.group.clone()));
        let job_of: BTreeMap<&str, JobId> = proposal
            .victims
            .iter()
            .filter_map(|victim| Some((victim.group.as_str(), self.cells.job_of.get(&victim.group)?.clone())))
            .collect();
        let groups_of = |job: &JobId| -> BTreeSet<&str> {
            job_of.iter().filter(|(_, of)| *of == job).map(|(group, _)| *group).collect()
        };
        for victim in &victims {
            let Some(entry) = self.jobs.get(victim) else { continue };
            match &entry.job.phase {
                JobPhase::Waits => {
                    // It has not started: it releases its cells at once, and the preemptor is tried again.
                    self.cells.release_job(victim);
                    plan.more = true;
                }
                JobPhase::Holds(held) if held.lingers => plan.decisions.push(Decision::EndPods {
                    job: victim.clone(),
                    taker: taker.clone(),
                    cluster: proposal.placement.cluster.clone(),
                }),
                JobPhase::Holds(held) if held.ending || mutation::is_on(Mutation::BorrowedCellsKept) => {}
                JobPhase::Holds(_)
                    if self.cells.preempt_groups(&entry.job, &groups_of(victim), taker, now_ms) => {}
                JobPhase::Holds(_) => plan.decisions.push(Decision::Evict {
                    job: victim.clone(),
                    taker: taker.clone(),
                    cluster: proposal.placement.cluster.clone(),
                    rule: TakeRule::VirtualCluster,
                    lost_work_ms: entry.job.lost_work_ms(now_ms),
                }),
            }
        }
        victims
    }

    fn waits_for(&self, victims: &BTreeSet<JobId>) -> Waiting {
        // The suffix tells which run of the job remains.
        let name = |job: &JobId| {
            let whole = job.as_str().split('#').next().unwrap_or_default();
            self.shown(&JobId::new(whole))
        };
        let names: Vec<String> = victims.iter().take(VICTIMS_NAMED).map(name).collect();
        let word = if victims.len() == 1 { "job" } else { "jobs" };
        let message = format!("waits for {} {word} to leave its cells: {}", victims.len(), names.join(", "));
        Waiting::new(Reason::WaitingForVictims, message)
    }
}

/// The reason, with the level that blocks.
fn wait_text(reason: &WaitReason) -> Waiting {
    let kind = match reason.cause {
        WaitCause::TooFewLeaves { .. } | WaitCause::NoChain { .. } => Reason::InsufficientCells,
        WaitCause::NoCellForPods { .. } | WaitCause::SearchLimit { .. } => Reason::CellsFragmented,
        WaitCause::NoCellForGroup { .. } => Reason::WithinOneCell,
        WaitCause::BadNode { .. } | WaitCause::NotSuggested { .. } => Reason::BadCells,
        WaitCause::Excluded { .. } => Reason::ReservationRefused,
        WaitCause::BeingPreempted { .. } => Reason::WaitingForVictims,
    };
    Waiting::new(kind, reason.to_string())
}

/// The member's own words belong to one job, the rest of the answer to all that ask for the same.
fn with_refusal(mut waiting: Waiting, refusal: &str) -> Waiting {
    if waiting.reason == Reason::ReservationRefused && !refusal.is_empty() {
        waiting.message = format!("{}; {refusal}", waiting.message);
    }
    waiting
}

fn kept_for(vc: &str, holder: &str) -> Waiting {
    Waiting::new(
        Reason::Claimed,
        format!("cells of {vc} are reserved for {holder}, which others have passed for too long"),
    )
}

/// Number of jobs by class, for status and tests.
pub(super) fn by_class(jobs: impl Iterator<Item = i32>) -> BTreeMap<i32, i64> {
    let mut counts = BTreeMap::new();
    for class in jobs {
        *counts.entry(class).or_insert(0) += 1;
    }
    counts
}
