use fleet_api::ResourceBinding;
use serde_json::{Value, json};

use super::*;
use crate::binding::API_VERSION;

const LEAF: &str = QUOTA_LABELS[0];
/// Of the edit: a minute after the job was submitted.
const NOW_MS: i64 = 120_500;

/// Of a job that waits in leaf `a`, under the policy of a tenant.
fn spec() -> Value {
    json!({
        "resource": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "namespace": "team", "name": "train", "uid": "u"},
        "policy": {"kind": "PropagationPolicy", "namespace": "team", "name": "own", "uid": "p"},
        "components": [{"name": "worker", "replicas": 2, "request": {"cpu": "4"}}],
        "priority": 1,
        "placement": {"clusterAffinity": {"clusterNames": ["east"]}},
        "suspension": {"scheduling": true, "dispatching": true},
        "queuePlace": {"labels": {LEAF: "a"}, "class": 100, "cells": 8},
    })
}

fn entry(spec: Value) -> BindingEntry {
    let metadata =
        json!({"name": "b", "namespace": "team", "uid": "b", "creationTimestamp": "1970-01-01T00:01:00Z"});
    let value =
        json!({"apiVersion": API_VERSION, "kind": "ResourceBinding", "metadata": metadata, "spec": spec});
    let binding: ResourceBinding = serde_json::from_value(value).expect("a binding");
    BindingEntry::read(binding, None)
}

fn set(spec: &mut Value, path: &str, value: Value) {
    let (parent, field) = path.rsplit_once('/').expect("a path");
    let parent = spec.pointer_mut(parent).expect("it is there");
    match field.parse::<usize>() {
        Ok(index) => parent[index] = value,
        Err(_) => parent[field] = value,
    }
}

/// The place after an edit of `known` at `path`.
fn edited(known: Value, told: Option<Reason>, path: &str, value: Value) -> Option<QueuePlace> {
    let mut desired = known.clone();
    set(&mut desired, path, value);
    let desired: ResourceBindingSpec = serde_json::from_value(desired).expect("a spec");
    let now = Timestamp::from_millisecond(NOW_MS).expect("a time");
    after_edit(&entry(known), told, &desired, now)
}

fn keeps(told: Option<Reason>, path: &str, value: Value) -> bool {
    let place = edited(spec(), told, path, value).expect("a gang has a place");
    match place.since {
        None => true,
        Some(since) => {
            assert_eq!(since, "1970-01-01T00:02:00.500Z");
            false
        }
    }
}

#[test]
fn an_edit_that_asks_for_more_takes_the_place_of_its_time_and_one_that_asks_for_less_keeps_it() {
    let worker =
        |replicas: i64, cpu: &str| json!({"name": "worker", "replicas": replicas, "request": {"cpu": cpu}});
    let labels = |leaf: &str| json!({LEAF: leaf});
    let place = |class: Value, cells: Value| json!({"labels": labels("a"), "class": class, "cells": cells});
    let on_gpus = json!({"name": "worker", "replicas": 2, "request": {"cpu": "4", "nvidia.com/gpu": "1"}});
    let elsewhere = json!({"name": "worker", "replicas": 2, "request": {"cpu": "4"}, "nodeClaim": {"nodeSelector": {"a": "b"}}});
    for (path, value, expected) in [
        // Nothing of it changes.
        ("/priority", json!(1), true),
        ("/failover", json!({"allowTwoRuns": true}), true),
        // Less.
        ("/components/0", worker(1, "4"), true),
        ("/components/0", worker(2, "3500m"), true),
        ("/priority", json!(0), true),
        ("/queuePlace", place(json!(50), json!(4)), true),
        // More.
        ("/components/0", worker(3, "1"), false),
        ("/components/0", worker(1, "5"), false),
        ("/components/0", on_gpus, false),
        ("/components", json!([worker(1, "1"), {"name": "master", "replicas": 1, "request": {}}]), false),
        ("/priority", json!(2), false),
        ("/queuePlace", place(json!(120), json!(8)), false),
        ("/queuePlace", place(json!(100), json!(9)), false),
        // It may be more.
        ("/queuePlace", place(json!(100), Value::Null), false),
        // Something else.
        ("/components/0", elsewhere, false),
        ("/queuePlace/labels", labels("b"), false),
        ("/queuePlace/labels", json!({}), false),
        ("/virtualCluster", json!("vc"), false),
        ("/placement", json!({}), false),
        ("/networkTopology", json!({"mode": "hard"}), false),
        ("/suspension", json!({"scheduling": true}), false),
    ] {
        assert_eq!(keeps(None, path, value.clone()), expected, "{path}: {value}");
    }
}

#[test]
fn what_could_never_run_kept_its_place_for_nothing() {
    let less = || json!({"name": "worker", "replicas": 1, "request": {"cpu": "4"}});
    for (told, expected) in [
        (Reason::ExceedsQuota, false),
        (Reason::ExceedsEveryCluster, false),
        (Reason::PodSecurityViolation, false),
        (Reason::InsufficientQuota, true),
        (Reason::BehindHead, true),
        (Reason::NoClusterFits, true),
    ] {
        assert_eq!(keeps(Some(told), "/components/0", less()), expected, "{told}");
        assert!(keeps(Some(told), "/priority", json!(1)), "{told}: it was not edited");
    }
}

#[test]
fn what_an_administrator_changes_moves_nobody() {
    let mut governed = spec();
    set(&mut governed, "/policy", json!({"kind": CLUSTER_POLICY, "name": "all", "uid": "p"}));
    set(&mut governed, "/suspension", json!({"dispatching": true}));
    for (path, value) in [("/placement", json!({})), ("/suspension", json!({"scheduling": true}))] {
        let place = edited(governed.clone(), None, path, value).expect("a place");
        assert_eq!(place.since, None, "{path}");
    }
    // Another policy, which the tenant may have written, and a leaf that he names.
    let mut own = spec();
    set(&mut own, "/policy", json!({"kind": CLUSTER_POLICY, "name": "all", "uid": "p"}));
    let place = edited(own.clone(), None, "/queuePlace/labels", json!({LEAF: "b"})).expect("a place");
    assert!(place.since.is_some());
}

#[test]
fn a_place_is_the_time_of_the_last_edit_that_moved_it_and_a_run_keeps_it() {
    assert_eq!(entry(spec()).place_ms(), 60_000, "that of its creation");
    let mut moved = spec();
    set(&mut moved, "/queuePlace/since", json!("1970-01-01T00:02:00.500Z"));
    assert_eq!(entry(moved.clone()).place_ms(), NOW_MS);
    let later = edited(moved.clone(), None, "/priority", json!(0)).expect("a place");
    assert_eq!(later.since.as_deref(), Some("1970-01-01T00:02:00.500Z"), "it asks for less than then");
    set(&mut moved, "/queuePlace/since", json!("1970-01-01T00:00:01Z"));
    assert_eq!(entry(moved).place_ms(), 60_000, "no place is older than its job");
    let mut runs = spec();
    set(&mut runs, "/clusters", json!([{"name": "east"}]));
    let kept = edited(runs.clone(), None, "/components/0/replicas", json!(9));
    assert_eq!(kept, entry(runs).object.spec.queue_place);
}

#[test]
fn bindings_of_an_earlier_release_and_copies() {
    let none = |mut spec: Value| {
        spec.as_object_mut().expect("a map").remove("queuePlace");
        spec
    };
    let asked = json!({"labels": {LEAF: "b"}});
    let adopted = edited(none(spec()), None, "/queuePlace", asked.clone()).expect("a place");
    assert_eq!((adopted.since, adopted.labels[LEAF].as_str()), (None, "b"), "what it asked for is not known");
    assert_eq!(edited(none(spec()), None, "/queuePlace", json!({})), None, "nothing is to be written");
    assert_eq!(edited(spec(), None, "/queuePlace", Value::Null), None, "copies do not queue");
    let mut copies = none(spec());
    set(&mut copies, "/placement", json!({"replicaScheduling": {"replicaSchedulingType": "Duplicated"}}));
    let gang = edited(copies, None, "/queuePlace", asked).expect("a place");
    assert!(gang.since.is_some(), "it joins a queue now");
}

#[test]
fn a_binding_knows_what_its_job_names() {
    let waits = entry(spec());
    assert!(knows_leaf(
        &waits,
        &BTreeMap::from([(LEAF.to_string(), "a".to_string()), ("x".to_string(), "y".to_string())])
    ));
    assert!(!knows_leaf(&waits, &BTreeMap::new()));
    assert!(knows_cells(&waits, None, (Some(100), Some(8))) && !knows_cells(&waits, None, (None, Some(8))));
    assert!(!knows_cells(&waits, Some("vc"), (Some(100), Some(8))));
}
