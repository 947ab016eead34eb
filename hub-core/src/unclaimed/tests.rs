use std::sync::atomic::{AtomicU64, Ordering};

use fleet_policies::reason::Reason;
use kube_core::DynamicObject;
use serde_json::{Value, json};

use super::*;
use crate::{
    claim,
    forms::Forms,
    kinds,
    observation::{Change, Observation},
    policy,
};

fn torch() -> KindRef {
    kinds::jobs()[0].clone()
}

fn key() -> Key {
    ("team".to_string(), "train".to_string())
}

fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).expect("an object")
}

/// A job whose one role is called `role`.
fn job(generation: i64, role: &str, status: Value) -> Change<DynamicObject> {
    job_named("train", "u", generation, role, status)
}

fn job_named(name: &str, uid: &str, generation: i64, role: &str, status: Value) -> Change<DynamicObject> {
    // Each object that a watch tells is newer than those before.
    static VERSION: AtomicU64 = AtomicU64::new(1);
    let version = VERSION.fetch_add(1, Ordering::Relaxed).to_string();
    Change::Apply(object(json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": "team", "uid": uid, "generation": generation,
            "resourceVersion": version},
        "spec": {"pytorchReplicaSpecs": {role: {"replicas": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}}},
        "status": status})))
}

fn policy_value(name: &str, extra: Value) -> Value {
    let mut spec = json!({"resourceSelectors": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}],
        "placement": {}});
    for (field, value) in extra.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    json!({"apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": name, "namespace": "team", "uid": format!("uid-{name}"), "generation": 1}, "spec": spec})
}

fn apply_policy(world: &mut World, name: &str, extra: Value) {
    let policy = serde_json::from_value(policy_value(name, extra)).expect("a policy");
    world.observe(Observation::Policy(Change::Apply(policy)));
}

/// What is written for the job: the status and the event's reason and count.
fn reported(unclaimed: &mut Unclaimed, world: &World) -> (Option<Value>, Option<(String, i64)>) {
    reported_of(&key().1, unclaimed, world)
}

fn reported_of(
    name: &str,
    unclaimed: &mut Unclaimed,
    world: &World,
) -> (Option<Value>, Option<(String, i64)>) {
    let key = ("team".to_string(), name.to_string());
    let mut writes = unclaimed.plan(world, &torch(), &key, Timestamp::UNIX_EPOCH);
    assert!(writes.len() <= 1, "{writes:?}");
    let Some(mut write) = writes.pop() else { return (None, None) };
    let nested = write.then.pop();
    let (status, event) = match (write.target.clone(), write.verb.clone()) {
        (Target::Event, _) => (None, Some(write)),
        (_, Verb::MergeStatus(body)) => (Some(body["status"].clone()), nested),
        _ => (None, None),
    };
    let event = event.map(|event| match event.verb {
        Verb::Create(body) => (body["reason"].as_str().unwrap_or_default().to_string(), 1),
        Verb::Merge(body) => (String::new(), body["count"].as_i64().unwrap_or_default()),
        _ => (String::new(), 0),
    });
    (status, event)
}

#[test]
fn a_job_without_policy_says_so_until_it_has_one() {
    let (mut world, mut unclaimed) = (World::default(), Unclaimed::default());
    world.observe(Observation::Object(torch(), job(1, "Master", Value::Null)));
    let (status, event) = reported(&mut unclaimed, &world);
    let status = status.expect("a state");
    assert_eq!(status["conditions"][0]["type"], "NoPolicy");
    assert!(status["conditions"][0]["message"].to_string().contains("namespace team"), "{status}");
    assert_eq!(event, Some(("NoPolicy".to_string(), 1)));
    // The watch tells what was written; nothing is said twice, also by another process.
    world.observe(Observation::Object(torch(), job(1, "Master", status.clone())));
    assert_eq!(reported(&mut unclaimed, &world), (None, None));
    assert_eq!(reported(&mut Unclaimed::default(), &world), (None, None));
    apply_policy(&mut world, "p", json!({}));
    assert_eq!(reported(&mut unclaimed, &world).0, Some(json!({"conditions": []})));
}

#[test]
fn nonsense_is_told_once_a_generation_and_counted() {
    let (mut world, mut unclaimed) = (World::default(), Unclaimed::default());
    apply_policy(&mut world, "p", json!({}));
    world.observe(Observation::Object(torch(), job(1, "Mastre", Value::Null)));
    assert!(
        claim::plan(&world, &mut Forms::default(), &torch(), &key(), Timestamp::UNIX_EPOCH).is_empty(),
        "it is not bound"
    );
    let (status, event) = reported(&mut unclaimed, &world);
    let status = status.expect("a state");
    assert_eq!(status["conditions"][0]["type"], "InvalidWorkload");
    assert!(status["conditions"][0]["message"].to_string().contains("Mastre"), "{status}");
    assert_eq!(event, Some(("InvalidWorkload".to_string(), 1)));
    world.observe(Observation::Object(torch(), job(1, "Mastre", status.clone())));
    assert_eq!(reported(&mut unclaimed, &world), (None, None));
    world.observe(Observation::Object(torch(), job(2, "Mastre", status)));
    assert_eq!(reported(&mut unclaimed, &world), (None, Some((String::new(), 2))));
}

/// Whatever else is submitted, each nonsense is told once, and counted for itself alone.
#[test]
fn nonsense_is_not_told_again_with_every_other_submission() {
    let (mut world, mut unclaimed) = (World::default(), Unclaimed::default());
    apply_policy(&mut world, "p", json!({}));
    world.observe(Observation::Object(torch(), job(1, "Mastre", Value::Null)));
    let (status, event) = reported(&mut unclaimed, &world);
    assert_eq!(event, Some(("InvalidWorkload".to_string(), 1)));
    world.observe(Observation::Object(torch(), job(1, "Mastre", status.clone().expect("a state"))));
    for (number, role) in ["Master", "Mastre", "Worker", "Wroker"].into_iter().enumerate() {
        let name = format!("other-{number}");
        let other = |status: Value| job_named(&name, &format!("u-{number}"), 1, role, status);
        world.observe(Observation::Object(torch(), other(Value::Null)));
        let (told, event) = reported_of(&name, &mut unclaimed, &world);
        let is_wrong = !["Master", "Worker"].contains(&role);
        assert_eq!(event, is_wrong.then(|| ("InvalidWorkload".to_string(), 1)), "{name}");
        world.observe(Observation::Object(torch(), other(told.unwrap_or_default())));
        assert_eq!(reported(&mut unclaimed, &world), (None, None), "after {name}");
        assert_eq!(reported_of(&name, &mut unclaimed, &world), (None, None), "{name}");
    }
    // Also where the status that was written has not come back yet.
    world.observe(Observation::Object(torch(), job(1, "Mastre", Value::Null)));
    let (again, event) = reported(&mut unclaimed, &world);
    assert_eq!((again, event), (status, None));
    // A job of its name after it is another one.
    world.observe(Observation::Object(torch(), job_named("train", "v", 1, "Mastre", Value::Null)));
    assert_eq!(reported(&mut unclaimed, &world).1, Some(("InvalidWorkload".to_string(), 1)));
}

#[test]
fn an_invalid_policy_is_named_by_the_jobs_it_would_select() {
    let (mut world, mut unclaimed) = (World::default(), Unclaimed::default());
    apply_policy(&mut world, "p", json!({"preemption": "Always"}));
    world.observe(Observation::Object(torch(), job(1, "Master", Value::Null)));
    let (_, event) = reported(&mut unclaimed, &world);
    assert_eq!(event, Some((Reason::PolicyInvalid.to_string(), 1)));
}

fn binding(clusters: Value, epoch: i64) -> fleet_api::ResourceBinding {
    serde_json::from_value(json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "ResourceBinding",
        "metadata": {"name": "train-pytorchjob", "namespace": "team", "uid": "b"},
        "spec": {"resource": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "namespace": "team",
                "name": "train", "uid": "u"},
            "policy": {"kind": "PropagationPolicy", "namespace": "team", "name": "p", "uid": "uid-p"},
            "clusters": clusters, "epoch": epoch}}))
    .expect("a binding")
}

#[test]
fn a_deleted_policy_leaves_no_claim() {
    let mut world = World::default();
    world.observe(Observation::Object(torch(), job(1, "Master", Value::Null)));
    world.observe(Observation::Binding(Change::Apply(binding(json!([]), 0))));
    let writes = claim::plan(&world, &mut Forms::default(), &torch(), &key(), Timestamp::UNIX_EPOCH);
    assert!(matches!(writes[0].verb, Verb::Delete { .. }), "what waits leaves its queue: {writes:?}");
    world.observe(Observation::Binding(Change::reset(vec![binding(json!([{"name": "east"}]), 1)])));
    let writes = claim::plan(&world, &mut Forms::default(), &torch(), &key(), Timestamp::UNIX_EPOCH);
    let Verb::Merge(patch) = &writes[0].verb else { panic!("{writes:?}") };
    assert_eq!(patch["spec"]["policy"]["name"], "", "what runs follows nobody");
    // One that only became invalid keeps its jobs.
    apply_policy(&mut world, "p", json!({"preemption": "Always"}));
    assert!(claim::plan(&world, &mut Forms::default(), &torch(), &key(), Timestamp::UNIX_EPOCH).is_empty());
}

#[test]
fn a_policy_says_what_it_does_not_find() {
    let check = |extra: Value, unserved: &[(&str, &str)], expected: Option<(&str, &str)>| {
        let mut world = World::default();
        world.observe(Observation::Object(torch(), Change::reset(Vec::new())));
        if expected.is_none_or(|(reason, _)| reason != "SelectsNothing") {
            world.observe(Observation::Object(torch(), job(1, "Master", Value::Null)));
        }
        apply_policy(&mut world, "p", extra);
        let unserved: BTreeMap<(String, String), ()> =
            unserved.iter().map(|(version, kind)| ((version.to_string(), kind.to_string()), ())).collect();
        let id = ("team".to_string(), "p".to_string());
        let writes = policy::plan(&world, &unserved, PolicyScope::Namespaced, &id, Timestamp::UNIX_EPOCH);
        let condition = writes.first().map(|write| match &write.verb {
            Verb::MergeStatus(body) => body["status"]["conditions"][0].clone(),
            _ => Value::Null,
        });
        match (condition, expected) {
            (None, None) => {}
            (Some(found), Some((reason, text))) => {
                assert_eq!(
                    (&found["type"], &found["reason"]),
                    (&json!("Effective"), &json!(reason)),
                    "{found}"
                );
                assert!(found["message"].to_string().contains(text), "{found}");
            }
            (found, expected) => panic!("{found:?}, not {expected:?}"),
        }
    };
    check(json!({}), &[], None);
    check(json!({}), &[], Some(("SelectsNothing", "namespace team")));
    check(json!({}), &[("kubeflow.org/v1", "PyTorchJob")], Some(("KindNotServed", "PyTorchJob")));
    let named = json!({"placement": {"clusterAffinity": {"clusterNames": ["esat"]}}});
    check(named, &[], Some(("UnknownCluster", "spec.placement.clusterAffinity.clusterNames: found esat")));
}

/// A job whose pods name the class, in one of the fields that schedulers read.
fn job_of_class(field: &str, class: &str) -> Change<DynamicObject> {
    let Change::Apply(mut job) = job(1, "Master", Value::Null) else { panic!("a job") };
    match field {
        "pods" => {
            job.data["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["priorityClassName"] =
                class.into();
        }
        _ => job.data["spec"]["runPolicy"] = json!({"schedulingPolicy": {"priorityClass": class}}),
    }
    Change::Apply(job)
}

fn apply_class(world: &mut World, name: &str, namespaces: Option<&str>) {
    let annotations = namespaces.map(|list| json!({"fleet.dev/namespaces": list})).unwrap_or_default();
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 7,
        "metadata": {"name": name, "uid": name, "annotations": annotations}});
    world.observe(Observation::PriorityClass(Change::Apply(serde_json::from_value(class).expect("a class"))));
}

#[test]
fn a_tenant_names_no_class_of_the_system_nor_one_that_is_for_other_namespaces() {
    let bound_with = |world: &World| {
        claim::plan(world, &mut Forms::default(), &torch(), &key(), Timestamp::UNIX_EPOCH).pop().map(
            |write| match write.verb {
                Verb::Create(body) => body["spec"]["priority"].as_i64().unwrap_or_default(),
                other => panic!("{other:?}"),
            },
        )
    };
    let path = |field: &str| match field {
        "pods" => "spec.pytorchReplicaSpecs.Master.template.spec.priorityClassName",
        _ => "spec.runPolicy.schedulingPolicy.priorityClass",
    };
    for field in ["pods", "job"] {
        for (class, priority) in [
            ("system-node-critical", None),
            ("system-cluster-critical", None),
            ("others", None),
            ("nobodys", None),
            ("ours", Some(7)),
            ("anybodys", Some(7)),
            ("of-members-alone", None),
        ] {
            let (mut world, mut unclaimed) = (World::default(), Unclaimed::default());
            apply_class(&mut world, "system-node-critical", Some("team"));
            apply_class(&mut world, "system-cluster-critical", None);
            apply_class(&mut world, "others", Some("other, teams"));
            apply_class(&mut world, "nobodys", Some(""));
            apply_class(&mut world, "ours", Some("other, team"));
            apply_class(&mut world, "anybodys", None);
            apply_policy(&mut world, "p", json!({}));
            world.observe(Observation::Object(torch(), job_of_class(field, class)));
            // Only pods give a job its priority.
            let expected = priority.map(|priority| if field == "pods" { priority } else { 0 });
            assert_eq!(bound_with(&world), expected, "{field} {class}");
            let (status, _) = reported(&mut unclaimed, &world);
            let told =
                status.map(|status| status["conditions"][0]["message"].to_string()).unwrap_or_default();
            let says = format!("{}: found {class}; allowed", path(field));
            assert_eq!(told.contains(&says), priority.is_none(), "{field} {class}: {told}");
        }
    }
}

#[test]
fn a_policy_of_a_namespace_names_no_class_that_is_for_others_and_one_of_all_does() {
    for scope in ["PropagationPolicy", "ClusterPropagationPolicy"] {
        let (mut world, mut unclaimed) = (World::default(), Unclaimed::default());
        apply_class(&mut world, "others", Some("other"));
        let mut policy = policy_value(
            "p",
            json!({"schedulePriority": {"priorityClassSource": "KubePriorityClass",
                "priorityClassName": "others"}}),
        );
        policy["kind"] = scope.into();
        if scope == "PropagationPolicy" {
            let policy = serde_json::from_value(policy).expect("a policy");
            world.observe(Observation::Policy(Change::Apply(policy)));
        } else {
            policy["metadata"]["namespace"] = Value::Null;
            let policy = serde_json::from_value(policy).expect("a policy");
            world.observe(Observation::ClusterPolicy(Change::Apply(policy)));
        }
        world.observe(Observation::Object(torch(), job(1, "Master", Value::Null)));
        let is_bound =
            !claim::plan(&world, &mut Forms::default(), &torch(), &key(), Timestamp::UNIX_EPOCH).is_empty();
        assert_eq!(is_bound, scope == "ClusterPropagationPolicy");
        let (status, _) = reported(&mut unclaimed, &world);
        assert_eq!(
            status.is_some_and(|status| status["conditions"][0]["type"] == "PolicyInvalid"),
            !is_bound
        );
    }
}
