//! The invariants of the design, stated over a snapshot of a fleet and over its history. Numbers are those of
//! `docs/ARCHITECTURE.md`.
//!
//! Written against the objects alone and without the product's rules, so that an error there does not hide
//! itself here.

mod facts;
mod snapshot;

use std::collections::{BTreeMap, BTreeSet};

use fleet_resources::Resources;

pub use facts::{Pod, Quota};
pub use snapshot::Snapshot;

use crate::history::History;
use facts::{Use, used_by};

/// One broken invariant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    pub invariant: u8,
    pub what: String,
}

fn broken(invariant: u8, what: String) -> Violation {
    Violation { invariant, what }
}

/// Everything that must hold: 1 and 3 at each moment of the history, 1, 2, 3 and 5 at rest.
pub fn check_invariants(history: &History, rest: &Snapshot) -> Vec<Violation> {
    let mut found = check_history(history, rest);
    found.extend(check_at_rest(rest));
    found.sort();
    found.dedup();
    found
}

/// Invariants 1 and 3 after each change. Nodes and quotas are those of `rest`.
pub fn check_history(history: &History, rest: &Snapshot) -> Vec<Violation> {
    let mut found = BTreeSet::new();
    let mut pods: BTreeMap<String, Pod> = BTreeMap::new();
    let mut bindings: BTreeMap<String, Use> = BTreeMap::new();
    let mut used: BTreeMap<(String, String), Resources> = BTreeMap::new();
    let mut runs: BTreeMap<String, BTreeMap<(String, String), i64>> = BTreeMap::new();
    for change in &history.changes {
        let uid = change.object["metadata"]["uid"].as_str().unwrap_or_default().to_string();
        let Some(cluster) = &change.cluster else {
            let known = bindings.remove(&uid);
            let now = Some(used_by(&change.object)).filter(|_| !change.gone);
            let moved = known != now;
            bindings.extend(now.map(|now| (uid, now)));
            // Only a change of what counts can break anything.
            if moved {
                found.extend(over_quota(rest.quota.as_ref(), bindings.values()));
            }
            continue;
        };
        if let Some(known) = pods.remove(&uid) {
            if let Some(place) = known.takes() {
                used.entry(place).or_default().sub(&known.requests);
            }
            if let Some((job, run)) = known.may_run_for() {
                *runs.entry(job).or_default().entry(run).or_default() -= 1;
            }
        }
        if change.gone {
            continue;
        }
        let pod = Pod::read(cluster, &change.object);
        if let Some(place) = pod.takes() {
            let sum = used.entry(place.clone()).or_default();
            sum.add(&pod.requests);
            found.extend(over_node(rest, &place, sum));
        }
        if let Some((job, run)) = pod.may_run_for() {
            let of_job = runs.entry(job.clone()).or_default();
            *of_job.entry(run).or_default() += 1;
            let live: Vec<_> = of_job.iter().filter(|(_, count)| **count > 0).map(|(run, _)| run).collect();
            if live.len() > 1 {
                found.insert(broken(1, format!("{job} has pods of several runs at once: {live:?}")));
            }
        }
        pods.insert(uid, pod);
    }
    found.into_iter().collect()
}

/// Invariants 1, 2, 3 and 5 of a fleet in which nothing is under way.
pub fn check_at_rest(rest: &Snapshot) -> Vec<Violation> {
    let mut found = Vec::new();
    found.extend(several_runs(&rest.pods));
    found.extend(half_bound(&rest.pods));
    let mut used: BTreeMap<(String, String), Resources> = BTreeMap::new();
    for pod in &rest.pods {
        if let Some(place) = pod.takes() {
            used.entry(place).or_default().add(&pod.requests);
        }
    }
    found.extend(used.iter().flat_map(|(place, sum)| over_node(rest, place, sum)));
    let uses: Vec<Use> = rest.bindings.iter().map(used_by).collect();
    found.extend(over_quota(rest.quota.as_ref(), uses.iter()));
    found.extend(held_for_nothing(rest));
    found
}

/// 1: at most one (cluster, run) of a job has pods that may run.
fn several_runs(pods: &[Pod]) -> Vec<Violation> {
    let mut runs: BTreeMap<String, BTreeSet<(String, String)>> = BTreeMap::new();
    for (job, run) in pods.iter().filter_map(Pod::may_run_for) {
        runs.entry(job).or_default().insert(run);
    }
    let several = runs.into_iter().filter(|(_, runs)| runs.len() > 1);
    several.map(|(job, runs)| broken(1, format!("{job} has pods of several runs: {runs:?}"))).collect()
}

/// 2: of a gang's pods none is bound, or as many as it needs. A gang of which a pod has ended was whole, and
/// may have lost pods since.
fn half_bound(pods: &[Pod]) -> Vec<Violation> {
    let ended: BTreeSet<&str> =
        pods.iter().filter(|pod| pod.has_ended()).map(|pod| pod.run.as_str()).collect();
    let mut gangs: BTreeMap<(&str, &str), (i64, i64)> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !ended.contains(pod.run.as_str())) {
        if let Some((_, needs)) = &pod.gang {
            let (bound, size) = gangs.entry((&pod.cluster, &pod.run)).or_default();
            *bound += i64::from(pod.node.is_some());
            *size = *needs;
        }
    }
    let half = gangs.into_iter().filter(|(_, (bound, size))| *bound > 0 && bound < size);
    let say = |((cluster, run), (bound, size)): ((&str, &str), (i64, i64))| {
        let name = pods.iter().find(|pod| pod.run == run).map_or("", |pod| &pod.job);
        broken(2, format!("gang of {name} in {cluster}: {bound} of {size} pods are bound"))
    };
    half.map(say).collect()
}

/// 3: for each node of a member, requests <= allocatable.
fn over_node(rest: &Snapshot, place: &(String, String), sum: &Resources) -> Option<Violation> {
    // A node nobody listed cannot be judged.
    let allocatable = rest.nodes.get(place)?;
    let short = sum.shortages(allocatable);
    let what = || format!("node {}/{}: requests {sum} exceed allocatable {allocatable}", place.0, place.1);
    (!short.is_empty()).then(|| broken(3, what()))
}

/// 3: for each quota node, used <= max for every resource and job count, over the jobs that queue.
fn over_quota<'a>(quota: Option<&Quota>, uses: impl Iterator<Item = &'a Use>) -> Vec<Violation> {
    let Some(quota) = quota else { return Vec::new() };
    let mut sums: BTreeMap<usize, (Resources, i64)> = BTreeMap::new();
    for used in uses.filter(|used| used.counts) {
        for node in quota.path_of(&used.namespace) {
            let (sum, jobs) = sums.entry(node).or_default();
            sum.add(&used.requests);
            *jobs += 1;
        }
    }
    let mut found = Vec::new();
    for (node, (sum, jobs)) in sums {
        let node = &quota.nodes[node];
        if node.max_jobs.is_some_and(|max| jobs > max) {
            found.push(broken(3, format!("quota {}: {jobs} jobs, max {:?}", node.path, node.max_jobs)));
        }
        for (name, max) in &node.max {
            if sum.get(name) > *max {
                found.push(broken(
                    3,
                    format!("quota {}: {name} {} used, max {max}", node.path, sum.get(name)),
                ));
            }
        }
    }
    found
}

/// 5: every hold, on the hub and in the members, belongs to a job that is bound there and has not ended.
fn held_for_nothing(rest: &Snapshot) -> Vec<Violation> {
    let live: BTreeMap<&str, (&str, i64)> = rest
        .bindings
        .iter()
        .filter(|binding| binding["status"]["result"].is_null())
        .filter_map(|binding| {
            let cluster = binding["spec"]["clusters"][0]["name"].as_str()?;
            Some((binding["metadata"]["uid"].as_str()?, (cluster, binding["spec"]["epoch"].as_i64()?)))
        })
        .collect();
    let mut found = Vec::new();
    for (cluster, hold) in &rest.holds {
        let uid = hold["spec"]["binding"]["uid"].as_str().unwrap_or_default();
        let epoch = hold["spec"]["epoch"].as_i64().unwrap_or_default();
        if live.get(uid) != Some(&(cluster.as_str(), epoch)) {
            let (name, of) = (&hold["metadata"]["name"], &hold["metadata"]["namespace"]);
            found
                .push(broken(5, format!("reservation {of}/{name} for {cluster}: its job is not live there")));
        }
    }
    found
}

#[cfg(test)]
mod tests;
