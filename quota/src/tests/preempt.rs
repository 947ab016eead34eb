//! Whose jobs make room: the tables of examples, places, and preemption over time.

use super::*;

/// Root of 9 cpu, FairShare, leaves a, b, c with min 3 and max 9.
const BASE: &str = "root 9-9 @share-preemption=FairShare; a 3-9; b 3-9; c 3-9";

/// `leaf cpu [priority]` entries, run one after the other, then one comes in;
/// `expected` are victims as `leaf cpu priority: rule`. Amounts may be halves.
fn check(tree_text: &str, running: &str, incoming: &str, expected: &[&str]) {
    let tree = tree(tree_text);
    let mut planner = Planner::new(Arc::clone(&tree));
    let mut clusters = Clusters::endless();
    let read = |text: &str| {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let priority = words.get(2).map_or(0, |p| p.parse().unwrap());
        (words[0].clone(), Resources::parse([("cpu", words[1].as_str())]).unwrap(), priority)
    };
    for (i, job) in running.split(',').enumerate() {
        let (path, request, priority) = read(job);
        let id = format!("{i:02}");
        planner.admit(AdmittedJob { request, ..admitted(&tree, &id, &path, 0, priority, i as i64) });
        clusters.hold(&id, "any", 0);
    }
    let (path, request, priority) = read(incoming);
    planner.enqueue(WaitingJob { request, ..waiting(&tree, "preemptor", &path, 0, priority, 1000) });
    let before = format!("{:?}", planner.ledger());
    let plan = planner.plan(1000, PlanLimits::default(), &mut clusters);
    assert_eq!(format!("{:?}", planner.ledger()), before, "undo restores");
    let victims = plan.takes().flat_map(|(_, take)| &take.victims);
    let lines: Vec<String> = victims
        .map(|victim| {
            let job = planner.ledger().job(&victim.job).unwrap();
            format!("{} {} {}: {}", tree.node(job.leaf).name, job.request, job.priority, victim.rule.as_str())
        })
        .collect();
    assert_eq!(lines, expected, "{running} then {incoming}: {plan:?}");
}

#[test]
fn the_table_of_examples() {
    check(BASE, "a 1,a 1,a 1,b 1,b 1,b 1,b 1,b 1,c 1", "c 1", &["b cpu 1 0: Reclaim"]);
    check(BASE, "a 3,a 1,b 2,b 3", "c 3", &["b cpu 3 0: Reclaim"]);
    check(BASE, "a 1,a 1,a 1,b 1,b 1,b 1,c 1,c 1,c 1", "c 1", &[]);
    check(
        BASE,
        "a 1 -1,a 1,a 1,b 1,b 1,b 1,b 1,b 1,b 1",
        "a 2",
        &["b cpu 1 0: FairShare", "a cpu 1 -1: InQueuePriority"],
    );
    check(BASE, "b 2,b 1,b 2,c 1", "a 3.5", &["b cpu 1 0: FairShare"]);
    let weighted = BASE.replace("a 3-9", "a 3-9 w=2");
    check(
        &weighted,
        "a 1,a 1,a 1,b 1,b 1,b 1,b 1,b 1,b 1",
        "a 2",
        &["b cpu 1 0: FairShare", "b cpu 1 0: FairShare"],
    );
}

#[test]
fn in_one_leaf() {
    let one = "root 6-6; q 0-6";
    check(one, "q 2 -1,q 2 0,q 2 1", "q 3 1", &["q cpu 2 -1: InQueuePriority", "q cpu 2 0: InQueuePriority"]);
    check(one, "q 1 -1,q 2 0,q 3 1", "q 2 1", &["q cpu 2 0: InQueuePriority"]);
    check(one, "q 6 0", "q 2 0", &[]);
}

#[test]
fn by_priority_and_over_two_levels() {
    check("root 12-12; a 6-12; b 6-12", "a 4 0,a 4 1,b 2", "b 4", &["a cpu 4 0: Reclaim"]);
    let levels = "root 6-6; c 6-6; c/q 4-6; c/qs 0-6; qb 0-6";
    check(levels, "qb 3,c/qs 3", "c/q 4", &["qs cpu 3 0: Reclaim", "qb cpu 3 0: Reclaim"]);
}

#[test]
fn rights_can_be_withheld() {
    check(&BASE.replace("c 3-9", "c 3-9 @reclaim=Never"), "b 5,a 4", "c 3", &[]);
    let lower = BASE.replace("c 3-9", "c 3-9 @reclaim=LowerPriority");
    check(&lower, "b 5 0,a 4 -1", "c 3 0", &["a cpu 4 -1: Reclaim"]);
    let within = "root 6-6; q 0-6 @preempt-within=Never";
    check(within, "q 6 0", "q 2 5", &[]);
}

#[test]
fn a_subtree_may_lend_its_min_to_any_job_below_it() {
    let text = "root 6-6; t 4-6; t/x 0-6; t/y 4-6; b 2-6";
    check(text, "b 6", "t/x 2", &[]);
    check(&text.replace("t 4-6", "t 4-6 @guarantee=Subtree"), "b 6", "t/x 2", &["b cpu 6 0: Reclaim"]);
}

/// 40 cpu, four leaves of min 10 and max 20 under two parents; five jobs of 5
/// cpu come in each leaf in turn.
#[test]
fn four_namespaces() {
    let text = "root 40-40; a 20-40; a/1 10-20; a/2 10-20; b 20-40; b/1 10-20; b/2 10-20";
    let mut fleet = Fleet::new(text, "east 40");
    let mut seen = Vec::new();
    let paths = ["a/1", "a/2", "b/1", "b/2"];
    for (turn, path) in paths.iter().enumerate() {
        for i in 0..5 {
            fleet.submit(&format!("{path}-{i}"), path, 5, 0);
        }
        settle(&mut fleet);
        let count = |path: &&str| fleet.planner.ledger().job_count(leaf(fleet.planner.tree(), path));
        seen.push(paths[..=turn].iter().map(count).collect::<Vec<i64>>());
    }
    assert_eq!(seen, [vec![4], vec![4, 4], vec![3, 3, 2], vec![2, 2, 2, 2]]);
}

/// Plans until nothing more happens; victims end at once and wait again.
fn settle(fleet: &mut Fleet) {
    for _ in 0..100 {
        fleet.now_ms += 1;
        let plan = fleet.planner.plan(fleet.now_ms, PlanLimits::default(), &mut fleet.clusters);
        let victims: Vec<JobId> =
            plan.takes().flat_map(|(_, take)| take.victims.iter().map(|v| v.job.clone())).collect();
        if victims.is_empty() && plan.admitted().next().is_none() {
            return;
        }
        for id in victims {
            let job = fleet.planner.ledger().job(&id).unwrap().clone();
            fleet.end(id.as_str());
            let path = fleet.planner.tree().node(job.leaf).path.replacen("root/", "", 1);
            fleet.submit(id.as_str(), &path, job.request.get("cpu") / 1000, job.priority);
        }
    }
    panic!("preempts back and forth without end");
}

#[test]
fn a_borrower_starts_now_and_gives_back_when_the_owner_can_start() {
    let mut fleet = Fleet::new("root 2-2; a 2-2; b 0-2", "east 2");
    fleet.run("a1", "a", 1, 0, "east");
    fleet.submit("a2", "a", 2, 0);
    fleet.submit("b1", "b", 1, 0);
    // a2 does not fit beside a1 inside min: nothing is held back for it.
    assert_eq!(fleet.plan(), ["b1 starts on east", "a2 waits: InsufficientQuota"]);
    fleet.end("a1");
    assert_eq!(fleet.plan_at(1), ["a2 preempts b1 (Reclaim) for east"]);
    fleet.end("b1");
    assert_eq!(fleet.plan(), ["a2 starts on east"]);
}

#[test]
fn the_preemptor_waits_for_its_victims_and_nobody_slips_in() {
    let mut fleet = Fleet::new("root 4-4; a 2-4; b 2-4", "east 4");
    for id in ["b1", "b2", "b3", "b4"] {
        fleet.run(id, "b", 1, 0, "east");
    }
    fleet.submit("a1", "a", 2, 0);
    assert_eq!(fleet.plan(), ["a1 preempts b4 (Reclaim), b3 (Reclaim) for east"]);
    let reason = fleet.planner.reason(&"a1".into()).unwrap();
    assert_eq!(reason_text(&reason), "WaitingForVictims b4, b3 in east");
    // No second preemption while the first is under way, whatever happens.
    assert_eq!(fleet.plan(), [""; 0]);
    fleet.end("b4");
    fleet.submit("b5", "b", 1, 0);
    assert_eq!(fleet.plan(), ["b5 waits: Claimed by a1"]);
    fleet.end("b3");
    assert_eq!(fleet.plan()[0], "a1 starts on east");
}

#[test]
fn two_preemptors_never_count_on_one_victim() {
    let mut fleet = Fleet::new("root 4-4; a 1-4; b 1-4; c 1-4", "east 4");
    fleet.run("c1", "c", 2, 0, "east");
    fleet.run("c2", "c", 2, 0, "east");
    fleet.submit("a1", "a", 1, 0);
    fleet.submit("b1", "b", 1, 0);
    // One victim leaves room for both: the second counts on what the first leaves.
    assert_eq!(fleet.plan(), ["a1 preempts c2 (Reclaim) for east", "b1 waits: InsufficientQuotaInParent"]);
    fleet.end("c2");
    assert_eq!(fleet.plan(), ["a1 starts on east", "b1 starts on east"]);
}

#[test]
fn a_preemptor_that_also_counts_on_anothers_victims_waits_for_those() {
    let mut fleet = Fleet::new("root 40-40; b 8-24 jobs=3", "east 24, west 16, north 4");
    fleet.run("slow", "b", 14, -1, "east");
    fleet.run("urgent", "b", 3, 1, "north");
    fleet.submit("wide", "b", 9, 0);
    assert_eq!(fleet.plan(), ["wide preempts slow (InQueuePriority) for east"]);
    fleet.submit("small", "b", 4, -1);
    assert_eq!(fleet.plan(), ["small starts on east"]);
    // One job fewer is enough, once the first victim's cores are free as well.
    fleet.submit("late", "b", 12, 0);
    assert_eq!(fleet.plan_at(1), ["late preempts small (InQueuePriority) for west"]);
    fleet.end("small");
    fleet.submit("small", "b", 4, -1);
    assert_eq!(fleet.plan(), ["small waits: Claimed by late"], "it is not let in to be preempted again");
    fleet.end("slow");
    assert_eq!(fleet.plan()[..2], ["late starts on west", "wide starts on east"]);
}

#[test]
fn jobs_already_ending_are_waited_for_instead_of_preempting() {
    let mut fleet = Fleet::new("root 4-4; a 2-4; b 2-4", "east 4");
    fleet.run("b1", "b", 2, 0, "east");
    fleet.run("b2", "b", 2, 0, "east");
    fleet.planner.ending(&"b1".into());
    fleet.submit("a1", "a", 2, 0);
    assert_eq!(fleet.plan(), ["a1 waits: WaitingForVictims b1 in east"]);
    fleet.end("b1");
    assert_eq!(fleet.plan(), ["a1 starts on east"]);
}

#[test]
fn places_are_preempted_in_the_one_cluster_where_that_is_cheapest() {
    // The tree has room; places are short: b borrows all of them.
    let mut fleet = Fleet::new("root 100-100; a 4-100; b 0-100", "east 4, west 4");
    fleet.run("e1", "b", 2, 0, "east");
    fleet.run("e2", "b", 2, 5, "east");
    fleet.run("w1", "b", 2, 0, "west");
    fleet.run("w2", "b", 2, 0, "west");
    fleet.submit("a1", "a", 4, 0);
    assert_eq!(fleet.plan(), ["a1 preempts w2 (Reclaim), w1 (Reclaim) for west"]);
    fleet.end("w1");
    fleet.end("w2");
    assert_eq!(fleet.plan(), ["a1 starts on west"]);
}

#[test]
fn lost_work_decides_between_clusters_of_equal_priority() {
    let mut fleet = Fleet::new("root 100-100; a 4-100; b 0-100", "east 2, west 2");
    fleet.run("e1", "b", 2, 0, "east");
    fleet.run("w1", "b", 2, 0, "west");
    fleet.clusters.lost.insert("e1".into(), 60_000);
    fleet.clusters.lost.insert("w1".into(), 5_000);
    fleet.submit("a1", "a", 2, 0);
    assert_eq!(fleet.plan(), ["a1 preempts w1 (Reclaim) for west"]);
}

#[test]
fn nobody_inside_min_is_a_victim_nor_when_it_would_not_help() {
    let mut fleet = Fleet::new("root 100-100; a 4-100; b 4-100; c 0-100", "east 4, west 4");
    fleet.run("e1", "b", 4, 0, "east");
    fleet.run("w1", "c", 2, 0, "west");
    fleet.submit("a1", "a", 4, 0);
    assert_eq!(fleet.plan(), ["a1 preempts w1 (Reclaim) for west"], "e1 is inside b's min");
    fleet.submit("a2", "a", 2, 0);
    assert_eq!(fleet.plan(), ["a2 waits: Claimed by a1"], "the free places of west are a1's");
    let mut fleet = Fleet::new("root 100-100; a 8-100; c 0-100", "east 4, west 4");
    fleet.run("e1", "c", 4, 0, "east");
    fleet.run("w1", "c", 4, 0, "west");
    fleet.submit("a1", "a", 8, 0);
    assert_eq!(fleet.plan(), ["a1 waits: NoPlace"], "no one cluster could hold it");
}

#[test]
fn two_preemptors_of_one_cluster_count_its_free_places_once() {
    let mut fleet = Fleet::new("root 100-100; a 9-100; b 9-100; c 0-100", "east 5");
    for id in ["c1", "c2", "c3", "c4"] {
        fleet.run(id, "c", 1, 0, "east");
    }
    fleet.submit("a1", "a", 2, 0);
    fleet.submit("b1", "b", 2, 0);
    assert_eq!(
        fleet.plan(),
        ["a1 preempts c4 (Reclaim) for east", "b1 preempts c3 (Reclaim), c2 (Reclaim) for east"],
        "the free place is a1's"
    );
}

#[test]
fn a_preemptor_that_leaves_keeps_nothing() {
    let mut fleet = Fleet::new("root 2-2; a 2-2; b 0-2", "east 2");
    fleet.run("b1", "b", 2, 0, "east");
    fleet.submit("a1", "a", 2, 0);
    assert_eq!(fleet.plan(), ["a1 preempts b1 (Reclaim) for east"]);
    fleet.submit("b2", "b", 2, 0);
    fleet.end("b1");
    fleet.planner.remove(&"a1".into());
    assert_eq!(fleet.plan(), ["b2 starts on east"]);
}

#[test]
fn of_equal_shares_the_jobs_decide_and_not_the_names() {
    check(BASE, "a 3 0,a 1 5,b 3 0,b 1 -5,c 1", "c 1", &["b cpu 1 -5: Reclaim"]);
    check(BASE, "b 3 0,b 1 5,a 3 0,a 1 -5,c 1", "c 1", &["a cpu 1 -5: Reclaim"]);
    // Below inner nodes as well; the larger share goes first all the same.
    let levels = "root 9-9; p 3-9; p/a 1-9; p/b 1-9; c 3-9";
    check(levels, "p/a 3 0,p/b 3 -1,p/b 3 1", "c 1", &["b cpu 3 -1: Reclaim"]);
    check(levels, "p/a 3 0,p/b 3 -1,c 3", "c 3", &[]);
    check(levels, "p/a 4 0,p/b 4 -1,c 1", "c 1", &["b cpu 4 -1: Reclaim"]);
    check(levels, "p/a 5 0,p/b 4 -1", "c 1", &["a cpu 5 0: Reclaim"]);
}

#[test]
fn a_larger_share_gives_way_whatever_the_priorities_of_its_jobs() {
    let four = "root 8-8 @share-preemption=FairShare; a 1-6; b 1-8; c 2-8; d 1-7";
    // b's third job alone would only take its own leaf's first.
    check(four, "d 2,b 3 -1,b 1,a 1,b 1", "d 1", &["b cpu 3 -1: FairShare"]);
    check(four, "d 2,b 3,b 1,a 1,b 1", "d 1", &["b cpu 1 0: FairShare"]);
    let weighted = "root 10-10 @share-preemption=FairShare; a 4-10; b 2-8; c 2-10 w=2";
    check(weighted, "a 2,a 1 1,b 1 1,b 1,c 2,b 3 -1", "c 2 1", &["b cpu 3 -1: FairShare"]);
}

#[test]
fn nobody_leaves_its_own_leaf_only_to_give_a_right() {
    // Without its leaf's small job the preemptor would be inside min; but what it needs all comes from b, and that
    // job would run beside it.
    let two = "root 6-6; a 2-6; b 0-6 @min-runtime=1h";
    check(two, "a 1 -1,b 5", "a 2", &[]);
    // If the small job's capacity is needed as well, the leaf stays inside its min.
    check(two, "a 1 -1,b 4,b 1", "a 2", &["b cpu 1 0: Reclaim", "a cpu 1 -1: InQueuePriority"]);
    check(two, "a 1 -1,b 1,b 4", "a 2", &["b cpu 1 0: Reclaim", "a cpu 1 -1: InQueuePriority"]);
    // Eleven would have to leave before the min covers it: for one core, one of them does.
    let eleven = format!("{},b 12", ["a 1 -1"; 11].join(","));
    check("root 23-23; a 1-23; b 0-23", &eleven, "a 1", &["a cpu 1 -1: InQueuePriority"]);
    // By its share it has no right to so much beside it.
    let shares = "root 6-6 @share-preemption=FairShare; a 1-6; b 1-6";
    check(shares, "a 1 -1,a 1,b 4", "a 3", &[]);
}

/// `GPUs and cores` in leaves that guarantee both.
fn gpus(leaf: NodeId, id: &str, cores: i64, gpus: i64) -> AdmittedJob {
    let request = Resources::from_pairs([("cpu", cores * 1000), ("nvidia.com/gpu", gpus)]);
    let (priority, enqueued_at_ms, admitted_at_ms, preemptions) = (0, 0, 0, 0);
    AdmittedJob {
        id: id.into(),
        leaf,
        request,
        preemptible: true,
        priority,
        enqueued_at_ms,
        admitted_at_ms,
        preemptions,
    }
}

#[test]
fn a_min_is_not_lost_for_another_resource_that_is_borrowed() {
    let node = |name: &str, cpu: i64, gpu: i64| NodeSpec {
        name: name.to_owned(),
        min: [("cpu".to_owned(), cpu.to_string()), ("nvidia.com/gpu".to_owned(), gpu.to_string())].into(),
        ..NodeSpec::default()
    };
    let mut root = node("root", 16, 8);
    root.children = vec![node("a", 4, 4), node("b", 4, 4), node("c", 0, 0)];
    let mut planner = Planner::new(Arc::new(QuotaTree::build(&root).unwrap().0));
    let mut clusters = Clusters::endless();
    let at = |planner: &Planner, name: &str| leaf(planner.tree(), name);
    for (id, path, cores, count) in [("b-cpu", "b", 10, 0), ("c-gpu", "c", 1, 4), ("b-gpu", "b", 4, 4)] {
        planner.admit(gpus(at(&planner, path), id, cores, count));
        clusters.hold(id, "any", cores);
    }
    let preemptor = gpus(at(&planner, "a"), "a-gpu", 1, 4);
    let job = waiting(planner.tree(), "a-gpu", "a", 0, 0, 10);
    planner.enqueue(WaitingJob { request: preemptor.request, ..job });
    let plan = planner.plan(1000, PlanLimits::default(), &mut clusters);
    let lines: Vec<String> = plan.decisions.iter().map(said).collect();
    // Only GPUs are short: b borrows cores, and none of them.
    assert_eq!(lines, ["a-gpu preempts c-gpu (Reclaim) for any"]);
}

#[test]
fn a_bounded_search_goes_on_where_it_stopped() {
    let mut fleet = Fleet::new("root 4-4; a 0-4; c 3-4; d 0-4", "east 100");
    fleet.run("c1", "c", 3, 0, "east");
    fleet.run("low", "a", 1, -1, "east");
    for i in 0..17 {
        fleet.submit(&format!("want{i:02}"), "a", 2 + i, 1);
    }
    let limits = PlanLimits { searches: 4, ..PlanLimits::default() };
    let mut plans = 0;
    while fleet.planner.plan(fleet.now_ms, limits, &mut fleet.clusters).more {
        plans += 1;
        assert!(plans <= 5, "17 kinds of jobs are searched for four at a time");
    }
    let asked = fleet.clusters.asked;
    fleet.planner.plan(fleet.now_ms, limits, &mut fleet.clusters);
    assert_eq!(fleet.clusters.asked, asked, "nobody is asked again before something changes");
    // One more that only has to take the low job does so within a round, though something happens all the time.
    fleet.submit("want99", "a", 1, 0);
    for i in 0..6 {
        fleet.planner.places_freed(&"east".into());
        let plan = fleet.planner.plan(i, limits, &mut fleet.clusters);
        if plan.takes().any(|(id, _)| id.as_str() == "want99") {
            return;
        }
    }
    panic!("want99 was not searched for");
}

#[test]
fn a_job_that_starts_and_is_a_victim_in_one_plan_does_not_start() {
    // `large` goes before a1 in its leaf and borrows more than b2, which goes first; then a1's min is at stake.
    let mut fleet = Fleet::new("root 8-8; a 4-8; b 0-8", "east 8");
    fleet.run("b1", "b", 3, 0, "east");
    fleet.submit("large", "a", 5, 1);
    fleet.submit("a1", "a", 2, 0);
    fleet.submit("b2", "b", 4, -1);
    fleet.run("b0", "b", 1, 0, "east");
    let lines = fleet.plan();
    assert!(lines.contains(&"a1 starts on east".to_owned()), "{lines:?}");
    assert!(
        !lines.iter().any(|line| line.contains("preempts") || line.starts_with("b2 starts")),
        "{lines:?}"
    );
}

#[test]
fn a_preemptor_keeps_the_age_of_its_claim() {
    let text = "root 10-10; a 0-10 @max-bypass=0s; b 0-10 @max-bypass=0s; c 0-10 @max-bypass=1h";
    let mut fleet = Fleet::new(text, "east 10");
    fleet.run("c1", "c", 6, 0, "east");
    fleet.run("a0", "a", 2, -1, "east");
    fleet.submit("a1", "a", 4, 1);
    fleet.submit("b1", "b", 9, 0);
    fleet.plan();
    fleet.submit("c2", "c", 1, 0);
    fleet.plan_at(1000);
    fleet.plan_at(12_000);
    // b1 claims; a1 takes beside that, and what its victim leaves is its own.
    let taken = fleet.planner.ending_jobs().next().is_some();
    for id in fleet.planner.ending_jobs().cloned().collect::<Vec<_>>() {
        fleet.end(id.as_str());
    }
    let lines = fleet.plan_at(13_000);
    assert!(!taken || lines.iter().any(|line| line == "a1 starts on east"), "{lines:?}");
}

/// A job that waits for cells is no way around what a preemption has freed for another.
#[test]
fn what_victims_free_is_not_for_a_job_that_waits_elsewhere() {
    let mut fleet = Fleet::new("root 5-5; a 2-5; b 3-5", "east 5");
    fleet.run("borrower", "b", 4, 0, "east");
    fleet.submit("owner", "a", 2, 0);
    assert_eq!(fleet.plan_at(60_000), ["owner preempts borrower (Reclaim) for east"]);
    let b = leaf(fleet.planner.tree(), "b");
    let visits = |fleet: &Fleet, cores| {
        fleet.planner.may_admit(&"visitor".into(), b, &cpu(cores), true, None).map_err(|why| match why {
            NotAdmitted::Quota(verdict) => verdict.reason().to_owned(),
            NotAdmitted::Reserved(holder) => holder.as_str().to_owned(),
        })
    };
    assert_eq!(visits(&fleet, 4), Err("InsufficientQuota".to_owned()));
    fleet.end("borrower");
    assert_eq!(visits(&fleet, 4), Err("owner".to_owned()));
    assert_eq!(visits(&fleet, 3), Ok(()));
    assert_eq!(fleet.plan(), ["owner starts on east"]);
    assert_eq!(visits(&fleet, 4), Err("InsufficientQuotaInParent".to_owned()));
}

#[test]
fn a_job_that_waits_for_quota_is_not_told_of_each_preemptor_before_it() {
    let mut fleet = Fleet::new("root 4-4; a 4-4; b 0-8", "east 4");
    fleet.run("r1", "b", 2, 0, "east");
    fleet.run("r2", "b", 2, 0, "east");
    fleet.submit("later", "b", 2, 0);
    assert_eq!(fleet.plan(), ["later waits: InsufficientQuotaInParent"]);
    fleet.submit("p", "a", 4, 0);
    assert!(fleet.plan()[0].starts_with("p preempts"));
    // What the first victim frees is enough for the later job, and reserved.
    fleet.end("r1");
    assert_eq!(fleet.plan(), [""; 0]);
    assert_eq!(reason_text(&fleet.planner.reason(&"later".into()).unwrap()), "Claimed by p");
    fleet.end("r2");
    assert_eq!(fleet.plan(), ["p starts on east"]);
    fleet.submit("other", "b", 2, 0);
    assert_eq!(fleet.plan(), [""; 0], "an equal of a job that was told");
}

#[test]
fn a_job_that_may_not_be_preempted_takes_its_min_back_and_claims() {
    let firm = |fleet: &mut Fleet, cores: i64| {
        let job = waiting(fleet.planner.tree(), "firm", "a", cores, 0, 0);
        fleet.planner.enqueue(WaitingJob { preemptible: false, ..job });
    };
    let text = "root 4-4 jobs=9; a 2-4 @max-bypass=0s; b 1-4 jobs=5";
    let mut fleet = Fleet::new(text, "east 4");
    fleet.run("b1", "b", 2, 0, "east");
    fleet.run("b2", "b", 2, 0, "east");
    firm(&mut fleet, 2);
    assert_eq!(fleet.plan(), ["firm preempts b2 (Reclaim) for east"]);
    let mut fleet = Fleet::new(&text.replace("a 2-4", "a 2-4 @reclaim=Never"), "east 4");
    fleet.run("b1", "b", 3, 0, "east");
    firm(&mut fleet, 2);
    fleet.plan();
    fleet.submit("b2", "b", 1, 0);
    assert_eq!(fleet.plan(), ["b2 starts on east", "firm claims east"]);
}

#[test]
fn another_set_is_tried_where_the_first_uses_up_what_may_be_taken() {
    let mut fleet = Fleet::new("root 12-12; a 7-12; b 4-12", "east 8");
    for (id, cores) in [("a1", 4), ("a2", 3), ("a3", 1)] {
        fleet.run(id, "a", cores, 0, "east");
    }
    fleet.submit("b1", "b", 3, 0);
    assert_eq!(fleet.plan(), ["b1 preempts a2 (Reclaim) for east"]);
    // By share as well: the small one alone makes no room, and beside it the share is no longer larger.
    let shares = "root 12-12 @share-preemption=FairShare; a 0-12; b 0-12";
    let mut fleet = Fleet::new(shares, "east 4");
    fleet.run("a1", "a", 3, 0, "east");
    fleet.run("a2", "a", 1, 0, "east");
    fleet.submit("b1", "b", 3, 0);
    assert_eq!(fleet.plan(), ["b1 preempts a1 (FairShare) for east"]);
}

#[test]
fn the_largest_share_goes_first_in_whatever_cluster() {
    let text = "root 12-12; a 4-12; hog 0-12; small 0-12";
    let mut fleet = Fleet::new(text, "east 8, west 4");
    for (id, path, cluster, lost_ms) in
        [("h0", "hog", "east", 65_000), ("h1", "hog", "east", 60_000), ("s0", "small", "west", 5_000)]
    {
        fleet.run(id, path, 4, 0, cluster);
        fleet.clusters.lost.insert(id.into(), lost_ms);
    }
    fleet.submit("a0", "a", 4, 0);
    assert_eq!(fleet.plan(), ["a0 preempts h1 (Reclaim) for east"]);
}

/// What is left behind the victims of `p` is for one of `y` and `z`. `n` goes before `y` in their queue, and asks for so much
/// that `z` goes before both: what was found for `y` when it went first holds no longer.
#[test]
fn who_fits_behind_others_is_asked_again_when_another_one_goes_first() {
    let mut fleet = Fleet::new("root 10-10; a 0-10; b 0-10; c 0-10", "any 1000");
    for (id, path, cores, priority) in
        [("a1", "a", 4, -1), ("b1", "b", 2, -2), ("c1", "c", 1, -1), ("c2", "c", 3, 0)]
    {
        fleet.run(id, path, cores, priority, "any");
    }
    fleet.submit("p", "a", 2, 0);
    assert_eq!(fleet.plan(), ["p preempts a1 (InQueuePriority) for any"]);
    fleet.submit("y", "b", 2, 0);
    fleet.submit("z", "c", 2, 0);
    assert_eq!(
        fleet.plan_at(1),
        ["y waits: InsufficientQuotaInParent", "z waits: InsufficientQuotaInParent"]
    );
    assert_eq!(fleet.plan_at(2), [""; 0], "y fits behind p");
    fleet.submit("n", "b", 9, 1);
    assert_eq!(fleet.plan_at(3), ["y preempts b1 (InQueuePriority) for any", "n waits: InsufficientQuota"]);
}

/// A victim of nobody any more uses its quota until it has ended, and what is left of the min beside it is for others.
#[test]
fn a_victim_that_nobody_waits_for_keeps_nobody_from_its_min() {
    let mut fleet = Fleet::new("root 5-5; a 0-5; c 4-5", "any 1000");
    fleet.run("c1", "c", 3, 0, "any");
    fleet.run("a1", "a", 2, 0, "any");
    fleet.now_ms = 10;
    fleet.submit("h", "c", 3, 1);
    assert_eq!(fleet.plan(), ["h preempts c1 (InQueuePriority) for any"]);
    fleet.submit("j", "c", 1, 0);
    assert_eq!(fleet.plan(), ["j waits: InsufficientQuotaInParent"], "c1 goes first when it waits again");
    fleet.planner.remove(&"h".into());
    assert_eq!(fleet.plan(), ["j waits: WaitingForVictims c1 in any"]);
    fleet.end("c1");
    fleet.submit("c1", "c", 3, 0);
    assert_eq!(fleet.plan(), ["j starts on any", "c1 preempts a1 (Reclaim) for any"]);
}

#[test]
fn who_was_promised_its_start_keeps_it_for_a_moment_and_gives_way_to_a_min_then() {
    let mut fleet = Fleet::new("root 4-4; a 2-4; c 0-4", "any 1000");
    fleet.run("c1", "c", 3, 0, "any");
    fleet.run("a1", "a", 1, 0, "any");
    fleet.submit("h", "c", 3, 1);
    assert_eq!(fleet.plan(), ["h preempts c1 (InQueuePriority) for any"]);
    fleet.submit("j", "a", 1, 0);
    assert_eq!(fleet.plan(), ["j waits: InsufficientQuotaInParent"]);
    fleet.end("c1");
    assert_eq!(fleet.plan_at(10), ["h starts on any"]);
    assert_eq!(fleet.plan_at(11), ["j preempts h (Reclaim) for any"]);
}
