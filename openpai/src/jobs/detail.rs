//! One job with its task roles and tasks.

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
            "attemptId": item.retries,
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
                "exitDiagnostics": format!("{}: {}", text(&attempt["reason"], ""), text(&attempt["message"], "")),
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
    let rest = pod.strip_prefix(job)?.strip_prefix('-')?;
    rules.roles.iter().find_map(|rule| {
        let index = rest.strip_prefix(rule.task.as_str())?.strip_prefix('-')?.parse().ok()?;
        (0..rule.instances).contains(&index).then_some((rule, index))
    })
}

/// Tasks of which only counts are known: the number of tasks of each role in each phase, without their
/// indices.
pub fn tasks_of_counts(run: &Run) -> Map<String, Value> {
    let Some(rules) = run.rules() else { return Map::new() };
    let roles = rules.roles.iter().map(|rule| {
        let phases = &run.object["status"]["taskStatusCount"][&rule.task]["phase"];
        let mut left = rule.instances;
        let mut tasks = Vec::new();
        for phase in ["Succeeded", "Failed", "Running", "Pending"] {
            let count = phases[phase].as_i64().unwrap_or(0).clamp(0, left);
            left -= count;
            tasks.extend((0..count).map(|_| state_of(run, phase)));
        }
        tasks.extend((0..left).map(|_| state_of(run, "")));
        let statuses: Vec<Value> = tasks
            .into_iter()
            .enumerate()
            .map(|(index, state)| json!({"taskIndex": index, "taskState": state, "containerExitCode": null}))
            .collect();
        (rule.role.clone(), of_role(rule, statuses))
    });
    roles.collect()
}

fn of_role(rule: &RoleRule, statuses: Vec<Value>) -> Value {
    json!({"taskRoleStatus": {"name": rule.role}, "taskStatuses": statuses})
}

/// A task whose pod is in that phase; without a pod it waits, or it ended with its job.
fn state_of(run: &Run, phase: &str) -> State {
    let job = run.state();
    match phase {
        "Succeeded" => State::Succeeded,
        "Failed" => State::Failed,
        "Running" if job == State::Stopping => State::Stopping,
        "Running" => State::Running,
        _ if job.is_final() => State::Stopped,
        _ => State::Waiting,
    }
}

/// Tasks as the member's pods show them.
pub fn tasks_of_pods(run: &Run, pods: &[Value]) -> Map<String, Value> {
    let Some(rules) = run.rules() else { return Map::new() };
    let find = |rule: &RoleRule, index: i64| {
        let name = format!("{}-{}-{index}", run.name(), rule.task);
        pods.iter().find(|pod| pod["metadata"]["name"] == name.as_str())
    };
    let roles = rules.roles.iter().map(|rule| {
        let statuses = (0..rule.instances).map(|index| match find(rule, index) {
            Some(pod) => task(run, index, pod),
            None => json!({"taskIndex": index, "taskState": state_of(run, ""), "containerExitCode": null}),
        });
        (rule.role.clone(), of_role(rule, statuses.collect()))
    });
    roles.collect()
}

fn task(run: &Run, index: i64, pod: &Value) -> Value {
    let (meta, status) = (&pod["metadata"], &pod["status"]);
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
    let hived: Value =
        serde_json::from_str(text(&meta["annotations"][names::HIVED_ANNOTATION], "")).unwrap_or_default();
    let group = hived["affinityGroup"]["name"].as_str().or(hived["podRootGroup"]["name"].as_str());
    let own_group = format!("{}/{}", run.namespace(), text(&meta["name"], ""));
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
        "retries": text(&meta["annotations"]["volcano.sh/job-retry-count"], "0").parse().unwrap_or(0),
        "createdTime": milliseconds(&meta["creationTimestamp"]),
        "launchedTime": milliseconds(&status["startTime"]),
        "completedTime": milliseconds(&ended["finishedAt"]),
        "hived": {
            "affinityGroupName": group.unwrap_or(&own_group),
            "lazyPreempted": null,
            "lazyPreemptionStatus": null,
        },
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

/// Start and end of a run, for the history of a job.
pub fn attempt(run: &Run) -> Value {
    let item = item(run);
    json!({
        "jobName": item.name,
        "frameworkName": run.id,
        "uid": run.uid(),
        "userName": item.username,
        "state": item.state,
        "attemptIndex": run.number - 1,
        "isLatest": false,
        "submissionTime": item.submission_time,
        "launchTime": entered(&run.object["status"], "Running"),
        "completionTime": item.completed_time,
        "exitCode": item.app_exit_code,
        "exitPhrase": item.app_exit_code.map(|code| exit::spec(code).phrase),
        "exitType": item.app_exit_code.map(|code| exit::spec(code).kind),
        "retryHistory": retry_history(run),
        "totalGpuNumber": item.total_gpu_number,
        "totalTaskNumber": item.total_task_number,
        "totalTaskRoleNumber": item.total_task_role_number,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preempted(phase: &str) -> Run {
        let object = json!({"metadata": {"name": "alice-j", "namespace": "ns",
                "annotations": {names::ID_ANNOTATION: "alice~j"}},
            "status": {"state": {"phase": phase}}});
        let attempt = json!({"cluster": "east", "epoch": 1, "reason": "Preempted", "message": "by bob-j",
            "startedAt": "1970-01-01T00:00:01Z", "endedAt": "1970-01-01T00:00:03Z"});
        let binding = json!({"spec": {}, "status": {"attempts": [attempt]}});
        Run::of(object, Some(binding)).expect("a job")
    }

    #[test]
    fn a_preempted_run_ends_as_openpai_words_it() {
        let run = preempted("Pending");
        let status = detail(&run, Map::new())["jobStatus"].clone();
        assert_eq!(status["retryDetails"], json!({"user": 0, "platform": 1, "resource": 0}));
        let expected = json!([{"launchTime": 1000, "completionTime": 3000, "exitCode": -101,
            "exitPhrase": "PodExternalDeleted", "exitType": "PLATFORM_FAILURE", "exitDiagnostics": "Preempted: by bob-j"}]);
        assert_eq!(status["retryHistory"], expected);
        assert_eq!(attempt(&run)["retryHistory"], expected);
        // The end of the last run is no retry.
        let over = detail(&preempted("Completed"), Map::new())["jobStatus"].clone();
        assert_eq!((&over["retryHistory"], &over["retryDetails"]["platform"]), (&json!([]), &json!(0)));
    }
}
