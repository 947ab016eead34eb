//! When a run may be left behind in a cluster that does not answer, because nothing of it runs there any more.

use fleet_api::{Work, names};

use super::step::Step;
use crate::{
    binding::BindingEntry,
    world::{World, is_gone as has_gone},
};

pub(super) fn cluster_of(namespace: &str) -> &str {
    namespace.strip_prefix(names::CLUSTER_NAMESPACE_PREFIX).unwrap_or(namespace)
}

/// Whether an administrator has said that nothing runs in the cluster.
pub fn is_gone(world: &World, cluster: &str) -> bool {
    world.clusters.get(cluster).is_some_and(has_gone)
}

/// Whether a new run may start although the cluster has not confirmed the end of the old one: the cluster is
/// lost, so that its agent has stopped the job, and its lease carries the mark under which an agent that
/// comes back starts nothing.
pub(super) fn may_leave(world: &World, entry: &BindingEntry, cluster: &str) -> bool {
    if is_gone(world, cluster) {
        return true;
    }
    let moves = entry.failover.as_ref().is_some_and(|failover| failover.cluster.is_some());
    moves && world.lost.contains(cluster) && world.leases.get(cluster).is_none_or(|lease| lease.declared_lost)
}

/// Asks for the mark on a lost cluster's lease, where the job may move and only the mark is missing.
pub(super) fn ask_for_mark(world: &World, entry: &BindingEntry, cluster: &str, step: &mut Step) {
    let moves = entry.failover.as_ref().is_some_and(|failover| failover.cluster.is_some());
    let marked = world.leases.get(cluster).is_none_or(|lease| lease.declared_lost);
    if moves && world.lost.contains(cluster) && !marked {
        step.declare_lost = Some(cluster.to_string());
    }
}

/// Whether an old run's Work only waits for a cluster that nothing has to be waited for. It stays, marked for
/// deletion, so that an agent that comes back cleans up.
pub fn is_left_behind(world: &World, entry: &BindingEntry, cluster: &str, work: &Work) -> bool {
    work.metadata.deletion_timestamp.is_some() && may_leave(world, entry, cluster)
}
