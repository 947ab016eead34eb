use fleet_cli_ground::{
    args::{Format, Listing},
    output::Headers,
};
use serde_json::{Value, json};

use super::*;

fn shown(rows: &[QueueRow], wide: bool) -> String {
    table(rows.iter(), wide, Names::Tree).expect("a table").print()
}

#[test]
fn the_tree_is_printed_with_its_jobs() {
    let mut tree: Value =
        fleet_api::yaml::read(include_str!("../../../examples/walkthrough/elasticquotatree.yaml"))
            .expect("a tree");
    let used = json!({"cpu": "3", "memory": "6Gi", "nvidia.com/gpu": "3", "kube-queue/max-jobs": "1"});
    tree["status"] =
        json!({"root": {"name": "root", "used": used, "children": [{"name": "child-2", "used": used}]}});
    let tree: ElasticQuotaTree = serde_json::from_value(tree).expect("a tree");
    let unit = |name: &str, phase: &str| -> QueueUnit {
        serde_json::from_value(json!({"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "QueueUnit",
            "metadata": {"name": name}, "status": {"phase": phase},
            "spec": {"queue": "root/child-2", "consumerRef": {"apiVersion": "fleet.dev/v1alpha1",
                "kind": "ResourceBinding", "namespace": "default", "name": name}}}))
        .expect("a unit")
    };
    let units = [unit("a", "Running"), unit("b", "Enqueued"), unit("c", "Succeed")];
    let rows = rows(&[tree], &units);
    insta::assert_snapshot!(shown(&rows, true), @r"
    QUEUE       USED                            MIN                    MAX                                         BORROWED                 WAITING   RUNNING   NAMESPACES
    root        jobs=1 gpu=3 cpu=3 memory=6Gi   cpu=9999 memory=40Gi   gpu=100000 cpu=999900 memory=400000Gi       -                        1         1         -
      child-2   jobs=1 gpu=3 cpu=3 memory=6Gi   -                      jobs=1 gpu=10000 cpu=10000 memory=10000Gi   gpu=3 cpu=3 memory=6Gi   1         1         default
    ");
}

fn tree(name: &str, max: &str, status: Value) -> ElasticQuotaTree {
    serde_json::from_value(json!({"apiVersion": "scheduling.sigs.k8s.io/v1beta1", "kind": "ElasticQuotaTree",
        "metadata": {"name": name, "namespace": "kube-system", "generation": 2,
            "creationTimestamp": format!("2026-01-01T00:00:{:02}Z", name.len())},
        "spec": {"root": {"name": "root", "children": [{"name": "team", "max": {"cpu": max}}]}},
        "status": status}))
    .expect("a tree")
}

fn refused(message: &str) -> Value {
    json!([{"type": "Valid", "status": "False", "reason": "QuotaTreeInvalid", "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z"}])
}

#[test]
fn the_tree_in_force_is_shown_and_the_broken_one_is_not() {
    let old = json!({"generation": 1, "root": {"name": "root", "children": [{"name": "team", "max": {"cpu": "3"}}]}});
    let edited =
        [tree("a", "banana", json!({"conditions": refused("root/team, max: banana"), "inForce": old}))];
    let text = format!("{}{}", invalid(&edited), shown(&rows(&edited, &[]), false));
    insta::assert_snapshot!(text, @r"
    INVALID: ElasticQuotaTree a: root/team, max: banana
    In force: ElasticQuotaTree a, generation 1
    QUEUE    USED   MIN   MAX         BORROWED   WAITING   RUNNING
    root     -      -     unlimited   -          0         0
      team   -      -     cpu=3       -          0         0
    ");
    let first = [tree("a", "banana", json!({"conditions": refused("banana")}))];
    assert!(rows(&first, &[]).is_empty() && invalid(&first).contains("In force: no tree"));
    let repaired =
        [tree("a", "banana", json!({"conditions": refused("banana")})), tree("repair", "5", Value::Null)];
    let text = format!("{}{}", invalid(&repaired), shown(&rows(&repaired, &[]), false));
    assert!(text.contains("In force: ElasticQuotaTree repair") && text.contains("cpu=5"), "{text}");
    assert_eq!(invalid(&[tree("a", "5", Value::Null)]), "");
}

#[test]
fn what_does_not_queue_stands_beside_what_is_used() {
    let status = json!({"root": {"name": "root", "used": {"kube-queue/max-jobs": "1"}, "unqueued":
        {"kube-queue/max-jobs": "7", "cpu": "7"}}});
    let text = shown(&rows(&[tree("a", "5", status)], &[]), false);
    insta::assert_snapshot!(text.lines().take(2).collect::<Vec<_>>().join("\n"), @r"
    QUEUE    USED     UNQUEUED       MIN   MAX         BORROWED   WAITING   RUNNING
    root     jobs=1   jobs=7 cpu=7   -     unlimited   -          0         0
    ");
}

#[test]
fn queues_are_data_in_any_order() {
    let used = |gpus: &str| json!({"used": {"nvidia.com/gpu": gpus}});
    let mut status = json!({"root": {"name": "root", "children": [{"name": "team"}]}});
    status["root"]["used"] = used("24")["used"].take();
    status["root"]["children"][0]["used"] = used("9")["used"].take();
    let rows = rows(&[tree("a", "5", status)], &[]);
    let list = table(rows.iter(), false, Names::Paths).expect("a table");
    let sorted = Listing { sort_by: Some(r".used.nvidia\.com/gpu".to_string()), ..Listing::default() };
    insta::assert_snapshot!(list.answer(&sorted, Headers::Printed).expect("an answer").text, @r"
    QUEUE       USED     MIN   MAX         BORROWED   WAITING   RUNNING
    root/team   gpu=9    -     cpu=5       gpu=9      0         0
    root        gpu=24   -     unlimited   -          0         0
    ");
    let list = table(rows.iter(), false, Names::Tree).expect("a table");
    let names = Listing { output: Some(Format::Name), ..Listing::default() };
    assert_eq!(list.answer(&names, Headers::Printed).expect("an answer").text, "root\nroot/team\n");
}

#[test]
fn a_tree_fits_80_columns() {
    let many = json!({"nvidia.com/gpu": "128", "kube-queue/max-jobs": "12345", "example.com/interface": "400000000"});
    let mut status = json!({"root": {"name": "root", "children": [{"name": "team"}]}});
    (status["root"]["used"], status["root"]["children"][0]["used"]) = (many.clone(), many);
    let list = table(rows(&[tree("a", "9999", status)], &[]).iter(), true, Names::Tree).expect("a table");
    insta::assert_snapshot!(list.print_within(Some(80), Headers::Printed), @r"
    QUEUE    USED                                MIN   MAX         WAITING   RUNNING
    root     jobs=12345 gpu=128                  -     unlimited   0         0
             example.com/interface=400000000
      team   jobs=12345 gpu=128                  -     cpu=9999    0         0
             example.com/interface=400000000
    ");
}

#[test]
fn the_path_of_the_root_does_not_depend_on_its_name() {
    let mut tree = tree("a", "5", Value::Null);
    tree.spec.root.name = "company".to_string();
    let unit: QueueUnit = serde_json::from_value(json!({
        "apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "QueueUnit", "metadata": {"name": "a"},
        "spec": {"queue": "root/team", "consumerRef": {"apiVersion": "fleet.dev/v1alpha1",
            "kind": "ResourceBinding", "namespace": "default", "name": "a"}},
        "status": {"phase": "Enqueued"}}))
    .expect("a unit");
    let rows = rows(&[tree], &[unit]);
    let found: Vec<(&str, &str, usize)> =
        rows.iter().map(|row| (row.queue.as_str(), row.amounts.name.as_str(), row.waiting)).collect();
    assert_eq!(found, [("root", "company", 1), ("root/team", "team", 1)]);
    assert!(rows.iter().all(|row| row.holds("root/team")));
}
