//! Admission against the tree.

use super::*;

#[test]
fn the_facts_table_max_jobs() {
    let tree = tree(
        "root 21; child1 15; child1/1_1 10; child1/1_2 5; child2 6 jobs=2; child2/2_1 3 jobs=2; child2/2_2 3 jobs=1",
    );
    let mut ledger = Ledger::new(tree);
    for path in ["child1/1_1", "child1/1_2", "child2/2_1", "child2/2_2"] {
        run(&mut ledger, path, path, 2);
    }
    let check = |path: &str, cores: i64, reason: &str, sentence: &str| {
        let verdict = ledger.check(leaf(ledger.tree(), path), &cpu(cores), true).unwrap_err();
        assert_eq!(verdict.reason(), reason);
        assert!(verdict.sentence().starts_with(sentence), "{verdict}");
    };
    check(
        "child1/1_2",
        4,
        "InsufficientQuota",
        "Insufficient quota(cpu) in quota root/child1/1_2: request 4, max 5, used 2;",
    );
    check(
        "child2/2_2",
        1,
        "MaxJobs",
        "Insufficient quota(jobs) in quota root/child2/2_2: request 1, max 1, used 1;",
    );
    check(
        "child2/2_1",
        1,
        "MaxJobs",
        "Insufficient quota(jobs) in parent quota root/child2: request 1, max 2, used 2;",
    );
    check(
        "child1/1_2",
        6,
        "ExceedsQuota",
        "Insufficient quota(cpu) in quota root/child1/1_2: request 6, max 5, used 2;",
    );
}

#[test]
fn the_facts_table_idempotent() {
    let mut ledger = Ledger::new(tree("root 10; a 5 ns"));
    for _ in 0..10 {
        run(&mut ledger, "unit", "a", 2);
    }
    let a = leaf(ledger.tree(), "a");
    assert_eq!((ledger.used(a).get("cpu"), ledger.job_count(NodeId::ROOT)), (2000, 1));
    assert!(ledger.release(&JobId::new("unit")).is_some());
    assert!(ledger.release(&JobId::new("unit")).is_none());
    assert!(ledger.used(NodeId::ROOT).is_zero());
}

#[test]
fn lend_limits_keep_room() {
    // a keeps 4 of its 6 for itself: b may use 10 - 4.
    let mut ledger = Ledger::new(tree("root 10; a 6-10 lend=2; b 0-10"));
    let (a, b) = (leaf(ledger.tree(), "a"), leaf(ledger.tree(), "b"));
    assert!(ledger.check(b, &cpu(6), true).is_ok());
    assert!(ledger.check(b, &cpu(7), true).is_err());
    run(&mut ledger, "a1", "a", 3);
    assert!(ledger.check(b, &cpu(6), true).is_ok(), "still inside what a keeps");
    run(&mut ledger, "b1", "b", 6);
    assert!(ledger.check(a, &cpu(1), true).is_ok());
    assert!(ledger.check(a, &cpu(2), true).is_err());
}

#[test]
fn jobs_that_may_not_be_preempted_stay_inside_min() {
    let mut ledger = Ledger::new(tree("root 10; a 3-10"));
    let a = leaf(ledger.tree(), "a");
    assert!(ledger.check(a, &cpu(3), false).is_ok());
    assert_eq!(ledger.check(a, &cpu(4), false).unwrap_err().shortfall().rule, Rule::Min);
    run(&mut ledger, "p", "a", 5);
    assert!(ledger.check(a, &cpu(3), false).is_ok(), "preemptible use does not count");
}
