use fleet_api::{QueueUnit, names};
use fleet_mirror::INCARNATION_ANNOTATION;
use fleet_mirror::{Listing, Version};
use serde_json::json;

use super::*;
use crate::observation::{Change, Observation};

mod dependents;

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

/// One tenant's policies and objects mark nothing of another tenant, and policies are judged again only because of
/// objects that they select.
#[test]
fn policies_of_one_tenant_mark_no_objects_of_another() {
    let maps = crate::kinds::dependencies().remove(0);
    let job = crate::kinds::known("batch/v1", "Job").expect("a kind");
    let mut world = World::default();
    let object = |kind: &KindRef, namespace: &str, name: &str, label: usize| {
        let value = json!({"apiVersion": kind.api_version, "kind": kind.kind,
            "metadata": {"namespace": namespace, "name": name, "uid": name, "labels": {"p": label.to_string()}}});
        Observation::Object(kind.clone(), Change::Apply(serde_json::from_value(value).expect("an object")))
    };
    let policy = |n: usize| {
        let selector = json!({"apiVersion": maps.api_version, "kind": maps.kind,
            "labelSelector": {"matchLabels": {"p": n.to_string()}}});
        let value = json!({"apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "PropagationPolicy",
            "metadata": {"namespace": "a", "name": format!("p{n}"), "uid": "u", "generation": 1},
            "spec": {"placement": {}, "resourceSelectors": [selector, selector]},
            "status": {"conditions": [{"type": "Effective", "status": "False", "reason": "SelectsNothing",
                "message": "m", "lastTransitionTime": "1970-01-01T00:00:00Z"}]}});
        Observation::Policy(Change::Apply(serde_json::from_value(value).expect("a policy")))
    };
    for observation in [
        object(&job, "a", "job", 0),
        object(&job, "b", "job", 0),
        object(&maps, "b", "map", 0),
        object(&maps, "a", "map", 0),
    ] {
        world.observe(observation);
    }
    world.take_dirty();
    let in_a = |name: &str| ("a".to_string(), name.to_string());
    let (p0, map) =
        (Dirty::Policy(PolicyScope::Namespaced, in_a("p0")), Dirty::Object(maps.clone(), in_a("map")));
    world.observe(policy(0));
    assert_eq!(world.take_dirty().into_iter().collect::<Vec<_>>(), [map, p0.clone()]);
    for n in 1..100 {
        world.observe(policy(n));
    }
    world.take_dirty();
    for (label, marked) in [(0, 1), (7, 1), (1_000, 0)] {
        world.observe(object(&maps, "a", "another", label));
        let policies = world.take_dirty().into_iter().filter(|dirty| matches!(dirty, Dirty::Policy(..)));
        assert_eq!(policies.count(), marked, "{label}");
    }
    let Observation::Policy(Change::Apply(gone)) = policy(0) else { panic!("a policy") };
    world.observe(Observation::Policy(Change::Delete(gone)));
    assert!(world.take_dirty().iter().all(|dirty| matches!(dirty, Dirty::Object(kind, (namespace, _))
        if *kind == maps && namespace == "a")));
}

/// A quota tree is looked at when a resource that it bounds comes to the fleet or leaves it. Other names that a member
/// gives to its resources, in each report others, cost nobody a look.
#[test]
fn names_of_resources_that_the_tree_does_not_have_mark_no_tree() {
    let cluster = |name: &str, resources: &[&str]| -> fleet_api::Cluster {
        let allocatable: BTreeMap<&str, &str> = resources.iter().map(|resource| (*resource, "8")).collect();
        let shape = json!({"count": 1, "allocatable": allocatable, "free": {}});
        let value = json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
            "spec": {}, "status": {"nodeShapes": [shape]}});
        serde_json::from_value(value).expect("a cluster")
    };
    let spec = json!({"name": "root", "children": [
        {"name": "team", "namespaces": ["default"], "max": {"cpu": "8", "nvidia.com/gpu": "8"}}]});
    let spec: fleet_quota_tree::NodeSpec = serde_json::from_value(spec).expect("a specification");
    let tree = Arc::new(QuotaTree::build(&spec).expect("a tree").0);
    let mut world = World::default();
    let looks = |world: &mut World, change: Change<fleet_api::Cluster>| {
        world.observe(Observation::Cluster(change));
        world.take_dirty().contains(&Dirty::Tree)
    };
    let reports = |world: &mut World, name: &str, resources: &[&str]| {
        looks(world, Change::Apply(cluster(name, resources)))
    };
    assert!(!reports(&mut world, "east", &["pods"]), "there is no tree");
    world.quota_tree = Some(tree);
    assert!(reports(&mut world, "east", &["cpu"]), "the first that offers it");
    for n in 0..100 {
        let other = format!("example.com/r{n}");
        assert!(!reports(&mut world, "east", &["cpu", &other]), "{other}");
    }
    assert!(!reports(&mut world, "west", &["cpu", "memory"]), "it is offered already");
    assert!(reports(&mut world, "west", &["cpu", "nvidia.com/gpu"]));
    assert!(!reports(&mut world, "east", &["nvidia.com/gpu"]), "the other one has it, too");
    assert!(!reports(&mut world, "west", &["cpu"]));
    assert!(
        looks(&mut world, Change::Delete(cluster("east", &["nvidia.com/gpu"]))),
        "no one has it any more"
    );
    assert!(looks(&mut world, Change::Delete(cluster("west", &["cpu"]))), "nothing is known any more");
}
