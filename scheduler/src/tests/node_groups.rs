use std::collections::BTreeMap;

use super::bed::Bed;
use crate::budgets::Budget;
use crate::config::Hook::*;
use crate::config::PluginName::*;
use crate::*;

fn config(plugin: Plugin) -> Config {
    Config {
        actions: vec![Action::Allocate],
        tiers: vec![vec![Plugin::new(Gang), Plugin::new(Predicates), plugin]],
        action_arguments: BTreeMap::new(),
    }
}

const NODES: [&str; 4] = [
    "n0 c4",
    "n1 c4 volcano.sh/nodegroup-name=g1",
    "n2 c4 volcano.sh/nodegroup-name=g2",
    "n3 c4 volcano.sh/nodegroup-name=g3",
];

/// Where a pod of queue `q` goes, and another that has no room beside the first.
fn goes(plugin: Plugin, queues: &[&str]) -> (String, String) {
    let bed = Bed::new(&config(plugin))
        .nodes(&NODES)
        .queues(queues)
        .groups(&["a q", "b q"])
        .pods(&["a-a-0 a c3", "b-a-0 b c3"])
        .cycle();
    (bed.binds(), bed.why("b"))
}

#[test]
fn queues_go_to_their_groups_of_nodes() {
    let plugin = || Plugin::new(NodeGroup);
    let binds = |queues: &[&str]| goes(plugin(), queues).0;
    assert_eq!(binds(&["q in=g2"]), "a-a-0>n2");
    assert_eq!(binds(&["q in=g1,g2 rather=g2"]), "a-a-0>n2 b-a-0>n1");
    assert_eq!(binds(&["q rather=g3,g1 never=g3"]), "a-a-0>n1");
    assert_eq!(binds(&["q in=g1 notrather=g2"]), "a-a-0>n1 b-a-0>n2");
    // Without affinity there is no node, and strict or not, none of a group.
    assert_eq!(binds(&["q"]), "");
    assert_eq!(goes(plugin().argument("strict", "false"), &["q"]).0, "a-a-0>n0");
    assert_eq!(goes(plugin().argument("strict", "false"), &["q in=g1"]).0, "a-a-0>n1");
    // Of the queue above, where hierarchy is on.
    assert_eq!(binds(&["top in=g3", "q parent=top"]), "");
    let mut above = plugin();
    above.hooks.set(Hierarchy, true);
    assert_eq!(goes(above.clone(), &["top in=g3", "q parent=top"]).0, "a-a-0>n3");
    assert_eq!(goes(above, &["top in=g3", "q parent=top in=g1"]).0, "a-a-0>n1");
    let why = goes(plugin(), &["q in=g2"]).1;
    let wanted = "0/4 nodes are unavailable: 1 Insufficient cpu, 3 node(s) were not of the node groups of the pod's queue.";
    assert!(why.starts_with(wanted), "{why}");
}

#[test]
fn each_resource_has_its_strategy() {
    let binds = |plugin: Plugin, pod: &str| {
        Bed::new(&config(plugin))
            .nodes(&["n1 c8 m8 g8", "n2 c8 m8 g8"])
            .groups(&["a default", "b default"])
            .pods(&["a-a-0 a c2 m2 g2 on=n1", pod])
            .cycle()
            .binds()
    };
    let plugin = || Plugin::new(ResourceStrategyFit);
    // Nothing said: cpu and memory spread out, other resources do not matter.
    assert_eq!(binds(plugin(), "b-a-0 b c1"), "b-a-0>n2");
    let gpus = || plugin().argument("resources.nvidia.com/gpu.type", "MostAllocated");
    assert_eq!(binds(gpus(), "b-a-0 b c1 g1"), "b-a-0>n1");
    let both = |weight: &str| {
        gpus().argument("resources.cpu.type", "LeastAllocated").argument("resources.cpu.weight", weight)
    };
    assert_eq!(
        binds(both("1").argument("resources.nvidia.com/gpu.weight", "3"), "b-a-0 b c1 g1"),
        "b-a-0>n1"
    );
    assert_eq!(binds(both("3"), "b-a-0 b c1 g1"), "b-a-0>n2");
    let wrong = config(plugin().argument("resources.cpu.type", "Fullest"));
    assert_eq!(
        Policy::compile(&wrong).unwrap_err().to_string(),
        "plugin resource-strategy-fit, argument resources.cpu.type: found \"Fullest\"; allowed: LeastAllocated, MostAllocated"
    );
}

#[test]
fn nobody_leaves_whom_a_budget_keeps() {
    let run = |plugins: Vec<Plugin>, allowed: i64| {
        let config = Config {
            actions: vec![Action::Preempt],
            tiers: vec![plugins],
            action_arguments: BTreeMap::new(),
        };
        let mut bed = Bed::new(&config)
            .nodes(&["n1 c3"])
            .queues(&["q"])
            .groups(&["low q min=0 prio=1", "one q prio=9", "two q prio=9"])
            .pods(&[
                "l-a-0 low c1 on=n1 label:app=kept",
                "l-a-1 low c1 on=n1 label:app=kept",
                "l-a-2 low c1 on=n1 label:app=kept",
                "o-a-0 one c1",
                "t-a-0 two c1",
            ]);
        let requirement = fleet_resources::NodeSelectorRequirement {
            key: "app".into(),
            operator: fleet_resources::NodeSelectorOperator::In,
            values: vec!["kept".into()],
        };
        bed.cluster.set_budget("default", "b", Some(Budget { selector: vec![requirement], allowed }));
        bed.cycle_at(0);
        bed.cycle_at(1);
        bed.evicted.len()
    };
    let plugins = || {
        vec![
            Plugin::with(Priority, &[JobOrder, Preemptable]),
            Plugin::with(Gang, &[Preemptable, JobPipelined, JobStarving]),
        ]
    };
    assert_eq!(run(plugins(), 0), 2, "without the plugin nobody asks");
    let with = || plugins().into_iter().chain([Plugin::new(Pdb)]).collect::<Vec<_>>();
    assert_eq!([0, 1, 2].map(|allowed| run(with(), allowed)), [0, 1, 2]);
}
