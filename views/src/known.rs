//! Everything that is known of a fleet, with the indexes that the pages need.
//!
//! Each change costs a few steps in ordered sets; no view has to sort all jobs.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    facts::{
        BindingFacts, ClusterFacts, Id, LeaseFacts, PlaceFacts, QuotaFacts, TreeFacts, UnitFacts,
        VirtualClusterFacts,
    },
    job::{Job, State},
    said::said_now,
};

/// Place in the queue of a leaf: by priority, age and name.
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

/// All facts, and indexes of them.
#[derive(Clone, Debug, Default)]
pub struct Known {
    jobs: BTreeMap<Id, Job>,
    /// QueueUnits whose binding is not known (yet).
    early: BTreeMap<Id, UnitFacts>,
    lines: BTreeMap<String, Line>,
    counts: BTreeMap<String, BTreeMap<State, usize>>,
    newest: BTreeSet<(Reverse<i64>, Id)>,
    waiting: BTreeSet<(i64, Id)>,
    running: BTreeSet<(i64, Id)>,
    evicted: BTreeSet<(Reverse<usize>, Id)>,
    claims: BTreeSet<(String, Id)>,
    /// By namespace and name of their Reservation.
    places: BTreeMap<Id, PlaceFacts>,
    /// Cluster, node and job of each place.
    on_nodes: BTreeSet<(String, String, Id)>,
    clusters: BTreeMap<String, ClusterFacts>,
    leases: BTreeMap<String, LeaseFacts>,
    virtual_clusters: BTreeMap<String, VirtualClusterFacts>,
    tree: TreeFacts,
    version: u64,
}

impl Known {
    /// Grows with each change that a page may show.
    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn jobs(&self) -> &BTreeMap<Id, Job> {
        &self.jobs
    }

    pub fn job(&self, id: &Id) -> Option<&Job> {
        self.jobs.get(id)
    }

    /// Something that a page shows has changed, and stands elsewhere.
    pub fn note(&mut self) {
        self.version += 1;
    }

    /// All jobs, the newest first.
    pub fn newest(&self) -> impl Iterator<Item = &Job> {
        self.newest.iter().filter_map(|(_, id)| self.jobs.get(id))
    }

    /// Waiting jobs, the oldest wait first.
    pub fn longest_waiting(&self) -> impl Iterator<Item = &Job> {
        self.waiting.iter().filter_map(|(_, id)| self.jobs.get(id))
    }

    /// Running jobs, the longest-running first.
    pub fn longest_running(&self) -> impl Iterator<Item = &Job> {
        self.running.iter().filter_map(|(_, id)| self.jobs.get(id))
    }

    /// Jobs that have not ended but whose earlier runs have, most runs first.
    pub fn most_evicted(&self) -> impl Iterator<Item = &Job> {
        self.evicted.iter().filter_map(|(_, id)| self.jobs.get(id))
    }

    /// Jobs by state, of each namespace.
    pub fn counts(&self) -> &BTreeMap<String, BTreeMap<State, usize>> {
        &self.counts
    }

    /// Jobs with places on a node.
    pub(crate) fn on_node<'k>(&'k self, cluster: &str, node: &str) -> impl Iterator<Item = &'k Job> {
        let (cluster, node) = (cluster.to_owned(), node.to_owned());
        let from = (cluster.clone(), node.clone(), Id::default());
        let here = self.on_nodes.range(from..).take_while(move |(c, n, _)| *c == cluster && *n == node);
        here.filter_map(|(_, _, id)| self.jobs.get(id))
    }

    /// Waiting jobs of a leaf for which capacity is reserved.
    pub(crate) fn claims(&self) -> impl Iterator<Item = (&String, &Job)> {
        self.claims.iter().filter_map(|(leaf, id)| Some((leaf, self.jobs.get(id)?)))
    }

    /// Virtual clusters of queues, by the paths of their leaves.
    pub(crate) fn virtual_clusters_of_leaves(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        if let Some(root) = &self.tree.root {
            add_virtual_clusters(root, "", &mut found);
        }
        found
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

    /// By the names of their objects.
    pub fn virtual_clusters(&self) -> &BTreeMap<String, VirtualClusterFacts> {
        &self.virtual_clusters
    }

    pub fn tree(&self) -> &TreeFacts {
        &self.tree
    }

    /// Reason and sentence of a job's state, with the numbers of now.
    pub fn said(&self, job: &Job) -> (String, String) {
        let (reason, message) = job.said();
        let message = match job.state() {
            State::Waiting => said_now(reason, message, self.tree.root.as_ref()),
            _ => message.to_owned(),
        };
        (reason.to_owned(), message)
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

    /// `id` is the id of the waiting binding.
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

    /// A renewal alone changes no page: every cluster renews every few seconds.
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

    /// `key` is that of the Reservation.
    pub fn set_places(&mut self, key: Id, places: Option<PlaceFacts>) {
        if self.places.get(&key) == places.as_ref() {
            return;
        }
        if let Some(before) = self.places.remove(&key) {
            for node in before.nodes {
                self.on_nodes.remove(&(before.cluster.clone(), node, before.id.clone()));
            }
        }
        if let Some(places) = places {
            for node in &places.nodes {
                self.on_nodes.insert((places.cluster.clone(), node.clone(), places.id.clone()));
            }
            self.places.insert(key, places);
        }
        self.version += 1;
    }

    pub fn set_virtual_cluster(&mut self, name: &str, facts: Option<VirtualClusterFacts>) {
        if self.virtual_clusters.get(name) == facts.as_ref() {
            return;
        }
        match facts {
            Some(facts) => self.virtual_clusters.insert(name.to_owned(), facts),
            None => self.virtual_clusters.remove(name),
        };
        self.version += 1;
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
                    if unit.claim.is_some() {
                        self.claims.insert((unit.queue.clone(), id.clone()));
                    }
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
        if let Some(unit) = job.unit.as_ref().filter(|unit| unit.claim.is_some()) {
            self.claims.remove(&(unit.queue.clone(), id.clone()));
        }
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

fn add_virtual_clusters(node: &QuotaFacts, parent: &str, found: &mut BTreeMap<String, String>) {
    let path = crate::queues::path_of(&node.name, parent);
    for child in &node.children {
        add_virtual_clusters(child, &path, found);
    }
    if node.children.is_empty() && !node.virtual_cluster.is_empty() {
        found.insert(path, node.virtual_cluster.clone());
    }
}
