use super::*;
use serde_json::json;

fn kind(group: &str, plural: &str) -> Kind {
    Kind { group: group.into(), plural: plural.into(), namespaced: true, ..Kind::default() }
}

fn style(clusters: bool) -> Style {
    Style {
        clusters,
        wide: false,
        namespaces: false,
        headers: true,
        prefixed: false,
        sort_by: None,
        width: None,
    }
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

/// Pods of two members, and jobs of the hub, as their servers print them.
#[test]
fn tables_fit_80_columns() {
    let column = |name: &str| json!({"name": name, "priority": 0});
    let answer = |columns: &[&str], rows: &[&[&str]]| {
        let columns: Vec<Value> = columns.iter().map(|name| column(name)).collect();
        let rows: Vec<Value> = rows
            .iter()
            .map(|cells| json!({"cells": cells, "object": {"metadata": {"namespace": "team-research"}}}))
            .collect();
        json!({"kind": "Table", "columnDefinitions": columns, "rows": rows})
    };
    let within = |width: Option<usize>, kind: &Kind, parts: &[Part<'_>], style: Style| {
        merge(kind, parts, &Style { width, ..style }, Timestamp::UNIX_EPOCH).expect("a table")
    };
    let fits = |text: &str| text.lines().all(|line| line.chars().count() <= 80);

    let pods = ["Name", "Ready", "Status", "Restarts", "Age"];
    let east = answer(&pods, &[&["train-resnet-master-0", "1/1", "Running", "0", "6m23s"]]);
    let west =
        answer(&pods, &[&["train-resnet-worker-10", "0/1", "CrashLoopBackOff", "12 (5m ago)", "3d4h"]]);
    let parts = [Part { cluster: "east", answer: &east }, Part { cluster: "west", answer: &west }];
    insta::assert_snapshot!(within(Some(80), &kind("", "pods"), &parts, style(true)), @r"
    NAME                     CLUSTER   READY   STATUS             RESTARTS     AGE
    train-resnet-master-0    east      1/1     Running            0            6m23s
    train-resnet-worker-10   west      0/1     CrashLoopBackOff   12 (5m       3d4h
                                                                  ago)
    ");
    // With all namespaces there is no room for the last column; a pipe has all of them.
    let everywhere = || Style { namespaces: true, ..style(true) };
    let text = within(Some(80), &kind("", "pods"), &parts, everywhere());
    assert!(fits(&text) && text.starts_with("NAMESPACE") && text.contains("STATUS"), "{text}");
    let text = within(None, &kind("", "pods"), &parts, everywhere());
    assert!(text.lines().all(|line| line.contains("AGE") || line.ends_with(['s', 'h'])), "{text}");

    let jobs = answer(&["Name", "State", "Age"], &[&["train-resnet", "Running", "6m23s"]]);
    let parts = [Part { cluster: "east", answer: &jobs }, Part { cluster: "eu-central-1", answer: &jobs }];
    let text = within(Some(80), &kind("kubeflow.org", "pytorchjobs"), &parts, everywhere());
    assert!(fits(&text) && text.contains("ADOPTION"), "{text}");
    let bare = Style { headers: false, ..everywhere() };
    assert!(fits(&within(Some(80), &kind("kubeflow.org", "pytorchjobs"), &parts, bare)));
}
