use super::bed::Bed;
use crate::sub_groups::SubGroupPolicy;
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
