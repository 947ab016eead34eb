//! Jobs that have just started, and victims that have just been evicted.

use std::cmp::Reverse;

use super::holds::Claiming;
use super::watches::PastClaims;
use crate::ledger::AdmittedJob;
use crate::names::{ClusterName, JobId};
use crate::queues::WaitingJob;
use fleet_quota_tree::NodeId;

/// For this long after a start, jobs that already waited then do not preempt it by priority or by share: the start
/// was decided with them in view.
pub(crate) const FRESH_MS: i64 = 10_000;

/// A job that was started at the present time.
#[derive(Clone, Debug)]
pub(crate) struct Started {
    pub(super) job: WaitingJob,
    pub cluster: ClusterName,
    /// The claim by which it started.
    pub(super) claim: Option<Claiming>,
    pub(super) past_claims: PastClaims,
    pub end: StartEnd,
}

impl Started {
    pub fn by_claim(&self) -> bool {
        self.claim.is_some()
    }
}

/// Whether a start may still be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartEnd {
    /// The present plan made it: a job with a right to its capacity has it taken back.
    Open,
    TakenBack,
    /// It is final: an earlier plan reported it, or others were evicted for it. The job is no victim until a moment
    /// has passed.
    Stands,
}

/// Leaf, priority and age of a victim: its place in the queue once it waits again.
pub(super) fn evicted_key(job: &AdmittedJob) -> (NodeId, Reverse<i64>, i64, JobId) {
    (job.leaf, Reverse(job.priority), job.enqueued_at_ms, job.id.clone())
}
