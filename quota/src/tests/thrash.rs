//! Jobs that are preempted again and again.

use super::*;

const SECOND: i64 = 1000;

/// `low` runs and has been preempted so many times; `urgent` of its leaf wants its room.
fn preempted(times: u32, tree_text: &str) -> Fleet {
    let mut fleet = Fleet::new(tree_text, "east 2");
    let tree = fleet.planner.tree().clone();
    fleet.planner.admit(AdmittedJob { preemptions: times, ..admitted(&tree, "low", "a", 2, -1, 0) });
    fleet.clusters.hold("low", "east", 2);
    fleet.clusters.started.insert("low".into(), 0);
    fleet.submit("urgent", "a", 2, 5);
    fleet
}

fn plan_at(fleet: &mut Fleet, now_ms: i64) -> Vec<String> {
    fleet.clusters.now_ms = now_ms;
    fleet.plan_at(now_ms)
}

#[test]
fn from_its_third_preemption_on_a_job_runs_for_a_while_first() {
    for times in [0, 1] {
        let mut fleet = preempted(times, "root 2-2; a 0-2");
        assert_eq!(plan_at(&mut fleet, SECOND), ["urgent preempts low (InQueuePriority) for east"]);
    }
    for (times, wait_s) in [(2, 10), (3, 20), (4, 40), (20, 3600)] {
        let mut fleet = preempted(times, "root 2-2; a 0-2");
        let until_ms = wait_s * SECOND;
        assert_eq!(plan_at(&mut fleet, SECOND), [format!("urgent waits: Protected low until {until_ms}")]);
        let plan = fleet.planner.plan(SECOND, PlanLimits::default(), &mut fleet.clusters);
        assert_eq!(plan.wake_at_ms, Some(until_ms));
        assert_eq!(plan_at(&mut fleet, until_ms - 1), [""; 0]);
        assert_eq!(plan_at(&mut fleet, until_ms), ["urgent preempts low (InQueuePriority) for east"]);
    }
}

#[test]
fn no_protection_holds_against_a_reclaim_inside_min() {
    let text = "root 2-2; a 0-2 @min-runtime=1h; b 2-2";
    let mut fleet = preempted(9, text);
    fleet.submit("owner", "b", 2, 0);
    assert_eq!(plan_at(&mut fleet, SECOND)[0], "owner preempts low (Reclaim) for east");
}

#[test]
fn a_leaf_lets_its_jobs_run_for_a_while_after_each_start() {
    let mut fleet = preempted(0, "root 2-2; a 0-2 @min-runtime=5m");
    assert_eq!(plan_at(&mut fleet, SECOND), ["urgent waits: Protected low until 300000"]);
    assert_eq!(plan_at(&mut fleet, 300 * SECOND), ["urgent preempts low (InQueuePriority) for east"]);
}

#[test]
fn the_root_bounds_the_gpu_time_that_is_lost_for_what_is_gained() {
    let gpu = |count: i64| Resources::from_pairs([("nvidia.com/gpu", count)]);
    let run = |limit: &str, ran_s: i64, run_s: Option<i64>| {
        let mut spec = tree_spec(&format!("root @max-gpu-loss={limit}; a"));
        spec.max.insert("nvidia.com/gpu".to_owned(), "4".to_owned());
        let tree = Arc::new(QuotaTree::build(&spec).unwrap().0);
        let (mut planner, mut clusters) = (Planner::new(tree.clone()), Clusters::endless());
        planner.admit(AdmittedJob { request: gpu(4), ..admitted(&tree, "low", "a", 0, -1, 0) });
        clusters.hold("low", "any", 0);
        (clusters.now_ms, clusters.started) = (ran_s * SECOND, [("low".into(), 0)].into());
        let run_time_ms = run_s.map(|run_s| run_s * SECOND);
        planner.enqueue(WaitingJob {
            request: gpu(1),
            run_time_ms,
            ..waiting(&tree, "urgent", "a", 0, 5, 0)
        });
        planner.plan(ran_s * SECOND, PlanLimits::default(), &mut clusters).takes().count()
    };
    // Half an hour of four GPUs for an hour of one.
    assert_eq!(run("2", 1800, Some(3600)), 1);
    assert_eq!(run("1.9", 1800, Some(3600)), 0);
    // Without a declared run time nothing counts as gained.
    assert_eq!(run("0", 1800, None), 0);
    assert_eq!(run("100", 1800, None), 0);
    assert_eq!(run("0", 0, None), 1, "nothing is lost");
}

#[test]
fn a_job_that_waited_when_another_started_does_not_preempt_it_at_once() {
    let text = "root 4-4 @share-preemption=FairShare; a 0-4; b 0-4";
    let start = |fleet: &mut Fleet| {
        fleet.run("hog", "a", 4, 0, "east");
        fleet.submit("mine", "a", 4, 5);
        assert_eq!(plan_at(fleet, SECOND), ["mine preempts hog (InQueuePriority) for east"]);
        fleet.now_ms = SECOND + 1;
        fleet.submit("other", "b", 2, 0);
        assert_eq!(plan_at(fleet, SECOND + 1), ["other waits: InsufficientQuotaInParent"]);
        fleet.end("hog");
        let plan = plan_at(fleet, 2 * SECOND);
        assert_eq!(plan[0], "mine starts on east");
        plan
    };
    let mut fleet = Fleet::new(text, "east 4");
    let until_ms = 12 * SECOND;
    assert_eq!(start(&mut fleet)[1..], [format!("other waits: Protected mine until {until_ms}")]);
    assert_eq!(plan_at(&mut fleet, 2 * SECOND + 1), [""; 0]);
    assert_eq!(plan_at(&mut fleet, until_ms), ["other preempts mine (FairShare) for east"]);
    // Who comes later follows the rules alone, and so does who takes its min back.
    let mut fleet = Fleet::new(text, "east 4");
    start(&mut fleet);
    fleet.now_ms = 3 * SECOND;
    fleet.submit("urgent", "a", 4, 9);
    assert_eq!(plan_at(&mut fleet, 3 * SECOND)[0], "urgent preempts mine (InQueuePriority) for east");
    let mut fleet = Fleet::new("root 4-4 @share-preemption=FairShare; a 0-4; b 2-4", "east 4");
    start(&mut fleet);
    assert_eq!(plan_at(&mut fleet, 2 * SECOND + 1), ["other preempts mine (Reclaim) for east"]);
}

const MINUTE: i64 = 60 * SECOND;

/// `hog` of leaf a and `mid` of leaf b have run for so long when `late` of c comes.
fn shared(hog_ran_ms: i64, mid_ran_ms: i64) -> Fleet {
    let mut fleet = Fleet::new("root 9-9 @share-preemption=FairShare; a 0-9; b 0-9; c 0-9", "east 9");
    for (id, path, cores, ran_ms) in
        [("hog", "a", 3, hog_ran_ms), ("hog2", "a", 3, hog_ran_ms), ("mid", "b", 3, mid_ran_ms)]
    {
        fleet.run(id, path, cores, 0, "east");
        fleet.clusters.started.insert(id.into(), HOUR - ran_ms);
    }
    fleet.now_ms = HOUR;
    fleet.submit("late", "c", 2, 0);
    fleet
}

const HOUR: i64 = 60 * MINUTE;

#[test]
fn a_job_that_would_lose_much_work_gives_way_to_a_smaller_share_after_a_while() {
    let mut fleet = shared(30 * SECOND, 20 * SECOND);
    fleet.planner.note_shared(HOUR, 20);
    assert_eq!(plan_at(&mut fleet, HOUR), ["late preempts hog2 (FairShare) for east"], "the larger share");
    // Below 20 preemptions by share in six hours, and six hours after them, the law stands as it is.
    for (times, at_ms) in [(0, HOUR), (19, HOUR), (20, HOUR - 6 * HOUR)] {
        let mut fleet = shared(31 * SECOND, 31 * SECOND);
        fleet.planner.note_shared(at_ms, times);
        assert_eq!(plan_at(&mut fleet, HOUR), ["late preempts hog2 (FairShare) for east"]);
    }
    let mut fleet = shared(31 * SECOND, 31 * SECOND);
    fleet.planner.note_shared(HOUR - 6 * HOUR + 11 * MINUTE, 20);
    let until_ms = HOUR + 10 * MINUTE;
    assert_eq!(plan_at(&mut fleet, HOUR), [format!("late waits: Protected hog2 until {until_ms}")]);
    let plan = fleet.planner.plan(HOUR, PlanLimits::default(), &mut fleet.clusters);
    assert_eq!(plan.wake_at_ms, Some(until_ms));
    // An edit of the tree does not begin the time anew.
    let tree = QuotaTree::clone(fleet.planner.tree());
    fleet.planner.set_tree(tree, &mut |tree, id| {
        Some(leaf(
            tree,
            if id.as_str() == "late" {
                "c"
            } else if id.as_str() == "mid" {
                "b"
            } else {
                "a"
            },
        ))
    });
    assert!(!plan_at(&mut fleet, until_ms - 1).iter().any(|line| line.contains("preempts")));
    assert_eq!(plan_at(&mut fleet, until_ms), ["late preempts hog2 (FairShare) for east"]);
}

#[test]
fn work_that_is_lost_delays_no_min_and_no_priority() {
    let mut fleet = Fleet::new("root 4-4 @share-preemption=FairShare; a 0-4; b 2-4", "east 4");
    fleet.run("hog", "a", 4, 0, "east");
    fleet.clusters.started.insert("hog".into(), 0);
    fleet.now_ms = HOUR;
    fleet.submit("owner", "b", 2, 0);
    assert_eq!(plan_at(&mut fleet, HOUR)[0], "owner preempts hog (Reclaim) for east");
    let mut fleet = Fleet::new("root 4-4 @share-preemption=FairShare; a 0-4; b 0-4", "east 4");
    fleet.run("hog", "a", 4, 0, "east");
    fleet.clusters.started.insert("hog".into(), 0);
    fleet.submit("urgent", "a", 2, 1);
    assert_eq!(plan_at(&mut fleet, HOUR)[0], "urgent preempts hog (InQueuePriority) for east");
}

#[test]
fn a_queue_that_gave_to_a_smaller_share_takes_by_share_only_after_a_while() {
    let mut fleet = Fleet::new("root 9-9 @share-preemption=FairShare; a 0-9; b 0-9; c 0-9; d 0-9", "east 9");
    for (id, path, cores) in [("a1", "a", 2), ("a2", "a", 1), ("a3", "a", 1), ("b1", "b", 1), ("b2", "b", 4)]
    {
        fleet.run(id, path, cores, 0, "east");
    }
    fleet.submit("c1", "c", 1, 0);
    fleet.planner.note_shared(0, 19);
    let said = plan_at(&mut fleet, 0);
    assert!(said.contains(&"c1 preempts b2 (FairShare) for east".to_owned()), "{said:?}");
    fleet.end("b2");
    // The rest of what b gave is gone.
    fleet.run("d1", "d", 3, 0, "east");
    fleet.submit("b3", "b", 1, 0);
    let said = plan_at(&mut fleet, 1);
    assert!(said.contains(&"c1 starts on east".to_owned()), "{said:?}");
    let plan = fleet.planner.plan(2, PlanLimits::default(), &mut fleet.clusters);
    assert_eq!(
        (plan.takes().count(), plan.wake_at_ms),
        (0, Some(10 * SECOND)),
        "what b lacks it has just given"
    );
    assert_eq!(plan_at(&mut fleet, 10 * SECOND), ["b3 preempts a3 (FairShare) for east"]);
}
