//! Demonstrations beyond HiveD's: what Fleet's allocator adds to its rules.

use std::collections::BTreeSet;

use super::{
    demos::{Chain, K80, PROD, TEST, config, job},
    play::{Play, Pod},
};
use crate::{Ask, Decision, GroupRequest, GroupState, Member, NodeName, PodGroup, Proposal};

#[test]
fn a_victim_that_can_move_aside_goes_before_one_that_loses_work() {
    let own = config(
        &[Chain("K80-NODE-POOL", "K80", &["18", "19", "23"])],
        &[("vc1", &[(K80, 2)], &[]), ("default", &[(K80, 1)], &[])],
    );
    for within in ["", "K80-NODE"] {
        let mut play = Play::new(&own);
        play.bound("lazy", &job("vc1", TEST, "lazy", 1, 4, "K80").lazy());
        play.now_ms = 50_000;
        play.bound("eager", &job("vc1", TEST, "eager", 1, 4, "K80"));
        play.now_ms = 60_000;
        let mut first = job("vc1", PROD, "first", 1, 4, "K80");
        first.request.affinity_group.root.within_one_cell = within.to_string();
        assert_eq!(play.bound("first", &first).0, "10.151.41.23", "{within}");
        assert_eq!(play.state("eager"), Some(GroupState::Allocated));
        // Now only one of its own is left to evict.
        play.preempts("second", &job("vc1", PROD, "second", 1, 4, "K80"), &["eager"]);
    }
}

#[test]
fn a_vc_decides_as_it_would_alone_whatever_cells_it_got() {
    // `vc1` gets nodes out of the order of the file, because `default` had the first one for a while.
    let shared = config(
        &[Chain("K80-NODE-POOL", "K80", &["18", "19", "23"])],
        &[("default", &[(K80, 1)], &[]), ("vc1", &[(K80, 2)], &[])],
    );
    let alone = config(&[Chain("K80-NODE-POOL", "K80", &["18", "19"])], &[("vc1", &[(K80, 2)], &[])]);
    let promises = |shared: bool, text: &str| -> Vec<String> {
        let mut play = Play::new(text);
        if shared {
            play.bound("other", &job("default", TEST, "other", 1, 4, "K80"));
        }
        play.bound("a", &job("vc1", TEST, "a", 1, 3, "K80"));
        if shared {
            play.delete("other");
        }
        play.bound("b", &job("vc1", TEST, "b", 1, 3, "K80"));
        // One device is free on either node: the promise that comes first in the VC is taken.
        play.bound("c", &job("vc1", TEST, "c", 1, 1, "K80"));
        let slot = |name: &&str| {
            let node = play.cells.group(name).expect("it runs").placement.pods[0].node.clone();
            let bound = play.cells.bindings().find(|(_, cell)| cell.ends_with(&node));
            bound.map(|(slot, _)| slot).unwrap_or_default()
        };
        ["a", "b", "c"].iter().map(slot).collect()
    };
    assert_eq!(promises(true, &shared), ["vc1/0", "vc1/1", "vc1/0"]);
    assert_eq!(promises(false, &alone), ["vc1/0", "vc1/1", "vc1/0"]);
}

#[test]
fn of_a_promised_pair_only_the_leaves_of_its_bad_node_are_bad() {
    let text = config(
        &[Chain("2-K80-NODE", "K80", &["18", "19"]), Chain("K80-NODE-POOL", "K80", &["23"])],
        &[("vc1", &[("2-K80-NODE", 1)], &[])],
    );
    let mut play = Play::new(&text);
    play.health("10.151.41.19", false);
    let status = play.cells.vc_status("vc1").expect("a VC");
    assert_eq!((status.cells[0].bad, status.leaves["K80"].bad), (1, 4));
    play.health("10.151.41.18", false);
    assert_eq!(play.cells.vc_status("vc1").expect("a VC").leaves["K80"].bad, 8);
}

#[test]
fn refusals_name_pins_and_chains() {
    let text = config(
        &[Chain("2-K80-NODE", "K80", &["18!pin", "19"]), Chain("3-K80-NODE", "K80", &["23", "24", "25"])],
        &[
            ("pins", &[], &["pin"]),
            ("both", &[("2-K80-NODE.K80-NODE", 1), ("3-K80-NODE.K80-NODE", 2)], &[]),
            ("none", &[], &[]),
        ],
    );
    let mut play = Play::new(&text);
    let mut never = |pod: &Pod| play.cells.admit(&pod.request).expect_err("never").to_string();
    let pins = never(&job("pins", PROD, "a", 1, 1, ""));
    assert!(pins.ends_with("its jobs name one of its pinned cells: pin"), "{pins}");
    let none = never(&job("none", PROD, "a", 1, 1, ""));
    assert!(none.ends_with("it was promised none"), "{none}");
    let all = never(&job("both", PROD, "a", 3, 4, ""));
    let most = "it asks for 12 cells of type K80, VC both has at most 8 in one chain, 12 in all";
    assert!(all.ends_with(most), "{all}");
    let pin = never(&job("both", PROD, "a", 1, 1, "").pin("pin"));
    assert!(pin.ends_with("allowed in VC both: none"), "{pin}");
}

/// Two nodes in either of two members. Each VC was promised a node and a device of another.
const TWO_MEMBERS: &str = "
physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 2, isNodeLevel: true}
  physicalCells:
    - {cellType: NODE, cluster: east, cellAddress: e1}
    - {cellType: NODE, cluster: east, cellAddress: e2}
    - {cellType: NODE, cluster: west, cellAddress: w1}
    - {cellType: NODE, cluster: west, cellAddress: w2}
virtualClusters:
  a: {virtualCells: [{cellType: NODE, cellNumber: 1}, {cellType: NODE.GPU, cellNumber: 1}]}
  b: {virtualCells: [{cellType: NODE, cellNumber: 1}, {cellType: NODE.GPU, cellNumber: 1}]}
";

/// What is decided if the group may run in the east only, not on the excluded node; committed.
fn in_the_east(play: &mut Play, request: &GroupRequest, excluded: Option<&str>) -> Decision {
    let east = ["east".to_string()];
    let excluded: BTreeSet<NodeName> = excluded.iter().map(|node| NodeName::new("east", node)).collect();
    let ask = Ask { clusters: Some(&east), excluded: Some(&excluded), ..Ask::default() };
    let decision = play.cells.schedule(request, &ask);
    if let Decision::Place(proposal) | Decision::Preempt(proposal) = &decision {
        play.cells.commit(proposal).expect("nothing changed");
    }
    play.audit();
    decision
}

fn places(proposal: &Proposal) -> Vec<(&str, &[i32], &str)> {
    let pods = proposal.placement.pods.iter();
    pods.map(|pod| (pod.node.as_str(), pod.leaf_cells.as_slice(), pod.preassigned_cell_type.as_str()))
        .collect()
}

#[test]
fn a_gang_takes_few_cells_of_a_member_when_it_would_wait_otherwise() {
    let mut play = Play::new(TWO_MEMBERS);
    assert!(in_the_east(&mut play, &GroupRequest::new("other", "b", TEST, 1, 2), None).is_place());
    // The promised device and the promised node would take two nodes; one is free in the east.
    let pair = GroupRequest::new("pair", "a", TEST, 2, 1);
    match in_the_east(&mut play, &pair, None) {
        Decision::Place(proposal) => {
            assert_eq!(places(&proposal), [("e2", &[0][..], "NODE"), ("e2", &[1][..], "NODE")]);
        }
        other => panic!("{other:?}"),
    }
    // Where there is room the smallest promise comes first.
    play.cells.release("other");
    play.cells.release("pair");
    match in_the_east(&mut play, &pair, None) {
        Decision::Place(proposal) => {
            assert_eq!(places(&proposal), [("e1", &[0][..], "GPU"), ("e2", &[0][..], "NODE")]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn borrowers_are_evicted_when_a_gang_would_wait_otherwise() {
    let mut play = Play::new(TWO_MEMBERS);
    assert!(in_the_east(&mut play, &GroupRequest::new("other", "b", TEST, 1, 1), None).is_place());
    assert!(in_the_east(&mut play, &GroupRequest::new("lent", "b", -1, 1, 1), Some("e2")).is_place());
    // To spare the borrower, the first pod would go to the node that the other pod needs whole.
    let mut family = GroupRequest::new("family", "a", TEST, 1, 1);
    let member = Member { pod_number: 1, leaf_cell_number: 2, ..Member::default() };
    family.affinity_group.root.child_groups = vec![PodGroup { members: vec![member], ..PodGroup::default() }];
    match in_the_east(&mut play, &family, None) {
        Decision::Preempt(proposal) => {
            assert_eq!(places(&proposal), [("e1", &[1][..], "GPU"), ("e2", &[0, 1][..], "NODE")]);
            assert_eq!(
                proposal.victims.iter().map(|victim| victim.group.as_str()).collect::<Vec<_>>(),
                ["lent"]
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_member_with_one_node_can_hold_a_pair() {
    let text = TWO_MEMBERS.replace("    - {cellType: NODE, cluster: east, cellAddress: e2}\n", "").replace(
        "  b: {virtualCells: [{cellType: NODE, cellNumber: 1}, {cellType: NODE.GPU, cellNumber: 1}]}",
        "  b: {virtualCells: [{cellType: NODE.GPU, cellNumber: 1}]}",
    );
    let mut play = Play::new(&text);
    assert!(play.cells.could_hold(&GroupRequest::new("pair", "a", TEST, 2, 1), "east"));
    assert!(!play.cells.could_hold(&GroupRequest::new("three", "a", TEST, 3, 1), "east"));
    assert!(play.cells.could_hold(&GroupRequest::new("three", "a", TEST, 3, 1), "west"));
}

#[test]
fn the_reason_names_a_chain_that_could_hold_the_gang() {
    let text = config(
        &[Chain("2-K80-NODE", "K80", &["18", "19"]), Chain("M60-NODE-POOL", "M60", &["26"])],
        &[("both", &[("2-K80-NODE", 1), ("M60-NODE-POOL", 1)], &[])],
    );
    let mut play = Play::new(&text);
    play.bound("k", &job("both", TEST, "k", 1, 4, "K80"));
    play.bound("k2", &job("both", TEST, "k2", 1, 4, "K80"));
    play.waits("wide", &job("both", TEST, "wide", 2, 4, ""), "8 cells of type K80 asked for, 0 free");
}
