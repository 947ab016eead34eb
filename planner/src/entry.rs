//! The planner's record of a job.

use std::cmp::Reverse;

use fleet_quota::JobId;
use fleet_quota_tree::NodeId;

use crate::{
    job::{Job, Waiting},
    refusals::Refusals,
    verdicts::ClassId,
};

#[derive(Clone, Debug)]
pub(crate) struct JobEntry {
    pub job: Job,
    pub refusals: Refusals,
    /// Its leaf in the current tree, or why it has none.
    pub leaf: Result<NodeId, Waiting>,
    pub class: Option<ClassId>,
}

/// Priority descending, then age, then name.
pub(crate) type DirectOrder = (Reverse<i64>, i64, JobId);

pub(crate) fn direct_order(job: &Job) -> DirectOrder {
    (Reverse(job.priority), job.enqueued_at_ms, job.id.clone())
}
