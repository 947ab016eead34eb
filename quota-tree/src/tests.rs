//! Reading a tree: what is accepted, warned of and refused; which leaf a job belongs to.

use std::collections::BTreeMap;

mod text;

use fleet_resources::Resources;

use crate::*;
use text::{tree, tree_spec};

#[test]
fn the_walkthrough_tree_is_accepted_with_warnings() {
    let spec = walkthrough();
    let (tree, warnings) = QuotaTree::build(&spec).unwrap();
    let sentences: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(sentences.join("\n"), @r"
    quota root, max[cpu]: found 999900; allowed: max equal to min, here 9999; the max is the capacity
    quota root, max[memory]: found 400000Gi; allowed: max equal to min, here 40Gi; the max is the capacity
    quota root, max[nvidia.com/gpu]: found 100000; allowed: max equal to min, here nothing; the max is the capacity
    quota root/child-2, min: found nothing; allowed: a min for each node; without one nothing is guaranteed
    ");
    assert_eq!(tree.max(NodeId::ROOT, MAX_JOBS), None);
    assert_eq!(tree.max(NodeId::ROOT, "memory"), Some(400_000 << 30));
    assert_eq!(tree.max(NodeId::ROOT, "cpu"), Some(999_900_000));
    let child = tree.leaf_for(&BTreeMap::new(), "default").unwrap();
    assert_eq!(tree.max(child, MAX_JOBS), Some(1));
    assert_eq!(tree.min(child, "cpu"), 0);
}

/// An attribute that does not count as it is written says where it stands and what is allowed.
#[test]
fn attributes_that_do_not_count_are_told() {
    let check = |at: &str, name: &str, value: &str, expected: &[&str]| {
        let mut root = NodeSpec {
            name: "root".into(),
            children: vec![NodeSpec {
                name: "a".into(),
                children: vec![NodeSpec { name: "b".into(), ..NodeSpec::default() }],
                ..NodeSpec::default()
            }],
            ..NodeSpec::default()
        };
        let node = match at {
            "root" => &mut root,
            "root/a" => &mut root.children[0],
            _ => &mut root.children[0].children[0],
        };
        node.attributes.insert(name.into(), value.into());
        let (_, warnings) = QuotaTree::build(&root).unwrap();
        let told: Vec<String> =
            warnings.iter().filter(|w| w.field.starts_with("attributes")).map(ToString::to_string).collect();
        assert_eq!(told.len(), usize::from(!expected.is_empty()), "{at} {name}={value}: {told:?}");
        for part in expected {
            assert!(told[0].contains(part) && told[0].contains(at) && told[0].contains(name), "{told:?}");
        }
    };
    check("root", "fleet.dev/share-preemption", "FairShare", &[]);
    check("root", "fleet.dev/share-preemption", "fairshare", &["found fairshare", "allowed: FairShare"]);
    check("root/a", "fleet.dev/share-preemption", "FairShare", &["on the root; it is ignored"]);
    check("root/a/b", "fleet.dev/weight", "0.5", &[]);
    check("root/a/b", "fleet.dev/weight", "-3", &["found -3", "a number of 0 or more; 1 is used"]);
    check("root", "fleet.dev/require-queue", "true", &[]);
    check("root/a", "fleet.dev/require-queue", "false", &[]);
    check(
        "root/a/b",
        "fleet.dev/require-queue",
        "True",
        &["found True", "allowed: true, false; that of the"],
    );
    check("root/a/b", "fleet.dev/reclaim", "Never", &[]);
    check("root/a/b", "fleet.dev/reclaim", "always", &["allowed: Any, LowerPriority, Never"]);
    check("root/a", "fleet.dev/reclaim", "Never", &["on leaves"]);
    check("root/a", "fleet.dev/guarantee", "subtree", &["allowed: Subtree"]);
    check("root/a/b", "fleet.dev/guarantee", "Subtree", &["nodes with children"]);
    check("root/a/b", "fleet.dev/preempt-within", "", &["found \"\";", "LowerOrNewerEqualPriority"]);
    check("root/a/b", "fleet.dev/max-bypass", "5", &["a duration such as 90s"]);
    check("root/a/b", "fleet.dev/wieght", "2", &["the attributes fleet.dev/weight"]);
    check("root/a/b", "weight", "2", &["the attributes fleet.dev/weight"]);
    check("root/a/b", "alibabacloud.com/lendlimit", "cpu=1", &["a JSON object"]);
    check(
        "root/a/b",
        "alibabacloud.com/lendlimit",
        "{\"cpus\": 1}",
        &["resource cpus", "that the tree names"],
    );
    check("root/a/b", "example.com/team", "blue", &[]);
}

#[test]
fn resources_nobody_can_ask_for_are_told() {
    let mut root = NodeSpec { name: "root".into(), ..NodeSpec::default() };
    for name in ["gpu", "cpu", "nvidia.com/gpu", "Memory", "hugepages-2Mi"] {
        root.max.insert(name.into(), "3".into());
    }
    let (_, warnings) = QuotaTree::build(&root).unwrap();
    let told: Vec<&str> =
        warnings.iter().filter(|w| w.found.starts_with("resource")).map(|w| w.found.as_str()).collect();
    assert_eq!(told, ["resource \"Memory\"", "resource \"gpu\""]);
}

#[test]
fn fractions_of_what_comes_whole_are_told() {
    let mut root = NodeSpec { name: "root".into(), ..NodeSpec::default() };
    for (name, max) in
        [(MAX_JOBS, "2.5"), ("cpu", "2.5"), ("nvidia.com/gpu", "1500m"), ("pods", "3.0"), ("memory", "2.5Gi")]
    {
        root.max.insert(name.into(), max.into());
        root.min.insert(name.into(), max.into());
    }
    let (_, warnings) = QuotaTree::build(&root).unwrap();
    let told: Vec<&str> =
        warnings.iter().filter(|w| w.allowed.contains("whole")).map(|w| w.sentence.as_str()).collect();
    assert_eq!(
        told,
        [
            "quota root, max[kube-queue/max-jobs]: found 2.5; allowed: a whole number; it counts as 3",
            "quota root, max[nvidia.com/gpu]: found 1500m; allowed: a whole number; it counts as 2",
            "quota root, min[kube-queue/max-jobs]: found 2.5; allowed: a whole number; it counts as 3",
            "quota root, min[nvidia.com/gpu]: found 1500m; allowed: a whole number; it counts as 2",
        ]
    );
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
fn all_errors_of_a_tree_are_told_at_once() {
    let mut odd = tree_spec("a 1 ns1; b 1 ns1; c 1x ns3");
    odd.children[0].max.insert("nvidia.com/gpus".into(), "-3".into());
    odd.children.push(odd.children[1].clone());
    let error = QuotaTree::build(&odd).unwrap_err().to_string();
    for expected in [
        "resource nvidia.com/gpus: found -3",
        "\"ns1\" is listed in",
        "\"1x\" is not",
        "two children named \"b\"",
    ] {
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_max_that_is_never_reached_and_names_of_nothing_are_warned_of() {
    let mut spec = tree_spec("a 4 ns1; b 4 ns2");
    spec.max = [("cpu".to_owned(), "6".to_owned())].into();
    spec.children[0].max.insert("cpu".into(), "9".into());
    spec.children[0].min.insert(MAX_JOBS.into(), "2".into());
    let (tree, warnings) = QuotaTree::build(&spec).unwrap();
    let has = |warnings: &[TreeWarning], path: &str, field: &str, found: &str| {
        let one =
            |w: &&TreeWarning| (w.path.as_str(), w.field.as_str(), w.found.as_str()) == (path, field, found);
        warnings.iter().filter(one).count()
    };
    assert_eq!(has(&warnings, "root/a", "max[cpu]", "9"), 1, "{warnings:?}");
    assert_eq!(has(&warnings, "root/b", "max[cpu]", "4"), 0, "{warnings:?}");
    assert_eq!(has(&warnings, "root/a", &format!("min[{MAX_JOBS}]"), "2"), 1, "{warnings:?}");
    spec.children[1].max.insert("nvidia.com/gpus".into(), "4".into());
    let tree_of_gpus = QuotaTree::build(&spec).unwrap().0;
    let nodes = ["cpu".to_owned(), "nvidia.com/gpu".to_owned()].into();
    let absent = tree_of_gpus.names_absent(&nodes, &|namespace| namespace == "ns1");
    assert_eq!(has(&absent, "root/b", "min and max", "nvidia.com/gpus"), 1, "{absent:?}");
    assert_eq!(has(&absent, "root/b", "namespaces", "ns2"), 1, "{absent:?}");
    assert_eq!(absent.len(), 2);
    assert!(tree.names_absent(&Default::default(), &|_| true).is_empty());
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
fn a_leaf_takes_jobs_of_the_namespaces_it_names() {
    let leaf = |name: &str, namespaces: &[&str], attributes: &[(&str, &str)]| NodeSpec {
        name: name.to_owned(),
        namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
        attributes: attributes.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        min: [("cpu".to_owned(), "1".to_owned())].into(),
        ..NodeSpec::default()
    };
    let above = NodeSpec {
        children: vec![
            leaf("inner", &["ns4"], &[]),
            leaf("narrow", &["ns5"], &[(SUBMITTER_NAMESPACES, "ns1,ns2")]),
        ],
        ..leaf("above", &[], &[(SUBMITTER_NAMESPACES, "ns1")])
    };
    let root = NodeSpec {
        children: vec![
            leaf("open", &["ns1"], &[]),
            leaf("shared", &["ns2"], &[(SUBMITTER_NAMESPACES, " ns1 ,ns9,")]),
            leaf("own", &["ns3"], &[(SUBMITTER_NAMESPACES, "")]),
            leaf("odd", &[], &[(SUBMITTER_NAMESPACES, "Ns 1,*")]),
            above,
        ],
        ..NodeSpec::default()
    };
    let (tree, warnings) = QuotaTree::build(&root).unwrap();
    let may = |leaf: &str, namespace: &str| {
        let labels = [(QUOTA_LABELS[0].to_owned(), leaf.to_owned())].into();
        tree.leaf_for(&labels, namespace).map(|_| ()).map_err(|error| error.to_string())
    };
    let admitted = |leaf: &str| -> Vec<&str> {
        ["ns1", "ns2", "ns3", "ns4", "ns5"].into_iter().filter(|ns| may(leaf, ns).is_ok()).collect()
    };
    assert_eq!(admitted("open"), ["ns1", "ns2", "ns3", "ns4", "ns5"]);
    assert_eq!(admitted("shared"), ["ns1", "ns2"]);
    assert_eq!(admitted("own"), ["ns3"]);
    assert_eq!(admitted("odd"), Vec::<&str>::new());
    assert_eq!(admitted("inner"), ["ns1", "ns4"], "what stands above a leaf bounds it");
    assert_eq!(admitted("narrow"), ["ns1", "ns5"]);
    assert_eq!(admitted("root/own"), ["ns3"], "by path as by name");
    let refused = may("shared", "ns3").unwrap_err();
    assert!(refused.contains("root/shared, which admits no jobs of namespace \"ns3\""), "{refused}");
    assert!(refused.ends_with("allowed: ns1, ns2, ns9"), "{refused}");
    let odd: Vec<&str> =
        warnings.iter().filter(|w| w.field.contains("submitter")).map(|w| w.found.as_str()).collect();
    assert_eq!(odd, ["*", "Ns 1"]);
    assert_eq!(tree.leaf_for(&BTreeMap::new(), "ns3").map(|id| tree.node(id).name.clone()), Ok("own".into()));
}

#[test]
fn submitters_are_told_as_the_api_server_names_them() {
    let child = NodeSpec {
        name: "a".into(),
        attributes: [(
            SUBMITTERS.to_owned(),
            "user:alice, group:ml,serviceaccount:team-a/ci,alice,group:,serviceaccount:x".to_owned(),
        )]
        .into(),
        ..NodeSpec::default()
    };
    let open = NodeSpec { name: "b".into(), ..NodeSpec::default() };
    let root = NodeSpec {
        children: vec![child, open],
        attributes: [(SUBMITTERS.to_owned(), "group:staff".to_owned())].into(),
        ..NodeSpec::default()
    };
    let (tree, warnings) = QuotaTree::build(&root).unwrap();
    let told = |path: &str| tree.submitters(tree.find(path).unwrap());
    assert_eq!(
        told("root/a").as_deref(),
        Some("group:ml,user:alice,user:system:serviceaccount:team-a:ci;group:staff")
    );
    assert_eq!(told("root/b").as_deref(), Some("group:staff"));
    assert_eq!(warnings.iter().filter(|w| w.field.contains(SUBMITTERS)).count(), 3);
    let (tree, _) = QuotaTree::build(&NodeSpec { attributes: BTreeMap::new(), ..root }).unwrap();
    assert_eq!(tree.submitters(tree.find("root/b").unwrap()), None);
}

#[test]
fn queue_names() {
    assert_eq!(queue_prefix("root"), "root-");
    assert_eq!(queue_prefix("root/child-2"), "root-child-2-");
    assert_eq!(queue_prefix("root/Team_A"), "root-team-a-");
    let long = queue_prefix(&format!("root/{}", "x".repeat(80)));
    assert_eq!((long.len(), long.ends_with("xxx-")), (58, true));
}

/// A node that does not say whether its jobs must queue does as the one above; no label leads out of a leaf that says so.
#[test]
fn a_queue_is_required_below_a_node_that_requires_it_and_of_its_namespaces() {
    let node = |name: &str, requires: &str, children: Vec<NodeSpec>| NodeSpec {
        name: name.into(),
        namespaces: if children.is_empty() { vec![format!("ns-{name}")] } else { Vec::new() },
        max: if name == "a" { [("gpu".into(), "4".into())].into() } else { BTreeMap::new() },
        attributes: match requires {
            "" => BTreeMap::new(),
            value => [(crate::REQUIRE_QUEUE.into(), value.into())].into(),
        },
        children,
        ..NodeSpec::default()
    };
    let tree = |root: &str| {
        let group = node("group", "true", vec![node("a", "", vec![]), node("wrong", "yes", vec![])]);
        let root = node("root", root, vec![group, node("open", "false", vec![]), node("free", "", vec![])]);
        QuotaTree::build(&root).unwrap().0
    };
    let asks = |tree: &QuotaTree, label: &str, namespace: &str| {
        let labels = [(QUOTA_LABELS[0].to_string(), label.to_string())].into();
        let nodes: Vec<String> =
            tree.requiring_queue(&labels, namespace).map(|node| node.name.clone()).collect();
        nodes.join(" ")
    };
    for (label, namespace, open, closed) in [
        ("", "ns-a", "a", "a"),
        ("", "ns-wrong", "wrong", "wrong"),
        ("", "ns-open", "", ""),
        ("", "ns-free", "", "free"),
        ("", "nowhere", "", "root"),
        ("open", "nowhere", "", ""),
        ("a", "ns-open", "a", "a"),
        ("open", "ns-a", "a", "a"),
        ("no-such-leaf", "ns-a", "a", "a"),
        ("group", "ns-a", "a", "a"),
        ("a", "ns-wrong", "a wrong", "a wrong"),
        ("no-such-leaf", "nowhere", "", "root"),
    ] {
        assert_eq!(asks(&tree(""), label, namespace), open, "{label} {namespace}");
        assert_eq!(asks(&tree("true"), label, namespace), closed, "{label} {namespace}");
    }
    let tree = tree("");
    let bounded = |leaf: &str, resource: &str, amount: i64| {
        let mut asked = Resources::new();
        asked.set(resource, amount);
        tree.first_bounded(tree.node(tree.find(leaf).unwrap()), &asked).is_some()
    };
    assert!(bounded("root/group/a", "gpu", 1));
    assert!(!bounded("root/group/a", "gpu", 0) && !bounded("root/group/a", "cpu", 1));
    assert!(!bounded("root/group/wrong", "gpu", 1));
}
