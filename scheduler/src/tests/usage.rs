use super::bed::Bed;
use crate::config::PluginName::*;
use crate::usage::Load;
use crate::*;

fn percent(cpu: i64, memory: i64, at: i64) -> Load {
    Load { cpu: cpu * 10_000, memory: memory * 10_000, at }
}

fn bed(usage: Plugin) -> Bed {
    let config = Config {
        actions: vec![Action::Allocate],
        tiers: vec![vec![Plugin::new(Gang), Plugin::new(Predicates), usage]],
        ..Config::default()
    };
    Bed::new(&config).nodes(&["n1 c8m8", "n2 c8m8", "n3 c8m8"])
}

fn measure(bed: &mut Bed, loads: [(i64, i64); 3], at: i64) {
    for (node, (cpu, memory)) in ["n1", "n2", "n3"].into_iter().zip(loads) {
        bed.cluster.set_load(node, percent(cpu, memory, at));
    }
}

#[test]
fn a_busy_node_takes_nobody() {
    let mut bed = bed(Plugin::new(Usage)).groups(&["a default"]).pods(&["a-a-0 a c1m1"]);
    measure(&mut bed, [(81, 10), (80, 81), (99, 99)], 0);
    bed.cycle_at(1);
    assert_eq!(bed.binds(), "");
    assert_eq!(
        bed.why("a"),
        "0/3 nodes are unavailable: 1 node(s) were over the threshold of measured memory load, \
         2 node(s) were over the threshold of measured cpu load."
    );
    // At the threshold is not over it.
    measure(&mut bed, [(81, 10), (80, 80), (99, 99)], 30);
    bed.cycle_at(31);
    assert_eq!(bed.binds(), "a-a-0>n2");
}

#[test]
fn thresholds_and_weights_are_arguments() {
    let usage = Plugin::new(Usage).argument("thresholds.cpu", "50").argument("cpu.weight", "0");
    let mut bed = bed(usage).groups(&["a default"]).pods(&["a-a-0 a c1m1"]);
    // Memory alone scores: the idlest by cpu is not the one.
    measure(&mut bed, [(10, 50), (50, 40), (51, 0)], 0);
    bed.cycle_at(0);
    assert_eq!(bed.binds(), "a-a-0>n2");
    let wrong = |argument: &str, value: &str, wanted: &str| {
        let plugin = Plugin::new(Usage).argument(argument, value);
        let config = Config { tiers: vec![vec![plugin]], ..Config::default() };
        assert_eq!(Policy::compile(&config).unwrap_err().to_string(), wanted);
    };
    wrong(
        "thresholds.mem",
        "180",
        "plugin usage, argument thresholds.mem: found \"180\"; allowed: a number of percent from 0 to 100",
    );
    wrong(
        "cpu.weight",
        "-1",
        "plugin usage, argument cpu.weight: found \"-1\"; allowed: a whole number from 0",
    );
}

#[test]
fn without_its_filter_a_busy_node_is_only_the_last_choice() {
    let mut bed =
        bed(Plugin::new(Usage).without(Hook::Predicate)).groups(&["a default"]).pods(&["a-a-0 a c1m1"]);
    measure(&mut bed, [(99, 99), (95, 95), (97, 97)], 0);
    bed.cycle_at(0);
    assert_eq!(bed.binds(), "a-a-0>n2");
}

#[test]
fn a_measurement_of_long_ago_says_nothing() {
    let mut bed = bed(Plugin::new(Usage)).groups(&["a default", "b default"]).pods(&["a-a-0 a c1m1"]);
    measure(&mut bed, [(90, 90), (90, 90), (90, 90)], 0);
    bed.cluster.set_load("n3", percent(90, 90, 100));
    bed.cycle_at(300);
    assert_eq!(bed.binds(), "");
    bed.cycle_at(301);
    assert_eq!(bed.binds(), "a-a-0>n1");
    // The one that was measured later is still busy then.
    bed.pod("b-a-0 b c7.5m1");
    bed.pod("b-a-1 b c7.5m1");
    bed.cycle_at(302);
    assert_eq!(bed.binds(), "a-a-0>n1 b-a-0>n2");
    bed.cycle_at(401);
    assert_eq!(bed.binds(), "a-a-0>n1 b-a-0>n2 b-a-1>n3");
}

/// Twelve pods between two measurements: the idlest node does not get them all.
#[test]
fn what_was_placed_since_counts_as_load() {
    let mut bed = bed(Plugin::new(Usage)).groups(&["a default"]);
    measure(&mut bed, [(10, 10), (20, 20), (30, 30)], 0);
    (0..12).for_each(|n| bed.pod(&format!("a-a-{n} a c1m1")));
    bed.cycle_at(0);
    let on = |node: &str| bed.bound.values().filter(|on| *on == node).count();
    assert_eq!([on("n1"), on("n2"), on("n3")], [5, 4, 3]);
    // What stands is part of the next measurement.
    measure(&mut bed, [(70, 70), (40, 40), (50, 50)], 30);
    bed.pod("a-a-12 a c1m1");
    bed.cycle_at(30);
    assert_eq!(bed.bound["a-a-12"], "n2");
}
