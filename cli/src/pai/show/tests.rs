use fleet_cli_ground::output::Headers;
use fleet_openpai::jobs::{detail, item, tasks_of_pods};
use fleet_pai::state::State;
use serde_json::json;

use super::*;

/// A run of the lab's sixth job.
fn run(status: Value, cluster: Option<&str>) -> Run {
    let rules = json!({
        "roles": [{"role": "train", "task": "train", "instances": 2, "minFailed": 1, "minSucceeded": 1,
            "taskRetry": {"fancy": false, "max": 0}}],
        "jobRetry": {"fancy": true, "max": 0},
    });
    let object = json!({
        "metadata": {
            "name": "alice-mnist", "namespace": "team-a", "uid": "u", "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": {"pai.fleet.dev/job": "alice-mnist", "pai.fleet.dev/run": "1",
                "fleet.dev/virtual-cluster": "vc1", "fleet.dev/class": "prod"},
            "annotations": {"pai.fleet.dev/id": "alice~mnist", "pai.fleet.dev/gpus": "2",
                "pai.fleet.dev/submitted-ms": "1767323045000", "pai.fleet.dev/completion": rules.to_string()},
        },
        "spec": {"maxRetry": 1},
        "status": status,
    });
    let waits =
        json!([{"type": "Scheduled", "status": "False", "reason": "NoClusterFits", "message": "no room"}]);
    let binding = match cluster {
        Some(cluster) => json!({"spec": {"clusters": [{"name": cluster}]}}),
        None => json!({"status": {"conditions": waits}}),
    };
    Run::of(object, Some(binding)).expect("a run")
}

fn now() -> Timestamp {
    "2026-01-02T03:14:05Z".parse().expect("a time")
}

#[test]
fn jobs_stand_in_a_table() {
    let failed = json!({"state": {"phase": "Failed", "lastTransitionTime": "2026-01-02T03:12:05Z",
            "message": "PodFailed of pod alice-mnist-train-1, exit code 255"},
            "conditions": [{"status": "Running", "lastTransitionTime": "2026-01-02T03:05:05Z"}], "retryCount": 1});
    let items = [item(&run(Value::Null, None)), item(&run(failed, Some("east")))];
    insta::assert_snapshot!(table(&items, true, now()).expect("a list").print(), @r"
        NAME    USER    STATE     VC    PRIORITY   TASKS   GPUS   RETRIES   SUBMITTED   DURATION   NAMESPACE   CLUSTER   OBJECT
        mnist   alice   WAITING   vc1   prod       2       2      0         10m         -          team-a      -         alice-mnist
        mnist   alice   FAILED    vc1   prod       2       2      0         10m         7m         team-a      east      alice-mnist
        ");
    assert_eq!(items[0].state, State::Waiting);
}

#[test]
fn jobs_fit_80_columns() {
    let mut items = vec![item(&run(Value::Null, None)); 2];
    items[1].name = "resnet-50-distributed".to_owned();
    items[1].virtual_cluster = "research".to_owned();
    let within = |items: &[Item]| {
        let text = table(items, false, now()).expect("a list").print_within(Some(80), Headers::Printed);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        text
    };
    insta::assert_snapshot!(within(&items[..1]), @r"
        NAME    USER    STATE     VC    PRIORITY   TASKS   GPUS   RETRIES   SUBMITTED
        mnist   alice   WAITING   vc1   prod       2       2      0         10m
        ");
    for header in ["NAME", "USER", "STATE", "VC", "PRIORITY", "TASKS", "GPUS"] {
        assert!(within(&items).contains(header), "{header} in\n{}", within(&items));
    }
}

#[test]
fn one_job_says_how_it_fares() {
    let waits = run(Value::Null, None);
    let page_of = |run: &Run, pods: &[Value]| page(run, &detail(run, tasks_of_pods(run, pods)), now());
    insta::assert_snapshot!(page_of(&waits, &[]), @r"
        Job:             alice~mnist
        Object:          jobs.batch.volcano.sh/alice-mnist in namespace team-a
        State:           WAITING (AttemptCreationPending)
        Waiting:         NoClusterFits: no room
        Virtual cluster: vc1
        Priority:        prod
        Run:             1
        Retries:         0 (0 user, 0 platform)
        Submitted:       2026-01-02T03:04:05Z
        Duration:        -

        ROLE    TASK   STATE     NODE   IP   EXIT   PHRASE
        train   0      WAITING   -      -    -      -
        train   1      WAITING   -      -    -      -
        ");
    let failed = json!({"state": {"phase": "Failed", "lastTransitionTime": "2026-01-02T03:12:05Z",
            "message": "PodFailed of pod alice-mnist-train-1, exit code 255"}});
    let pod = json!({"metadata": {"name": "alice-mnist-train-1"}, "spec": {"nodeName": "n1"},
            "status": {"phase": "Failed", "podIP": "10.0.0.7",
                "containerStatuses": [{"state": {"terminated": {"exitCode": 3, "reason": "Error"}}}]}});
    insta::assert_snapshot!(page_of(&run(failed, Some("east")), &[pod]), @r"
        Job:             alice~mnist
        Object:          jobs.batch.volcano.sh/alice-mnist in namespace team-a
        State:           FAILED (Completed)
        Virtual cluster: vc1
        Priority:        prod
        Cluster:         east
        Run:             1
        Retries:         0 (0 user, 0 platform)
        Submitted:       2026-01-02T03:04:05Z
        Completed:       2026-01-02T03:12:05Z
        Duration:        -
        Exit:            255 PAIRuntimeUnknownFailed (UNKNOWN_FAILURE)
        Reason:          The command failed for a reason that is not known
        Diagnostics:     PodFailed of pod alice-mnist-train-1, exit code 255
        Solution:        Look into the task's log for the cause; Wait for the next try

        ROLE    TASK   STATE     NODE   IP         EXIT   PHRASE
        train   0      STOPPED   -      -          -220   FrameworkAttemptCompletion
        train   1      FAILED    n1     10.0.0.7   255    PAIRuntimeUnknownFailed
        ");
}
