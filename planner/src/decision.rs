//! What a plan says.

use std::collections::BTreeSet;

use fleet_quota::{JobId, TakeRule};
use serde::{Deserialize, Serialize};

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub enum Decision {
    /// Ask the member to reserve places for the whole job. It holds quota and room from now on, until it is
    /// told otherwise.
    Ask { job: JobId, cluster: String },
    /// Bind the job to the cluster: its places are reserved, or the member does not reserve.
    Bind { job: JobId, cluster: String },
    /// End the job's run to make room for `taker`, which starts in `cluster` once all its victims have ended.
    /// Until the planner is told that the run is ending, the decision may come again.
    Evict { job: JobId, taker: JobId, cluster: String, rule: TakeRule, lost_work_ms: i64 },
    /// The cells of a job that holds places have changed: its reservation is to say so.
    Regroup { job: JobId, cluster: String },
}

/// What a member said to the question for places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Reserved,
    Refused { message: String },
}

/// What a plan came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    /// The how-manieth plan of its planner this is, from 1 on; a planner that starts anew counts anew.
    pub sequence: u64,
    pub decisions: Vec<Decision>,
    /// Jobs whose reason for waiting changed.
    pub told: BTreeSet<JobId>,
    /// Plan again then, if nothing else happens before.
    pub wake_ms: Option<i64>,
    /// A bound was hit: plan again at once.
    pub more: bool,
}

/// The earlier of two times, where there are any.
pub fn earliest<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
