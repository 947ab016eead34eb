use super::*;
use serde_json::json;

fn kind(group: &str, plural: &str) -> Kind {
    Kind { group: group.into(), plural: plural.into(), namespaced: true, ..Kind::default() }
}

fn style(clusters: bool) -> Style {
    Style { clusters, wide: false, namespaces: false, headers: true, prefixed: false, sort_by: None }
}

#[test]
fn jobs_of_members_have_cluster_and_adoption() {
    let columns = json!([{"name": "Name", "priority": 0}, {"name": "State", "priority": 0},
            {"name": "Age", "priority": 0}, {"name": "Extra", "priority": 1}]);
    let east = json!({"kind": "Table", "columnDefinitions": columns, "rows": [
            {"cells": ["pytorch-test", "Running", "6m23s", "x"],
             "object": {"metadata": {"namespace": "default", "labels": {"fleet.dev/managed": "true"}}}}]});
    let west = json!({"kind": "Table", "columnDefinitions": columns, "rows": [
            {"cells": ["own", null, "1s", "x"], "object": {"metadata": {"namespace": "default"}}}]});
    let parts = [Part { cluster: "east", answer: &east }, Part { cluster: "west", answer: &west }];
    let text = merge(&kind("kubeflow.org", "pytorchjobs"), &parts, &style(true), Timestamp::UNIX_EPOCH)
        .expect("a table");
    insta::assert_snapshot!(text, @r"
        NAME           CLUSTER   STATE     AGE     ADOPTION
        pytorch-test   east      Running   6m23s   Y
        own            west                1s      N
        ");
}

#[test]
fn pods_of_members_have_no_adoption() {
    let answer = json!({"kind": "Table", "columnDefinitions": [{"name": "Name"}, {"name": "Ready"}],
            "rows": [{"cells": ["a-0", "1/1"], "object": {"metadata": {"namespace": "default"}}}]});
    let parts = [Part { cluster: "east", answer: &answer }];
    let with_namespaces = Style { namespaces: true, ..style(true) };
    let text = merge(&kind("", "pods"), &parts, &with_namespaces, Timestamp::UNIX_EPOCH).expect("a table");
    insta::assert_snapshot!(text, @r"
        NAMESPACE   NAME   CLUSTER   READY
        default     a-0    east      1/1
        ");
}

#[test]
fn a_server_without_tables_still_gets_one() {
    let answer = json!({"kind": "PodList", "items": [{"metadata": {"name": "a", "namespace": "default",
            "creationTimestamp": "1970-01-01T00:00:00Z"}}]});
    let now = "1970-01-01T00:00:09Z".parse().expect("a time");
    let text = merge(&kind("", "pods"), &[Part { cluster: "hub", answer: &answer }], &style(false), now)
        .expect("a table");
    insta::assert_snapshot!(text, @r"
        NAME   AGE
        a      9s
        ");
}

#[test]
fn rows_are_ordered_by_a_field() {
    let row = |name: &str, priority: i64| json!({"cells": [name], "object": {"metadata": {"name": name}, "spec": {"priority": priority}}});
    let answer = json!({"kind": "Table", "columnDefinitions": [{"name": "Name"}],
            "rows": [row("a", 10), row("b", 9), row("c", 0)]});
    let by = |path: &str| {
        let style = Style { sort_by: Some(path.into()), headers: false, ..style(false) };
        merge(&kind("", "pods"), &[Part { cluster: "hub", answer: &answer }], &style, Timestamp::UNIX_EPOCH)
    };
    assert_eq!(by("{.spec.priority}").expect("a path"), "c\nb\na\n");
    assert_eq!(by(".metadata.name").expect("a path"), "a\nb\nc\n");
    assert!(by(".spec[").is_err());
}
