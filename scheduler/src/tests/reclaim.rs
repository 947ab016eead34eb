use std::collections::BTreeMap;

use super::bed::Bed;
use crate::config::Hook::*;
use crate::config::PluginName::*;
use crate::*;

fn config(queues: PluginName, priority: bool) -> Config {
    let mut tier = vec![
        Plugin::with(Conformance, &[Reclaimable]),
        Plugin::with(Gang, &[Reclaimable, JobStarving]),
        Plugin::with(queues, &[Reclaimable, QueueOrder, Preemptive]),
    ];
    if priority {
        tier.push(Plugin::with(Priority, &[Reclaimable, JobOrder, TaskOrder]));
    }
    Config { actions: vec![Action::Reclaim], tiers: vec![tier], action_arguments: BTreeMap::new() }
}

#[test]
fn examples_of_reclaim() {
    let three = ["p1 pg1 c1m1 on=n1 keep", "p2 pg1 c1m1 on=n1", "p3 pg1 c1m1 on=n1 keep", "r pg2 c1m1"];
    let bed = Bed::new(&config(Proportion, false))
        .nodes(&["n1 c3m3"])
        .queues(&["q1 w1", "q2 w1"])
        .groups(&["pg1 q1", "pg2 q2"])
        .pods(&three)
        .cycle();
    assert_eq!(bed.evictions(), "p2");
    for queues in [Proportion, Capacity] {
        let bed = Bed::new(&config(queues, false))
            .nodes(&["n1 c3m3"])
            .queues(&["q1 w1", "q2 w1 state=Closed"])
            .groups(&["pg1 q1 phase=Running", "pg2 q2"])
            .pods(&three)
            .cycle();
        assert_eq!(bed.evictions(), "", "{queues:?}");
    }
    let bed = Bed::new(&config(Proportion, true))
        .nodes(&["n1 c4m4"])
        .queues(&["q1 prio=5", "q2 prio=10", "q3 prio=1"])
        .groups(&["pg1 q1 prio=1", "pg2 q2 prio=1", "pg3 q3 prio=1"])
        .pods(&[
            "preemptee1-1 pg1 c1m1 on=n1",
            "preemptee1-2 pg1 c1m1 on=n1 keep",
            "preemptee2-1 pg2 c1m1 on=n1",
            "preemptee2-2 pg2 c1m1 on=n1 keep",
            "r pg3 c1m1",
        ])
        .cycle();
    assert_eq!(bed.evictions(), "preemptee1-1");
    let bed = Bed::new(&config(Proportion, true))
        .nodes(&["n1 c2m2"])
        .queues(&["q1", "q2"])
        .groups(&["victim q1 min=1", "preemptor q2 min=1"])
        .pods(&[
            "v1 victim c1m1 on=n1 keep",
            "v2 victim c1m1 on=n1",
            "r1 preemptor c1m1 never",
            "r2 preemptor c1m1",
        ])
        .cycle();
    assert_eq!((bed.evictions().as_str(), bed.promises().as_str()), ("v2", "r2>n1"));
}

fn capacity(hierarchy: bool, level: &str) -> Config {
    let mut hooks = vec![Allocatable, Preemptive, Reclaimable, QueueOrder];
    let mut actions = vec![Action::Allocate, Action::Reclaim];
    if hierarchy {
        hooks.extend([Hierarchy, JobEnqueued]);
        actions = vec![Action::Enqueue, Action::Reclaim, Action::Allocate];
    }
    Config {
        actions,
        tiers: vec![vec![
            Plugin::with(Capacity, &hooks).argument("ancestorReclaimLevel", level),
            Plugin::new(Predicates),
            Plugin::with(Gang, &[JobStarving]),
        ]],
        action_arguments: BTreeMap::new(),
    }
}

#[test]
fn examples_of_capacity() {
    let run = |nodes: &[&str], queues: &[&str], groups: &[&str], pods: &[&str]| {
        let bed =
            Bed::new(&capacity(false, "0")).nodes(nodes).queues(queues).groups(groups).pods(pods).cycle();
        format!("binds [{}] evicts [{}] promises [{}]", bed.binds(), bed.evictions(), bed.promises())
    };
    let two = ["n1 c2m4 selector=worker", "n2 c2m4"];
    assert_eq!(
        run(&two, &["q1 cap=c2m2"], &["a q1"], &["p1 a c1m1 on=n1", "p2 a c1m1 select:selector=worker"]),
        "binds [p2>n1] evicts [] promises []"
    );
    assert_eq!(
        run(
            &two,
            &["q3 des=c2m4", "q4 des=c2m4"],
            &["a q3 min=0", "b q3 min=0", "c q4"],
            &["p5 a c2m4 on=n1 keep", "p6 b c2m4 on=n2", "p7 c c2m4"]
        ),
        "binds [] evicts [p6] promises [p7>n2]"
    );
    assert_eq!(
        run(
            &["n5 c2m4", "n6 c2m4"],
            &["q7 prio=5 cap=c2m4", "q8 prio=1 cap=c2m4", "q9 prio=10 cap=c2m4"],
            &["a q7", "b q8", "c q9"],
            &["p13 a c2m4 on=n5", "p14 b c2m4", "p15 c c2m4"]
        ),
        "binds [p15>n6] evicts [] promises []"
    );
    assert_eq!(
        run(
            &["n1 c2m4"],
            &["q12 des=c1m2 cap=c4m4", "q13 des=c0"],
            &["a q12", "b q12", "c q13"],
            &["p19 a c1m1 on=n1", "p20 b c1m2", "p21 c c1m1 on=n1"]
        ),
        "binds [] evicts [] promises []"
    );
    assert_eq!(
        run(
            &["n8 c4m8g1"],
            &["q17 des=c2m2", "q18 des=c2m4g1"],
            &["a q17 min=0", "b q17 min=0", "c q17 min=0", "d q18", "e q18"],
            &["p26 a m4 on=n8", "p27 b c1 on=n8", "p28 c g1 on=n8", "p29 d c2m4 on=n8", "p30 e c1g1"]
        ),
        "binds [] evicts [p28] promises [p30>n8]"
    );
    assert_eq!(
        run(
            &["n9 c8m100", "n10 c8m100"],
            &["q21 des=c8m100 cap=c8m100", "q22 cap=c2m5"],
            &["a q21", "b q21", "c q22"],
            &["p33 a c7m90 on=n9", "p34 b c2m5", "p35 c c2m5 on=n10"]
        ),
        "binds [] evicts [] promises []"
    );
}

#[test]
fn capacity_along_the_tree() {
    let run = |nodes: &[&str], queues: &[&str], groups: &[&str], pods: &[&str]| {
        let mut bed = Bed::new(&capacity(true, "0")).nodes(nodes).queues(queues).groups(groups).pods(pods);
        bed.cycle_at(0);
        format!("binds [{}] evicts [{}]", bed.binds(), bed.evictions())
    };
    let node = ["n1 c8m8 pods=11"];
    assert_eq!(
        run(
            &node,
            &["q1 cap=c4m4", "q11 cap=c1m1 parent=q1", "q12 cap=c3m3 parent=q1", "q2"],
            &["a q11"],
            &["p a c1m1"]
        ),
        "binds [p>n1] evicts []"
    );
    let q3 =
        ["q3 des=c4m4 cap=c4m4", "q31 des=c2m2 cap=c4m4 parent=q3", "q32 des=c2m2 cap=c4m4 parent=q3", "q4"];
    assert_eq!(
        run(&node, &q3, &["a q31 min=2"], &["p1 a c2m2", "p2 a c2m2"]),
        "binds [p1>n1 p2>n1] evicts []"
    );
    let mut q33 = q3.to_vec();
    q33.push("q33 des=c0 cap=c4m4 parent=q3");
    assert_eq!(
        run(&node, &q33, &["a q31", "b q32", "c q33"], &["p6 a c2m2 on=n1", "p9 b c2m2 on=n1", "p10 c c3m3"]),
        "binds [] evicts []"
    );
    assert_eq!(
        run(
            &["n c8m8g8"],
            &["q8 des=c4m4g8", "q81 des=c2m2g4 parent=q8", "q82 des=c2m2g4 parent=q8"],
            &["a q81"],
            &["p a c2m2g1"]
        ),
        "binds [p>n] evicts []"
    );
    assert_eq!(run(&node, &["root cap=c16m16", "q10 cap=c10m4"], &[], &[]), "binds [] evicts []");
    assert_eq!(
        run(
            &["n c16m16g5r9"],
            &["root des=c16m16g4r9", "parent des=g2", "leaf11 des=g2 parent=parent", "leaf12"],
            &["a leaf12 min=0", "b leaf12 min=0", "c leaf11"],
            &["p17 a c1m1g2r1 on=n", "p18 b c1m1g2r1 on=n keep", "p16 c c1m1g2r1"]
        ),
        "binds [] evicts [p17]"
    );
    // Both ask for the whole of their parent: the first is let in.
    let bed = Bed::new(&capacity(true, "0"))
        .nodes(&node)
        .queues(&["q6 cap=c2m4", "q61 parent=q6", "q62 parent=q6"])
        .groups(&["pg10 q61 phase=Pending minres=c2m4", "pg11 q62 phase=Pending minres=c2m4"])
        .cycle();
    assert_eq!((bed.phase("pg10"), bed.phase("pg11")), ("Inqueue", "Pending"));
}

#[test]
fn ancestors_must_hold_more_than_they_deserve() {
    let run = |level: &str, nodes: &[&str], queues: &[&str], groups: &[&str], pods: &[&str]| {
        let mut config = capacity(true, level);
        config.actions = vec![Action::Reclaim];
        Bed::new(&config).nodes(nodes).queues(queues).groups(groups).pods(pods).cycle().evictions()
    };
    let grand = [
        "grand-a des=c2m2 cap=c4m4",
        "parent-a des=c2m2 cap=c2m2 parent=grand-a",
        "queue-a des=c2m2 cap=c2m2 parent=parent-a",
        "grand-b des=c3m3 cap=c4m4",
        "parent-b des=c1m1 cap=c2m2 parent=grand-b",
        "queue-b des=c1m1 cap=c2m2 parent=parent-b",
    ];
    let groups = ["v queue-b min=0", "r queue-a"];
    let pods = ["victim v c2m2 on=n1", "taker r c2m2"];
    let node = ["n1 c2m2"];
    assert_eq!(run("0", &node, &grand, &groups, &pods), "victim");
    assert_eq!(run("1", &node, &grand, &groups, &pods), "victim");
    assert_eq!(run("2", &node, &grand, &groups, &pods), "");
    // Leaves that deserve nothing themselves have nothing to ask of each other.
    let same = ["parent des=c2m2 cap=c2m2", "queue-a parent=parent", "queue-b parent=parent"];
    assert_eq!(run("1", &node, &same, &groups, &pods), "");
    let case1 = ["case1 des=g1", "case11 parent=case1", "case2"];
    assert_eq!(
        run("1", &["n c16m16g4"], &case1, &["v case2 min=0", "r case11"], &["p1 v g4 on=n", "p2 r g1"]),
        "p1"
    );
    let projects = [
        "project1 des=g1 cap=g2",
        "project1-pre parent=project1",
        "project2 des=g3 cap=g4",
        "project2-pre parent=project2",
        "project2-non des=g3 cap=g3 parent=project2",
    ];
    let four = ["p1 v g1 on=n prio=2", "p2 v g1 on=n prio=2", "p3 v g1 on=n prio=2"];
    let with = |more: &[&'static str]| [&four[..], more].concat();
    assert_eq!(
        run(
            "1",
            &["n g4"],
            &projects,
            &["v project2-pre min=0", "r project1-pre"],
            &with(&["p4 v g1 on=n prio=1", "p5 r g1"])
        ),
        "p4"
    );
    assert_eq!(
        run(
            "1",
            &["n g4"],
            &projects,
            &["v project2-pre min=0", "w project1-pre min=0", "r project2-non"],
            &with(&["p5 w g1 on=n", "p6 r g1"])
        ),
        "p3"
    );
    let case4 = [
        "parent1",
        "child1 des=g1 parent=parent1",
        "sibling parent=parent1",
        "parent2 des=g1",
        "child2 des=g1 parent=parent2",
    ];
    assert_eq!(
        run(
            "1",
            &["n g2"],
            &case4,
            &["v child1 min=0", "s sibling min=0", "r child2"],
            &["p1 v g1 on=n", "p3 s g1 on=n keep", "p2 r g1"]
        ),
        ""
    );
}

/// Evictions and promises of one cycle of reclaim.
fn reclaimed(
    queues: PluginName,
    nodes: &[&str],
    listed: &[&str],
    groups: &[&str],
    pods: &[&str],
) -> (String, String) {
    let bed = Bed::new(&config(queues, false)).nodes(nodes).queues(listed).groups(groups).pods(pods).cycle();
    (bed.evictions(), bed.promises())
}

#[test]
fn a_queue_within_what_its_deserved_names_keeps_its_pods() {
    let groups = ["g train min=0", "h idle min=0", "r web"];
    // `train` holds the four GPUs that it deserves and the processors they need; `web` is owed processors only.
    let queues = ["train des=g4", "idle", "web des=c8"];
    let pods = ["gpu g c8g4 on=n", "r r c4"];
    let none = (String::new(), String::new());
    assert_eq!(reclaimed(Capacity, &["n c8g4"], &queues, &groups, &pods), none);
    // Processors that it holds without GPUs are borrowed, and so is all beyond its GPUs.
    let beside = ["gpu g c4g4 on=n", "cpu g c4 on=n", "r r c4"];
    assert_eq!(reclaimed(Capacity, &["n c8g4"], &queues, &groups, &beside).0, "cpu");
    let beyond = ["gpu1 g c4g4 on=n", "gpu2 g c4g4 on=n", "r r c4"];
    let (evicted, promised) = reclaimed(Capacity, &["n c8g8"], &queues, &groups, &beyond);
    assert!(["gpu1", "gpu2"].contains(&evicted.as_str()), "one of the two: {evicted}");
    assert_eq!(promised, "r>n");
    // A queue that names nothing has no claim to anything.
    let idle = ["gpu h c8g4 on=n", "r r c4"];
    assert_eq!(reclaimed(Capacity, &["n c8g4"], &queues, &groups, &idle).0, "gpu");
}

#[test]
fn the_queue_above_what_it_deserves_of_what_is_short_gives_way() {
    // Only GPUs are short: `b` borrows processors and is within its GPUs, `c` borrows the GPUs.
    let groups = ["b1 b min=0", "b2 b min=0", "c c min=0", "a a"];
    let pods = ["b-cpu b1 c10 on=n", "b-gpu b2 c4g4 on=n", "c-gpu c c1g4 on=n", "a-gpu a c1g4"];
    let by_name = ["a des=c4g4", "b des=c4g4", "c des=c0"];
    assert_eq!(reclaimed(Capacity, &["n c64g8"], &by_name, &groups, &pods).0, "c-gpu");
    // By weight: each of three deserves a third of what is there, up to what it asks for.
    let groups = ["b b min=0", "c c min=0", "a a"];
    let pods = ["b-1 b c4g1 on=n", "b-2 b c4g1 on=n", "c-1 c c1g2 on=n", "c-2 c c1g2 on=n", "a a c1g2"];
    assert!(reclaimed(Proportion, &["n c12g6"], &["a", "b", "c"], &groups, &pods).0.starts_with("c-"));
}

#[test]
fn nobody_leaves_a_node_where_it_does_not_help() {
    // On n1 memory is short and on n2 processors; `b` is above what it deserves of processors only.
    let queues = ["a des=c4m4", "b des=c2m4", "d des=c4m4"];
    let groups = ["b1 b min=0", "b2 b min=0", "d d min=0", "a a"];
    let pods = ["b1 b1 c3m2 on=n1", "d d c1m2 on=n1", "b2 b2 c3m1 on=n2", "a a c2m2"];
    let (evicted, promised) = reclaimed(Capacity, &["n1 c8m4", "n2 c4m4"], &queues, &groups, &pods);
    assert_eq!((evicted.as_str(), promised.as_str()), ("b2", "a>n2"));
}

#[test]
fn under_a_full_parent_its_children_make_room_whatever_the_nodes_have() {
    let mut config = capacity(true, "0");
    config.actions = vec![Action::Reclaim];
    let queues = ["top cap=c4m8 des=c4m8", "a des=c2m4 parent=top", "b des=c2m4 parent=top", "other"];
    let groups = ["b1 b min=0", "o other min=0", "a a"];
    let pods = ["b-1 b1 c2m1 on=n", "b-2 b1 c2m1 on=n", "o o c2m1 on=n", "a a c2m2"];
    let bed = Bed::new(&config).nodes(&["n c16m16"]).queues(&queues).groups(&groups).pods(&pods).cycle();
    assert!(bed.evictions().starts_with("b-"), "{}", bed.evictions());
    assert_eq!(bed.binds(), "a>n", "the node has room already");
}
