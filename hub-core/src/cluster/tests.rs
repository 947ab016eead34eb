use serde_json::json;

use super::*;
use crate::{
    observation::{Change, Observation},
    world::LONGEST_SAID,
};

/// A member may write any number on its lease; times are added to it.
#[test]
fn what_a_lease_asks_for_is_bounded() {
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "spec": {"leaseDurationSeconds": i32::MAX},
        "metadata": {"namespace": names::cluster_namespace("east"), "name": names::LEASE_NAME, "uid": "u",
            "annotations": {names::FENCE_GRACE_ANNOTATION: u64::MAX.to_string()}}});
    let mut world = World::default();
    world.observe(Observation::Lease(Change::Apply(serde_json::from_value(lease).expect("a lease"))));
    let clock = LeaseClock::new(Duration::from_secs(5));
    let lost_at = clock.lost_at("east", world.leases.get("east"), &Options::default());
    assert!(lost_at <= 3 * LONGEST_SAID, "{lost_at:?}");
}
