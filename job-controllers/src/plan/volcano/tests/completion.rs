//! Jobs that bring completion rules of their own.

use fleet_pai::{completion::Rules, names::RULES_ANNOTATION};

use super::*;

/// A role: instances, failures that fail it, successes that end it.
fn rules(roles: &[(&str, i64, i64, i64)], gang: bool, job_retries: i64, task_retries: i64) -> Value {
    let role = |(name, instances, min_failed, min_succeeded): &(&str, i64, i64, i64)| {
        let retry = if gang {
            json!({"fancy": false, "max": 0})
        } else {
            json!({"fancy": true, "max": task_retries})
        };
        json!({"role": name, "task": name, "instances": instances, "minFailed": min_failed,
            "minSucceeded": min_succeeded, "taskRetry": retry})
    };
    json!({"roles": roles.iter().map(role).collect::<Vec<_>>(), "jobRetry": {"fancy": true, "max": job_retries}})
}

fn case(rules: &Value, phase: &str, list: &[&str]) -> Case {
    let read: Rules = serde_json::from_value(rules.clone()).unwrap();
    let tasks: Vec<Value> = read.roles.iter().map(|rule| task(&rule.task, rule.instances)).collect();
    let total: i64 = read.roles.iter().map(|rule| rule.instances).sum();
    let spec = json!({"minAvailable": total, "maxRetry": read.job_retry.max + 1, "tasks": tasks});
    let mut case = Case::new(spec, in_phase(phase), list).admitted();
    let annotations = [(RULES_ANNOTATION.to_owned(), rules.to_string())];
    case.job.metadata.annotations = Some(annotations.into());
    case
}

/// Gives the pod's container an end.
fn with_end(case: &mut Case, pod: &str, code: i64, reason: &str) {
    let mut ended = (*case.pods[pod]).clone();
    let end = json!({"exitCode": code, "reason": reason, "finishedAt": NOW});
    ended.status.container_statuses[0].state.terminated = serde_json::from_value(end).unwrap();
    case.pods.insert(pod.to_owned(), Arc::new(ended));
}

#[test]
fn so_many_failed_or_succeeded_tasks_end_an_attempt() {
    let two = |min_failed, min_succeeded| {
        rules(&[("t", 3, min_failed, min_succeeded), ("u", 1, 1, -1)], true, 0, 0)
    };
    for (rules, list, phase) in [
        (two(2, 3), ["j-t-0 Failed", "j-t-1 Running", "j-t-2 Running", "j-u-0 Running"], "Running"),
        (two(2, 3), ["j-t-0 Failed", "j-t-1 Failed", "j-t-2 Running", "j-u-0 Running"], "Terminating"),
        (two(1, 2), ["j-t-0 Succeeded", "j-t-1 Running", "j-t-2 Running", "j-u-0 Running"], "Running"),
        (two(1, 2), ["j-t-0 Succeeded", "j-t-1 Succeeded", "j-t-2 Running", "j-u-0 Running"], "Completing"),
        (two(-1, -1), ["j-t-0 Failed", "j-t-1 Failed", "j-t-2 Failed", "j-u-0 Running"], "Running"),
        (two(-1, -1), ["j-t-0 Failed", "j-t-1 Failed", "j-t-2 Failed", "j-u-0 Succeeded"], "Completing"),
        (two(-1, 3), ["j-t-0 Running", "j-t-1 Running", "j-t-2 Running", "j-u-0 Failed"], "Terminating"),
    ] {
        assert_eq!(case(&rules, "Running", &list).phase(), phase, "{rules} {list:?}");
    }
}

#[test]
fn what_ended_it_is_still_said_in_the_end() {
    let rules = rules(&[("t", 1, 1, 1)], true, 0, 0);
    let mut case = case(&rules, "Running", &["j-t-0 Failed"]);
    let told = "PodFailed of pod j-t-0, exit code 255: 1 of 1 tasks of t failed, and minFailedInstances is 1";
    for phase in ["Terminating", "Terminated"] {
        let status = case.plan().status.unwrap();
        assert_eq!((&status["state"]["phase"], &status["state"]["message"]), (&json!(phase), &json!(told)));
        case.job.status = status;
    }
}

#[test]
fn a_gang_is_tried_again_as_a_whole_and_what_is_transient_is_not_counted() {
    let rules = rules(&[("t", 2, 1, 2)], true, 1, 0);
    for (code, reason, phase, counted) in [
        (255, "Error", "Restarting", 1),
        (3, "Error", "Restarting", 1),
        (137, "Error", "Restarting", 0),
        (137, "OOMKilled", "Terminating", 0),
        (254, "Error", "Terminating", 0),
    ] {
        let mut failed = case(&rules, "Running", &["j-t-0 Failed", "j-t-1 Running"]);
        with_end(&mut failed, "j-t-0", code, reason);
        let status = failed.plan().status.unwrap();
        let count = status["retryCount"].as_i64().unwrap_or(0);
        assert_eq!((&status["state"]["phase"], count), (&json!(phase), counted), "{code} {reason}");
        assert_eq!(status["version"], 1, "all of its pods go");
    }
    // A pod that others delete: a new attempt for nothing, as often as it happens.
    let mut deleted = case(&rules, "Running", &["j-t-0 Running!", "j-t-1 Running"]);
    deleted.job.status["retryCount"] = 1.into();
    let status = deleted.plan().status.unwrap();
    assert_eq!((&status["state"]["phase"], &status["retryCount"]), (&json!("Restarting"), &json!(1)));
    assert!(status["state"]["message"].as_str().unwrap().contains("exit code -101"));
    // A failure that counts, once more than the bound.
    let mut last = case(&rules, "Running", &["j-t-0 Failed", "j-t-1 Running"]);
    last.job.status["retryCount"] = 1.into();
    assert_eq!(last.phase(), "Terminating");
}

#[test]
fn an_incremental_job_tries_its_task_again_alone() {
    let rules = rules(&[("t", 2, 1, 2)], false, 0, 1);
    let list = ["j-t-0 Failed", "j-t-1 Running"];
    let mut failed = case(&rules, "Running", &list);
    let plan = failed.plan();
    let status = plan.status.unwrap();
    assert_eq!((&status["state"]["phase"], plan.delete), (&json!("Running"), vec!["j-t-0".to_owned()]));
    assert!(plan.status_first, "it is counted before the pod goes");
    assert_eq!(status["controlledResources"]["retries-j-t-0"], "1 j-t-0 0");
    // Seen again, as after a crash: it goes, and is not counted twice.
    failed.job.status = status.clone();
    let again = failed.plan();
    assert_eq!(again.delete, ["j-t-0"]);
    assert!(again.status.is_none_or(|status| status["controlledResources"]["retries-j-t-0"] == "1 j-t-0 0"));
    // It is made anew, and the next failure is one too many.
    failed.pods = pods(&["j-t-1 Running"]);
    assert_eq!(failed.plan().create.len(), 1);
    failed.pods = pods(&list);
    let mut second = (*failed.pods["j-t-0"]).clone();
    second.metadata.uid = Some("another".to_owned());
    failed.pods.insert("j-t-0".to_owned(), Arc::new(second));
    assert_eq!(failed.phase(), "Terminating");
    // Transient ends are not counted; a lost pod is made anew without a word.
    let mut killed = case(&rules, "Running", &list);
    with_end(&mut killed, "j-t-0", 137, "Error");
    let plan = killed.plan();
    assert_eq!(plan.delete, ["j-t-0"]);
    assert!(plan.status.is_none_or(|status| status["controlledResources"]["retries-j-t-0"].is_null()));
    let lost = case(&rules, "Running", &["j-t-1 Running"]);
    assert_eq!((lost.phase(), lost.plan().create.len()), ("Running".to_owned(), 1));
}

/// Exit 251: not all tasks found room in time. A minute, then two, up to a quarter of an hour, and never counted.
#[test]
fn what_found_no_room_is_tried_again_after_a_wait_that_doubles() {
    for gang in [true, false] {
        let rules = rules(&[("t", 2, 1, 2)], gang, 0, 0);
        let mut failed = case(&rules, "Running", &["j-t-0 Failed", "j-t-1 Running"]);
        let entry = if gang { "retries.resource" } else { "retries-j-t-0" };
        for (tries, wait_s) in [60_u64, 120, 240, 480, 900, 900].into_iter().enumerate() {
            with_end(&mut failed, "j-t-0", 251, "Error");
            failed.now = NOW.parse().unwrap();
            failed.delayed.clear();
            let plan = failed.plan();
            let told = plan.status.as_ref().map(|status| status["state"]["phase"].clone());
            assert!(plan.delete.is_empty() && told.is_none_or(|phase| phase == "Running"), "{gang} {tries}");
            if gang {
                let state = plan.status.as_ref().unwrap()["state"].clone();
                let message = state["message"].as_str().unwrap();
                assert_eq!(state["reason"], "RetryDelayed");
                assert_eq!(fleet_pai::retry::delay_in(message), Some(wait_s.cast_signed()), "{message}");
            }
            assert_eq!(plan.look_again, Some(std::time::Duration::from_secs(wait_s)), "{gang} {tries}");
            assert_eq!(failed.look_after(wait_s.cast_signed() - 1), "Running");
            assert_eq!(failed.plan().look_again, Some(std::time::Duration::from_secs(1)));
            failed.now += jiff::SignedDuration::from_secs(1);
            let plan = failed.plan();
            let status = plan.status.unwrap();
            let noted = if gang { (tries + 1).to_string() } else { format!("0 j-t-0 {}", tries + 1) };
            assert_eq!(status["controlledResources"][entry], noted.as_str(), "{gang}");
            assert_eq!(status["retryCount"].as_i64().unwrap_or(0), 0, "it counts against no bound");
            if gang {
                assert_eq!(status["state"]["phase"], "Restarting");
                // The next attempt knows it, after all objects of this one are gone.
                failed.job.status = status;
                let gone = failed.plan().status.unwrap_or_else(|| failed.job.status.clone());
                assert_eq!(gone["controlledResources"][entry], noted.as_str());
                failed.job.status = gone;
                failed.job.status["state"]["phase"] = "Running".into();
                failed.job.status["version"] = 0.into();
            } else {
                assert_eq!(plan.delete, ["j-t-0"]);
                failed.job.status = status;
                let mut next = (*failed.pods["j-t-0"]).clone();
                next.metadata.uid = Some("j-t-0".to_owned());
                failed.job.status["controlledResources"][entry] = format!("0 before {}", tries + 1).into();
                failed.pods.insert("j-t-0".to_owned(), Arc::new(next));
            }
        }
    }
}

/// Not every pod says when it ended: the wait goes on from when that was first seen.
#[test]
fn a_wait_without_a_time_of_the_end_ends_as_well() {
    let rules = rules(&[("t", 2, 1, 2)], true, 0, 0);
    let mut failed = case(&rules, "Running", &["j-t-0 Failed", "j-t-1 Running"]);
    with_end(&mut failed, "j-t-0", 251, "Error");
    let mut ended = (*failed.pods["j-t-0"]).clone();
    let end = json!({"exitCode": 251, "reason": "Error"});
    ended.status.container_statuses[0].state.terminated = serde_json::from_value(end).unwrap();
    failed.pods.insert("j-t-0".to_owned(), Arc::new(ended));
    assert_eq!(failed.look_after(0), "Running");
    assert_eq!(failed.look_after(59), "Running");
    assert_eq!(failed.look_after(1), "Restarting");
}

#[test]
fn rules_that_cannot_be_read_or_are_beyond_the_limits_leave_the_policies() {
    let rules = rules(&[("t", 1, 1, 1)], true, 0, 0);
    let mut job = case(&rules, "Running", &["j-t-0 Succeeded"]);
    assert_eq!(job.phase(), "Completing", "by its rules");
    let mut beyond = rules.clone();
    beyond["roles"][0]["instances"] = json!(10_000_000_000_i64);
    for text in ["no JSON".to_owned(), beyond.to_string()] {
        job.job.metadata.annotations = Some([(RULES_ANNOTATION.to_owned(), text.clone())].into());
        assert_eq!(job.phase(), "Completed", "{text}");
    }
}
