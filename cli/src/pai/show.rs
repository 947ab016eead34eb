//! Prints jobs.

use fleet_cli_ground::{age, listing::List, output};
use fleet_openpai::jobs::{Event, Item, Run};
use jiff::{Timestamp, tz::TimeZone};
use serde_json::Value;

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
    let for_room = match by["resource"].as_i64().unwrap_or(0) {
        0 => String::new(),
        tries => format!(", {tries} for want of room"),
    };
    line(
        "Retries",
        format!("{} ({} user, {} platform{for_room})", shown(&status["retries"]), by["user"], by["platform"]),
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
mod tests;
