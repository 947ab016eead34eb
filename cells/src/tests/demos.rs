//! HiveD's feature demonstrations: nodes of 4 devices as 2 x 2, two kinds of devices, nodes named by number.

use std::collections::BTreeSet;

use super::play::{Outcome, Play, Pod, pod, read};
use crate::{GroupState, Unreported};

pub(super) const PROD: i32 = 100;
pub(super) const TEST: i32 = 10;
const OPPO: i32 = -1;

/// A chain: its top type, number of nodes in it, and the nodes, `25!pin` for a pinned one.
pub(super) struct Chain(pub &'static str, pub &'static str, pub &'static [&'static str]);

/// A VC: its name, paths with numbers, pins.
pub(super) type Vc<'a> = (&'a str, &'a [(&'a str, i64)], &'a [&'a str]);

pub(super) fn config(chains: &[Chain], vcs: &[Vc]) -> String {
    let mut text = "physicalCluster:\n  cellTypes:\n".to_string();
    for kind in ["K80", "M60"] {
        text += &format!("    {kind}-2GPU: {{childCellType: {kind}, childCellNumber: 2}}\n");
        text += &format!(
            "    {kind}-NODE: {{childCellType: {kind}-2GPU, childCellNumber: 2, isNodeLevel: true}}\n"
        );
    }
    for Chain(top, kind, nodes) in chains {
        let number = nodes.len();
        text += &format!("    {top}: {{childCellType: {kind}-NODE, childCellNumber: {number}}}\n");
    }
    text += "  physicalCells:\n";
    for Chain(top, _, nodes) in chains {
        text += &format!("    - cellType: {top}\n      cellChildren:\n");
        for node in *nodes {
            let (name, pin) = node.split_once('!').unwrap_or((node, ""));
            text += &format!("        - {{cellAddress: 10.151.41.{name}, pinnedCellId: \"{pin}\"}}\n");
        }
    }
    text += "virtualClusters:\n";
    for (vc, cells, pins) in vcs {
        text += &format!("  {vc}:\n    virtualCells:\n");
        for (path, number) in *cells {
            text += &format!("      - {{cellType: {path}, cellNumber: {number}}}\n");
        }
        text += "    pinnedCells:\n";
        for pin in *pins {
            text += &format!("      - pinnedCellId: {pin}\n");
        }
    }
    text
}

fn c1() -> String {
    let chains =
        [Chain("3-K80-NODE", "K80", &["19", "25!VC2-K80", "26"]), Chain("2-K80-NODE", "K80", &["23", "24"])];
    let node = ("3-K80-NODE.K80-NODE", 1);
    config(
        &chains,
        &[
            ("vc1", &[node], &[]),
            ("vc2", &[node], &["VC2-K80"]),
            ("default", &[("2-K80-NODE.K80-NODE", 1)], &[]),
        ],
    )
}

pub(super) const K80: &str = "K80-NODE-POOL.K80-NODE";
const M60: &str = "M60-NODE-POOL.M60-NODE";

fn pools(default: i64) -> String {
    let chains =
        [Chain("K80-NODE-POOL", "K80", &["18", "19", "23", "24"]), Chain("M60-NODE-POOL", "M60", &["26"])];
    config(&chains, &[("vc1", &[(K80, 1), (M60, 1)], &[]), ("default", &[(K80, default)], &[])])
}

fn without_m60() -> String {
    let chains = [Chain("K80-NODE-POOL", "K80", &["18", "19", "23", "24"])];
    config(&chains, &[("vc1", &[(K80, 1)], &[]), ("default", &[(K80, 2)], &[])])
}

pub(super) fn job(vc: &str, class: i32, name: &str, pods: i64, devices: i64, sku: &str) -> Pod {
    pod(vc, class, name, &[(pods, devices)]).of(sku)
}

/// Pods as groups of their own, of which those that do not run wait; how many run, and on which nodes.
fn incremental(
    play: &mut Play,
    vc: &str,
    class: i32,
    name: &str,
    pods: i64,
    devices: i64,
    sku: &str,
) -> (usize, BTreeSet<String>) {
    let (mut running, mut nodes) = (0, BTreeSet::new());
    for index in 0..pods {
        let name = format!("{name}/{index}");
        match play.ask(&name, &job(vc, class, &name, 1, devices, sku)) {
            Outcome::Bind(node, _) => {
                running += 1;
                nodes.insert(node);
            }
            Outcome::Wait(_) => {}
            other => panic!("{name}: {other:?}"),
        }
    }
    (running, nodes)
}

#[test]
fn a_vc_stays_on_its_own_node() {
    let mut play = Play::new(&c1());
    let mut nodes = BTreeSet::new();
    for name in ["s1", "s2"] {
        for index in 0..2 {
            let pod = format!("{name}/{index}");
            nodes.insert(play.bound(&pod, &job("vc1", PROD, name, 2, 1, "K80")).0);
        }
    }
    assert_eq!(nodes.len(), 1);
    assert!(!nodes.contains("10.151.41.25"), "the pinned node of another VC");
}

#[test]
fn a_sku_is_kept_to() {
    let mut play = Play::new(&pools(2));
    let (running, nodes) = incremental(&mut play, "vc1", PROD, "sku", 6, 1, "K80");
    assert_eq!((running, nodes.len()), (4, 1));
    // Without a SKU any kind of the VC will do.
    let mut play = Play::new(&pools(2));
    let (running, nodes) = incremental(&mut play, "vc1", PROD, "any", 6, 1, "");
    assert_eq!((running, nodes.len()), (6, 2));
}

#[test]
fn a_waiting_gang_blocks_nobody() {
    let mut play = Play::new(&pools(2));
    for index in 0..6 {
        let gang = job("vc1", PROD, "g6", 6, 1, "K80");
        play.waits(&format!("g6/{index}"), &gang, "6 cells of type K80 asked for, 4 free");
    }
    for index in 0..4 {
        play.bound(&format!("g4/{index}"), &job("vc1", PROD, "g4", 4, 1, "K80"));
    }
    assert_eq!((play.state("g6"), play.state("g4")), (None, Some(GroupState::Allocated)));
}

#[test]
fn opportunistic_pods_spread_over_what_is_idle() {
    let mut play = Play::new(&c1());
    let (running, nodes) = incremental(&mut play, "vc1", OPPO, "opp", 6, 1, "K80");
    assert_eq!(running, 6);
    assert!(nodes.len() >= 2, "{nodes:?}");
    // There are 20 devices. With 14 more the idle pinned node of vc2 is in use, too.
    let (running, others) = incremental(&mut play, "vc1", OPPO, "more", 14, 1, "K80");
    assert_eq!(running, 14);
    let all: BTreeSet<&String> = nodes.union(&others).collect();
    assert_eq!(all.len(), 5, "{all:?}");
    // Its owner takes it when it comes, evicting only who is there.
    let own = pod("vc2", PROD, "own", &[(1, 4)]).pin("VC2-K80");
    match play.ask("own", &own) {
        Outcome::Preempt(victims) => assert_eq!(victims.len(), 4, "{victims:?}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(play.cells.group("own").expect("reserved").placement.pods[0].node, "10.151.41.25");
}

#[test]
fn without_the_flag_preemption_is_immediate() {
    let mut play = Play::new(&pools(3));
    play.binds("t", &job("vc1", TEST, "t", 1, 4, "M60"), "10.151.41.26", 0..4);
    let p = job("vc1", PROD, "p", 1, 4, "M60");
    play.preempts("p", &p, &["t"]);
    play.delete("t");
    play.binds("p", &p, "10.151.41.26", 0..4);
    play.waits("t", &job("vc1", TEST, "t", 1, 4, "M60"), "insufficient capacity in VC vc1");
}

#[test]
fn with_the_flag_the_victim_runs_on_as_opportunistic() {
    let mut play = Play::new(&pools(3));
    let (first, _) = play.bound("t", &job("vc1", TEST, "t", 1, 4, "K80").lazy());
    play.now_ms = 7;
    let (second, _) = play.bound("p", &job("vc1", PROD, "p", 1, 4, "K80"));
    assert_ne!(first, second);
    let t = play.cells.group("t").expect("it runs on");
    assert_eq!(t.state, GroupState::Allocated);
    assert_eq!(t.lazy_preemption_status.map(|lazy| (lazy.preemptor, lazy.at_ms)), Some(("p".to_string(), 7)));
    assert_eq!(t.placement.pods[0].preassigned_cell_type, "");
    // Whoever was promised that node takes it.
    play.preempts("p2", &job("default", PROD, "p2", 3, 4, "K80"), &["t"]);
}

#[test]
fn two_devices_are_buddies() {
    let mut play = Play::new(&pools(2));
    let gang = job("vc1", PROD, "buddies", 2, 1, "K80");
    let (one, other) = (play.bound("b/0", &gang), play.bound("b/1", &gang));
    assert_eq!((one.0, one.1, other.1), (other.0, vec![0], vec![1]));
}

#[test]
fn added_cells_change_nothing_for_what_runs() {
    let mut play = Play::new(&without_m60());
    let (running, nodes) = incremental(&mut play, "vc1", PROD, "six", 6, 1, "K80");
    assert_eq!((running, nodes.len()), (4, 1));
    let places = |play: &Play| {
        [0, 1, 2, 3].map(|index| play.cells.placement(&format!("six/{index}")).expect("it runs"))
    };
    let before = places(&play);
    let difference = play.cells.reconfigure(read(&pools(2)), Unreported::Good, 1).expect("a configuration");
    assert_eq!((difference.groups.len(), difference.cancelled.len()), (0, 0));
    assert_eq!(difference.promises.len(), 1);
    play.audit();
    assert_eq!(places(&play), before);
    for index in 0..4 {
        let pod = play.cells.group(&format!("six/{index}")).expect("it runs on");
        assert_eq!((pod.state, pod.lazy_preemption_status), (GroupState::Allocated, None));
        assert_eq!(pod.placement.pods[0].preassigned_cell_type, "K80-NODE");
    }
    assert!(
        play.cells.schedule(&job("vc1", PROD, "m", 1, 4, "M60").request, &crate::Ask::default()).is_place()
    );
}

#[test]
fn cells_that_are_taken_away_make_groups_opportunistic() {
    // The VC keeps one of its two nodes: the older of two equal groups keeps its promise.
    let own = |number| {
        config(
            &[Chain("K80-NODE-POOL", "K80", &["18", "19", "23"])],
            &[("vc1", &[(K80, number)], &[]), ("default", &[(K80, 1)], &[])],
        )
    };
    let mut play = Play::new(&own(2));
    play.bound("old", &job("vc1", PROD, "old", 1, 4, "K80"));
    play.now_ms = 5;
    play.bound("young", &job("vc1", PROD, "young", 1, 4, "K80"));
    let preview = play.cells.preview(read(&own(1)), Unreported::Good, 9).expect("a configuration");
    let lost: Vec<_> =
        preview.groups.iter().map(|group| (group.group.as_str(), group.promise_lost)).collect();
    assert_eq!(lost, [("young", Some(crate::PromiseLost::TooFewCells))]);
    assert_eq!(play.cells.group("young").and_then(|group| group.lazy_preemption_status), None);
    assert_eq!(play.cells.reconfigure(read(&own(1)), Unreported::Good, 9).as_ref(), Ok(&preview));
    play.audit();
    let young = play.cells.group("young").expect("it runs on");
    assert_eq!(young.lazy_preemption_status.map(|lazy| lazy.at_ms), Some(9));
    assert_eq!(young.state, GroupState::Allocated);
}

#[test]
fn a_higher_priority_keeps_its_promise_before_an_older_group() {
    let own =
        |number| config(&[Chain("K80-NODE-POOL", "K80", &["18", "19"])], &[("vc1", &[(K80, number)], &[])]);
    let mut play = Play::new(&own(2));
    play.bound("old", &job("vc1", TEST, "old", 1, 4, "K80"));
    play.now_ms = 5;
    play.bound("prod", &job("vc1", PROD, "prod", 1, 4, "K80"));
    let difference = play.cells.reconfigure(read(&own(1)), Unreported::Good, 9).expect("a configuration");
    assert_eq!(difference.groups.iter().map(|group| group.group.as_str()).collect::<Vec<_>>(), ["old"]);
}

#[test]
fn a_vc_or_a_node_that_is_taken_away_kills_nothing() {
    let mut play = Play::new(&pools(2));
    play.binds("m", &job("vc1", PROD, "m", 1, 4, "M60"), "10.151.41.26", 0..4);
    play.bound("d", &job("default", PROD, "d", 2, 4, "K80"));
    // M60 goes, and with it the node; `default` goes too.
    let chains = [Chain("K80-NODE-POOL", "K80", &["18", "19", "23", "24"])];
    let new = config(&chains, &[("vc1", &[(K80, 4)], &[])]);
    let difference = play.cells.reconfigure(read(&new), Unreported::Good, 1).expect("a configuration");
    play.audit();
    let report =
        |name: &str| difference.groups.iter().find(|group| group.group == name).expect("named").clone();
    assert_eq!(report("d").promise_lost, Some(crate::PromiseLost::VcGone));
    assert_eq!(report("m").unknown_cells.len(), 4);
    assert_eq!(play.state("m"), Some(GroupState::Allocated));
    // Its cells serve vc1 now; `d` goes when they are needed.
    let four = job("vc1", PROD, "four", 4, 4, "K80");
    play.preempts("four", &four, &["d"]);
}

#[test]
fn a_pinned_node_given_to_another_vc_costs_its_user_the_promise() {
    let mut play = Play::new(&c1());
    let own = pod("vc2", PROD, "own", &[(1, 4)]).pin("VC2-K80");
    play.binds("own", &own, "10.151.41.25", 0..4);
    let node = ("3-K80-NODE.K80-NODE", 1);
    let c8 = config(
        &[Chain("3-K80-NODE", "K80", &["19", "25!VC1-K80", "26"]), Chain("2-K80-NODE", "K80", &["23", "24"])],
        &[
            ("vc1", &[node], &["VC1-K80"]),
            ("vc2", &[node], &[]),
            ("default", &[("2-K80-NODE.K80-NODE", 1)], &[]),
        ],
    );
    let difference = play.cells.reconfigure(read(&c8), Unreported::Good, 1).expect("a configuration");
    play.audit();
    assert_eq!(difference.groups[0].promise_lost, Some(crate::PromiseLost::PinnedCellGone));
    play.preempts("new", &pod("vc1", PROD, "new", &[(1, 4)]).pin("VC1-K80"), &["own"]);
}

#[test]
fn fragments_of_one_vc_do_not_cost_another_its_node() {
    let text = "
physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 16, isNodeLevel: true}
    POOL: {childCellType: NODE, childCellNumber: 2}
  physicalCells: [{cellType: POOL, cellChildren: [{cellAddress: n1}, {cellAddress: n2}]}]
virtualClusters:
  vc1: {virtualCells: [{cellType: POOL.NODE, cellNumber: 1}]}
  vc2: {virtualCells: [{cellType: POOL.NODE, cellNumber: 1}]}
";
    let mut play = Play::new(text);
    let (running, nodes) = incremental(&mut play, "vc1", PROD, "single", 16, 1, "GPU");
    assert_eq!((running, nodes.len()), (16, 1));
    let (node, leaves) = play.bound("wide", &job("vc2", PROD, "wide", 1, 16, "GPU"));
    assert!(!nodes.contains(&node));
    assert_eq!(leaves.len(), 16);
}

#[test]
fn the_smallest_cell_that_is_enough_serves_all_nine_of_the_rack() {
    let text = "
physicalCluster:
  cellTypes:
    SWITCH: {childCellType: GPU, childCellNumber: 2}
    SOCKET: {childCellType: SWITCH, childCellNumber: 2}
    NODE: {childCellType: SOCKET, childCellNumber: 2, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 4}
  physicalCells: [{cellType: RACK, cellChildren: [{cellAddress: n1}, {cellAddress: n2}, {cellAddress: n3}, {cellAddress: n4}]}]
virtualClusters:
  A: &team {virtualCells: [{cellType: RACK.NODE.SOCKET, cellNumber: 1}, {cellType: RACK.NODE.SOCKET.SWITCH, cellNumber: 1}, {cellType: RACK.NODE.SOCKET.SWITCH.GPU, cellNumber: 1}]}
  B: *team
  C: {virtualCells: [{cellType: RACK.NODE, cellNumber: 2}, {cellType: RACK.NODE.SOCKET.SWITCH, cellNumber: 1}]}
";
    let mut play = Play::new(text);
    let order = [("A", 1), ("B", 1), ("C", 2), ("A", 2), ("B", 4), ("C", 8), ("B", 2), ("A", 4), ("C", 8)];
    for (number, (vc, devices)) in order.into_iter().enumerate() {
        let name = format!("{vc}{devices}-{number}");
        let (_, leaves) = play.bound(&name, &job(vc, 1, &name, 1, devices, "GPU"));
        // Each lies within the smallest cell of its size.
        assert_eq!(i64::from(leaves[leaves.len() - 1] - leaves[0]), devices - 1, "{name}: {leaves:?}");
        assert_eq!(i64::from(leaves[0]) % devices, 0, "{name}: {leaves:?}");
    }
}

#[test]
fn the_victim_that_loses_least_goes() {
    let mut play = Play::new(&pools(3));
    for (at, name) in [(0, "old"), (50_000, "young"), (20_000, "middle")] {
        play.now_ms = at;
        play.bound(name, &job("default", TEST, name, 1, 4, "K80"));
    }
    play.now_ms = 60_000;
    play.preempts("p", &job("default", PROD, "p", 1, 4, "K80"), &["young"]);
    play.delete("p");
    assert!(play.cells.set_checkpoint("old", 59_000));
    play.preempts("p", &job("default", PROD, "p", 1, 4, "K80"), &["old"]);
}

#[test]
fn a_lower_priority_goes_before_less_work() {
    let mut play = Play::new(&pools(2));
    play.bound("low", &job("default", 1, "low", 1, 4, "K80"));
    play.now_ms = 50_000;
    play.bound("high", &job("default", 5, "high", 1, 4, "K80"));
    play.now_ms = 60_000;
    play.preempts("p", &job("default", PROD, "p", 1, 4, "K80"), &["low"]);
}

#[test]
fn what_is_borrowed_is_counted_on_both_sides() {
    let mut play = Play::new(&pools(2));
    incremental(&mut play, "vc1", PROD, "own", 1, 4, "K80");
    incremental(&mut play, "vc1", OPPO, "opp", 3, 4, "K80");
    let vc1 = play.cells.vc_status("vc1").expect("a VC");
    let default = play.cells.vc_status("default").expect("a VC");
    assert_eq!(
        (vc1.leaves["K80"].guaranteed, vc1.leaves["K80"].used, vc1.leaves["K80"].borrowed_in),
        (4, 4, 12)
    );
    // One node was promised to nobody; eight of the twelve devices are default's.
    assert_eq!((default.leaves["K80"].guaranteed, default.leaves["K80"].borrowed_out), (8, 8));
    assert_eq!(vc1.leaves["K80"].borrowed_out, 0);
    let fake = play.cells.virtual_cells("vc1").expect("a VC");
    let fake = fake.iter().filter(|cell| cell.cell_address.ends_with("-opp"));
    assert_eq!(fake.filter(|cell| cell.cell_priority == -1 && cell.cell_state == "Used").count(), 12);
}
