//! Laws over random histories: small clusters, a few virtual clusters, groups that come and go and save checkpoints, bad
//! nodes, suggestions, crashes and reconfigurations. Half of the histories have one chain of whole trees, the others any
//! shapes. The seed of a history that breaks a law is printed; it repeats it.

mod history;
mod laws;
mod shapes;
mod stock;

use history::run;
use shapes::Shapes;

use crate::faults::{self, Fault};

/// Broken histories that a failure shows.
const SHOWN: usize = 5;

fn run_all(shapes: Shapes, seeds: std::ops::Range<u64>) {
    let mut broken =
        seeds.filter_map(|seed| Some(format!("{shapes:?} seed {seed}: {}", run(shapes, seed).err()?)));
    let first: Vec<String> = broken.by_ref().take(SHOWN).collect();
    assert!(first.is_empty(), "{} histories break a law: {}", first.len() + broken.count(), first.join("\n"));
}

#[test]
fn laws_hold_over_histories() {
    run_all(Shapes::Plain, 0..400);
}

#[test]
fn laws_hold_over_histories_of_any_shape() {
    run_all(Shapes::Many, 0..250);
}

/// A pod took a leaf with a victim though a reserved one would do; gangs displaced one group too many, once because what a
/// lazily preempted one gave back was looked at for the same promises only. In a fleet of several clusters, gangs waited
/// though their promises could be bound in one of them.
#[test]
fn laws_hold_over_histories_that_once_broke_them() {
    for seed in [1_034_009, 1_001_260, 1_011_686] {
        run_all(Shapes::Plain, seed..seed + 1);
    }
    for seed in [1_040_322, 1_045_741, 1_047_654, 1_048_125] {
        run_all(Shapes::Many, seed..seed + 1);
    }
}

#[test]
#[ignore = "100,000 histories take minutes of an optimised build"]
fn laws_hold_over_many_histories() {
    run_all(Shapes::Plain, 1_000_000..1_050_000);
}

#[test]
#[ignore = "as above"]
fn laws_hold_over_many_histories_of_any_shape() {
    run_all(Shapes::Many, 1_000_000..1_050_000);
}

/// The first seed whose history breaks a law, and what it broke.
fn first_broken(fault: Fault, seeds: std::ops::Range<u64>) -> Option<(u64, String)> {
    faults::set(Some(fault));
    let found = seeds.into_iter().find_map(|seed| Some((seed, run(Shapes::Plain, seed).err()?)));
    faults::set(None);
    found
}

#[test]
fn a_split_that_breaks_a_promise_is_found() {
    let (seed, broken) = first_broken(Fault::SplitBreaksPromise, 0..2_000).expect("a broken law");
    assert!(broken.contains("cannot be bound"), "seed {seed}: {broken}");
}

#[test]
fn a_leaf_given_twice_is_found() {
    let (seed, broken) = first_broken(Fault::LeafGivenTwice, 0..2_000).expect("a broken law");
    assert!(broken.contains("does not have it") || broken.contains("which says"), "seed {seed}: {broken}");
}

#[test]
fn a_bad_node_that_could_hide_is_found() {
    let (seed, broken) = first_broken(Fault::BadNodeShown, 0..2_000).expect("a broken law");
    assert!(broken.contains("takes the last good cell"), "seed {seed}: {broken}");
}
