//! What the planner knows.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::backoff::Backoffs;
use super::contest::Contest;
use super::holds::Holds;
use super::index::Index;
use super::starts::Started;
use super::watches::Watches;
use crate::ledger::Ledger;
use crate::names::{ClusterName, JobId};
use crate::queues::{ClassId, Queues};
use fleet_quota_tree::NodeId;

/// Jobs, quota, and indexes derived from both, kept between plans.
#[derive(Clone, Debug)]
pub struct Planner {
    pub(super) ledger: Ledger,
    pub(super) queues: Queues,
    /// Admitted jobs that are ending.
    pub(super) ending: BTreeSet<JobId>,
    /// Those of them that are victims: leaf, priority and age.
    pub(super) evicted: BTreeSet<(NodeId, Reverse<i64>, i64, JobId)>,
    pub(super) holds: Holds,
    pub(super) watches: Watches,
    pub(super) contest: Contest,
    pub(super) index: Index,
    /// Leaves whose candidate must be found again.
    pub(super) dirty: BTreeSet<NodeId>,
    /// Leaves whose reasons may have changed in kind.
    pub(super) touched: BTreeSet<NodeId>,
    /// Leaves whose jobs may have waited for a claim that has ended.
    pub(super) unclaimed: BTreeSet<NodeId>,
    /// Leaves that may have a job with a right to preempt.
    pub(super) preemptors: BTreeSet<NodeId>,
    /// The version with which nobody preempts by share, but for jobs in those leaves.
    pub(super) rested: Option<u64>,
    /// Classes already searched since the limit on searches was reached.
    pub(super) searched: BTreeSet<ClassId>,
    pub(super) backoffs: Backoffs,
    /// Jobs that were started at the time of the last plan.
    pub(super) started: BTreeMap<JobId, Started>,
    pub(super) started_at_ms: i64,
    /// Start times of jobs that started recently.
    pub(super) fresh: BTreeMap<JobId, i64>,
    /// Waiting jobs that could preempt by share, but for the work lost, and since when.
    pub(super) behind: BTreeMap<JobId, i64>,
    /// When jobs below a node were last preempted by share.
    pub(super) given: BTreeMap<NodeId, i64>,
    /// When jobs were preempted by share lately, oldest first.
    pub(super) shared: VecDeque<i64>,
    /// When to search again for classes of which the last search found nobody.
    pub(super) protections: BTreeSet<(i64, ClassId)>,
    /// Jobs that back off, by end.
    pub(super) pauses: BTreeSet<(i64, JobId)>,
    pub(super) freed: BTreeSet<ClusterName>,
    pub(super) places_changed: bool,
    /// Less may be reserved than when the classes were stopped.
    pub(super) kept_changed: bool,
    /// A limit has ended the last plan before all who can start had started: the next one goes on with it.
    pub(super) cut_short: bool,
    /// Counts changes of use and places.
    pub(super) version: u64,
}
