//! The checker over a history, one change at a time: invariants 1 and 3 at each moment, and of 4 that no run that
//! succeeded is run again or forgotten before the hub knows.

use std::collections::{BTreeMap, BTreeSet};

use fleet_api::names;
use fleet_resources::Resources;
use serde_json::Value;

use super::{
    Change, Violation, broken,
    facts::{JOB_KINDS, Pod, Quota, Use, used_by},
    over_node, over_quota, unfenced_jobs,
};

/// What is known so far.
#[derive(Debug, Default)]
pub struct Judge {
    nodes: BTreeMap<(String, String), Resources>,
    quota: Option<Quota>,
    pods: BTreeMap<String, Pod>,
    bindings: BTreeMap<String, (Use, Value)>,
    used: BTreeMap<(String, String), Resources>,
    /// By job the pods of each run that may run.
    runs: BTreeMap<String, BTreeMap<(String, String), i64>>,
    unfenced: BTreeSet<String>,
    /// Jobs of members, by uid.
    jobs: BTreeMap<String, Run>,
    /// Uid of the binding to the first run of it that succeeded.
    succeeded: BTreeMap<String, Run>,
}

/// A job in a member, made for one epoch of a binding.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    cluster: String,
    name: String,
    binding: String,
    epoch: i64,
}

impl Judge {
    /// Allocatable amounts by cluster and node, and the quota tree.
    pub fn new(nodes: BTreeMap<(String, String), Resources>, quota: Option<Quota>) -> Self {
        Self { nodes, quota, ..Self::default() }
    }

    /// Takes one change in, in the order of time, and says what it broke.
    pub fn see(&mut self, change: &Change) -> Vec<Violation> {
        let object = &change.object;
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_string();
        match &change.cluster {
            None => self.see_binding(uid, object, change.gone),
            Some(cluster) if JOB_KINDS.iter().any(|kind| object["kind"] == *kind) => {
                self.see_run(cluster, uid, object, change.gone)
            }
            Some(cluster) => self.see_pod(cluster, uid, object, change.gone),
        }
    }

    fn see_binding(&mut self, uid: String, object: &Value, gone: bool) -> Vec<Violation> {
        self.unfenced.extend(unfenced_jobs([object]));
        let known = self.bindings.remove(&uid);
        let now = Some((used_by(object), object.clone())).filter(|_| !gone);
        // Only a change of what counts can break anything.
        let moved = known.map(|(counts, _)| counts) != now.as_ref().map(|(counts, _)| counts.clone());
        self.bindings.extend(now.map(|now| (uid, now)));
        match moved {
            true => over_quota(self.quota.as_ref(), self.bindings.values().map(|(counts, _)| counts)),
            false => Vec::new(),
        }
    }

    fn see_run(&mut self, cluster: &str, uid: String, object: &Value, gone: bool) -> Vec<Violation> {
        let meta = &object["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let binding = text(&meta["labels"][names::BINDING_UID_LABEL]);
        if binding.is_empty() {
            return Vec::new();
        }
        let run = Run {
            cluster: cluster.to_string(),
            name: format!("{} {}/{}", text(&object["kind"]), text(&meta["namespace"]), text(&meta["name"])),
            binding: binding.clone(),
            epoch: text(&meta["annotations"][names::EPOCH_ANNOTATION]).parse().unwrap_or(0),
        };
        let mut found = Vec::new();
        if has_succeeded(object) {
            let first = self.succeeded.entry(binding.clone()).or_insert_with(|| run.clone());
            if *first != run && !self.given_up(&run.binding, self.succeeded[&binding].epoch) {
                let first = &self.succeeded[&binding];
                let what = format!(
                    "{} succeeded in {} as epoch {} and ran again in {} as epoch {}",
                    run.name, first.cluster, first.epoch, run.cluster, run.epoch
                );
                found.push(broken(4, what));
            }
        }
        if gone {
            found.extend(self.forgotten(&run, object));
            self.jobs.remove(&uid);
        } else {
            self.jobs.insert(uid, run);
        }
        found
    }

    /// A run that succeeded goes while its binding stands without knowing it.
    fn forgotten(&self, run: &Run, object: &Value) -> Option<Violation> {
        let (_, binding) = self.bindings.get(&run.binding)?;
        let known = !binding["status"]["result"].is_null()
            || !binding["metadata"]["deletionTimestamp"].is_null()
            || self.given_up(&run.binding, run.epoch)
            || binding["spec"]["epoch"] != run.epoch;
        let what = || {
            let Run { cluster, name, epoch, .. } = run;
            format!("{name} succeeded in {cluster} as epoch {epoch} and was forgotten before the hub knew")
        };
        (has_succeeded(object) && !known).then(|| broken(4, what()))
    }

    /// The hub ended that run before its end was known.
    fn given_up(&self, binding: &str, epoch: i64) -> bool {
        let attempts = self.bindings.get(binding).map(|(_, binding)| &binding["status"]["attempts"]);
        attempts.and_then(Value::as_array).is_some_and(|all| all.iter().any(|one| one["epoch"] == epoch))
    }

    fn see_pod(&mut self, cluster: &str, uid: String, object: &Value, gone: bool) -> Vec<Violation> {
        let mut found = Vec::new();
        if let Some(known) = self.pods.remove(&uid) {
            if let Some(place) = known.takes() {
                self.used.entry(place).or_default().sub(&known.requests);
            }
            if let Some((job, run)) = known.may_run_for() {
                *self.runs.entry(job).or_default().entry(run).or_default() -= 1;
            }
        }
        if gone {
            return found;
        }
        let pod = Pod::read(cluster, object);
        if let Some(place) = pod.takes() {
            let sum = self.used.entry(place.clone()).or_default();
            sum.add(&pod.requests);
            found.extend(over_node(&self.nodes, &place, sum));
        }
        if let Some((job, run)) = pod.may_run_for() {
            let of_job = self.runs.entry(job.clone()).or_default();
            *of_job.entry(run).or_default() += 1;
            let live: Vec<_> = of_job.iter().filter(|(_, count)| **count > 0).map(|(run, _)| run).collect();
            if live.len() > 1 && !self.unfenced.contains(&job) && all_of_fleet(&self.jobs, &live) {
                found.push(broken(1, format!("{job} has pods of several runs at once: {live:?}")));
            }
        }
        self.pods.insert(uid, pod);
        found
    }
}

/// A job of a member's own users may have the name of one of the fleet's. Where no runs are watched all count as
/// the fleet's.
fn all_of_fleet(jobs: &BTreeMap<String, Run>, live: &[&(String, String)]) -> bool {
    jobs.is_empty() || live.iter().filter(|(_, run)| jobs.contains_key(run)).count() > 1
}

/// A Kubeflow job or batch Job whose status says that it succeeded.
fn has_succeeded(job: &Value) -> bool {
    let conditions = job["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().any(|c| (c["type"] == "Succeeded" || c["type"] == "Complete") && c["status"] == "True")
}
