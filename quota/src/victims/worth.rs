//! Whether a preemption is worth it: jobs that were preempted repeatedly are protected for a while, a leaf may
//! protect its jobs after their start, and the root may bound the work lost for what is gained.
//!
//! None of this protects against a reclaim inside min.

use super::lineup::Standing;
use super::search::{Search, VictimSet};
use crate::plan::TakeRule;
use crate::planner::{FRESH_MS, StartEnd};
use fleet_quota_tree::NodeId;

/// Work that a job may lose to a smaller share at any time. Of jobs that take a minute or two, more than that would be most
/// of their work; less would leave hardly a victim, because jobs are also protected for 10 s after their start.
const SHARE_LOSS_MS: i64 = 30_000;
/// How long a job must have been behind before it preempts by share a job that would lose more.
const SHARE_PATIENCE_MS: i64 = 600_000;
/// For this long after a queue has lost a job to a smaller share, it preempts nobody by share: what it lacks now it
/// has just given.
const GIVEN_MS: i64 = 10_000;

impl Search<'_> {
    /// Whether the job started at this very moment and its start cannot be taken back. It becomes a candidate a
    /// moment later.
    pub(super) fn just_started(&self, job: &Standing) -> bool {
        let stands = job.just_started == Some(StartEnd::Stands);
        if stands {
            self.protected.again(self.known.now_ms.saturating_add(1));
        }
        stands
    }

    /// Until when the job has not yet run long enough to be preempted by priority or by share.
    fn protected_until_ms(&self, job: &Standing) -> Option<i64> {
        // The start of the present time can be taken back. What a claim has waited for is not for those that the claim
        // has held back.
        if job.is_open() && !job.by_claim {
            return None;
        }
        let left_ms = job.min_left_ms.max(self.fresh_for_ms(job));
        (left_ms > 0).then(|| self.known.now_ms.saturating_add(left_ms))
    }

    /// Until when the job would lose so much work that it does not give way to a smaller share. Shares of queues
    /// differ by a job most of the time, and in the end of some other job they may even out without a loss.
    fn spared_until_ms(&self, job: &Standing) -> Option<i64> {
        if !self.known.saves_work || job.lost_work_ms <= SHARE_LOSS_MS {
            return None;
        }
        let now_ms = self.known.now_ms;
        let until_ms = self.known.behind_since_ms.unwrap_or(now_ms).saturating_add(SHARE_PATIENCE_MS);
        (until_ms > now_ms).then_some(until_ms)
    }

    /// Whether the job has not yet run long enough to be preempted by priority or by share.
    pub(super) fn is_protected(&self, job: &Standing) -> bool {
        // Its start can be taken back now, and is protected from the next moment on: search again then.
        if job.is_open() && (job.min_ms > 0 || self.fresh_for_ms(job) > 0) {
            self.protected.again(self.known.now_ms.saturating_add(1));
        }
        let until_ms = self.protected_until_ms(job);
        if let Some(until_ms) = until_ms {
            self.protected.note(until_ms, &job.job().id);
        }
        until_ms.is_some()
    }

    /// Whether the job would lose so much work that it gives way to a smaller share only after a while.
    pub(super) fn would_lose_too_much(&self, job: &Standing) -> bool {
        let until_ms = self.spared_until_ms(job);
        if let Some(until_ms) = until_ms {
            self.protected.note_work(until_ms, &job.job().id);
        }
        until_ms.is_some()
    }

    /// Whether a smaller share may not preempt the job, and that is nothing new: another job is known that it may
    /// preempt as soon. So most jobs of a deep search cost two comparisons.
    pub(super) fn adds_nothing(&self, job: &Standing) -> bool {
        match self.protected_until_ms(job) {
            Some(until_ms) => self.protected.knows(until_ms, false),
            None => {
                let spared = self.spared_until_ms(job).filter(|_| job.just_started.is_none());
                spared.is_some_and(|until_ms| self.protected.knows(until_ms, true))
            }
        }
    }

    /// Whether a job below the node, which is on the preemptor's path, was preempted by share a moment ago.
    pub(super) fn has_just_given(&self, node: NodeId) -> bool {
        if !self.known.saves_work {
            return false;
        }
        let given_ms = self.known.given.get(&node).map(|given_ms| given_ms.saturating_add(GIVEN_MS));
        let until_ms = given_ms.filter(|until_ms| *until_ms > self.known.now_ms);
        if let Some(until_ms) = until_ms {
            self.protected.again(until_ms);
        }
        until_ms.is_some()
    }

    /// How much longer the job is protected from the preemptor, which already waited when the job started.
    fn fresh_for_ms(&self, job: &Standing) -> i64 {
        let Some(started_ms) = job.fresh_since_ms else { return 0 };
        let waited = self.preemptor.enqueued_at_ms < started_ms;
        if waited { started_ms.saturating_add(FRESH_MS).saturating_sub(self.known.now_ms) } else { 0 }
    }

    /// Whether more GPU time is lost than the root allows for what the preemptor gains.
    pub(super) fn costs_too_much(&self, found: &VictimSet) -> bool {
        let Some(limit_milli) = self.tree.max_loss_milli() else { return false };
        if found.victims.iter().any(|victim| victim.rule == TakeRule::Reclaim) {
            return false;
        }
        // A run time that is not declared is no gain that could be weighed against a loss.
        let run_ms = self.preemptor.run_time_ms.unwrap_or(0);
        let gpus = |request: &fleet_resources::Resources| -> i128 {
            request.iter().filter(|(name, _)| name.as_str().ends_with(GPU)).map(|(_, n)| i128::from(n)).sum()
        };
        let lost = found.victims.iter().filter_map(|victim| {
            Some(gpus(&self.ledger.job(&victim.job)?.request) * i128::from(victim.lost_work_ms))
        });
        let gained = gpus(&self.preemptor.request) * i128::from(run_ms);
        lost.sum::<i128>() * 1000 > gained * i128::from(limit_milli)
    }
}

/// Suffix of the name of every GPU resource.
const GPU: &str = "/gpu";
