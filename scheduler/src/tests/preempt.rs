use std::collections::BTreeMap;

use super::bed::Bed;
use crate::config::Hook::*;
use crate::config::PluginName::*;
use crate::*;

fn config() -> Config {
    Config {
        actions: vec![Action::Preempt],
        tiers: vec![vec![
            Plugin::with(Conformance, &[Preemptable]),
            Plugin::with(Gang, &[Preemptable, JobPipelined, JobStarving]),
            Plugin::with(Priority, &[TaskOrder, JobOrder, Preemptable, JobPipelined, JobStarving]),
            Plugin::with(Proportion, &[Overused, Allocatable, QueueOrder]),
        ]],
        action_arguments: BTreeMap::new(),
    }
}

fn check(groups: &[&str], pods: &[&str], nodes: &[&str], queues: &[&str], evicted: &str) {
    let bed = Bed::new(&config()).nodes(nodes).queues(queues).groups(groups).pods(pods).cycle();
    assert_eq!(bed.evictions(), evicted, "{groups:?} {pods:?}");
}

#[test]
fn examples_of_preempt() {
    let low_high = ["pg1 q1 min=1 prio=10", "pg2 q1 min=1 prio=100000"];
    check(
        &["pg1 q1 min=3"],
        &["p1 pg1 c1m1 on=n1", "p2 pg1 c1m1 on=n1", "p3 pg1 c1m1"],
        &["n1 c10m10"],
        &["q1"],
        "",
    );
    check(
        &low_high,
        &["preemptee1 pg1 c1m1 on=n1", "preemptee2 pg1 c1m1 on=n1 keep", "r1 pg2 c1m1", "r2 pg2 c1m1"],
        &["n1 c2m2"],
        &["q1"],
        "preemptee1",
    );
    check(
        &["pg1 q1 min=0 prio=10", "pg2 q1 min=1 prio=100000"],
        &["preemptee1 pg1 c3m3 on=n1", "r1 pg2 c3m3"],
        &["n1 c12m12"],
        &["q1 cap=c4m4"],
        "preemptee1",
    );
    check(
        &low_high,
        &[
            "preemptee1 pg1 c1m1 on=n1 keep",
            "preemptee2 pg1 c1m1 on=n1",
            "preemptee3 pg1 c1m1 on=n1 prio=100000",
            "r1 pg2 c1m1",
        ],
        &["n1 c12m12"],
        &["q1 cap=c3m3"],
        "preemptee2",
    );
    check(
        &low_high,
        &["p1 pg1 c1m1 on=n1", "p2 pg1 c1m1 on=n1", "r1 pg2 c4m4"],
        &["n1 c10m10"],
        &["q1 cap=c3m3"],
        "",
    );
    check(
        &["pg1 q1 min=1", "pg2 q2 min=0 prio=10", "pg3 q2 min=1 prio=100000"],
        &["q1-runner1 pg1 c1m1 on=n1", "q2-preemptee1 pg2 c1m1 on=n1", "q2-preemptor1 pg3 c1m1"],
        &["n1 c2m2"],
        &["q1", "q2 cap=c4m4"],
        "q2-preemptee1",
    );
}

#[test]
fn the_plugin_priority_alone() {
    let config = |hooks: &[Hook]| Config {
        actions: vec![Action::Allocate, Action::Preempt],
        tiers: vec![vec![Plugin::with(Priority, hooks), Plugin::new(Predicates)]],
        action_arguments: BTreeMap::new(),
    };
    let bed = Bed::new(&config(&[TaskOrder, JobOrder, Preemptable, Reclaimable, JobStarving]))
        .nodes(&["node1 c6m6", "node2 c2m2"])
        .queues(&["q1 cap=c6m6"])
        .groups(&["pg1 q1 min=1 prio=100", "pg2 q1 min=1 prio=1000"])
        .pods(&["preemptee1 pg1 c3m3 on=node1", "preemptee2 pg1 c3m3 on=node1 prio=1000", "r pg2 c3m3"])
        .cycle();
    assert_eq!((bed.evictions().as_str(), bed.promises().as_str()), ("preemptee1", "r>node1"));
    let bed = Bed::new(&config(&[TaskOrder, JobOrder, JobStarving]))
        .nodes(&["node1 c3m3", "node2 c3m3"])
        .queues(&["q1 cap=c6m6"])
        .groups(&["pg1 q1 min=1 prio=100", "pg2 q1 min=1 prio=1000"])
        .pods(&["preemptee1 pg1 c3m3 on=node1", "preemptee2 pg1 c3m3 on=node2 keep", "r pg2 c3m3"])
        .cycle();
    assert_eq!(bed.evictions(), "");
}

#[test]
fn a_pod_that_stands_in_the_way_by_anti_affinity_leaves() {
    let mut config = config();
    config.tiers[0].push(Plugin::new(Predicates));
    let apart = || Extras {
        anti_affinity: vec![PodTerm {
            namespaces: Vec::new(),
            selector: vec![fleet_resources::NodeSelectorRequirement {
                key: "test".into(),
                operator: fleet_resources::NodeSelectorOperator::In,
                values: vec!["test".into()],
            }],
            topology_key: "kubernetes.io/hostname".into(),
        }],
        ..Extras::default()
    };
    let mut bed = Bed::new(&config)
        .nodes(&["n1 c2m2 pods=2 kubernetes.io/hostname=n1"])
        .queues(&["q1 cap=c2m2"])
        .groups(&["pg1 q1 min=0 prio=10", "pg2 q1 min=0 prio=10", "pg3 q1 min=1 prio=100000"])
        .pods(&["preemptee1 pg2 c1m1 on=n1"]);
    bed.pod_with("preemptee2 pg1 c1m1 on=n1 label:test=test", apart());
    bed.pod_with("r pg3 c1m1 label:test=test", apart());
    bed.cycle_at(0);
    assert_eq!(bed.evictions(), "preemptee2");
}

#[test]
fn a_gang_is_taken_whole_or_down_to_its_minimum() {
    let config = || {
        let mut config = config();
        config.tiers[0].push(Plugin::new(Predicates));
        config
    };
    let nodes = ["n1 c4", "n2 c4"];
    let groups = ["low q1 min=2 prio=1", "high q1 min=1 prio=9"];
    // Three pods, two needed: one goes.
    let bed = Bed::new(&config()).nodes(&nodes).queues(&["q1"]).groups(&groups).pods(&[
        "l-a-0 low c2 on=n1",
        "l-a-1 low c2 on=n1",
        "l-a-2 low c2 on=n2",
        "h-a-0 high c3",
    ]);
    assert_eq!(bed.cycle().evictions(), "l-a-2");
    // Two pods, both needed: it makes no sense to leave one.
    let two = ["l-a-0 low c4 on=n1", "l-a-1 low c4 on=n2", "h-a-0 high c3"];
    let bed = Bed::new(&config()).nodes(&nodes).queues(&["q1"]).groups(&groups).pods(&two).cycle();
    assert_eq!(bed.evictions(), "l-a-0 l-a-1");
    // Where whole gangs may not be taken, nobody leaves.
    let mut gentle = config();
    gentle.action_arguments.insert(Action::Preempt, [("allowWholeBundle".into(), "false".into())].into());
    let bed = Bed::new(&gentle).nodes(&nodes).queues(&["q1"]).groups(&groups).pods(&two).cycle();
    assert_eq!(bed.evictions(), "");
}

#[test]
fn a_pod_that_never_preempts_takes_only_the_room_there_is() {
    let mut config = config();
    config.tiers[0].push(Plugin::new(Predicates));
    let run = |nodes: &[&str], groups: &[&str], pods: &[&str]| {
        let bed = Bed::new(&config).nodes(nodes).queues(&["q1"]).groups(groups).pods(pods).cycle();
        (bed.evictions(), bed.promises())
    };
    let none = (String::new(), String::new());
    let (one, two) =
        (["low q1 min=1 prio=1", "high q1 min=1 prio=9"], ["low q1 min=2 prio=1", "high q1 min=2 prio=9"]);
    // Beyond the minimum of the gang that stands, a gang that would leave as a whole, and several of them.
    let beyond = ["low q1 min=0 prio=1", "high q1 min=1 prio=9"];
    assert_eq!(run(&["n1 c4"], &beyond, &["l-a-0 low c4 on=n1", "h-a-0 high c4 never"]), none);
    assert_eq!(run(&["n1 c4"], &one, &["l-a-0 low c4 on=n1", "h-a-0 high c4 never"]), none);
    let pods = ["l-a-0 low c4 on=n1", "l-a-1 low c4 on=n2", "h-a-0 high c4 never", "h-a-1 high c4 never"];
    assert_eq!(run(&["n1 c4", "n2 c4"], &two, &pods), none);
    // Nor does it follow into room that others of its gang have made.
    let pods = ["l-a-0 low c4 on=n1", "l-a-1 low c4 on=n2", "h-a-0 high c4", "h-a-1 high c4 never"];
    assert_eq!(run(&["n1 c4", "n2 c4"], &two, &pods), none);
    assert_eq!(
        run(&["n1 c8"], &one, &["l-a-0 low c8 on=n1", "h-a-0 high c2", "h-a-1 high c2 never"]).0,
        "l-a-0"
    );
    let three = ["low q1 min=1 prio=1", "high q1 min=2 prio=9"];
    assert_eq!(
        run(&["n1 c8"], &three, &["l-a-0 low c8 on=n1", "h-a-0 high c2", "h-a-1 high c2 never"]),
        none
    );
    // What is free it takes, so that the others of its gang may preempt for theirs.
    let pods = ["l-a-0 low c4 on=n1", "h-a-0 high c4", "h-a-1 high c4 never"];
    let expected = ("l-a-0".to_owned(), "h-a-0>n1 h-a-1>n2".to_owned());
    assert_eq!(run(&["n1 c4", "n2 c4"], &three, &pods), expected);
}

#[test]
fn a_pod_that_asks_for_nothing_takes_the_place_of_another_such_pod() {
    let mut config = config();
    config.tiers[0].push(Plugin::new(Predicates));
    let run = |nodes: &[&str], groups: &[&str], pods: &[&str]| {
        let bed = Bed::new(&config).nodes(nodes).queues(&["q1"]).groups(groups).pods(pods);
        let mut bed = bed.cycle();
        let evicted = bed.evictions();
        bed.settle();
        bed.cycle_at(1);
        (evicted, bed.binds())
    };
    let groups = ["low q1 min=0 prio=1", "high q1 min=1 prio=9"];
    let full = ["n1 c8 pods=1"];
    let pods = ["l-a-0 low on=n1", "h-a-0 high"];
    assert_eq!(run(&full, &groups, &pods), ("l-a-0".into(), "h-a-0>n1".into()));
    // A group of one is taken whole; nobody who asks for something leaves, nobody more urgent, and none for a pod that
    // never preempts.
    let one = ["low q1 min=1 prio=1", "high q1 min=1 prio=9"];
    assert_eq!(run(&full, &one, &pods).0, "l-a-0");
    assert_eq!(run(&full, &groups, &["l-a-0 low c1 on=n1", "h-a-0 high"]).0, "");
    assert_eq!(run(&full, &one, &["l-a-0 low c1 on=n1", "h-a-0 high"]).0, "");
    assert_eq!(run(&full, &["low q1 min=0 prio=9", "high q1 min=1 prio=1"], &pods).0, "");
    assert_eq!(run(&full, &groups, &["l-a-0 low on=n1", "h-a-0 high never"]).0, "");
    // A gang of two needs two places, or none.
    let two = ["low q1 min=0 prio=1", "high q1 min=2 prio=9"];
    let pods = ["l-a-0 low on=n1", "h-a-0 high", "h-a-1 high"];
    assert_eq!(run(&full, &two, &pods).0, "");
    assert_eq!(run(&["n1 c8 pods=1", "n2 c8 pods=1"], &two, &pods).0, "l-a-0");
}
