//! Reservations and Leases as views see them.

use fleet_api::{
    Reservation,
    names::{CLUSTER_NAMESPACE_PREFIX, DECLARED_LOST_ANNOTATION},
    reservation::ReservationPhase,
};
use fleet_views::{LeaseFacts, PlaceFacts};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;

/// The places that a member has reserved for a run.
pub fn facts(object: Reservation) -> Option<PlaceFacts> {
    let cluster = object.namespace()?.strip_prefix(CLUSTER_NAMESPACE_PREFIX)?.to_owned();
    let (binding, status) = (object.spec.binding, object.status?);
    let is_held = status.phase == Some(ReservationPhase::Reserved) && !binding.name.is_empty();
    let nodes = status.nodes.into_values().flatten().collect();
    is_held.then_some(PlaceFacts { cluster, id: (binding.namespace, binding.name), nodes })
}

pub fn lease(object: &Lease) -> LeaseFacts {
    let spec = object.spec.clone().unwrap_or_default();
    LeaseFacts {
        renewed_s: spec.renew_time.map(|time| time.0.as_second()),
        lasts_s: spec.lease_duration_seconds.map_or(0, i64::from),
        declared_lost: object.annotations().contains_key(DECLARED_LOST_ANNOTATION),
    }
}
