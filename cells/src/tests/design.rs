//! HiveD's design example: the published sequences, with ties asserted as properties.

use super::play::{Play, Pod, design, errors, nodes, pod, read};
use crate::{CellStatus, GroupState, NodeName};

const X: &str = "VC1-YQW-DGX2";
const V: &str = "DGX2-V100";
const Q: &str = "DGX1-P100";

fn all(count: i32) -> std::ops::Range<i32> {
    0..count
}

/// A cell and all below it, in the order of the tree.
fn cells_of(cell: &CellStatus) -> Vec<&CellStatus> {
    let below = cell.cell_children.iter().flat_map(cells_of);
    std::iter::once(cell).chain(below).collect()
}

/// A cell's own part of its address.
fn own_address(cell: &CellStatus) -> &str {
    cell.cell_address.rsplit('/').next().unwrap_or_default()
}

fn nodes_in(cell: &CellStatus) -> Vec<&str> {
    cells_of(cell).into_iter().filter(|cell| cell.is_node_level).map(own_address).collect()
}

#[test]
fn the_design_cluster_has_the_published_cells() {
    let play = design();
    let trees = play.cells.physical_cells();
    let nodes: Vec<(&str, Vec<&str>)> =
        trees.iter().map(|tree| (tree.cell_type.as_str(), nodes_in(tree))).collect();
    assert_eq!(
        nodes,
        [
            ("CT1-NODE", vec!["0.0.0.0"]),
            ("CT1-NODE", vec!["0.0.0.1"]),
            ("CT1-NODE", vec!["1.0.0.2"]),
            ("3-DGX1-P100-NODE", vec!["1.0.0.2", "1.0.0.1", "1.0.0.0"]),
            ("DGX2-V100-NODE", vec!["0.0.1.0"]),
            ("DGX2-V100-NODE", vec!["0.0.5.0"]),
            ("3-DGX2-V100-NODE", vec!["0.0.2.0", "0.0.2.1", "0.0.2.2"]),
            ("4-DGX2-V100-NODE", vec!["0.0.3.0", "0.0.3.1", "0.0.3.2", "0.0.3.3"]),
            ("4-DGX2-V100-NODE", vec!["0.0.4.0", "0.0.4.1", "0.0.4.2", "0.0.4.3"]),
            ("2-IB-DGX2-V100-NODE", vec!["0.1.0.0", "0.1.0.1"]),
        ]
    );
    let devices = |tree: usize, node: &str| -> Vec<i32> {
        let cells = cells_of(&trees[tree]);
        let node = cells.into_iter().find(|cell| cell.is_node_level && own_address(cell) == node);
        let leaves = node.map(cells_of).unwrap_or_default().into_iter();
        let leaves = leaves.filter(|cell| cell.cell_children.is_empty());
        leaves.map(|leaf| own_address(leaf).parse().expect("the number of a device")).collect()
    };
    assert_eq!(devices(0, "0.0.0.0"), [0, 1]);
    assert_eq!(devices(2, "1.0.0.2"), [8, 9]);
    assert_eq!(devices(3, "1.0.0.2"), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(devices(3, "1.0.0.1"), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(devices(3, "1.0.0.0"), [1, 3, 4, 7, 0, 2, 6, 5]);
    for (tree, node) in [(4, "0.0.1.0"), (6, "0.0.2.2"), (8, "0.0.4.3"), (9, "0.1.0.1")] {
        assert_eq!(devices(tree, node), all(16).collect::<Vec<i32>>(), "{node}");
    }
    let pinned = trees.iter().flat_map(cells_of).filter(|cell| !cell.pinned_cell_id.is_empty());
    let pins: Vec<(&str, &str, Vec<&str>)> = pinned
        .map(|cell| (cell.pinned_cell_id.as_str(), cell.virtual_cell.as_str(), nodes_in(cell)))
        .collect();
    assert_eq!(
        pins,
        [
            // One device, which lies below its node.
            ("VC1-YQW-CT1", "VC1/7", vec![]),
            (X, "VC1/8", vec!["0.0.3.0", "0.0.3.1"]),
            ("VC1-YQW-IB-DGX2", "VC1/9", vec!["0.1.0.0", "0.1.0.1"]),
        ]
    );
}

#[test]
fn the_design_cluster_makes_the_published_promises() {
    let play = design();
    let check = |vc: &str, addresses: &[(usize, &str)], chains: &[(&str, &str, u64)]| {
        let cells = play.cells.virtual_cells(vc).expect("a VC");
        let found: Vec<(&str, &str)> =
            cells.iter().map(|cell| (cell.cell_address.as_str(), cell.cell_type.as_str())).collect();
        let types = addresses.iter().flat_map(|(number, kind)| std::iter::repeat_n(*kind, *number));
        let wanted: Vec<(String, &str)> =
            types.enumerate().map(|(index, kind)| (format!("{vc}/{index}"), kind)).collect();
        let wanted: Vec<(&str, &str)> =
            wanted.iter().map(|(address, kind)| (address.as_str(), *kind)).collect();
        assert_eq!(found, wanted);
        let status = play.cells.vc_status(vc).expect("a VC");
        let rows = status.cells.iter();
        let rows: Vec<(&str, &str, u64)> =
            rows.map(|row| (row.chain.as_str(), row.cell_type.as_str(), row.guaranteed)).collect();
        assert_eq!(rows, chains);
    };
    let (node, pair) = ("DGX2-V100-NODE", "2-DGX2-V100-NODE");
    check(
        "VC1",
        &[(6, node), (1, pair), (1, "CT1"), (1, pair), (1, "2-IB-DGX2-V100-NODE")],
        &[
            ("2-IB-DGX2-V100-NODE", "2-IB-DGX2-V100-NODE", 1),
            ("3-DGX2-V100-NODE", node, 2),
            ("4-DGX2-V100-NODE", node, 2),
            ("4-DGX2-V100-NODE", pair, 2),
            ("CT1-NODE", "CT1", 1),
            (node, node, 2),
        ],
    );
    check(
        "VC2",
        &[(2, "DGX1-P100-NODE"), (2, "DGX1-P100-CPU-SOCKET"), (1, "CT1-NODE")],
        &[
            ("3-DGX1-P100-NODE", "DGX1-P100-CPU-SOCKET", 2),
            ("3-DGX1-P100-NODE", "DGX1-P100-NODE", 2),
            ("CT1-NODE", "CT1-NODE", 1),
        ],
    );
}

/// The sequence up to the preemption in the pinned cell; names of pods in order of their binding.
fn normal_sequence() -> (Play, Vec<&'static str>) {
    let mut play = design();
    // Either node of the chain of single nodes will do; the rest follows from the choice.
    let (node, first) = play.bound("pod1", &pod("VC1", 0, "g1", &[(1, 1)]).of(V).lazy());
    let other = match node.as_str() {
        "0.0.1.0" => "0.0.5.0",
        "0.0.5.0" => "0.0.1.0",
        elsewhere => panic!("{elsewhere} is no single node"),
    };
    assert_eq!(first.len(), 1);
    let (buddy, half) = (first[0] ^ 1, 8 - first[0] / 8 * 8);
    play.binds("pod2", &pod("VC1", 1, "g2", &[(1, 1)]).of(V).lazy(), &node, [buddy]);
    play.binds("pod3", &pod("VC1", 2, "g3", &[(1, 8)]).of(V).lazy(), &node, half..half + 8);
    play.binds("pod4", &pod("VC1", -1, "g4", &[(1, 1)]).of(V).lazy(), other, [0]);
    let g5 = pod("VC1", 1, "g5", &[(2, 16)]).of(V).pin(X).lazy();
    let mut pair = vec![play.bound("pod5", &g5), play.bound("pod6", &g5)];
    pair.sort();
    let whole: Vec<i32> = all(16).collect();
    assert_eq!(pair, [("0.0.3.0".into(), whole.clone()), ("0.0.3.1".into(), whole)]);
    play.waits("pod7", &pod("VC2", 1, "g7", &[(3, 8)]).of(Q).lazy(), "insufficient capacity in VC VC2");
    let (node8, leaves8) = play.bound("pod8", &pod("VC2", 1, "g9", &[(1, 7), (1, 5)]).lazy());
    let (node9, leaves9) = play.bound("pod9", &pod("VC2", 1, "g9", &[(1, 7), (1, 5)]).lazy().size(5));
    assert_ne!(node8, node9);
    // The first ones in the order of the tree: of the irregular node these are others.
    let in_order = |node: &str| -> Vec<i32> {
        match node {
            "1.0.0.0" => vec![1, 3, 4, 7, 0, 2, 6, 5],
            "1.0.0.1" | "1.0.0.2" => all(8).collect(),
            other => panic!("{other} is no node of the chain"),
        }
    };
    assert_eq!((&leaves8[..], &leaves9[..]), (&in_order(&node8)[..7], &in_order(&node9)[..5]));
    (play, vec!["pod1", "pod2", "pod3", "pod4", "pod5", "pod6", "pod8", "pod9"])
}

#[test]
fn the_normal_sequence_places_packs_and_preempts() {
    let (mut play, _) = normal_sequence();
    let g11 = pod("VC1", 2, "g11", &[(2, 16)]).of(V).pin(X).lazy();
    play.preempts("pod16", &g11, &["pod5", "pod6"]);
    play.preempts("pod17", &g11, &["pod5", "pod6"]);
    assert_eq!(play.state("g11"), Some(GroupState::Preempting));
    assert_eq!(play.state("g5"), Some(GroupState::BeingPreempted));
    let lazy = play.cells.group("g5").and_then(|group| group.lazy_preemption_status);
    assert_eq!(lazy.map(|lazy| lazy.preemptor), Some("g11".to_string()));
}

#[test]
fn leaves_of_an_irregular_node_come_in_the_order_of_its_tree() {
    let mut play = design();
    play.suggested = Some(nodes(&["1.0.0.0"]));
    play.binds("a", &pod("VC2", 1, "a", &[(1, 7)]).of(Q), "1.0.0.0", [1, 3, 4, 7, 0, 2, 6]);
}

#[test]
fn user_errors_change_nothing() {
    let (mut play, _) = normal_sequence();
    let state = |play: &Play| (play.cells.generation(), play.cells.groups(), play.cells.physical_cells());
    let before = state(&play);
    play.refused("pod10", &pod("VC2", 1, "g6", &[(1, 1)]).of(V), "of which VC VC2 has none");
    for name in ["pod11", "pod12"] {
        play.refused(name, &pod("VC2", 1, "g8", &[(1, 8)]).of(Q).size(2), "allowed in group g8: 8");
    }
    play.refused("a", &pod("VC1", -2, "a", &[(1, 1)]), "priority: found -2");
    play.refused("a", &pod("VC1", 1001, "a", &[(1, 1)]), "priority: found 1001");
    play.refused("a", &pod("VC1", 1, "a", &[(0, 1)]), "podNumber: found 0");
    play.refused("a", &pod("VC1", 1, "a", &[(1, 0)]), "leafCellNumber: found 0");
    play.refused("a", &pod("VC1", 1, "", &[(1, 1)]), "affinityGroup.name");
    play.refused("a", &pod("", 1, "a", &[(1, 1)]), "virtualCluster: found nothing");
    play.refused("a", &pod("VC9", 1, "a", &[(1, 1)]), "virtualCluster: found VC9; allowed: VC1, VC2");
    play.refused("a", &pod("VC2", 1, "a", &[(1, 1)]).pin(X), "pinnedCellId");
    play.refused("a", &pod("VC1", -1, "a", &[(1, 1)]).pin(X), "opportunistic");
    play.refused("a", &pod("VC1", 1, "a", &[(1, 1)]).of("H100"), "leafCellType: found H100");
    play.refused("pod18", &pod("VC1", 0, "g1", &[(1, 1)]).of(V), "1 pods of 1 leaf cells");
    assert_eq!(state(&play), before);
}

#[test]
fn a_pod_that_was_bound_is_told_of_its_place_again() {
    let (mut play, _) = normal_sequence();
    let place = play.cells.placement("g1").expect("it runs").pods[0].clone();
    play.binds("pod1", &pod("VC1", 0, "g1", &[(1, 1)]).of(V).lazy(), &place.node, place.leaf_cells);
}

#[test]
fn deletion_leaves_no_group() {
    let (mut play, bound) = normal_sequence();
    let g11 = pod("VC1", 2, "g11", &[(2, 16)]).of(V).pin(X).lazy();
    play.preempts("pod16", &g11, &["pod5", "pod6"]);
    play.preempts("pod17", &g11, &["pod5", "pod6"]);
    for name in bound.into_iter().rev() {
        play.delete(name);
    }
    assert_eq!(play.state("g11"), Some(GroupState::Preempting));
    play.delete("pod16");
    assert_eq!(play.state("g11"), Some(GroupState::Preempting));
    play.delete("pod17");
    assert_eq!(play.cells.groups(), []);
}

#[test]
fn suggested_nodes_are_heeded() {
    let mut play = design();
    play.suggested = Some(nodes(&["0.0.1.0"]));
    play.binds("pod36", &pod("VC1", -1, "g1", &[(1, 1)]).lazy(), "0.0.1.0", [0]);
    play.delete("pod36");
    play.suggested = Some(nodes(&["0.0.3.0"]));
    play.binds("pod37", &pod("VC1", 1, "g1", &[(1, 1)]).of(V).pin(X).lazy(), "0.0.3.0", [0]);
    play.suggested = Some(nodes(&["0.0.3.1"]));
    play.binds("pod38", &pod("VC1", 1, "g2", &[(1, 1)]).of(V).pin(X).lazy(), "0.0.3.1", [0]);
    play.delete("pod38");
    play.delete("pod37");
    let mut most: std::collections::BTreeSet<NodeName> = play.cells.nodes().cloned().collect();
    most.remove(&NodeName::new("", "0.0.3.1"));
    play.suggested = Some(most);
    let pod27 = pod("VC1", 1, "g18", &[(2, 16)]).of(V).pin(X);
    play.waits(
        "pod27",
        &pod27,
        "only possible in pinned cell VC1-YQW-DGX2 of VC VC1 with node 0.0.3.1, which is not",
    );
    assert_eq!(play.state("g18"), None);
    play.suggested = None;
    let (node, leaves) = play.bound("pod27", &pod27);
    assert!(["0.0.3.0", "0.0.3.1"].contains(&node.as_str()), "{node}");
    assert_eq!(leaves, all(16).collect::<Vec<i32>>());
    assert_eq!(play.state("g18"), Some(GroupState::Allocated));
}

#[test]
fn reservations_stand_until_they_are_overridden() {
    let whole = |name: &str, priority, pods| pod("VC1", priority, name, &[(pods, 16)]).of(V).pin(X);
    let mut play = design();
    play.binds("pod28", &whole("g19", 1, 2), "0.0.3.0", all(16));
    let states = |play: &Play| ["g19", "g20", "g21", "g22"].map(|group| play.state(group));
    let (allocated, being_preempted) = (Some(GroupState::Allocated), Some(GroupState::BeingPreempted));
    let preempting = Some(GroupState::Preempting);
    assert_eq!(states(&play), [allocated, None, None, None]);
    play.preempts("pod29", &whole("g20", 2, 1).lazy(), &["pod28"]);
    assert_eq!(states(&play), [being_preempted, preempting, None, None]);
    play.waits("pod30", &whole("g21", 1, 1).lazy(), "insufficient capacity");
    assert_eq!(states(&play), [being_preempted, preempting, None, None]);
    play.preempts("pod31", &whole("g22", 2, 1).lazy(), &["pod28"]);
    assert_eq!(states(&play), [being_preempted, preempting, None, preempting]);
    let node = |group: &str| play.cells.group(group).expect("reserved").placement.pods[0].node.clone();
    assert_ne!(node("g20"), node("g22"));
    // A higher group overrides both reservations; the victim is the same.
    play.preempts("pod33", &whole("g24", 3, 2).lazy(), &["pod28"]);
    assert_eq!((play.state("g20"), play.state("g22")), (None, None));
    play.delete("pod28");
    assert_eq!(play.state("g19"), None);
    play.binds("pod33", &whole("g24", 3, 2).lazy(), "0.0.3.0", all(16));
    assert_eq!(play.state("g24"), Some(GroupState::Allocated));
}

#[test]
fn a_cancelled_preemption_gives_the_victim_everything_back() {
    let whole = |name: &str, priority, pods| pod("VC1", priority, name, &[(pods, 16)]).of(V).pin(X);
    let mut play = design();
    play.binds("pod28", &whole("g19", 1, 2), "0.0.3.0", all(16));
    play.preempts("pod29", &whole("g20", 2, 1), &["pod28"]);
    play.waits("late", &whole("g19", 1, 2), "being preempted by g20");
    play.delete("pod29");
    assert_eq!(play.state("g19"), Some(GroupState::Allocated));
    play.binds("late", &whole("g19", 1, 2), "0.0.3.1", all(16));
}

#[test]
fn a_reservation_on_a_bad_node_is_given_up_when_it_is_asked_about() {
    let whole = |name: &str, priority, pods| pod("VC1", priority, name, &[(pods, 16)]).of(V).pin(X);
    let mut play = design();
    play.binds("pod28", &whole("g19", 1, 2), "0.0.3.0", all(16));
    let g20 = whole("g20", 2, 1);
    play.preempts("pod29", &g20, &["pod28"]);
    play.health("0.0.3.0", false);
    play.preempts("pod29", &g20, &["pod28"]);
    assert_eq!(play.cells.group("g20").expect("reserved").placement.pods[0].node, "0.0.3.1");
    play.health("0.0.3.1", false);
    play.waits("pod29", &g20, "bad node");
    assert_eq!(play.state("g20"), None);
    assert_eq!(play.state("g19"), Some(GroupState::Allocated));
}

fn with_shared_chain() -> Play {
    let text = include_str!("../../testdata/design.yaml");
    let text = text.replace(
        "{cellType: CT1-NODE, cellNumber: 1}",
        "{cellType: 3-DGX2-V100-NODE.DGX2-V100-NODE, cellNumber: 1}",
    );
    Play::of(read(&text))
}

/// Healthiness of the promises that a VC has of the chain of three nodes, and whether each is free.
fn healthiness(play: &Play, vc: &str, addresses: &[&str]) -> Vec<(bool, &'static str)> {
    let cells = play.cells.virtual_cells(vc).expect("a VC");
    let found = cells.iter().filter(|cell| addresses.contains(&cell.cell_address.as_str()));
    found.map(|cell| (cell.cell_state == "Free", cell.cell_healthiness)).collect()
}

#[test]
fn bad_cells_show_where_they_cannot_be_hidden() {
    let mut play = with_shared_chain();
    let (vc1, vc2) = (["VC1/2", "VC1/3"], ["VC2/4"]);
    play.suggested = Some(nodes(&["0.0.2.0"]));
    play.binds("pod42", &pod("VC1", 0, "g30", &[(1, 16)]).of(V).lazy(), "0.0.2.0", all(16));
    play.health("0.0.2.1", false);
    assert_eq!(healthiness(&play, "VC1", &vc1), [(false, "Healthy"), (true, "Healthy")]);
    assert_eq!(healthiness(&play, "VC2", &vc2), [(true, "Healthy")]);
    play.suggested = Some(nodes(&["0.0.2.2"]));
    let pod43 = pod("VC2", 0, "g31", &[(1, 16)]).of(V).lazy();
    play.binds("pod43", &pod43, "0.0.2.2", all(16));
    assert_eq!(healthiness(&play, "VC1", &vc1), [(false, "Healthy"), (true, "Bad")]);
    let doomed = play.cells.virtual_cells("VC1").expect("a VC");
    let doomed = doomed.iter().find(|cell| cell.cell_healthiness == "Bad").expect("a bad cell");
    assert!(doomed.physical_cell.ends_with("0.0.2.1"), "{}", doomed.physical_cell);
    play.delete("pod43");
    assert_eq!(healthiness(&play, "VC1", &vc1), [(false, "Healthy"), (true, "Healthy")]);
    // The node comes back while both use theirs: nothing is bad.
    play.binds("pod43", &pod43, "0.0.2.2", all(16));
    play.health("0.0.2.1", true);
    assert_eq!(healthiness(&play, "VC1", &vc1), [(false, "Healthy"), (true, "Healthy")]);
}

#[test]
fn a_group_on_a_bad_node_stays_and_shows() {
    let mut play = design();
    play.binds("a", &pod("VC1", 0, "a", &[(1, 16)]).of(V), "0.0.1.0", all(16));
    play.health("0.0.1.0", false);
    assert_eq!(play.state("a"), Some(GroupState::Allocated));
    assert_eq!(healthiness(&play, "VC1", &["VC1/4", "VC1/5"]), [(false, "Bad"), (true, "Healthy")]);
    play.delete("a");
    assert_eq!(healthiness(&play, "VC1", &["VC1/4", "VC1/5"]), [(true, "Healthy"), (true, "Bad")]);
}

#[test]
fn a_smaller_free_cell_that_is_bad_is_passed_over_safely() {
    // The pair beside the pinned one is where buddy allocation would go; a node of it is bad. VC1 was promised two
    // nodes and a pair of the chain, so one pair beyond these is there to be split.
    let mut play = design();
    play.health("0.0.3.2", false);
    play.health("0.0.3.3", false);
    play.suggested = Some(nodes(&["0.0.3.2", "0.0.3.3", "0.0.4.0", "0.0.4.1", "0.0.4.2", "0.0.4.3"]));
    let (node, _) = play.bound("a", &pod("VC1", 0, "a", &[(2, 16)]).of(V));
    assert!(node.starts_with("0.0.4."), "{node}");
    let (pair, _) = play.bound("b", &pod("VC1", 0, "b", &[(2, 16)]).of(V));
    assert!(pair.starts_with("0.0.4."), "{pair}");
}

#[test]
fn promises_that_do_not_fit_are_refused() {
    let text = include_str!("../../testdata/design.yaml");
    let text = text.replace(
        "{cellType: 4-DGX2-V100-NODE.2-DGX2-V100-NODE.DGX2-V100-NODE, cellNumber: 2}",
        "{cellType: CT1-NODE, cellNumber: 2}",
    );
    let text = text.replacen(
        "{cellType: 3-DGX2-V100-NODE.DGX2-V100-NODE, cellNumber: 2}",
        "{cellType: CT1-NODE.CT1, cellNumber: 2}",
        1,
    );
    assert_eq!(
        errors(&text),
        [
            "virtualClusters: found 3 cells of type CT1 (level 1) promised in chain CT1-NODE (VC1 3); allowed: at most \
          0: what the physical cells have left"
        ]
    );
}

#[test]
fn opportunistic_groups_may_use_idle_pinned_cells() {
    let mut play = design();
    let whole: Pod = pod("VC2", -1, "opp", &[(2, 16)]).of("IB-DGX2-V100-V100");
    let (node, _) = play.bound("opp", &whole);
    assert!(node.starts_with("0.1.0."), "{node}");
    let own = pod("VC1", 5, "own", &[(1, 16)]).pin("VC1-YQW-IB-DGX2");
    play.preempts("own", &own, &["opp"]);
    play.delete("opp");
    play.binds("own", &own, "0.1.0.0", all(16));
}

#[test]
fn both_views_of_a_promise_have_the_same_leaves() {
    let mut play = design();
    let leaves = |cell: &crate::CellStatus| {
        let mut open = vec![cell.clone()];
        let mut leaves = Vec::new();
        while let Some(cell) = open.pop() {
            if cell.cell_children.is_empty() {
                leaves.push(cell.cell_address.clone());
            }
            open.extend(cell.cell_children);
        }
        leaves.sort();
        leaves
    };
    let promise = |play: &Play| {
        let cells = play.cells.virtual_cells("VC1").expect("a VC");
        cells.into_iter().find(|cell| cell.cell_address == "VC1/6").expect("the promised pair")
    };
    let before = promise(&play);
    assert_eq!((before.physical_cell.as_str(), before.cell_children.len()), ("", 2));
    // Single nodes of two chains first, the pair last.
    for name in ["a", "b", "c"] {
        play.bound(name, &pod("VC1", 1, name, &[(2, 16)]).of(V));
    }
    let bound: Vec<_> = play.cells.bindings().collect();
    let Some((_, physical)) = bound.iter().find(|(slot, _)| slot == "VC1/6") else { panic!("{bound:?}") };
    let after = promise(&play);
    assert_eq!(&after.physical_cell, physical);
    assert_eq!(leaves(&before), leaves(&after));
    assert_eq!((after.cell_state, after.cell_priority), ("Used", 1));
}
