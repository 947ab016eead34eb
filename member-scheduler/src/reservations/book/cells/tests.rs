use fleet_api::{
    Reservation,
    cell_places::{CellGroup, CellPlace, Preempted},
};
use jiff::Timestamp;

use super::*;
use crate::report;
use crate::reservations::book::Book;
use fleet_agent_ground::{lean::LeanNode, permits::CellNodes};
use fleet_member_state::testing::{key, pod, reservation, state};
use serde_json::json;

/// Places `index node cell` of component `w`.
fn cells(places: &[&str]) -> Vec<CellGroup> {
    let place = |text: &&str| {
        let mut parts = text.split(' ');
        let mut next = || parts.next().expect("three words").to_owned();
        CellPlace {
            component: "w".into(),
            index: next().parse().expect("a number"),
            node: next(),
            leaf_cells: vec![next().parse().expect("a number")],
            cell_type: "NODE".into(),
        }
    };
    vec![CellGroup { name: "g".into(), places: places.iter().map(place).collect(), ..CellGroup::default() }]
}

fn asked(name: &str, uid: &str, components: &[&str], places: &[&str]) -> Reservation {
    let mut asked = reservation(name, uid, 1, components);
    asked.spec.cells = cells(places);
    asked
}

fn plan(book: &mut Book, state: &mut MemberState) {
    book.plan_asked(state, Timestamp::UNIX_EPOCH, 7);
}

fn described(book: &Book, name: &str) -> String {
    match &book.entries[name].verdict {
        ReservationState::Held(status) | ReservationState::Closed(status) => {
            let phase = status.phase.map(|phase| format!("{phase:?}")).unwrap_or_default();
            let nodes: Vec<&str> = status.nodes.values().flatten().map(String::as_str).collect();
            let message = status.message.clone().unwrap_or_default();
            format!("{phase} {nodes:?} bad {:?}: {message}", status.bad_nodes)
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn places_are_those_that_were_named_and_a_leaf_cell_is_held_once() {
    let (mut book, mut state) = (Book::default(), state(&["n1 4", "n2 4"]));
    book.apply(&asked("r", "u", &["w 2 1"], &["0 n2 0", "1 n1 3"]), &mut state);
    plan(&mut book, &mut state);
    assert_eq!(described(&book, "r"), "Reserved [\"n2\", \"n1\"] bad []: cells held for 2 of 2 pods");
    book.apply(&asked("s", "v", &["w 1 1"], &["0 n1 3"]), &mut state);
    book.apply(&asked("t", "x", &["w 1 1"], &["0 n9 0"]), &mut state);
    book.apply(&asked("full", "y", &["w 1 4"], &["0 n1 0"]), &mut state);
    plan(&mut book, &mut state);
    let held = "node n1: leaf cell 3 is held by reservation r";
    assert_eq!(described(&book, "s"), format!("Refused [] bad [\"n1\"]: {held}"));
    assert_eq!(described(&book, "t"), "Refused [] bad [\"n9\"]: node n9: the member has no such node");
    let full = "node n1: it has too little free: nvidia.com/gpu";
    assert_eq!(described(&book, "full"), format!("Refused [] bad []: {full}"));
    assert_eq!(excluded(&book, "full"), ["w: n1"]);
}

/// Of each component, the nodes that do not take its pods.
fn excluded(book: &Book, name: &str) -> Vec<String> {
    let (ReservationState::Held(status) | ReservationState::Closed(status)) = &book.entries[name].verdict
    else {
        panic!("{:?}", book.entries[name].verdict)
    };
    let listed = |(component, nodes): (&String, &Vec<String>)| format!("{component}: {}", nodes.join(" "));
    status.excluded_nodes.iter().map(listed).collect()
}

#[test]
fn what_only_its_own_pods_cannot_use_is_no_bad_node() {
    let (mut book, mut state) = (Book::default(), state(&["n1 4", "n2 4", "n3 4", "own 4"]));
    let mut kept = reservation("cell-nodes-1", "", 0, &[]);
    kept.spec.cell_nodes = ["n1", "n2", "n3"].map(String::from).to_vec();
    book.apply(&kept, &mut state);
    plan(&mut book, &mut state);
    let cordoned = json!({
        "metadata": {"name": "n3"}, "spec": {"unschedulable": true},
        "status": {"allocatable": {"nvidia.com/gpu": "4", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}]},
    });
    state.apply_node(&serde_json::from_value(cordoned).expect("a node"));
    // The wrong selector excludes every node of cells. They are told at once, without those of no use to anybody.
    let mut wrong = asked("wrong", "u", &["w 2 1"], &["0 n1 0", "1 n3 0"]);
    wrong.spec.components[0].node_claim = json!({"nodeSelector": {"no": "such"}});
    book.apply(&wrong, &mut state);
    plan(&mut book, &mut state);
    let why = "node n1: its labels or taints exclude the pod";
    assert_eq!(described(&book, "wrong"), format!("Refused [] bad [\"n3\"]: {why}"));
    assert_eq!(excluded(&book, "wrong"), ["w: n1 n2"]);
    // One device, and more processors than any node has.
    let mut greedy = asked("greedy", "v", &["w 1 1"], &["0 n2 0"]);
    greedy.spec.components[0].request.insert("cpu".into(), "1000".into());
    book.apply(&greedy, &mut state);
    plan(&mut book, &mut state);
    assert_eq!(described(&book, "greedy"), "Refused [] bad []: node n2: it has too little free: cpu");
    assert_eq!(excluded(&book, "greedy"), ["w: n1 n2"]);
    // More pods than the node may hold.
    let places: Vec<String> = (0..11).map(|index| format!("{index} n1 {index}")).collect();
    let places: Vec<&str> = places.iter().map(String::as_str).collect();
    book.apply(&asked("many", "x", &["w 11 0"], &places), &mut state);
    plan(&mut book, &mut state);
    assert_eq!(described(&book, "many"), "Refused [] bad []: node n1: it has too little free: pods");
    assert_eq!(excluded(&book, "many"), ["w: n1"]);
}

#[test]
fn a_change_to_nodes_that_exclude_the_pods_is_refused_and_taken_back() {
    let (mut book, mut state) = (Book::default(), state(&["n1 1"]));
    let tainted = json!({
        "metadata": {"name": "n2"}, "spec": {"taints": [{"key": "maintenance", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"nvidia.com/gpu": "1", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}]},
    });
    state.apply_node(&serde_json::from_value(tainted).expect("a node"));
    let mut job = asked("r", "u", &["w 2 1"], &["0 n1 0"]);
    book.apply(&job, &mut state);
    plan(&mut book, &mut state);
    job.spec.cells = cells(&["0 n1 0", "1 n2 0"]);
    book.apply(&job, &mut state);
    let refused = "the change was refused: node n2: its labels or taints exclude the pod";
    assert_eq!(described(&book, "r"), format!("Reserved [\"n1\", \"\"] bad []: {refused}"));
    assert_eq!(excluded(&book, "r"), ["w: n2"]);
    let ReservationState::Held(status) = &book.entries["r"].verdict else { panic!("it is held") };
    let answered = Reservation { status: Some(status.clone()), ..job.clone() };
    let (ungiven, bad) = fleet_api::cell_answers::ungiven(&answered);
    assert_eq!((ungiven, bad), ([("w".to_owned(), 1)].into(), &[][..]), "the hub gives up the second place");
    job.spec.cells = cells(&["0 n1 0"]);
    book.apply(&job, &mut state);
    assert_eq!(
        (described(&book, "r").as_str(), excluded(&book, "r").len()),
        ("Reserved [\"n1\", \"\"] bad []: cells held for 1 of 2 pods", 0)
    );
}

#[test]
fn cells_of_a_running_job_grow_and_shrink_and_what_cannot_be_given_changes_nothing() {
    let (mut book, mut state) = (Book::default(), state(&["n1 1", "n2 1"]));
    let mut job = asked("r", "u", &["w 3 1"], &["1 n2 0"]);
    book.apply(&job, &mut state);
    plan(&mut book, &mut state);
    assert_eq!(described(&book, "r"), "Reserved [\"\", \"n2\", \"\"] bad []: cells held for 1 of 3 pods");
    job.spec.cells = cells(&["1 n2 0", "0 n1 0"]);
    book.apply(&job, &mut state);
    assert_eq!(described(&book, "r"), "Reserved [\"n1\", \"n2\", \"\"] bad []: cells held for 2 of 3 pods");
    // The cells of one that has ended are the next one's.
    job.spec.cells = cells(&["1 n2 0", "2 n1 0"]);
    book.apply(&job, &mut state);
    assert_eq!(described(&book, "r"), "Reserved [\"\", \"n2\", \"n1\"] bad []: cells held for 2 of 3 pods");
    job.spec.cells = cells(&["1 n2 0", "2 n1 0", "0 n3 0"]);
    book.apply(&job, &mut state);
    let refused = "the change was refused: node n3: the member has no such node";
    assert_eq!(described(&book, "r"), format!("Reserved [\"\", \"n2\", \"n1\"] bad [\"n3\"]: {refused}"));
    // The hub takes the change back.
    job.spec.cells = cells(&["1 n2 0", "2 n1 0"]);
    book.apply(&job, &mut state);
    assert_eq!(described(&book, "r"), "Reserved [\"\", \"n2\", \"n1\"] bad []: cells held for 2 of 3 pods");
}

#[test]
fn what_arrives_with_the_nodes_for_cells_is_not_placed_on_them() {
    let (mut book, mut state) = (Book::default(), state(&["n1 4", "n2 4"]));
    book.apply(&reservation("r", "u", 1, &["w 1 4"]), &mut state);
    let mut kept = reservation("cell-nodes-1", "", 0, &[]);
    kept.spec.cell_nodes = vec!["n1".into()];
    book.apply(&kept, &mut state);
    book.apply(&reservation("s", "v", 1, &["w 1 4"]), &mut state);
    plan(&mut book, &mut state);
    assert_eq!(described(&book, "r"), "Reserved [\"n2\"] bad []: 1 places held");
    assert!(described(&book, "s").starts_with("Refused"), "{}", described(&book, "s"));
}

#[test]
fn a_place_that_stays_is_not_room_for_another_of_its_job() {
    let (mut book, mut state) = (Book::default(), state(&["n1 4", "n2 2"]));
    state.apply_pod(&pod("older: gpu=2 node=n1"));
    let mut job = asked("r", "u", &["w 2 2"], &["0 n1 0"]);
    book.apply(&job, &mut state);
    plan(&mut book, &mut state);
    assert_eq!(described(&book, "r"), "Reserved [\"n1\", \"\"] bad []: cells held for 1 of 2 pods");
    // Its pods do not exist yet, and the hub has found cells for another one.
    job.spec.cells = cells(&["0 n1 0", "1 n1 1"]);
    book.apply(&job, &mut state);
    let refused = "the change was refused: node n1: it has too little free: nvidia.com/gpu";
    assert_eq!(described(&book, "r"), format!("Reserved [\"n1\", \"\"] bad []: {refused}"));
    assert_eq!(excluded(&book, "r"), ["w: n1"]);
    assert!(state.take_crowd().places.is_empty(), "nothing is promised twice");
    // What it releases in the same change is.
    job.spec.cells = cells(&["1 n1 1"]);
    book.apply(&job, &mut state);
    assert_eq!(described(&book, "r"), "Reserved [\"\", \"n1\"] bad []: cells held for 1 of 2 pods");
}

#[test]
fn a_change_that_was_refused_is_held_when_its_cells_come_free() {
    let (mut book, mut state) = (Book::default(), state(&["n1 1", "n2 1"]));
    let mut job = asked("r", "u", &["w 2 1"], &["1 n2 0"]);
    book.apply(&job, &mut state);
    book.apply(&asked("other", "v", &["w 1 1"], &["0 n1 0"]), &mut state);
    plan(&mut book, &mut state);
    job.spec.cells = cells(&["1 n2 0", "0 n1 0"]);
    book.apply(&job, &mut state);
    let refused = "the change was refused: node n1: leaf cell 0 is held by reservation other";
    assert_eq!(described(&book, "r"), format!("Reserved [\"\", \"n2\"] bad [\"n1\"]: {refused}"));
    book.look_at_cells(&mut state);
    assert_eq!(described(&book, "r"), format!("Reserved [\"\", \"n2\"] bad [\"n1\"]: {refused}"));
    // The hub writes nothing more; the other run ends.
    book.remove("other", &mut state);
    book.look_at_cells(&mut state);
    assert_eq!(described(&book, "r"), "Reserved [\"n1\", \"n2\"] bad []: cells held for 2 of 2 pods");
}

#[test]
fn a_pod_leaves_the_cells_that_a_change_takes_from_it_before_others_get_them() {
    let (mut book, mut state) = (Book::default(), state(&["n1 1", "n2 1"]));
    let mut job = asked("r", "u", &["w 2 1"], &["0 n1 0", "1 n2 0"]);
    book.apply(&job, &mut state);
    plan(&mut book, &mut state);
    let run = |state: &mut MemberState, name: &str, uid: &str, rest: &str| {
        state.apply_pod(&pod(&format!("{name}: component=w gpu=1 reservation=r uid={uid} {rest}")));
    };
    run(&mut state, "w-0", "0", "node=n1 phase=Running");
    run(&mut state, "w-1", "1", "node=n2 phase=Running");
    let held = "Reserved [\"n1\", \"n2\"] bad []: cells held for 2 of 2 pods";
    // The hub withdraws what it had been refused before, while the pod has got it after all.
    job.spec.cells = cells(&["0 n1 0"]);
    book.apply(&job, &mut state);
    let refused = "the change was refused: pods that are still on cells which it takes from them: w-1";
    assert_eq!(described(&book, "r"), format!("Reserved [\"n1\", \"n2\"] bad []: {refused}"));
    assert_eq!(state.leaving_pods(), [(key("w-1"), "1".to_owned())]);
    // It takes the withdrawal back.
    job.spec.cells = cells(&["0 n1 0", "1 n2 0"]);
    book.apply(&job, &mut state);
    assert_eq!((described(&book, "r").as_str(), state.leaving_pods()), (held, Vec::new()));
    // It withdraws again, and gives the cell to another job.
    job.spec.cells = cells(&["0 n1 0"]);
    book.apply(&job, &mut state);
    state.set_evicting(&key("w-1"), true);
    book.apply(&asked("s", "v", &["w 1 1"], &["0 n2 0"]), &mut state);
    plan(&mut book, &mut state);
    let by = "Refused [] bad [\"n2\"]: node n2: leaf cell 0 is held by reservation r";
    assert_eq!(described(&book, "s"), by);
    // The pod is gone, and made again: it waits for its cells.
    state.remove_pod(&key("w-1"));
    run(&mut state, "w-1", "2", "");
    book.look_at_cells(&mut state);
    assert_eq!(described(&book, "r"), "Reserved [\"n1\", \"\"] bad []: cells held for 1 of 2 pods");
    book.apply(&asked("t", "x", &["w 1 1"], &["0 n2 0"]), &mut state);
    plan(&mut book, &mut state);
    assert!(described(&book, "t").starts_with("Reserved [\"n2\"]"), "{}", described(&book, "t"));
}

#[test]
fn other_cells_for_a_pod_that_runs_are_held_when_it_has_left_the_old_ones() {
    let (mut book, mut state) = (Book::default(), state(&["n1 2"]));
    let mut job = asked("r", "u", &["w 1 1"], &["0 n1 0"]);
    book.apply(&job, &mut state);
    plan(&mut book, &mut state);
    state.apply_pod(&pod("w-0: component=w gpu=1 reservation=r uid=0 node=n1 phase=Running"));
    job.spec.cells = cells(&["0 n1 1"]);
    book.apply(&job, &mut state);
    let leaf_cells = |state: &MemberState| state.hold_named("r").expect("held").places[0].leaf_cells.clone();
    assert_eq!((leaf_cells(&state), state.leaving_pods().len()), (vec![0], 1));
    state.remove_pod(&key("w-0"));
    book.look_at_cells(&mut state);
    assert_eq!((leaf_cells(&state), state.leaving_pods().len()), (vec![1], 0));
}

#[test]
fn a_restarted_agent_holds_what_the_hub_has_asked_for_meanwhile() {
    let (mut book, mut before) = (Book::default(), state(&["n1 1", "n2 1"]));
    let mut job = asked("r", "u", &["w 2 1"], &["0 n1 0"]);
    book.apply(&job, &mut before);
    plan(&mut book, &mut before);
    let ReservationState::Held(status) = book.entries["r"].verdict.clone() else { panic!("it is held") };
    let mut copy = job.clone();
    copy.status = Some(status);
    for work_first in [false, true] {
        let (mut book, mut state) = (Book::default(), state(&["n1 1", "n2 1"]));
        book.recover(&copy, &mut state);
        if work_first {
            let binding = job.spec.binding.uid.clone();
            book.consume(&binding, job.spec.epoch);
        }
        job.spec.cells = cells(&["0 n1 0", "1 n2 0"]);
        book.apply(&job, &mut state);
        assert_eq!(described(&book, "r"), "Reserved [\"n1\", \"n2\"] bad []: cells held for 2 of 2 pods");
    }
}

#[test]
fn a_preempted_pod_leaves_its_cells_and_the_hub_is_told_when_it_is_gone() {
    let (mut book, mut state) = (Book::default(), state(&["n1 1", "n2 1"]));
    let mut job = asked("r", "u", &["w 2 1"], &[]);
    let group = |index: i64, node: &str| CellGroup {
        name: format!("g{index}"),
        ..cells(&[&format!("{index} {node} 0")]).remove(0)
    };
    job.spec.cells = vec![group(0, "n1"), group(1, "n2")];
    book.apply(&job, &mut state);
    plan(&mut book, &mut state);
    let run = |state: &mut MemberState, name: &str, uid: &str, rest: &str| {
        state.apply_pod(&pod(&format!("{name}: component=w gpu=1 reservation=r uid={uid} {rest}")));
    };
    run(&mut state, "w-0", "0", "node=n1 phase=Running");
    run(&mut state, "w-1", "1", "node=n2 phase=Running");
    assert!(state.leaving_pods().is_empty());
    job.spec.cells[1].preempted = Some(Preempted { by: "default/high".into(), at_ms: 7 });
    book.apply(&job, &mut state);
    let vacated = |book: &Book| match &book.entries["r"].verdict {
        ReservationState::Held(status) => status.vacated.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(state.leaving_pods(), [(key("w-1"), "1".to_owned())]);
    assert!(vacated(&book).is_empty(), "its pod is there");
    state.set_evicting(&key("w-1"), true);
    assert!(state.leaving_pods().is_empty(), "it is told once");
    // The pod is gone, and its controller has made it again: it gets no place there.
    state.remove_pod(&key("w-1"));
    run(&mut state, "w-1", "2", "");
    book.look_at_cells(&mut state);
    assert_eq!(vacated(&book), BTreeMap::from([("g1".to_owned(), 7)]));
    let hold = state.hold_named("r").expect("it is held");
    assert_eq!(hold.place_for(&key("w-1"), "w", Some(1), None), None);
    assert!(hold.place_for(&key("w-0"), "w", Some(0), None).is_some());
    // Until the hub has heard it the cells are kept.
    book.apply(&asked("s", "v", &["w 1 1"], &["0 n2 0"]), &mut state);
    plan(&mut book, &mut state);
    assert!(described(&book, "s").starts_with("Refused"), "{}", described(&book, "s"));
    job.spec.cells.remove(1);
    book.apply(&job, &mut state);
    assert!(vacated(&book).is_empty());
    book.apply(&asked("t", "x", &["w 1 1"], &["0 n2 0"]), &mut state);
    plan(&mut book, &mut state);
    assert!(described(&book, "t").starts_with("Reserved [\"n2\"]"), "{}", described(&book, "t"));
}

#[test]
fn components_without_cells_lie_outside_of_cells_or_beside_their_own() {
    for (nodes, expected) in [
        (&["n1 4", "n2 4"][..], "Reserved [\"n2\", \"n1\"] bad []: cells held for 2 of 2 pods"),
        (&["n1 4"], "Reserved [\"n1\", \"n1\"] bad []: cells held for 2 of 2 pods"),
    ] {
        let (mut book, mut state) = (Book::default(), state(nodes));
        let mut kept = reservation("cell-nodes-1", "", 0, &[]);
        kept.spec.cell_nodes = vec!["n1".into()];
        book.apply(&kept, &mut state);
        plan(&mut book, &mut state);
        let mut job = asked("r", "u", &["launcher 1 0", "w 1 1"], &["0 n1 0"]);
        job.spec.without_cells = vec!["launcher".into()];
        book.apply(&job, &mut state);
        plan(&mut book, &mut state);
        assert_eq!(described(&book, "r"), expected);
        // It stays there when the cells change.
        let before = described(&book, "r");
        job.spec.cells = cells(&["0 n1 1"]);
        book.apply(&job, &mut state);
        assert_eq!(described(&book, "r"), before);
    }
    let (mut book, mut state) = (Book::default(), state(&["n1 4"]));
    let mut kept = reservation("cell-nodes-1", "", 0, &[]);
    kept.spec.cell_nodes = vec!["n1".into()];
    book.apply(&kept, &mut state);
    plan(&mut book, &mut state);
    let mut job = asked("r", "u", &["launcher 1 5", "w 1 1"], &["0 n1 0"]);
    job.spec.without_cells = vec!["launcher".into()];
    book.apply(&job, &mut state);
    plan(&mut book, &mut state);
    assert!(
        described(&book, "r").contains("Refused")
            && described(&book, "r").contains("component launcher takes no cells: "),
        "{}",
        described(&book, "r")
    );
}

#[test]
fn a_pod_without_cells_takes_those_of_no_other() {
    let (mut book, mut state) = (Book::default(), state(&["n1 1", "n2 1"]));
    book.apply(&asked("r", "u", &["w 2 1"], &["0 n1 0"]), &mut state);
    plan(&mut book, &mut state);
    let hold = state.hold_named("r").expect("it is held");
    let place = |pod: &str, index: Option<usize>| {
        hold.place_for(&key(pod), "w", index, None).map(|at| hold.places[at].index)
    };
    assert_eq!((place("w-0", Some(0)), place("w-1", Some(1))), (Some(0), None));
    assert_eq!(place("w-x", None), Some(0), "of pods without an index any");
}

#[test]
fn nodes_of_cells_are_kept_and_the_hub_is_told_which_are_of_no_use() {
    let (mut book, mut state) = (Book::default(), state(&["n1 4", "n2 4"]));
    let mut kept = reservation("cell-nodes-1", "", 0, &[]);
    kept.spec.cell_nodes = vec!["n1".into(), "n9".into()];
    book.apply(&kept, &mut state);
    plan(&mut book, &mut state);
    assert_eq!(described(&book, "cell-nodes-1"), "Reserved [] bad []: 1 of 2 nodes usable");
    let report = report::report(&mut state);
    let named: Vec<&String> = report.cell_node_shapes.iter().flat_map(|shape| &shape.nodes).collect();
    assert_eq!((named, &report.idle_nodes), (vec![&"n1".to_owned()], &vec!["n2".to_owned()]));
    let shapes = report.node_shapes;
    assert_eq!(shapes.iter().map(|shape| shape.count).sum::<i64>(), 1, "no room of the member's");
    book.apply(&reservation("plain", "u", 1, &["w 2 4"]), &mut state);
    book.apply(&asked("r", "v", &["w 1 4"], &["0 n1 0"]), &mut state);
    plan(&mut book, &mut state);
    assert!(described(&book, "plain").starts_with("Refused"), "{}", described(&book, "plain"));
    assert!(described(&book, "r").starts_with("Reserved [\"n1\"]"), "{}", described(&book, "r"));
    state.remove_node("n1");
    book.look_at_cells(&mut state);
    assert_eq!(described(&book, "cell-nodes-1"), "Reserved [] bad []: 0 of 2 nodes usable");
    book.remove("cell-nodes-1", &mut state);
    assert!(!state.is_cell_node("n1"));
}

#[test]
fn no_more_nodes_are_kept_than_the_members_administrator_permits() {
    let labelled = |name: &str, pool: &str| -> LeanNode {
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"pool": pool}},
            "status": {"allocatable": {"nvidia.com/gpu": "4", "pods": "10"},
                "conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .expect("a node")
    };
    let nodes = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let (mut book, mut state) = (Book::default(), state(&["n1 4"]));
    for (name, pool) in [("n2", "cells"), ("n3", "cells"), ("n4", "cells"), ("n5", "own")] {
        state.apply_node(&labelled(name, pool));
    }
    let selector = [("pool".to_owned(), "cells".to_owned())].into();
    state.permit_cell_nodes(CellNodes { selector, max: Some(2) });
    let mut asked = reservation("cell-nodes-1", "", 0, &[]);
    asked.spec.cell_nodes = nodes(&["n1", "n3", "n4", "n5", "n9"]);
    book.apply(&asked, &mut state);
    plan(&mut book, &mut state);
    let rule = "may not be kept for cells; allowed in this member: nodes with pool=cells (--cell-node-selector), \
                at most 2 nodes (--max-cell-nodes)";
    let expected = format!("Reserved [] bad [\"n1\", \"n5\"]: 2 of 5 nodes usable; 2 {rule}");
    assert_eq!(described(&book, "cell-nodes-1"), expected);
    let kept = |state: &MemberState| -> Vec<&str> {
        ["n1", "n2", "n3", "n4", "n5", "n9"].into_iter().filter(|name| state.is_cell_node(name)).collect()
    };
    assert_eq!(kept(&state), ["n3", "n4"]);
    // The bound is of all that the hub asks for together, and what is kept stays.
    let mut more = reservation("cell-nodes-2", "", 0, &[]);
    more.spec.cell_nodes = nodes(&["n2", "n4"]);
    book.apply(&more, &mut state);
    plan(&mut book, &mut state);
    assert_eq!(kept(&state), ["n3", "n4"]);
    assert!(
        described(&book, "cell-nodes-2")
            .starts_with("Reserved [] bad [\"n2\"]: 1 of 2 nodes usable; 1 may not")
    );
    // Another node takes the place of one that goes, and both reservations are told.
    state.remove_node("n3");
    book.look_at_cells(&mut state);
    assert_eq!(kept(&state), ["n2", "n4"]);
    assert_eq!(described(&book, "cell-nodes-2"), "Reserved [] bad []: 2 of 2 nodes usable");
    state.apply_node(&labelled("n3", "cells"));
    book.look_at_cells(&mut state);
    assert_eq!(kept(&state), ["n2", "n4"], "one that comes back is one too many");
    // A node that loses its label is the member's own again.
    state.apply_node(&labelled("n4", "own"));
    book.look_at_cells(&mut state);
    assert_eq!(kept(&state), ["n2", "n3"]);
    let ReservationState::Held(status) = &book.entries["cell-nodes-1"].verdict else { panic!("it stands") };
    assert_eq!(status.not_permitted_nodes, ["n1", "n4", "n5"]);
    // None at all.
    state.permit_cell_nodes(CellNodes { max: Some(0), ..CellNodes::default() });
    book.look_at_cells(&mut state);
    assert_eq!(kept(&state), [""; 0]);
    assert!(described(&book, "cell-nodes-1").contains("0 of 5 nodes usable; 4 may not be kept"));
}

#[test]
fn nodes_for_cells_are_kept_anew_whatever_was_answered_before() {
    for phase in [ReservationPhase::Reserved, ReservationPhase::Refused, ReservationPhase::Expired] {
        let (mut book, mut state) = (Book::default(), state(&["n1 4"]));
        let mut kept = reservation("cell-nodes-1", "", 0, &[]);
        kept.spec.cell_nodes = vec!["n1".to_owned()];
        kept.status = Some(fleet_member_state::testing::status(phase, &[]));
        book.apply(&kept, &mut state);
        plan(&mut book, &mut state);
        assert_eq!(described(&book, "cell-nodes-1"), "Reserved [] bad []: 1 of 1 nodes usable");
        // No gang gets what is kept.
        book.apply(&reservation("r", "u", 1, &["worker 1 1"]), &mut state);
        plan(&mut book, &mut state);
        assert!(described(&book, "r").starts_with("Refused"), "{}", described(&book, "r"));
    }
}

#[test]
fn nodes_kept_for_cells_do_not_lapse_after_a_restart() {
    let (mut book, mut state) = (Book::default(), state(&["n1 4"]));
    let mut kept = reservation("cell-nodes-1", "", 0, &[]);
    kept.spec.cell_nodes = vec!["n1".to_owned()];
    let mut copy = kept.clone();
    copy.status = Some(fleet_member_state::testing::status(ReservationPhase::Reserved, &[]));
    book.recover(&copy, &mut state);
    book.apply(&kept, &mut state);
    for seconds in [0, 3600] {
        book.expire(Timestamp::from_second(seconds).expect("a time"), &mut state);
    }
    assert!(described(&book, "cell-nodes-1").starts_with("Reserved"), "{}", described(&book, "cell-nodes-1"));
    assert_eq!(book.next_deadline(), None);
}
