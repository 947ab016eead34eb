//! The place of a waiting job in its queue, as objects of the hub say.

use fleet_quota_tree::QUOTA_LABELS;

use super::*;

impl Stage {
    fn take_place(&mut self, name: &str, vc: &str, place: Value) {
        let mut changed = self.world.bindings[&key(name)].object.clone();
        changed.spec.queue_place = read(place);
        changed.spec.virtual_cluster = Some(vc.to_string());
        self.observe(Observation::Binding(Change::Apply(changed)));
        self.look(name);
    }

    fn label(&mut self, name: &str, label: &str, value: &str) {
        let mut changed = job(name);
        changed["metadata"]["labels"][label] = value.into();
        let kind = kinds::known("batch/v1", "Job").expect("a kind");
        self.observe(Observation::Object(kind, Change::Apply(read(changed))));
        self.look(name);
    }

    fn enqueued_at_ms(&self, name: &str) -> i64 {
        self.scheduler.planner().job(&job_id(&key(name))).expect("it waits").enqueued_at_ms
    }
}

#[test]
fn a_job_waits_at_the_place_that_its_binding_names_also_under_another_leader() {
    let mut stage = Stage::new();
    stage.submit("first");
    assert_eq!(stage.enqueued_at_ms("first"), 0);
    stage.take_place("first", "vc", json!({"since": "1970-01-01T00:00:07.250Z"}));
    assert_eq!(stage.enqueued_at_ms("first"), 7250);
    stage.restart();
    assert_eq!(stage.enqueued_at_ms("first"), 7250);
}

/// Else it would start at its old place between two writes.
#[test]
fn a_job_with_another_leaf_class_or_virtual_cluster_is_not_placed_before_its_place_is_written() {
    for (label, value, place) in [
        (QUOTA_LABELS[0], "other", json!({"labels": {QUOTA_LABELS[0]: "other"}})),
        (names::CLASS_LABEL, "prod", json!({"class": 100})),
    ] {
        let mut stage = Stage::new();
        stage.submit("first");
        stage.take_place("first", "vc", json!({}));
        stage.label("first", label, value);
        assert!(stage.pass().is_empty(), "{label}");
        assert!(stage.waiting("first").starts_with("Edited"), "{label}: {}", stage.waiting("first"));
        stage.take_place("first", "vc", place);
        assert_eq!(stage.pass().len(), 1, "{label}: {}", stage.waiting("first"));
    }
    let mut stage = Stage::new();
    stage.submit("first");
    stage.take_place("first", "other", json!({}));
    assert!(stage.pass().is_empty(), "it names another virtual cluster by now");
    assert!(stage.waiting("first").starts_with("Edited"), "{}", stage.waiting("first"));
    stage.take_place("first", "vc", json!({}));
    assert_eq!(stage.pass().len(), 1, "{}", stage.waiting("first"));
}

/// A job that names what is not there could hold a place for nothing.
#[test]
fn a_job_is_not_before_the_objects_that_it_needs() {
    let maps = kinds::dependencies().into_iter().find(|kind| kind.kind == "ConfigMap").expect("a kind");
    let map = |name: &str, created: &str| {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "default", "name": name, "uid": name, "creationTimestamp": created}});
        Observation::Object(maps.clone(), Change::Apply(read(map)))
    };
    let mut stage = Stage::new();
    let mut job = job("first");
    job["spec"]["template"]["spec"]["containers"][0]["envFrom"] =
        json!([{"configMapRef": {"name": "needed"}}, {"configMapRef": {"name": "extra", "optional": true}}]);
    stage.submit_as("first", job);
    let mut bound = stage.world.bindings[&key("first")].object.clone();
    bound.spec.propagate_deps = Some(true);
    stage.observe(Observation::Binding(Change::Apply(bound)));
    stage.observe(map("extra", "1970-01-01T00:00:09Z"));
    stage.look("first");
    assert!(stage.waiting("first").starts_with("WaitingForDependencies"), "{}", stage.waiting("first"));
    stage.observe(map("needed", "1970-01-01T00:00:05Z"));
    stage.look("first");
    assert_eq!(stage.enqueued_at_ms("first"), 5000, "it starts without what is optional");
    stage.take_place("first", "vc", json!({"since": "1970-01-01T00:00:07Z"}));
    assert_eq!(stage.enqueued_at_ms("first"), 7000);
}

/// With `purgeMode: Never` it stays until the next run has started, so nobody may wait until it is gone.
#[test]
fn what_is_left_of_a_run_does_not_say_what_the_next_one_asks_for() {
    let of = |pods: i64| {
        let mut job = job("first");
        job["metadata"]["annotations"] = json!({names::CELLS_PER_POD_ANNOTATION: "1"});
        (job["spec"]["parallelism"], job["spec"]["completions"]) = (pods.into(), pods.into());
        job
    };
    let mut stage = Stage::new();
    stage.submit_as("first", of(1));
    let asked = only(stage.pass());
    stage.start("first", &asked);
    stage.submit_as("first", of(2));
    let mut waits = stage.world.bindings[&key("first")].object.clone();
    waits.spec.epoch = 1;
    stage.observe(Observation::Binding(Change::Apply(waits)));
    stage.take_place("first", "vc", json!({"cells": 2}));
    let entry = &stage.world.bindings[&key("first")];
    assert!(manifests::running(&stage.world, &key("first"), entry).is_some(), "its last run stands");
    let object = stage.world.bound_object(entry).expect("its job");
    let asks = stage.scheduler.cell_job(&stage.world, &key("first"), entry, object);
    let asks = asks.expect("its place is known").expect("it takes cells");
    assert_eq!(asks.groups[0].pods.len(), 2);
}
