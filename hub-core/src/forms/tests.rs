use serde_json::json;

use super::*;
use crate::{
    kinds,
    observation::{Change, Observation},
};

fn cluster(world: &mut World, name: &str, region: &str) {
    let cluster = json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "Cluster",
        "metadata": {"name": name, "uid": name}, "spec": {"region": region}});
    let cluster = serde_json::from_value(cluster).expect("a cluster");
    world.observe(Observation::Cluster(Change::Apply(cluster)));
}

/// A policy whose rules visit the whole object `visitors` times, and set the number of workers.
fn overrides(world: &mut World, namespace: &str, visitors: usize, workers: i64) {
    let image = json!({"component": "Tag", "operator": "replace", "value": "v2"});
    let set =
        json!({"path": "/spec/pytorchReplicaSpecs/Worker/replicas", "operator": "replace", "value": workers});
    let policy = json!({"apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"namespace": namespace, "name": "o", "uid": "o"},
        "spec": {"overrideRules": [{"overriders": {"imageOverrider": vec![image; visitors], "plaintext": [set]}}]}});
    let policy = serde_json::from_value(policy).expect("a policy");
    world.observe(Observation::Override(Change::Apply(policy)));
}

fn class(world: &mut World, value: i64) {
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "c", "uid": "c"},
        "value": value});
    let class = serde_json::from_value(class).expect("a class");
    world.observe(Observation::PriorityClass(Change::Apply(class)));
}

/// A job with `values` variables.
fn job(world: &mut World, namespace: &str, values: usize) -> (KindRef, Key) {
    let kind = kinds::known("kubeflow.org/v1", "PyTorchJob").expect("a kind");
    let variables: Vec<Value> = (0..values).map(|n| json!({"name": format!("V{n}"), "value": "x"})).collect();
    let container = json!({"name": "pytorch", "image": "i:v1", "env": variables});
    let job = json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": "train", "namespace": namespace, "uid": "u"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": {"spec": {"containers": [container]}}}}}});
    let job = serde_json::from_value(job).expect("a job");
    world.observe(Observation::Object(kind.clone(), Change::Apply(job)));
    (kind, (namespace.to_string(), "train".to_string()))
}

/// The number of workers that quota counts, and what it cost to find it.
fn workers(
    world: &World,
    forms: &mut Forms,
    (kind, key): &(KindRef, Key),
    placement: &Placement,
) -> (i64, usize) {
    let object = world.object(kind, key).expect("a job");
    let counted = forms.counted(world, kind, key, object, placement).expect("a request");
    (counted[0].replicas, forms.take_cost())
}

#[test]
fn what_quota_counts_is_computed_again_only_when_something_changes_it() {
    let (mut world, mut forms, any) = (World::default(), Forms::default(), Placement::default());
    cluster(&mut world, "east", "r1");
    cluster(&mut world, "west", "r1");
    let job = job(&mut world, "a", 100);
    assert_eq!(workers(&world, &mut forms, &job, &any), (1, 0), "without overrides nothing is computed");
    overrides(&mut world, "a", 3, 4);
    let (found, cost) = workers(&world, &mut forms, &job, &any);
    assert!(found == 4 && cost > 2 * 3 * 200, "twice three visits of some 200 values: {cost}");
    assert_eq!(workers(&world, &mut forms, &job, &any), (4, 0));
    overrides(&mut world, "b", 3, 9);
    assert_eq!(workers(&world, &mut forms, &job, &any), (4, 0), "an override of another namespace");

    overrides(&mut world, "a", 3, 5);
    assert!(matches!(workers(&world, &mut forms, &job, &any), (5, 1..)), "an override");
    cluster(&mut world, "west", "r2");
    assert!(matches!(workers(&world, &mut forms, &job, &any), (5, 1..)), "a cluster");
    class(&mut world, 7);
    assert!(matches!(workers(&world, &mut forms, &job, &any), (5, 1..)), "a class");
    let placement = json!({"clusterAffinity": {"clusterNames": ["east"]}});
    let placement = serde_json::from_value(placement).expect("a placement");
    assert!(matches!(workers(&world, &mut forms, &job, &placement), (5, 1..)), "a placement");
    let again = super::tests::job(&mut world, "a", 101);
    assert!(matches!(workers(&world, &mut forms, &again, &placement), (5, 1..)), "the job");
    assert_eq!(workers(&world, &mut forms, &again, &placement), (5, 0));
}

/// Who edits his override policies without end keeps only his own jobs waiting.
#[test]
fn a_namespace_computes_its_share_and_goes_on_in_the_next_round() {
    let (mut world, mut forms, any) = (World::default(), Forms::default(), Placement::default());
    cluster(&mut world, "east", "r1");
    let job = job(&mut world, "a", 2_000);
    let (hostile, other) = (job.1.clone(), ("b".to_string(), "train".to_string()));
    for round in 0..3 {
        overrides(&mut world, "a", 150 + round, 2);
        assert!(forms.affords(&hostile), "at least one job a round");
        let (_, cost) = workers(&world, &mut forms, &job, &any);
        assert!(cost >= SHARE, "{cost}");
        assert!(!forms.affords(&hostile) && forms.is_behind());
        assert!(forms.affords(&other), "another one has its own share");
        assert_eq!(forms.begin(), [hostile.clone()].into());
        assert!(!forms.is_behind());
    }
}

#[test]
fn a_namespace_with_too_many_override_policies_sends_nothing_and_says_why() {
    let mut world = World::default();
    cluster(&mut world, "east", "r1");
    let many = (0..=crate::world::OVERRIDE_POLICIES_MAX).map(|n| {
        let policy = json!({"apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "OverridePolicy",
            "metadata": {"namespace": "a", "name": format!("o{n}"), "uid": format!("o{n}")},
            "spec": {"resourceSelectors": [{"apiVersion": "v1", "kind": "Secret"}], "overrideRules": []}});
        serde_json::from_value(policy).expect("a policy")
    });
    for policy in many {
        world.observe(Observation::Override(Change::Apply(policy)));
    }
    for (namespace, expected) in
        [("a", "namespace a: found more override policies; allowed: 4096"), ("b", "")]
    {
        world.namespaces.insert(namespace.to_string(), Level::default());
        let (kind, key) = job(&mut world, namespace, 1);
        let object = world.object(&kind, &key).expect("a job");
        let why =
            asked::written(&world, namespace, (*object.value).clone(), "east", &mut Default::default()).err();
        assert_eq!(why.map(|why| why.message).unwrap_or_default(), expected);
    }
}

/// Also if no policy selects the job itself, but what it depends on: each cluster is looked at only while the namespace has
/// something left, all objects of one cluster have one bound, and what is sent costs as much.
#[test]
fn what_a_job_depends_on_is_computed_within_the_share_of_a_round() {
    const MAPS: usize = 40;
    let (mut world, mut forms) = (World::default(), Forms::default());
    world.namespaces.insert("a".to_string(), Level::Privileged);
    for name in ["east", "north", "west"] {
        cluster(&mut world, name, "r");
    }
    let maps = kinds::dependencies().into_iter().find(|kind| kind.kind == "ConfigMap").expect("a kind");
    for n in 0..MAPS {
        let data: BTreeMap<String, &str> = (0..100).map(|n| (format!("k{n}"), "v")).collect();
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {"namespace": "a", "name": format!("m{n}"), "uid": format!("m{n}")}});
        let map = serde_json::from_value(map).expect("a map");
        world.observe(Observation::Object(maps.clone(), Change::Apply(map)));
    }
    // 200 rules of nothing visit each map 200 times.
    let rules = vec![json!({"overriders": {}}); 1];
    for n in 0..200 {
        let policy = json!({"apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "OverridePolicy",
            "metadata": {"namespace": "a", "name": format!("o{n}"), "uid": format!("o{n}")},
            "spec": {"resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}], "overrideRules": rules}});
        let policy = serde_json::from_value(policy).expect("a policy");
        world.observe(Observation::Override(Change::Apply(policy)));
    }
    let sources: Vec<Value> = (0..MAPS).map(|n| json!({"configMapRef": {"name": format!("m{n}")}})).collect();
    let kind = kinds::known("kubeflow.org/v1", "PyTorchJob").expect("a kind");
    let job = json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": "train", "namespace": "a", "uid": "u"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": {"spec": {"containers":
            [{"name": "pytorch", "image": "i", "envFrom": sources}]}}}}}});
    let job = serde_json::from_value(job).expect("a job");
    world.observe(Observation::Object(kind.clone(), Change::Apply(job)));
    let binding = json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "ResourceBinding",
        "metadata": {"namespace": "a", "name": "train-pytorchjob", "uid": "b"},
        "spec": {"resource": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "namespace": "a", "name": "train",
            "uid": "u"}, "policy": {"kind": "PropagationPolicy", "namespace": "a", "name": "p"},
            "components": [{"name": "worker", "replicas": 1}], "propagateDeps": true, "epoch": 1}});
    let entry = BindingEntry::read(serde_json::from_value(binding).expect("a binding"), None);
    let object = world.object(&kind, &("a".to_string(), "train".to_string())).expect("a job");
    let parts = manifests::parts(&world, &entry, object);
    assert_eq!(parts.len(), MAPS + 1);
    let mut rounds = 0;
    let mut left = vec!["east", "north", "west"];
    while let Some(cluster) = left.last().copied() {
        match forms.sendable_in(&world, &entry, &parts, cluster) {
            Some(found) => {
                assert!(matches!(found, Ok(Some(_))), "{found:?}");
                left.pop();
            }
            None => {
                assert!(forms.is_behind(), "it goes on in the next round");
                forms.begin();
                rounds += 1;
            }
        }
    }
    assert!((1..=3).contains(&rounds), "{rounds} rounds");
    forms.take_cost();
    forms.begin();
    assert!(
        forms.sendable_in(&world, &entry, &parts, "east").is_some() && forms.take_cost() == 0,
        "it is kept"
    );
    let mut visits = Visits::default();
    let built = manifests::build(&world, &entry, object, "east", 0, None, &mut visits);
    assert!(visits.used() > SHARE, "{}: {:?}", visits.used(), built.err());
}
