//! The life of one run of a job, as pure rules. From facts to a verdict: the run goes on, the job has ended, or the
//! run ends before its job; and what earlier runs mean for the next one.
//!
//! Inputs: facts about the run, its job and its cluster; times in milliseconds since 1970. The controller's
//! dispatch and the fast simulation use the same rules. Deliberately absent: objects, clients, clocks, and the
//! writes that follow from a verdict.

pub mod attempts;
mod judge;
pub mod purge;

pub use attempts::{Attempt, Avoid, AvoidReason};
pub use judge::{Cluster, Eviction, Job, Judgement, NotTolerated, Report, Run, Verdict, judge, standing};

/// Milliseconds of a second.
const SECOND_MS: i64 = 1000;

/// Limits that an operator may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest time a gang may take from its binding to its start, unless the job says another.
    pub start_timeout_ms: i64,
    /// How long a cluster is chosen last for a job after it failed that job once; doubles with each failure.
    pub avoid_base_ms: i64,
    /// Runs of one job before a failure is final, under a policy with application failover.
    pub attempts: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { start_timeout_ms: 600 * SECOND_MS, avoid_base_ms: 3600 * SECOND_MS, attempts: 3 }
    }
}

/// Adds seconds of a policy to a time; they may be negative (none) or huge (never).
pub(crate) fn after_s(from_ms: i64, seconds: i64) -> i64 {
    from_ms.saturating_add(seconds.max(0).saturating_mul(SECOND_MS))
}

/// The earlier of two wake-up times.
pub fn earliest(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
