//! Clusters that are one number of free cpu each.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// `east 4, west 2`: cores by cluster, preferred in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clusters {
    capacity: BTreeMap<ClusterName, i64>,
    held: BTreeMap<JobId, (ClusterName, i64)>,
    pub ends: BTreeMap<JobId, i64>,
    pub lost: BTreeMap<JobId, i64>,
    pub now_ms: i64,
    /// When jobs started, as far as a test says so.
    pub started: BTreeMap<JobId, i64>,
    /// Questions asked, each of which costs a real oracle a search.
    pub asked: usize,
    /// Questions about empty clusters.
    pub could_hold_asked: usize,
}

impl Clusters {
    pub fn new(text: &str) -> Self {
        let capacity = text.split(',').map(|cluster| {
            let (name, cores) = cluster.trim().split_once(' ').unwrap();
            (ClusterName::new(name), cores.parse::<i64>().unwrap() * 1000)
        });
        Self { capacity: capacity.collect(), ..Self::default() }
    }

    /// More than any test asks for.
    pub fn endless() -> Self {
        Self::new("any 1000000")
    }

    pub fn hold(&mut self, id: &str, cluster: &str, cores: i64) {
        self.held.insert(id.into(), (cluster.into(), cores * 1000));
    }

    pub fn end(&mut self, id: &JobId) -> Option<ClusterName> {
        self.held.remove(id).map(|(cluster, _)| cluster)
    }

    pub fn grow(&mut self, cluster: &str, cores: i64) {
        self.capacity.insert(cluster.into(), cores * 1000);
    }

    fn free(&self, cluster: &ClusterName, gone: &[JobId]) -> i64 {
        let here = self.held.iter().filter(|(id, held)| held.0 == *cluster && !gone.contains(id));
        self.capacity[cluster] - here.map(|(_, held)| held.1).sum::<i64>()
    }
}

/// No cluster ever holds jobs whose name begins with `huge`.
fn asks(job: &WaitingJob) -> i64 {
    if job.name.starts_with("huge") { i64::MAX } else { job.request.get("cpu") }
}

impl Places for Clusters {
    fn take(&mut self, job: &WaitingJob, avoid: &BTreeSet<ClusterName>) -> Option<ClusterName> {
        self.asked += 1;
        let mut open = self.capacity.keys().filter(|name| !avoid.contains(*name));
        let found = open.find(|name| asks(job) <= self.free(name, &[]))?.clone();
        let held = (found.clone(), asks(job));
        assert!(self.held.insert(job.id.clone(), held).is_none(), "{} holds places already", job.id);
        Some(found)
    }

    fn put_back(&mut self, job: &WaitingJob, cluster: &ClusterName) {
        let held = self.held.remove(&job.id);
        assert_eq!(held.map(|(cluster, _)| cluster).as_ref(), Some(cluster));
    }

    fn could_hold(&mut self, job: &WaitingJob) -> Vec<ClusterName> {
        self.could_hold_asked += 1;
        let open = self.capacity.iter().filter(|(_, cores)| asks(job) <= **cores);
        open.map(|(name, _)| name.clone()).collect()
    }

    fn fits_without(&mut self, jobs: &[&WaitingJob], cluster: &ClusterName, gone: &[JobId]) -> bool {
        self.asked += 1;
        let sum = jobs.iter().map(|job| asks(job)).fold(0, i64::saturating_add);
        sum <= self.free(cluster, gone)
    }

    fn cluster_of(&self, job: &JobId) -> Option<ClusterName> {
        self.held.get(job).map(|(cluster, _)| cluster.clone())
    }

    fn running_in(&self, cluster: &ClusterName) -> Vec<JobId> {
        let here = self.held.iter().filter(|(_, held)| held.0 == *cluster);
        here.map(|(id, _)| id.clone()).collect()
    }

    fn ends_at_ms(&self, job: &JobId) -> Option<i64> {
        self.ends.get(job).copied()
    }

    fn lost_work_ms(&self, job: &JobId) -> i64 {
        self.lost.get(job).copied().unwrap_or_else(|| self.ran_ms(job))
    }

    fn ran_ms(&self, job: &JobId) -> i64 {
        self.started.get(job).map_or(0, |started_ms| self.now_ms - started_ms)
    }
}
