//! What decides over a job's admission stays while it holds quota.

use super::*;

/// A job of team `other` that holds places in `east`.
fn holds(name: &str, preemptible: bool) -> Job {
    Job { preemptible, ..of_another_team(name, "east", false) }
}

#[test]
fn a_borrower_that_asks_not_to_be_preempted_any_more_is_preempted() {
    let mut fleet = Fleet::of(&[("team", 4, 8), ("other", 4, 8)]);
    fleet.planner.set_cluster("east", member("east", 2, 4, 1, 4));
    for name in ["one", "two"] {
        fleet.submit(Job { phase: JobPhase::Waits, ..holds(name, true) });
    }
    assert_eq!(fleet.plan(), ["one -> east", "two -> east"]);
    fleet.now_ms = 60_000;
    for name in ["one", "two"] {
        fleet.submit(holds(name, false));
    }
    fleet.planner.set_cluster("east", member("east", 2, 4, 2, 0));
    fleet.submit(job("a", 1, 4));
    let plan = fleet.plan();
    assert!(plan.iter().any(|decision| decision.ends_with("(Reclaim)")), "{plan:?}");
}

/// Whether a job queues is decided until it is bound, and only one that queues can be preempted.
#[test]
fn a_job_that_has_to_queue_after_all_is_counted_as_it_queues() {
    let mut fleet = Fleet::of(&[("team", 4, 8), ("other", 4, 8)]);
    fleet.submit(Job { queued: false, ..holds("one", false) });
    fleet.submit(holds("one", true));
    assert!(fleet.planner.job(&JobId::new("other/one")).is_some_and(|job| job.preemptible));
}
