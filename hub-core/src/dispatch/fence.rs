//! When a run on a cluster without contact may be given up, because nothing of it runs there any more.

use fleet_api::{Reservation, Work, names};
use fleet_policies::workload;
use kube_core::ResourceExt;

use super::step::Step;
use crate::{
    binding::BindingEntry,
    manifests,
    world::{Key, World, is_gone as has_gone},
};

pub(super) fn cluster_of(namespace: &str) -> &str {
    namespace.strip_prefix(names::CLUSTER_NAMESPACE_PREFIX).unwrap_or(namespace)
}

/// Whether an administrator declared the cluster gone.
pub fn is_gone(world: &World, cluster: &str) -> bool {
    world.clusters.get(cluster).is_some_and(has_gone)
}

/// Whether a new run may start although the cluster has not confirmed the end of the old one: the cluster is
/// lost, so its agent has stopped the job, and its lease has the mark of loss, so an agent that returns
/// starts nothing.
pub(super) fn may_leave(world: &World, entry: &BindingEntry, cluster: &str) -> bool {
    if is_gone(world, cluster) {
        return true;
    }
    let moves = entry.failover.as_ref().is_some_and(|failover| failover.cluster.is_some());
    moves && world.lost.contains(cluster) && world.leases.get(cluster).is_none_or(|lease| lease.declared_lost)
}

/// Requests the mark on a lost cluster's lease if the job may move and only the mark is missing.
pub(super) fn ask_for_mark(world: &World, entry: &BindingEntry, cluster: &str, step: &mut Step) {
    let moves = entry.failover.as_ref().is_some_and(|failover| failover.cluster.is_some());
    let marked = world.leases.get(cluster).is_none_or(|lease| lease.declared_lost);
    if moves && world.lost.contains(cluster) && !marked {
        step.declare_lost = Some(cluster.to_string());
    }
}

/// Whether an old run's Work only waits for a cluster that need not be waited for. It stays marked for
/// deletion, so that an agent that returns cleans up.
pub fn is_left_behind(world: &World, entry: &BindingEntry, cluster: &str, work: &Work) -> bool {
    work.metadata.deletion_timestamp.is_some() && may_leave(world, entry, cluster)
}

/// Whether pods of a run may still be alive in its member: it has no result there, or it has live pods.
pub fn may_be_alive(world: &World, cluster: &str, work: &Work) -> bool {
    if is_gone(world, cluster) {
        return false;
    }
    if work.spec.workload.manifests.is_empty() {
        return false;
    }
    !has_reported_end(work) || has_live_pods(work)
}

/// Whether the member has reported that the Work's job has ended by itself. From then on it reports live pods.
pub(super) fn has_reported_end(work: &Work) -> bool {
    let Some(manifest) = work.spec.workload.manifests.first() else { return false };
    let text = |field: &str| manifest[field].as_str().unwrap_or_default();
    let kind = workload::WorkloadKind::of(text("apiVersion"), text("kind"));
    manifests::reported_status(work).is_some_and(|status| workload::outcome(kind, status).is_some())
}

fn has_live_pods(work: &Work) -> bool {
    work.status.as_ref().is_some_and(|status| status.live_pods > Some(0))
}

/// Whether pods of the job's last run outlive it until their time is over, and were not told to end before.
pub fn lingers(world: &World, entry: &BindingEntry, work: &Work) -> bool {
    entry.is_finished()
        && work.spec.binding.uid == entry.uid()
        && work.metadata.deletion_timestamp.is_none()
        && has_live_pods(work)
        && !work.annotations().contains_key(names::END_PODS_ANNOTATION)
        && work.metadata.namespace.as_deref().is_some_and(|place| !is_gone(world, cluster_of(place)))
}

/// Whether pods of an ended run may still use the cells of its reservation. The reservation is kept until its
/// member has removed the run, because only it records these cells.
pub fn are_cells_in_use(world: &World, place: &Key, reservation: &Reservation) -> bool {
    let asked = &reservation.spec;
    let binding = (asked.binding.namespace.clone(), asked.binding.name.clone());
    // Only the hub may know of the end.
    let entry = world.bindings.get(&binding).filter(|entry| entry.uid() == asked.binding.uid);
    let has_ended = entry.is_some_and(BindingEntry::is_finished);
    !asked.cells.is_empty()
        && world.works_of(&binding).any(|((namespace, _), work)| {
            *namespace == place.0
                && work.spec.binding.uid == asked.binding.uid
                && work.spec.epoch == asked.epoch
                && may_be_alive(world, cluster_of(namespace), work)
                && (!has_ended || has_live_pods(work))
        })
}
