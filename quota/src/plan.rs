//! Who is admitted next.
//!
//! One plan walks the waiting jobs in the order of the tree: jobs that stay
//! inside min before borrowers; among borrowers, from the root down, the child
//! with the smallest dominant share after the job; ties by priority, age, name.
//! A job is admitted when its quota path has room and the caller's probe holds
//! its gang: one decision. Each class of equal jobs is refused at most once per
//! plan, so a plan costs by kinds of job, not by jobs.

mod tournament;

use crate::ledger::{AdmittedJob, JobId, Ledger};
use crate::queues::{Queues, WaitingJob};
use crate::tree::NodeId;
use crate::verdict::Verdict;
use tournament::Tournament;

/// Bounds of one plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanLimits {
    /// Jobs admitted at most.
    pub admissions: usize,
    /// Probes asked at most.
    pub probes: usize,
}

impl Default for PlanLimits {
    fn default() -> Self {
        Self { admissions: 10_000, probes: 100_000 }
    }
}

/// Why a job that was looked at waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// The tree has no room.
    Quota(Verdict),
    /// The tree has room, no cluster holds the gang.
    NoPlace,
    /// An earlier job of the leaf goes first and cannot start.
    BehindHead(JobId),
    /// It was refused lately.
    Backoff { until_ms: i64 },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Admit,
    Wait(WaitReason),
}

/// What was decided on one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub job: JobId,
    pub leaf: NodeId,
    pub outcome: Outcome,
}

/// What to do now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In the order in which they were taken. Of equal waiting jobs only the
    /// first is named; the others wait for the same reason.
    pub decisions: Vec<Decision>,
    /// A bound was hit: plan again soon.
    pub more: bool,
}

impl Plan {
    pub fn admitted(&self) -> impl Iterator<Item = &JobId> {
        let admitted = self.decisions.iter().filter(|decision| decision.outcome == Outcome::Admit);
        admitted.map(|decision| &decision.job)
    }

    /// Why `job` waits: its own decision, or that of the first of its equals.
    /// `None` where it was not looked at.
    pub fn reason_for(&self, queues: &Queues, job: &JobId) -> Option<&WaitReason> {
        let job = queues.get(job)?;
        let mut by_class = None;
        for decision in &self.decisions {
            let Outcome::Wait(reason) = &decision.outcome else {
                continue;
            };
            if decision.job == job.id {
                return Some(reason);
            }
            let equal = queues.get(&decision.job).is_some_and(|other| {
                other.leaf == job.leaf
                    && other.shape == job.shape
                    && other.preemptible == job.preemptible
                    && other.request == job.request
            });
            if equal && !matches!(reason, WaitReason::Backoff { .. }) {
                by_class = Some(reason);
            }
        }
        by_class
    }
}

/// Decides who is admitted now, and takes quota for them in `ledger`; the
/// caller removes them from `queues`, and releases those it cannot bind.
/// `try_place` is asked once quota allows the job: true means that a cluster
/// holds its gang from now on.
pub fn plan(
    ledger: &mut Ledger,
    queues: &Queues,
    now_ms: i64,
    limits: PlanLimits,
    try_place: &mut dyn FnMut(&WaitingJob) -> bool,
) -> Plan {
    let mut plan = Plan::default();
    let mut tournament = Tournament::new(ledger, queues, now_ms, &mut plan.decisions);
    let mut probes = 0;
    let mut admissions = 0;
    while let Some((leaf, job)) = tournament.winner() {
        if probes >= limits.probes || admissions >= limits.admissions {
            plan.more = true;
            break;
        }
        probes += 1;
        if try_place(job) {
            admissions += 1;
            ledger.admit(AdmittedJob {
                id: job.id.clone(),
                leaf,
                request: job.request.clone(),
                preemptible: job.preemptible,
                priority: job.priority,
                admitted_at_ms: now_ms,
            });
            plan.decisions.push(Decision { job: job.id.clone(), leaf, outcome: Outcome::Admit });
            tournament.admitted(ledger, leaf, &mut plan.decisions);
        } else {
            tournament.refused(ledger, leaf, WaitReason::NoPlace, &mut plan.decisions);
        }
    }
    plan
}
