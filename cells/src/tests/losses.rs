//! Who loses what: bad nodes that hide, promises of the right size, victims within one node, and what a VC is told.

use super::play::{Play, pod};

fn play(types: &str, trees: &[&[&str]], vcs: &str) -> Play {
    let top = if trees[0].len() > 1 { "RACK" } else { "NODE" };
    let mut text = format!("physicalCluster:\n  cellTypes:\n{types}  physicalCells:\n");
    for nodes in trees {
        let children: Vec<String> = nodes.iter().map(|node| format!("{{cellAddress: {node}}}")).collect();
        text += &match nodes {
            [node] => format!("    - {{cellType: {top}, cellAddress: {node}}}\n"),
            _ => format!("    - {{cellType: {top}, cellChildren: [{}]}}\n", children.join(", ")),
        };
    }
    Play::new(&format!("{text}virtualClusters:\n{vcs}"))
}

fn two_racks() -> Play {
    play(
        "    NODE: {childCellType: G, childCellNumber: 4, isNodeLevel: true}\n    RACK: {childCellType: NODE, childCellNumber: 3}\n",
        &[&["n1", "n2", "n3"], &["n4", "n5", "n6"]],
        "  a: {virtualCells: [{cellType: RACK, cellNumber: 1}]}\n  b: {virtualCells: [{cellType: RACK.NODE, cellNumber: 2}]}\n",
    )
}

const HALVES: &str = "    HALF: {childCellType: G, childCellNumber: 2}\n    NODE: {childCellType: HALF, childCellNumber: 2, isNodeLevel: true}\n";
const FLAT: &str = "    NODE: {childCellType: G, childCellNumber: 4, isNodeLevel: true}\n";

#[test]
fn a_bad_node_hides_in_a_cell_that_is_split() {
    for (bad, taken) in [("n1", "n2"), ("n5", "n4")] {
        let mut play = two_racks();
        play.health(bad, false);
        assert_eq!(play.bound("b1", &pod("b", 1, "b1", &[(1, 4)])).0, taken, "{bad}");
        assert_eq!(play.cells.vc_status("a").expect("a VC").cells[0].bad, 0, "{bad}");
        let rack = pod("a", 1, "a1", &[(3, 4)]);
        for name in ["a1", "a2", "a3"] {
            play.bound(name, &rack);
        }
    }
}

#[test]
fn a_group_within_one_cell_takes_the_smallest_promise_that_is_enough() {
    let mut play = play(
        "    NODE: {childCellType: G, childCellNumber: 4, isNodeLevel: true}\n    RACK: {childCellType: NODE, childCellNumber: 2}\n",
        &[&["n1", "n2"], &["n3", "n4"]],
        "  a: {virtualCells: [{cellType: RACK, cellNumber: 1}, {cellType: RACK.NODE, cellNumber: 1}]}\n",
    );
    let mut one = pod("a", 1, "p", &[(1, 3)]);
    one.request.affinity_group.root.within_one_cell = "NODE".into();
    play.bound("p", &one);
    let mut rack = pod("a", 1, "rack", &[(2, 4)]);
    rack.request.affinity_group.root.within_one_cell = "RACK".into();
    play.bound("r1", &rack);
    play.bound("r2", &rack);
}

#[test]
fn within_a_node_the_victims_are_the_fewest_with_the_least_work() {
    let vcs = "  a: {virtualCells: [{cellType: NODE, cellNumber: 1}]}\n  b: {}\n";
    let mut fewest = play(FLAT, &[&["n1"]], vcs);
    for (at, (name, vc, priority, leaves)) in
        [("g1", "a", 1, 1), ("o1", "b", -1, 1), ("o2", "b", -1, 2)].into_iter().enumerate()
    {
        fewest.now_ms = at as i64 * 1_000;
        fewest.bound(name, &pod(vc, priority, name, &[(1, leaves)]));
    }
    fewest.now_ms = 3_000;
    fewest.preempts("a3", &pod("a", 1, "a3", &[(1, 2)]), &["o2"]);

    let mut least = play(FLAT, &[&["n1"]], vcs);
    let old = pod("b", -1, "old", &[(3, 1)]);
    for name in ["old1", "old2", "old3"] {
        least.bound(name, &old);
    }
    least.now_ms = 1_000_000;
    least.bound("new", &pod("b", -1, "new", &[(1, 1)]));
    least.now_ms = 1_001_000;
    least.preempts("a3", &pod("a", 1, "a3", &[(1, 1)]), &["new"]);
}

#[test]
fn of_many_victims_within_a_node_the_cheap_ones_go() {
    let types = "    NODE: {childCellType: G, childCellNumber: 12, isNodeLevel: true}\n";
    let mut play =
        play(types, &[&["n1"]], "  a: {virtualCells: [{cellType: NODE, cellNumber: 1}]}\n  b: {}\n");
    for at in 0..12 {
        play.now_ms = at * 1_000;
        let name = format!("o{at}");
        play.bound(&name, &pod("b", -1, &name, &[(1, 1)]));
    }
    play.preempts("a", &pod("a", 1, "a", &[(1, 2)]), &["o10", "o11"]);
}

#[test]
fn a_pod_takes_the_leaves_of_a_group_that_has_to_go_anyhow() {
    let vcs = "  a: {virtualCells: [{cellType: NODE, cellNumber: 1}]}\n  b: {}\n";
    let mut play = play(FLAT, &[&["n1"]], vcs);
    let wide = pod("b", -1, "wide", &[(2, 1)]);
    play.bound("wide1", &wide);
    play.bound("wide2", &wide);
    play.bound("one", &pod("b", -1, "one", &[(1, 1)]));
    play.bound("two", &pod("b", -1, "two", &[(1, 1)]));
    play.preempts("a1", &pod("a", 1, "a", &[(2, 1)]), &["wide1", "wide2"]);
}

#[test]
fn who_lends_is_who_would_get_the_cell() {
    let mut play = play(
        HALVES,
        &[&["n1"], &["n2"]],
        "  a: {virtualCells: [{cellType: NODE.HALF, cellNumber: 2}]}\n  b: {virtualCells: [{cellType: NODE, cellNumber: 1}]}\n",
    );
    play.bound("h", &pod("a", 1, "h", &[(1, 2)]));
    play.bound("op", &pod("a", -1, "op", &[(1, 4)]));
    let lent = |vc: &str| play.cells.vc_status(vc).expect("a VC").leaves["G"].borrowed_out;
    assert_eq!((lent("a"), lent("b")), (0, 4));
}

#[test]
fn what_a_larger_promise_needs_is_not_there_for_a_smaller_one() {
    let mut play = play(
        HALVES,
        &[&["n1"], &["n2"]],
        "  a: {virtualCells: [{cellType: NODE, cellNumber: 1}, {cellType: NODE.HALF, cellNumber: 2}]}\n",
    );
    play.health("n1", false);
    let status = play.cells.vc_status("a").expect("a VC");
    let bad: Vec<(&str, u64)> = status.cells.iter().map(|row| (row.cell_type.as_str(), row.bad)).collect();
    assert_eq!((bad, status.leaves["G"].bad), (vec![("HALF", 2), ("NODE", 0)], 4));
}

#[test]
fn of_two_nodes_with_the_same_victims_the_one_without_others_goes() {
    let vcs = "  a: {virtualCells: [{cellType: NODE, cellNumber: 2}]}\n  b: {}\n";
    let mut play = play(FLAT, &[&["n1"], &["n2"]], vcs);
    let low = pod("a", 0, "low", &[(2, 3)]);
    play.bound("low1", &low);
    play.bound("low2", &low);
    // The first of the two free devices.
    assert_eq!(play.bound("guest", &pod("b", -1, "guest", &[(1, 1)])).0, "n1");
    play.preempts("high", &pod("a", 1, "high", &[(1, 4)]), &["low1", "low2"]);
}
