//! Everything that is known of a fleet, with the indexes that the pages need.
//!
//! Each change costs a few steps in ordered sets; no view has to sort all jobs.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use crate::{
    facts::{
        BindingFacts, ClusterFacts, Id, LeaseFacts, PlaceFacts, QuotaFacts, TreeFacts, UnitFacts,
        VirtualClusterFacts,
    },
    indexes::Indexes,
    job::{Job, State},
    said::said_now,
    sight::Sight,
};

/// Place in the queue of a leaf: by priority, the time at which the job took it, and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub priority: Reverse<i32>,
    pub since_ms: i64,
    pub name: String,
    pub namespace: String,
}

impl Place {
    fn of(job: &Job, unit: &UnitFacts) -> Self {
        let known_ms = Some(job.binding.place_ms).filter(|place_ms| *place_ms != 0);
        Self {
            priority: Reverse(unit.priority),
            since_ms: known_ms.unwrap_or(unit.created_s.saturating_mul(1000)),
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
    by_age: BTreeSet<(i64, Id)>,
    waiting: BTreeSet<(i64, Id)>,
    running: BTreeSet<(i64, Id)>,
    evicted: BTreeSet<(Reverse<usize>, Id)>,
    claims: BTreeSet<(String, Id)>,
    indexes: Indexes,
    /// By namespace and name of their Reservation.
    places: BTreeMap<Id, PlaceFacts>,
    /// Cluster, node and job of each place.
    on_nodes: BTreeSet<(String, String, Id)>,
    clusters: BTreeMap<String, ClusterFacts>,
    leases: BTreeMap<String, LeaseFacts>,
    virtual_clusters: BTreeMap<String, VirtualClusterFacts>,
    tree: TreeFacts,
    leaves: Leaves,
    version: u64,
}

/// What the leaves of the tree say, beside their amounts.
#[derive(Clone, Debug, Default)]
struct Leaves {
    /// By path: the virtual cluster of jobs that name none.
    virtual_clusters: BTreeMap<String, String>,
    /// Listed by a leaf.
    namespaces: BTreeSet<String>,
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

    /// Of these jobs, those that the viewer may see: the others are not even looked up.
    fn seen<'k>(
        &'k self,
        ids: impl Iterator<Item = &'k Id>,
        sight: &'k Sight,
    ) -> impl Iterator<Item = &'k Job> {
        ids.filter(|id| sight.jobs.has(&id.0)).filter_map(|id| self.jobs.get(id))
    }

    /// Jobs of one namespace.
    pub fn jobs_of<'k>(&'k self, namespace: &str) -> impl Iterator<Item = &'k Job> {
        let from = (namespace.to_owned(), String::new());
        let namespace = namespace.to_owned();
        self.jobs.range(from..).take_while(move |(id, _)| id.0 == namespace).map(|(_, job)| job)
    }

    /// Jobs that the viewer may see, the newest first.
    pub fn newest<'k>(&'k self, sight: &'k Sight) -> impl Iterator<Item = &'k Job> {
        self.seen(self.by_age.iter().rev().map(|(_, id)| id), sight)
    }

    /// The same by age, the oldest or the newest first, from behind a job on: when it was created, and its id.
    pub(crate) fn by_age<'k>(
        &'k self,
        sight: &'k Sight,
        ascending: bool,
        after: Option<(i64, Id)>,
    ) -> Box<dyn Iterator<Item = &'k Job> + 'k> {
        let bound = after.map_or(Bound::Unbounded, Bound::Excluded);
        match ascending {
            true => {
                let ids = self.by_age.range((bound, Bound::Unbounded));
                Box::new(self.seen(ids.map(|(_, id)| id), sight))
            }
            false => {
                let ids = self.by_age.range((Bound::Unbounded, bound)).rev();
                Box::new(self.seen(ids.map(|(_, id)| id), sight))
            }
        }
    }

    /// Waiting jobs that the viewer may see, the oldest wait first.
    pub fn longest_waiting<'k>(&'k self, sight: &'k Sight) -> impl Iterator<Item = &'k Job> {
        self.seen(self.waiting.iter().map(|(_, id)| id), sight)
    }

    /// Running jobs that the viewer may see, the longest-running first.
    pub fn longest_running<'k>(&'k self, sight: &'k Sight) -> impl Iterator<Item = &'k Job> {
        self.seen(self.running.iter().map(|(_, id)| id), sight)
    }

    /// Jobs that have not ended but whose earlier runs have, most runs first, as far as the viewer may see them.
    pub fn most_evicted<'k>(&'k self, sight: &'k Sight) -> impl Iterator<Item = &'k Job> {
        self.seen(self.evicted.iter().map(|(_, id)| id), sight)
    }

    /// Jobs that have not ended and start anew in the same run, most restarts first, as far as the viewer may see them.
    pub fn most_restarted<'k>(&'k self, sight: &'k Sight) -> impl Iterator<Item = &'k Job> {
        self.seen(self.indexes.restarted(), sight)
    }

    /// Jobs with this user in their label that the viewer may see, the newest first.
    pub fn of_user<'k>(&'k self, sight: &'k Sight, user: &str) -> impl Iterator<Item = &'k Job> {
        self.seen(self.indexes.of_user(user), sight)
    }

    /// Running jobs of a cluster that the viewer may see, the longest-running first, and how many there are.
    pub fn running_in<'k>(
        &'k self,
        sight: &'k Sight,
        cluster: &str,
    ) -> (impl Iterator<Item = &'k Job>, usize) {
        let counts = self.indexes.counts_in(cluster).filter(|(namespace, _)| sight.jobs.has(namespace));
        (self.seen(self.indexes.running_in(cluster), sight), counts.map(|(_, count)| count).sum())
    }

    pub(crate) fn indexes(&self) -> &Indexes {
        &self.indexes
    }

    /// The job that a user calls by this name; of several kinds, one of them.
    pub fn named(&self, namespace: &str, name: &str) -> Option<&Job> {
        // A binding is named after its job.
        let from = (namespace.to_owned(), name.to_owned());
        let near = self.jobs.range(from..).map(|(_, job)| job);
        let mut near = near.take_while(|job| job.namespace() == namespace && job.id.1.starts_with(name));
        near.find(|job| job.name() == name)
    }

    /// Namespaces that have jobs, or that a leaf lists. Some may be there twice.
    pub fn namespaces(&self) -> impl Iterator<Item = &String> {
        self.counts.keys().chain(&self.leaves.namespaces)
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

    /// The virtual cluster of a job: its own, or that of its queue; empty if it has none.
    pub(crate) fn virtual_cluster_of<'k>(&'k self, job: &'k Job) -> &'k str {
        match job.binding.virtual_cluster.as_str() {
            "" => self.leaves.virtual_clusters.get(job.queue()).map_or("", String::as_str),
            own => own,
        }
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

    /// Reason and sentence of a job's state, with the numbers of now. What each cluster lacked is left to the table of
    /// clusters, unless the viewer has no such table.
    pub fn said(&self, sight: &Sight, job: &Job) -> (String, String) {
        let (reason, message) = job.said();
        let message = match job.state() {
            State::Waiting => said_now(reason, message, self.tree.root.as_ref(), sight.clusters),
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
            self.leaves = Leaves::default();
            if let Some(root) = &tree.root {
                self.leaves.add(root, "");
            }
            self.tree = tree;
            self.version += 1;
        }
    }

    fn put(&mut self, job: Job) {
        let (id, state) = (job.id.clone(), job.state());
        self.indexes.add(&job);
        *self.counts.entry(id.0.clone()).or_default().entry(state).or_default() += 1;
        self.by_age.insert((job.binding.created_s, id.clone()));
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
        self.indexes.remove(&job);
        if let Some(counts) = self.counts.get_mut(&id.0) {
            if let Some(count) = counts.get_mut(&state) {
                *count -= 1;
            }
            counts.retain(|_, count| *count > 0);
            if counts.is_empty() {
                self.counts.remove(&id.0);
            }
        }
        self.by_age.remove(&(job.binding.created_s, id.clone()));
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

impl Leaves {
    fn add(&mut self, node: &QuotaFacts, parent: &str) {
        let path = crate::paths::path_of(&node.name, parent);
        for child in &node.children {
            self.add(child, &path);
        }
        if node.children.is_empty() {
            self.namespaces.extend(node.namespaces.iter().cloned());
            if !node.virtual_cluster.is_empty() {
                self.virtual_clusters.insert(path, node.virtual_cluster.clone());
            }
        }
    }
}
