//! Whatever order listings, watch events, answers to own writes, losses, restarts and restores come in: a cache ends
//! with what the server has, and meanwhile never loses sight of an object that stands. The same laws find the rules
//! that broke them, kept here as [`Broken`].

mod world;

use proptest::{
    prelude::*,
    test_runner::{Config, TestCaseError, TestError, TestRunner},
};
use world::{Broken, Cache, Fresh, Numbering, Op, Rules, run};

const CASES: u32 = 2000;
const LONGEST: usize = 48;

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (any::<bool>(), 0..3_usize).prop_map(|(own, name)| Op::Put { own, name }),
        2 => (0..3_usize).prop_map(|name| Op::Delete { name }),
        4 => any::<usize>().prop_map(Op::Answer),
        1 => any::<usize>().prop_map(Op::LoseAnswer),
        8 => Just(Op::Step),
        2 => Just(Op::Relist),
        1 => Just(Op::TellAgain),
        1 => Just(Op::Restart),
        1 => Just(Op::Save),
        1 => prop_oneof![
            Just(Op::Restore { says: true, raises: true }),
            Just(Op::Restore { says: true, raises: false }),
            Just(Op::Restore { says: false, raises: true }),
            Just(Op::Restore { says: false, raises: false }),
        ],
    ]
}

/// Looks for a run that breaks a law. The seed is fixed: the same cases each time.
fn hold<C: Cache>(fresh: Fresh<C>, rules: Rules) -> Result<(), TestError<Vec<Op>>> {
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(
        config,
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    runner.run(&prop::collection::vec(op(), 0..LONGEST), |ops| {
        run(fresh, rules, &ops).map_err(TestCaseError::fail)
    })
}

#[test]
fn numbers_with_few_ends_remembered() {
    let rules = Rules { numbering: Numbering::Numbers, listings_have_versions: true };
    hold(|| fleet_mirror::Mirror::with_ends(1), rules).unwrap();
}

#[test]
fn listings_without_versions() {
    let rules = Rules { numbering: Numbering::Numbers, listings_have_versions: false };
    hold(|| fleet_mirror::Mirror::with_ends(64), rules).unwrap();
}

#[test]
fn versions_that_do_not_compare() {
    let rules = Rules { numbering: Numbering::Words, listings_have_versions: true };
    hold(|| fleet_mirror::Mirror::with_ends(64), rules).unwrap();
}

#[test]
fn each_broken_rule_is_found() {
    let rules = Rules { numbering: Numbering::Numbers, listings_have_versions: true };
    for bug in Broken::BUGS {
        let found = match bug {
            0 => hold(|| Broken::new(0), rules),
            1 => hold(|| Broken::new(1), rules),
            2 => hold(|| Broken::new(2), rules),
            _ => hold(|| Broken::new(3), rules),
        };
        assert!(matches!(found, Err(TestError::Fail(..))), "{}: {found:?}", Broken::what(bug));
    }
}
