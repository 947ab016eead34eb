//! What the planner asks about clusters. The planner knows jobs and quota; the caller, who implements [`Places`],
//! knows nodes.

use std::collections::BTreeSet;

use fleet_resources::ResourceName;

use crate::names::{ClusterName, JobId};
use crate::queues::WaitingJob;

/// Placement, as the planner sees it. Jobs of the same `shape` must get the same answers. Between plans, answers
/// may improve only after [`places_freed`](crate::Planner::places_freed) or
/// [`places_changed`](crate::Planner::places_changed) was called. Capacity may shrink without notice.
pub trait Places {
    /// Holds places for the gang from now on, in the best cluster that admits the job, has capacity now and is not
    /// in `avoid`.
    fn take(&mut self, job: &WaitingJob, avoid: &BTreeSet<ClusterName>) -> Option<ClusterName>;

    /// Undoes a [`take`](Self::take) of this plan.
    fn put_back(&mut self, job: &WaitingJob, cluster: &ClusterName);

    /// Clusters that admit the job and could hold its gang if they were empty, best first.
    fn could_hold(&mut self, job: &WaitingJob) -> Vec<ClusterName>;

    /// Whether these gangs fit together in `cluster`, and it admits them, once the places of `gone` are free. Jobs
    /// in `gone` that hold nothing there are ignored. The question is about the last gang. The gangs before it and
    /// most of `gone` are the same from call to call, so an implementation can cache them.
    fn fits_without(&mut self, jobs: &[&WaitingJob], cluster: &ClusterName, gone: &[JobId]) -> bool;

    /// As [`fits_without`](Self::fits_without), but the places of jobs that have ended count as free already,
    /// though a report may take a while to show them. The planner never preempts for capacity that is about to free
    /// up, and does not give up a preemption while it waits for it.
    fn will_fit_without(&mut self, jobs: &[&WaitingJob], cluster: &ClusterName, gone: &[JobId]) -> bool {
        self.fits_without(jobs, cluster, gone)
    }

    /// The resources of which the cluster has too little for these gangs once the places of `gone` are free. Empty
    /// if that cannot be said, for example if the sum is enough but no node is.
    fn short_in(
        &mut self,
        _jobs: &[&WaitingJob],
        _cluster: &ClusterName,
        _gone: &[JobId],
    ) -> Vec<ResourceName> {
        Vec::new()
    }

    /// The cluster in which an admitted job holds its places.
    fn cluster_of(&self, job: &JobId) -> Option<ClusterName>;

    /// The jobs that hold places in a cluster, including those outside the tree.
    fn running_in(&self, cluster: &ClusterName) -> Vec<JobId>;

    /// When the job ends, by its declared run time, or else by those of similar jobs; `None` if nothing is known.
    fn ends_at_ms(&self, job: &JobId) -> Option<i64>;

    /// The job has run so much longer than any similar job that its end cannot be predicted.
    fn has_outrun(&self, _job: &JobId) -> bool {
        false
    }

    /// Work lost if the job is preempted now, in milliseconds: since its last checkpoint, or else since its start.
    fn lost_work_ms(&self, job: &JobId) -> i64;

    /// How long the job has run since its last start, in milliseconds.
    fn ran_ms(&self, job: &JobId) -> i64 {
        self.lost_work_ms(job)
    }
}

/// One cluster of unlimited capacity, for callers to whom only quota matters.
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

    /// No start is known, so no job is protected because of one.
    fn ran_ms(&self, _: &JobId) -> i64 {
        i64::MAX
    }
}
