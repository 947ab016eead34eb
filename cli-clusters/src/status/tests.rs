use fleet_cli_ground::{args::Listing, output::Headers};
use serde_json::json;

use super::*;
use fleet_console::terminal;

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn lease(renewed: &str, written: &str) -> Value {
    json!({"metadata": {"managedFields": [{"manager": "member-agent", "time": written}]},
        "spec": {"renewTime": renewed, "leaseDurationSeconds": 40, "holderIdentity": "east-1"}})
}

fn cluster(status: Value) -> Cluster {
    serde_json::from_value(json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "east"}, "spec": {}, "status": status}))
    .expect("a cluster")
}

#[test]
fn what_is_installed_and_what_is_wrong_stand_below_each_other() {
    let now = at("2026-01-01T00:01:00Z");
    let status = json!({"kubernetesVersion": "v1.36.0", "reportSequence": now.as_millisecond() - 3000,
        "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "agent": {"version": env!("CARGO_PKG_VERSION"), "schedulerNames": ["fleet"]}});
    let found =
        judge(&cluster(status.clone()), Some(&lease("2026-01-01T00:00:55Z", "2026-01-01T00:00:55Z")), now);
    assert!(found.todo.is_empty() && !found.fails, "{found:?}");
    assert_eq!((found.lease_age_seconds, found.report_age_seconds), (Some(5), Some(3)));
    let mut worse = status;
    worse["agent"]["missingRights"] = json!(["create pods/binding"]);
    // The member's clock is half a minute ahead; the age is by the hub's.
    let found = judge(&cluster(worse), Some(&lease("2026-01-01T00:01:25Z", "2026-01-01T00:00:55Z")), now);
    assert_eq!((found.lease_age_seconds, found.fails), (Some(5), true));
    let text = list(&[found]).expect("a list").print();
    assert!(text.contains("lacks       create pods/binding\n"), "{text}");
    assert!(text.contains("its clock is 30 s ahead of the hub's"), "{text}");
    assert!(text.contains("clock       +30 s against the hub's\n"), "{text}");
}

#[test]
fn an_agent_that_does_not_answer_is_the_first_thing_to_look_at() {
    let now = at("2026-01-01T01:00:00Z");
    let never = judge(&cluster(json!({})), None, now);
    assert!(never.todo[0].contains("has never answered") && never.todo[0].contains("fleet join east"));
    let silent =
        judge(&cluster(json!({})), Some(&lease("2026-01-01T00:50:00Z", "2026-01-01T00:50:00Z")), now);
    assert!(silent.todo[0].contains("has not answered for 10m"), "{:?}", silent.todo);
    assert!(never.fails && silent.fails);
}

#[test]
fn a_cordon_or_another_clock_is_no_failure() {
    let now = at("2026-01-01T00:01:00Z");
    let status = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    let mut cordoned = cluster(status);
    cordoned.spec =
        serde_json::from_value(json!({"taints": [{"key": CORDON_TAINT, "effect": "NoSchedule"}]}))
            .expect("a spec");
    let found = judge(&cordoned, Some(&lease("2026-01-01T00:01:25Z", "2026-01-01T00:00:55Z")), now);
    assert!(!found.fails && found.todo.len() == 2, "{found:?}");
    cordoned.status = None;
    let found = judge(&cordoned, Some(&lease("2026-01-01T00:00:55Z", "2026-01-01T00:00:55Z")), now);
    assert!(found.fails && found.todo[0].starts_with("it is not ready"), "{found:?}");
}

/// A cluster that was cordoned, and whose agent answers no more.
fn silent() -> Status {
    let status = json!({"kubernetesVersion": "v1.36.0", "reportSequence": at("2026-01-01T00:50:00Z").as_millisecond(),
        "agent": {"version": env!("CARGO_PKG_VERSION"), "schedulerNames": ["fleet"],
            "controllers": ["pytorchjob", "tfjob", "mpijob"], "missingRights": ["create pods/binding", "list nodes"]}});
    let mut cluster = cluster(status);
    cluster.spec = serde_json::from_value(json!({"taints": [{"key": CORDON_TAINT, "effect": "NoSchedule"}]}))
        .expect("a spec");
    judge(&cluster, Some(&lease("2026-01-01T00:50:00Z", "2026-01-01T00:50:00Z")), at("2026-01-01T01:00:00Z"))
}

#[test]
fn a_status_fits_80_columns() {
    let text = list(&[silent()]).expect("a list").print();
    let text = terminal::fold(&text, Some(80)).replace(env!("CARGO_PKG_VERSION"), "VERSION");
    insta::assert_snapshot!(text, @r"
    east
      ready       Unknown
      kubernetes  v1.36.0
      agent       VERSION, binds pods of fleet, creates pods of pytorchjob, creates
                  pods of tfjob, creates pods of mpijob
      lease       renewed 10m ago, held by east-1
      report      10m ago
      clock       +0 s against the hub's
      lacks       create pods/binding, list nodes
      ->          its agent has not answered for 10m: is it running, and does it
                  reach the hub? `kubectl -n fleet-system get pods` there; `fleet
                  unjoin --force east` if the cluster is dead
      ->          its agent lacks rights there: create pods/binding, list nodes;
                  `fleet join east`, or an upgrade of its chart, gives them
      ->          it is cordoned and gets no new jobs: `fleet uncordon east` ends
                  that
    ");
}

#[test]
fn data_and_names_are_those_of_the_blocks() {
    let (mut west, east) = (judge(&cluster(json!({})), None, at("2026-01-01T01:00:00Z")), silent());
    west.name = "west".to_string();
    let shown = |output: &str, sort_by: Option<&str>| {
        let how = Listing {
            output: Some(output.parse().expect("a format")),
            sort_by: sort_by.map(str::to_string),
            ..Listing::default()
        };
        let list = list(&[west.clone(), east.clone()]).expect("a list");
        list.answer(&how, Headers::Printed).expect("an answer").text
    };
    assert_eq!(shown("name", None), "cluster.fleet.dev/west\ncluster.fleet.dev/east\n");
    assert_eq!(shown("name", Some(".name")), "cluster.fleet.dev/east\ncluster.fleet.dev/west\n");
    assert_eq!(shown("jsonpath={.items[1].leaseAgeSeconds} {.items[0].ready}", None), "600 Unknown");
    assert!(shown("json", None).contains("\"missingRights\": ["));
}
