//! One job with its task roles and tasks.

use std::collections::BTreeMap;

use fleet_pai::{
    completion::{RoleRule, Rules},
    exit, names,
    state::{State, SubState, shown},
};
use serde_json::{Map, Value, json};

use super::{
    Run, item,
    item::{entered, milliseconds},
    text,
};

/// A job in OpenPAI's form. `tasks` is what is known of its tasks, by role.
pub fn detail(run: &Run, tasks: Map<String, Value>) -> Value {
    detail_of(run, run.number - 1 + run.ended_by_fleet().len() as i64, tasks)
}

/// The same with the number of its attempt among those of all runs, from 0.
fn detail_of(run: &Run, attempt: i64, tasks: Map<String, Value>) -> Value {
    let item = item(run);
    let state = &run.object["status"]["state"];
    let code = item.app_exit_code;
    let trigger = trigger(run);
    json!({
        "debugId": item.debug_id,
        "name": item.name,
        "tags": item.tags,
        "jobStatus": {
            "username": item.username,
            "state": item.state,
            "subState": item.sub_state,
            "executionType": item.execution_type,
            "retries": item.retries,
            "retryDetails": item.retry_details,
            "retryDelayTime": item.retry_delay_time,
            "retryHistory": retry_history(run),
            "submissionTime": item.submission_time,
            "createdTime": item.created_time,
            "launchedTime": item.launched_time,
            "completedTime": item.completed_time,
            "attemptId": attempt,
            "attemptState": item.state,
            "appId": text(&run.object["metadata"]["uid"], ""),
            "appProgress": i64::from(item.state.is_final()),
            "appTrackingUrl": "",
            "appCreatedTime": item.created_time,
            "appLaunchedTime": item.launched_time,
            "appCompletedTime": item.completed_time,
            "appExitCode": code,
            "appExitSpec": code.map(exit::spec),
            "appExitDiagnostics": code.map(|_| text(&state["message"], "")),
            "appExitTriggerMessage": trigger.as_ref().map(|_| text(&state["message"], "")),
            "appExitTriggerTaskRoleName": trigger.as_ref().map(|(role, _)| role),
            "appExitTriggerTaskIndex": trigger.as_ref().map(|(_, index)| index),
            "appExitType": code.map(|code| exit::spec(code).kind),
            "virtualCluster": item.virtual_cluster,
            "jobPriority": item.job_priority,
            "cluster": item.cluster,
            "waitingReason": run.waiting().filter(|_| item.state == State::Waiting).map(|(reason, message)| {
                format!("{reason}: {message}")
            }),
        },
        "taskRoles": tasks,
    })
}

/// Runs that Fleet ended before the job did, as OpenPAI words the end of such attempts. Not in OpenPAI.
fn retry_history(run: &Run) -> Vec<Value> {
    let ended = run.ended_by_fleet().iter();
    ended
        .map(|attempt| {
            let spec = exit::spec(exit::POD_DELETED);
            json!({
                "launchTime": milliseconds(&attempt["startedAt"]),
                "completionTime": milliseconds(&attempt["endedAt"]),
                "exitCode": spec.code,
                "exitPhrase": spec.phrase,
                "exitType": spec.kind,
                "exitDiagnostics": end_message(attempt),
            })
        })
        .collect()
}

/// The task that the job's state names as the one that ended it.
fn trigger(run: &Run) -> Option<(String, i64)> {
    let message = text(&run.object["status"]["state"]["message"], "");
    let pod = message.split(" of pod ").nth(1)?.split([',', ' ', ':']).next()?;
    let rules = run.rules()?;
    place_of(run.name(), &rules, pod).map(|(rule, index)| (rule.role.clone(), index))
}

/// Role and index of a pod.
fn place_of<'r>(job: &str, rules: &'r Rules, pod: &str) -> Option<(&'r RoleRule, i64)> {
    place_in(rules, pod.strip_prefix(job)?.strip_prefix('-')?)
}

/// Role and index of a pod by its name without that of the job, such as `train-0`.
pub(super) fn place_in<'r>(rules: &'r Rules, pod: &str) -> Option<(&'r RoleRule, i64)> {
    rules.roles.iter().find_map(|rule| {
        let index = pod.strip_prefix(rule.task.as_str())?.strip_prefix('-')?.parse().ok()?;
        (0..rule.instances).contains(&index).then_some((rule, index))
    })
}

/// Longest name of an affinity group that is shown, in characters: each task of its role has it.
const GROUP_NAME_MAX: usize = 512;

/// What is known of all tasks of a run, read once and not for each of them.
struct Known<'r> {
    run: &'r Run,
    cells: BTreeMap<&'r str, (&'r str, Vec<i64>)>,
    lost: BTreeMap<&'r str, (&'r str, Option<i64>)>,
    /// Names of affinity groups, by task.
    groups: BTreeMap<&'r str, String>,
}

impl<'r> Known<'r> {
    fn of(run: &'r Run) -> Self {
        let mut groups = BTreeMap::new();
        for task in run.object["spec"]["tasks"].as_array().into_iter().flatten() {
            let spec = text(&task["template"]["metadata"]["annotations"][names::HIVED_ANNOTATION], "");
            let spec: Value = serde_json::from_str(spec).unwrap_or_default();
            let group = spec["affinityGroup"]["name"].as_str().or(spec["podRootGroup"]["name"].as_str());
            if let (Some(task), Some(group)) = (task["name"].as_str(), group) {
                let shown = match group.char_indices().nth(GROUP_NAME_MAX) {
                    Some((end, _)) => format!("{}...", &group[..end]),
                    None => group.to_owned(),
                };
                groups.entry(task).or_insert(shown);
            }
        }
        Self { run, cells: run.cells(), lost: run.lazily_preempted(), groups }
    }
}

/// Tasks of which only counts are known: the number of tasks of each role in each phase, without their
/// indices. Where only some tasks have cells, these are the ones that run.
pub fn tasks_of_counts(run: &Run) -> Map<String, Value> {
    let Some(rules) = run.rules() else { return Map::new() };
    let known = Known::of(run);
    let roles = rules.roles.iter().map(|rule| {
        let phases = &run.object["status"]["taskStatusCount"][&rule.task]["phase"];
        let mut left = rule.instances;
        let mut counted = Vec::new();
        for phase in ["Succeeded", "Failed", "Running", "Pending"] {
            let count = phases[phase].as_i64().unwrap_or(0).clamp(0, left);
            left -= count;
            counted.extend(std::iter::repeat_n(phase, usize::try_from(count).unwrap_or(0)));
        }
        counted.extend(std::iter::repeat_n("", usize::try_from(left).unwrap_or(0)));
        let has = |index: &i64| known.cells.contains_key(format!("{}-{index}", rule.task).as_str());
        let (with, without): (Vec<i64>, Vec<i64>) = (0..rule.instances).partition(has);
        if !with.is_empty() && !without.is_empty() {
            counted.sort_by_key(|phase| !["Running", "Pending"].contains(phase));
        }
        let mut statuses: Vec<(i64, Value)> = [with, without]
            .concat()
            .into_iter()
            .zip(counted)
            .map(|(index, phase)| (index, bare(&known, rule, index, state_of(run, phase))))
            .collect();
        statuses.sort_by_key(|(index, _)| *index);
        (rule.role.clone(), of_role(rule, statuses.into_iter().map(|(_, status)| status).collect()))
    });
    roles.collect()
}

/// A task without a pod that could be looked at.
fn bare(known: &Known<'_>, rule: &RoleRule, index: i64, state: State) -> Value {
    let run = known.run;
    let code = match state {
        State::Succeeded => Some(exit::SUCCEEDED),
        State::Stopped if run.exit_code() == Some(exit::STOP_REQUESTED) => Some(exit::STOP_REQUESTED),
        State::Stopped => Some(exit::ATTEMPT_COMPLETION),
        _ => None,
    };
    let pod = format!("{}-{index}", rule.task);
    let place = known.cells.get(pod.as_str()).filter(|_| !run.is_between_runs());
    let devices = place.map(|(_, devices)| devices.iter().map(i64::to_string).collect::<Vec<_>>().join(","));
    let (accountable, resource) = run.task_retries(&pod);
    json!({
        "taskIndex": index,
        "taskState": state,
        "containerNodeName": place.map(|(node, _)| node),
        "containerGpus": devices,
        "containerExitCode": code,
        "containerExitSpec": code.map(exit::spec),
        "retries": accountable + resource,
        "accountableRetries": accountable,
        "hived": hived(known, rule, index),
    })
}

/// The group of a task, and whether it has lost its promised cells and runs on.
fn hived(known: &Known<'_>, rule: &RoleRule, index: i64) -> Value {
    let run = known.run;
    let own = || format!("{}/{}-{}-{index}", run.namespace(), run.name(), rule.task);
    let group = known.groups.get(rule.task.as_str()).cloned().unwrap_or_else(own);
    let lost = known.lost.get(format!("{}-{index}", rule.task).as_str());
    json!({
        "affinityGroupName": group,
        "lazyPreempted": lost.is_some(),
        "lazyPreemptionStatus": lost.map(|(preemptor, at_ms)| json!({
            "preemptor": preemptor,
            "preemptionTime": at_ms.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok()).map(|at| at.to_string()),
        })),
    })
}

fn of_role(rule: &RoleRule, statuses: Vec<Value>) -> Value {
    json!({"taskRoleStatus": {"name": rule.role}, "taskStatuses": statuses})
}

/// A task whose pod is in that phase; without a pod it waits, or it ended with its job.
fn state_of(run: &Run, phase: &str) -> State {
    let job = run.state();
    match phase {
        _ if run.is_between_runs() && !job.is_final() => State::Waiting,
        _ if run.is_between_runs() => State::Stopped,
        "Succeeded" => State::Succeeded,
        "Failed" => State::Failed,
        "Running" if job == State::Stopping => State::Stopping,
        "Running" if !job.is_final() => State::Running,
        _ if job.is_final() => State::Stopped,
        _ => State::Waiting,
    }
}

/// Tasks as the member's pods show them.
pub fn tasks_of_pods(run: &Run, pods: &[Value]) -> Map<String, Value> {
    let Some(rules) = run.rules() else { return Map::new() };
    let by_name: BTreeMap<&str, &Value> =
        pods.iter().map(|pod| (text(&pod["metadata"]["name"], ""), pod)).collect();
    let find = |rule: &RoleRule, index: i64| {
        by_name.get(format!("{}-{}-{index}", run.name(), rule.task).as_str()).copied()
    };
    let known = Known::of(run);
    let roles = rules.roles.iter().map(|rule| {
        let statuses = (0..rule.instances).map(|index| match find(rule, index) {
            Some(pod) => task(&known, rule, index, pod),
            None => bare(&known, rule, index, state_of(run, "")),
        });
        (rule.role.clone(), of_role(rule, statuses.collect()))
    });
    roles.collect()
}

fn task(known: &Known<'_>, rule: &RoleRule, index: i64, pod: &Value) -> Value {
    let (run, meta, status) = (known.run, &pod["metadata"], &pod["status"]);
    let phase = text(&status["phase"], "Pending");
    let code = pod_code(status, phase);
    let stopping = run.execution() == fleet_pai::state::ExecutionType::Stop;
    let sub_state = match phase {
        "Succeeded" | "Failed" => SubState::Completed,
        _ if !meta["deletionTimestamp"].is_null() => SubState::AttemptDeleting,
        "Running" => SubState::AttemptRunning,
        _ => SubState::AttemptPreparing,
    };
    let shown_code = code.or(stopping.then_some(exit::STOP_REQUESTED));
    let container = &status["containerStatuses"][0];
    let ended = &container["state"]["terminated"];
    let (accountable, resource) = run.task_retries(&format!("{}-{index}", rule.task));
    json!({
        "taskIndex": index,
        "taskState": shown(sub_state, shown_code, false),
        "containerId": meta["uid"],
        "containerIp": status["podIP"],
        "containerNodeName": pod["spec"]["nodeName"],
        "containerPorts": ports(pod),
        "containerGpus": meta["annotations"]["hivedscheduler.microsoft.com/pod-leaf-cell-isolation"],
        "containerLog": null,
        "containerExitCode": code,
        "containerExitSpec": code.map(exit::spec),
        "containerExitDiagnostics": code.map(|_| text(&ended["message"], text(&ended["reason"], ""))),
        "retries": accountable + resource,
        "accountableRetries": accountable,
        "createdTime": milliseconds(&meta["creationTimestamp"]),
        "launchedTime": milliseconds(&status["startTime"]),
        "completedTime": milliseconds(&ended["finishedAt"]),
        "hived": hived(known, rule, index),
    })
}

/// Environment variables of ports, by label.
fn ports(pod: &Value) -> Map<String, Value> {
    let env = pod["spec"]["containers"][0]["env"].as_array().into_iter().flatten();
    env.filter_map(|entry| {
        let label =
            entry["name"].as_str()?.strip_prefix("PAI_CONTAINER_HOST_")?.strip_suffix("_PORT_LIST")?;
        Some((label.to_owned(), entry["value"].clone()))
    })
    .collect()
}

fn pod_code(status: &Value, phase: &str) -> Option<i64> {
    match phase {
        "Succeeded" => Some(exit::SUCCEEDED),
        "Failed" => {
            let containers = status["initContainerStatuses"].as_array().into_iter().flatten();
            let containers = containers.chain(status["containerStatuses"].as_array().into_iter().flatten());
            let mut ended = containers.map(|c| &c["state"]["terminated"]).filter(|t| t.is_object());
            let failed = ended.find(|t| t["exitCode"].as_i64().unwrap_or(0) != 0);
            let failed = failed.map(|t| (text(&t["reason"], ""), t["exitCode"].as_i64().unwrap_or(0)));
            Some(exit::of_pod(text(&status["reason"], ""), failed))
        }
        _ => None,
    }
}

/// Most earlier attempts of a task that are listed.
const LISTED_ATTEMPTS: i64 = 1_000;

/// One attempt of a job: a run, or a part of it that Fleet ended and that another one followed.
struct Attempt<'r> {
    run: &'r Run,
    ended: Option<&'r Value>,
}

/// All attempts of a job, oldest first. Their positions are the numbers by which clients ask for them.
fn all(runs: &[Run]) -> Vec<Attempt<'_>> {
    let mut runs: Vec<&Run> = runs.iter().collect();
    runs.sort_by_key(|run| run.number);
    let of_run = |run| {
        let ended = Run::ended_by_fleet(run).iter().map(move |ended| Attempt { run, ended: Some(ended) });
        ended.chain(std::iter::once(Attempt { run, ended: None }))
    };
    runs.into_iter().flat_map(of_run).collect()
}

/// How many attempts a job has. That of its present state is the last one.
pub fn number_of_attempts(runs: &[Run]) -> usize {
    all(runs).len()
}

/// A job as its attempt of a number shows it; the last one without a number.
///
/// # Errors
/// The number of attempts: there is none with that number.
pub fn of_attempt(runs: &[Run], number: Option<usize>) -> Result<Value, usize> {
    let all = all(runs);
    let number = number.unwrap_or(all.len().saturating_sub(1));
    let Attempt { run, ended } = all.get(number).ok_or(all.len())?;
    let attempt = i64::try_from(number).unwrap_or(i64::MAX);
    let Some(ended) = ended else { return Ok(detail_of(run, attempt, tasks_of_counts(run))) };
    let spec = exit::spec(exit::POD_DELETED);
    let task = |index| {
        json!({"taskIndex": index, "taskState": State::Failed, "containerExitCode": spec.code,
        "containerExitSpec": spec, "retries": 0})
    };
    let rules = run.rules();
    let roles = rules.iter().flat_map(|rules| &rules.roles);
    let tasks = roles.map(|rule| (rule.role.clone(), of_role(rule, (0..rule.instances).map(task).collect())));
    let mut shown = detail_of(run, attempt, tasks.collect());
    let status = &mut shown["jobStatus"];
    status["attemptState"] = json!(State::Failed);
    status["appLaunchedTime"] = json!(milliseconds(&ended["startedAt"]));
    status["appCompletedTime"] = json!(milliseconds(&ended["endedAt"]));
    status["appExitCode"] = json!(spec.code);
    status["appExitSpec"] = json!(spec);
    status["appExitType"] = json!(spec.kind);
    status["appExitDiagnostics"] = json!(end_message(ended));
    for absent in ["appExitTriggerMessage", "appExitTriggerTaskRoleName", "appExitTriggerTaskIndex"] {
        status[absent] = Value::Null;
    }
    Ok(shown)
}

/// A task of a job in OpenPAI's form with its attempts, oldest first. Of those before the last one the hub knows their
/// number, and the code of preemptions. `None` without such a task.
pub fn task_attempts(shown: &Value, role: &str, index: usize) -> Option<Value> {
    let task = shown["taskRoles"][role]["taskStatuses"].get(index)?;
    let earlier = task["retries"].as_i64().unwrap_or(0).max(0);
    let code = task["lastRetriedExitCode"].as_i64();
    let ended = |number: i64| {
        let code = code.filter(|_| number + 1 == earlier);
        json!({"attemptId": number, "attemptState": State::Failed, "containerExitCode": code,
            "containerExitSpec": code.map(exit::spec)})
    };
    let mut last = task.clone();
    last["attemptId"] = json!(earlier);
    last["attemptState"] = task["taskState"].clone();
    let mut whole = task.clone();
    whole["taskRoleName"] = json!(role);
    whole["attempts"] = (0..earlier.min(LISTED_ATTEMPTS)).map(ended).chain([last]).collect();
    Some(whole)
}

/// Start and end of each attempt, newest first.
pub fn attempts(runs: &[Run]) -> Vec<Value> {
    let all = all(runs);
    let latest = all.len().saturating_sub(1);
    let shown = all.iter().enumerate().map(|(number, attempt)| {
        let mut shown = self::attempt(attempt.run);
        shown["attemptIndex"] = json!(number);
        shown["isLatest"] = json!(number == latest);
        if let Some(ended) = attempt.ended {
            let spec = exit::spec(exit::POD_DELETED);
            shown["state"] = json!(State::Failed);
            shown["launchTime"] = json!(milliseconds(&ended["startedAt"]));
            shown["completionTime"] = json!(milliseconds(&ended["endedAt"]));
            shown["exitCode"] = json!(spec.code);
            shown["exitPhrase"] = json!(spec.phrase);
            shown["exitType"] = json!(spec.kind);
            shown["exitDiagnostics"] = json!(end_message(ended));
        }
        shown["retryHistory"] = match attempt.ended {
            Some(_) => json!([]),
            None => json!(retry_history(attempt.run)),
        };
        shown
    });
    let mut shown: Vec<Value> = shown.collect();
    shown.reverse();
    shown
}

/// Why Fleet ended an attempt.
fn end_message(ended: &Value) -> String {
    format!("{}: {}", text(&ended["reason"], ""), text(&ended["message"], ""))
}

/// Start and end of a run, without its history.
fn attempt(run: &Run) -> Value {
    let item = item(run);
    json!({
        "jobName": item.name,
        "frameworkName": run.id,
        "uid": run.uid(),
        "userName": item.username,
        "state": item.state,
        "submissionTime": item.submission_time,
        "launchTime": entered(&run.object["status"], "Running"),
        "completionTime": item.completed_time,
        "exitCode": item.app_exit_code,
        "exitPhrase": item.app_exit_code.map(|code| exit::spec(code).phrase),
        "exitType": item.app_exit_code.map(|code| exit::spec(code).kind),
        "totalGpuNumber": item.total_gpu_number,
        "totalTaskNumber": item.total_task_number,
        "totalTaskRoleNumber": item.total_task_role_number,
    })
}

#[cfg(test)]
mod tests;
