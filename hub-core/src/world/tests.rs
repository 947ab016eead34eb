use fleet_api::{QueueUnit, names};
use fleet_mirror::INCARNATION_ANNOTATION;
use fleet_mirror::{Listing, Version};
use serde_json::json;

use super::*;
use crate::observation::{Change, Observation};

fn unit(version: &str) -> QueueUnit {
    let value = json!({"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "QueueUnit",
        "metadata": {"namespace": "team", "name": "job-qu", "uid": "u", "resourceVersion": version},
        "spec": {"consumerRef": {"apiVersion": "fleet.dev/v1alpha1", "kind": "ResourceBinding", "namespace": "team",
            "name": "job"}}});
    serde_json::from_value(value).expect("a unit")
}

#[test]
fn a_unit_that_an_older_listing_does_not_name_is_taken_in_again() {
    let mut world = World::default();
    for change in [
        Change::reset(Vec::new()),
        Change::Apply(unit("5")),
        Change::reset(Vec::new()),
        Change::Apply(unit("5")),
    ] {
        world.observe(Observation::Unit(change));
    }
    assert_eq!(world.units.len(), 1);
}

#[test]
fn a_unit_known_from_its_answer_outlives_an_older_listing_and_no_newer_one() {
    let listing = |version| {
        Change::Reset(Listing { objects: Vec::new(), version: Version::Number(version), incarnation: None })
    };
    let mut world = World::default();
    for (change, left) in [(listing(1), 0), (Change::Answer(unit("5")), 1), (listing(4), 1), (listing(9), 0)]
    {
        world.observe(Observation::Unit(Change::Listing));
        world.observe(Observation::Unit(change));
        assert_eq!(world.units.len(), left);
    }
    world.observe(Observation::Unit(Change::Answer(unit("6"))));
    assert_eq!(world.units.len(), 0, "its end was told");
    assert!(!world.restored);
}

#[test]
fn a_restored_hub_waits_for_the_agents_that_knew_it_before() {
    let of = |kind: &str, api: &str, namespace: &str, name: &str, annotations: serde_json::Value| {
        json!({"apiVersion": api, "kind": kind, "spec": {},
            "metadata": {"namespace": namespace, "name": name, "uid": name, "annotations": annotations}})
    };
    let mut world = World::default();
    for cluster in ["east", "west", "older"] {
        let object = of("Cluster", "fleet.dev/v1alpha1", "", cluster, json!({}));
        world
            .observe(Observation::Cluster(Change::Apply(serde_json::from_value(object).expect("a cluster"))));
    }
    let mut lease = |cluster: &str, sorted: serde_json::Value| {
        let namespace = names::cluster_namespace(cluster);
        let marks = json!({names::SORTED_ANNOTATION: sorted});
        let marks = if sorted.is_null() { json!({}) } else { marks };
        let lease = of("Lease", "coordination.k8s.io/v1", &namespace, names::LEASE_NAME, marks);
        world.observe(Observation::Lease(Change::Apply(serde_json::from_value(lease).expect("a lease"))));
        world.unsorted_clusters().into_iter().collect::<Vec<_>>()
    };
    assert!(lease("east", json!("before")).is_empty(), "the hub says nothing");
    lease("west", json!("now"));
    lease("older", json!(null));
    let system = of("Namespace", "v1", "", "kube-system", json!({INCARNATION_ANNOTATION: "now"}));
    world
        .observe(Observation::Namespace(Change::Apply(serde_json::from_value(system).expect("a namespace"))));
    assert_eq!(world.unsorted_clusters().into_iter().collect::<Vec<_>>(), ["east"]);
    // Once it has reported to this incarnation, its lease can say what it likes: only it is not ready.
    let marks = json!({names::SORTED_ANNOTATION: "now"});
    let recorded = of("Cluster", "fleet.dev/v1alpha1", "", "east", marks);
    world.observe(Observation::Cluster(Change::Apply(serde_json::from_value(recorded).expect("a cluster"))));
    assert!(world.unsorted_clusters().is_empty() && world.is_unsorted("east") && !world.is_unsorted("west"));
    let marks = json!({names::SORTED_ANNOTATION: "before"});
    let recorded = of("Cluster", "fleet.dev/v1alpha1", "", "east", marks);
    world.observe(Observation::Cluster(Change::Apply(serde_json::from_value(recorded).expect("a cluster"))));
    assert_eq!(world.unsorted_clusters().into_iter().collect::<Vec<_>>(), ["east"]);
    world.clusters.remove("east");
    assert!(world.unsorted_clusters().is_empty(), "it was taken out");
}

/// A member may write any number on its lease; times are added to it.
#[test]
fn what_a_lease_asks_for_is_bounded() {
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "spec": {"leaseDurationSeconds": i32::MAX},
        "metadata": {"namespace": names::cluster_namespace("east"), "name": names::LEASE_NAME, "uid": "u",
            "annotations": {names::FENCE_GRACE_ANNOTATION: u64::MAX.to_string()}}});
    let lease = kept::read_lease(&serde_json::from_value(lease).expect("a lease"));
    let clock = crate::cluster::LeaseClock::new(core::time::Duration::from_secs(5));
    let options = crate::options::Options::default();
    let lost_at = clock.lost_at("east", Some(&lease), &options);
    assert!(lost_at <= 3 * kept::LONGEST_SAID, "{lost_at:?}");
}
