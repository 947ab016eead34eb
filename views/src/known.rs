//! Everything that is known of a fleet, with the orders that pages are read in.
//!
//! Each change costs a few steps in ordered sets; no view has to sort all jobs.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    facts::{BindingFacts, ClusterFacts, Id, LeaseFacts, TreeFacts, UnitFacts},
    job::{Job, State},
};

/// Place in the line of a leaf: by priority, age and name, as the queue has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub priority: Reverse<i32>,
    pub created_s: i64,
    pub name: String,
    pub namespace: String,
}

impl Place {
    fn of(job: &Job, unit: &UnitFacts) -> Self {
        Self {
            priority: Reverse(unit.priority),
            created_s: unit.created_s,
            name: job.id.1.clone(),
            namespace: job.id.0.clone(),
        }
    }

    pub fn id(&self) -> Id {
        (self.namespace.clone(), self.name.clone())
    }
}

/// Jobs of one leaf.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    pub waiting: BTreeSet<Place>,
    pub admitted: usize,
}

/// All facts, and what follows from them.
#[derive(Clone, Debug, Default)]
pub struct Known {
    jobs: BTreeMap<Id, Job>,
    /// Of bindings that are not known (yet).
    early: BTreeMap<Id, UnitFacts>,
    lines: BTreeMap<String, Line>,
    counts: BTreeMap<String, BTreeMap<State, usize>>,
    newest: BTreeSet<(Reverse<i64>, Id)>,
    waiting: BTreeSet<(i64, Id)>,
    running: BTreeSet<(i64, Id)>,
    evicted: BTreeSet<(Reverse<usize>, Id)>,
    clusters: BTreeMap<String, ClusterFacts>,
    leases: BTreeMap<String, LeaseFacts>,
    tree: TreeFacts,
    version: u64,
}

impl Known {
    /// Grows with each change that a page could show.
    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn jobs(&self) -> &BTreeMap<Id, Job> {
        &self.jobs
    }

    pub fn job(&self, id: &Id) -> Option<&Job> {
        self.jobs.get(id)
    }

    /// All jobs, the newest first.
    pub fn newest(&self) -> impl Iterator<Item = &Job> {
        self.newest.iter().filter_map(|(_, id)| self.jobs.get(id))
    }

    /// Waiting jobs, the oldest wait first.
    pub fn longest_waiting(&self) -> impl Iterator<Item = &Job> {
        self.waiting.iter().filter_map(|(_, id)| self.jobs.get(id))
    }

    /// Running jobs, the longest first.
    pub fn longest_running(&self) -> impl Iterator<Item = &Job> {
        self.running.iter().filter_map(|(_, id)| self.jobs.get(id))
    }

    /// Jobs with ended runs that have not ended themselves, most runs first.
    pub fn most_evicted(&self) -> impl Iterator<Item = &Job> {
        self.evicted.iter().filter_map(|(_, id)| self.jobs.get(id))
    }

    /// Jobs by state, of each namespace.
    pub fn counts(&self) -> &BTreeMap<String, BTreeMap<State, usize>> {
        &self.counts
    }

    pub(crate) fn lines(&self) -> &BTreeMap<String, Line> {
        &self.lines
    }

    pub fn clusters(&self) -> &BTreeMap<String, ClusterFacts> {
        &self.clusters
    }

    pub fn leases(&self) -> &BTreeMap<String, LeaseFacts> {
        &self.leases
    }

    pub fn tree(&self) -> &TreeFacts {
        &self.tree
    }

    /// A job's place in its leaf and how many wait there; 1 for the first.
    pub fn position(&self, id: &Id) -> Option<(usize, usize)> {
        let job = self.jobs.get(id).filter(|job| job.waits_in_queue())?;
        let unit = job.unit.as_ref()?;
        let line = self.lines.get(&unit.queue)?;
        let own = Place::of(job, unit);
        Some((line.waiting.range(..&own).count() + 1, line.waiting.len()))
    }

    pub fn set_binding(&mut self, id: Id, binding: Option<BindingFacts>) {
        match (self.take(&id), binding) {
            (Some(job), Some(binding)) => self.put(Job { binding, ..job }),
            (None, Some(binding)) => {
                let unit = self.early.remove(&id);
                self.put(Job { id, binding, unit });
            }
            (Some(job), None) => {
                if let Some(unit) = job.unit {
                    self.early.insert(id, unit);
                }
            }
            (None, None) => return,
        }
        self.version += 1;
    }

    /// `id` is that of the binding that waits.
    pub fn set_unit(&mut self, id: Id, unit: Option<UnitFacts>) {
        match (self.take(&id), unit) {
            (Some(job), unit) => self.put(Job { unit, ..job }),
            (None, Some(unit)) => {
                self.early.insert(id, unit);
            }
            (None, None) => {
                self.early.remove(&id);
            }
        }
        self.version += 1;
    }

    pub fn set_cluster(&mut self, name: &str, cluster: Option<ClusterFacts>) {
        match cluster {
            Some(cluster) => {
                if self.clusters.get(name) == Some(&cluster) {
                    return;
                }
                self.clusters.insert(name.to_owned(), cluster);
            }
            None => {
                self.clusters.remove(name);
            }
        }
        self.version += 1;
    }

    /// A renewal alone changes no page: it comes every few seconds from every cluster.
    pub fn set_lease(&mut self, cluster: &str, lease: Option<LeaseFacts>) {
        let before = self.leases.get(cluster).map(|lease| lease.declared_lost);
        let now = lease.as_ref().map(|lease| lease.declared_lost);
        match lease {
            Some(lease) => {
                self.leases.insert(cluster.to_owned(), lease);
            }
            None => {
                self.leases.remove(cluster);
            }
        }
        if before != now {
            self.version += 1;
        }
    }

    pub fn set_tree(&mut self, tree: TreeFacts) {
        if self.tree != tree {
            self.tree = tree;
            self.version += 1;
        }
    }

    fn put(&mut self, job: Job) {
        let (id, state) = (job.id.clone(), job.state());
        *self.counts.entry(id.0.clone()).or_default().entry(state).or_default() += 1;
        self.newest.insert((Reverse(job.binding.created_s), id.clone()));
        match state {
            State::Waiting => {
                self.waiting.insert((job.since_s(), id.clone()));
            }
            State::Running if job.binding.is_job => {
                self.running.insert((job.since_s(), id.clone()));
            }
            _ => {}
        }
        if !state.is_final() && !job.binding.attempts.is_empty() {
            self.evicted.insert((Reverse(job.binding.attempts.len()), id.clone()));
        }
        if let Some(unit) = job.unit.as_ref().filter(|_| !state.is_final()) {
            let line = self.lines.entry(unit.queue.clone()).or_default();
            match job.waits_in_queue() {
                true => {
                    line.waiting.insert(Place::of(&job, unit));
                }
                false => line.admitted += 1,
            }
        }
        self.jobs.insert(id, job);
    }

    fn take(&mut self, id: &Id) -> Option<Job> {
        let job = self.jobs.remove(id)?;
        let state = job.state();
        if let Some(counts) = self.counts.get_mut(&id.0) {
            if let Some(count) = counts.get_mut(&state) {
                *count -= 1;
            }
            counts.retain(|_, count| *count > 0);
            if counts.is_empty() {
                self.counts.remove(&id.0);
            }
        }
        self.newest.remove(&(Reverse(job.binding.created_s), id.clone()));
        self.waiting.remove(&(job.since_s(), id.clone()));
        self.running.remove(&(job.since_s(), id.clone()));
        self.evicted.remove(&(Reverse(job.binding.attempts.len()), id.clone()));
        if let Some(unit) = job.unit.as_ref().filter(|_| !state.is_final())
            && let Some(line) = self.lines.get_mut(&unit.queue)
        {
            match job.waits_in_queue() {
                true => {
                    line.waiting.remove(&Place::of(&job, unit));
                }
                false => line.admitted -= 1,
            }
            if line.waiting.is_empty() && line.admitted == 0 {
                self.lines.remove(&unit.queue);
            }
        }
        Some(job)
    }
}
