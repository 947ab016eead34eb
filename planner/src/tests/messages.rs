//! What waiting jobs are told.

use super::*;

fn message(fleet: &Fleet, name: &str) -> String {
    let told = fleet.planner.waiting(&JobId::new(&format!("team/{name}")));
    told.map(|told| told.message.clone()).unwrap_or_default()
}

/// Quota refuses it too, but it would not start if all others ended.
#[test]
fn a_job_larger_than_every_cluster_is_not_told_to_wait_for_others() {
    let mut fleet = Fleet::new(16);
    fleet.planner.set_cluster("west", member("west", 1, 4, 1, 4));
    fleet.planner.set_cluster("east", member("east", 2, 4, 1, 4));
    fleet.submit(job("small", 1, 4));
    assert_eq!(fleet.plan(), ["small -> east"]);
    fleet.submit(job("huge", 4, 4));
    fleet.submit(job("also", 4, 4));
    assert!(fleet.plan().is_empty());
    for name in ["huge", "also"] {
        assert_eq!(fleet.reason(name), Some(Reason::ExceedsEveryCluster));
        assert_eq!(
            message(&fleet, name),
            "requests cpu 16 in [{worker 4}]; none of east, west could hold it even if empty"
        );
    }
    // A cluster that could hold it when it is ready again: it waits for quota, as others do.
    let mut away = member("north", 4, 4, 1, 4);
    away.facts.ready = false;
    fleet.planner.set_cluster("north", away);
    fleet.plan();
    fleet.now_ms += 60_000;
    fleet.plan();
    for name in ["huge", "also"] {
        assert_eq!(fleet.reason(name), Some(Reason::InsufficientQuota), "{}", message(&fleet, name));
    }
    fleet.planner.set_cluster("north", member("north", 3, 4, 2, 4));
    fleet.plan();
    fleet.now_ms += 60_000;
    fleet.plan();
    assert_eq!(fleet.reason("huge"), Some(Reason::ExceedsEveryCluster));
    // A report with other free amounts says nothing about empty nodes.
    let version = fleet.planner.rooms().empty_version;
    fleet.planner.set_cluster("north", member("north", 3, 4, 3, 1));
    assert_eq!(fleet.planner.rooms().empty_version, version);
}

#[test]
fn clusters_are_named_in_the_order_of_their_names_and_jobs_as_their_users_do() {
    let mut fleet = Fleet::new(100);
    // The one with most free capacity is tried first.
    for (name, free) in [("north", 3), ("east", 1), ("west", 2)] {
        fleet.planner.set_cluster(name, member(name, 1, 4, 1, free));
    }
    fleet.submit(job("wide-pytorchjob", 1, 4));
    fleet.plan();
    assert_eq!(
        message(&fleet, "wide-pytorchjob"),
        "0 of 3 clusters can hold the whole job now: \
         east: 0 of 1 pod fits; 0/1 node is available: 1 Insufficient cpu (requested 4, available 1); \
         north: 0 of 1 pod fits; 0/1 node is available: 1 Insufficient cpu (requested 4, available 3); \
         west: 0 of 1 pod fits; 0/1 node is available: 1 Insufficient cpu (requested 4, available 2)"
    );
    fleet.submit(Job { checkpoint_at_ms: Some(5), ..job("saves", 1, 1) });
    let text = |victim: &str| {
        let ids = [victim, "team/wide-pytorchjob"].map(JobId::new);
        fleet.planner.preemption_text(&ids[0], &ids[1], "east", fleet_quota::TakeRule::Reclaim, 25_000)
    };
    assert_eq!(text("team/plain"), "preempted by team/wide in east (Reclaim); 25 s of work are lost");
    assert!(text("team/saves").ends_with("; 25 s of work since its last checkpoint are lost"));
    let shown = |name: &str| fleet.planner.reserved_for(&JobId::new(name)).message;
    assert!(shown("team/wide-pytorchjob").starts_with("capacity is reserved for team/wide, "));
    assert!(shown("team/gone-pytorchjob").starts_with("capacity is reserved for team/gone-pytorchjob, "));
}

/// From its third preemption on a job is left alone for a while, and who waits for that is told of whom.
#[test]
fn who_may_not_preempt_yet_is_told_which_job_is_protected() {
    let mut fleet = Fleet::new(4);
    fleet.planner.set_cluster("west", member("west", 1, 4, 1, 4));
    let often = Job { preemptions: 2, ..job("often", 1, 4) };
    fleet.submit(often.clone());
    assert_eq!(fleet.plan(), ["often -> west"]);
    let held = Held::here("west", Counted::ByReports);
    fleet.submit(Job { phase: JobPhase::Holds(held), started_at_ms: Some(0), ..often });
    fleet.submit(Job { priority: 1, enqueued_at_ms: 1, ..job("urgent", 1, 4) });
    fleet.now_ms = 9_999;
    assert!(fleet.plan().is_empty());
    assert_eq!(fleet.reason("urgent"), Some(Reason::VictimProtected));
    assert_eq!(
        message(&fleet, "urgent"),
        "it could preempt team/often, which is protected from that for a while"
    );
    fleet.now_ms = 10_000;
    assert_eq!(fleet.plan(), ["urgent x often (InQueuePriority)"]);
}
