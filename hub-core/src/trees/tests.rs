use fleet_api::ElasticQuotaTree;
use serde_json::{Value, json};

use super::*;
use crate::observation::{Change, Observation};

/// A tree object with one leaf `team` of `max` cpu.
fn tree(name: &str, generation: i64, max: &str, status: Value) -> ElasticQuotaTree {
    let value = json!({
        "apiVersion": TREE_API, "kind": "ElasticQuotaTree",
        "metadata": {"name": name, "namespace": "kube-system", "uid": format!("uid-{name}"), "generation": generation,
            "creationTimestamp": format!("2026-01-01T00:00:{:02}Z", name.len())},
        "spec": {"root": {"name": "root", "children": [{"name": "team", "namespaces": ["default"],
            "max": {"cpu": max}}]}},
        "status": status,
    });
    serde_json::from_value(value).expect("a tree")
}

struct Stage {
    world: World,
    trees: Trees,
}

impl Stage {
    fn new() -> Self {
        Self { world: World::default(), trees: Trees::default() }
    }

    /// The max of the team in the tree that comes into force; `None` where nothing changes.
    fn apply(&mut self, tree: ElasticQuotaTree) -> Option<Option<i64>> {
        self.world.observe(Observation::Tree(Change::Apply(tree)));
        let change = self.trees.read(&self.world)?;
        Some(change.and_then(|tree| tree.max(tree.find("root/team")?, "cpu")))
    }

    /// What is written to each object's status.
    fn written(&self) -> BTreeMap<String, Value> {
        let writes = self.trees.plan_conditions(&self.world, Timestamp::UNIX_EPOCH);
        let status = |write: Write| match write.verb {
            Verb::MergeStatus(body) => Some((write.name, body["status"].clone())),
            _ => None,
        };
        writes.into_iter().filter_map(status).collect()
    }
}

#[test]
fn a_valid_tree_repairs_a_broken_one() {
    let mut stage = Stage::new();
    assert_eq!(stage.apply(tree("a", 1, "banana", Value::Null)), Some(None));
    let trouble = stage.trees.trouble().expect("no tree is in force").to_string();
    assert!(trouble.contains("kube-system/a") && trouble.contains("\"banana\""), "{trouble}");
    assert_eq!(stage.apply(tree("repair", 1, "3", Value::Null)), Some(Some(3000)));
    assert_eq!(stage.trees.trouble(), None);
    let written = stage.written();
    let valid = |name: &str| {
        (&written[name]["conditions"][0]["status"], written[name]["conditions"][0]["message"].to_string())
    };
    assert_eq!(valid("repair").0, "True");
    let (status, message) = valid("a");
    assert_eq!(status, "False");
    assert!(message.contains("banana") && message.contains("kube-system/repair is in force"), "{message}");
    assert_eq!(written["repair"]["inForce"]["generation"], 1);
}

#[test]
fn the_last_usable_tree_stays_in_force_over_an_edit_and_a_restart() {
    let mut stage = Stage::new();
    assert_eq!(stage.apply(tree("a", 1, "3", Value::Null)), Some(Some(3000)));
    let kept = stage.written()["a"]["inForce"].clone();
    assert_eq!(kept["root"]["children"][0]["max"]["cpu"], "3");
    assert_eq!(stage.apply(tree("a", 2, "banana", json!({"inForce": kept}))), None);
    let message = stage.written()["a"]["conditions"][0]["message"].to_string();
    assert!(message.contains("generation 1 of this tree stays in force"), "{message}");
    // Another process finds only the objects.
    let mut restarted = Stage::new();
    assert_eq!(restarted.apply(tree("a", 2, "banana", json!({"inForce": kept}))), Some(Some(3000)));
    assert!(restarted.written()["a"]["inForce"].is_null(), "it stands there already");
    assert_eq!(restarted.apply(tree("a", 3, "5", json!({"inForce": kept}))), Some(Some(5000)));
}

#[test]
fn the_oldest_of_two_usable_trees_is_in_force() {
    let mut stage = Stage::new();
    assert_eq!(stage.apply(tree("a", 1, "3", Value::Null)), Some(Some(3000)));
    assert_eq!(stage.apply(tree("bb", 1, "9", Value::Null)), None);
    let message = stage.written()["bb"]["conditions"][0]["message"].to_string();
    assert!(message.contains("one tree") && message.contains("kube-system/a is in force"), "{message}");
}

#[test]
fn names_that_the_fleet_does_not_have_are_warned_of_until_it_has_them() {
    let mut stage = Stage::new();
    let mut object = tree("a", 1, "3", Value::Null);
    object.spec.root.children[0].namespaces = vec!["vison".into()];
    object.spec.root.children[0].max.insert("nvidia.com/gpus".into(), json!("8"));
    stage.apply(object);
    let message = |stage: &Stage| {
        let conditions = &stage.written()["a"]["conditions"];
        conditions[1]["message"].as_str().unwrap_or_default().to_string()
    };
    // Nothing is known of the hub's namespaces and of nodes yet.
    assert!(!message(&stage).contains("gpus") && !message(&stage).contains("vison"), "{}", message(&stage));
    let namespace = |name: &str| {
        let value = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        Observation::Namespace(Change::Apply(serde_json::from_value(value).expect("a namespace")))
    };
    let cluster = |gpu: &str| {
        let value = json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "east"},
            "spec": {}, "status": {"nodeShapes": [{"count": 1, "allocatable": {"cpu": "8", gpu: "8"}, "free": {}}]}});
        Observation::Cluster(Change::Apply(serde_json::from_value(value).expect("a cluster")))
    };
    stage.world.observe(namespace("default"));
    stage.world.observe(cluster("nvidia.com/gpu"));
    let told = message(&stage);
    assert!(told.contains("found nvidia.com/gpus; allowed: a resource of some node of the fleet"), "{told}");
    assert!(told.contains("found vison; allowed: namespaces of the hub"), "{told}");
    stage.world.take_dirty();
    stage.world.observe(namespace("vison"));
    assert!(stage.world.take_dirty().contains(&crate::world::Dirty::Tree));
    stage.world.observe(cluster("nvidia.com/gpus"));
    assert!(!message(&stage).contains("gpus"), "{}", message(&stage));
}
