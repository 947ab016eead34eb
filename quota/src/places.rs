//! What the planner asks about clusters. Placement is the caller's: the planner
//! knows jobs and quota, the oracle knows nodes.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use fleet_resources::ResourceName;

use crate::ledger::JobId;
use crate::queues::WaitingJob;

/// A member cluster's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterName(Arc<str>);

impl ClusterName {
    pub fn new(name: &str) -> Self {
        Self(Arc::from(name))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ClusterName {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The oracle of placement. Jobs of one `shape` must get the same answers.
/// Answers may change between plans only after the planner was told
/// ([`places_freed`](crate::Planner::places_freed),
/// [`places_changed`](crate::Planner::places_changed)); places that become
/// fewer need no telling.
pub trait Places {
    /// Holds the gang's places from now on, on the best cluster that is open to
    /// the job, has room now and is not in `avoid`.
    fn take(&mut self, job: &WaitingJob, avoid: &BTreeSet<ClusterName>) -> Option<ClusterName>;

    /// Undoes a [`take`](Self::take) of this plan.
    fn put_back(&mut self, job: &WaitingJob, cluster: &ClusterName);

    /// Clusters open to the job that could hold its gang if nothing ran there,
    /// best first.
    fn could_hold(&mut self, job: &WaitingJob) -> Vec<ClusterName>;

    /// Whether these gangs fit together in `cluster`, and it is open to them,
    /// once the places of `gone` are free. Jobs that hold nothing there change
    /// nothing. The last gang is the one that is asked about; those before it
    /// and most of `gone` are the same from question to question.
    fn fits_without(&mut self, jobs: &[&WaitingJob], cluster: &ClusterName, gone: &[JobId]) -> bool;

    /// As [`fits_without`](Self::fits_without), once the places of jobs that have ended can be taken as well:
    /// there may be a while between the two. Nobody is taken from, nor is a taking given up, for what comes
    /// by itself.
    fn will_fit_without(&mut self, jobs: &[&WaitingJob], cluster: &ClusterName, gone: &[JobId]) -> bool {
        self.fits_without(jobs, cluster, gone)
    }

    /// Of which resources the cluster has too little for these gangs once the places of `gone` are free; empty
    /// where that cannot be said, as when the sum is enough and no node is.
    fn short_in(
        &mut self,
        _jobs: &[&WaitingJob],
        _cluster: &ClusterName,
        _gone: &[JobId],
    ) -> Vec<ResourceName> {
        Vec::new()
    }

    /// Where an admitted job holds its places.
    fn cluster_of(&self, job: &JobId) -> Option<ClusterName>;

    /// The jobs that hold places in a cluster, those outside the tree too.
    fn running_in(&self, cluster: &ClusterName) -> Vec<JobId>;

    /// When it ends, by the run time that it declared, else by those of jobs like it; `None` where nothing is
    /// known.
    fn ends_at_ms(&self, job: &JobId) -> Option<i64>;

    /// It has run for so much longer than any job like it that nobody can say when it ends.
    fn has_outrun(&self, _job: &JobId) -> bool {
        false
    }

    /// Work that is lost when the job is taken now: since its last checkpoint,
    /// else since its start, in milliseconds.
    fn lost_work_ms(&self, job: &JobId) -> i64;

    /// For how long the job has run since it last started, in milliseconds.
    fn ran_ms(&self, job: &JobId) -> i64 {
        self.lost_work_ms(job)
    }
}

/// One endless cluster, for where only quota counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnyPlace;

impl AnyPlace {
    pub(crate) const NAME: &str = "any";
}

impl Places for AnyPlace {
    fn take(&mut self, _: &WaitingJob, avoid: &BTreeSet<ClusterName>) -> Option<ClusterName> {
        let here = ClusterName::new(Self::NAME);
        (!avoid.contains(&here)).then_some(here)
    }

    fn put_back(&mut self, _: &WaitingJob, _: &ClusterName) {}

    fn could_hold(&mut self, _: &WaitingJob) -> Vec<ClusterName> {
        vec![ClusterName::new(Self::NAME)]
    }

    fn fits_without(&mut self, _: &[&WaitingJob], _: &ClusterName, _: &[JobId]) -> bool {
        true
    }

    fn cluster_of(&self, _: &JobId) -> Option<ClusterName> {
        Some(ClusterName::new(Self::NAME))
    }

    fn running_in(&self, _: &ClusterName) -> Vec<JobId> {
        Vec::new()
    }

    fn ends_at_ms(&self, _: &JobId) -> Option<i64> {
        None
    }

    fn lost_work_ms(&self, _: &JobId) -> i64 {
        0
    }

    /// Nothing is known of any start: nobody is protected for one.
    fn ran_ms(&self, _: &JobId) -> i64 {
        i64::MAX
    }
}
