//! What runs in the members, whatever the hub believes: pods, put to the binding of the run that owns them.

use std::collections::{BTreeMap, BTreeSet};

use fleet_api::names;
use fleet_resources::Resources;
use serde_json::Value;

use super::{
    Snapshot, Violation,
    facts::{JOB_KINDS, Pod, job_of},
    quota::{UsageSource, Use, leaf_label, leaf_of_run, queues},
    violation::broken,
};

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Uid of the object that controls this one.
pub(super) fn controller(object: &Value) -> Option<&str> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)?["uid"].as_str()
}

/// The binding for which Fleet made an object of a member.
pub(super) fn binding_of(object: &Value) -> Option<&str> {
    object["metadata"]["labels"][names::BINDING_UID_LABEL].as_str().filter(|uid| !uid.is_empty())
}

/// Jobs whose policy accepts two runs at once, as pods name them.
pub fn unfenced_jobs<'a>(bindings: impl IntoIterator<Item = &'a Value>) -> BTreeSet<String> {
    bindings.into_iter().filter(|binding| accepts_two_runs(binding)).map(job_of).collect()
}

/// The policy lets a job have several runs: it is copied to several clusters, or is no job at all.
pub(super) fn may_have_several_runs(binding: &Value) -> bool {
    let spec = &binding["spec"];
    !JOB_KINDS.contains(&text(&spec["resource"]["kind"]))
        || spec["placement"]["replicaScheduling"]["replicaSchedulingType"] == "Duplicated"
        || spec["clusters"].as_array().is_some_and(|clusters| clusters.len() > 1)
        || accepts_two_runs(binding)
}

/// The policy accepts that an old and a new run of a job are alive at once.
pub(super) fn accepts_two_runs(binding: &Value) -> bool {
    let failover = &binding["spec"]["failover"];
    let stays = |purge: &Value| ["Gracefully", "Graciously", "Never"].contains(&text(purge));
    let unfenced = failover["cluster"].is_null() || is_unfenced(binding);
    is_unfenced(binding)
        || failover["allowTwoRuns"] == true
        || stays(&failover["application"]["purgeMode"]) && unfenced
}

/// A run that the hub has moved without fencing: what is left of it in the cluster that was lost is no longer counted.
pub(super) fn was_moved_unfenced(binding: &Value, epoch: i64) -> bool {
    let of_run = |attempt: &&Value| attempt["epoch"] == epoch && attempt["reason"] == "ClusterLost";
    is_unfenced(binding)
        && binding["status"]["attempts"].as_array().is_some_and(|all| all.iter().any(|one| of_run(&one)))
}

/// The policy moves a job from a lost cluster without fencing it.
pub(super) fn is_unfenced(binding: &Value) -> bool {
    binding["spec"]["failover"]["cluster"]["fencing"] == "None"
}

/// The hub does not hear from the cluster.
pub(super) fn is_away(cluster: &Value) -> bool {
    let conditions = cluster["status"]["conditions"].as_array().into_iter().flatten();
    !conditions.into_iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// The hub has ended this run: the job waits, or has another run.
pub(super) fn is_left(binding: &Value, epoch: i64) -> bool {
    let is_bound = binding["spec"]["clusters"].as_array().is_some_and(|clusters| !clusters.is_empty());
    !is_bound || binding["spec"]["epoch"] != epoch
}

/// The epoch of a run, as its object in the member says.
pub(super) fn epoch_of(run: &Value) -> i64 {
    text(&run["metadata"]["annotations"][names::EPOCH_ANNOTATION]).parse().unwrap_or(0)
}

/// What the pods of one binding, which have not ended, ask for.
#[derive(Default)]
struct Taken {
    namespace: String,
    requests: Resources,
    labels: Value,
    /// Of the run, where its binding says it.
    leaf: Option<String>,
}

/// 1 and 3: runs by binding, and pods by node of the quota tree.
pub(super) fn check_pods(snapshot: &Snapshot) -> Vec<Violation> {
    let mut found = several_runs(snapshot);
    let Some(quota) = &snapshot.quota else { return found };
    let uses = uses(snapshot);
    found.extend(quota.over(UsageSource::Pods, uses.iter()));
    let status = snapshot.tree.as_ref().map_or(&Value::Null, |tree| &tree["status"]);
    found.extend(quota.uncounted(status, uses.iter()));
    found
}

/// The run that owns a pod; a ReplicaSet's is the Deployment.
fn run_of<'s>(snapshot: &'s Snapshot) -> impl Fn(&'s Pod) -> Option<&'s Value> {
    let sets: BTreeMap<(&str, &str), &str> = snapshot
        .replica_sets
        .iter()
        .filter_map(|(cluster, set)| {
            Some(((cluster.as_str(), text(&set["metadata"]["uid"])), controller(set)?))
        })
        .collect();
    let runs: BTreeMap<(&str, &str), &Value> = snapshot
        .runs
        .iter()
        .map(|(cluster, run)| ((cluster.as_str(), text(&run["metadata"]["uid"])), run))
        .collect();
    move |pod| {
        let own = (pod.cluster.as_str(), pod.run.as_str());
        let above = sets.get(&own).map_or(own, |run| (own.0, *run));
        runs.get(&above).copied()
    }
}

/// What jobs that queue take of their leaves, by their pods alone.
fn uses(snapshot: &Snapshot) -> Vec<Use> {
    let run_of = run_of(snapshot);
    let bindings: BTreeMap<&str, &Value> =
        snapshot.bindings.iter().map(|binding| (text(&binding["metadata"]["uid"]), binding)).collect();
    let labels: BTreeMap<String, &Value> =
        snapshot.jobs.iter().map(|job| (job_key(job), &job["metadata"]["labels"])).collect();
    let away: BTreeSet<&str> = snapshot
        .clusters
        .iter()
        .filter(|cluster| is_away(cluster))
        .map(|cluster| text(&cluster["metadata"]["name"]))
        .collect();
    let is_behind = |pod: &Pod, binding: &Value, epoch: i64| {
        was_moved_unfenced(binding, epoch)
            || is_unfenced(binding) && is_left(binding, epoch) && away.contains(pod.cluster.as_str())
    };
    let mut taken: BTreeMap<&str, Taken> = BTreeMap::new();
    for pod in snapshot.pods.iter().filter(|pod| !pod.has_ended()) {
        let Some(run) = run_of(pod) else { continue };
        let Some(uid) = binding_of(run) else { continue };
        let binding = bindings.get(uid).copied();
        if binding.is_some_and(|binding| !queues(binding) || is_behind(pod, binding, epoch_of(run))) {
            continue;
        }
        // Its watchdog lets it begin in no lost cluster, and the hub has ended its run.
        if !pod.may_run() && binding.is_some_and(|binding| is_left(binding, epoch_of(run))) {
            continue;
        }
        let of = taken.entry(uid).or_insert_with(|| Taken {
            namespace: pod.namespace.clone(),
            // A job that is gone from the hub is known by what it left in the member.
            labels: binding
                .and_then(|binding| labels.get(&job_of(binding)).copied())
                .unwrap_or(&run["metadata"]["labels"])
                .clone(),
            leaf: binding.and_then(leaf_of_run),
            ..Taken::default()
        });
        of.requests.add(&pod.requests);
    }
    let used = |taken: Taken| Use {
        namespace: taken.namespace,
        leaf: taken.leaf.or_else(|| leaf_label(&taken.labels)),
        requests: taken.requests,
        counts: true,
    };
    taken.into_values().map(used).collect()
}

/// The name under which [`job_of`] knows a job of the hub.
pub(super) fn job_key(job: &Value) -> String {
    let meta = &job["metadata"];
    super::facts::job_name(job, &meta["namespace"], &meta["name"])
}

/// 1: at most one run of a binding has pods that may run, under whatever name.
fn several_runs(snapshot: &Snapshot) -> Vec<Violation> {
    let run_of = run_of(snapshot);
    let mut live: BTreeMap<&str, BTreeSet<(&str, String)>> = BTreeMap::new();
    for pod in snapshot.pods.iter().filter(|pod| pod.may_run()) {
        if let Some(run) = run_of(pod)
            && let Some(binding) = binding_of(run)
        {
            live.entry(binding).or_default().insert((&pod.cluster, run_name(run)));
        }
    }
    let mut found = Vec::new();
    for binding in snapshot.bindings.iter().filter(|binding| !may_have_several_runs(binding)) {
        let runs = live.get(text(&binding["metadata"]["uid"]));
        if let Some(runs) = runs.filter(|runs| runs.len() > 1) {
            found.push(broken(1, format!("{} has several live runs: {runs:?}", job_of(binding))));
        }
    }
    found
}

/// A run as violations name it: its job and its uid, as a run may be made anew under the same name.
pub(super) fn run_name(run: &Value) -> String {
    format!("{} {}", job_key(run), text(&run["metadata"]["uid"]))
}
