//! Hierarchical dominant resource fairness: Volcano's examples, a slow floating-point reading of the rules, reclaim.

use std::collections::BTreeMap;

use fleet_scheduler_state::shares::{
    WHOLE,
    fair_tree::{self, Children, Fair},
};
use proptest::prelude::*;

use super::bed::Bed;
use crate::config::Hook::*;
use crate::config::PluginName::*;
use crate::*;

fn config(actions: &[Action]) -> Config {
    Config {
        actions: actions.to_vec(),
        tiers: vec![
            vec![Plugin::with(Drf, &[Hierarchy, QueueOrder, JobOrder, Reclaimable]), Plugin::new(Predicates)],
            vec![Plugin::with(Gang, &[JobStarving])],
        ],
        action_arguments: BTreeMap::new(),
    }
}

/// How many pods of each group are bound.
fn bound(bed: &Bed, groups: &[&str]) -> Vec<usize> {
    groups
        .iter()
        .map(|group| bed.bound.keys().filter(|pod| pod.starts_with(&format!("{group}-"))).count())
        .collect()
}

fn ten(bed: &mut Bed, group: &str, amounts: &str, count: usize) {
    bed.group(&format!("{group} {group} min=0"));
    (0..count).for_each(|i| bed.pod(&format!("{group}-p-{i} {group} {amounts}")));
}

#[test]
fn branches_share_by_weight_whatever_stands_below_them() {
    let mut bed = Bed::new(&config(&[Action::Allocate])).nodes(&["n c10m10 pods=1000"]).queues(&[
        "sci tree=root/sci:100/50",
        "dev tree=root/eng/dev:100/50/50",
        "prod tree=root/eng/prod:100/50/50",
    ]);
    ten(&mut bed, "sci", "c1m1", 10);
    ten(&mut bed, "dev", "c1", 10);
    ten(&mut bed, "prod", "m1", 10);
    bed.cycle_at(0);
    assert_eq!(bound(&bed, &["sci", "dev", "prod"]), [5, 5, 5]);
}

#[test]
fn what_one_branch_cannot_use_goes_to_the_others() {
    let mut bed = Bed::new(&config(&[Action::Allocate])).nodes(&["n c30m30 pods=1000"]).queues(&[
        "pg1 tree=root/pg1:100/25",
        "pg2 tree=root/pg2:100/25",
        "pg31 tree=root/pg3/pg31:100/25/50",
        "pg32 tree=root/pg3/pg32:100/25/50",
        "pg4 tree=root/pg4:100/25",
    ]);
    for (group, amounts) in [("pg1", "c1"), ("pg2", "c1"), ("pg31", "c1"), ("pg32", "m1"), ("pg4", "m1")] {
        ten(&mut bed, group, amounts, 30);
    }
    bed.cycle_at(0);
    let found = bound(&bed, &["pg1", "pg2", "pg31", "pg32", "pg4"]);
    for (found, wanted) in found.iter().zip([10, 10, 10, 15, 15]) {
        assert!(found.abs_diff(wanted) <= 1, "{found} of {wanted}");
    }
}

#[test]
fn weights_count_and_queues_without_annotations_stand_where_their_parent_has_them() {
    let mut bed = Bed::new(&config(&[Action::Allocate])).nodes(&["n c12 pods=1000"]).queues(&[
        "top w2",
        "a parent=top w1",
        "b parent=top w1",
        "c w1",
    ]);
    for group in ["a", "b", "c"] {
        ten(&mut bed, group, "c1", 20);
    }
    bed.cycle_at(0);
    assert_eq!(bound(&bed, &["a", "b", "c"]), [4, 4, 4]);
}

#[test]
fn a_branch_below_its_share_takes_back_from_one_above_it() {
    let mut bed = Bed::new(&config(&[Action::Allocate, Action::Reclaim]))
        .nodes(&["n c10 pods=1000"])
        .queues(&["a tree=root/a:1/1", "b tree=root/b:1/1", "c tree=root/b/c:1/1/1"]);
    bed.group("a a min=0");
    (0..9).for_each(|i| bed.pod(&format!("a-p-{i} a c1 on=n")));
    bed.group("c c min=1");
    bed.pod("c-p-0 c c1");
    bed.pod("c-p-1 c c1");
    bed.cycle_at(0);
    assert_eq!(bound(&bed, &["c"]), [1]);
    // One more pod has to come from the other branch: 1 + 1 against 9 - 1.
    bed.settle();
    bed.group("c c min=2");
    bed.cycle_at(1);
    assert_eq!(bed.evictions(), "a-p-8");
}

#[test]
fn nobody_gives_way_where_the_taker_would_not_stand_before_him() {
    let mut bed = Bed::new(&config(&[Action::Reclaim]))
        .nodes(&["n c4 pods=1000"])
        .queues(&["a tree=root/a:1/1", "b tree=root/b:1/1"]);
    bed.group("a a min=0");
    (0..2).for_each(|i| bed.pod(&format!("a-p-{i} a c1 on=n")));
    bed.group("b b min=0");
    (0..2).for_each(|i| bed.pod(&format!("b-p-{i} b c1 on=n")));
    bed.group("c b min=1");
    bed.pod("c-p-0 c c1");
    bed.cycle_at(0);
    assert_eq!(bed.evictions(), "", "three against one is no fairer than two against two");
}

/// The rules as they are written, in floating point, over a whole tree.
#[derive(Clone, Debug)]
enum Tree {
    Job { allocated: Vec<i64>, request: Vec<i64> },
    Node(Vec<Tree>),
}

fn slow(tree: &Tree, total: &[i64], demanding: &[bool]) -> (Vec<f64>, f64, bool) {
    let share = |amounts: &[f64]| {
        amounts.iter().zip(total).filter(|(_, of)| **of > 0).map(|(n, of)| n / *of as f64).fold(0.0, f64::max)
    };
    match tree {
        Tree::Job { allocated, request } => {
            let amounts: Vec<f64> = allocated.iter().map(|n| *n as f64).collect();
            let saturated = (0..total.len()).any(|d| {
                (allocated[d] > 0 && request[d] > 0 && allocated[d] >= request[d])
                    || (request[d] > 0 && !demanding[d])
            });
            (amounts.clone(), share(&amounts), saturated)
        }
        Tree::Node(children) => {
            let children: Vec<_> = children.iter().map(|child| slow(child, total, demanding)).collect();
            let least = children.iter().filter(|c| c.1 > 0.0 && !c.2).map(|c| c.1).fold(1.0, f64::min);
            let mut sum = vec![0.0; total.len()];
            for (amounts, share, saturated) in children.iter().filter(|c| c.1 > 0.0) {
                let scale = if *saturated { 1.0 } else { least / share };
                sum.iter_mut().zip(amounts).for_each(|(sum, n)| *sum += n * scale);
            }
            (sum.clone(), share(&sum), children.iter().all(|child| child.2))
        }
    }
}

fn quick(tree: &Tree, total: &[i64], demanding: &[bool]) -> Fair {
    match tree {
        Tree::Job { allocated, request } => fair_tree::job(total, demanding, allocated, |d| request[d], 0),
        Tree::Node(children) => {
            // In two parts, as the scheduler keeps the jobs of a queue apart from the queues below it.
            let (mut sum, mut rest) = (Children::default(), Children::default());
            for (at, child) in children.iter().enumerate() {
                let fair = quick(child, total, demanding);
                if at % 2 == 0 { sum.add(&fair) } else { rest.add(&fair) }
            }
            sum.merge(&rest);
            sum.node(total)
        }
    }
}

fn trees() -> impl Strategy<Value = Tree> {
    let amounts = || proptest::collection::vec(0_i64..40_000, 2);
    let job = (amounts(), amounts()).prop_map(|(allocated, more)| {
        let request = allocated.iter().zip(more).map(|(a, b)| a + b / 3 * 2).collect();
        Tree::Job { allocated, request }
    });
    job.prop_recursive(3, 24, 4, |inner| proptest::collection::vec(inner, 1..4).prop_map(Tree::Node))
}

proptest! {
    #[test]
    fn shares_of_a_tree_are_what_the_rules_say(
        tree in trees(), demanding in proptest::collection::vec(any::<bool>(), 2),
    ) {
        let total = [100_000, 70_000];
        let (amounts, share, saturated) = slow(&tree, &total, &demanding);
        let found = quick(&tree, &total, &demanding);
        prop_assert_eq!(found.saturated, saturated);
        prop_assert!((found.share as f64 / WHOLE as f64 - share).abs() < 1e-4, "{} {share}", found.share);
        for (found, wanted) in found.allocated.iter().zip(&amounts) {
            prop_assert!((*found as f64 - wanted).abs() <= 8.0, "{found} {wanted}");
        }
    }
}
