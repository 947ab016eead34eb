//! Tasks that share nodes or keep apart.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::bed::Bed;
use crate::config::PluginName::*;
use crate::*;

fn config(weight: &str) -> Config {
    Config {
        actions: vec![Action::Allocate],
        tiers: vec![vec![
            Plugin::new(Gang),
            Plugin::new(Predicates),
            // Spreads, so that what comes together does so by the buckets.
            Plugin::new(PluginName::NodeOrder),
            Plugin::new(PluginName::TaskTopology).argument("task-topology.weight", weight),
        ]],
        action_arguments: BTreeMap::new(),
    }
}

fn job(bed: &mut Bed, group: &str, tasks: &[(&str, usize, &str)]) {
    bed.group(group);
    let name = group.split(' ').next().unwrap();
    for (role, count, amounts) in tasks {
        (0..*count).for_each(|i| bed.pod(&format!("{name}-{role}-{i} {name} {amounts} role={role}")));
    }
}

/// Roles on each node, sorted.
fn by_node(bed: &Bed) -> Vec<String> {
    let mut nodes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (pod, node) in &bed.bound {
        nodes.entry(node).or_default().push(pod.split('-').nth(1).unwrap());
    }
    nodes
        .into_values()
        .map(|mut roles| {
            roles.sort_unstable();
            roles.join(" ")
        })
        .collect()
}

#[test]
fn each_worker_stands_beside_a_parameter_server() {
    let nodes = ["n1 c4m4", "n2 c4m4", "n3 c4m4", "n4 c4m4"];
    let tasks = [("ps", 2, "c1m1"), ("worker", 2, "c1m1")];
    let mut bed = Bed::new(&config("10")).nodes(&nodes);
    job(&mut bed, "j default min=4 near=ps,worker apart=ps", &tasks);
    bed.cycle_at(0);
    assert_eq!(by_node(&bed), ["ps worker", "ps worker"]);
    // The same pods without the rules spread.
    let mut bed = Bed::new(&config("10")).nodes(&nodes);
    job(&mut bed, "j default min=4", &tasks);
    bed.cycle_at(0);
    assert_eq!(by_node(&bed).len(), 4);
    // And where the plugin's weight is nothing, only the order of tasks is left.
    let mut bed = Bed::new(&config("0")).nodes(&nodes);
    job(&mut bed, "j default min=4 near=ps,worker apart=ps", &tasks);
    bed.cycle_at(0);
    assert_eq!(by_node(&bed).len(), 4);
}

#[test]
fn a_task_that_likes_its_own_comes_together_as_far_as_it_fits() {
    let mut bed = Bed::new(&config("10")).nodes(&["n1 c2", "n2 c3", "n3 c2"]);
    job(&mut bed, "j default min=3 near=worker", &[("worker", 3, "c1")]);
    bed.cycle_at(0);
    assert_eq!(bed.binds(), "j-worker-0>n2 j-worker-1>n2 j-worker-2>n2");
}

#[test]
fn what_comes_later_joins_what_stands() {
    let mut bed = Bed::new(&config("10")).nodes(&["n1 c8", "n2 c4", "n3 c8"]);
    bed.group("j default min=1 near=ps,worker");
    bed.pod("j-ps-0 j c1 role=ps on=n2");
    bed.pod("j-worker-0 j c1 role=worker");
    bed.cycle_at(0);
    assert_eq!(bed.binds(), "j-worker-0>n2");
}

#[test]
fn tasks_are_placed_in_the_order_the_annotation_names() {
    // Room for one: the one that is named first has it.
    let mut bed = Bed::new(&config("1")).nodes(&["n1 c1"]);
    job(&mut bed, "j default min=1 apart=ps,worker order=worker,ps", &[("ps", 1, "c1"), ("worker", 1, "c1")]);
    bed.cycle_at(0);
    assert_eq!(bed.binds(), "j-worker-0>n1");
}

#[test]
fn rules_that_cannot_be_kept_keep_nobody_waiting() {
    let mut bed = Bed::new(&config("10")).nodes(&["n1 c4"]);
    job(&mut bed, "j default min=3 apart=ps", &[("ps", 3, "c1")]);
    bed.cycle_at(0);
    assert_eq!(bed.bound.len(), 3);
}

proptest! {
    /// Whatever the rules say, the same pods find places as without them; and alike tasks kept apart stand on as many
    /// nodes as there are of either.
    #[test]
    fn rules_are_wishes(
        nodes in proptest::collection::vec(1_i64..6, 1..5),
        ps in 0_usize..4, workers in 1_usize..4, near in any::<bool>(), apart in any::<bool>(),
    ) {
        let names: Vec<String> = nodes.iter().enumerate().map(|(i, c)| format!("n{i} c{c}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let tasks = [("ps", ps, "c1"), ("worker", workers, "c1")];
        let min = ps + workers;
        let rules = match (near, apart) {
            (true, true) => " near=ps,worker apart=worker",
            (true, false) => " near=ps,worker",
            (false, true) => " apart=worker",
            (false, false) => "",
        };
        let mut plain = Bed::new(&config("10")).nodes(&names);
        job(&mut plain, &format!("j default min={min}"), &tasks);
        plain.cycle_at(0);
        let mut ruled = Bed::new(&config("10")).nodes(&names);
        job(&mut ruled, &format!("j default min={min}{rules}"), &tasks);
        ruled.cycle_at(0);
        prop_assert_eq!(plain.bound.len(), ruled.bound.len());
        if apart && !near && !ruled.bound.is_empty() && ps == 0 {
            let used: BTreeSet<&String> = ruled.bound.values().collect();
            prop_assert_eq!(used.len(), workers.min(nodes.len()));
        }
    }
}
