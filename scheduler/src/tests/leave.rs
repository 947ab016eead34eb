//! Who leaves, and who is protected: plugins cdp, gang with sub-groups, rescheduling.

use std::collections::BTreeMap;

use super::bed::Bed;
use crate::config::PluginName::*;
use crate::sub_groups::SubGroupPolicy;
use crate::usage::{BUSY, Load};
use crate::*;

fn config(actions: &[Action], plugins: Vec<Plugin>) -> Config {
    let own = vec![Plugin::new(Priority), Plugin::new(Gang), Plugin::new(Predicates)];
    Config {
        actions: actions.to_vec(),
        tiers: vec![own.into_iter().chain(plugins).collect()],
        action_arguments: BTreeMap::new(),
    }
}

#[test]
fn a_pod_that_cools_is_no_victim() {
    let evicted = |plugins: Vec<Plugin>| {
        let mut bed = Bed::new(&config(&[Action::Allocate, Action::Preempt], plugins))
            .nodes(&["n1 c4"])
            .groups(&["low default min=0 prio=1", "high default prio=9"]);
        bed.pod("l-a-0 low c4 on=n1 cooldown=60");
        bed.cluster.set_started(bed.pods["l-a-0"], 100);
        bed.pod("h-a-0 high c4");
        bed.cycle_at(110);
        let early = bed.evictions();
        let next = bed.cluster.next_look();
        bed.cycle_at(160);
        (early, next, bed.evictions())
    };
    let text = |early: &str, next, late: &str| (early.to_owned(), next, late.to_owned());
    assert_eq!(evicted(vec![Plugin::new(Cdp)]), text("", Some(160), "l-a-0"));
    assert_eq!(evicted(vec![]), text("l-a-0", None, "l-a-0"));
}

#[test]
fn a_complete_sub_group_is_not_cut() {
    let evicted = |min: i64| {
        let mut bed = Bed::new(&config(&[Action::Allocate, Action::Preempt], vec![]))
            .nodes(&["n1 c4"])
            .groups(&["low default min=1 prio=1", "high default prio=9"]);
        let mut low = bed.cluster.group(bed.cluster.find_group("default", "low").unwrap()).input.clone();
        low.sub_groups =
            vec![SubGroupPolicy { keys: vec!["part".into()], size: 2, min, ..SubGroupPolicy::default() }];
        bed.cluster.put_group(low);
        for at in 0..4 {
            bed.pod(&format!("l-a-{at} low c1 on=n1 label:part={}", at / 2));
        }
        bed.pod("h-a-0 high c2");
        bed.cycle_at(0);
        bed.evictions()
    };
    let parts = |text: &str| text.split_whitespace().count();
    assert_eq!(parts(&evicted(0)), 2);
    let one_whole = evicted(1);
    assert!(["l-a-0 l-a-1", "l-a-2 l-a-3"].contains(&one_whole.as_str()), "{one_whole}");
    // Two whole parts are needed: the gang leaves as a whole, or nobody.
    assert_eq!(parts(&evicted(2)), 4);
}

fn rescheduling(strategies: &str) -> Plugin {
    Plugin::new(Rescheduling).argument("interval", "1m").argument("strategies", strategies)
}

const LOW: &str = r#"[{"name": "lowNodeUtilization", "params":
    {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 70}}}]"#;

#[test]
fn pods_leave_busy_nodes_for_idle_ones() {
    let bed = |plugin: Plugin| {
        Bed::new(&config(&[Action::Allocate, Action::Shuffle], vec![plugin]))
            .nodes(&["busy c10", "idle c10", "half c10"])
            .groups(&["a default min=0 prio=5", "b default min=0 prio=1", "gang default min=2"])
            .pods(&["a-a-0 a c4 on=busy prio=5", "b-a-0 b c1 on=busy prio=1", "b-a-1 b c1 on=busy prio=1"])
            .pods(&["g-a-0 gang c2 on=busy", "g-a-1 gang c2 on=busy", "h-a-0 a c5 on=half"])
    };
    let mut moved = bed(rescheduling(LOW));
    moved.cycle_at(0);
    // From 100 to 80 percent by the least important pods, and below 70 by one more; the gang is not cut.
    assert_eq!(moved.evictions(), "a-a-0 b-a-0 b-a-1");
    let mut nobody = bed(rescheduling("[]"));
    nobody.cycle_at(0);
    assert_eq!(nobody.evictions(), "");
    let mut queue = bed(rescheduling(LOW).argument("queueSelector", r#"["other"]"#));
    queue.cycle_at(0);
    assert_eq!(queue.evictions(), "");
}

#[test]
fn moves_keep_their_interval_and_need_an_idle_node() {
    let bed = || {
        Bed::new(&config(&[Action::Allocate, Action::Shuffle], vec![rescheduling(LOW)]))
            .nodes(&["n1 c10"])
            .groups(&["a default min=0"])
            .pods(&["a-a-0 a c4 on=n1", "a-a-1 a c4 on=n1"])
    };
    let mut alone = bed();
    alone.cycle_at(0);
    assert_eq!(alone.evictions(), "", "there is no other node");
    assert_eq!(alone.cluster.next_look(), Some(60));
    alone.cluster.put_node(&super::bed::node("n2 c10"));
    alone.cycle_at(30);
    assert_eq!(alone.evictions(), "", "it looks once a minute");
    alone.cycle_at(60);
    assert_eq!(alone.evictions(), "a-a-0");
}

#[test]
fn measured_load_decides_where_there_is_one() {
    let mut bed = Bed::new(&config(&[Action::Shuffle], vec![rescheduling(LOW)]))
        .nodes(&["n1 c10", "n2 c10"])
        .groups(&["a default min=0"])
        .pods(&["a-a-0 a c1 on=n1"]);
    bed.cluster.set_load("n1", Load { cpu: BUSY * 9 / 10, memory: 0, at: 0 });
    bed.cluster.set_load("n2", Load { cpu: BUSY / 2, memory: 0, at: 0 });
    bed.cycle_at(0);
    assert_eq!(bed.evictions(), "", "n2 is not idle");
    bed.cluster.set_load("n2", Load { cpu: BUSY / 10, memory: 0, at: 60 });
    bed.cycle_at(60);
    assert_eq!(bed.evictions(), "a-a-0");
}

#[test]
fn measured_loads_are_averaged_over_their_period() {
    let bed = |plugin: Plugin| {
        Bed::new(&config(&[Action::Shuffle], vec![plugin]))
            .nodes(&["n1 c10", "n2 c10"])
            .groups(&["a default min=0"])
            .pods(&["a-a-0 a c1 on=n1"])
    };
    let load = |bed: &mut Bed, node: &str, percent: i64, at: i64| {
        bed.cluster.set_load(node, Load { cpu: BUSY * percent / 100, memory: 0, at });
    };
    // A peak of a moment moves nobody; one that lasts does.
    let mut steady = bed(rescheduling(LOW).argument("metricsPeriod", "2m"));
    for at in [0, 30, 60] {
        load(&mut steady, "n1", if at == 60 { 95 } else { 40 }, at);
        load(&mut steady, "n2", 10, at);
    }
    steady.cycle_at(60);
    assert_eq!(steady.evictions(), "", "58 percent");
    for at in [90, 120, 150] {
        load(&mut steady, "n1", 95, at);
        load(&mut steady, "n2", 10, at);
    }
    steady.cycle_at(150);
    assert_eq!(steady.evictions(), "a-a-0", "the first readings are older than the period");
    // Without a period the last reading counts.
    let mut hasty = bed(rescheduling(LOW));
    load(&mut hasty, "n1", 40, 0);
    load(&mut hasty, "n1", 95, 60);
    load(&mut hasty, "n2", 10, 60);
    hasty.cycle_at(60);
    assert_eq!(hasty.evictions(), "a-a-0");
}

#[test]
fn mistakes_of_rescheduling_are_named() {
    let check = |argument: &str, value: &str, wanted: &str| {
        let plugin = Plugin::new(Rescheduling).argument(argument, value);
        let error = Policy::compile(&config(&[Action::Shuffle], vec![plugin])).unwrap_err().to_string();
        assert_eq!(error, format!("plugin rescheduling, argument {argument}: {wanted}"));
    };
    check("interval", "0s", "found \"0s\"; allowed: a duration from 1s, such as 5m");
    check("metricsPeriod", "soon", "found \"soon\"; allowed: a duration from 1s, such as 5m");
    check("strategies", r#"[{"name": "offline"}]"#, "found \"offline\"; allowed: lowNodeUtilization");
    check(
        "strategies",
        r#"[{"name": "lowNodeUtilization", "params": {"thresholds": {"gpu": 1}}}]"#,
        "found \"gpu\"; allowed: cpu, memory, pods",
    );
    check(
        "strategies",
        r#"[{"name": "lowNodeUtilization", "params": {"targetThresholds": {"cpu": 120}}}]"#,
        "found \"120\"; allowed: whole percents from 0 to 100",
    );
}
