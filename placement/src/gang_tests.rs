//! Placing gangs: examples, laws, and a slow oracle beside the search.

use std::collections::BTreeMap;

use fleet_resources::Resources;
use fleet_resources::constraints::{Taint, TaintEffect, Toleration, TolerationOperator};
use proptest::prelude::*;

use crate::{Gang, GangComponent, Node, NodeIndex, PodShape, first_fit_counts, fits_empty, place_gang};
use crate::{fits_sum, free_sum, place_on_shapes, summarize};

/// `cpu` in whole cores, then GPUs.
fn amounts(cpu: i64, gpu: i64) -> Resources {
    Resources::from_pairs([("cpu", cpu * 1000), ("nvidia.com/gpu", gpu)])
}

fn node(name: &str, cpu: i64, gpu: i64) -> Node {
    Node {
        name: name.to_owned(),
        labels: BTreeMap::from([("kubernetes.io/hostname".to_owned(), name.to_owned())]),
        ready: true,
        allocatable: amounts(cpu, gpu),
        ..Node::default()
    }
}

fn component(name: &str, replicas: i64, cpu: i64, gpu: i64) -> GangComponent {
    GangComponent::whole(name, replicas, PodShape { requests: amounts(cpu, gpu), ..PodShape::default() })
}

/// `a 4/8, b 2/0`: nodes with cores and GPUs.
fn fleet(text: &str) -> NodeIndex {
    NodeIndex::new(text.split(',').map(|part| {
        let (name, amounts) = part.trim().split_once(' ').unwrap();
        let (cpu, gpu) = amounts.split_once('/').unwrap();
        node(name, cpu.parse().unwrap(), gpu.parse().unwrap())
    }))
}

/// `worker 2x4/8, master 1x1/0`
fn gang(text: &str) -> Gang {
    let components = text.split(',').map(|part| {
        let (name, rest) = part.trim().split_once(' ').unwrap();
        let (replicas, amounts) = rest.split_once('x').unwrap();
        let (cpu, gpu) = amounts.split_once('/').unwrap();
        component(name, replicas.parse().unwrap(), cpu.parse().unwrap(), gpu.parse().unwrap())
    });
    Gang { components: components.collect() }
}

/// `expected` is `component: nodes` lines, or the refusal's sentence.
fn check(nodes: &str, gang_text: &str, expected: &str) {
    let found = match place_gang(&fleet(nodes), &gang(gang_text)) {
        Ok(placement) => {
            let lines =
                placement.components.iter().map(|(name, nodes)| format!("{name}: {}", nodes.join(" ")));
            lines.collect::<Vec<_>>().join("; ")
        }
        Err(refusal) => refusal.sentence(),
    };
    assert_eq!(found, expected, "{gang_text} on {nodes}");
}

#[test]
fn small_holes_are_filled_first() {
    check("a 8/8, b 8/2, c 8/4", "w 1x1/2", "w: b");
    check("a 8/8, b 8/2, c 8/4", "w 2x1/2", "w: b c");
    check("a 8/8, b 8/2, c 8/4", "w 1x1/4", "w: c");
}

#[test]
fn pods_without_gpus_keep_off_gpu_nodes() {
    check("a 8/8, b 8/0", "m 1x1/0", "m: b");
    // Its GPUs are taken by then, so node a is as good and b stays whole.
    check("a 8/8, b 8/0", "m 1x1/0, w 1x4/8", "m: a; w: a");
}

#[test]
fn all_or_nothing_with_a_reason() {
    check(
        "a 8/1, b 8/1, c 8/1, d 8/4",
        "w 2x1/4",
        "1 of 2 pods fits, then 0/4 nodes are available: 4 Insufficient nvidia.com/gpu",
    );
    check(
        "a 8/8, b 8/8",
        "w 3x1/8",
        "2 of 3 pods fit, then 0/2 nodes are available: 2 Insufficient nvidia.com/gpu (requested 8, available 0)",
    );
    check(
        "a 2/0, b 2/0",
        "x 1x2/0, y 1x2/0, z 1x2/0",
        "2 of 3 pods fit, then 0/2 nodes are available for z: 2 Insufficient cpu (requested 2, available 0)",
    );
    check("a 1/0", "w 9999999x0/0", "the job asks for 9999999 pods at once; allowed: at most 200000");
    let empty = place_gang(&NodeIndex::default(), &gang("w 1x1/0")).unwrap_err();
    assert_eq!(empty.sentence(), "0 of 1 pod fits; there are no nodes");
    assert!(place_gang(&NodeIndex::default(), &Gang::default()).is_ok());
}

#[test]
fn nodes_are_counted_by_what_each_lacks() {
    // One node has the GPUs and lacks cpu; the others lack GPUs.
    check(
        "a 8/0, b 8/0, c 8/0, d 2/3",
        "w 1x4/3",
        "0 of 1 pod fits; 0/4 nodes are available: 3 Insufficient nvidia.com/gpu (requested 3, available 0), \
         1 Insufficient cpu (requested 4, available 2)",
    );
    // Nodes that are not equal: no amount is true of all.
    check(
        "a 8/1, b 8/2",
        "w 1x1/8",
        "0 of 1 pod fits; 0/2 nodes are available: 2 Insufficient nvidia.com/gpu",
    );
    // The pods that fit are placed before what is left is counted.
    check(
        "a 64/8, b 64/8, c 64/8, d 64/6",
        "w 20x1/8",
        "3 of 20 pods fit, then 0/4 nodes are available: 4 Insufficient nvidia.com/gpu",
    );
    // Components share the nodes: the one free node takes one pod, not one of each.
    check(
        "a 64/8, b 64/0",
        "master 1x1/8, worker 2x1/8",
        "1 of 3 pods fits, then 0/2 nodes are available: 2 Insufficient nvidia.com/gpu (requested 8, available 0)",
    );
    check(
        "a 64/8, b 4/0",
        "master 1x8/0, worker 2x1/8",
        "2 of 3 pods fit, then 0/2 nodes are available for worker: 2 Insufficient nvidia.com/gpu (requested 8, available 0)",
    );
}

#[test]
fn a_greedy_failure_is_searched_further() {
    // The 3-core pods must pair with 2-core pods: 3+2, 3+2 on two nodes of 5.
    check("a 5/0, b 5/0", "x 2x3/0, y 2x2/0", "x: a b; y: a b");
    // Largest first would put 4 on the 6 and strand a 3: only 4+2, 3+3 works.
    check("a 6/0, b 6/0", "x 1x4/0, y 2x3/0, z 1x2/0", "x: b; y: a a; z: b");
    check("a 10/0, b 7/0", "x 1x6/0, y 2x4/0, z 1x3/0", "x: a; y: a b; z: b");
}

#[test]
fn constraints_and_states_of_nodes() {
    let mut nodes = fleet("a 8/0, b 8/0, c 8/0, d 8/0");
    let change = |nodes: &mut NodeIndex, name: &str, change: fn(&mut Node)| {
        let mut node = nodes.get(name).unwrap().clone();
        change(&mut node);
        nodes.upsert(node);
    };
    change(&mut nodes, "a", |node| node.ready = false);
    change(&mut nodes, "b", |node| node.unschedulable = true);
    change(&mut nodes, "c", |node| {
        node.taints.push(Taint { key: "gpu".into(), value: String::new(), effect: TaintEffect::NoSchedule });
    });
    change(&mut nodes, "d", |node| {
        node.labels.insert("zone".into(), "z1".into());
        node.max_pods = 2;
        node.pods = 1;
    });
    let mut wanted = gang("w 1x1/0");
    let place =
        |gang: &Gang| place_gang(&nodes, gang).map(|p| p.components["w"].clone()).map_err(|r| r.sentence());
    assert_eq!(place(&wanted), Ok(vec!["d".to_owned()]));
    assert_eq!(
        place(&gang("w 2x1/0")),
        Err("1 of 2 pods fits, then 0/4 nodes are available: 3 not ready or not admitted, 1 Too many pods"
            .to_owned())
    );
    wanted.components[0].shape.node_selector.insert("zone".into(), "z2".into());
    assert_eq!(
        place(&wanted),
        Err("0 of 1 pod fits; none of 4 nodes is ready and admitted by node selector, affinity and taints"
            .to_owned())
    );
    let mut tolerant = gang("w 2x1/0");
    tolerant.components[0].shape.tolerations.push(Toleration {
        key: "gpu".into(),
        operator: TolerationOperator::Exists,
        ..Toleration::default()
    });
    assert_eq!(place(&tolerant), Ok(vec!["c".to_owned(), "d".to_owned()]));
}

#[test]
fn the_minimum_starts_and_more_where_there_is_room() {
    let mut elastic = gang("w 4x2/0");
    elastic.components[0].min = 2;
    let counts = |nodes: &str| place_gang(&fleet(nodes), &elastic).map(|p| p.components["w"].len()).ok();
    assert_eq!(counts("a 8/0"), Some(4));
    assert_eq!(counts("a 6/0"), Some(3));
    assert_eq!(counts("a 4/0"), Some(2));
    assert_eq!(counts("a 2/0"), None);
}

#[test]
fn fits_empty_ignores_what_runs() {
    let mut nodes = fleet("a 4/0");
    nodes.assign("a", &amounts(3, 0), 1);
    assert!(place_gang(&nodes, &gang("w 1x2/0")).is_err());
    assert!(fits_empty(&nodes, &gang("w 1x2/0")));
    assert!(!fits_empty(&nodes, &gang("w 1x5/0")));
}

#[test]
fn the_facts_table_sets_by_node_and_by_sum() {
    let sets = |nodes: &str, gang_text: &str| {
        let nodes: Vec<Node> = fleet(nodes).iter().cloned().collect();
        first_fit_counts(&nodes, &gang(gang_text), 100)
    };
    // Memory of the table's first row stands as the second amount.
    assert_eq!(sets("a 4/8", "web 2x1/2"), 2);
    assert_eq!(sets("a 2/0, b 2/0", "x 3x1/0"), 1);
    assert_eq!(sets("a 1/0, b 1/0, c 1/0, d 1/0", "x 1x2/0"), 0);
    let free = Resources::from_pairs([("cpu", 10_000), ("memory", 6 << 30), ("pods", 80)]);
    let mut set = gang("jm 1x1/0");
    set.components.push(GangComponent::whole(
        "tm",
        2,
        PodShape { requests: Resources::from_pairs([("cpu", 1500)]), ..PodShape::default() },
    ));
    assert_eq!(set.total().times_in(&free), Some(2));
    let four_small = summarize(fleet("a 1/0, b 1/0, c 1/0, d 1/0").iter());
    assert_eq!(fits_sum(&free_sum(&four_small), &gang("x 1x2/0")), Ok(()));
    assert!(fits_sum(&free_sum(&four_small), &gang("x 3x2/0")).is_err());
}

/// Tries every node for every pod.
fn brute_force(free: &mut [(i64, i64)], pods: &[(i64, i64)]) -> bool {
    let Some(((cpu, gpu), rest)) = pods.split_first() else {
        return true;
    };
    for i in 0..free.len() {
        if free[i].0 >= *cpu && free[i].1 >= *gpu {
            free[i] = (free[i].0 - cpu, free[i].1 - gpu);
            let fits = brute_force(free, rest);
            free[i] = (free[i].0 + cpu, free[i].1 + gpu);
            if fits {
                return true;
            }
        }
    }
    false
}

fn small_fleet() -> impl Strategy<Value = Vec<(i64, i64)>> {
    proptest::collection::vec((0_i64..9, 0_i64..5), 1..5)
}

fn small_gang() -> impl Strategy<Value = Vec<(i64, i64, i64)>> {
    proptest::collection::vec((1_i64..4, 0_i64..6, 0_i64..4), 1..4)
}

#[test]
fn a_sentence_names_some_of_many_resources() {
    let mut wanted = gang("w 1x1/0");
    (0..300)
        .for_each(|i| wanted.components[0].shape.requests.set(format!("example.com/r{i:03}").as_str(), 1));
    let nodes = NodeIndex::new([node("a", 8, 0)]);
    let text = place_gang(&nodes, &wanted).unwrap_err().sentence();
    assert!(
        text.contains("1 Insufficient example.com/r015 (requested 1, available 0) and 284 more"),
        "{text}"
    );
    assert!(text.len() < 1500, "{}", text.len());
}

fn build(nodes: &[(i64, i64)], components: &[(i64, i64, i64)]) -> (NodeIndex, Gang) {
    let nodes = nodes.iter().enumerate().map(|(i, (cpu, gpu))| node(&format!("n{i}"), *cpu, *gpu));
    let components = components
        .iter()
        .enumerate()
        .map(|(k, (replicas, cpu, gpu))| component(&format!("c{k}"), *replicas, *cpu, *gpu));
    (NodeIndex::new(nodes), Gang { components: components.collect() })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn the_search_agrees_with_brute_force(free in small_fleet(), components in small_gang()) {
        let pods: Vec<(i64, i64)> = components
            .iter()
            .flat_map(|(replicas, cpu, gpu)| (0..*replicas).map(|_| (*cpu, *gpu)))
            .collect();
        let (nodes, gang) = build(&free, &components);
        let found = place_gang(&nodes, &gang);
        prop_assert_eq!(found.is_ok(), brute_force(&mut free.clone(), &pods));
        let shapes = summarize(nodes.iter());
        prop_assert_eq!(place_on_shapes(&shapes, &gang).is_ok(), found.is_ok());
        if let Ok(placement) = found {
            // Every pod has a place, no node is over-used, and undo restores.
            let mut after = nodes.clone();
            placement.apply(&mut after, &gang);
            for node in after.iter() {
                prop_assert!(node.used.fits_in(&node.allocatable), "{:?}", node);
            }
            for component in &gang.components {
                prop_assert_eq!(placement.components[&component.name].len() as i64, component.replicas);
            }
            placement.undo(&mut after, &gang);
            prop_assert_eq!(after, nodes);
        }
    }

    #[test]
    fn names_of_nodes_do_not_decide(free in small_fleet(), components in small_gang()) {
        let (nodes, gang) = build(&free, &components);
        let reversed: Vec<(i64, i64)> = free.iter().rev().copied().collect();
        let (other, _) = build(&reversed, &components);
        prop_assert_eq!(place_gang(&nodes, &gang).is_ok(), place_gang(&other, &gang).is_ok());
    }
}

#[test]
fn a_large_gang_on_many_nodes_is_placed_whole() {
    let nodes = NodeIndex::new((0..10_000).map(|i| {
        let mut node = node(&format!("n{i:05}"), 64, 8);
        node.used = amounts(i % 13, i % 9);
        node
    }));
    let wanted = gang("master 1x4/0, worker 1024x6/8");
    let placement = place_gang(&nodes, &wanted).unwrap();
    assert_eq!(placement.components["worker"].len(), 1024);
    assert!(place_gang(&nodes, &gang("worker 1200x6/8")).is_err());
}
