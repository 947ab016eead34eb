//! The tasks of a job in OpenPAI's form. Those of the largest job take hundreds of megabytes at once, so that they can
//! be made one by one, too.

use std::collections::BTreeMap;

use fleet_pai::{
    completion::RoleRule,
    exit, names,
    state::{State, SubState, shown},
};
use serde_json::{Map, Value, json};

use super::{Run, item::milliseconds, text};

/// Longest name of an affinity group that is shown, in characters: each task of its role has it.
pub(super) const GROUP_NAME_MAX: usize = 512;

/// What is known of all tasks of a run, read once and not for each of them.
pub(super) struct Known<'r> {
    pub run: &'r Run,
    cells: BTreeMap<&'r str, (&'r str, Vec<i64>)>,
    lost: BTreeMap<&'r str, (&'r str, Option<i64>)>,
    /// Names of affinity groups, by task.
    groups: BTreeMap<&'r str, String>,
}

impl<'r> Known<'r> {
    pub fn of(run: &'r Run) -> Self {
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

    /// The phase of each task of a role, by its index; empty without a pod. Only the number of tasks in each phase is
    /// known. Where only some tasks have cells, these are the ones that run.
    pub fn phases(&self, rule: &RoleRule) -> Vec<&'static str> {
        let counts = &self.run.object["status"]["taskStatusCount"][&rule.task]["phase"];
        let mut left = rule.instances;
        let mut counted = Vec::new();
        for phase in ["Succeeded", "Failed", "Running", "Pending"] {
            let count = counts[phase].as_i64().unwrap_or(0).clamp(0, left);
            left -= count;
            counted.extend(std::iter::repeat_n(phase, usize::try_from(count).unwrap_or(0)));
        }
        counted.extend(std::iter::repeat_n("", usize::try_from(left).unwrap_or(0)));
        let has = |index: &usize| self.cells.contains_key(format!("{}-{index}", rule.task).as_str());
        let (with, without): (Vec<usize>, Vec<usize>) = (0..counted.len()).partition(has);
        if !with.is_empty() && !without.is_empty() {
            counted.sort_by_key(|phase| !["Running", "Pending"].contains(phase));
        }
        let mut phases = vec![""; counted.len()];
        for (index, phase) in with.into_iter().chain(without).zip(counted) {
            if let Some(place) = phases.get_mut(index) {
                *place = phase;
            }
        }
        phases
    }

    /// A task of which only its phase is known.
    pub fn row(&self, rule: &RoleRule, index: i64, phase: &str) -> Value {
        bare(self, rule, index, state_of(self.run, phase))
    }
}

/// Tasks of which only counts are known: the number of tasks of each role in each phase, without their indices.
pub fn tasks_of_counts(run: &Run) -> Map<String, Value> {
    let Some(rules) = run.rules() else { return Map::new() };
    let known = Known::of(run);
    let roles = rules.roles.iter().map(|rule| {
        let rows = (0..).zip(known.phases(rule)).map(|(index, phase)| known.row(rule, index, phase));
        (rule.role.clone(), of_role(rule, rows.collect()))
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
pub(super) fn state_of(run: &Run, phase: &str) -> State {
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
