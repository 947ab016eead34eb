//! Completion and retry beyond Volcano's policies: so many failed or succeeded tasks of a role end an attempt, and what
//! is transient is tried again without being counted.
//!
//! The rules stand in an annotation of the job ([`fleet_pai::completion::Rules`]) and then take the place of its
//! policies. How often a task was tried again stands in the job's status, beside what its plugins made, written
//! before the failed pod goes.

use std::collections::BTreeMap;

use fleet_pai::{
    completion::{Ended, RoleRule, Rules, judge},
    exit, names,
    retry::{self, Decision, Retried},
};
use serde_json::Value;

use super::{
    Object, Phase, Plan, Pod, View,
    policy::{Action, Due},
};

/// Entry of `status.controlledResources` for a task that was tried again: `<tries> <uid of the last pod counted>`.
const TRIES: &str = "retries-";

/// A task whose pod has ended, or is gone or going without having ended.
struct End<'p> {
    role: usize,
    index: i64,
    pod: &'p Pod,
    code: i64,
}

/// What an end leads to.
enum Next {
    /// It is over for its attempt.
    Over,
    Again {
        counts: bool,
    },
    /// It was counted when it was seen last.
    Counted,
}

/// The rules of a job that has any.
pub(super) fn rules(job: &Object) -> Option<Rules> {
    serde_json::from_str(job.annotation(names::RULES_ANNOTATION)?).ok()
}

/// The action that the rules call for.
pub(super) fn due(view: &View<'_>, rules: &Rules) -> Due {
    let mut due = Due::nothing();
    if !matches!(view.phase, Phase::Pending | Phase::Running) {
        return due;
    }
    let ends = ends(view, rules);
    let mut over: Vec<Vec<Ended>> = vec![Vec::new(); rules.roles.len()];
    for end in ends.iter().filter(|end| matches!(next(view, rules, end), Next::Over)) {
        over[end.role].push(Ended { index: end.index, code: end.code });
    }
    let Some(completed) = judge(&rules.roles, &over) else { return due };
    let of_trigger = |end: &&End<'_>| {
        completed
            .trigger
            .as_ref()
            .is_some_and(|(role, index)| rules.roles[end.role].role == *role && end.index == *index)
    };
    let pod = ends.iter().find(of_trigger).map(|end| end.pod.name().to_owned());
    let what = if completed.code == exit::SUCCEEDED { "PodSucceeded" } else { "PodFailed" };
    let which = pod.as_ref().map_or_else(String::new, |pod| format!("{what} of pod {pod}, "));
    due.why = Some(format!("{which}exit code {}: {}", completed.code, completed.message));
    due.pod = pod;
    let retried = Retried { total: view.retries, accountable: view.retries, resource: 0 };
    due.action = match retry::decide(rules.job_retry, &retried, completed.code) {
        Decision::Retry { counts, .. } => {
            due.counts = counts;
            Action::RestartJob
        }
        Decision::End if completed.code == exit::SUCCEEDED => Action::CompleteJob,
        Decision::End => Action::TerminateJob,
    };
    due
}

/// Ends of tasks of the run that goes on now, in the order in which they came.
fn ends<'v>(view: &'v View<'_>, rules: &Rules) -> Vec<End<'v>> {
    let there = view.pods.values().filter(|pod| pod.is_ended() || pod.is_deleting());
    let gone = view.input.lost.iter().filter(|pod| !view.pods.contains_key(pod.name()) && !pod.is_ended());
    let mut ends: Vec<End<'v>> = there
        .chain(gone)
        .filter(|pod| view.is_current(pod))
        .filter_map(|pod| {
            let (task, index) = view.task_of(pod.name())?;
            let role = rules.roles.iter().position(|rule| rule.task == task.name)?;
            Some(End { role, index, pod, code: code(pod) })
        })
        .collect();
    ends.sort_by_key(|end| (end.pod.finished_at(), end.role, end.index));
    ends
}

fn code(pod: &Pod) -> i64 {
    if pod.is_succeeded() {
        return exit::SUCCEEDED;
    }
    if !pod.is_failed() {
        return exit::POD_DELETED;
    }
    exit::of_pod(&pod.status.reason, pod.failed_container())
}

/// Whether its pod's task is tried again. One that was deleted is made anew by itself.
fn next(view: &View<'_>, rules: &Rules, end: &End<'_>) -> Next {
    let (tries, counted) = tries(view, end.pod.name());
    if counted == end.pod.uid() && !counted.is_empty() {
        return Next::Counted;
    }
    let rule: &RoleRule = &rules.roles[end.role];
    let retried = Retried { total: tries, accountable: tries, resource: 0 };
    match retry::decide(rule.task_retry, &retried, end.code) {
        Decision::Retry { counts, .. } => Next::Again { counts },
        Decision::End => Next::Over,
    }
}

/// How often the task of that pod was tried again, and the pod that was counted last.
fn tries<'v>(view: &'v View<'_>, pod: &str) -> (i64, &'v str) {
    let text = view.job.status["controlledResources"][format!("{TRIES}{pod}")].as_str().unwrap_or_default();
    let (tries, uid) = text.split_once(' ').unwrap_or_default();
    (tries.parse().unwrap_or(0), uid)
}

/// Deletes ended pods whose tasks are tried again, once it is written that they are.
pub(super) fn retry_tasks(view: &View<'_>, rules: &Rules, plan: &mut Plan, status: &mut Value) {
    let known = view.job.status["controlledResources"].as_object().into_iter().flatten();
    let mut tried: BTreeMap<String, Value> = known
        .filter(|(name, _)| name.starts_with(TRIES))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    for end in ends(view, rules).into_iter().filter(|end| end.pod.is_ended()) {
        match next(view, rules, &end) {
            Next::Over => continue,
            Next::Counted | Next::Again { counts: false } => {}
            Next::Again { counts: true } => {
                let (tries, _) = tries(view, end.pod.name());
                let noted = format!("{} {}", tries + 1, end.pod.uid());
                tried.insert(format!("{TRIES}{}", end.pod.name()), noted.into());
                plan.status_first = true;
            }
        }
        if !end.pod.is_deleting() {
            plan.delete.push(end.pod.name().to_owned());
        }
    }
    for (name, value) in tried {
        status["controlledResources"][name] = value;
    }
}
