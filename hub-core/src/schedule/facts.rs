//! Facts that the scheduler reads from single objects.

use fleet_api::{Reservation, binding::Component, convert, names};
use fleet_policies::reason::Reason;
use fleet_quota::JobId;

use crate::{
    asked,
    binding::BindingEntry,
    cluster,
    planner::{Member, Waiting},
    world::{Key, Object, World},
};

/// Requests of a gang in one cluster: never more than was counted.
pub(super) fn components_in(
    world: &World,
    entry: &BindingEntry,
    object: &Object,
    cluster: &str,
) -> Result<Vec<Component>, Waiting> {
    let counted = &entry.object.spec.components;
    if !asked::is_overridden(world, entry.namespace(), object) {
        return Ok(counted.clone());
    }
    let components = asked::in_cluster(world, &entry.kind, entry.namespace(), object, cluster)?;
    match fleet_api::convert::within(&components, counted) {
        Ok(()) => Ok(components),
        Err(message) => Err(Waiting::new(Reason::Edited, message)),
    }
}

/// A reservation for the binding's next epoch.
pub(super) fn is_next(entry: &BindingEntry, reservation: &Reservation) -> bool {
    reservation.spec.binding.uid == entry.uid() && reservation.spec.epoch == entry.object.spec.epoch + 1
}

pub fn job_id(key: &Key) -> JobId {
    JobId::new(&format!("{}/{}", key.0, key.1))
}

pub fn key_of(id: &JobId) -> Key {
    let (namespace, name) = id.as_str().split_once('/').unwrap_or(("", id.as_str()));
    (namespace.to_string(), name.to_string())
}

pub(crate) fn cluster_of(namespace: &str) -> &str {
    namespace.strip_prefix(names::CLUSTER_NAMESPACE_PREFIX).unwrap_or(namespace)
}

/// A Cluster's capacity; `None` if the Cluster is unknown or has not reported.
pub(super) fn member(world: &World, name: &str) -> Option<Member> {
    let object = world.clusters.get(name)?;
    let status = object.status.as_ref()?;
    Some(Member {
        facts: cluster::facts(object),
        reserves: status.reservation != Some(false),
        serves: status.api_enablements.iter().cloned().collect(),
        shapes: convert::placement_shapes(&status.node_shapes),
        node_names: status.node_shapes.iter().map(|shape| shape.nodes.clone()).collect(),
        sequence: status.report_sequence?,
    })
}
