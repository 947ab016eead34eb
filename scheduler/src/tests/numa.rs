use super::bed::Bed;
use crate::config::PluginName::*;
use crate::numa::{Numa, NumaAsk, NumaCell, NumaPolicy, give};
use crate::*;

#[test]
fn containers_are_aligned_as_the_kubelet_aligns_them() {
    use NumaPolicy::{BestEffort, Restricted, SingleNumaNode};
    let given = |policy, free: &[i64], cpus: &[i64]| give(policy, &vec![8; free.len()], free, cpus);
    // One cell could do, so spreading is what restricted refuses.
    assert_eq!(given(SingleNumaNode, &[8, 8], &[6]), Some(vec![6, 0]));
    assert_eq!(given(SingleNumaNode, &[4, 8], &[6]), Some(vec![0, 6]));
    for (policy, wanted) in [(BestEffort, Some(vec![4, 2])), (Restricted, None), (SingleNumaNode, None)] {
        assert_eq!(given(policy, &[4, 4], &[6]), wanted, "{policy:?}");
    }
    // Two cells are needed anyway: restricted takes it, one cell never will.
    assert_eq!(given(Restricted, &[8, 8], &[12]), Some(vec![8, 4]));
    assert_eq!(given(SingleNumaNode, &[8, 8], &[12]), None);
    // Three where two could do.
    assert_eq!(given(Restricted, &[5, 5, 5, 0], &[12]), None);
    assert_eq!(given(Restricted, &[5, 8, 5, 0], &[12]), Some(vec![4, 8, 0, 0]));
    // Container after container.
    assert_eq!(given(SingleNumaNode, &[8, 8], &[5, 5]), Some(vec![5, 5]));
    assert_eq!(given(SingleNumaNode, &[8, 8], &[5, 5, 5]), None);
    assert_eq!(given(BestEffort, &[1, 1], &[3]), None, "there are no three cpus");
    assert_eq!(given(SingleNumaNode, &[0, 0], &[]), Some(vec![0, 0]));
}

fn bed() -> Bed {
    let config = Config {
        actions: vec![Action::Allocate],
        tiers: vec![vec![Plugin::new(Gang), Plugin::new(Predicates), Plugin::new(NumaAware)]],
        ..Config::default()
    };
    Bed::new(&config).nodes(&["n1 c16m16", "n2 c16m16"]).groups(&["a default", "b default"])
}

fn report(policy: NumaPolicy, free: &[i64]) -> Option<Numa> {
    let cells = free.iter().map(|free| NumaCell { capacity: 8, free: *free }).collect();
    Some(Numa { policy, exclusive: true, cells })
}

fn pod(bed: &mut Bed, text: &str, policy: NumaPolicy, cpus: &[i64]) {
    let numa = Some(NumaAsk { policy, cpus: cpus.to_vec() });
    bed.pod_with(text, Extras { numa, ..Extras::default() });
}

#[test]
fn a_pod_goes_where_its_cpus_are_close_together() {
    let mut bed = bed();
    bed.cluster.set_numa("n1", report(NumaPolicy::SingleNumaNode, &[4, 4]));
    pod(&mut bed, "a-a-0 a c6m1", NumaPolicy::SingleNumaNode, &[6]);
    bed.cycle_at(0);
    assert_eq!(bed.binds(), "");
    assert_eq!(
        bed.why("a"),
        "0/2 nodes are unavailable: 1 node(s) didn't report the pod's NUMA policy, \
         1 node(s) had not enough free cpus close together."
    );
    bed.cluster.set_numa("n2", report(NumaPolicy::Restricted, &[8, 8]));
    bed.cycle_at(1);
    assert_eq!(bed.binds(), "", "another policy is not its own");
    bed.cluster.set_numa("n2", report(NumaPolicy::SingleNumaNode, &[2, 6]));
    bed.cycle_at(2);
    assert_eq!(bed.binds(), "a-a-0>n2");
}

#[test]
fn a_pod_without_a_policy_is_not_sent_where_the_kubelet_refuses_it() {
    let mut bed = bed();
    bed.cluster.set_numa("n1", report(NumaPolicy::SingleNumaNode, &[4, 4]));
    pod(&mut bed, "a-a-0 a c6m1", NumaPolicy::None, &[6]);
    bed.cycle_at(0);
    assert_eq!(bed.binds(), "a-a-0>n2");
    // A node that gives no whole cpus takes it as any other.
    let shared = report(NumaPolicy::SingleNumaNode, &[4, 4]).map(|numa| Numa { exclusive: false, ..numa });
    bed.cluster.set_numa("n1", shared);
    pod(&mut bed, "b-a-0 b c16m1", NumaPolicy::None, &[16]);
    bed.cycle_at(1);
    assert_eq!(bed.binds(), "a-a-0>n2 b-a-0>n1");
}

#[test]
fn fewer_cells_are_better() {
    let mut bed = bed();
    bed.cluster.set_numa("n1", report(NumaPolicy::BestEffort, &[4, 4]));
    bed.cluster.set_numa("n2", report(NumaPolicy::BestEffort, &[0, 8]));
    pod(&mut bed, "a-a-0 a c6m1", NumaPolicy::BestEffort, &[6]);
    bed.cycle_at(0);
    assert_eq!(bed.binds(), "a-a-0>n2");
}

/// Two pods of six fit the cells, a third does not, before and after the exporter has said so.
#[test]
fn what_was_given_since_the_last_report_is_counted_once() {
    let mut bed = bed();
    bed.cluster.set_numa("n1", report(NumaPolicy::SingleNumaNode, &[8, 8]));
    for n in 0..3 {
        pod(&mut bed, &format!("a-a-{n} a c5m1"), NumaPolicy::SingleNumaNode, &[5]);
    }
    bed.cycle_at(0);
    assert_eq!(bed.binds(), "a-a-0>n1 a-a-1>n1");
    // The first one runs, the report says so; the second has not started.
    let (first, second) = (bed.pods["a-a-0"], bed.pods["a-a-1"]);
    bed.cluster.update_pod(first, Status::Running, Some("n1"));
    bed.cluster.update_pod(second, Status::Bound, Some("n1"));
    bed.cluster.set_numa("n1", report(NumaPolicy::SingleNumaNode, &[3, 8]));
    pod(&mut bed, "b-a-0 b c3m1", NumaPolicy::SingleNumaNode, &[3]);
    pod(&mut bed, "b-a-1 b c3m1", NumaPolicy::SingleNumaNode, &[3]);
    bed.cycle_at(1);
    assert_eq!(bed.binds(), "a-a-0>n1 a-a-1>n1 b-a-0>n1 b-a-1>n1");
    // Both ended: what the report does not show free yet is not handed out.
    bed.end("a-a-0");
    bed.cycle_at(2);
    assert_eq!(bed.binds(), "a-a-1>n1 b-a-0>n1 b-a-1>n1");
    bed.cluster.set_numa("n1", report(NumaPolicy::SingleNumaNode, &[8, 8]));
    bed.cycle_at(3);
    assert_eq!(bed.binds(), "a-a-1>n1 a-a-2>n1 b-a-0>n1 b-a-1>n1");
}

#[test]
fn who_leaves_makes_room_in_its_cell() {
    let config = Config {
        actions: vec![Action::Allocate, Action::Preempt],
        tiers: vec![vec![
            Plugin::new(Priority),
            Plugin::new(Gang),
            Plugin::new(Predicates),
            Plugin::new(NumaAware),
        ]],
        ..Config::default()
    };
    let mut bed = Bed::new(&config).nodes(&["n1 c16m16"]).groups(&["low default", "high default prio=9"]);
    bed.cluster.set_numa("n1", report(NumaPolicy::SingleNumaNode, &[8, 8]));
    for n in 0..2 {
        pod(&mut bed, &format!("low-a-{n} low c5m1"), NumaPolicy::SingleNumaNode, &[5]);
    }
    bed.cycle_at(0);
    bed.settle();
    // Six cpus are free, three in each cell.
    pod(&mut bed, "high-a-0 high c6m1 prio=9", NumaPolicy::SingleNumaNode, &[6]);
    bed.cycle_at(1);
    assert_eq!(bed.evictions().split(' ').count(), 1, "{}", bed.evictions());
    assert_eq!(bed.promises(), "high-a-0>n1");
    bed.settle();
    bed.cycle_at(2);
    assert!(bed.binds().contains("high-a-0>n1"), "{}", bed.binds());
}
