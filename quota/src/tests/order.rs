//! Who is served first, between leaves and within one.

use super::*;

/// Plans `jobs` (`id leaf cpu priority age`) over an empty ledger; `admitted`
/// are the ids in order.
fn check_order(tree_text: &str, jobs: &str, policy: QueuePolicy, admitted: &[&str]) -> Planner {
    let mut planner = Planner::new(tree(tree_text));
    for leaf in planner.tree().leaves().collect::<Vec<_>>() {
        planner.set_policy(leaf, policy);
    }
    for job in jobs.split(',') {
        let w: Vec<&str> = job.split_whitespace().collect();
        let n = |i: usize| w[i].parse::<i64>().unwrap();
        planner.enqueue(waiting(planner.tree(), w[0], w[1], n(2), n(3), n(4)));
    }
    let plan = planner.plan(0, PlanLimits::default(), &mut Clusters::endless());
    let ids: Vec<&str> = plan.admitted().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, admitted, "{jobs}");
    planner
}

#[test]
fn the_facts_table_order() {
    let one = "root 100; a 100";
    check_order(one, "low a 1 50 0,high a 1 100 9", QueuePolicy::Priority, &["high", "low"]);
    check_order(one, "late a 1 0 2,early a 1 0 1", QueuePolicy::Priority, &["early", "late"]);
    check_order(one, "b a 1 0 0,a a 1 0 0", QueuePolicy::Priority, &["a", "b"]);
    check_order(
        "root 100; q1 100; q2 100",
        "rb1 q1 1 0 0,rb2 q1 1 0 0,rb3 q1 1 0 0,rb4 q2 1 0 0,rb5 q2 1 0 0,rb6 q2 1 0 0",
        QueuePolicy::Priority,
        &["rb1", "rb4", "rb2", "rb5", "rb3", "rb6"],
    );
}

#[test]
fn guaranteed_jobs_go_before_borrowers() {
    check_order(
        "root 10; a 0-10; b 3-10",
        "a1 a 1 9 0,a2 a 1 9 0,b1 b 1 0 5,b2 b 3 0 6",
        QueuePolicy::Priority,
        &["b1", "a1", "b2", "a2"],
    );
}

#[test]
fn weights_decide_between_borrowers() {
    check_order(
        "root 6; a 0-6 w=2; b 0-6; c 0-6 w=0",
        "a1 a 1 0 0,a2 a 1 0 1,a3 a 1 0 2,a4 a 1 0 3,b1 b 1 0 0,b2 b 1 0 1,c1 c 1 9 0",
        QueuePolicy::Priority,
        &["a1", "b1", "a2", "a3", "b2", "a4"],
    );
}

#[test]
fn the_policy_of_an_inner_node_stops_nobody() {
    let mut planner = Planner::new(tree("root 10; a 10"));
    for name in ["one", "two"] {
        planner.enqueue(waiting(planner.tree(), name, "a", 1, 0, 0));
    }
    let one_at_a_time = PlanLimits { admissions: 1, ..PlanLimits::default() };
    for name in ["one", "two"] {
        let plan = planner.plan(0, one_at_a_time, &mut Clusters::endless());
        assert_eq!(plan.admitted().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), [name]);
        planner.set_policy(NodeId::ROOT, QueuePolicy::Block);
    }
}

#[test]
fn queue_policies() {
    let jobs = "first a 6 5 0,second a 9 5 1,third a 1 0 2";
    let one = "root 10; a 10";
    check_order(one, jobs, QueuePolicy::Priority, &["first", "third"]);
    let planner = check_order(one, jobs, QueuePolicy::Block, &["first"]);
    assert_eq!(planner.reason(&"third".into()), Some(WaitReason::BehindHead("second".into())));
    check_order(one, jobs, QueuePolicy::Intelligent { threshold: 4 }, &["first"]);
    check_order(one, jobs, QueuePolicy::Intelligent { threshold: 6 }, &["first", "third"]);
}

#[test]
fn a_job_no_cluster_holds_gives_way_and_holds_nothing() {
    let planner =
        check_order("root 10; a 10", "huge a 5 9 0,small a 6 0 1", QueuePolicy::Priority, &["small"]);
    assert_eq!(planner.reason(&"huge".into()), Some(WaitReason::NoPlace));
}

#[test]
fn backing_off_jobs_keep_their_place_and_let_others_pass() {
    let mut planner = Planner::new(tree("root 10; a 10"));
    planner.enqueue(waiting(planner.tree(), "first", "a", 1, 0, 0));
    planner.enqueue(waiting(planner.tree(), "second", "a", 1, 0, 1));
    planner.back_off(&"first".into(), 100);
    let places = |id: &str| planner.queues().position(&id.into());
    assert_eq!((places("first"), places("second")), (Some(1), Some(2)));
    let mut at = |now_ms| {
        let plan = planner.plan(now_ms, PlanLimits::default(), &mut Clusters::endless());
        (plan.admitted().map(|(id, _)| id.to_string()).collect::<Vec<_>>(), plan.wake_at_ms)
    };
    assert_eq!(at(50), (vec!["second".to_owned()], Some(100)));
    assert_eq!(at(100), (vec!["first".to_owned()], None));
}

#[test]
fn a_head_that_can_never_run_blocks_nobody() {
    let text = "root 10; a 2-10";
    let plan_all = |planner: &mut Planner, clusters: &mut Clusters| {
        let mut started = Vec::new();
        loop {
            let plan = planner.plan(0, PlanLimits::default(), clusters);
            started.extend(plan.admitted().map(|(id, _)| id.to_string()));
            if !plan.more {
                return started;
            }
        }
    };
    for policy in [QueuePolicy::Block, QueuePolicy::Intelligent { threshold: 4 }] {
        let mut planner = Planner::new(tree(text));
        let a = leaf(planner.tree(), "a");
        planner.set_policy(a, policy);
        // Above max, not preemptible and above min, too large for every cluster.
        planner.enqueue(waiting(planner.tree(), "above", "a", 11, 9, 0));
        let firm = waiting(planner.tree(), "firm", "a", 3, 8, 0);
        planner.enqueue(WaitingJob { preemptible: false, ..firm });
        planner.enqueue(waiting(planner.tree(), "nowhere", "a", 9, 7, 0));
        planner.enqueue(waiting(planner.tree(), "head", "a", 6, 6, 0));
        planner.enqueue(waiting(planner.tree(), "next", "a", 6, 6, 1));
        planner.enqueue(waiting(planner.tree(), "small", "a", 1, 0, 0));
        let mut clusters = Clusters::new("east 8");
        assert_eq!(plan_all(&mut planner, &mut clusters), ["head"], "{policy:?}");
        let reason = |planner: &Planner, id: &str| super::reason_text(&planner.reason(&id.into()).unwrap());
        assert_eq!(reason(&planner, "above"), "ExceedsQuota");
        assert_eq!(reason(&planner, "firm"), "ExceedsQuota");
        assert_eq!(reason(&planner, "nowhere"), "NoPlace");
        assert_eq!(reason(&planner, "small"), "BehindHead next");
        // Once a cluster could hold it, it blocks again.
        clusters.grow("west", 9);
        planner.release(&"head".into());
        let east = clusters.end(&"head".into()).unwrap();
        planner.places_freed(&east);
        clusters.hold("other", "west", 1);
        planner.places_changed();
        assert_eq!(plan_all(&mut planner, &mut clusters), [""; 0], "{policy:?}");
        assert_eq!(reason(&planner, "next"), "BehindHead nowhere");
    }
}
