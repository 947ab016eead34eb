//! The input of the pages for a time: what is known, with the usage of clusters and queues by jobs.

use std::collections::BTreeMap;

use super::replay::Replay;
use crate::{
    amounts::JOBS,
    facts::{ClusterFacts, NodeGroup, PlaceFacts, QuotaFacts, TreeFacts},
    job::{Job, State},
    known::Known,
    paths::ROOT,
};

type Amounts = BTreeMap<String, i64>;

impl Replay {
    /// Everything known now. If the log has no clusters and quota, they are derived from the jobs.
    pub fn shown(&self) -> Known {
        let mut known = self.known.clone();
        known.set_tree(self.tree());
        for (name, facts) in self.clusters() {
            known.set_cluster(&name, Some(facts));
        }
        for (id, places) in &self.places {
            let Some(job) = self.known.job(id).filter(|_| !places.nodes.is_empty()) else { continue };
            if matches!(job.state(), State::Starting | State::Running) {
                let nodes = places.nodes.values().flatten().cloned().collect();
                let places = PlaceFacts { cluster: job.cluster().to_owned(), id: id.clone(), nodes };
                known.set_places(id.clone(), Some(places));
            }
        }
        known
    }

    fn tree(&self) -> TreeFacts {
        let mut used: BTreeMap<&str, Amounts> = BTreeMap::new();
        for job in self.known.jobs().values() {
            let Some(unit) = job.unit.as_ref().filter(|unit| !unit.queue.is_empty()) else { continue };
            let leaf = used.entry(&unit.queue).or_default();
            if !unit.waits && job.binding.end.is_none() {
                add(leaf, &job.binding.requests);
                *leaf.entry(JOBS.to_owned()).or_default() += 1;
            }
        }
        match &self.tree {
            Some(tree) => {
                let mut tree = tree.clone();
                if let Some(root) = &mut tree.root {
                    fill(root, ROOT, &used);
                }
                tree
            }
            None => TreeFacts { root: of_paths(&used), problems: Vec::new() },
        }
    }

    fn clusters(&self) -> BTreeMap<String, ClusterFacts> {
        let mut clusters = self.clusters.clone();
        let mut nodes: BTreeMap<&str, BTreeMap<&str, i64>> = BTreeMap::new();
        for (id, job) in self.known.jobs() {
            if job.cluster().is_empty() {
                continue;
            }
            let is_told = self.clusters.contains_key(job.cluster());
            let facts = clusters
                .entry(job.cluster().to_owned())
                .or_insert_with(|| ClusterFacts { ready: Some(true), ..ClusterFacts::default() });
            let Some(places) = self.places.get(id).filter(|places| is_told && !places.nodes.is_empty())
            else {
                continue;
            };
            if !matches!(job.state(), State::Starting | State::Running) {
                continue;
            }
            add(&mut facts.allocated, &job.binding.requests);
            let used = nodes.entry(job.cluster()).or_default();
            for (component, names) in &places.nodes {
                let gpus = places.pod_gpus.get(component).copied().unwrap_or_else(|| share(job));
                for name in names {
                    *used.entry(name).or_default() += gpus;
                }
            }
        }
        for (name, used) in nodes {
            if let Some(facts) = clusters.get_mut(name) {
                facts.groups = facts.groups.iter().flat_map(|group| split(group, &used)).collect();
            }
        }
        clusters
    }
}

/// GPUs of one pod if no line says how they are divided.
fn share(job: &Job) -> i64 {
    job.gpus() / job.binding.pods.max(1)
}

fn add(into: &mut Amounts, amounts: &Amounts) {
    for (name, amount) in amounts {
        *into.entry(name.clone()).or_default() += amount;
    }
}

/// Computes the usage of a node and those below it, and returns it.
fn fill(node: &mut QuotaFacts, path: &str, used: &BTreeMap<&str, Amounts>) -> Amounts {
    let mut all = used.get(path).cloned().unwrap_or_default();
    for child in &mut node.children {
        let path = format!("{path}/{}", child.name);
        add(&mut all, &fill(child, &path, used));
    }
    node.used.clone_from(&all);
    all
}

/// A tree without limits that has these leaves; if paths have different roots, of the first root.
fn of_paths(used: &BTreeMap<&str, Amounts>) -> Option<QuotaFacts> {
    let mut root: Option<QuotaFacts> = None;
    for path in used.keys() {
        let mut parts = path.split('/');
        let first = parts.next()?;
        let at = root.get_or_insert_with(|| QuotaFacts { name: first.to_owned(), ..QuotaFacts::default() });
        if at.name != first {
            continue;
        }
        let mut at = at;
        for part in parts {
            let index = at.children.iter().position(|child| child.name == part).unwrap_or_else(|| {
                at.children.push(QuotaFacts { name: part.to_owned(), ..QuotaFacts::default() });
                at.children.len() - 1
            });
            at = &mut at.children[index];
        }
    }
    if let Some(root) = &mut root {
        fill(root, ROOT, used);
    }
    root
}

/// Nodes of a group by their usage.
fn split(group: &NodeGroup, used: &BTreeMap<&str, i64>) -> Vec<NodeGroup> {
    let mut by_use: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    for name in &group.names {
        by_use.entry(used.get(name.as_str()).copied().unwrap_or(0)).or_default().push(name.clone());
    }
    let unnamed = group.count - i64::try_from(group.names.len()).unwrap_or(i64::MAX);
    let mut groups: Vec<NodeGroup> = by_use
        .into_iter()
        .map(|(used, names)| NodeGroup {
            count: i64::try_from(names.len()).unwrap_or(i64::MAX),
            gpus_free: (group.gpus_free - used).max(0),
            names,
            ..group.clone()
        })
        .collect();
    if unnamed > 0 {
        groups.push(NodeGroup { count: unnamed, names: Vec::new(), ..group.clone() });
    }
    groups
}
