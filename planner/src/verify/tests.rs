use std::sync::Arc;

use fleet_quota::AdmittedJob;
use fleet_quota_tree::{NodeSpec, QuotaTree};

use super::*;

fn cpu(cores: i64) -> Resources {
    Resources::from_pairs([("cpu", cores * 1000)])
}

/// 8 cores in all, 6 and two jobs in `a`; these jobs of so many cores hold quota there.
fn ledger(held: &[(&str, i64)]) -> Ledger {
    let root: NodeSpec = serde_json::from_value(serde_json::json!({"name": "root", "max": {"cpu": 8},
        "children": [{"name": "a", "namespaces": ["a"], "max": {"cpu": 6, "kube-queue/max-jobs": 2}}]}))
    .expect("a node");
    let (tree, _) = QuotaTree::build(&root).expect("a tree");
    let leaf = tree.find("root/a").expect("there");
    let mut ledger = Ledger::new(Arc::new(tree));
    for (name, cores) in held {
        ledger.admit(AdmittedJob {
            id: JobId::new(name),
            leaf,
            request: cpu(*cores),
            preemptible: true,
            priority: 0,
            enqueued_at_ms: 0,
            admitted_at_ms: 0,
            preemptions: 0,
        });
    }
    ledger
}

fn ask(job: &str) -> Decision {
    Decision::Ask { job: JobId::new(job), cluster: "east".to_string() }
}

fn bind(job: &str) -> Decision {
    Decision::Bind { job: JobId::new(job), cluster: "west".to_string() }
}

fn evict(job: &str, taker: &str) -> Decision {
    Decision::Evict {
        job: JobId::new(job),
        taker: JobId::new(taker),
        cluster: "east".to_string(),
        rule: TakeRule::Reclaim,
        lost_work_ms: 0,
    }
}

/// Jobs ask for 2 cores; `firm` may not be preempted, `bound` is bound, `over` has ended, `direct` has no
/// queue, `gone` is gone.
fn known(job: &JobId) -> Option<Known> {
    let name = job.as_str();
    let known = Known {
        target: (name == "bound").then(|| "north".to_string()),
        is_over: name == "over",
        is_queued: name != "direct",
        is_preemptible: name != "firm",
        total: cpu(2),
    };
    (name != "gone").then_some(known)
}

#[track_caller]
fn check(held: &[(&str, i64)], decisions: &[Decision], expected: &[&str]) {
    let found = broken(known, Some(&ledger(held)), decisions);
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_plan_that_breaks_nothing() {
    check(&[("one", 2), ("two", 2)], &[ask("one"), bind("two"), evict("bound", "three")], &[]);
    // Without a queue nothing limits it; of what is gone nothing is sent.
    check(&[("large", 9)], &[ask("direct"), bind("gone"), evict("gone", "one")], &[]);
    assert_eq!(broken(known, None, &[ask("one")]), []);
}

#[test]
fn a_job_placed_twice() {
    check(
        &[("one", 2)],
        &[ask("one"), bind("one")],
        &["invariant 1: one is to be placed in west: the plan places it twice"],
    );
    check(
        &[("bound", 2)],
        &[ask("bound")],
        &["invariant 1: bound is to be placed in east: it is bound to north"],
    );
    check(&[("over", 2)], &[bind("over")], &["invariant 4: over is to be placed in west: it has ended"]);
}

#[test]
fn quota_over_its_max() {
    check(
        &[("large", 5), ("one", 2)],
        &[ask("one")],
        &["invariant 3: one is to be placed in east: root/a would use 7000 cpu, allowed: 6000"],
    );
    check(
        &[("one", 2), ("two", 2), ("three", 2)],
        &[ask("three")],
        &["invariant 3: three is to be placed in east: root/a would use 3 kube-queue/max-jobs, allowed: 2"],
    );
    check(&[], &[ask("one")], &["invariant 3: one is to be placed in east: its quota is not counted"]);
    check(
        &[("one", 1)],
        &[ask("one")],
        &["invariant 3: one is to be placed in east: its quota is not counted"],
    );
}

/// Nobody takes back what such a job borrows.
#[test]
fn what_may_not_be_preempted_over_its_min() {
    let over = |min: i64, preemptible: bool| {
        let root: NodeSpec = serde_json::from_value(serde_json::json!({"name": "root", "max": {"cpu": 8},
            "children": [{"name": "a", "namespaces": ["a"], "min": {"cpu": min}, "max": {"cpu": 6}}]}))
        .expect("a node");
        let (tree, _) = QuotaTree::build(&root).expect("a tree");
        let leaf = tree.find("root/a").expect("there");
        let mut ledger = Ledger::new(Arc::new(tree));
        for (name, preemptible) in [("loose", true), ("one", preemptible)] {
            let (id, request) = (JobId::new(name), cpu(2));
            ledger.admit(AdmittedJob {
                id,
                leaf,
                request,
                preemptible,
                priority: 0,
                enqueued_at_ms: 0,
                admitted_at_ms: 0,
                preemptions: 0,
            });
        }
        over_quota(&ledger, &JobId::new("one"), &cpu(2), &mut BTreeMap::new())
    };
    let told = "root/a would exceed its min by 1000 cpu of jobs that may not be preempted";
    assert_eq!(over(1, false).as_deref(), Some(told));
    assert_eq!((over(2, false), over(1, true)), (None, None));
}

#[test]
fn a_run_that_may_not_be_ended() {
    check(&[], &[evict("firm", "one")], &["invariant 4: firm is preempted by one: it may not be preempted"]);
    check(&[], &[evict("one", "one")], &["invariant 4: one is preempted by one: it is the same job"]);
}
