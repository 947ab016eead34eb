//! Where this scheduler does better than the one it stands in for.

use super::bed::Bed;
use crate::config::Hook::*;
use crate::config::PluginName::*;
use crate::*;

/// Everything on: the plugins of Volcano's chart with preempt and reclaim.
fn everything() -> Config {
    Config {
        actions: vec![Action::Enqueue, Action::Allocate, Action::Preempt, Action::Reclaim, Action::Backfill],
        tiers: vec![
            vec![Plugin::new(Priority), Plugin::new(Gang), Plugin::new(Conformance)],
            vec![
                Plugin::new(Overcommit),
                Plugin::new(Drf).without(Preemptable),
                Plugin::new(Predicates),
                Plugin::new(Capacity),
                Plugin::new(NodeOrder_),
                Plugin::new(Binpack),
            ],
        ],
        ..Config::default()
    }
}

use crate::PluginName::NodeOrder as NodeOrder_;

#[test]
fn a_full_cluster_hides_nobody_from_reclaim() {
    let mut bed = Bed::new(&everything())
        .nodes(&["n1 c4m8", "n2 c4m8"])
        .queues(&["greedy des=c4m8", "poor des=c4m8"])
        .groups(&["g greedy min=0", "p poor phase=Pending minres=c4m4"])
        .pods(&["g-a-0 g c4m4 on=n1", "g-a-1 g c4m4 on=n2"]);
    bed.cycle_at(0);
    // The job's pods are made once it is let in.
    assert_eq!(bed.phase("p"), "Inqueue");
    bed.pod("p-a-0 p c4m4");
    bed.cycle_at(1);
    assert_eq!(bed.evictions(), "g-a-0");
    bed.settle();
    bed.cycle_at(2);
    assert_eq!(bed.binds(), "p-a-0>n1");
}

#[test]
fn a_full_queue_hides_nobody_from_preempt() {
    let mut bed = Bed::new(&everything())
        .nodes(&["n1 c8m8"])
        .queues(&["q cap=c4m4"])
        .groups(&[
            "low q min=0 prio=1",
            "high q prio=9 phase=Pending minres=c4m4",
            "equal q prio=1 phase=Pending minres=c4m4",
        ])
        .pods(&["l-a-0 low c4m4 on=n1"]);
    bed.cycle_at(0);
    assert_eq!((bed.phase("high"), bed.phase("equal")), ("Inqueue", "Pending"));
    assert_eq!(bed.why("equal"), "queue q: 8 of 4 cpu are in use, 4 are asked for");
    bed.pod("h-a-0 high c4m4");
    bed.cycle_at(1);
    assert_eq!(bed.evictions(), "l-a-0");
}

#[test]
fn a_gang_that_lost_pods_is_repaired_before_fresh_jobs() {
    let mut bed = Bed::new(&everything())
        .nodes(&["n1 c4m8", "n2 c4m8"])
        .groups(&["old default min=2", "fresh default min=1 created=-5"])
        .pods(&["o-a-0 old c4 on=n1", "o-a-1 old c4 on=n2"]);
    bed.cycle_at(0);
    // The node goes, and its pod; a new node comes; a job without any share waits too.
    bed.cluster.remove_node("n2");
    bed.end("o-a-1");
    bed.pod("o-a-1 old c4");
    bed.pod("f-a-0 fresh c4");
    bed.cycle_at(1);
    bed.cluster.put_node(&super::bed::node("n3 c4m8"));
    bed.cycle_at(2);
    assert_eq!(bed.binds(), "o-a-1>n3");
}

#[test]
fn reclaim_takes_only_what_helps() {
    // The taker asks for a GPU; the queue's cpu jobs stay, though they would leave first.
    let bed = Bed::new(&everything())
        .nodes(&["n1 c8m8g1", "n2 c8m8"])
        .queues(&["greedy des=c1m1", "poor des=c4m8g1"])
        .groups(&["a greedy min=0", "b greedy min=0 prio=5", "p poor"])
        .pods(&["a-a-0 a c4 on=n1", "b-a-0 b c1g1 on=n1", "a-a-1 a c4 on=n2", "p-a-0 p c1g1"])
        .cycle();
    assert_eq!(bed.evictions(), "b-a-0");
}

#[test]
fn nobody_leaves_for_a_taker_that_cannot_start() {
    let run = |more: &str| {
        Bed::new(&everything())
            .nodes(&["n1 c4m8", "n2 c4m8"])
            .queues(&["greedy", "poor des=c8m16"])
            .groups(&["g greedy min=0", "p poor min=2"])
            .pods(&["g-a-0 g c4 on=n1", more, "p-a-0 p c4", "p-a-1 p c4"])
            .cycle()
            .evictions()
    };
    assert_eq!(run("g-a-1 g c4 on=n2 keep"), "");
    let bed = run("g-a-1 g c4 on=n2");
    // The greedy queue deserves nothing here.
    assert_eq!(bed, "g-a-0 g-a-1");
}

#[test]
fn a_promise_ends_with_its_taker_and_the_room_is_everybodys() {
    let mut bed = Bed::new(&everything())
        .nodes(&["n1 c4m8"])
        .queues(&["greedy", "poor des=c4m8"])
        .groups(&["g greedy min=0", "p poor", "late greedy min=1"])
        .pods(&["g-a-0 g c4 on=n1", "p-a-0 p c4"]);
    bed.cycle_at(0);
    assert_eq!((bed.evictions().as_str(), bed.promises().as_str()), ("g-a-0", "p-a-0>n1"));
    bed.end("p-a-0");
    bed.settle();
    bed.pod("l-a-0 late c4");
    bed.cycle_at(1);
    assert_eq!(bed.binds(), "l-a-0>n1");
}

#[test]
fn a_promised_place_is_nobody_elses() {
    let mut bed = Bed::new(&everything())
        .nodes(&["n1 c4m8"])
        .queues(&["greedy", "poor des=c4m8"])
        .groups(&["g greedy min=0", "p poor", "small greedy min=1 prio=100"])
        .pods(&["g-a-0 g c4 on=n1", "p-a-0 p c4"]);
    bed.cycle_at(0);
    bed.pod("s-a-0 small c1");
    bed.settle();
    bed.cycle_at(1);
    assert_eq!(bed.binds(), "p-a-0>n1");
}

#[test]
fn two_gangs_never_hold_half_each() {
    let mut bed = Bed::new(&everything())
        .nodes(&["n1 c4m8", "n2 c4m8"])
        .groups(&["a default min=2", "b default min=2"])
        .pods(&["a-a-0 a c4", "b-a-0 b c4"]);
    bed.cycle_at(0);
    bed.pod("a-a-1 a c4");
    bed.pod("b-a-1 b c4");
    bed.cycle_at(1);
    assert_eq!(bed.binds(), "a-a-0>n1 a-a-1>n2");
}

#[test]
fn a_stream_of_small_jobs_does_not_starve_a_wide_gang() {
    let mut bed =
        Bed::new(&Config::default()).nodes(&["n1 c4", "n2 c4", "n3 c4"]).groups(&["wide default min=2"]);
    bed.pod("w-a-0 wide c4");
    bed.pod("w-a-1 wide c4");
    // Twelve small pods stand at any time; each round the oldest third ends and others come.
    let mut number = 0;
    for round in 0..60 {
        while bed.pods.len() < 14 {
            bed.group(&format!("s{number} default created={number}"));
            bed.pod(&format!("s-a-{number} s{number} c1 prio=0"));
            number += 1;
        }
        if round == 0 {
            // They were there first.
            bed.cluster.remove_pod(bed.pods["w-a-0"]);
            bed.cluster.remove_pod(bed.pods["w-a-1"]);
            bed.pods.retain(|name, _| !name.starts_with('w'));
            bed.cycle_at(0);
            bed.pod("w-a-0 wide c4");
            bed.pod("w-a-1 wide c4");
        }
        bed.cycle_at(round);
        bed.settle();
        if bed.bound.contains_key("w-a-0") {
            assert!(bed.bound.contains_key("w-a-1"));
            return;
        }
        let mut running: Vec<(i64, String)> = bed
            .bound
            .keys()
            .filter_map(|name| Some((name.strip_prefix("s-a-")?.parse().ok()?, name.clone())))
            .collect();
        running.sort();
        running.into_iter().take(4).for_each(|(_, name)| bed.end(&name));
    }
    panic!("the wide gang never started: {}", bed.why("wide"));
}

#[test]
fn the_reason_is_true_now() {
    let mut bed = Bed::new(&Config::default())
        .nodes(&["n1 c4"])
        .queues(&["q cap=c6"])
        .groups(&["a q", "b q"])
        .pods(&["a-a-0 a c3 on=n1", "b-a-0 b c4"]);
    bed.cycle_at(0);
    assert_eq!(
        bed.why("b"),
        "0/1 nodes are unavailable: 1 Insufficient cpu. 0 of 1 pod fits; cpu: requested 4, available 1"
    );
    bed.cluster.put_node(&super::bed::node("n2 c8"));
    bed.cycle_at(1);
    assert_eq!(bed.why("b"), "queue q: 3 of 6 cpu are in use, 4 are asked for");
    bed.queue("q cap=c7");
    bed.cycle_at(2);
    assert_eq!((bed.why("b").as_str(), bed.binds().as_str()), ("", "b-a-0>n2"));
}
