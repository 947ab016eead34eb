//! Virtual clusters: what pods have of cells, and what a virtual cluster was promised.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::*;

/// Two racks of two nodes in east, each node with two devices: a is promised a rack, b two nodes.
fn configuration() -> ObservedChange {
    let rack = |first: u32| {
        json!({"cellType": "RACK", "cluster": "east", "cellChildren": [
            {"cellAddress": format!("n{first}")}, {"cellAddress": format!("n{}", first + 1)}]})
    };
    hub(json!({"kind": "CellConfiguration", "metadata": {"name": "cells", "generation": 1},
        "spec": {
            "physicalCluster": {
                "cellTypes": {
                    "NODE": {"childCellType": "GPU", "childCellNumber": 2, "isNodeLevel": true},
                    "RACK": {"childCellType": "NODE", "childCellNumber": 2}},
                "physicalCells": [rack(0), rack(2)]},
            "virtualClusters": {
                "a": {"virtualCells": [{"cellType": "RACK", "cellNumber": 1}]},
                "b": {"virtualCells": [{"cellType": "RACK.NODE", "cellNumber": 2}]}}},
        "status": {"conditions": [{"type": "Valid", "status": "True", "observedGeneration": 1}]}}))
}

fn change(cluster: Option<&str>, object: Value) -> ObservedChange {
    ObservedChange { cluster: cluster.map(str::to_string), object: Arc::new(object), gone: false }
}

fn hub(object: Value) -> ObservedChange {
    change(None, object)
}

fn east(object: Value) -> ObservedChange {
    change(Some("east"), object)
}

fn gone(change: ObservedChange) -> ObservedChange {
    ObservedChange { gone: true, ..change }
}

fn node(name: &str, ready: &str) -> ObservedChange {
    east(json!({"kind": "Node", "metadata": {"name": name, "uid": name},
        "status": {"conditions": [{"type": "Ready", "status": ready}]}}))
}

fn cluster(taints: Value) -> ObservedChange {
    hub(json!({"kind": "Cluster", "metadata": {"name": "east"}, "spec": {"taints": taints},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}}))
}

/// A PyTorchJob of two workers with `gpus` devices each, named as its virtual cluster and class.
fn job(name: &str, annotations: Value) -> ObservedChange {
    let (vc, class) = name.split_once('-').expect("a virtual cluster and a class");
    hub(json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name,
        "namespace": "team", "uid": name, "annotations": annotations,
        "labels": {"fleet.dev/virtual-cluster": vc, "fleet.dev/class": class}}}))
}

/// Its binding, with cells of these nodes where it has any.
fn binding(name: &str, gpus: u64, nodes: &[&str]) -> Value {
    let (vc, class) = name.split_once('-').expect("a virtual cluster and a class");
    let priority = class.parse::<i64>().unwrap_or(-1);
    let pods: Vec<Value> =
        nodes.iter().map(|node| json!({"node": node, "leafCells": (0..gpus).collect::<Vec<_>>()})).collect();
    let mut binding = json!({"kind": "ResourceBinding",
        "metadata": {"name": format!("{name}-pytorchjob"), "namespace": "team", "uid": format!("b-{name}")},
        "spec": {"epoch": 1, "components": [{"name": "worker", "replicas": 2, "request": {"nvidia.com/gpu": gpus}}],
            "resource": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "namespace": "team", "name": name}}});
    if !nodes.is_empty() {
        binding["spec"]["clusters"] = json!([{"name": "east"}]);
        let request = json!({"virtualCluster": vc, "priority": priority});
        binding["spec"]["cells"] = json!({"groups": [{"request": request, "cluster": "east", "pods": pods}]});
    }
    binding
}

fn run(name: &str) -> ObservedChange {
    east(
        json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name, "namespace": "team",
        "uid": format!("r-{name}"), "labels": {"fleet.dev/binding-uid": format!("b-{name}")},
        "annotations": {"fleet.dev/epoch": "1"}}}),
    )
}

fn pod(name: &str, index: u32, node: &str, leaves: &str) -> ObservedChange {
    let mut annotations = json!({});
    if !leaves.is_empty() {
        annotations["hivedscheduler.microsoft.com/pod-leaf-cell-isolation"] = leaves.into();
    }
    let owner = json!([{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": name,
        "uid": format!("r-{name}"), "controller": true}]);
    east(json!({"kind": "Pod", "metadata": {"name": format!("{name}-{index}"), "namespace": "team",
        "uid": format!("{name}-{index}"), "ownerReferences": owner, "annotations": annotations},
        "spec": {"nodeName": node, "containers": [{"resources": {"requests": {"nvidia.com/gpu": 1}}}]},
        "status": {"phase": "Running"}}))
}

/// All nodes are good, and the configuration is in force.
fn beginning() -> Vec<(u64, ObservedChange)> {
    let mut changes = vec![(0, cluster(Value::Null))];
    changes.extend((0..4).map(|at| (0, node(&format!("n{at}"), "True"))));
    changes.push((0, configuration()));
    changes
}

#[track_caller]
fn check(more: Vec<(u64, ObservedChange)>, expected: &[&str]) {
    let mut judge = Judge::new(BTreeMap::new(), None).within(Bounds::WITHOUT_FAULTS);
    let mut found: Vec<String> = Vec::new();
    for (at_ms, change) in beginning().into_iter().chain(more) {
        found.extend(judge.see_at(at_ms, &change).iter().map(ToString::to_string));
    }
    found.dedup();
    assert_eq!(found, expected);
}

/// Something that changes nothing, late.
fn late() -> (u64, ObservedChange) {
    (500_000, cluster(Value::Null))
}

#[test]
fn a_hold_with_cells_has_an_owner_while_pods_are_left() {
    let hold = |cells: Value| {
        hub(json!({"kind": "Reservation", "metadata": {"name": "h", "uid": "h", "namespace": "fleet-east"},
        "spec": {"epoch": 1, "binding": {"uid": "b-a-10"}, "cells": cells}}))
    };
    let ends = |cells, pod_at_ms| {
        vec![
            (1, job("a-10", Value::Null)),
            (2, hub(binding("a-10", 1, &["n0"]))),
            (2, hold(cells)),
            (3, run("a-10")),
            (4, pod("a-10", 0, "n0", "0")),
            (5, gone(hub(binding("a-10", 1, &["n0"])))),
            (pod_at_ms, gone(pod("a-10", 0, "n0", "0"))),
            (90_000, cluster(Value::Null)),
        ]
    };
    let found = ["invariant 5: reservation h on hub has no owner, for longer than 30 s"];
    check(ends(json!([{"pods": []}]), 80_000), &[]);
    check(ends(json!([{"pods": []}]), 6), &found);
    check(ends(Value::Null, 80_000), &found);
}

#[test]
fn a_leaf_cell_has_one_owner() {
    let jobs =
        || vec![(1, job("a-10", Value::Null)), (2, hub(binding("a-10", 1, &["n0", "n0"]))), (3, run("a-10"))];
    let with = |leaves: &str, node: &str| {
        let mut changes = jobs();
        changes.extend([(4, pod("a-10", 0, "n0", "0")), (5, pod("a-10", 1, node, leaves))]);
        changes
    };
    check(with("1", "n0"), &[]);
    check(with("0", "n1"), &[]);
    let found = "invariant 10: leaf cell 0 of east/n0 has two owners: team/a-10-0 of PyTorchJob team/a-10 in east, \
                 team/a-10-1 of PyTorchJob team/a-10 in east";
    check(with("1,0", "n0"), &[found]);
}

#[test]
fn a_guaranteed_job_waits_only_while_its_cells_are_taken() {
    let waits =
        |name: &'static str, gpus| vec![(1, job(name, Value::Null)), (2, hub(binding(name, gpus, &[])))];
    let refused = |name: &str, vc: &str| {
        format!(
            "invariant 10: PyTorchJob team/{name} of virtual cluster {vc} waits while its cells are free, for longer than 120 s"
        )
    };
    let check_late = |mut changes: Vec<(u64, ObservedChange)>, expected: &[&str]| {
        changes.push(late());
        check(changes, expected);
    };
    check_late(waits("a-10", 2), &[&refused("a-10", "a")]);
    // An opportunistic one may wait for ever; so may one that is larger than the promise.
    check_late(waits("a--1", 2), &[]);
    check_late(waits("a-10", 3), &[]);
    // A job of its own virtual cluster has the rack, or another's has some other node.
    let mut taken = waits("a-10", 2);
    taken.extend([(1, job("a-20", Value::Null)), (1, hub(binding("a-20", 1, &["n2", "n2"])))]);
    check_late(taken, &[]);
    let mut elsewhere = waits("a-10", 2);
    elsewhere.extend([(1, job("b-20", Value::Null)), (1, hub(binding("b-20", 1, &["n2", "n2"])))]);
    check_late(elsewhere, &[&refused("a-10", "a")]);
    // One of two promised nodes is left, and the job takes one or two.
    let b = |gpus| {
        let mut changes = waits("b-10", gpus);
        changes.extend([(1, job("b-20", Value::Null)), (1, hub(binding("b-20", 1, &["n2", "n2"])))]);
        changes
    };
    check_late(b(1), &[&refused("b-10", "b")]);
    check_late(b(2), &[]);
    // Bad nodes and tainted clusters excuse, for as long as they last.
    let mut bad = waits("a-10", 2);
    bad.push((3, node("n3", "False")));
    check_late(bad.clone(), &[]);
    bad.push((10_000, node("n3", "True")));
    check_late(bad, &[&refused("a-10", "a")]);
    let mut tainted = waits("a-10", 2);
    tainted.push((3, cluster(json!([{"key": "x", "effect": "NoSchedule"}]))));
    check(tainted, &[]);
}

#[test]
fn room_is_made_for_a_higher_class_of_the_same_virtual_cluster() {
    let preempted = |victim: &'static str, by: &'static str| {
        let mut after = binding(victim, 1, &["n0", "n0"]);
        after["status"]["attempts"] = json!([{"reason": "Preempted", "epoch": 1,
            "message": format!("preempted by team/{by}-pytorchjob in east (VirtualCluster); 3 s of work")}]);
        vec![
            (1, job(victim, Value::Null)),
            (1, job(by, Value::Null)),
            (2, hub(binding(victim, 1, &["n0", "n0"]))),
            (3, hub(binding(by, 1, &[]))),
            (4, hub(after)),
        ]
    };
    check(preempted("a-10", "a-20"), &[]);
    check(preempted("a--1", "b-20"), &[]);
    check(
        preempted("a-10", "b-20"),
        &["invariant 10: PyTorchJob team/a-10 of a, class 10, was preempted by b, class 20"],
    );
    check(
        preempted("a-20", "a-10"),
        &["invariant 10: PyTorchJob team/a-20 of a, class 20, was preempted by a, class 10"],
    );
}

#[test]
fn a_run_keeps_the_class_with_which_it_began() {
    let relabelled = |from: &'static str, to: &str| {
        let mut now = (*job(from, Value::Null).object).clone();
        now["metadata"]["labels"]["fleet.dev/class"] = to.into();
        let mut after = binding(from, 1, &["n0", "n0"]);
        after["status"]["attempts"] = json!([{"reason": "Preempted", "epoch": 1,
            "message": "preempted by team/b-20-pytorchjob in east (VirtualCluster); 3 s of work"}]);
        vec![
            (1, job(from, Value::Null)),
            (1, job("b-20", Value::Null)),
            (2, hub(binding(from, 1, &["n0", "n0"]))),
            (3, hub(binding("b-20", 1, &[]))),
            (4, hub(now)),
            (5, hub(after)),
        ]
    };
    check(relabelled("a--1", "10"), &[]);
    check(
        relabelled("a-10", "-1"),
        &["invariant 10: PyTorchJob team/a-10 of a, class 10, was preempted by b, class 20"],
    );
}

/// The configuration, promising b fewer nodes.
fn smaller_configuration() -> ObservedChange {
    let mut object = (*configuration().object).clone();
    object["spec"]["virtualClusters"]["b"]["virtualCells"][0]["cellNumber"] = 1.into();
    object["metadata"]["generation"] = 2.into();
    hub(object)
}

#[test]
fn a_new_configuration_may_take_the_promise_and_the_room_in_one_decision() {
    let victim = |at_ms: u64, changed_ms: u64| {
        let mut after = binding("b-10", 1, &["n2", "n3"]);
        after["status"]["attempts"] = json!([{"reason": "Preempted", "epoch": 1,
            "message": "preempted by team/a-20-pytorchjob in east (VirtualCluster); 3 s of work"}]);
        let mut changes = vec![
            (1, job("b-10", Value::Null)),
            (1, job("a-20", Value::Null)),
            (1_000, hub(binding("b-10", 1, &["n2", "n3"]))),
            (1_001, hub(binding("a-20", 1, &[]))),
            (changed_ms, smaller_configuration()),
            (at_ms, hub(after)),
        ];
        changes.sort_by_key(|(at_ms, _)| *at_ms);
        changes
    };
    check(victim(2_000, 2_000), &[]);
    let found = "invariant 10: PyTorchJob team/b-10 of b, class 10, was preempted by a, class 20";
    // It has begun under the new one.
    check(victim(2_000, 500), &[found]);
}

#[test]
fn a_promise_is_lost_for_a_reason() {
    let lost = |annotations: Value| {
        let mut after = binding("a-10", 1, &["n0", "n0"]);
        after["spec"]["cells"]["groups"][0]["lazilyPreempted"] = json!({"preemptor": "x", "atMs": 1});
        vec![(1, job("a-10", annotations)), (2, hub(binding("a-10", 1, &["n0", "n0"]))), (3, hub(after))]
    };
    check(lost(json!({"fleet.dev/lazy-preemption": "true"})), &[]);
    let found = "invariant 10: PyTorchJob team/a-10 lost its promise, which it did not offer, under one configuration";
    check(lost(Value::Null), &[found]);
}

#[test]
fn a_pod_has_the_cells_that_its_binding_names_and_is_where_its_job_asks_to_be() {
    let with = |annotations: Value, node: &str, leaves: &str| {
        vec![
            (1, job("a-10", annotations)),
            (2, hub(binding("a-10", 1, &["n0", "n1"]))),
            (3, run("a-10")),
            (4, pod("a-10", 0, "n0", "0")),
            (5, pod("a-10", 1, node, leaves)),
            late(),
        ]
    };
    check(with(Value::Null, "n1", "0"), &[]);
    check(with(json!({"fleet.dev/within-one-cell": "RACK"}), "n1", "0"), &[]);
    let found = "invariant 10: team/a-10-1 of PyTorchJob team/a-10 in east has leaf cells {1} of n1, of which its \
                 binding says nothing, for longer than 120 s";
    check(with(Value::Null, "n1", "1"), &[found]);
    let found = "invariant 10: pods of PyTorchJob team/a-10 are not within one NODE, for longer than 120 s";
    check(with(json!({"fleet.dev/within-one-cell": "NODE"}), "n1", "0"), &[found]);
}

#[test]
fn nodes_that_are_kept_for_cells_take_nothing_else() {
    let kept = json!({"kind": "Reservation", "metadata": {"name": "cell-nodes-1", "uid": "k"},
        "spec": {"cellNodes": ["n0"]}});
    let plain = |at_ms, node: &str| {
        vec![
            (3, east(kept.clone())),
            (4, hub(binding("a-10", 1, &["n0", "n0"]))),
            (5, run("a-10")),
            (at_ms, pod("a-10", 0, node, "")),
        ]
    };
    // It had its place before, and its pod is made again.
    let before = vec![
        (1, hub(binding("a-10", 1, &["n0", "n0"]))),
        (2, run("a-10")),
        (3, east(kept.clone())),
        (300_000, pod("a-10", 0, "n0", "")),
    ];
    check(before, &[]);
    check(plain(5_000, "n0"), &[]);
    check(plain(300_000, "n9"), &[]);
    let found = "invariant 10: team/a-10-0 of PyTorchJob team/a-10 in east has no cells and was placed on east/n0, \
                 which is kept for cells";
    check(plain(300_000, "n0"), &[found]);
    // The hub has released the nodes; what the member still has of it, or writes to it, keeps nothing.
    let mut of_hub = kept.clone();
    of_hub["metadata"]["namespace"] = "fleet-east".into();
    let mut released = plain(300_000, "n0");
    released
        .splice(1..1, [(3, hub(of_hub.clone())), (3, gone(hub(of_hub.clone()))), (3, east(kept.clone()))]);
    check(released.clone(), &[]);
    released.splice(4..4, [(3, hub(of_hub)), (3, east(kept))]);
    check(released, &[found]);
}

#[test]
fn what_runs_keeps_its_cells() {
    let named = |nodes: &[&str]| {
        let mut binding = binding("a-10", 1, nodes);
        for (index, pod) in
            binding["spec"]["cells"]["groups"][0]["pods"].as_array_mut().into_iter().flatten().enumerate()
        {
            pod["name"] = format!("worker-{index}").into();
        }
        hub(binding)
    };
    let moved = |pod_stays: bool, more: Vec<(u64, ObservedChange)>| {
        let mut changes = vec![
            (1, job("a-10", Value::Null)),
            (2, named(&["n0", "n1"])),
            (3, run("a-10")),
            (4, pod("a-10", 0, "n0", "0")),
            (5, pod("a-10", 1, "n1", "0")),
        ];
        changes.extend(more);
        if !pod_stays {
            changes.push((7, gone(pod("a-10", 1, "n1", "0"))));
        }
        changes.push((8, named(&["n0", "n2"])));
        changes
    };
    let found = "invariant 10: team/a-10-1 of PyTorchJob team/a-10 in east runs on leaf cells {0} of n1, and its binding \
                 of PyTorchJob team/a-10 names {0} of n2 instead";
    check(moved(true, Vec::new()), &[found]);
    check(moved(false, Vec::new()), &[]);
    check(moved(true, vec![(6, smaller_configuration())]), &[]);
}
