//! The checker: the invariants of the design, stated over a snapshot of a fleet and over its history. Numbers
//! are those of `docs/ARCHITECTURE.md`.
//!
//! Pure over what was listed, but for [`Snapshot::take`]. Written against the objects alone and without the
//! product's rules, so that an error there does not hide itself here. Used by `fleet audit`, by the simulation
//! after each step, and by the end-to-end tests.

mod cell_config;
mod during;
mod facts;
mod history;
mod judge;
mod leftovers;
mod listing;
mod plain;
mod quota;
mod real;
mod requests;
mod run_log;
mod snapshot;
mod violation;

use std::collections::{BTreeMap, BTreeSet};

use fleet_resources::Resources;
use serde_json::Value;

pub use during::Bounds;
pub use facts::Pod;
pub use history::{History, ObservedChange};
pub use judge::Judge;
pub use leftovers::{unattended, untold};
pub use plain::Plain;
pub use quota::Quota;
pub use run_log::check_run_log;
pub use snapshot::Snapshot;
pub use violation::Violation;

use facts::job_of;
use leftovers::{left_behind, lost};
use quota::{UsageSource, Use, leaf_of_run, used_by};
use real::unfenced_jobs;
use violation::{broken, over_node};

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
    let mut judge = Judge::new(rest.nodes.clone(), rest.quota.clone());
    let mut found = BTreeSet::new();
    for change in &history.changes {
        found.extend(judge.see(change));
    }
    found.into_iter().collect()
}

/// Invariants 1, 2, 3 and 5 of a fleet in which nothing is under way.
pub fn check_at_rest(rest: &Snapshot) -> Vec<Violation> {
    let mut found = Vec::new();
    found.extend(check_moment(rest));
    found.extend(half_bound(&rest.pods));
    found.extend(left_behind(rest));
    found
}

/// What must hold at any moment of a fleet, also in the middle of things, when the snapshot is of one moment:
/// invariants 1 and 3.
pub fn check_moment(snapshot: &Snapshot) -> Vec<Violation> {
    let mut found = several_runs(snapshot);
    let mut used: BTreeMap<(String, String), Resources> = BTreeMap::new();
    for pod in &snapshot.pods {
        if let Some(place) = pod.takes() {
            used.entry(place).or_default().add(&pod.requests);
        }
    }
    found.extend(used.iter().flat_map(|(place, sum)| over_node(&snapshot.nodes, place, sum)));
    let labels: BTreeMap<String, &Value> =
        snapshot.jobs.iter().map(|job| (real::job_key(job), &job["metadata"]["labels"])).collect();
    let of = |binding| {
        let used = used_by(binding, labels.get(&job_of(binding)).copied().unwrap_or(&Value::Null));
        Use { leaf: leaf_of_run(binding).or(used.leaf), ..used }
    };
    let uses: Vec<Use> = snapshot.bindings.iter().map(of).collect();
    found.extend(snapshot.quota.iter().flat_map(|quota| quota.over(UsageSource::Hub, uses.iter())));
    found.extend(real::check_pods(snapshot));
    found
}

/// What must hold when everything has come to its end: all of [`check_at_rest`], and that nothing was lost (4).
pub fn check_end(rest: &Snapshot) -> Vec<Violation> {
    let mut found = check_at_rest(rest);
    found.extend(lost(rest));
    found
}

/// 1: at most one (cluster, run) of a job has pods that may run.
fn several_runs(snapshot: &Snapshot) -> Vec<Violation> {
    let unfenced = unfenced_jobs(&snapshot.bindings);
    let mut runs: BTreeMap<String, BTreeSet<(String, String)>> = BTreeMap::new();
    for (job, run) in snapshot.pods.iter().filter_map(Pod::may_run_for) {
        if !unfenced.contains(&job) {
            runs.entry(job).or_default().insert(run);
        }
    }
    let several = runs.into_iter().filter(|(_, runs)| runs.len() > 1);
    several.map(|(job, runs)| broken(1, format!("{job} has pods of several runs: {runs:?}"))).collect()
}

/// 2: of a gang's pods none is bound to stay, or as many as it needs are bound. A gang of which a pod has ended was
/// whole, and may have lost pods since.
fn half_bound(pods: &[Pod]) -> Vec<Violation> {
    let ended: BTreeSet<&str> =
        pods.iter().filter(|pod| pod.has_ended()).map(|pod| pod.run.as_str()).collect();
    let mut gangs: BTreeMap<(&str, &str), (i64, i64, bool)> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !ended.contains(pod.run.as_str())) {
        if let Some((_, needs)) = &pod.gang {
            let (bound, size, stays) = gangs.entry((&pod.cluster, &pod.run)).or_default();
            *bound += i64::from(pod.node.is_some());
            *size = *needs;
            *stays |= pod.node.is_some() && !pod.leaves;
        }
    }
    let half = gangs.into_iter().filter(|(_, (bound, size, stays))| *stays && bound < size);
    let say = |((cluster, run), (bound, size, _)): ((&str, &str), (i64, i64, bool))| {
        let name = pods.iter().find(|pod| pod.run == run).map_or("", |pod| &pod.job);
        broken(2, format!("gang of {name} in {cluster}: {bound} of {size} pods are bound"))
    };
    half.map(say).collect()
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_cells;
#[cfg(test)]
mod tests_real;
