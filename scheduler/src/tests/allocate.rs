use std::collections::BTreeMap;

use super::bed::Bed;
use crate::config::Hook::*;
use crate::config::PluginName::*;
use crate::topology::{HyperNodeInput, Member};
use crate::*;

/// The hooks of the facts file's examples of allocate.
fn config() -> Config {
    Config {
        actions: vec![Action::Allocate],
        tiers: vec![vec![
            Plugin::with(Gang, &[JobOrder, JobReady, JobPipelined, JobStarving]),
            Plugin::with(Drf, &[Preemptable, JobOrder]),
            Plugin::with(Proportion, &[QueueOrder, Reclaimable, Allocatable]),
            Plugin::new(Predicates),
            Plugin::new(PluginName::NodeOrder),
        ]],
        action_arguments: BTreeMap::new(),
    }
}

#[test]
fn a_pod_that_fits_nowhere_does_not_stop_its_job() {
    let bed = Bed::new(&config())
        .nodes(&["n1 c2m4 nodeRole=worker"])
        .queues(&["c1 w1"])
        .groups(&["pg1 c1 min=1"])
        .pods(&[
            "p1 pg1 c1m1 role=master select:nodeRole=master",
            "p2 pg1 c1m1 role=worker select:nodeRole=worker",
        ])
        .cycle();
    assert_eq!(bed.binds(), "p2>n1");
}

#[test]
fn each_tasks_minimum_counts() {
    let bed = Bed::new(&config())
        .nodes(&["n1 c1m2 nodeRole=master", "n2 c2m2 nodeRole=worker"])
        .queues(&["c1"])
        .groups(&["pg1 c1 min=2 role:master=2 role:worker=0"])
        .pods(&[
            "p1 pg1 c1m1 role=master select:nodeRole=master",
            "p2 pg1 c1m1 role=worker select:nodeRole=worker",
            "p3 pg1 c1m1 role=worker select:nodeRole=worker",
        ])
        .cycle();
    assert_eq!(bed.binds(), "");
}

#[test]
fn queues_take_turns() {
    let bed = Bed::new(&config())
        .nodes(&["n1 c2m4"])
        .queues(&["c1 w1", "c2 w1"])
        .groups(&["pg1 c1 min=0", "pg2 c2 min=0"])
        .pods(&["pg1-p-1 pg1 c1m1", "pg1-p-2 pg1 c1m1", "pg2-p-1 pg2 c1m1", "pg2-p-2 pg2 c1m1"])
        .cycle();
    assert_eq!(bed.binds(), "pg1-p-1>n1 pg2-p-1>n1");
}

#[test]
fn a_gang_starts_whole_or_not_at_all_and_says_why() {
    let bed = Bed::new(&Config::default())
        .nodes(&["n1 c4", "n2 c4"])
        .groups(&["a default min=3", "b default min=2 created=1"])
        .pods(&["a-0 a c3", "a-1 a c3", "a-2 a c3", "b-0 b c3", "b-1 b c3"])
        .cycle();
    assert_eq!(bed.binds(), "b-0>n1 b-1>n2");
    assert_eq!(
        bed.why("a"),
        "0/2 nodes are unavailable: 2 Insufficient cpu. 2 of 3 pods fit; cpu: requested 3, available 1"
    );
}

#[test]
fn pods_that_ask_for_nothing_are_a_gang_as_well() {
    let mut bed = Bed::new(&Config::default())
        .nodes(&["n1 c4 pods=1"])
        .groups(&["a default min=2"])
        .pods(&["a-0 a", "a-1 a"])
        .cycle();
    assert_eq!(bed.binds(), "");
    bed.cluster.put_node(&super::bed::node("n2 c1 pods=1"));
    bed.cycle_at(1);
    assert_eq!(bed.binds().len(), "a-0>n1 a-1>n2".len());
}

#[test]
fn another_packing_is_found_where_the_pods_own_order_fails() {
    // First come first placed puts both small ones on one node and leaves no room for the large one.
    let bed = Bed::new(&Config::default())
        .nodes(&["n1 c3", "n2 c4"])
        .groups(&["a default min=3"])
        .pods(&["a-s-0 a c2 role=s", "a-s-1 a c2 role=s", "a-w-2 a c3 role=w"])
        .cycle();
    assert_eq!(bed.binds(), "a-s-0>n2 a-s-1>n2 a-w-2>n1");
}

#[test]
fn hypernodes_hold_a_gang_together() {
    let bed = |group: &str, pods: &[&str]| {
        let mut config = config();
        config.tiers[0].push(Plugin::new(NetworkTopologyAware));
        let mut bed = Bed::new(&config)
            .nodes(&["s0-n1 c2m4", "s0-n2 c2m4", "s1-n3 c2m4", "s1-n4 c2m4"])
            .queues(&["q1"]);
        let node = |name: &str| Member::Node(name.to_owned());
        for (name, tier, members) in [
            ("s0", 1, vec![node("s0-n1"), node("s0-n2")]),
            ("s1", 1, vec![node("s1-n3"), node("s1-n4")]),
            ("s2", 2, vec![Member::HyperNode("s0".into()), Member::HyperNode("s1".into())]),
        ] {
            bed.cluster.hypernodes.put(HyperNodeInput { name: name.into(), tier, members }).unwrap();
        }
        let bed = bed.groups(&[group]).pods(pods).cycle();
        bed.binds()
    };
    let three = ["p1 pg1 c2m4", "p2 pg1 c2m4", "p3 pg1 c2m4"];
    assert_eq!(bed("pg1 q1 min=3 topology=1", &three), "");
    assert_eq!(bed("pg1 q1 min=3 topology=soft", &three).split(' ').count(), 3);
    let two = bed("pg1 q1 min=2 topology=1", &three[..2]);
    assert_eq!(two, "p1>s0-n1 p2>s0-n2");
    // Where it stands already, it stays.
    assert_eq!(
        bed("pg1 q1 min=2 topology=1", &["p1 pg1 c2m4 on=s0-n1", "p2 pg1 c2m4 on=s0-n2", "p3 pg1 c2m4"]),
        ""
    );
}

#[test]
fn filters_of_kubernetes() {
    let term = |key: &str, label: &str| {
        let (name, value) = label.split_once('=').unwrap();
        PodTerm {
            namespaces: vec!["default".into()],
            selector: vec![fleet_resources::NodeSelectorRequirement {
                key: name.into(),
                operator: fleet_resources::NodeSelectorOperator::In,
                values: vec![value.into()],
            }],
            topology_key: key.into(),
        }
    };
    let nodes = ["n1 c4 zone=a host=n1", "n2 c4 zone=a host=n2", "n3 c4 zone=b host=n3"];
    let run = |standing: &[&str], pods: &[&str], extras: Extras| {
        let mut bed = Bed::new(&Config::default())
            .nodes(&nodes)
            .groups(&["s default min=0", "g default min=0"])
            .pods(standing);
        pods.iter().for_each(|pod| bed.pod_with(pod, extras.clone()));
        bed.cycle_at(0);
        let mut hosts: Vec<String> = bed.bound.values().cloned().collect();
        hosts.sort();
        (hosts.join(" "), bed.why("g"))
    };
    let port = |n| Port { protocol: "TCP".into(), address: String::new(), port: n };
    let (hosts, why) = run(
        &[],
        &["p-a-0 g c1", "p-a-1 g c1", "p-a-2 g c1", "p-a-3 g c1"],
        Extras { ports: vec![port(80)], ..Extras::default() },
    );
    assert_eq!(hosts, "n1 n2 n3");
    assert_eq!(
        why,
        "0/3 nodes are unavailable: 3 node(s) didn't have free ports for the requested pod ports."
    );
    let apart = Extras { anti_affinity: vec![term("zone", "app=x")], ..Extras::default() };
    let (hosts, _) =
        run(&[], &["p-a-0 g c1 label:app=x", "p-a-1 g c1 label:app=x", "p-a-2 g c1 label:app=x"], apart);
    assert_eq!(hosts.split(' ').count(), 2, "{hosts}");
    let near = Extras { affinity: vec![term("zone", "app=db")], ..Extras::default() };
    assert_eq!(run(&["db s c1 on=n3 label:app=db"], &["p-a-0 g c1"], near.clone()).0, "n3");
    let (hosts, why) = run(&[], &["p-a-0 g c1"], near.clone());
    assert_eq!(
        (hosts.as_str(), why.as_str()),
        ("", "0/3 nodes are unavailable: 3 node(s) didn't match pod affinity rules.")
    );
    // The first of its own kind may start anywhere.
    assert!(!run(&[], &["p-a-0 g c1 label:app=db"], near).0.is_empty());
    let spread = Extras {
        spread: vec![Spread { term: term("zone", "app=x"), max_skew: 1, hard: true }],
        ..Extras::default()
    };
    let four: Vec<String> = (0..4).map(|i| format!("p-a-{i} g c1 label:app=x")).collect();
    let four: Vec<&str> = four.iter().map(String::as_str).collect();
    let (hosts, _) = run(&[], &four, spread);
    assert_eq!(hosts.matches("n3").count(), 2, "{hosts}");
    let volume = fleet_resources::NodeSelectorTerm {
        match_expressions: term("", "zone=b").selector,
        match_fields: Vec::new(),
    };
    assert_eq!(
        run(&[], &["p-a-0 g c1"], Extras { volumes: vec![vec![volume]], ..Extras::default() }).0,
        "n3"
    );
}

#[test]
fn cordons_taints_and_unknown_nodes() {
    let mut bed = Bed::new(&Config::default())
        .nodes(&["n1 c4 cordoned", "n2 c4 taint=gpu"])
        .groups(&["g default", "s default min=0"])
        .pods(&["p g c4"]);
    // A pod is heard of before its node: what it holds is not lost.
    bed.pod("early s c3 on=n3");
    bed.cycle_at(0);
    assert_eq!(bed.binds(), "");
    assert_eq!(
        bed.why("g"),
        "0/2 nodes are unavailable: 1 node(s) had untolerated taints, 1 node(s) were unschedulable. 0 of 1 pod fits"
    );
    bed.cluster.put_node(&super::bed::node("n3 c6"));
    bed.cycle_at(1);
    assert_eq!(bed.binds(), "");
    // The node goes and comes back while the pod stands.
    bed.cluster.remove_node("n3");
    bed.cluster.put_node(&super::bed::node("n3 c6"));
    bed.cycle_at(2);
    assert_eq!(bed.binds(), "");
    bed.end("early");
    bed.cycle_at(3);
    assert_eq!(bed.binds(), "p>n3");
}

#[test]
fn binpack_scores() {
    let check = |place: usize, pod: &str, wanted: [i64; 3]| {
        let mut binpack = Plugin::new(Binpack);
        for (name, value) in [
            ("binpack.weight", "10"),
            ("binpack.cpu", "2"),
            ("binpack.memory", "3"),
            ("binpack.resources", "nvidia.com/gpu, rdma/hca"),
            ("binpack.resources.nvidia.com/gpu", "7"),
            ("binpack.resources.rdma/hca", "8"),
        ] {
            binpack = binpack.argument(name, value);
        }
        let config = Config { tiers: vec![vec![binpack]], ..Config::default() };
        let bed = Bed::new(&config)
            .nodes(&["n1 c2m4", "n2 c4m16g4", "n3 c2m4r16"])
            .groups(&["g default min=0"])
            .pods(&["p1 g c1m1 on=n1", "p2 g c1.5 on=n3", pod]);
        let id = bed.pods[&format!("q{place}")];
        let class = bed.cluster.class(bed.cluster.pod(id).class);
        let scores: Vec<i64> =
            ["n1", "n2", "n3"].map(|n| bed.cluster.score(class, bed.cluster.nodes.find(n).unwrap())).to_vec();
        let points: Vec<i64> = scores.iter().map(|score| score / (crate::score::POINT / 10)).collect();
        assert_eq!(points, wanted, "{pod}");
    };
    check(1, "q1 g c1m1", [7000, 1375, 0]);
    check(2, "q2 g c1.5", [0, 3750, 0]);
    check(3, "q3 g c2m10g2", [0, 5312, 0]);
    check(4, "q4 g c3m4r3", [0, 0, 0]);
}

#[test]
fn a_pod_with_more_resources_than_are_counted_waits_and_says_so() {
    let mut bed = Bed::new(&Config::default()).nodes(&["n1 c8"]);
    bed.group("g default min=1");
    let named = (0..30_000).map(|i| (format!("example.com/r{i}"), 1)).chain([("cpu".to_owned(), 1000)]);
    let shape = fleet_placement::PodShape { requests: named.collect(), ..Default::default() };
    let spec = std::sync::Arc::new(PodSpec { shape, extras: None });
    let group = bed.cluster.find_group("default", "g").unwrap();
    let input =
        PodInput { namespace: "default".into(), name: "a-a-0".into(), group, spec, ..PodInput::default() };
    let id = bed.cluster.add_pod(input);
    bed.pods.insert("a-a-0".to_owned(), id);
    bed.cycle_at(0);
    assert!(bed.bound.is_empty());
    let why = bed.why("g");
    assert!(why.contains("offered not all of the pod's many resources") && why.len() < 1000, "{why}");
}

/// Classes one after the other, each with a pod that is placed: none finds the best nodes of one whose number it has.
#[test]
fn a_class_with_the_number_of_another_one_finds_its_own_nodes() {
    let mut bed = Bed::new(&Config::default()).nodes(&["n1 c8 big=no", "n2 c8 big=yes"]);
    bed.group("g default min=0");
    for i in 0..3000 {
        let (node, big) = if i % 2 == 0 { ("n1", "no") } else { ("n2", "yes") };
        bed.pod(&format!("a-a-{i} g c{}.{:03} select:big={big}", 1 + i / 1000, i % 1000));
        bed.cycle_at(i64::from(i));
        let name = format!("a-a-{i}");
        assert_eq!(bed.bound.get(&name).map(String::as_str), Some(node), "{i}");
        bed.end(&name);
    }
    assert!(bed.cluster.class_slots() <= 1024);
}
