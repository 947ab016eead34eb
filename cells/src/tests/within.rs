//! `withinOneCell`, groups in groups and cells that are no leaves: the published cases of HiveD's version 2.

use super::play::{Outcome, Play};
use crate::{Ask, Decision, GroupRequest, Member, PodGroup, Proposal};

const TYPES: &str = "
    V100-SWITCH: {childCellType: V100, childCellNumber: 2}
    V100-SOCKET: {childCellType: V100-SWITCH, childCellNumber: 2}
    V100-NODE: {childCellType: V100-SOCKET, childCellNumber: 2, isNodeLevel: true}
    V100-RACK: {childCellType: V100-NODE, childCellNumber: 2}
    K80-SWITCH: {childCellType: K80, childCellNumber: 2}
    K80-SOCKET: {childCellType: K80-SWITCH, childCellNumber: 2}
    K80-NODE: {childCellType: K80-SOCKET, childCellNumber: 2, isNodeLevel: true}
    K80-RACK: {childCellType: K80-NODE, childCellNumber: 2}
";

fn racks(v100: i32, k80: i32, vcs: &str) -> Play {
    let mut text = format!("physicalCluster:\n  cellTypes:{TYPES}  physicalCells:\n");
    for (kind, number, prefix) in [("V100", v100, "n"), ("K80", k80, "k")] {
        for rack in 0..number {
            let (one, two) = (rack * 2 + 1, rack * 2 + 2);
            text += &format!(
                "    - {{cellType: {kind}-RACK, cellChildren: [{{cellAddress: {prefix}{one}}}, {{cellAddress: {prefix}{two}}}]}}\n"
            );
        }
    }
    Play::new(&format!("{text}virtualClusters:\n{vcs}"))
}

fn one() -> Play {
    racks(2, 0, "  VC1: {virtualCells: [{cellType: V100-RACK, cellNumber: 2}]}\n")
}

fn two() -> Play {
    racks(
        3,
        2,
        "  VC1: {virtualCells: [{cellType: V100-RACK, cellNumber: 2}, {cellType: K80-RACK, cellNumber: 1}]}\n  \
         VC2: {virtualCells: [{cellType: V100-RACK, cellNumber: 1}, {cellType: K80-RACK, cellNumber: 1}]}\n",
    )
}

fn members(pods: i64, cells: i64, cell_type: &str) -> PodGroup {
    let member = Member { pod_number: pods, leaf_cell_number: cells, cell_type: cell_type.to_string() };
    PodGroup { members: vec![member], ..PodGroup::default() }
}

fn within(mut group: PodGroup, cell_type: &str) -> PodGroup {
    group.within_one_cell = cell_type.to_string();
    group
}

fn ask(play: &mut Play, vc: &str, priority: i32, name: &str, root: PodGroup) -> Decision {
    let mut request = GroupRequest::new(name, vc, priority, 1, 1);
    request.affinity_group.root = root;
    let decision = play.cells.schedule(&request, &Ask { now_ms: play.now_ms, ..Ask::default() });
    if let Decision::Place(proposal) | Decision::Preempt(proposal) = &decision {
        play.cells.commit(proposal).expect("nothing changed");
    }
    play.audit();
    decision
}

fn places(proposal: &Proposal) -> Vec<(String, Vec<i32>)> {
    proposal.placement.pods.iter().map(|pod| (pod.node.clone(), pod.leaf_cells.clone())).collect()
}

#[track_caller]
fn placed(play: &mut Play, vc: &str, priority: i32, name: &str, root: PodGroup) -> Vec<(String, Vec<i32>)> {
    match ask(play, vc, priority, name, root) {
        Decision::Place(proposal) => places(&proposal),
        other => panic!("{name}: {other:?}"),
    }
}

fn at(places: &[(&str, &[i32])]) -> Vec<(String, Vec<i32>)> {
    places.iter().map(|(node, leaves)| ((*node).to_string(), leaves.to_vec())).collect()
}

#[test]
fn within_a_node() {
    let mut play = one();
    assert_eq!(placed(&mut play, "VC1", 1, "a", members(1, 5, "V100")), at(&[("n1", &[0, 1, 2, 3, 4])]));
    let b = placed(&mut play, "VC1", 2, "b", within(members(4, 1, "V100"), "V100-NODE"));
    assert_eq!(b, at(&[("n2", &[0]), ("n2", &[1]), ("n2", &[2]), ("n2", &[3])]));
}

#[test]
fn within_a_socket() {
    let mut play = one();
    assert_eq!(placed(&mut play, "VC1", 1, "a", members(1, 1, "")), at(&[("n1", &[0])]));
    let b = placed(&mut play, "VC1", 2, "b", within(members(4, 1, "V100"), "V100-SOCKET"));
    assert_eq!(b, at(&[("n1", &[4]), ("n1", &[5]), ("n1", &[6]), ("n1", &[7])]));
}

#[test]
fn whole_switches() {
    let mut play = one();
    assert_eq!(placed(&mut play, "VC1", 1, "a", members(1, 1, "")), at(&[("n1", &[0])]));
    let b = placed(&mut play, "VC1", 2, "b", members(4, 1, "V100-SWITCH"));
    assert_eq!(b[..3], at(&[("n1", &[2, 3]), ("n1", &[4, 5]), ("n1", &[6, 7])]));
    assert_eq!(b[3], ("n2".to_string(), vec![0, 1]));
}

#[test]
fn racks_of_two_vcs() {
    let mut play = two();
    assert_eq!(placed(&mut play, "VC1", 1, "a", members(1, 5, "V100")), at(&[("n1", &[0, 1, 2, 3, 4])]));
    let b = placed(&mut play, "VC1", 1, "b", members(3, 1, "V100-SOCKET"));
    assert_eq!(b, at(&[("n2", &[0, 1, 2, 3]), ("n2", &[4, 5, 6, 7]), ("n3", &[0, 1, 2, 3])]));
    match ask(&mut play, "VC1", 1, "c", within(members(13, 1, "V100"), "V100-RACK")) {
        Decision::Wait(reason) => assert_eq!(
            reason.to_string(),
            "insufficient capacity in VC VC1 at level V100-RACK: 13 leaf cells must lie within one V100-RACK, at \
             most 12 are free in one"
        ),
        other => panic!("{other:?}"),
    }
    let d = placed(&mut play, "VC2", 1, "d", members(2, 5, "V100"));
    assert_eq!(d, at(&[("n5", &[0, 1, 2, 3, 4]), ("n6", &[0, 1, 2, 3, 4])]));
    assert_eq!(placed(&mut play, "VC1", 1, "e", members(13, 1, "V100"))[0], ("n1".to_string(), vec![5]));
}

#[test]
fn vcs_never_share_a_promised_rack() {
    let mut play = two();
    assert_eq!(placed(&mut play, "VC1", 1, "a", members(1, 1, "K80")), at(&[("k1", &[0])]));
    assert_eq!(placed(&mut play, "VC2", 1, "b", members(1, 1, "K80")), at(&[("k3", &[0])]));
}

#[test]
fn groups_in_groups_each_in_its_own_cell() {
    let mut play = one();
    placed(&mut play, "VC1", 1, "a", members(1, 3, "V100"));
    let mut root = within(members(1, 2, ""), "V100-RACK");
    root.child_groups =
        vec![within(members(2, 2, ""), "V100-SOCKET"), within(members(1, 4, ""), "V100-SOCKET")];
    let b = placed(&mut play, "VC1", 1, "b", root);
    let socket = |place: &(String, Vec<i32>)| (place.0.clone(), place.1[0] / 4);
    assert_eq!(socket(&b[1]), socket(&b[2]));
    assert!(b.iter().all(|place| place.0 == "n1" || place.0 == "n2"), "{b:?}");
}

#[test]
fn within_a_cell_the_cheapest_group_is_preempted() {
    let mut play = one();
    for (name, at) in [("a", 0), ("b", 30_000), ("c", 10_000), ("d", 20_000)] {
        play.now_ms = at;
        placed(&mut play, "VC1", 1, name, members(1, 8, ""));
    }
    play.now_ms = 40_000;
    match ask(&mut play, "VC1", 2, "p", within(members(8, 1, ""), "V100-NODE")) {
        Decision::Preempt(proposal) => {
            let victims: Vec<_> = proposal.victims.iter().map(|victim| victim.group.as_str()).collect();
            assert_eq!(victims, ["b"]);
            assert_eq!(proposal.victims[0].lost_work_ms, 8 * 10_000);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_type_that_there_is_not_is_refused() {
    let mut play = one();
    for (root, field) in [
        (within(members(1, 1, ""), "ROW"), "withinOneCell: found ROW"),
        (members(1, 1, "H100"), "cellType: found H100"),
        (members(1, 0, ""), "leafCellNumber: found 0"),
        (members(1, 0, "V100-SWITCH"), "cellNumber: found 0"),
        (members(0, 1, ""), "podNumber: found 0"),
        (PodGroup::default(), "found no pods"),
    ] {
        match ask(&mut play, "VC1", 1, "a", root) {
            Decision::Refuse(refusal) => assert!(refusal.to_string().contains(field), "{refusal}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn pods_of_sizes_that_do_not_divide_are_packed_by_search() {
    // 3 + 5 and 4 + 4 fill two nodes; the tightest node for each, largest first, would strand the last.
    let text = "
physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 10, isNodeLevel: true}
    POOL: {childCellType: NODE, childCellNumber: 2}
  physicalCells: [{cellType: POOL, cellChildren: [{cellAddress: n1}, {cellAddress: n2}]}]
virtualClusters:
  vc: {virtualCells: [{cellType: POOL, cellNumber: 1}]}
";
    let mut play = Play::new(text);
    let member = |pods, leaves| Member { pod_number: pods, leaf_cell_number: leaves, ..Member::default() };
    let root = PodGroup { members: vec![member(2, 4), member(4, 3)], ..PodGroup::default() };
    let placed = placed(&mut play, "vc", 1, "mixed", root);
    assert_eq!(placed.iter().map(|place| place.1.len()).sum::<usize>(), 20);
}

#[test]
fn the_search_is_bounded() {
    // Devices that can be chosen in very many ways: one answer comes at once, whatever it is.
    let text = "
physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 64, isNodeLevel: true}
    POOL: {childCellType: NODE, childCellNumber: 32}
  physicalCells: [{cellType: POOL}]
virtualClusters:
  vc: {virtualCells: [{cellType: POOL, cellNumber: 1}]}
";
    let mut play = Play::new(text);
    let member = |pods, leaves| Member { pod_number: pods, leaf_cell_number: leaves, ..Member::default() };
    let root =
        PodGroup { members: vec![member(30, 33), member(29, 31), member(3, 34)], ..PodGroup::default() };
    match ask(&mut play, "vc", 1, "mixed", root) {
        Decision::Place(proposal) => assert_eq!(proposal.placement.pods.len(), 62),
        Decision::Wait(reason) => {
            assert!(["SearchLimit", "CellsFragmented"].contains(&reason.code()), "{reason}")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn within_one_cell_in_a_smaller_promise() {
    // A promised socket lies within one node: it serves a group that must.
    let mut play =
        racks(1, 0, "  VC1: {virtualCells: [{cellType: V100-RACK.V100-NODE.V100-SOCKET, cellNumber: 2}]}\n");
    let a = placed(&mut play, "VC1", 1, "a", within(members(2, 2, ""), "V100-NODE"));
    assert_eq!(a[0].0, a[1].0);
    match ask(&mut play, "VC1", 1, "b", within(members(4, 2, ""), "V100-NODE")) {
        Decision::Wait(_) => {}
        other => panic!("{other:?}"),
    }
    let request = {
        let mut request = GroupRequest::new("b", "VC1", 1, 1, 1);
        request.affinity_group.root = within(members(4, 2, ""), "V100-NODE");
        request
    };
    let refusal = play.cells.admit(&request).expect_err("sockets of different nodes");
    assert!(refusal.to_string().contains("do not fit within one V100-NODE"), "{refusal}");
    assert!(matches!(play.ask("x", &super::play::pod("VC1", 1, "x", &[(1, 4)])), Outcome::Bind(..)));
}

/// Two clusters of one rack each, one chain; the VC owns both racks.
fn two_clusters() -> Play {
    let text = format!(
        "physicalCluster:\n  cellTypes:{TYPES}  physicalCells:\n    - {{cellType: V100-RACK, cluster: east, cellChildren: \
         [{{cellAddress: n1}}, {{cellAddress: n2}}]}}\n    - {{cellType: V100-RACK, cluster: west, cellChildren: \
         [{{cellAddress: n1}}, {{cellAddress: n2}}]}}\nvirtualClusters:\n  VC1: {{virtualCells: [{{cellType: \
         V100-RACK.V100-NODE, cellNumber: 4}}]}}\n"
    );
    Play::new(&text)
}

#[test]
fn a_group_never_spans_clusters() {
    let mut play = two_clusters();
    placed(&mut play, "VC1", 1, "a", members(1, 8, ""));
    placed(&mut play, "VC1", 1, "b", members(1, 8, ""));
    // Both are in the east; the west has room for two more, and for no third.
    let clusters = |play: &Play, group: &str| play.cells.placement(group).expect("it runs").cluster;
    assert_eq!((clusters(&play, "a"), clusters(&play, "b")), ("east".to_string(), "east".to_string()));
    play.cells.release("b");
    match ask(&mut play, "VC1", 1, "three", members(3, 8, "")) {
        Decision::Wait(reason) => assert_eq!(reason.code(), "CellsFragmented", "{reason}"),
        other => panic!("{other:?}"),
    }
    placed(&mut play, "VC1", 1, "pair", members(2, 8, ""));
    assert_eq!(clusters(&play, "pair"), "west");
    let mut request = GroupRequest::new("five", "VC1", 1, 3, 8);
    let refusal = play.cells.admit(&request).expect_err("more than one cluster");
    assert!(refusal.to_string().contains("and a group cannot span clusters"), "{refusal}");
    // The caller's choice of clusters is kept to.
    request = GroupRequest::new("one", "VC1", 1, 1, 8);
    let west = ["west".to_string()];
    let ask = Ask { clusters: Some(&west), ..Ask::default() };
    assert!(matches!(play.cells.schedule(&request, &ask), Decision::Wait(_)));
    let both = ["west".to_string(), "east".to_string()];
    let ask = Ask { clusters: Some(&both), ..Ask::default() };
    match play.cells.schedule(&request, &ask) {
        Decision::Place(proposal) => assert_eq!(proposal.placement.cluster, "east"),
        other => panic!("{other:?}"),
    }
    assert!(!play.cells.set_node_health(&crate::NodeName::new("", "n1"), false));
    assert!(play.cells.set_node_health(&crate::NodeName::new("west", "n1"), false));
}

#[test]
fn requests_are_read_and_written_in_hived_s_words() {
    let json = serde_json::json!({
        "virtualCluster": "VC1", "priority": 5, "leafCellType": "V100",
        "affinityGroup": {"name": "g", "members": [{"podNumber": 2, "leafCellNumber": 4}]},
    });
    let request: GroupRequest = serde_json::from_value(json).expect("a request");
    assert!(
        request.ignore_k8s_suggested_nodes && request.gang_release_enable && !request.lazy_preemption_enable
    );
    assert_eq!(request.affinity_group.root, members(2, 4, ""));
    let written = serde_json::to_value(&request).expect("JSON");
    assert_eq!(written["affinityGroup"]["members"][0]["leafCellNumber"], 4);
    assert_eq!(serde_json::from_value::<GroupRequest>(written).expect("a request"), request);
}
