//! Prints jobs.

use fleet_openpai::jobs::{Event, Item, Run};
use jiff::{Timestamp, tz::TimeZone};
use serde_json::Value;

use crate::{age, listing::List, output};
use fleet_console::table::Table;

fn since(milliseconds: Option<i64>, now: Timestamp) -> String {
    let then = milliseconds.and_then(|then| Timestamp::from_millisecond(then).ok());
    then.map_or_else(|| "-".to_owned(), |then| age::since(Some(&then.to_string()), now))
}

/// How long it has run, or ran.
fn duration(launched: Option<i64>, completed: Option<i64>, now: Timestamp) -> String {
    let end = completed.and_then(|end| Timestamp::from_millisecond(end).ok()).unwrap_or(now);
    since(launched, end)
}

/// Jobs in a table; `wide` adds namespace, cluster and object.
///
/// # Errors
/// A job cannot be serialized.
pub fn table(items: &[Item], wide: bool, now: Timestamp) -> anyhow::Result<List> {
    let mut headers =
        vec!["Name", "User", "State", "VC", "Priority", "Tasks", "GPUs", "Retries", "Submitted", "Duration"];
    if wide {
        headers.extend(["Namespace", "Cluster", "Object"]);
    }
    let mut list = List::of_items(&headers, ("job/", ".name"));
    (list.beside, list.aging) = (output::list(Vec::new()), &["Submitted", "Duration"]);
    for item in items {
        let mut row = vec![
            item.name.clone(),
            item.username.clone(),
            item.state.as_str().to_owned(),
            item.virtual_cluster.clone(),
            item.job_priority.clone(),
            item.total_task_number.to_string(),
            item.total_gpu_number.to_string(),
            item.retries.to_string(),
            since(item.submission_time, now),
            duration(item.launched_time, item.completed_time, now),
        ];
        if wide {
            let cluster = item.cluster.clone().unwrap_or_else(|| "-".to_owned());
            row.extend([item.namespace.clone(), cluster, item.debug_id.clone()]);
        }
        list.row(item, row)?;
    }
    Ok(list)
}

/// One job: definition, state and tasks.
pub fn page(run: &Run, detail: &Value, now: Timestamp) -> String {
    let status = &detail["jobStatus"];
    let mut page = String::new();
    let mut line = |label: &str, value: String| {
        if !value.is_empty() {
            page.push_str(&format!("{:<17}{value}\n", format!("{label}:")));
        }
    };
    let shown = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let time = |value: &Value| {
        let time = value.as_i64().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        time.map_or(String::new(), |time| {
            time.to_zoned(TimeZone::UTC).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
        })
    };
    line("Job", run.id.clone());
    line("Object", format!("jobs.batch.volcano.sh/{} in namespace {}", run.name(), run.namespace()));
    line("State", format!("{} ({})", shown(&status["state"]), shown(&status["subState"])));
    line("Waiting", shown(&status["waitingReason"]));
    line("Virtual cluster", shown(&status["virtualCluster"]));
    line("Priority", shown(&status["jobPriority"]));
    line("Cluster", shown(&status["cluster"]));
    line("Run", run.number.to_string());
    let by = &status["retryDetails"];
    line(
        "Retries",
        format!("{} ({} user, {} platform)", shown(&status["retries"]), by["user"], by["platform"]),
    );
    line("Submitted", time(&status["submissionTime"]));
    line("Launched", time(&status["launchedTime"]));
    line("Completed", time(&status["completedTime"]));
    line("Duration", duration(status["launchedTime"].as_i64(), status["completedTime"].as_i64(), now));
    let spec = &status["appExitSpec"];
    if let Some(code) = status["appExitCode"].as_i64() {
        let (phrase, kind) = (shown(&spec["phrase"]), shown(&spec["type"]));
        line("Exit", format!("{code} {phrase} ({kind})"));
        line("Reason", shown(&spec["reason"]));
        line("Diagnostics", shown(&status["appExitDiagnostics"]));
        let solutions = spec["solution"].as_array().into_iter().flatten().map(shown).collect::<Vec<_>>();
        line("Solution", solutions.join("; "));
    }
    page.push('\n');
    page.push_str(&tasks(detail));
    page
}

fn tasks(detail: &Value) -> String {
    let mut table = Table::new(&["Role", "Task", "State", "Node", "IP", "Exit", "Phrase"]);
    let text = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    for (role, of_role) in detail["taskRoles"].as_object().into_iter().flatten() {
        for task in of_role["taskStatuses"].as_array().into_iter().flatten() {
            table.row([
                role.clone(),
                text(&task["taskIndex"]),
                text(&task["taskState"]),
                text(&task["containerNodeName"]),
                text(&task["containerIp"]),
                text(&task["containerExitCode"]),
                text(&task["containerExitSpec"]["phrase"]),
            ]);
        }
    }
    table.print()
}

/// # Errors
/// An event cannot be serialized.
pub fn events(events: &[Event], now: Timestamp) -> anyhow::Result<List> {
    let headers = ["Last seen", "Type", "Reason", "Count", "Task", "Message"];
    let mut list = List::of_items(&headers, ("event/", ".uid"));
    (list.spare, list.aging) = (&["Task", "Count", "Type"], &["Last seen"]);
    for event in events {
        let task = if event.task_name.is_empty() { "-" } else { event.task_name.as_str() };
        let cells = [
            since(event.last_timestamp, now),
            event.kind.clone(),
            event.reason.clone(),
            event.count.to_string(),
            task.to_owned(),
            event.message.clone(),
        ];
        list.row(event, cells.to_vec())?;
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
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
        let waits = json!([{"type": "Scheduled", "status": "False", "reason": "NoClusterFits", "message": "no room"}]);
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
}
