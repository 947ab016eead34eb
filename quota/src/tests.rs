//! The facts file's examples, the tree of the walkthrough, and laws.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_resources::Resources;
use proptest::prelude::*;

use crate::*;

/// `root cpu 40; a cpu 20-40; a/1 cpu 10-20 ns1; ...`: per node a path below the
/// root, `min-max` or `max` in cpu, then `jobs=N`, `w=N`, namespaces.
fn tree_spec(text: &str) -> NodeSpec {
    let mut root = NodeSpec::default();
    for line in text.split(';').map(str::trim).filter(|line| !line.is_empty()) {
        let mut words = line.split_whitespace();
        let path = words.next().unwrap();
        let mut node = &mut root;
        if path != "root" {
            for name in path.split('/') {
                let at = node.children.iter().position(|child| child.name == name).unwrap_or_else(|| {
                    node.children.push(NodeSpec { name: name.to_owned(), ..NodeSpec::default() });
                    node.children.len() - 1
                });
                node = &mut node.children[at];
            }
        }
        for word in words {
            if let Some(jobs) = word.strip_prefix("jobs=") {
                node.max.insert(MAX_JOBS.to_owned(), jobs.to_owned());
            } else if let Some(weight) = word.strip_prefix("w=") {
                node.attributes.insert("fleet.dev/weight".to_owned(), weight.to_owned());
            } else if let Some(limit) = word.strip_prefix("lend=") {
                let text = format!("{{\"cpu\": \"{limit}\"}}");
                node.attributes.insert("alibabacloud.com/lendlimit".to_owned(), text);
            } else if word.starts_with(|c: char| c.is_ascii_digit()) {
                let (min, max) = word.split_once('-').map_or((None, word), |(min, max)| (Some(min), max));
                node.max.insert("cpu".to_owned(), max.to_owned());
                node.min.extend(min.map(|min| ("cpu".to_owned(), min.to_owned())));
            } else {
                node.namespaces.push(word.to_owned());
            }
        }
    }
    root
}

fn tree(text: &str) -> Arc<QuotaTree> {
    Arc::new(QuotaTree::build(&tree_spec(text)).unwrap().0)
}

fn cpu(cores: i64) -> Resources {
    Resources::from_pairs([("cpu", cores * 1000)])
}

fn leaf(tree: &QuotaTree, path: &str) -> NodeId {
    tree.find(&format!("root/{path}")).unwrap()
}

fn run(ledger: &mut Ledger, id: &str, path: &str, cores: i64) {
    let leaf = leaf(ledger.tree(), path);
    ledger.admit(AdmittedJob {
        id: JobId::new(id),
        leaf,
        request: cpu(cores),
        preemptible: true,
        priority: 0,
        admitted_at_ms: 0,
    });
}

fn waiting(tree: &QuotaTree, id: &str, path: &str, cores: i64, priority: i64, age: i64) -> WaitingJob {
    WaitingJob {
        id: JobId::new(id),
        name: id.to_owned(),
        leaf: leaf(tree, path),
        request: cpu(cores),
        preemptible: true,
        priority,
        enqueued_at_ms: age,
        not_before_ms: 0,
        shape: 0,
    }
}

/// Plans `jobs` (`id leaf cpu priority age`) over an empty ledger; `admitted`
/// are the ids in order.
fn check_order(tree_text: &str, jobs: &str, policy: QueuePolicy, admitted: &[&str]) -> Plan {
    let tree = tree(tree_text);
    let mut ledger = Ledger::new(Arc::clone(&tree));
    let mut queues = Queues::new();
    for leaf in tree.leaves() {
        queues.set_policy(leaf, policy);
    }
    for job in jobs.split(',') {
        let w: Vec<&str> = job.split_whitespace().collect();
        let n = |i: usize| w[i].parse::<i64>().unwrap();
        queues.enqueue(waiting(&tree, w[0], w[1], n(2), n(3), n(4)));
    }
    let plan = plan(&mut ledger, &queues, 0, PlanLimits::default(), &mut |job| !job.name.starts_with("huge"));
    let ids: Vec<&str> = plan.admitted().map(JobId::as_str).collect();
    assert_eq!(ids, admitted, "{jobs}");
    plan
}

#[test]
fn the_walkthrough_tree_is_accepted_with_warnings() {
    let spec = walkthrough();
    let (tree, warnings) = QuotaTree::build(&spec).unwrap();
    let sentences: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(sentences.join("\n"), @r"
    quota root, max[cpu]: found 999900; the rule is max equal to min, here 9999; the max is the capacity
    quota root, max[kube-queue/max-jobs]: found 10000000000; the rule is max equal to min, here nothing; the max is the capacity
    quota root, max[memory]: found 400000Gi; the rule is max equal to min, here 40Gi; the max is the capacity
    quota root, max[nvidia.com/gpu]: found 100000; the rule is max equal to min, here nothing; the max is the capacity
    quota root/child-2, min: found nothing; the rule is a min for each node; without one nothing is guaranteed
    ");
    assert_eq!(tree.max(NodeId::ROOT, MAX_JOBS), None);
    assert_eq!(tree.max(NodeId::ROOT, "memory"), Some(400_000 << 30));
    assert_eq!(tree.max(NodeId::ROOT, "cpu"), Some(999_900_000));
    let child = tree.leaf_for(&BTreeMap::new(), "default").unwrap();
    assert_eq!(tree.max(child, MAX_JOBS), Some(1));
    assert_eq!(tree.min(child, "cpu"), 0);
}

/// The quota tree of the user walkthrough.
fn walkthrough() -> NodeSpec {
    let map =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    NodeSpec {
        name: "root".into(),
        max: map(&[
            ("cpu", "999900"),
            ("memory", "400000Gi"),
            (MAX_JOBS, "10000000000"),
            ("nvidia.com/gpu", "100000"),
        ]),
        min: map(&[("cpu", "9999"), ("memory", "40Gi")]),
        children: vec![NodeSpec {
            name: "child-2".into(),
            namespaces: vec!["default".into()],
            max: map(&[
                (MAX_JOBS, "1"),
                ("cpu", "10000"),
                ("nvidia.com/gpu", "10000"),
                ("memory", "10000Gi"),
            ]),
            ..NodeSpec::default()
        }],
        ..NodeSpec::default()
    }
}

#[test]
fn trees_that_cannot_be_used() {
    let check = |text: &str, expected: &str| {
        let error = QuotaTree::build(&tree_spec(text)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check("a 1 ns1; b 1 ns1", "namespace \"ns1\" is listed in root/a and in root/b;");
    check("a 1x ns1", "root/a, max: resource \"cpu\": \"1x\" is not a quantity");
    let child = |name: &str| NodeSpec { name: name.to_owned(), ..NodeSpec::default() };
    let with = |children: Vec<NodeSpec>| QuotaTree::build(&NodeSpec { children, ..NodeSpec::default() });
    assert!(matches!(with(vec![child("a"), child("a")]), Err(TreeError::DuplicateName { .. })));
    assert!(matches!(with(vec![child("a/b")]), Err(TreeError::BadName { .. })));
    assert!(matches!(with(vec![child("")]), Err(TreeError::BadName { .. })));
    let mut negative = child("a");
    negative.max.insert("cpu".into(), "-1".into());
    assert!(matches!(with(vec![negative]), Err(TreeError::Negative { .. })));
    let deep = (0..64).fold(child("x"), |inner, _| NodeSpec { children: vec![inner], ..child("x") });
    assert!(matches!(with(vec![deep]), Err(TreeError::TooDeep { .. })));
    let wide = (0..10_000).map(|i| child(&format!("n{i}"))).collect();
    assert_eq!(with(wide).unwrap().0.len(), 10_001);
}

#[test]
fn leaves_by_label_path_and_namespace() {
    let tree = tree("a 4; a/x 2 ns1; a/y 2; b 4 ns2");
    let find = |label: Option<(&str, &str)>, namespace: &str| {
        let labels = label.map(|(k, v)| (k.to_owned(), v.to_owned())).into_iter().collect();
        let leaf = tree.leaf_for(&labels, namespace);
        leaf.map(|leaf| tree.node(leaf).path.clone()).map_err(|error| error.to_string())
    };
    assert_eq!(find(None, "ns1"), Ok("root/a/x".into()));
    assert_eq!(find(Some((QUOTA_LABELS[0], "y")), "ns1"), Ok("root/a/y".into()));
    assert_eq!(find(Some((QUOTA_LABELS[1], "root/b")), "ns1"), Ok("root/b".into()));
    assert!(find(None, "other").unwrap_err().contains("does not belong to any elastic quota"));
    assert!(find(Some((QUOTA_LABELS[0], "nobody")), "ns1").unwrap_err().contains("\"nobody\" names no node"));
    assert!(
        find(Some((QUOTA_LABELS[0], "root/a")), "ns1").unwrap_err().contains("root/a, which has children")
    );
}

#[test]
fn queue_names() {
    assert_eq!(queue_prefix("root"), "root-");
    assert_eq!(queue_prefix("root/child-2"), "root-child-2-");
    assert_eq!(queue_prefix("root/Team_A"), "root-team-a-");
    let long = queue_prefix(&format!("root/{}", "x".repeat(80)));
    assert_eq!((long.len(), long.ends_with("xxx-")), (58, true));
}

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
        "QuotaExceeded",
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
fn queue_policies() {
    let jobs = "first a 6 5 0,second a 9 5 1,third a 1 0 2";
    let one = "root 10; a 10";
    check_order(one, jobs, QueuePolicy::Priority, &["first", "third"]);
    let plan = check_order(one, jobs, QueuePolicy::Block, &["first"]);
    assert!(
        plan.decisions.iter().any(|d| d.outcome == Outcome::Wait(WaitReason::BehindHead("second".into())))
    );
    check_order(one, jobs, QueuePolicy::Intelligent { threshold: 4 }, &["first"]);
    check_order(one, jobs, QueuePolicy::Intelligent { threshold: 6 }, &["first", "third"]);
}

#[test]
fn a_job_no_cluster_holds_gives_way_and_holds_nothing() {
    let plan = check_order("root 10; a 10", "huge a 5 9 0,small a 6 0 1", QueuePolicy::Priority, &["small"]);
    assert_eq!(plan.decisions[0].outcome, Outcome::Wait(WaitReason::NoPlace));
}

#[test]
fn backing_off_jobs_keep_their_place_and_let_others_pass() {
    let tree = tree("root 10; a 10");
    let mut queues = Queues::new();
    queues.enqueue(waiting(&tree, "first", "a", 1, 0, 0));
    queues.enqueue(waiting(&tree, "second", "a", 1, 0, 1));
    queues.back_off(&"first".into(), 100);
    assert_eq!((queues.position(&"first".into()), queues.position(&"second".into())), (Some(1), Some(2)));
    let at = |now_ms| {
        let mut ledger = Ledger::new(Arc::clone(&tree));
        let plan = plan(&mut ledger, &queues, now_ms, PlanLimits::default(), &mut |_| true);
        plan.admitted().map(JobId::to_string).collect::<Vec<_>>()
    };
    assert_eq!(at(50), ["second"]);
    assert_eq!(at(100), ["first", "second"]);
}

#[test]
fn an_edited_tree_moves_jobs() {
    let mut ledger = Ledger::new(tree("root 10; a 5; b 5"));
    run(&mut ledger, "1", "a", 2);
    run(&mut ledger, "2", "b", 3);
    let old = Arc::clone(ledger.tree());
    let new = tree("root 10; c 5; a 9");
    let (moved, lost) = ledger.rebuilt(Arc::clone(&new), |job| new.find(&old.node(job.leaf).path));
    assert_eq!(moved.used(leaf(&new, "a")).get("cpu"), 2000);
    assert_eq!(lost.len(), 1);
    assert_eq!(moved.used(NodeId::ROOT).get("cpu"), 2000);
}

const LAW_TREE: &str =
    "root 20 jobs=9; a 6-12 jobs=5; a/1 3-8; a/2 3-20 lend=1; b 4-10; b/1 2-10 w=2; b/2 2-3; c 0-20 w=0";
const LAW_LEAVES: [&str; 5] = ["a/1", "a/2", "b/1", "b/2", "c"];

fn law_jobs() -> impl Strategy<Value = Vec<(usize, i64, i64, i64, bool)>> {
    proptest::collection::vec((0_usize..5, 0_i64..6, 0_i64..3, 0_i64..5, any::<bool>()), 0..25)
}

fn law_queues(tree: &QuotaTree, jobs: &[(usize, i64, i64, i64, bool)]) -> Queues {
    let mut queues = Queues::new();
    for (i, (at, cores, priority, age, preemptible)) in jobs.iter().enumerate() {
        let mut job = waiting(tree, &format!("j{i:02}"), LAW_LEAVES[*at], *cores, *priority, *age);
        job.preemptible = *preemptible;
        queues.enqueue(job);
    }
    queues
}

proptest! {
    #[test]
    fn nothing_is_ever_over_max_and_nothing_that_fits_is_left(jobs in law_jobs(), refused in 0_usize..25) {
        let tree = tree(LAW_TREE);
        let mut ledger = Ledger::new(Arc::clone(&tree));
        let queues = law_queues(&tree, &jobs);
        let refused = format!("j{refused:02}");
        let plan = plan(&mut ledger, &queues, 0, PlanLimits::default(), &mut |job| job.name != refused);
        for node in tree.ids() {
            for name in tree.resources() {
                let used = ledger.used(node).get(name.as_str());
                prop_assert!(tree.max(node, name.as_str()).is_none_or(|max| used <= max));
            }
        }
        for (i, _) in jobs.iter().enumerate() {
            let id = JobId::new(&format!("j{i:02}"));
            if ledger.job(&id).is_none() {
                let job = queues.get(&id).unwrap();
                let reason = plan.reason_for(&queues, &id);
                prop_assert!(reason.is_some(), "{:?} waits without a reason", id);
                if matches!(reason, Some(WaitReason::Quota(_))) {
                    prop_assert!(ledger.check(job.leaf, &job.request, job.preemptible).is_err());
                }
            }
        }
    }

    #[test]
    fn releasing_everything_restores_an_empty_ledger(jobs in law_jobs()) {
        let tree = tree(LAW_TREE);
        let mut ledger = Ledger::new(Arc::clone(&tree));
        let empty = format!("{ledger:?}");
        let queues = law_queues(&tree, &jobs);
        plan(&mut ledger, &queues, 0, PlanLimits::default(), &mut |_| true);
        let admitted: Vec<JobId> = ledger.jobs().map(|job| job.id.clone()).collect();
        for id in admitted {
            ledger.release(&id);
        }
        prop_assert_eq!(format!("{ledger:?}"), empty);
    }

    #[test]
    fn a_plan_is_the_same_in_one_step_and_in_many(jobs in law_jobs()) {
        let tree = tree(LAW_TREE);
        let whole = {
            let mut ledger = Ledger::new(Arc::clone(&tree));
            let queues = law_queues(&tree, &jobs);
            let plan = plan(&mut ledger, &queues, 0, PlanLimits::default(), &mut |_| true);
            plan.admitted().cloned().collect::<Vec<_>>()
        };
        let mut ledger = Ledger::new(Arc::clone(&tree));
        let mut queues = law_queues(&tree, &jobs);
        let mut steps = Vec::new();
        loop {
            let limits = PlanLimits { admissions: 1, ..PlanLimits::default() };
            let plan = plan(&mut ledger, &queues, 0, limits, &mut |_| true);
            let Some(id) = plan.admitted().next().cloned() else { break };
            queues.remove(&id);
            steps.push(id);
        }
        prop_assert_eq!(steps, whole);
    }

    #[test]
    fn no_tree_text_panics(amount in "[-0-9a-zA-Z.]{0,8}", name in ".{0,8}", weight in ".{0,5}") {
        let mut root = NodeSpec { name: name.clone(), ..NodeSpec::default() };
        let mut child = NodeSpec { name: name.clone(), ..NodeSpec::default() };
        child.min.insert(name.clone(), amount.clone());
        child.max.insert("cpu".into(), amount.clone());
        child.attributes.insert("fleet.dev/weight".into(), weight);
        child.attributes.insert("alibabacloud.com/lendlimit".into(), amount);
        root.children.push(child);
        let _ = QuotaTree::build(&root);
    }
}
