//! Attempts of jobs and of their tasks over the REST API.

use serde_json::{Value, json};

use super::{Hub, JOBS, LAB};

#[tokio::test]
async fn a_job_is_stopped_and_run_once_more() {
    let hub = Hub::start().await;
    hub.submit(LAB).await;
    let execute = "/jobs/alice~job-config-6/executionType";
    let stop = async |value: &str| {
        let body = json!({"value": value}).to_string();
        let (status, answer) = hub.ask("PUT", execute, Some("a1"), &body).await;
        assert_eq!(status, 202, "{answer}");
        assert_eq!(answer["message"], "Execute job alice~job-config-6 successfully.");
    };
    let job = || async { hub.object(&format!("{JOBS}/alice-job-config-6")).await };
    stop("STOP").await;
    assert_eq!(job().await["metadata"]["annotations"]["fleet.dev/stop"], "true");
    let item = &hub.get("/jobs").await[0];
    assert_eq!((&item["state"], &item["executionType"]), (&json!("STOPPING"), &json!("STOP")));
    stop("START").await;
    assert!(job().await["metadata"]["annotations"]["fleet.dev/stop"].is_null());
    let ended = json!({"state": {"phase": "Completed", "lastTransitionTime": "2026-01-02T03:04:05Z"}});
    hub.set_status("alice-job-config-6", ended).await;
    stop("STOP").await;
    assert_eq!(hub.get("/jobs").await[0]["state"], "SUCCEEDED", "what has ended has ended");
    stop("START").await;
    let list = hub.get("/jobs").await;
    assert_eq!((list.as_array().map(Vec::len), &list[0]["state"]), (Some(1), &json!("WAITING")));
    let attempts = hub.get("/jobs/alice~job-config-6/job-attempts").await;
    let latest = |i: usize| (attempts[i]["attemptIndex"].clone(), attempts[i]["isLatest"].clone());
    assert_eq!((latest(0), latest(1)), ((json!(1), json!(true)), (json!(0), json!(false))));
    let state = async |n: u8| {
        hub.get(&format!("/jobs/alice~job-config-6/attempts/{n}")).await["jobStatus"]["state"].clone()
    };
    assert_eq!((state(0).await, state(1).await), (json!("SUCCEEDED"), json!("WAITING")));
}

#[tokio::test]
async fn a_task_has_its_attempts_its_group_and_its_log() {
    let hub = Hub::start().await;
    // Task by task, and each task is tried again alone.
    let text = LAB.replace("gangAllocation: true", "gangAllocation: false");
    assert_ne!(text, LAB);
    assert_eq!(hub.submit(&text).await.0, 202);
    let job = hub.object(&format!("{JOBS}/alice-job-config-6")).await;
    hub.set_status(
        "alice-job-config-6",
        json!({"state": {"phase": "Running"}, "running": 2, "version": 3, "retryCount": 1,
            "taskStatusCount": {"train": {"phase": {"Running": 2}}},
            "controlledResources": {"retries-alice-job-config-6-train-1": "1 some-pod 2", "retries.resource": "2"}}),
    )
    .await;
    // For want of room its next attempt waits.
    let waits = json!({"state": {"phase": "Running", "reason": "RetryDelayed",
        "message": "PodFailed of pod p, exit code 251: m; tried again after 120 s"}});
    let group = |pod: &str, lost: Value| {
        json!({"request": {}, "cellChain": "c", "leafCellType": "GPU", "lazilyPreempted": lost,
            "pods": [{"name": pod, "node": "n1", "leafCells": [0], "preassignedCellTypes": []}]})
    };
    let lost = json!({"preemptor": "the configuration", "atMs": 1_767_323_045_000_i64});
    let binding = json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "ResourceBinding",
        "metadata": {"name": "alice-job-config-6-vcjob", "namespace": "default"},
        "spec": {"policy": {"apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "PropagationPolicy", "name": "p"},
            "clusters": [{"name": "east"}],
            "cells": {"virtualCluster": "default", "groups": [group("train-0", Value::Null), group("train-1", lost)]},
            "resource": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": "default",
            "name": "alice-job-config-6", "uid": job["metadata"]["uid"]}}});
    hub.create("/apis/fleet.dev/v1alpha1/namespaces/default/resourcebindings", binding).await;
    let detail = hub.get("/jobs/alice~job-config-6").await;
    assert_eq!(
        detail["jobStatus"]["retryDetails"],
        json!({"user": 1, "platform": 0, "resource": 2}),
        "{detail}"
    );
    let tasks = &detail["taskRoles"]["train"]["taskStatuses"];
    assert_eq!((&tasks[1]["retries"], &tasks[1]["accountableRetries"]), (&json!(3), &json!(1)), "{detail}");
    let hived = |index: usize| tasks[index]["hived"].clone();
    assert_eq!(
        (&hived(0)["lazyPreempted"], &hived(0)["lazyPreemptionStatus"]),
        (&json!(false), &Value::Null)
    );
    assert_eq!(hived(0)["affinityGroupName"], "default/alice-job-config-6-train-0");
    let told = json!({"preemptor": "the configuration", "preemptionTime": "2026-01-02T03:04:05Z"});
    assert_eq!((&hived(1)["lazyPreempted"], &hived(1)["lazyPreemptionStatus"]), (&json!(true), &told));

    hub.set_status("alice-job-config-6", waits).await;
    let item = hub.get("/jobs").await[0].clone();
    assert_eq!((&item["state"], &item["retryDelayTime"]), (&json!("WAITING"), &json!(120)), "{item}");
    hub.set_status(
        "alice-job-config-6",
        json!({"state": {"phase": "Running", "reason": null, "message": null}}),
    )
    .await;

    let of = "/jobs/alice~job-config-6/attempts/0/taskRoles/train/taskIndex";
    let task = hub.get(&format!("{of}/1/attempts")).await;
    let states: Vec<String> = task["attempts"]
        .as_array()
        .expect("attempts")
        .iter()
        .map(|attempt| format!("{} {}", attempt["attemptId"], attempt["attemptState"]))
        .collect();
    assert_eq!(states, [r#"0 "FAILED""#, r#"1 "FAILED""#, r#"2 "FAILED""#, r#"3 "RUNNING""#]);
    assert_eq!((&task["taskRoleName"], &task["taskState"]), (&json!("train"), &json!("RUNNING")));
    let logs = hub.get(&format!("{of}/1/attempts/3/logs")).await;
    assert_eq!(logs["locations"][0]["uri"], format!("/api/v2{of}/1/attempts/3/logs/app"));
    let a1 = Some("a1");
    for (path, wanted) in [
        (format!("{of}/2/attempts"), (404, "NoTaskError", "allowed: train 0 to 1")),
        (format!("{of}/x/attempts"), (404, "NoTaskError", "found task \"train\" \"x\"")),
        (of.replace("train", "ps") + "/0/attempts", (404, "NoTaskError", "allowed: train 0 to 1")),
        (of.replace("attempts/0", "attempts/7") + "/0/attempts", (404, "NoJobAttemptError", "0 to 0")),
        (format!("{of}/1/attempts/0/logs"), (404, "NoTaskLogError", "allowed: 3")),
        (format!("{of}/1/attempts/3/logs/other"), (404, "NoTaskLogError", "allowed: app")),
        // Which member it is, this caller may not read.
        (format!("{of}/1/attempts/3/logs/app"), (404, "NoTaskLogError", "clusters")),
    ] {
        hub.refused(("GET", &path, a1, ""), wanted).await;
    }
    hub.refused(("GET", &format!("{of}/1/attempts"), Some("b1"), ""), (403, "ForbiddenUserError", "bob"))
        .await;
}
