use std::{collections::BTreeMap, sync::Arc};

use fleet_quota::{NodeSpec, QUOTA_LABELS, QuotaTree, REQUIRE_QUEUE};

use super::*;
use crate::{
    kinds,
    observation::{Change, Observation},
};

#[test]
fn a_policy_that_suspends_dispatching_for_a_while_lets_a_bound_run_go_on() {
    let settled = |known: Value, asked: Value| {
        let mut desired = json!({"suspension": asked});
        settle_queueing(&json!({"suspension": known}), &mut desired);
        desired.get("suspension").map(Value::to_string).unwrap_or_default()
    };
    let left = json!({"scheduling": false});
    assert_eq!(settled(json!({"scheduling": false, "dispatching": true}), json!({})), left.to_string());
    assert_eq!(
        settled(json!({"dispatching": true}), json!({"scheduling": true})),
        "",
        "it waits in no queue"
    );
    assert_eq!(settled(left.clone(), Value::Null), left.to_string());
    assert!(settled(left, json!({"dispatching": true})).contains("\"dispatching\":true"));
}

/// `research` is in a leaf that requires queues, `open` in one that does not.
fn world(root: &str) -> World {
    let node = |name: &str, requires: &str, children: Vec<NodeSpec>| NodeSpec {
        name: name.to_string(),
        namespaces: if children.is_empty() { vec![name.to_string()] } else { Vec::new() },
        attributes: [(REQUIRE_QUEUE.to_string(), requires.to_string())].into(),
        children,
        ..NodeSpec::default()
    };
    let leaves = vec![node("research", "true", Vec::new()), node("open", "false", Vec::new())];
    let (tree, _) = QuotaTree::build(&node("root", root, leaves)).expect("a tree");
    let mut world = World::default();
    world.quota_tree = Some(Arc::new(tree));
    world
}

/// What the binding of a job says of its queue, under a policy that says `suspension`.
fn suspension(world: &mut World, namespace: &str, label: &str, kind: &str, suspension: Value) -> Value {
    let policy = json!({"apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "own", "namespace": namespace, "uid": "p", "generation": 1},
        "spec": {"resourceSelectors": [{"apiVersion": "batch/v1", "kind": "Job"}], "suspension": suspension,
            "placement": {"replicaScheduling": {"replicaSchedulingType": kind}}}});
    world.observe(Observation::Policy(Change::Apply(serde_json::from_value(policy).expect("a policy"))));
    let labels: BTreeMap<&str, &str> = [(QUOTA_LABELS[0], label)].into();
    let job = json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "train", "namespace": namespace, "uid": "u", "labels": labels},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    let known = kinds::known("batch/v1", "Job").expect("a kind");
    world.observe(Observation::Object(
        known.clone(),
        Change::Apply(serde_json::from_value(job).expect("a job")),
    ));
    let key = (namespace.to_string(), "train".to_string());
    match plan(world, &known, &key).pop().map(|write| write.verb) {
        Some(Verb::Create(body)) => body["spec"]["suspension"].clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_tenants_policy_leads_no_gang_past_a_queue_that_is_required() {
    let queues = json!({"scheduling": true});
    for (root, namespace, label, queued) in [
        ("false", "research", "", true),
        ("false", "research", "open", true),
        ("false", "research", "no-such-leaf", true),
        ("false", "open", "research", true),
        ("false", "open", "", false),
        ("false", "nowhere", "", false),
        ("true", "nowhere", "", true),
    ] {
        for own in [Value::Null, json!({"scheduling": false}), json!({})] {
            let found = suspension(&mut world(root), namespace, label, "Divided", own.clone());
            assert_eq!(found == queues, queued, "{root} {namespace} {label} {own}: {found}");
        }
    }
    let found = suspension(&mut world("true"), "research", "", "Divided", json!({"dispatching": true}));
    assert_eq!(found, json!({"dispatching": true, "scheduling": true}));
    // Copies do not queue; they are not placed at all if they ask for what is bounded.
    assert_eq!(suspension(&mut world("true"), "research", "", "Duplicated", Value::Null), Value::Null);
    let mut none = World::default();
    assert_eq!(suspension(&mut none, "research", "", "Divided", Value::Null), Value::Null);
}
