//! The result of a plan.

use std::collections::BTreeSet;

use fleet_quota::{JobId, TakeRule};
use serde::{Deserialize, Serialize};

/// An action for the caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub enum Decision {
    /// Request a reservation of places for the whole job from the member. The job holds quota and capacity
    /// from now on, until the caller reports otherwise.
    Ask { job: JobId, cluster: String },
    /// Bind the job to the cluster: its places are reserved, or the member has no reservations.
    Bind { job: JobId, cluster: String },
    /// Preempt the job for `taker`, which starts in `cluster` once all its victims have ended. The decision
    /// is repeated until the caller reports that the run is ending.
    Evict { job: JobId, taker: JobId, cluster: String, rule: TakeRule, lost_work_ms: i64 },
    /// End the pods that a job has left behind, for `taker`, which needs their places, cells or quota and starts in
    /// `cluster`: they do no work that counts. The decision is repeated until the caller reports that they are told to end.
    EndPods { job: JobId, taker: JobId, cluster: String },
    /// End the run, so that the job is placed elsewhere: none of its pods is left on cells of the cluster, which can give it
    /// no others. The decision is repeated until the caller reports that the run is ending.
    Move { job: JobId, cluster: String, message: String },
    /// The cells of a job that holds places have changed: update its reservation.
    Regroup { job: JobId, cluster: String },
}

/// The member's answer to a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Reserved,
    Refused { message: String },
}

/// The result of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    /// Number of the plan, from 1 on; a new planner starts again at 1.
    pub sequence: u64,
    pub decisions: Vec<Decision>,
    /// Jobs whose reason for waiting changed.
    pub told: BTreeSet<JobId>,
    /// Plan again at this time, if nothing else happens before.
    pub wake_ms: Option<i64>,
    /// A limit was reached: plan again at once.
    pub more: bool,
}

/// The earlier of two optional times.
pub fn earliest<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
