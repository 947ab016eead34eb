//! Whatever is written in a tree: a clear message or a defined meaning.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Amounts as people and machines write them, right and wrong.
fn amount() -> impl Strategy<Value = serde_json::Value> {
    prop_oneof![
        "[0-9]{1,20}(m|k|Ki|Mi|Gi|Ti|Pi|Ei|E|x|e3|\\.5)?".prop_map(serde_json::Value::from),
        Just("-1".into()),
        Just("".into()),
        Just("1e400".into()),
        Just(serde_json::Value::Null),
        any::<i64>().prop_map(serde_json::Value::from),
        any::<f64>().prop_map(serde_json::Value::from),
        ".{0,6}".prop_map(serde_json::Value::from),
        Just(serde_json::json!({"cpu": 1})),
    ]
}

fn resource() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("cpu".to_owned()),
        Just("memory".to_owned()),
        Just(MAX_JOBS.to_owned()),
        Just("nobody.example/has-this".to_owned()),
        ".{0,6}",
    ]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![6 => "[a-e]", 1 => Just("root".to_owned()), 1 => Just("a/b".to_owned()), 1 => ".{0,4}"]
}

fn attributes() -> impl Strategy<Value = BTreeMap<String, String>> {
    let key = prop_oneof![
        Just("fleet.dev/weight"),
        Just("fleet.dev/max-bypass"),
        Just("fleet.dev/reclaim"),
        Just("fleet.dev/guarantee"),
        Just("fleet.dev/share-preemption"),
        Just("alibabacloud.com/lendlimit"),
    ];
    let value = prop_oneof![
        Just("Subtree".to_owned()),
        Just("FairShare".to_owned()),
        "\\{\"cpu\": ?\"?[0-9]{1,3}\"?\\}",
        "[0-9]{0,20}[smh.]?",
        ".{0,8}",
    ];
    proptest::collection::btree_map(key.prop_map(str::to_owned), value, 0..3)
}

fn spec() -> impl Strategy<Value = serde_json::Value> {
    let amounts = || proptest::collection::btree_map(resource(), amount(), 0..3);
    let namespaces = || proptest::collection::vec("[m-q]", 0..2);
    let node = move |children: BoxedStrategy<Vec<serde_json::Value>>| {
        (name(), amounts(), amounts(), attributes(), namespaces(), children).prop_map(
            |(name, min, max, attributes, namespaces, children)| {
                serde_json::json!({
                    "name": name, "min": min, "max": max, "attributes": attributes,
                    "namespaces": namespaces, "children": children,
                })
            },
        )
    };
    let leaf = node(Just(Vec::new()).boxed());
    leaf.prop_recursive(4, 24, 4, move |inner| node(proptest::collection::vec(inner, 0..4).boxed()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Read, built, planned over: never a panic; a refusal says where and what is
    /// allowed; a warning names node and field.
    #[test]
    fn any_tree_is_used_or_refused_in_words(
        spec in spec(),
        jobs in proptest::collection::vec((0_usize..8, any::<i64>(), any::<i64>(), any::<bool>()), 0..8),
    ) {
        let Ok(spec) = serde_json::from_value::<NodeSpec>(spec) else { return Ok(()) };
        let tree = match QuotaTree::build(&spec) {
            Ok((tree, warnings)) => {
                for warning in warnings {
                    prop_assert!(warning.to_string().contains(&warning.path) && !warning.field.is_empty());
                }
                Arc::new(tree)
            }
            Err(error) => {
                let text = error.to_string();
                prop_assert!(text.starts_with("quota tree: "), "{}", text);
                prop_assert!(text.contains("allowed") || text.contains("is not a quantity") || text.contains("quantity"), "{}", text);
                return Ok(());
            }
        };
        let mut planner = Planner::new(Arc::clone(&tree));
        let leaves: Vec<NodeId> = tree.leaves().collect();
        for (i, (at, amount, priority, preemptible)) in jobs.into_iter().enumerate() {
            let request = Resources::from_pairs([("cpu", amount), ("memory", amount), (MAX_JOBS, amount)]);
            let job = WaitingJob {
                leaf: leaves[at % leaves.len()],
                request,
                preemptible,
                priority,
                ..waiting_in(leaves[0], &format!("j{i}"))
            };
            if i % 3 == 0 {
                planner.admit(AdmittedJob {
                    id: job.id, leaf: job.leaf, request: job.request, preemptible, priority,
                    enqueued_at_ms: amount, admitted_at_ms: priority, preemptions: 0,
                });
            } else {
                planner.enqueue(job);
            }
        }
        for now_ms in [0, 1_000_000_000, i64::MAX] {
            planner.plan(now_ms, PlanLimits::default(), &mut AnyPlace);
        }
    }

    #[test]
    fn any_label_names_a_leaf_or_is_refused_in_words(label in "(root/)?[a-c/~]{0,5}|.{0,6}", namespace in "[m-q]") {
        let tree = tree("a 4; a/b 2 m; a/c 2; c 4 n");
        let labels = BTreeMap::from([(QUOTA_LABELS[0].to_owned(), label.clone())]);
        match tree.leaf_for(&labels, &namespace) {
            Ok(leaf) => prop_assert!(tree.node(leaf).is_leaf()),
            Err(error) => {
                let text = error.to_string();
                prop_assert!(text.contains(&format!("{label:?}")) || text.contains(&namespace), "{}", text);
            }
        }
    }
}

fn waiting_in(leaf: NodeId, id: &str) -> WaitingJob {
    WaitingJob {
        id: id.into(),
        name: id.into(),
        leaf,
        request: Resources::new(),
        preemptible: true,
        priority: 0,
        enqueued_at_ms: 0,
        not_before_ms: 0,
        run_time_ms: None,
        preemptions: 0,
        shape: 0,
    }
}

#[test]
fn odd_trees_have_a_meaning() {
    let child = |name: &str, children: Vec<NodeSpec>| NodeSpec {
        name: name.to_owned(),
        children,
        ..NodeSpec::default()
    };
    // The same name at several depths is no cycle: paths differ.
    let named_alike = child("root", vec![child("a", vec![child("a", vec![child("root", vec![])])])]);
    let (tree, _) = QuotaTree::build(&named_alike).unwrap();
    assert_eq!(tree.leaves().map(|id| tree.node(id).path.clone()).collect::<Vec<_>>(), ["root/a/a/root"]);
    // Depth 64 is allowed, 65 is not.
    let chain = |depth: usize| (1..depth).fold(child("x", vec![]), |inner, _| child("x", vec![inner]));
    assert!(QuotaTree::build(&chain(64)).is_ok());
    let error = QuotaTree::build(&chain(65)).unwrap_err().to_string();
    assert!(error.contains("is at depth 65; allowed: at most 64"), "{error}");
    // A leaf without namespaces takes labelled jobs.
    let (tree, warnings) = QuotaTree::build(&child("root", vec![child("a", vec![])])).unwrap();
    assert!(warnings.iter().any(|warning| warning.path == "root/a" && warning.field == "namespaces"));
    let labels = BTreeMap::from([(QUOTA_LABELS[1].to_owned(), "a".to_owned())]);
    assert!(tree.leaf_for(&labels, "elsewhere").is_ok());
    // A resource nobody has is a bound like any other, met by nobody who does not ask for it.
    let mut odd = child("a", vec![]);
    odd.max.insert("nobody.example/has-this".into(), "0".into());
    let (tree, _) = QuotaTree::build(&child("root", vec![odd])).unwrap();
    let ledger = Ledger::new(Arc::new(tree));
    let leaf = ledger.tree().leaves().next().unwrap();
    assert!(ledger.check(leaf, &cpu(5), true).is_ok());
    let asks = Resources::from_pairs([("nobody.example/has-this", 1)]);
    assert_eq!(ledger.check(leaf, &asks, true).unwrap_err().reason(), "ExceedsQuota");
}

#[test]
fn a_tree_of_ten_thousand_nodes_plans() {
    let leaves = |p: usize| {
        let leaf = move |l: usize| NodeSpec { name: format!("l{p}-{l}"), ..NodeSpec::default() };
        (0..99).map(leaf).collect()
    };
    let parents =
        (0..100).map(|p| NodeSpec { name: format!("p{p}"), children: leaves(p), ..NodeSpec::default() });
    let (tree, _) =
        QuotaTree::build(&NodeSpec { children: parents.collect(), ..NodeSpec::default() }).unwrap();
    assert_eq!(tree.len(), 10_001);
    let mut planner = Planner::new(Arc::new(tree));
    for leaf in planner.tree().leaves().collect::<Vec<_>>() {
        planner.enqueue(waiting_in(leaf, &format!("j{}", leaf.index())));
    }
    assert_eq!(planner.plan(0, PlanLimits::default(), &mut AnyPlace).admitted().count(), 9_900);
}
