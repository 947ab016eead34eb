//! One plan over all waiting jobs: carries out the quota planner's decisions and records the reasons.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fleet_api::queue::UnitClaim;
use fleet_policies::{
    names::{Named, object_of_binding},
    reason::Reason,
};
use fleet_quota::{Claim, JobId, Outcome, QuotaRefusal, Rule, Take, TakeRule, WaitReason};
use fleet_quota_tree::MAX_JOBS;
use fleet_resources::{Resources, quantity};

use super::{Planner, admit};
use crate::{
    decision::{Decision, Plan, earliest},
    job::{JobPhase, Waiting, name_of, namespace_of},
    place::{ClusterPlaces, exceeds_every_cluster},
    room::CapacityChange,
};

/// Victims named in a preemptor's reason; the rest are only counted.
const VICTIMS_NAMED: usize = 5;

impl Planner {
    /// Decides on all waiting jobs.
    pub fn plan(&mut self, now_ms: i64) -> Plan {
        if self.drained {
            self.set_tree(self.tree.clone(), now_ms);
        }
        self.moved = false;
        self.sequence += 1;
        let (changed, due) = self.rooms.give_up_leaving(now_ms);
        for cluster in changed {
            self.note(&cluster, CapacityChange::Grown);
        }
        let mut plan = Plan { sequence: self.sequence, wake_ms: due, ..Plan::default() };
        self.plan_cells(now_ms, &mut plan);
        // Jobs without a queue come first, and their use counts in the tree before its own jobs are
        // considered.
        let direct: Vec<JobId> = self.direct.iter().map(|(_, _, id)| id.clone()).collect();
        let mut places = self.cluster_places(now_ms);
        let none = BTreeSet::new();
        let placed: Vec<(JobId, String)> = direct
            .into_iter()
            .filter_map(|id| places.place(&id, &none).map(|cluster| (id, cluster)))
            .collect();
        let refused = places.no_place;
        for (id, cluster) in placed {
            self.start(&id, cluster, now_ms, &mut plan);
        }
        self.hold_back_refused(&refused, now_ms, &mut plan);
        for (id, waiting) in refused {
            self.verdicts.tell(&id, waiting);
        }
        if let Some(mut quota) = self.quota.take() {
            let limits = self.settings.limits;
            let mut places = self.cluster_places(now_ms);
            let found = quota.plan(now_ms, limits, &mut places);
            let no_place = places.no_place;
            self.quota = Some(quota);
            self.act(found, no_place, now_ms, &mut plan);
            self.tell_of_sizes();
        }
        self.end_lingering(&mut plan);
        if let Some(quota) = &self.quota {
            self.verdicts.end_own(|id| quota.is_candidate(id));
        }
        let jobs = &self.jobs;
        let is_blocked = |id: &JobId| jobs.get(id).is_some_and(|entry| entry.job.blocked.is_some());
        plan.told = self.verdicts.take_told(now_ms, is_blocked);
        plan.wake_ms = earliest(plan.wake_ms, self.verdicts.next_sweep_ms());
        plan
    }

    /// Whoever waits for pods that jobs have left behind gets what they use. This is asked again in each plan, so an
    /// answer that is lost costs nothing.
    fn end_lingering(&self, plan: &mut Plan) {
        let Some(quota) = &self.quota else { return };
        for job in &self.lingering {
            if let Some((taker, cluster)) = quota.waits_for(job) {
                let (job, taker) = (job.clone(), taker.clone());
                plan.decisions.push(Decision::EndPods { job, taker, cluster: cluster.as_str().to_string() });
            }
        }
    }

    fn cluster_places(&mut self, now_ms: i64) -> ClusterPlaces<'_> {
        ClusterPlaces {
            rooms: &mut self.rooms,
            open: &mut self.open,
            jobs: &self.jobs,
            learnt: &self.learnt,
            now_ms,
            no_place: BTreeMap::new(),
        }
    }

    /// Carries out the decisions of the quota planner.
    fn act(
        &mut self,
        found: fleet_quota::QuotaPlan,
        mut no_place: BTreeMap<JobId, Waiting>,
        now_ms: i64,
        plan: &mut Plan,
    ) {
        plan.more = found.more;
        plan.wake_ms = earliest(plan.wake_ms, found.wake_at_ms.filter(|wake| *wake != i64::MAX));
        self.hold_back_refused(&no_place, now_ms, plan);
        let mut given_up = BTreeSet::new();
        let quota_stops = |outcome: &Outcome| matches!(outcome, Outcome::Wait(WaitReason::Quota(_)));
        let unqueued = match found.decisions.iter().any(|decision| quota_stops(&decision.outcome)) {
            true => self.unqueued_use(),
            false => UnqueuedUse::default(),
        };
        for fleet_quota::Decision { job, outcome, .. } in found.decisions {
            match outcome {
                Outcome::Admit { cluster } => self.start(&job, cluster.as_str().to_string(), now_ms, plan),
                Outcome::Take(take) => evict(&job, take, plan),
                Outcome::Claim(claim) => self.tell_claim(&job, &claim),
                Outcome::GiveUp(claim) => {
                    self.verdicts
                        .tell(&job, Waiting::new(Reason::ClaimGivenUp, given_up_text(&claim, now_ms)));
                    given_up.insert(job);
                }
                // The loss of its claim or preemption is reported first.
                Outcome::Wait(_) if given_up.contains(&job) => {}
                Outcome::Wait(WaitReason::Backoff { until_ms }) => {
                    self.tell_own(&job, Waiting::new(Reason::Backoff, backoff_text(until_ms, now_ms)));
                    given_up.insert(job);
                }
                Outcome::Wait(WaitReason::Quota(verdict)) => {
                    let verdict = told_apart(verdict, &unqueued);
                    self.explain(&job, WaitReason::Quota(verdict), &mut no_place);
                }
                Outcome::Wait(reason) => self.explain(&job, reason, &mut no_place),
            }
        }
        // A decision is reported when its kind changes; what a cluster lacks changes within one kind.
        for (id, waiting) in no_place.into_iter().filter(|(id, _)| !given_up.contains(id)) {
            let told = self.verdicts.get(&id).map(|told| told.reason);
            let kept = matches!(
                told,
                Some(
                    Reason::WaitingForVictims
                        | Reason::Claimed
                        | Reason::ClaimGivenUp
                        | Reason::VictimProtected
                )
            );
            let class =
                self.jobs.get(&id).filter(|entry| entry.job.phase == JobPhase::Waits).map(|e| e.class);
            if class.filter(|_| !kept).is_some() {
                self.tell_equals(&id, &waiting);
                self.verdicts.tell(&id, waiting);
            }
        }
    }

    /// Victims may run in other clusters than the one in which the job will start, if quota alone is short.
    fn victims_text(&self, cluster: &str, victims: &[JobId]) -> String {
        let elsewhere = |id: &JobId| match &self.jobs.get(id)?.job.phase {
            JobPhase::Holds(held) if held.cluster != cluster => Some(held.cluster.as_str()),
            _ => None,
        };
        let named = victims.iter().take(VICTIMS_NAMED).map(|id| match elsewhere(id) {
            Some(other) => format!("{} in {other}", self.shown(id)),
            None => self.shown(id),
        });
        let names: Vec<String> = named.collect();
        let count = victims.len();
        let jobs = if count == 1 { "job" } else { "jobs" };
        match victims.iter().any(|id| elsewhere(id).is_some()) {
            true => format!("waits for {count} {jobs} to end, to start in {cluster}: {}", names.join(", ")),
            false => format!("waits in {cluster} for {count} {jobs} to end: {}", names.join(", ")),
        }
    }

    fn tell_claim(&mut self, job: &JobId, claim: &Claim) {
        // Nothing that is another number a second later: when it starts is in `claim`.
        let start = match claim.start_ms {
            Some(_) => "until enough jobs there have ended",
            None => "until enough jobs there have ended, or until it gives the claim up",
        };
        let message = format!(
            "holds a claim on {}: others have passed it for too long; capacity of {} is reserved for it {start}",
            claim.cluster, claim.path
        );
        let reserved = UnitClaim::new(claim.cluster.as_str(), claim.since_ms, claim.start_ms, claim.until_ms);
        let waiting = Waiting::new(Reason::Claimed, message);
        self.tell_own(job, Waiting { claim: Some(Box::new(reserved)), ..waiting });
    }

    fn tell_own(&mut self, job: &JobId, waiting: Waiting) {
        let class = self.jobs.get(job).and_then(|entry| entry.class);
        self.verdicts.tell_own(job, class, waiting);
    }

    /// Tells what stops the first job of a class to its equals. Where capacity of quota is free, and reserved or in no
    /// cluster, to as many as it is enough for: the others wait for quota all the time.
    fn tell_equals(&mut self, id: &JobId, waiting: &Waiting) {
        let Some((entry, class)) = self.jobs.get(id).and_then(|entry| Some((entry, entry.class?))) else {
            return;
        };
        let count = match (waiting.reason, self.quota.as_ref()) {
            (Reason::NoClusterFits, Some(quota)) => quota.room_for(id),
            (Reason::Claimed, Some(quota)) => {
                quota.room_for(id).min(self.rooms.free_for(&entry.job.shape.total))
            }
            _ => usize::MAX,
        };
        let equals = self.quota.iter().flat_map(|quota| quota.equals(id)).take(count.max(1));
        if count >= self.verdicts.told_in(class) {
            self.verdicts.tell_class(class, waiting);
        } else {
            let first = equals.cloned().collect();
            self.verdicts.tell_first(class, waiting, first);
        }
    }

    /// What jobs that never waited in a queue use, at each node of the tree.
    pub(super) fn unqueued_use(&self) -> UnqueuedUse {
        let mut sums = UnqueuedUse::default();
        let Some(ledger) = self.ledger() else { return sums };
        for job in self.unqueued.iter().filter_map(|id| ledger.job(id)) {
            for node in ledger.tree().path_to_root(job.leaf) {
                let path = &ledger.tree().node(node).path;
                let sum = match sums.get_mut(path) {
                    Some(sum) => sum,
                    None => sums.entry(path.clone()).or_default(),
                };
                let counted = if job.preemptible { 1 } else { 2 };
                for sum in sum.iter_mut().take(counted) {
                    sum.add(&job.request);
                    sum.set(MAX_JOBS, sum.get(MAX_JOBS) + 1);
                }
            }
        }
        sums
    }

    /// Quota and capacity are taken: the job leaves its queue.
    pub(super) fn start(&mut self, id: &JobId, cluster: String, now_ms: i64, plan: &mut Plan) {
        self.unqueue(id);
        self.verdicts.remove(id);
        let Some(entry) = self.jobs.get_mut(id) else { return };
        entry.job.phase = JobPhase::holds(&cluster);
        if let (Some(quota), Ok(leaf)) = (self.quota.as_mut(), &entry.leaf) {
            admit(quota, &entry.job, *leaf, now_ms);
        }
        let reserves = self.rooms.get(&cluster).is_none_or(|room| room.reserves);
        plan.decisions.push(match reserves {
            true => Decision::Ask { job: id.clone(), cluster },
            false => Decision::Bind { job: id.clone(), cluster },
        });
    }

    /// Sets aside, for a while, jobs that every candidate with capacity has refused. Preemptors and holders
    /// of claims are not set aside: their victims would end in vain.
    fn hold_back_refused(&mut self, no_place: &BTreeMap<JobId, Waiting>, now_ms: i64, plan: &mut Plan) {
        for id in no_place.keys() {
            let Some(entry) = self.jobs.get_mut(id) else { continue };
            let holds_room = self.quota.as_ref().is_some_and(|quota| quota.holds_room(id));
            if !entry.refusals.tried.is_empty() && !holds_room {
                entry.refusals.hold_back(id, &self.settings, now_ms);
            }
            let Some(until) = entry.refusals.until_ms.filter(|until| *until > now_ms) else { continue };
            plan.wake_ms = earliest(plan.wake_ms, Some(until));
            let queued = self.quota.as_ref().and_then(|quota| quota.queues().get(id));
            if queued.is_some_and(|job| job.not_before_ms < until) {
                self.unqueue(id);
                self.enqueue(id);
            }
        }
    }

    /// A job as its user names it: without the kind that its binding's name ends in.
    pub fn shown(&self, id: &JobId) -> String {
        let shape = self.jobs.get(id).map(|entry| &entry.job.shape);
        // A suffix tells which run of the job remains.
        let plain = JobId::new(id.as_str().split('#').next().unwrap_or_default());
        let named =
            shape.and_then(|shape| object_of_binding(&shape.api_version, &shape.kind, name_of(&plain)));
        match named {
            Some(Named::Exactly(name)) if !name.is_empty() => format!("{}/{name}", namespace_of(id)),
            _ => plain.to_string(),
        }
    }

    /// The message of an eviction. A job that writes no checkpoints has lost its work since its start.
    pub fn preemption_text(
        &self,
        victim: &JobId,
        taker: &JobId,
        cluster: &str,
        rule: TakeRule,
        lost_work_ms: i64,
    ) -> String {
        let checkpoint = self.job(victim).and_then(|job| job.checkpoint_at_ms);
        let since = if checkpoint.is_some() { " since its last checkpoint" } else { "" };
        let (taker, rule, lost_s) = (self.shown(taker), rule.as_str(), lost_work_ms / 1000);
        format!("preempted by {taker} in {cluster} ({rule}); {lost_s} s of work{since} are lost")
    }

    /// Capacity is free, and reserved for another job.
    pub(crate) fn reserved_for(&self, holder: &JobId) -> Waiting {
        let claims = self.quota.as_ref().is_some_and(|quota| quota.claims().any(|(job, _)| job == holder));
        let why = match claims {
            true => "which others have passed for too long",
            false => "whose victims are ending",
        };
        let message = format!("capacity is reserved for {}, {why}", self.shown(holder));
        Waiting::new(Reason::Claimed, message)
    }

    /// The quota tree has no capacity for the job; or no cluster ever will, so that it waits for nobody's end.
    fn no_quota_for(&mut self, id: &JobId, verdict: &QuotaRefusal) -> Waiting {
        let shape = self.jobs.get(id).map(|entry| Arc::clone(&entry.job.shape));
        let never = match (verdict, shape) {
            (QuotaRefusal::ExceedsQuota(_), _) | (_, None) => None,
            (_, Some(shape)) => exceeds_every_cluster(&mut self.rooms, &shape),
        };
        never.unwrap_or_else(|| no_quota(verdict))
    }

    /// Clusters or their nodes have changed: jobs that wait for quota may have become too large for all of them, or
    /// fit into one again.
    fn tell_of_sizes(&mut self) {
        if std::mem::replace(&mut self.sizes_told_at, self.rooms.empty_version) == self.rooms.empty_version {
            return;
        }
        for id in self.verdicts.first_of_classes() {
            let told = self.verdicts.get(&id).map(|told| told.reason);
            let about_quota = matches!(
                told,
                Some(
                    Reason::ExceedsEveryCluster
                        | Reason::InsufficientQuota
                        | Reason::InsufficientQuotaInParent
                        | Reason::InsufficientMin
                        | Reason::MaxJobs
                )
            );
            let reason = self.quota.as_ref().filter(|_| about_quota).and_then(|quota| quota.reason(&id));
            if let Some(WaitReason::Quota(verdict)) = reason {
                let verdict = told_apart(verdict, &self.unqueued_use());
                let waiting = self.no_quota_for(&id, &verdict);
                if told != Some(waiting.reason) {
                    self.tell_equals(&id, &waiting);
                    self.verdicts.tell(&id, waiting);
                }
            }
        }
    }

    /// Converts a reason to sentences, for the job and for its equals.
    fn explain(&mut self, id: &JobId, reason: WaitReason, no_place: &mut BTreeMap<JobId, Waiting>) {
        let waiting = match reason {
            WaitReason::Quota(verdict) => self.no_quota_for(id, &verdict),
            WaitReason::NoPlace => match no_place.remove(id) {
                Some(waiting) => waiting,
                None => return,
            },
            WaitReason::BehindHead(head) => {
                let head = self.shown(&head);
                Waiting::new(
                    Reason::BehindHead,
                    format!("{head} is the head of this queue and cannot start yet"),
                )
            }
            WaitReason::Claimed { holder } => self.reserved_for(&holder),
            WaitReason::Protected { victim, .. } => {
                let message = format!(
                    "it could preempt {}, which is protected from that for a while",
                    self.shown(&victim)
                );
                let waiting = Waiting::new(Reason::VictimProtected, message);
                if let Some(class) = self.jobs.get(id).and_then(|entry| entry.class) {
                    self.verdicts.tell_first(class, &waiting, BTreeSet::from([id.clone()]));
                }
                self.verdicts.tell(id, waiting);
                return;
            }
            WaitReason::WaitingForVictims { cluster, victims } => {
                let message = self.victims_text(cluster.as_str(), &victims);
                self.tell_own(id, Waiting::new(Reason::WaitingForVictims, message));
                return;
            }
            WaitReason::Backoff { .. } => return,
        };
        self.tell_equals(id, &waiting);
        self.verdicts.tell(id, waiting);
    }
}

/// By path: of all jobs without a queue, and of those among them that may not be preempted.
pub(super) type UnqueuedUse = BTreeMap<String, [Resources; 2]>;

/// The use of jobs without a queue is shown beside that of the others, as in the status of the tree.
pub(super) fn told_apart(verdict: QuotaRefusal, unqueued: &UnqueuedUse) -> QuotaRefusal {
    let short = verdict.shortfall();
    let Some([all, firm]) = unqueued.get(&short.path) else { return verdict };
    let sum = if short.rule == Rule::Max { all } else { firm };
    let unqueued = sum.get(short.resource.as_str());
    verdict.beside(unqueued)
}

/// The quota tree has no capacity for the job.
pub(super) fn no_quota(verdict: &QuotaRefusal) -> Waiting {
    let reason = Reason::from_text(verdict.reason()).unwrap_or(Reason::InsufficientQuota);
    Waiting::new(reason, verdict.sentence())
}

fn backoff_text(until_ms: i64, now_ms: i64) -> String {
    format!(
        "gave up its preemption: its victims have ended, and what they left is not enough; it is considered again after a pause of {} s",
        ((until_ms - now_ms).max(0) + 999) / 1000
    )
}

fn given_up_text(claim: &Claim, now_ms: i64) -> String {
    let kept_s = ((now_ms - claim.since_ms) / 1000).max(1);
    let idle: Vec<String> = claim
        .idled
        .iter()
        .map(|(name, amount)| (name.as_str(), amount / kept_s))
        .filter(|(_, mean)| *mean > 0)
        .map(|(name, mean)| format!("{} {name}", quantity::format(name, mean)))
        .collect();
    let idle = match idle.is_empty() {
        true => "no capacity was idle".to_string(),
        false => format!("{} idle on average", idle.join(", ")),
    };
    format!("gave up its claim on {} after {kept_s} s: no start can be predicted; {idle}", claim.cluster)
}

fn evict(taker: &JobId, take: Take, plan: &mut Plan) {
    plan.decisions.extend(take.victims.into_iter().map(|victim| Decision::Evict {
        job: victim.job,
        taker: taker.clone(),
        cluster: take.cluster.as_str().to_string(),
        rule: victim.rule,
        lost_work_ms: victim.lost_work_ms,
    }));
}
