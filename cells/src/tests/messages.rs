//! What reasons and differences name.

use std::collections::BTreeSet;

use super::{
    demos::{Chain, K80, PROD, config, job},
    play::{Play, pod, read},
};
use crate::{Ask, Decision, NodeName, Unreported};

const M60: &str = "M60-NODE-POOL.M60-NODE";

fn two_kinds() -> Play {
    Play::new(&config(
        &[Chain("K80-NODE-POOL", "K80", &["18", "19"]), Chain("M60-NODE-POOL", "M60", &["22"])],
        &[("both", &[(K80, 1), (M60, 1)], &[]), ("one", &[(K80, 1)], &[])],
    ))
}

#[test]
fn a_group_that_no_chain_can_hold_is_told_with_its_types() {
    let mut play = two_kinds();
    let mut told = |vc: &str, of: &str, types: [&str; 2]| {
        let mut gang = pod(vc, PROD, "g", &[(1, 1), (1, 1)]).of(of);
        for (member, kind) in gang.request.affinity_group.root.members.iter_mut().zip(types) {
            member.cell_type = kind.to_string();
        }
        play.cells.admit(&gang.request).expect_err("never").to_string()
    };
    assert_eq!(
        told("both", "", ["K80", "M60"]),
        "group g can never run: it asks for cells of the types K80 and M60, which no chain of VC both has together, \
         and all pods of a group are in one chain; allowed: a group for each"
    );
    assert_eq!(
        told("one", "", ["K80", "M60-NODE"]),
        "group g can never run: it asks for cells of type M60-NODE, of which VC one has none; allowed: K80, \
         K80-2GPU, K80-NODE, K80-NODE-POOL"
    );
    assert_eq!(
        told("one", "M60", ["", ""]),
        "leafCellType: found M60, of which VC one has none; allowed: K80"
    );
}

#[test]
fn a_group_whose_cells_are_in_other_members_is_told_where() {
    let mut config =
        read(&config(&[Chain("K80-NODE-POOL", "K80", &["18", "19"])], &[("vc", &[(K80, 2)], &[])]));
    config.physical_cluster.physical_cells[0].cluster = "east".to_string();
    let mut play = Play::of(config);
    let west = ["west".to_string()];
    for (clusters, where_to) in [(&west[..], "west"), (&[], "no cluster now")] {
        let ask = Ask { clusters: Some(clusters), ..Ask::default() };
        let Decision::Wait(reason) = play.cells.schedule(&job("vc", PROD, "g", 1, 1, "K80").request, &ask)
        else {
            panic!("it has no cells in {where_to}")
        };
        let wanted =
            format!("insufficient capacity in VC vc: its cells are in east; it may run in {where_to}");
        assert_eq!(reason.to_string(), wanted);
    }
}

#[test]
fn a_bad_node_that_its_member_does_not_have_is_told_as_such() {
    let mut play = two_kinds();
    for node in ["18", "19"] {
        play.health(&format!("10.151.41.{node}"), false);
    }
    let gang = job("one", PROD, "g", 1, 4, "K80");
    play.waits("g", &gang, "with bad node 10.151.41.18");
    let absent = BTreeSet::from([NodeName::new("", "10.151.41.18")]);
    assert!(play.cells.set_absent_nodes(absent.clone()) && !play.cells.set_absent_nodes(absent));
    play.waits(
        "g",
        &gang,
        "only possible in VC one with bad node 10.151.41.18, which its cluster does not have",
    );
    // It stays known over another configuration.
    let same = play.cells.config().clone();
    play.cells.reconfigure(same, Unreported::Good, 1).expect("a configuration");
    play.waits("g", &gang, "10.151.41.18, which its cluster does not have");
}

#[test]
fn a_difference_names_pinned_cells_apart() {
    let of = |nodes: &'static [&'static str], cells: &[(&str, i64)], pins: &[&str]| {
        config(&[Chain("K80-NODE-POOL", "K80", nodes)], &[("vc", cells, pins)])
    };
    let play = Play::new(&of(&["18", "19"], &[(K80, 1)], &[]));
    let pinned = read(&of(&["18!pin", "19"], &[], &["pin"]));
    let difference = play.cells.preview(pinned, Unreported::Good, 1).expect("a configuration");
    let told: Vec<(&str, &str, u64, u64)> = difference
        .promises
        .iter()
        .map(|change| {
            (change.cell_type.as_str(), change.pinned_cell_id.as_str(), change.before, change.after)
        })
        .collect();
    assert_eq!(told, [("K80-NODE", "", 1, 0), ("K80-NODE", "pin", 0, 1)]);
}
