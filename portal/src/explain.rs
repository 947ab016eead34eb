//! Which clusters could hold a job now, and why the others cannot.
//!
//! By the rules of the controller, from the members' last reports. Deliberately absent: what the job waits for; the
//! controller says that itself.

use std::borrow::Borrow;

use fleet_api::{Cluster, convert};
use fleet_hub_core::{binding::BindingEntry, cluster};
pub use fleet_pages::shown::ClusterVerdict;
use fleet_placement::{NodeShape, fits_shapes_empty, fits_sum, free_sum, place_on_shapes};
use fleet_planner::unfit_text;
use fleet_policies::affinity;
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
    for name in
        named.into_iter().filter(|name| !clusters.iter().any(|cluster| cluster.borrow().name_any() == **name))
    {
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
    if !entry.is_gang() {
        return say(true, "is open to the object".to_string());
    }
    let shapes: Vec<NodeShape> = convert::placement_shapes(&status.node_shapes);
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

/// `2 replicas`; objects without replicas are simply there.
fn replicas_text(entry: &BindingEntry, replicas: i64) -> String {
    match (entry.gang.components.is_empty(), replicas) {
        (true, _) => "the object is here".to_string(),
        (false, 1) => "1 replica is here".to_string(),
        (false, replicas) => format!("{replicas} replicas are here"),
    }
}
