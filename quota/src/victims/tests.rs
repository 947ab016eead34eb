use std::sync::Arc;

use fleet_resources::Resources;
use proptest::prelude::*;

use super::*;
use crate::spec::NodeSpec;

/// Thousandths of a cpu from text such as `3.5`.
fn cpu(text: &str) -> Resources {
    Resources::parse([("cpu", text)]).unwrap()
}

fn node(name: &str, min: &str, max: &str, children: Vec<NodeSpec>) -> NodeSpec {
    NodeSpec {
        name: name.into(),
        min: [("cpu".to_owned(), min.to_owned())].into(),
        max: [("cpu".to_owned(), max.to_owned())].into(),
        children,
        ..NodeSpec::default()
    }
}

/// Root of 9 cpu, FairShare, leaves a, b, c with min 3 and max 9.
fn base() -> NodeSpec {
    let leaves = ["a", "b", "c"].map(|name| node(name, "3", "9", vec![]));
    let mut root = node("root", "9", "9", leaves.into());
    root.attributes.insert(SHARE_PREEMPTION.into(), "FairShare".into());
    root
}

fn find(tree: &QuotaTree, name: &str) -> NodeId {
    tree.ids().find(|id| tree.node(*id).name == name).unwrap()
}

/// `leaf cpu [priority]` entries, run one after the other, then one comes in;
/// `expected` are victims as `leaf cpu priority: rule`.
fn check(spec: &NodeSpec, running: &str, incoming: &str, expected: &[&str]) {
    let tree = Arc::new(QuotaTree::build(spec).unwrap().0);
    let mut ledger = Ledger::new(Arc::clone(&tree));
    let read = |text: &str| {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let priority = words.get(2).map_or(0, |p| p.parse().unwrap());
        (find(&tree, &words[0]), cpu(&words[1]), priority)
    };
    for (i, job) in running.split(',').enumerate() {
        let (leaf, request, priority) = read(job);
        ledger.admit(AdmittedJob {
            id: JobId::new(&format!("{i:02}")),
            leaf,
            request,
            preemptible: true,
            priority,
            admitted_at_ms: i as i64,
        });
    }
    let (leaf, request, priority) = read(incoming);
    let taker = WaitingJob {
        id: JobId::new("taker"),
        name: "taker".into(),
        run_time_ms: None,
        leaf,
        request,
        preemptible: true,
        priority,
        enqueued_at_ms: 1000,
        not_before_ms: 0,
        shape: 0,
    };
    let before = format!("{ledger:?}");
    let victims = find_victims(&mut ledger, &taker, &BTreeSet::new(), &|_| VictimCost::default());
    assert_eq!(format!("{ledger:?}"), before, "undo restores");
    let lines: Vec<String> = victims
        .unwrap_or_default()
        .iter()
        .map(|victim| {
            let job = ledger.job(&victim.job).unwrap();
            format!("{} {} {}: {}", tree.node(job.leaf).name, job.request, job.priority, victim.rule.as_str())
        })
        .collect();
    assert_eq!(lines, expected, "{running} then {incoming}");
}

#[test]
fn the_table_of_examples() {
    let base = base();
    check(&base, "a 1,a 1,a 1,b 1,b 1,b 1,b 1,b 1,c 1", "c 1", &["b cpu 1 0: Reclaim"]);
    check(&base, "a 3,a 1,b 2,b 3", "c 3", &["b cpu 3 0: Reclaim"]);
    check(&base, "a 1,a 1,a 1,b 1,b 1,b 1,c 1,c 1,c 1", "c 1", &[]);
    check(
        &base,
        "a 1 -1,a 1,a 1,b 1,b 1,b 1,b 1,b 1,b 1",
        "a 2",
        &["b cpu 1 0: FairShare", "a cpu 1 -1: InQueuePriority"],
    );
    check(&base, "b 2,b 1,b 2,c 1", "a 3.5", &["b cpu 1 0: FairShare"]);
    let mut weighted = base.clone();
    weighted.children[0].attributes.insert("fleet.dev/weight".into(), "2".into());
    check(
        &weighted,
        "a 1,a 1,a 1,b 1,b 1,b 1,b 1,b 1,b 1",
        "a 2",
        &["b cpu 1 0: FairShare", "b cpu 1 0: FairShare"],
    );
}

#[test]
fn in_one_leaf() {
    let one = node("root", "6", "6", vec![node("q", "0", "6", vec![])]);
    check(
        &one,
        "q 2 -1,q 2 0,q 2 1",
        "q 3 1",
        &["q cpu 2 -1: InQueuePriority", "q cpu 2 0: InQueuePriority"],
    );
    check(&one, "q 1 -1,q 2 0,q 3 1", "q 2 1", &["q cpu 2 0: InQueuePriority"]);
    check(&one, "q 6 0", "q 2 0", &[]);
}

#[test]
fn by_priority_and_over_two_levels() {
    let two = node("root", "12", "12", vec![node("a", "6", "12", vec![]), node("b", "6", "12", vec![])]);
    check(&two, "a 4 0,a 4 1,b 2", "b 4", &["a cpu 4 0: Reclaim"]);
    let below = vec![node("q", "4", "6", vec![]), node("qs", "0", "6", vec![])];
    let levels = node("root", "6", "6", vec![node("c", "6", "6", below), node("qb", "0", "6", vec![])]);
    check(&levels, "qb 3,qs 3", "q 4", &["qs cpu 3 0: Reclaim", "qb cpu 3 0: Reclaim"]);
}

#[test]
fn rights_can_be_withheld() {
    let mut never = base();
    never.children[2].attributes.insert(RECLAIM.into(), "Never".into());
    check(&never, "b 5,a 4", "c 3", &[]);
    let mut lower = base();
    lower.children[2].attributes.insert(RECLAIM.into(), "LowerPriority".into());
    check(&lower, "b 5 0,a 4 -1", "c 3 0", &["a cpu 4 -1: Reclaim"]);
}

/// 40 cpu, four leaves of min 10 and max 20 under two parents; five jobs of 5
/// cpu come in each leaf in turn.
#[test]
fn four_namespaces() {
    let leaves = |a: &str, b: &str| vec![node(a, "10", "20", vec![]), node(b, "10", "20", vec![])];
    let spec = node(
        "root",
        "40",
        "40",
        vec![node("a", "20", "40", leaves("a1", "a2")), node("b", "20", "40", leaves("b1", "b2"))],
    );
    let tree = Arc::new(QuotaTree::build(&spec).unwrap().0);
    let mut ledger = Ledger::new(Arc::clone(&tree));
    let names = ["a1", "a2", "b1", "b2"];
    let mut seen = Vec::new();
    for (turn, name) in names.iter().enumerate() {
        for i in 0..5 {
            let leaf = find(&tree, name);
            let taker = WaitingJob {
                id: JobId::new(&format!("{name}-{i}")),
                name: format!("{name}-{i}").into(),
                run_time_ms: None,
                leaf,
                request: cpu("5"),
                preemptible: true,
                priority: 0,
                enqueued_at_ms: 0,
                not_before_ms: 0,
                shape: 0,
            };
            if ledger.check(leaf, &taker.request, true).is_err() {
                let found = find_victims(&mut ledger, &taker, &BTreeSet::new(), &|_| VictimCost::default());
                for victim in found.iter().flatten() {
                    ledger.release(&victim.job);
                }
                if found.is_none() {
                    continue;
                }
            }
            ledger.admit(AdmittedJob {
                id: taker.id,
                leaf,
                request: taker.request,
                preemptible: true,
                priority: 0,
                admitted_at_ms: (turn * 10 + i) as i64,
            });
        }
        let counts: Vec<i64> =
            names[..=turn].iter().map(|name| ledger.job_count(find(&tree, name))).collect();
        seen.push(counts);
    }
    assert_eq!(seen, [vec![4], vec![4, 4], vec![3, 3, 2], vec![2, 2, 2, 2]]);
}

fn law_tree() -> NodeSpec {
    let below = |x: &str, y: &str| vec![node(x, "3", "12", vec![]), node(y, "2", "9", vec![])];
    let mut root = node(
        "root",
        "16",
        "16",
        vec![
            node("a", "5", "16", below("a1", "a2")),
            node("b", "5", "16", below("b1", "b2")),
            node("c", "4", "16", vec![]),
        ],
    );
    root.attributes.insert(SHARE_PREEMPTION.into(), "FairShare".into());
    root
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// The taker fits once its victims are gone, each victim is needed, the
    /// ledger is restored, and a leaf inside the min of its whole path is never
    /// refused: someone else borrows what it lacks.
    #[test]
    fn laws(
        running in proptest::collection::vec((0_usize..5, 1_i64..5, -1_i64..2), 0..14),
        (at, cores, priority) in (0_usize..5, 1_i64..7, -1_i64..2),
    ) {
        let tree = Arc::new(QuotaTree::build(&law_tree()).unwrap().0);
        let leaves = ["a1", "a2", "b1", "b2", "c"].map(|name| find(&tree, name));
        let mut ledger = Ledger::new(Arc::clone(&tree));
        for (i, (leaf, cores, priority)) in running.iter().enumerate() {
            let request = cpu(&cores.to_string());
            if ledger.check(leaves[*leaf], &request, true).is_ok() {
                let id = JobId::new(&format!("{i:02}"));
                let leaf = leaves[*leaf];
                ledger.admit(AdmittedJob { id, leaf, request, preemptible: true, priority: *priority, admitted_at_ms: i as i64 });
            }
        }
        let taker = WaitingJob {
            id: JobId::new("taker"), name: "taker".into(),
        run_time_ms: None, leaf: leaves[at], request: cpu(&cores.to_string()),
            preemptible: true, priority, enqueued_at_ms: 99, not_before_ms: 0, shape: 0,
        };
        if ledger.check(taker.leaf, &taker.request, true).is_ok() {
            return Ok(());
        }
        let before = format!("{ledger:?}");
        let found = find_victims(&mut ledger, &taker, &BTreeSet::new(), &|_| VictimCost::default());
        prop_assert_eq!(format!("{:?}", ledger), before);
        if ledger.is_inside_min(taker.leaf, &taker.request) {
            prop_assert!(found.is_some());
        }
        let fits_without = |spared: Option<&JobId>| {
            let mut after = ledger.clone();
            for victim in found.iter().flatten().filter(|victim| Some(&victim.job) != spared) {
                after.release(&victim.job);
            }
            after.check(taker.leaf, &taker.request, true).is_ok()
        };
        if let Some(victims) = &found {
            prop_assert!(fits_without(None));
            for victim in victims {
                prop_assert!(!fits_without(Some(&victim.job)), "{:?} is not needed", victim);
            }
        }
    }
}
