use fleet_pai::names;

use super::*;
use crate::jobs::{rows::GROUP_NAME_MAX, tasks_of_counts, tasks_of_pods};

fn run(status: Value, binding: Value) -> Run {
    let rules = json!({"roles": [{"role": "train", "task": "train", "instances": 2, "minFailed": 1, "minSucceeded": 1,
        "taskRetry": {"fancy": false, "max": 0}}], "jobRetry": {"fancy": true, "max": 0}});
    let object = json!({"metadata": {"name": "alice-j", "namespace": "ns", "labels": {names::RUN_LABEL: "1"},
            "annotations": {names::ID_ANNOTATION: "alice~j", names::RULES_ANNOTATION: rules.to_string()}},
        "status": status});
    Run::of(object, Some(binding)).expect("a job")
}

/// An attempt with all of its tasks.
fn of_attempt(runs: &[Run], number: Option<usize>) -> Result<Value, usize> {
    let shown = Shown::of(runs, number)?;
    let mut whole = shown.job();
    for (role, rule) in shown.roles() {
        let tasks: Vec<Value> = shown.tasks(rule).map(|(_, task)| task).collect();
        whole["taskRoles"][role] = json!({"taskStatuses": tasks});
    }
    Ok(whole)
}

fn attempt_of(reason: &str, epoch: i64) -> Value {
    json!({"cluster": "east", "epoch": epoch, "reason": reason, "message": "by bob-j",
        "startedAt": "1970-01-01T00:00:01Z", "endedAt": "1970-01-01T00:00:03Z"})
}

/// The status as it was when the run was evicted.
fn stale(phase: &str, reason: &str) -> Value {
    json!({"state": {"phase": phase, "reason": reason}, "running": 2,
        "taskStatusCount": {"train": {"phase": {"Running": 2}}}})
}

fn states(run: &Run) -> Vec<String> {
    let roles = tasks_of_counts(run);
    let tasks = roles["train"]["taskStatuses"].as_array().expect("tasks").iter();
    tasks.map(|task| format!("{} {}", text(&task["taskState"], ""), task["containerExitCode"])).collect()
}

#[test]
fn a_preempted_run_ends_as_openpai_words_it() {
    let waits =
        run(stale("Pending", ""), json!({"spec": {}, "status": {"attempts": [attempt_of("Preempted", 1)]}}));
    let status = detail(&waits, Map::new())["jobStatus"].clone();
    assert_eq!(status["retryDetails"], json!({"user": 0, "platform": 1, "resource": 0}));
    let expected = json!([{"launchTime": 1000, "completionTime": 3000, "exitCode": -101,
        "exitPhrase": "PodExternalDeleted", "exitType": "PLATFORM_FAILURE", "exitDiagnostics": "Preempted: by bob-j"}]);
    assert_eq!(status["retryHistory"], expected);
    assert_eq!(states(&waits), ["WAITING null", "WAITING null"], "its tasks are gone");
}

#[test]
fn a_stopped_job_keeps_its_retries() {
    let end = |reason: Value, attempts: Value| {
        json!({"spec": {},
        "status": {"attempts": attempts, "result": {"outcome": "Failed", "epoch": 1, "reason": reason}}})
    };
    // Preempted, then stopped while it waited.
    let stopped = run(stale("Failed", "Stopped"), end(json!("Stopped"), json!([attempt_of("Preempted", 1)])));
    let status = detail(&stopped, Map::new())["jobStatus"].clone();
    assert_eq!((&status["state"], &status["retries"]), (&json!("STOPPED"), &json!(1)));
    assert_eq!(status["retryHistory"][0]["exitCode"], -101);
    assert_eq!(states(&stopped), ["STOPPED -210", "STOPPED -210"]);
    // The end of the last run is no retry.
    let attempts = json!([attempt_of("Preempted", 1), attempt_of("Stopped", 2)]);
    let running = run(stale("Failed", "Stopped"), end(json!("Stopped"), attempts));
    assert_eq!(detail(&running, Map::new())["jobStatus"]["retries"], 1);
    let failed =
        run(stale("Failed", "Failed"), end(json!("Failed"), json!([attempt_of("ApplicationFailure", 1)])));
    assert_eq!(detail(&failed, Map::new())["jobStatus"]["retries"], 0);
    // A member reports the end of a run of its own.
    let ended = json!({"spec": {"clusters": [{"name": "east"}]},
        "status": {"attempts": [attempt_of("Preempted", 1)], "result": {"outcome": "Succeeded", "epoch": 2}}});
    let over = run(json!({"state": {"phase": "Completed"}}), ended);
    assert_eq!(detail(&over, Map::new())["jobStatus"]["retries"], 1);
}

#[test]
fn a_stopped_run_keeps_the_places_of_its_tasks() {
    let pods = json!([{"name": "train-0", "node": "n1", "leafCells": [2, 3]}, {"name": "train-1", "node": "n2", "leafCells": [0]}]);
    let binding = json!({"spec": {"clusters": [{"name": "east"}], "cells": {"groups": [{"pods": pods}]}},
        "status": {"attempts": [attempt_of("Stopped", 1)], "result": {"outcome": "Failed", "epoch": 1, "reason": "Stopped"}}});
    let stopped = run(stale("Failed", "Stopped"), binding);
    let tasks = tasks_of_pods(&stopped, &[]);
    let task = &tasks["train"]["taskStatuses"][0];
    assert_eq!((&task["containerNodeName"], &task["containerGpus"]), (&json!("n1"), &json!("2,3")));
    assert_eq!((&task["taskState"], &task["containerExitCode"]), (&json!("STOPPED"), &json!(-210)));
    assert_eq!(task["containerExitSpec"]["phrase"], "StopFrameworkRequested");
    assert_eq!(states(&stopped), ["STOPPED -210", "STOPPED -210"]);
}

#[test]
fn of_an_incremental_job_the_tasks_with_cells_run() {
    let binding = json!({"spec": {"clusters": [{"name": "east"}],
        "cells": {"groups": [{"pods": [{"name": "train-1", "node": "n2", "leafCells": [0]}]}]}}});
    let status =
        json!({"state": {"phase": "Running"}, "taskStatusCount": {"train": {"phase": {"Running": 1}}}});
    assert_eq!(states(&run(status, binding)), ["WAITING null", "RUNNING null"]);
}

#[test]
fn an_attempt_is_found_by_the_number_that_its_job_gives() {
    let binding = json!({"spec": {"clusters": [{"name": "east"}]}, "status": {"attempts": [attempt_of("Preempted", 1)]}});
    let runs = [run(json!({"state": {"phase": "Running"}}), binding)];
    let now = of_attempt(&runs, None).expect("a run");
    assert_eq!(now["jobStatus"]["attemptId"], 1);
    assert_eq!(of_attempt(&runs, Some(1)), Ok(now));
    let first = of_attempt(&runs, Some(0)).expect("it was preempted");
    let status = &first["jobStatus"];
    assert_eq!((&status["attemptId"], &status["attemptState"]), (&json!(0), &json!("FAILED")));
    assert_eq!((&status["appExitCode"], &status["appCompletedTime"]), (&json!(-101), &json!(3000)));
    assert_eq!(first["taskRoles"]["train"]["taskStatuses"][1]["containerExitCode"], -101);
    for number in [0, 1] {
        let (shown, whole) =
            (Shown::of(&runs, Some(number)), of_attempt(&runs, Some(number)).expect("it is there"));
        let shown = shown.expect("it is there");
        let (rule, task) = shown.task("train", 1).expect("a task");
        assert_eq!((rule.task.as_str(), &task), ("train", &whole["taskRoles"]["train"]["taskStatuses"][1]));
        assert!(shown.task("train", 2).is_none() && shown.task("other", 0).is_none());
    }
    assert_eq!(of_attempt(&runs, Some(2)), Err(2));
    let listed: Vec<(Value, Value, Value)> = attempts(&runs)
        .into_iter()
        .map(|a| (a["attemptIndex"].clone(), a["isLatest"].clone(), a["exitCode"].clone()))
        .collect();
    assert_eq!(listed, [(json!(1), json!(true), Value::Null), (json!(0), json!(false), json!(-101))]);
}

#[test]
fn no_number_of_an_annotation_makes_tasks_that_no_job_has() {
    let with = |instances: i64, task: &str| {
        let mut run =
            run(json!({"state": {"phase": "Running"}}), json!({"spec": {"clusters": [{"name": "east"}]}}));
        let rules = json!({"roles": [{"role": "a", "task": task, "instances": instances, "minFailed": 1,
            "minSucceeded": 1, "taskRetry": {"fancy": true, "max": 0}}], "jobRetry": {"fancy": true, "max": 0}});
        run.object["metadata"]["annotations"][names::RULES_ANNOTATION] = json!(rules.to_string());
        run
    };
    let known = with(3, "a");
    assert_eq!(tasks_of_counts(&known)["a"]["taskStatuses"].as_array().map(Vec::len), Some(3));
    for (instances, task) in [(10_000_000_000, "a"), (i64::MAX, "a"), (-1, "a"), (1, "0/proxy/x?")] {
        let run = with(instances, task);
        assert!(run.rules().is_none(), "{instances} {task}");
        assert!(tasks_of_counts(&run).is_empty() && tasks_of_pods(&run, &[]).is_empty());
        assert_eq!(item(&run).total_task_number, 0);
        let shown = of_attempt(std::slice::from_ref(&run), None).expect("one attempt");
        assert_eq!(shown["taskRoles"], json!({}));
        let shown = Shown::of(std::slice::from_ref(&run), None).expect("one attempt");
        assert!(shown.task("a", 0).is_none());
    }
}

#[test]
fn what_all_tasks_have_is_read_once() {
    const TASKS: i64 = 20_000;
    let group = format!("alice~j/{}", "x".repeat(1_000));
    let spec = json!({"affinityGroup": {"name": group}, "comment": "x".repeat(200_000)}).to_string();
    let lost = json!({"preemptor": "bob", "atMs": 1});
    let groups: Vec<Value> = (0..TASKS)
        .map(|i| {
            let lost = if i == TASKS - 1 { lost.clone() } else { Value::Null };
            json!({"pods": [{"name": format!("train-{i}"), "node": format!("n{i}"), "leafCells": [i % 8]}],
                "lazilyPreempted": lost})
        })
        .collect();
    let binding = json!({"spec": {"clusters": [{"name": "east"}], "cells": {"groups": groups}}});
    let mut run = run(json!({"state": {"phase": "Running"}}), binding);
    let rules = json!({"roles": [{"role": "train", "task": "train", "instances": TASKS, "minFailed": 1,
        "minSucceeded": 1, "taskRetry": {"fancy": true, "max": 0}}], "jobRetry": {"fancy": true, "max": 0}});
    run.object["metadata"]["annotations"][names::RULES_ANNOTATION] = json!(rules.to_string());
    run.object["spec"]["tasks"] = json!([{"name": "train", "template": {"metadata": {"annotations": {names::HIVED_ANNOTATION: spec}}}}]);
    let pods: Vec<Value> = (0..TASKS)
        .rev()
        .map(|i| json!({"metadata": {"name": format!("alice-j-train-{i}"), "uid": i}, "status": {"phase": "Running"}}))
        .collect();
    let began = std::time::Instant::now();
    for tasks in [tasks_of_counts(&run), tasks_of_pods(&run, &pods)] {
        let tasks = tasks["train"]["taskStatuses"].as_array().expect("tasks");
        assert_eq!(tasks.len() as i64, TASKS);
        let (first, last) = (&tasks[0]["hived"], &tasks[tasks.len() - 1]["hived"]);
        assert_eq!((&first["lazyPreempted"], &last["lazyPreempted"]), (&json!(false), &json!(true)));
        assert_eq!(last["lazyPreemptionStatus"]["preemptor"], "bob");
        // Each task has it.
        assert_eq!(first["affinityGroupName"].as_str().map(str::len), Some(GROUP_NAME_MAX + 3));
    }
    let tasks = tasks_of_pods(&run, &pods);
    assert_eq!(tasks["train"]["taskStatuses"][17]["containerId"], 17);
    // Read for each task, the annotation has 12 GB.
    assert!(began.elapsed().as_secs() < 60);
}
