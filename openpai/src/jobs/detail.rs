//! One job with its task roles and tasks.

use std::collections::BTreeMap;

use fleet_pai::{
    completion::{RoleRule, Rules},
    exit,
    state::State,
};
use serde_json::{Map, Value, json};

use super::{
    Run, item,
    item::{entered, milliseconds},
    rows::Known,
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
    let pod = pod.strip_prefix(job)?.strip_prefix('-')?;
    rules.roles.iter().find_map(|rule| {
        let index = pod.strip_prefix(rule.task.as_str())?.strip_prefix('-')?.parse().ok()?;
        (0..rule.instances).contains(&index).then_some((rule, index))
    })
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

/// An attempt of a job, in OpenPAI's form: the job, and its tasks one by one.
pub struct Shown<'r> {
    number: i64,
    /// How Fleet ended it, where it did.
    ended: Option<&'r Value>,
    rules: Option<Rules>,
    known: Known<'r>,
}

impl<'r> Shown<'r> {
    /// A job as its attempt of a number shows it; the last one without a number.
    ///
    /// # Errors
    /// The number of attempts: there is none with that number.
    pub fn of(runs: &'r [Run], number: Option<usize>) -> Result<Self, usize> {
        let all = all(runs);
        let number = number.unwrap_or(all.len().saturating_sub(1));
        let &Attempt { run, ended } = all.get(number).ok_or(all.len())?;
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        Ok(Self { number, ended, rules: run.rules(), known: Known::of(run) })
    }

    /// The job without its tasks.
    pub fn job(&self) -> Value {
        let mut shown = detail_of(self.known.run, self.number, Map::new());
        let Some(ended) = self.ended else { return shown };
        let spec = exit::spec(exit::POD_DELETED);
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
        shown
    }

    /// The rules of its task roles, by name.
    pub fn roles(&self) -> BTreeMap<&str, &RoleRule> {
        let rules = self.rules.iter().flat_map(|rules| &rules.roles);
        rules.map(|rule| (rule.role.as_str(), rule)).collect()
    }

    /// The tasks of a role with their indices, in order.
    pub fn tasks<'s>(&'s self, rule: &'s RoleRule) -> impl Iterator<Item = (i64, Value)> + 's {
        (0..).zip(self.phases(rule)).map(move |(index, phase)| (index, self.row(rule, index, phase)))
    }

    /// One task, with the rule of its role.
    pub fn task(&self, role: &str, index: usize) -> Option<(&RoleRule, Value)> {
        let rule = self.roles().get(role).copied()?;
        let phase = self.phases(rule).get(index).copied()?;
        Some((rule, self.row(rule, i64::try_from(index).ok()?, phase)))
    }

    fn phases(&self, rule: &RoleRule) -> Vec<&'static str> {
        match self.ended {
            Some(_) => vec![""; usize::try_from(rule.instances).unwrap_or(0)],
            None => self.known.phases(rule),
        }
    }

    fn row(&self, rule: &RoleRule, index: i64, phase: &str) -> Value {
        if self.ended.is_none() {
            return self.known.row(rule, index, phase);
        }
        let spec = exit::spec(exit::POD_DELETED);
        json!({"taskIndex": index, "taskState": State::Failed, "containerExitCode": spec.code,
            "containerExitSpec": spec, "retries": 0})
    }
}

/// A task of a role in OpenPAI's form with its attempts, oldest first. Of those before the last one the hub knows their
/// number, and the code of preemptions.
pub fn task_attempts(task: &Value, role: &str) -> Value {
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
    whole
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
