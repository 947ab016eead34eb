//! The lab's two configurations, unchanged, and the part of its experiments that cells decide.

use super::play::{Play, pod};
use crate::{Cells, GroupState, Unreported};

const TWO: &str = include_str!("../../testdata/two-virtual-clusters.yaml");
const ONE: &str = include_str!("../../testdata/one-virtual-cluster.yaml");
const PROD: i32 = 100;
const TEST: i32 = 10;
const OPPO: i32 = -1;

#[test]
fn guaranteed_jobs_never_borrow() {
    let mut play = Play::new(TWO);
    let job = |user: &str| pod("vc1", PROD, &format!("{user}~job-0/default"), &[(1, 1)]);
    play.binds("alice", &job("alice"), "hostname-dan", [0]);
    for user in ["bob", "carol", "dan"] {
        play.waits(
            user,
            &job(user),
            "insufficient capacity in VC vc1: 1 cells of type GPU-D asked for, 0 free",
        );
    }
    play.delete("alice");
    play.binds("bob", &job("bob"), "hostname-dan", [0]);
}

#[test]
fn a_higher_class_preempts_at_once() {
    let mut play = Play::new(TWO);
    play.binds("job-1", &pod("vc1", TEST, "job-1", &[(1, 1)]), "hostname-dan", [0]);
    let job2 = pod("vc1", PROD, "job-2", &[(1, 1)]);
    play.preempts("job-2", &job2, &["job-1"]);
    play.delete("job-1");
    play.binds("job-2", &job2, "hostname-dan", [0]);
    play.waits("job-1", &pod("vc1", TEST, "job-1", &[(1, 1)]), "insufficient capacity in VC vc1");
    play.delete("job-2");
    play.binds("job-1", &pod("vc1", TEST, "job-1", &[(1, 1)]), "hostname-dan", [0]);
}

#[test]
fn opportunistic_jobs_use_what_others_leave_idle() {
    let mut play = Play::new(TWO);
    play.binds("job-3", &pod("vc1", PROD, "job-3", &[(1, 1)]), "hostname-dan", [0]);
    let job4 = pod("vc1", OPPO, "job-4", &[(1, 1)]);
    play.binds("job-4", &job4, "hostname-carol", [0]);
    let own = pod("default", TEST, "own", &[(1, 1)]);
    play.preempts("own", &own, &["job-4"]);
    play.delete("job-4");
    play.binds("own", &own, "hostname-carol", [0]);
    play.waits("job-4", &job4, "insufficient capacity in the physical cluster");
    play.delete("job-3");
    play.binds("job-4", &job4, "hostname-dan", [0]);
}

#[test]
fn a_gang_holds_nothing_until_it_has_all() {
    let mut play = Play::new(ONE);
    play.binds("job-5", &pod("default", PROD, "job-5", &[(1, 1)]), "hostname-carol", [0]);
    let gang = pod("default", PROD, "job-6", &[(2, 1)]);
    play.waits(
        "job-6/0",
        &gang,
        "insufficient capacity in VC default: 2 cells of type GPU asked for, 1 free",
    );
    play.waits("job-6/1", &gang, "insufficient capacity");
    // Nothing is held: a later job of one cell goes by.
    play.binds("late", &pod("default", PROD, "late", &[(1, 1)]), "hostname-dan", [0]);
    play.delete("late");
    play.delete("job-5");
    play.binds("job-6/0", &gang, "hostname-carol", [0]);
    play.binds("job-6/1", &gang, "hostname-dan", [0]);
}

#[test]
fn incremental_pods_start_one_by_one() {
    let mut play = Play::new(ONE);
    play.binds("job-5", &pod("default", PROD, "job-5", &[(1, 1)]), "hostname-carol", [0]);
    play.binds("job-7/0", &pod("default", PROD, "job-7/0", &[(1, 1)]), "hostname-dan", [0]);
    play.waits("job-7/1", &pod("default", PROD, "job-7/1", &[(1, 1)]), "insufficient capacity");
    play.delete("job-5");
    play.binds("job-7/1", &pod("default", PROD, "job-7/1", &[(1, 1)]), "hostname-carol", [0]);
}

#[test]
fn what_can_never_run_is_refused_at_submission() {
    let mut play = Play::new(ONE);
    let gang = pod("default", PROD, "wide", &[(4, 1)]);
    let refusal = play.cells.admit(&gang.request).expect_err("over the VC");
    assert_eq!(
        refusal.to_string(),
        "group wide can never run: it asks for 4 cells of type GPU, VC default has at most 2"
    );
    // Over what runs now is no reason; neither is quota for opportunistic groups.
    play.binds("job-5", &pod("default", PROD, "job-5", &[(2, 1)]), "hostname-carol", [0]);
    assert_eq!(play.cells.admit(&pod("default", PROD, "later", &[(2, 1)]).request), Ok(()));
    let two = pod("default", OPPO, "two", &[(1, 2)]);
    let refusal = play.cells.admit(&two.request).expect_err("over the node");
    assert!(refusal.to_string().contains("one node (GPU-NODE) has 1"), "{refusal}");
}

#[test]
fn cells_that_do_not_combine_are_named() {
    let four_gpus = "
physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 8, isNodeLevel: true}
  physicalCells: [{cellType: NODE, cellAddress: n1}]
virtualClusters:
  vc: {virtualCells: [{cellType: NODE.GPU, cellNumber: 4}]}
";
    let mut play = Play::new(four_gpus);
    let refusal = play.cells.admit(&pod("vc", 1, "pair", &[(1, 2)]).request).expect_err("single cells");
    assert_eq!(
        refusal.to_string(),
        "group pair can never run: a pod asks for 2 cells of type GPU; VC vc has 4, but they do not combine: the \
         largest cell it was promised has 1"
    );
    assert_eq!(play.cells.admit(&pod("vc", 1, "four", &[(4, 1)]).request), Ok(()));
    let mut play = Play::new(
        &four_gpus.replace("{cellType: NODE.GPU, cellNumber: 4}", "{cellType: NODE, cellNumber: 1}"),
    );
    let refusal = play.cells.admit(&pod("vc", 1, "five", &[(2, 5), (1, 1)]).request).expect_err("no room");
    assert!(refusal.to_string().contains("11 cells of type GPU, VC vc has at most 8"), "{refusal}");
    let refusal = play.cells.admit(&pod("vc", 1, "nine", &[(1, 9)]).request).expect_err("no node");
    assert!(refusal.to_string().contains("9 cells of type GPU, VC vc has at most 8"), "{refusal}");
}

#[test]
fn a_finished_pod_of_a_gang_keeps_its_cell_unless_release_is_incremental() {
    let mut play = Play::new(ONE);
    let mut gang = pod("default", PROD, "gang", &[(2, 1)]);
    play.binds("gang/0", &gang, "hostname-carol", [0]);
    play.binds("gang/1", &gang, "hostname-dan", [0]);
    play.delete("gang/0");
    let other = pod("default", PROD, "other", &[(1, 1)]);
    play.waits("other", &other, "insufficient capacity");
    play.delete("gang/1");
    assert_eq!(play.state("gang"), None);
    gang.request.gang_release_enable = false;
    play.binds("gang/0", &gang, "hostname-carol", [0]);
    play.binds("gang/1", &gang, "hostname-dan", [0]);
    play.delete("gang/0");
    play.binds("other", &other, "hostname-carol", [0]);
    assert_eq!(play.state("gang"), Some(GroupState::Allocated));
    play.delete("gang/1");
    assert_eq!(play.state("gang"), None);
}

#[test]
fn nodes_that_nobody_reported_are_not_used() {
    let config = super::play::read(ONE);
    let mut cells = Cells::new(config, Unreported::Bad).expect("the lab's configuration");
    let request = pod("default", PROD, "job", &[(1, 1)]).request;
    match cells.schedule(&request, &crate::Ask::default()) {
        crate::Decision::Wait(reason) => assert_eq!(reason.code(), "BadNode"),
        other => panic!("{other:?}"),
    }
    assert!(cells.set_node_health(&crate::NodeName::new("", "hostname-dan"), true));
    assert!(!cells.set_node_health(&crate::NodeName::new("", "hostname-bob"), true));
    match cells.schedule(&request, &crate::Ask::default()) {
        crate::Decision::Place(proposal) => assert_eq!(proposal.placement.pods[0].node, "hostname-dan"),
        other => panic!("{other:?}"),
    }
}
