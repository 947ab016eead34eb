use std::collections::BTreeMap;

use super::*;
use fleet_member_state::{
    Hold,
    testing::{key, node, pod, reservation, state, used},
};

fn gang(name: &str) -> GangKey {
    GangKey::Named { namespace: "default".into(), gang: name.into() }
}

/// What one look at the gang comes to, as text.
fn look(state: &mut MemberState, gang: &GangKey) -> String {
    match decide(state, gang) {
        Decision::Nothing => "nothing".to_owned(),
        Decision::Incomplete { exist, size } => format!("{exist} of {size} exist"),
        Decision::Bind(bindings) => {
            let one = |b: &Binding| format!("{}->{}", b.pod.name, b.node);
            bindings.iter().map(one).collect::<Vec<_>>().join(" ")
        }
        Decision::Refused(refused) if refused.half_bound.is_empty() => refused.message,
        Decision::Refused(refused) => {
            let names: Vec<&str> = refused.half_bound.iter().map(|pod| pod.name.as_str()).collect();
            format!("{} (half bound: {})", refused.message, names.join(" "))
        }
    }
}

fn hold(state: &mut MemberState, name: &str, nodes: &[(&str, &[&str])], components: &[&str]) {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let nodes: BTreeMap<String, Vec<String>> =
        nodes.iter().map(|(component, nodes)| ((*component).to_owned(), names(nodes))).collect();
    state.add_hold(Hold::new(name, &reservation(name, "u", 1, components).spec, &nodes));
}

#[test]
fn a_gang_waits_for_all_its_members_and_is_bound_whole() {
    let mut state = state(&["n1 8", "n2 8"]);
    state.apply_pod(&pod("j-master-0: gpu=4 gang=j size=3 component=master"));
    state.apply_pod(&pod("j-worker-0: gpu=6 gang=j size=3 component=worker"));
    assert_eq!(look(&mut state, &gang("j")), "2 of 3 exist");
    state.apply_pod(&pod("j-worker-1: gpu=2 gang=j size=3 component=worker"));
    let bound = look(&mut state, &gang("j"));
    assert_eq!(bound.matches("->").count(), 3, "{bound}");
    assert_eq!(look(&mut state, &gang("j")), "nothing");
}

#[test]
fn a_gang_waits_for_members_behind_a_gate() {
    let mut state = state(&["n1 8"]);
    state.apply_pod(&pod("j-worker-0: gpu=4 gang=j size=2"));
    state.apply_pod(&pod("j-worker-1: gpu=4 gang=j size=2 gate=hold"));
    assert_eq!(look(&mut state, &gang("j")), "1 of 2 exist");
    state.apply_pod(&pod("j-worker-1: gpu=4 gang=j size=2"));
    assert_eq!(look(&mut state, &gang("j")), "j-worker-0->n1 j-worker-1->n1");
}

#[test]
fn a_gang_that_does_not_fit_takes_nothing() {
    let mut state = state(&["n1 8", "n2 4"]);
    for i in 0..3 {
        state.apply_pod(&pod(&format!("j-worker-{i}: gpu=6 gang=j size=3 component=worker")));
    }
    assert_eq!(
        look(&mut state, &gang("j")),
        "0/2 nodes are unavailable: 2 Insufficient nvidia.com/gpu. 1 of 3 pods fits"
    );
    assert_eq!(used(&state), "n1 0/0, n2 0/0");
}

#[test]
fn more_pods_than_the_size_are_bound_as_far_as_they_fit() {
    let mut state = state(&["n1 8"]);
    for i in 0..3 {
        state.apply_pod(&pod(&format!("j-worker-{i}: gpu=3 gang=j size=2 component=worker")));
    }
    assert_eq!(look(&mut state, &gang("j")), "j-worker-0->n1 j-worker-1->n1");
    assert!(look(&mut state, &gang("j")).contains(". 0 of 1 pod fits"));
}

#[test]
fn held_places_are_taken_by_index() {
    let mut state = state(&["n1 8", "n2 8"]);
    hold(&mut state, "r", &[("master", &["n2"]), ("worker", &["n2", "n1"])], &["master 1 4", "worker 2 4"]);
    // Nothing else fits there meanwhile.
    state.apply_pod(&pod("x: gpu=8"));
    assert!(look(&mut state, &GangKey::Single(key("x"))).contains(". 0 of 1 pod fit"));
    for (name, component) in [("j-master-0", "master"), ("j-worker-0", "worker"), ("j-worker-1", "worker")] {
        state.apply_pod(&pod(&format!("{name}: gpu=4 gang=j size=3 component={component} reservation=r")));
    }
    assert_eq!(look(&mut state, &gang("j")), "j-master-0->n2 j-worker-0->n2 j-worker-1->n1");
    assert_eq!(used(&state), "n1 4/1, n2 8/2");
}

#[test]
fn a_pod_that_is_made_again_finds_its_place() {
    let mut state = state(&["n1 8"]);
    hold(&mut state, "r", &[("worker", &["n1", "n1"])], &["worker 2 4"]);
    let member = |i: usize| format!("j-worker-{i}: gpu=4 gang=j size=2 component=worker reservation=r");
    state.apply_pod(&pod(&format!("{} node=n1", member(0))));
    state.apply_pod(&pod(&format!("{} node=n1", member(1))));
    state.remove_pod(&key("j-worker-1"));
    state.apply_pod(&pod("x: gpu=4"));
    assert!(look(&mut state, &GangKey::Single(key("x"))).contains(". 0 of 1 pod fit"));
    state.apply_pod(&pod(&member(1)));
    assert_eq!(look(&mut state, &gang("j")), "j-worker-1->n1");
}

/// As when a Job that was suspended is resumed while its pods still end: what they use was counted once.
#[test]
fn pods_beyond_what_is_reserved_for_their_run_wait_for_those_that_end() {
    let mut state = state(&["n1 8", "n2 8"]);
    hold(&mut state, "r", &[("job", &["n1", "n1"])], &["job 2 4"]);
    let member = |name: &str| pod(&format!("{name}: gpu=4 gang=j size=2 component=job reservation=r"));
    for name in ["j-aa", "j-bb"] {
        state.apply_pod(&member(name));
    }
    assert_eq!(look(&mut state, &gang("j")), "j-aa->n1 j-bb->n1");
    for name in ["j-aa", "j-bb"] {
        let text = format!("{name}: gpu=4 gang=j size=2 component=job reservation=r node=n1 deleting=1");
        state.apply_pod(&pod(&text));
    }
    for name in ["j-cc", "j-dd"] {
        state.apply_pod(&member(name));
    }
    let waits = "other pods of its run use all that is reserved for it";
    let found = look(&mut state, &gang("j"));
    assert!(found.contains(waits), "{found}");
    assert_eq!(used(&state), "n1 8/2, n2 0/0");
    state.remove_pod(&key("j-aa"));
    let found = look(&mut state, &gang("j"));
    assert!(found.contains(waits), "a gang starts whole: {found}");
    state.remove_pod(&key("j-bb"));
    assert_eq!(look(&mut state, &gang("j")), "j-cc->n1 j-dd->n1");
    // One that nobody has reserved for.
    state.apply_pod(&member("j-ee"));
    let found = look(&mut state, &gang("j"));
    assert!(found.contains(waits), "{found}");
}

#[test]
fn a_held_node_that_is_cordoned_is_replaced_by_another() {
    let mut state = state(&["n1 8", "n2 8"]);
    hold(&mut state, "r", &[("worker", &["n1"])], &["worker 1 4"]);
    let mut cordoned = node("n1 8");
    cordoned.spec.unschedulable = true;
    state.apply_node(&cordoned);
    state.apply_pod(&pod("j-worker-0: gpu=4 gang=j size=1 component=worker reservation=r"));
    assert_eq!(look(&mut state, &gang("j")), "j-worker-0->n2");
    assert_eq!(used(&state), "n1 0/0, n2 4/1", "the place is not held beside the pod");
}

#[test]
fn places_without_index_are_given_in_order() {
    let mut state = state(&["n1 8", "n2 8"]);
    hold(&mut state, "r", &[("job", &["n1", "n2"])], &["job 2 8"]);
    state.apply_pod(&pod("j-abcde: gpu=8 gang=j size=2 component=job reservation=r"));
    state.apply_pod(&pod("j-fghij: gpu=8 gang=j size=2 component=job reservation=r"));
    assert_eq!(look(&mut state, &gang("j")), "j-abcde->n1 j-fghij->n2");
}

#[test]
fn a_half_bound_gang_is_reported_unless_it_has_run() {
    let check = |pods: &[&str], expected: bool| {
        let mut state = state(&["n1 8"]);
        for text in pods {
            state.apply_pod(&pod(text));
        }
        assert_eq!(look(&mut state, &gang("j")).contains("half bound: j-worker-0"), expected, "{pods:?}");
    };
    let bound = "j-worker-0: gpu=6 gang=j size=2 node=n1";
    check(&[bound, "j-worker-1: gpu=6 gang=j size=2"], true);
    let running = "j-worker-0: gpu=6 gang=j size=2 node=n1 started=1";
    check(&[running, "j-worker-1: gpu=6 gang=j size=2 created=1"], true);
    check(&[running, "j-worker-1: gpu=6 gang=j size=2 created=60"], false);
    check(&[bound, "j-worker-1: gpu=6 gang=j size=2 reservation=r"], false);
    check(&[bound, "j-worker-1: gpu=6 gang=j size=1"], false);
}

#[test]
fn gangs_stand_in_line_by_priority_then_age_then_name() {
    let mut state = state(&["n1 8"]);
    for text in ["b: created=5", "a: created=5", "old: created=1", "high: created=9 priority=10"] {
        state.apply_pod(&pod(text));
    }
    let mut ranks: Vec<Rank> = ["a", "b", "old", "high"]
        .iter()
        .map(|name| rank(&state, &GangKey::Single(key(name))).unwrap())
        .collect();
    ranks.sort();
    let names: Vec<&str> = ranks
        .iter()
        .map(|(_, _, key)| match key {
            GangKey::Single(pod) => pod.name.as_str(),
            GangKey::Named { gang, .. } => gang,
        })
        .collect();
    assert_eq!(names, ["high", "old", "a", "b"]);
}

#[test]
fn a_request_that_is_no_quantity_is_told() {
    let mut state = state(&["n1 8"]);
    state.apply_pod(&pod("a: gpu=many"));
    let message = look(&mut state, &GangKey::Single(key("a")));
    assert!(
        message.starts_with("pod a: resource \"nvidia.com/gpu\": \"many\" is not a quantity"),
        "{message}"
    );
}

/// Cells of component `w` for these pods, one device each.
fn hold_cells(state: &mut MemberState, places: &[(i64, &str)]) {
    let mut spec = reservation("r", "u", 1, &["w 2 1"]).spec;
    let mut nodes = vec![String::new(); 2];
    let mut group = fleet_api::cell_places::CellGroup {
        request: serde_json::json!({"virtualCluster": "vc", "priority": 1, "affinityGroup": {"name": "g"}}),
        ..Default::default()
    };
    for (index, node) in places {
        nodes[usize::try_from(*index).unwrap()] = (*node).to_owned();
        group.places.push(fleet_api::cell_places::CellPlace {
            component: "w".into(),
            index: *index,
            node: (*node).to_owned(),
            leaf_cells: vec![0],
            ..Default::default()
        });
    }
    spec.cells = vec![group];
    state.add_hold(Hold::new("r", &spec, &[("w".to_owned(), nodes)].into()));
}

#[test]
fn pods_that_start_one_by_one_are_bound_as_they_get_their_cells() {
    let mut state = state(&["n1 1", "n2 1"]);
    hold_cells(&mut state, &[(1, "n2")]);
    for i in 0..2 {
        state.apply_pod(&pod(&format!("j-w-{i}: gpu=1 gang=j size=1 component=w reservation=r")));
    }
    assert_eq!(look(&mut state, &gang("j")), "j-w-1->n2");
    assert_eq!(look(&mut state, &gang("j")), "pod j-w-0: it has no cells of its virtual cluster yet");
    hold_cells(&mut state, &[(1, "n2"), (0, "n1")]);
    assert_eq!(look(&mut state, &gang("j")), "j-w-0->n1");
}

#[test]
fn pods_on_cells_wait_when_these_are_not_held_any_more() {
    for mark in ["", "cells=true"] {
        let mut state = state(&["n1 2", "n2 2"]);
        hold_cells(&mut state, &[(0, "n1"), (1, "n1")]);
        for i in 0..2 {
            state.apply_pod(&pod(&format!("j-w-{i}: gpu=1 gang=j size=2 component=w reservation=r {mark}")));
        }
        state.remove_hold("r");
        let found = look(&mut state, &gang("j"));
        match mark {
            "" => assert_eq!(found.matches("->").count(), 2, "{found}"),
            _ => assert_eq!(found, "pod j-w-0: it has no cells of its virtual cluster yet"),
        }
        assert_eq!(
            node_for_one(&state, &pod(&format!("k-w-0: gpu=1 component=w reservation=x {mark}"))),
            None
        );
    }
}

#[test]
fn a_pod_with_cells_is_bound_so_that_it_carries_its_devices() {
    let mut state = state(&["n1 1", "n2 1"]);
    hold(&mut state, "plain", &[("w", &["n2"])], &["w 1 1"]);
    hold_cells(&mut state, &[(0, "n1")]);
    let asked = |reservation: &str| {
        let text = format!("j-w-0: gpu=1 gang=j size=1 component=w reservation={reservation}");
        let mut asked = pod(&text);
        asked.metadata.uid = None;
        asked
    };
    assert_eq!(node_for_one(&state, &asked("plain")).as_deref(), Some("n2"), "made on its node at once");
    assert_eq!(node_for_one(&state, &asked("r")), None);
    state.apply_pod(&pod("j-w-0: gpu=1 gang=j size=1 component=w reservation=r"));
    let Decision::Bind(bindings) = decide(&mut state, &gang("j")) else { panic!("it has its cells") };
    let marks = bindings[0].marks.as_ref().expect("marks");
    assert_eq!(marks[fleet_member_state::ISOLATION_ANNOTATION], "0");
}
