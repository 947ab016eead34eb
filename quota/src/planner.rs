//! The planner: what waits, what is admitted, and what to do about it now.
//!
//! Events come in through its methods, each of which marks only what it can
//! unblock; [`Planner::plan`] then walks the jobs in the order of the tree: jobs
//! that stay inside min before borrowers; among borrowers, from the root down,
//! the child with the smallest dominant share after the job; ties by priority,
//! age, name. A job is admitted when its quota path has room and the oracle
//! holds its gang: one decision.

mod tournament;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ledger::{AdmittedJob, JobId, Ledger};
use crate::places::{ClusterName, Places};
use crate::plan::{Decision, Outcome, Plan, PlanLimits, WaitReason};
use crate::queues::{QueuePolicy, Queues, WaitingJob};
use crate::tree::{NodeId, QuotaTree};
use tournament::Tournament;

/// Jobs, quota and what follows from both, kept between plans.
#[derive(Clone, Debug)]
pub struct Planner {
    ledger: Ledger,
    queues: Queues,
    ending: BTreeSet<JobId>,
    /// Reasons as the last plan saw them, by the job that it looked at.
    seen: BTreeMap<JobId, WaitReason>,
}

impl Planner {
    pub fn new(tree: Arc<QuotaTree>) -> Self {
        Self {
            ledger: Ledger::new(tree),
            queues: Queues::new(),
            ending: BTreeSet::new(),
            seen: BTreeMap::new(),
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

    pub fn set_policy(&mut self, leaf: NodeId, policy: QueuePolicy) {
        self.queues.set_policy(leaf, policy);
    }

    /// A job waits, or what is known of a waiting one has changed. One that
    /// holds quota is released first.
    pub fn enqueue(&mut self, job: WaitingJob) {
        self.release(&job.id);
        self.queues.enqueue(job);
    }

    /// A job waits no longer.
    pub fn remove(&mut self, id: &JobId) -> Option<WaitingJob> {
        self.queues.remove(id)
    }

    /// Keeps the job's place in line but does not look at it before `until_ms`.
    pub fn back_off(&mut self, id: &JobId, until_ms: i64) {
        self.queues.back_off(id, until_ms);
    }

    /// A job holds quota, whether there is room or not: a restart tells what
    /// runs. False, changing nothing, when it is known to hold it.
    pub fn admit(&mut self, job: AdmittedJob) -> bool {
        self.queues.remove(&job.id);
        self.ledger.admit(job)
    }

    /// A job holds nothing any more.
    pub fn release(&mut self, id: &JobId) -> Option<AdmittedJob> {
        self.ending.remove(id);
        self.ledger.release(id)
    }

    /// An admitted job is on its way out: its room is coming.
    pub fn ending(&mut self, id: &JobId) {
        if self.ledger.job(id).is_some() {
            self.ending.insert(id.clone());
        }
    }

    /// Places in one cluster have become free.
    pub fn places_freed(&mut self, _cluster: &ClusterName) {}

    /// Any answer of the oracle may have changed.
    pub fn places_changed(&mut self) {}

    /// Decides what to do now. Who is admitted holds quota and places when this
    /// returns and waits no longer; who cannot be bound is given back with
    /// [`enqueue`](Self::enqueue).
    pub fn plan(&mut self, now_ms: i64, limits: PlanLimits, places: &mut dyn Places) -> Plan {
        let mut plan = Plan::default();
        let mut tournament = Tournament::new(&self.ledger, &self.queues, now_ms, &mut plan.decisions);
        let mut probes = 0;
        let mut admitted = Vec::new();
        while let Some((leaf, job)) = tournament.winner() {
            if probes >= limits.probes || admitted.len() >= limits.admissions {
                plan.more = true;
                break;
            }
            probes += 1;
            let Some(cluster) = places.take(job, &BTreeSet::new()) else {
                tournament.refused(&self.ledger, leaf, WaitReason::NoPlace, &mut plan.decisions);
                continue;
            };
            self.ledger.admit(AdmittedJob {
                id: job.id.clone(),
                leaf,
                request: job.request.clone(),
                preemptible: job.preemptible,
                priority: job.priority,
                admitted_at_ms: now_ms,
            });
            admitted.push(job.id.clone());
            plan.decisions.push(Decision { job: job.id.clone(), leaf, outcome: Outcome::Admit { cluster } });
            tournament.admitted(&self.ledger, leaf, &mut plan.decisions);
        }
        let waits = plan.decisions.iter().filter_map(|decision| match &decision.outcome {
            Outcome::Wait(reason) => Some((decision.job.clone(), reason.clone())),
            _ => None,
        });
        for decision in &plan.decisions {
            if let Outcome::Wait(WaitReason::Backoff { until_ms }) = decision.outcome {
                plan.wake_at_ms = Some(plan.wake_at_ms.map_or(until_ms, |wake| wake.min(until_ms)));
            }
        }
        for id in admitted {
            self.queues.remove(&id);
        }
        self.seen = waits.collect();
        plan
    }

    /// Why a waiting job waits, with today's numbers; `None` when nothing but
    /// the next plan stands before it, or it does not wait.
    pub fn reason(&self, id: &JobId) -> Option<WaitReason> {
        if let Some(seen) = self.equals(id).find_map(|equal| self.seen.get(equal)) {
            return Some(seen.clone());
        }
        let job = self.queues.get(id)?;
        self.ledger.check(job.leaf, &job.request, job.preemptible).err().map(WaitReason::Quota)
    }

    /// The waiting jobs of the same leaf that are equal to this one for the
    /// planner, itself included, in order: what stops one stops all.
    pub fn equals(&self, id: &JobId) -> impl Iterator<Item = &JobId> {
        self.queues.equals(id)
    }
}
