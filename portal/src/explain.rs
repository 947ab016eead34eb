//! Which clusters could hold a job now, and why the others cannot.
//!
//! By the rules of the controller, from the members' last reports. Deliberately absent: what the job waits for; the
//! controller says that itself.

use std::{borrow::Borrow, collections::BTreeSet};

use fleet_api::{Cluster, binding::AggregatedStatusItem, convert};
use fleet_hub_core::{binding::BindingEntry, cluster};
pub use fleet_pages::shown::ClusterVerdict;
use fleet_placement::{
    Gang, GangComponent, NodeShape, fits_shapes_empty, fits_sum, free_sum, place_on_shapes,
};
use fleet_planner::unfit_text;
use fleet_policies::{affinity, reason::Reason};
use kube::ResourceExt;

/// A verdict for each cluster, and for each one that the policy names and that has not joined. None for a job that has
/// ended.
pub fn verdicts(entry: &BindingEntry, clusters: &[impl Borrow<Cluster>]) -> Vec<ClusterVerdict> {
    if entry.is_finished() {
        return Vec::new();
    }
    let mut verdicts: Vec<ClusterVerdict> =
        clusters.iter().map(|cluster| judge(entry, cluster.borrow())).collect();
    let placement = &entry.placement;
    let single = placement.cluster_affinity.iter();
    let named = single.chain(placement.cluster_affinities.iter().map(|term| &term.affinity));
    let mut named: Vec<&String> = named.flat_map(|affinity| &affinity.cluster_names).collect();
    named.sort();
    named.dedup();
    let joined: BTreeSet<String> = clusters.iter().map(|cluster| cluster.borrow().name_any()).collect();
    for name in named.into_iter().filter(|name| !joined.contains(*name)) {
        let sentence = "has not joined the fleet; the policy names it".to_string();
        verdicts.push(ClusterVerdict { cluster: name.clone(), fits: false, here: false, sentence });
    }
    verdicts
}

/// Whether the cluster may and can hold the whole job, by its last report; of a job that is there, how much of it.
pub fn judge(entry: &BindingEntry, object: &Cluster) -> ClusterVerdict {
    let name = object.name_any();
    if let Some(target) = entry.object.spec.clusters.iter().find(|target| target.name == name) {
        let sentence = match entry.is_gang() {
            true => format!("the job is bound here (run {})", entry.object.spec.epoch),
            false => replicas_text(entry, target.replicas),
        };
        return ClusterVerdict { cluster: name, fits: true, here: true, sentence };
    }
    let say =
        |fits: bool, sentence: String| ClusterVerdict { cluster: name.clone(), fits, here: false, sentence };
    let facts = cluster::facts(object);
    if let Some(unfit) = affinity::unfit(&entry.placement, &facts) {
        return say(false, unfit_text(Some(unfit)));
    }
    let Some(status) = &object.status else { return say(false, "has not reported yet".to_string()) };
    let resource = &entry.object.spec.resource;
    let kind = format!("{}/{}", resource.api_version, resource.kind);
    if !status.api_enablements.is_empty() && !status.api_enablements.contains(&kind) {
        return say(false, unfit_text(None));
    }
    if let Some(refused) = refused_by(entry, &name) {
        return say(false, refused);
    }
    let shapes: Vec<NodeShape> = convert::placement_shapes(&status.node_shapes);
    if !entry.is_gang() {
        return match room_for_one(&shapes, &entry.gang) {
            Ok(()) => say(true, "is open to the object".to_string()),
            Err(why) => say(false, format!("is open to the object, but has no room for one replica: {why}")),
        };
    }
    if status.reservation == Some(false) {
        return match fits_sum(&free_sum(&shapes), &entry.gang) {
            Ok(()) => say(true, "the sum of free resources covers the job".to_string()),
            Err(short) => {
                let short: Vec<String> = short.iter().map(ToString::to_string).collect();
                say(false, format!("the sum of free resources lacks {}", short.join(", ")))
            }
        };
    }
    match place_on_shapes(&shapes, &entry.gang) {
        Ok(_) => say(true, "can hold the whole job now".to_string()),
        Err(refusal) if fits_shapes_empty(&shapes, &entry.gang) => say(false, refusal.sentence()),
        Err(refusal) => {
            say(false, format!("{}; it could not hold the job even if empty", refusal.sentence()))
        }
    }
}

/// Whether some cluster could hold the whole job if it were empty; true where that is not known.
pub fn could_ever_start(entry: &BindingEntry, clusters: &[impl Borrow<Cluster>]) -> bool {
    let admits = |object: &&Cluster| {
        affinity::unfit(&entry.placement, &cluster::facts(object)) != Some(affinity::Unfit::Affinity)
    };
    let mut admitting = clusters.iter().map(Borrow::borrow).filter(admits).peekable();
    let holds = |object: &Cluster| {
        let Some(status) = &object.status else { return true };
        let shapes = convert::placement_shapes(&status.node_shapes);
        shapes.is_empty() || status.reservation == Some(false) || fits_shapes_empty(&shapes, &entry.gang)
    };
    !entry.is_gang() || admitting.peek().is_none() || admitting.any(holds)
}

/// What kept the last run out of the cluster, if the cluster refused the object.
fn refused_by(entry: &BindingEntry, cluster: &str) -> Option<String> {
    let attempts = entry.object.status.iter().flat_map(|status| &status.attempts);
    let last = attempts.max_by_key(|attempt| attempt.epoch).filter(|last| last.cluster == cluster)?;
    let refusals = [Reason::NameTaken, Reason::NotPermitted];
    refusals
        .iter()
        .any(|reason| last.reason == reason.as_str())
        .then(|| format!("refused the object in run {}: {}: {}", last.epoch, last.reason, last.message))
}

/// Whether one pod of each component fits; that is all that an object without a gang needs to begin.
fn room_for_one(shapes: &[NodeShape], gang: &Gang) -> Result<(), String> {
    if gang.components.is_empty() || shapes.is_empty() {
        return Ok(());
    }
    for component in gang.components.iter().filter(|component| component.replicas > 0) {
        let one = GangComponent::whole(&component.name, 1, component.shape.clone());
        if let Err(refusal) = place_on_shapes(shapes, &Gang { components: vec![one] }) {
            return Err(refusal.sentence());
        }
    }
    Ok(())
}

/// What a member says of the job that was sent to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberSaid {
    pub reason: String,
    /// Begins with the cluster.
    pub message: String,
    /// RFC 3339, if the member says it.
    pub since: Option<String>,
}

/// Conditions that say that pods cannot be created: of jobs, and of Kubernetes' own workloads.
const NOT_CREATED: [&str; 2] = ["FailedCreate", "ReplicaFailure"];

/// Why a job that is in a cluster has not all its pods: the cluster refused the object, or the pods. `None` if there is
/// nothing to say, and for a job that has ended.
pub fn member_says(entry: &BindingEntry) -> Option<MemberSaid> {
    let status = entry.object.status.as_ref().filter(|_| !entry.is_finished())?;
    let here = |item: &&AggregatedStatusItem| {
        entry.object.spec.clusters.iter().any(|target| target.name == item.cluster_name)
    };
    status.aggregated_status.iter().filter(here).find_map(|item| {
        let say = |reason: &str, message: &str, since: Option<&str>| MemberSaid {
            reason: reason.to_owned(),
            message: format!("{}: {message}", item.cluster_name),
            since: since.map(str::to_owned),
        };
        if let Some(refused) = item.applied_message.as_deref().filter(|_| !item.applied) {
            return Some(say(Reason::SyncWorkFailed.as_str(), refused, None));
        }
        let state = &item.status["state"];
        let of_state = state["reason"].as_str().filter(|reason| NOT_CREATED.contains(reason));
        let of_state =
            of_state.map(|reason| say(reason, state["message"].as_str().unwrap_or_default(), None));
        let mut conditions = item.status["conditions"].as_array().into_iter().flatten();
        let failed = conditions.find(|condition| {
            condition["status"] == "True"
                && condition["type"].as_str().is_some_and(|kind| NOT_CREATED.contains(&kind))
        });
        of_state.or_else(|| {
            let failed = failed?;
            let text = |field: &str| failed[field].as_str();
            Some(say(
                text("reason").unwrap_or(NOT_CREATED[0]),
                text("message").unwrap_or_default(),
                text("lastTransitionTime"),
            ))
        })
    })
}

/// Whether the job suspends itself in its cluster: it has no pods, and keeps its places.
pub fn is_suspended(entry: &BindingEntry) -> bool {
    let items = entry.object.status.iter().flat_map(|status| &status.aggregated_status);
    let mut conditions = items.flat_map(|item| item.status["conditions"].as_array().into_iter().flatten());
    conditions.any(|condition| condition["type"] == "Suspended" && condition["status"] == "True")
}

/// `2 replicas`; objects without replicas are simply there.
fn replicas_text(entry: &BindingEntry, replicas: i64) -> String {
    match (entry.gang.components.is_empty(), replicas) {
        (true, _) => "the object is here".to_string(),
        (false, 1) => "1 replica is here".to_string(),
        (false, replicas) => format!("{replicas} replicas are here"),
    }
}
