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

/// What is ready may still lack what its report says; its administrator reads why.
#[test]
fn names_of_resources_that_are_not_planned_with_are_told() {
    let message = |names: usize| {
        let names = (0..names).map(|i| (format!("a.example/r{i:05}"), json!("1")));
        let names: serde_json::Map<String, Value> = names.collect();
        let cluster = json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "east", "uid": "u"},
            "spec": {}, "status": {"reportSequence": 1, "nodeShapes": [{"count": 1, "allocatable": names, "free": {}}]}});
        let mut world = World::default();
        let cluster = serde_json::from_value(cluster).expect("a cluster");
        world.observe(Observation::Cluster(Change::Apply(cluster)));
        let mut clock = LeaseClock::new(Duration::ZERO);
        clock.hear("east", Duration::from_secs(1));
        let (intents, options, at) = (Intents::default(), Options::default(), Duration::from_secs(2));
        let writes = plan(&world, &intents, "east", &clock, &options, at, Timestamp::UNIX_EPOCH);
        let status = writes.into_iter().find_map(|write| match write.verb {
            Verb::MergeStatus(status) => Some(status),
            _ => None,
        });
        let status = status.expect("the condition Ready");
        let condition = &status["status"]["conditions"][0];
        assert_eq!((&condition["type"], &condition["status"]), (&json!("Ready"), &json!("True")));
        condition["message"].as_str().expect("a message").to_owned()
    };
    assert_eq!(message(128), "the agent renews its lease and reports capacity");
    let told = "the agent renews its lease and reports capacity; 1 names of resources in its report are not planned with: \
                found 129; allowed: at most 128";
    assert_eq!(message(129), told);
}
