//! Room kept for those whom others pass for too long.

use super::*;

const ONE: &str = "root 100-100; a 0-100 @max-bypass=5m; b 0-100";
const MINUTE: i64 = 60_000;

/// `big` needs all of east and is passed by a stream of small ones.
fn passed() -> Fleet {
    let mut fleet = Fleet::new(ONE, "east 4");
    fleet.run("r1", "b", 2, 0, "east");
    fleet.submit("big", "a", 4, 0);
    assert_eq!(fleet.plan(), ["big waits: NoPlace"]);
    fleet.submit("s1", "b", 1, 0);
    assert_eq!(fleet.plan_at(MINUTE), ["s1 starts on east"]);
    assert_eq!(fleet.planner.passed_since_ms(leaf(fleet.planner.tree(), "a"), &"big".into()), Some(MINUTE));
    fleet
}

/// Beside what runs, `wide` waits and is passed by `small`: in a tree where claims are due at once, it claims east. Each job
/// is a name, a leaf and cores.
fn claiming(
    tree: &str,
    clusters: &str,
    run: &[(&str, &str, i64)],
    wide: (&str, &str, i64),
    small: (&str, &str, i64),
) -> Fleet {
    let mut fleet = Fleet::new(tree, clusters);
    for (id, path, cores) in run {
        fleet.run(id, path, *cores, 0, "east");
    }
    fleet.submit(wide.0, wide.1, wide.2, 0);
    fleet.plan();
    fleet.submit(small.0, small.1, small.2, 0);
    let said = fleet.plan();
    assert_eq!(said, [format!("{} starts on east", small.0), format!("{} claims east", wide.0)]);
    fleet
}

#[test]
fn a_head_that_is_passed_for_too_long_gets_the_next_room() {
    let mut fleet = passed();
    let plan = fleet.planner.plan(2 * MINUTE, PlanLimits::default(), &mut fleet.clusters);
    assert_eq!(plan.wake_at_ms, Some(6 * MINUTE));
    assert_eq!(fleet.plan_at(6 * MINUTE), ["big claims east"]);
    assert_eq!(fleet.planner.claims().count(), 1);
    assert_eq!(reason_text(&fleet.planner.reason(&"big".into()).unwrap()), "NoPlace");
    fleet.submit("s2", "b", 1, 0);
    assert_eq!(fleet.plan(), ["s2 waits: Claimed by big"]);
    fleet.end("r1");
    assert_eq!(fleet.plan(), [""; 0], "what became free is kept");
    fleet.end("s1");
    assert_eq!(fleet.plan(), ["big starts on east", "s2 waits: NoPlace"]);
    assert_eq!(fleet.planner.claims().count(), 0);
}

#[test]
fn whoever_ends_before_the_claim_starts_may_go() {
    let mut fleet = passed();
    fleet.clusters.ends.insert("r1".into(), 20 * MINUTE);
    fleet.clusters.ends.insert("s1".into(), 10 * MINUTE);
    assert_eq!(fleet.plan_at(6 * MINUTE), [format!("big claims east from {}", 20 * MINUTE)]);
    let job = |id: &str, run: i64| WaitingJob {
        run_time_ms: Some(run * MINUTE),
        ..waiting(fleet.planner.tree(), id, "b", 1, 0, 0)
    };
    let (short, long) = (job("short", 14), job("long", 15));
    fleet.planner.enqueue(long);
    fleet.planner.enqueue(short);
    assert_eq!(fleet.plan(), ["short starts on east", "long waits: Claimed by big"]);
}

#[test]
fn a_claim_keeps_quota_too() {
    let tree = "root 4-4; a 0-4 @max-bypass=0s; b 0-4";
    let mut fleet = claiming(tree, "east 100", &[("r1", "b", 3)], ("big", "a", 4), ("s1", "b", 1));
    fleet.end("r1");
    fleet.submit("s2", "b", 1, 0);
    assert_eq!(fleet.plan(), ["s2 waits: Claimed by big"]);
    fleet.end("s1");
    assert_eq!(fleet.plan()[0], "big starts on east");
}

#[test]
fn who_waits_for_a_claim_is_told_so_once() {
    let tree = "root 4-4; a 0-4 @max-bypass=0s; b 0-4; c 3-4";
    let mut fleet = claiming(tree, "east 100", &[("r1", "b", 3)], ("big", "a", 4), ("s1", "b", 1));
    fleet.end("r1");
    fleet.submit("s2", "b", 2, 0);
    assert_eq!(fleet.plan(), ["s2 waits: Claimed by big"]);
    // Inside min the claim holds nobody back: the root is full again.
    fleet.submit("m", "c", 3, 0);
    assert_eq!(fleet.plan(), ["m starts on east"]);
    fleet.end("s1");
    assert_eq!(fleet.plan(), [""; 0], "what is free is too little, and the claim's");
    fleet.end("m");
    assert_eq!(fleet.plan(), ["big starts on east", "s2 waits: InsufficientQuotaInParent"]);
}

#[test]
fn a_borrowers_claim_does_not_hold_back_who_is_inside_min() {
    let tree = "root 100-100; a 0-100 @max-bypass=0s; b 4-100";
    let mut fleet = claiming(tree, "east 4", &[("r1", "b", 2)], ("big", "a", 4), ("s1", "b", 1));
    fleet.submit("s2", "b", 1, 0);
    assert_eq!(fleet.plan(), ["s2 starts on east"]);
}

#[test]
fn nobody_claims_what_could_never_hold_it_nor_what_its_own_max_refuses() {
    let mut fleet = Fleet::new("root 100-100; a 0-2 @max-bypass=0s; b 0-100 @max-bypass=0s", "east 4");
    fleet.submit("never", "a", 3, 0);
    fleet.submit("huge", "b", 5, 9);
    fleet.plan();
    fleet.submit("s1", "b", 1, 0);
    fleet.submit("s2", "a", 1, 0);
    assert_eq!(fleet.plan(), ["s1 starts on east", "s2 starts on east"]);
    assert_eq!(fleet.plan_at(60 * MINUTE), [""; 0]);
}

#[test]
fn a_firm_job_above_its_min_claims_nothing_though_max_stops_it_first() {
    let mut fleet = Fleet::new("root 9-9; a 2-5 @max-bypass=0s", "east 9");
    fleet.run("wide", "a", 5, 0, "east");
    let job = waiting(fleet.planner.tree(), "firm", "a", 3, 9, 0);
    fleet.planner.enqueue(WaitingJob { preemptible: false, ..job });
    fleet.plan();
    fleet.end("wide");
    fleet.submit("s1", "a", 4, 0);
    assert_eq!(fleet.plan()[0], "s1 starts on east");
    fleet.submit("s2", "a", 1, 0);
    assert_eq!(fleet.plan_at(60 * MINUTE), ["s2 starts on east"]);
    assert_eq!(fleet.plan_at(61 * MINUTE), [""; 0]);
}

#[test]
fn one_claim_a_leaf_and_older_claims_hold_back_younger_ones() {
    let text = "root 100-100; a 0-100 @max-bypass=0s; b 0-100 @max-bypass=0s; c 0-100 @max-bypass=1h";
    let mut fleet = claiming(text, "east 4", &[("r1", "c", 2)], ("a1", "a", 4), ("c1", "c", 1));
    fleet.submit("b1", "b", 3, 0);
    fleet.submit("a2", "a", 1, 0);
    assert_eq!(fleet.plan_at(MINUTE), ["a2 waits: Claimed by a1", "b1 waits: NoPlace"]);
    fleet.end("r1");
    assert_eq!(fleet.plan(), ["b1 waits: Claimed by a1"]);
    fleet.end("c1");
    assert_eq!(fleet.plan()[0], "a1 starts on east");
}

#[test]
fn a_claim_holds_against_its_own_leaf_though_that_is_inside_min() {
    let tree = "root 4-4; a 4-4 @max-bypass=0s";
    let mut fleet = claiming(tree, "east 4", &[("s0", "a", 2)], ("big", "a", 4), ("s1", "a", 2));
    fleet.end("s0");
    fleet.submit("s2", "a", 2, 0);
    assert_eq!(fleet.plan(), ["s2 waits: Claimed by big"]);
    fleet.end("s1");
    assert_eq!(fleet.plan()[0], "big starts on east");
}

#[test]
fn a_claim_that_was_given_up_is_remembered_over_edits_and_other_heads() {
    let text = "root 100-100; a 0-100 @max-bypass=5m @max-claim=10m; b 0-100";
    let mut fleet = passed();
    let edit = |fleet: &mut Fleet, text: &str| {
        let tree = QuotaTree::build(&tree_spec(text)).unwrap().0;
        fleet.planner.set_tree(tree, &mut |tree, id| {
            Some(leaf(tree, if ["big", "front1", "front2"].contains(&id.as_str()) { "a" } else { "b" }))
        });
    };
    edit(&mut fleet, text);
    assert_eq!(fleet.plan_at(6 * MINUTE), ["big claims east"]);
    assert!(fleet.plan_at(16 * MINUTE).contains(&"big gives up its claim on east".to_owned()));
    // Two wide jobs that start and end again stand before it for a while, and the tree is edited.
    fleet.now_ms = 17 * MINUTE;
    fleet.submit("front1", "a", 4, 9);
    fleet.submit("front2", "a", 4, 9);
    fleet.plan();
    fleet.planner.remove(&"front1".into());
    fleet.planner.remove(&"front2".into());
    edit(&mut fleet, text);
    for minute in 18..200 {
        let name = format!("s{minute}");
        fleet.submit(&name, "b", 1, 0);
        let said = fleet.plan_at(minute * MINUTE);
        assert!(!said.iter().any(|line| line.contains("big claims")), "{minute}: {said:?}");
        fleet.end(&name);
    }
    // With ends that are known it may claim again.
    fleet.clusters.ends.insert("r1".into(), 230 * MINUTE);
    fleet.clusters.ends.insert("s1".into(), 220 * MINUTE);
    fleet.clusters.ends.insert("s200".into(), 225 * MINUTE);
    fleet.submit("s200", "b", 1, 0);
    let said = [fleet.plan_at(200 * MINUTE), fleet.plan_at(211 * MINUTE)].concat();
    assert!(said.iter().any(|line| line.starts_with("big claims east from")), "{said:?}");
}

#[test]
fn without_time_for_claims_none_is_made_blindly() {
    let mut fleet = Fleet::new("root 100-100; a 0-100 @max-bypass=5m @max-claim=0s; b 0-100", "east 4");
    fleet.run("r1", "b", 2, 0, "east");
    fleet.submit("big", "a", 4, 0);
    fleet.plan();
    fleet.submit("s1", "b", 1, 0);
    fleet.plan_at(MINUTE);
    assert_eq!(fleet.plan_at(6 * MINUTE), [""; 0]);
    assert_eq!(fleet.planner.claims().count(), 0);
}

/// A stream of small jobs passes `wide`, which stands behind `heads` jobs of as many shapes that can never run.
fn behind_impossible(tree_text: &str, heads: i64, mut head: impl FnMut(&Fleet, i64) -> WaitingJob) -> Fleet {
    let mut fleet = Fleet::new(tree_text, "east 4");
    fleet.run("r1", "b", 2, 0, "east");
    for at in 0..heads {
        let job = head(&fleet, at);
        fleet.planner.enqueue(job);
    }
    fleet.submit("wide", "a", 4, 0);
    for minute in 0..10 {
        // Places that become free do not make the planner begin anew.
        fleet.planner.places_freed(&"east".into());
        let before = fleet.clusters.could_hold_asked;
        fleet.planner.plan(minute * MINUTE, PlanLimits::default(), &mut fleet.clusters);
        assert!(fleet.clusters.could_hold_asked - before < 400, "the work of a plan is bounded");
    }
    fleet.submit("s1", "b", 1, 0);
    assert!(fleet.plan_more(11 * MINUTE).contains(&"s1 starts on east".to_owned()));
    fleet
}

#[test]
fn no_number_of_impossible_heads_hides_the_first_job_that_could_run() {
    for heads in [1, 63, 66, 130, 1_000] {
        // Too large for every cluster.
        let mut fleet = behind_impossible(ONE, heads, |fleet, at| WaitingJob {
            shape: 1_000_000 + at as u64,
            ..waiting(fleet.planner.tree(), &format!("huge{at}"), "a", 5, 9, at)
        });
        assert!(fleet.plan_more(17 * MINUTE).contains(&"wide claims east".to_owned()), "{heads} of places");
        // Too large for max.
        let text = "root 100-100; a 0-50 @max-bypass=5m; b 0-100";
        let mut fleet = behind_impossible(text, heads, |fleet, at| {
            waiting(fleet.planner.tree(), &format!("big{at}"), "a", 51 + at, 9, at)
        });
        assert!(fleet.plan_more(17 * MINUTE).contains(&"wide claims east".to_owned()), "{heads} of max");
        // Not preemptible and above min.
        let mut fleet = behind_impossible(ONE, heads, |fleet, at| WaitingJob {
            preemptible: false,
            ..waiting(fleet.planner.tree(), &format!("firm{at}"), "a", 1 + at, 9, at)
        });
        assert!(fleet.plan_more(17 * MINUTE).contains(&"wide claims east".to_owned()), "{heads} of min");
    }
}

#[test]
fn an_impossible_head_is_guarded_once_a_cluster_can_hold_it() {
    let mut fleet = behind_impossible(ONE, 1_000, |fleet, at| WaitingJob {
        shape: 1_000_000 + at as u64,
        ..waiting(fleet.planner.tree(), &format!("giant{at:04}"), "a", 8, 9, at)
    });
    fleet.clusters.grow("east", 8);
    fleet.planner.places_changed();
    fleet.plan_more(12 * MINUTE);
    fleet.submit("s2", "b", 1, 0);
    fleet.plan_more(13 * MINUTE);
    let said = fleet.plan_more(30 * MINUTE).join("; ");
    assert!(said.contains("giant0000 claims east"), "{said}");
}

/// b borrows all 8 cores with one job of 2 and six of 1; `wide` of a claims some.
fn claimed(clusters: &str, cores: i64) -> Fleet {
    let mut fleet = Fleet::new("root 8-8; a 1-8 @max-bypass=0s; b 0-8", clusters);
    fleet.run("svc", "b", 2, 0, "east");
    for id in ["s0", "s1", "s2", "s3", "s4", "s5"] {
        fleet.run(id, "b", 1, 0, "east");
        fleet.clusters.ends.insert(id.into(), 10 * MINUTE);
    }
    fleet.clusters.ends.insert("s5".into(), 20 * MINUTE);
    fleet.submit("wide", "a", cores, 0);
    fleet.plan();
    fleet.end("s0");
    fleet.submit("s6", "b", 1, 0);
    fleet.clusters.ends.insert("s6".into(), 10 * MINUTE);
    let said = fleet.plan();
    assert!(said[0].starts_with("s6 starts") && said[1].starts_with("wide claims"), "{said:?}");
    fleet
}

#[test]
fn nobody_is_evicted_for_anothers_claim() {
    let mut fleet = claimed("east 8, west 8", 5);
    fleet.submit("small", "a", 1, 0);
    let said = fleet.plan();
    assert!(said[0].starts_with("small preempts") && !said[0].contains(", "), "{said:?}");
}

#[test]
fn a_claim_of_a_borrower_delays_no_reclaim_inside_min() {
    let mut fleet = claimed("east 8", 5);
    fleet.submit("small", "a", 1, 0);
    // Beside the claim: of a job whose places it does not wait for.
    assert_eq!(fleet.plan(), ["small preempts s5 (Reclaim) for east"]);
    fleet.end("s5");
    assert_eq!(fleet.plan(), ["small starts on east"]);
    // Also if the claim needs all that can become free.
    let mut fleet = claimed("east 8", 6);
    let svc = fleet.planner.ledger().job(&"svc".into()).unwrap().clone();
    fleet.planner.admit(AdmittedJob { preemptible: false, ..svc });
    fleet.submit("small", "a", 1, 0);
    assert_eq!(fleet.plan(), ["small preempts s5 (Reclaim) for east"]);
    fleet.end("s5");
    assert_eq!(fleet.plan(), ["small starts on east"]);
}

#[test]
fn a_job_with_a_claim_reclaims_once_it_is_inside_its_min() {
    let mut fleet = Fleet::new("root 8-8; a 4-8 @max-bypass=0s; b 0-8", "east 8");
    fleet.run("a0", "a", 2, 0, "east");
    fleet.run("b0", "b", 5, 0, "east");
    fleet.submit("wide", "a", 3, 0);
    fleet.plan();
    fleet.submit("b1", "b", 1, 0);
    assert_eq!(fleet.plan_at(1000), ["b1 starts on east", "wide claims east"]);
    fleet.end("a0");
    assert_eq!(fleet.plan_at(2000), ["wide preempts b1 (Reclaim) for east"]);
    fleet.end("b1");
    assert_eq!(fleet.plan_at(3000), ["wide starts on east"]);
}

/// `a0` has left, and no report shows its places free yet: `wide` is inside its min now, and waits all the same.
#[test]
fn a_head_with_a_claim_blocks_its_queue_when_it_comes_inside_its_min() {
    let mut fleet = Fleet::new("root 12-12; a 3-12 @max-bypass=0s; b 10-12", "east 5, far 3, west 4");
    for (id, path, cores, cluster) in [("a0", "a", 3, "west"), ("b0", "b", 5, "east"), ("b2", "b", 3, "far")]
    {
        fleet.run(id, path, cores, 1, cluster);
    }
    fleet.planner.set_policy(leaf(fleet.planner.tree(), "a"), QueuePolicy::Block);
    fleet.submit("wide", "a", 3, 1);
    fleet.submit("next", "a", 1, 0);
    assert_eq!(fleet.plan(), ["wide waits: InsufficientQuotaInParent", "next waits: BehindHead wide"]);
    fleet.submit("b1", "b", 1, 0);
    assert_eq!(fleet.plan_at(1000), ["b1 starts on west", "wide claims east"]);
    fleet.planner.release(&"a0".into());
    assert_eq!(fleet.plan_at(2000), [""; 0]);
    assert_eq!(fleet.plan_at(2001), [""; 0], "what is known is not told again");
}

#[test]
fn a_firm_head_that_waits_for_a_min_held_by_others_leaves_the_claim_to_the_next() {
    let mut fleet = Fleet::new("root 9-9; a 2-9 @max-bypass=0s; b 0-9", "east 5");
    let service = admitted(fleet.planner.tree(), "service", "a", 1, 0, 0);
    fleet.planner.admit(AdmittedJob { preemptible: false, ..service });
    fleet.clusters.hold("service", "east", 1);
    fleet.run("r1", "b", 3, 0, "east");
    let firm = waiting(fleet.planner.tree(), "firm", "a", 2, 9, 0);
    fleet.planner.enqueue(WaitingJob { preemptible: false, ..firm });
    fleet.submit("wide", "a", 4, 0);
    fleet.plan();
    fleet.submit("s1", "b", 1, 0);
    assert_eq!(fleet.plan(), ["s1 starts on east", "wide claims east"]);
}

#[test]
fn a_job_inside_its_min_evicts_nobody_while_capacity_is_kept_for_a_borrower() {
    // The claim is one of a queue beside its own: the queue above is over its min, its own is not.
    let beside = "root 28-28; p0 7-28; p2 10-28; p2/l4 4-28; p2/l5 6-19 @max-bypass=0s";
    let run = [("other", "p0", 13), ("long", "p2/l5", 8)];
    let mut fleet = claiming(beside, "east 56", &run, ("wide", "p2/l5", 8), ("s1", "p0", 2));
    for id in ["one", "two", "three"] {
        fleet.submit(id, "p2/l4", 1, 0);
    }
    assert_eq!(fleet.plan(), ["one starts on east", "three starts on east", "two starts on east"]);
    // It is one of its own queue, and asks for more than its min.
    let own = "root 12-12; a 4-12 @max-bypass=0s; b 0-12";
    let mut fleet = claiming(own, "east 12", &[("r1", "b", 8)], ("wide", "a", 6), ("s1", "b", 1));
    fleet.submit("small", "a", 1, 0);
    assert_eq!(fleet.plan(), ["small starts on east"]);
}

#[test]
fn what_a_claim_waited_for_is_not_taken_back_by_those_that_it_held_back() {
    let tree = "root 8-8; a 0-8 @max-bypass=0s; b 0-8";
    let mut fleet = claiming(tree, "east 8", &[("r1", "b", 6)], ("wide", "a", 8), ("s1", "b", 1));
    fleet.submit("urgent", "a", 8, 5);
    fleet.plan();
    fleet.end("r1");
    fleet.end("s1");
    let said = fleet.plan_at(1);
    assert!(said.contains(&"wide starts on east".to_owned()), "{said:?}");
    fleet.clusters.started.insert("wide".into(), 1);
    assert_eq!(fleet.plan_at(10_000), [""; 0]);
}
