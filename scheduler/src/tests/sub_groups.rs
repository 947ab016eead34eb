use super::bed::Bed;
use crate::sub_groups::SubGroupPolicy;
use crate::topology::{HyperNodeInput, Member};
use crate::*;

/// A gang of `min` pods in partitions of two, of which two must be whole.
fn bed(min: i64, first: bool) -> Bed {
    let bed = Bed::new(&Config::default()).nodes(&["n1 c4"]).groups(&["g default"]);
    let divided = |mut bed: Bed| {
        bed.cluster.put_group(GroupInput {
            namespace: "default".into(),
            name: "g".into(),
            queue: "default".into(),
            min_member: min,
            phase: Phase::Inqueue,
            sub_groups: vec![SubGroupPolicy {
                name: "worker".into(),
                keys: vec!["part".into()],
                size: 2,
                min: 2,
                ..SubGroupPolicy::default()
            }],
            ..GroupInput::default()
        });
        bed
    };
    let pods = ["p-w-0 g c1 label:part=0", "p-w-2 g c1 label:part=1", "p-w-3 g c1 label:part=1"];
    // The PodGroup may be seen before its pods, or after them.
    if first { divided(bed).pods(&pods) } else { divided(bed.pods(&pods)) }
}

#[test]
fn a_gang_starts_with_as_many_whole_partitions_as_it_needs() {
    for first in [true, false] {
        let mut bed = bed(3, first);
        bed.cycle_at(0);
        assert_eq!(bed.binds(), "", "one partition lacks a pod");
        let group = bed.cluster.group(bed.cluster.find_group("default", "g").unwrap());
        let (reason, sentence) = group.validity().unwrap_err();
        assert_eq!(reason, "NotEnoughPodsOfTask");
        assert_eq!(sentence, "waiting for the gang: 1 of 2 partitions of worker have 2 pods");
        bed.pod("p-w-1 g c1 label:part=0");
        bed.cycle_at(1);
        assert_eq!(bed.bound.len(), 4, "all of both, though three pods are its minimum");
    }
}

#[test]
fn a_gang_whose_partitions_do_not_fit_takes_nothing() {
    let mut bed = bed(2, true);
    bed.pod("p-w-1 g c2 label:part=0");
    bed.cycle_at(0);
    assert_eq!(bed.binds(), "");
    assert!(bed.why("g").contains("not all together"), "{}", bed.why("g"));
}

/// Two partitions of two pods with a topology of their own, on racks of two nodes with room for one pod each.
fn divided(racks: i64, hard: bool, tier: Option<i64>) -> Bed {
    let mut bed = Bed::new(&Config::default()).groups(&["g default"]);
    for at in 0..racks * 2 {
        bed.cluster.put_node(&super::bed::node(&format!("n{at} c1 rack=r{}", at / 2)));
    }
    for rack in 0..racks {
        let name = format!("rack-{rack}");
        let members = (rack * 2..rack * 2 + 2).map(|at| Member::Node(format!("n{at}"))).collect();
        let input = HyperNodeInput { name: name.as_str().into(), tier: 1, members };
        bed.cluster.hypernodes.put(input).unwrap();
    }
    let all = (0..racks).map(|rack| Member::HyperNode(format!("rack-{rack}"))).collect();
    let input = HyperNodeInput { name: "all".into(), tier: 2, members: all };
    bed.cluster.hypernodes.put(input).unwrap();
    let mut group = bed.cluster.group(bed.cluster.find_group("default", "g").unwrap()).input.clone();
    group.min_member = 4;
    group.sub_groups = vec![SubGroupPolicy {
        name: "worker".into(),
        keys: vec!["part".into()],
        size: 2,
        min: 2,
        topology: Some(crate::group::Topology { hard, highest_tier: tier }),
        ..SubGroupPolicy::default()
    }];
    bed.cluster.put_group(group);
    for at in 0..4 {
        bed.pod(&format!("p-w-{at} g c1 label:part={}", at % 2));
    }
    bed
}

fn racks(bed: &Bed) -> Vec<String> {
    let rack = |pod: &str| {
        bed.bound.get(pod).map_or("-".to_owned(), |node| {
            let node = bed.cluster.nodes.find(node).unwrap();
            bed.cluster.nodes.get(node).labels["rack"].clone()
        })
    };
    (0..4).map(|at| rack(&format!("p-w-{at}"))).collect()
}

#[test]
fn each_partition_has_a_domain_of_its_own() {
    let mut bed = divided(3, true, Some(1));
    bed.cycle_at(0);
    let racks = racks(&bed);
    assert_eq!((&racks[0], &racks[1]), (&racks[2], &racks[3]), "{racks:?}");
    assert_ne!(racks[0], racks[1]);
}

#[test]
fn a_partition_that_fits_no_domain_keeps_the_gang_waiting() {
    // One node of each of two racks is in use: two pods fit nowhere together below tier 2.
    let crowded = |hard, tier| {
        let mut bed = divided(4, hard, tier);
        bed.group("other default min=0");
        for node in ["n0", "n2", "n4"] {
            bed.pod(&format!("o-{node} other c1 on={node}"));
        }
        bed.cycle_at(0);
        bed
    };
    let bed = crowded(true, Some(1));
    assert_eq!(bed.binds(), "");
    assert_eq!(bed.why("g"), "none of 4 hypernodes up to tier 1 has room for 2 pods of a partition");
    assert_eq!(crowded(true, Some(2)).bound.len(), 4, "a higher tier holds both");
    assert_eq!(crowded(false, None).bound.len(), 4, "a soft wish is given up");
}

#[test]
fn a_replacement_joins_its_partition() {
    let mut bed = divided(3, true, Some(1));
    bed.cycle_at(0);
    bed.settle();
    let before = racks(&bed);
    bed.end("p-w-2");
    bed.pod("p-w-2 g c1 label:part=0");
    bed.cycle_at(1);
    assert_eq!(racks(&bed), before);
}
