//! Lifecycle policies: which events hold, and which action they trigger.
//!
//! The first that applies counts: a Command, then the task's policies, then the job's. A policy with a
//! `timeout` acts when the event has held for that long.
//!
//! A job may have completion rules ([`fleet_pai::completion::Rules`]) in an annotation. They replace its
//! policies: a number of failed or succeeded tasks of a role ends an attempt, and transient failures are
//! retried without being counted; those for want of room only after a wait that doubles. The number of retries of a
//! task, and that of the job's retries for want of room, are in the job's status, beside the objects of its plugins,
//! and are written before the failed pods are deleted.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fleet_pai::{
    completion::{Ended, RoleRule, Rules, judge},
    exit,
    retry::{self, Decision, Retried},
};
use jiff::Timestamp;
use serde_json::Value;

use fleet_agent_ground::Pod;

use super::{phase::Phase, task::Task, view::View};
use crate::plan::{Delayed, JobPlan};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Sync,
    AbortJob,
    RestartJob,
    RestartTask,
    RestartPod,
    RestartPartition,
    TerminateJob,
    CompleteJob,
    ResumeJob,
}

const ACTIONS: [(Action, &str); 8] = [
    (Action::AbortJob, "AbortJob"),
    (Action::RestartJob, "RestartJob"),
    (Action::RestartTask, "RestartTask"),
    (Action::RestartPod, "RestartPod"),
    (Action::RestartPartition, "RestartPartition"),
    (Action::TerminateJob, "TerminateJob"),
    (Action::CompleteJob, "CompleteJob"),
    (Action::ResumeJob, "ResumeJob"),
];

impl Action {
    /// Unknown actions do nothing.
    pub fn read(text: &Value) -> Self {
        let known = ACTIONS.iter().find(|(_, name)| text.as_str() == Some(name));
        known.map_or(Self::Sync, |(action, _)| *action)
    }

    pub fn as_str(self) -> &'static str {
        ACTIONS.iter().find(|(action, _)| *action == self).map_or("SyncJob", |(_, name)| name)
    }
}

/// The due action.
pub(super) struct Due {
    pub action: Action,
    /// The pod of the event.
    pub pod: Option<String>,
    /// A description of the event for users.
    pub why: Option<String>,
    /// A policy's timeout runs until then.
    pub look_again: Option<Duration>,
    /// Events whose timeouts run.
    pub delayed: Vec<Delayed>,
    /// The restart counts against the job's limit.
    pub counts: bool,
    /// It is for want of room.
    pub for_room: bool,
    /// Why the next attempt waits, for users.
    pub waits: Option<String>,
}

impl Due {
    pub fn nothing() -> Self {
        Self {
            action: Action::Sync,
            pod: None,
            why: None,
            look_again: None,
            delayed: Vec::new(),
            counts: true,
            for_room: false,
            waits: None,
        }
    }
}

fn is_of(delayed: &Delayed, event: &Event<'_>) -> bool {
    let task = event.task.map(|task| task.name.as_str());
    (delayed.name, delayed.pod.as_deref(), delayed.task.as_deref())
        == (event.name, event.pod.as_deref(), task)
}

/// An event that holds.
struct Event<'a> {
    name: &'static str,
    exit_code: Option<i64>,
    task: Option<&'a Task<'a>>,
    pod: Option<String>,
    since: Option<Timestamp>,
}

/// The action that a Command or the first event with a policy triggers.
pub(super) fn due(view: &View<'_>) -> Due {
    let mut due = Due::nothing();
    if let Some(command) = view.input.command {
        due.action = Action::read(&command.action.as_str().into());
        due.why = Some(format!("command {}", command.name));
        return due;
    }
    if !matches!(view.phase, Phase::Pending | Phase::Running) {
        return due;
    }
    for event in events(view) {
        let Some((action, timeout)) = policy_for(view, &event) else { continue };
        let since = stands_since(view, &event);
        let stood = view.input.now.as_millisecond().saturating_sub(since.as_millisecond());
        let left = timeout.saturating_sub(Duration::from_millis(u64::try_from(stood).unwrap_or(0)));
        if !left.is_zero() {
            due.look_again = Some(due.look_again.map_or(left, |known: Duration| known.min(left)));
            due.delayed.push(Delayed {
                name: event.name,
                pod: event.pod,
                task: event.task.map(|task| task.name.clone()),
                exit_code: event.exit_code,
                since,
                version: view.version,
            });
            continue;
        }
        if action == Action::Sync {
            continue;
        }
        due.action = action;
        due.why = Some(match (&event.pod, event.exit_code) {
            (Some(pod), Some(code)) => format!("{} of pod {pod}, exit code {code}", event.name),
            (Some(pod), None) => format!("{} of pod {pod}", event.name),
            (None, _) => match event.task {
                Some(task) => format!("{} of task {}", event.name, task.name),
                None => event.name.to_owned(),
            },
        });
        due.pod = event.pod;
        // Other delayed events are void when their run is over.
        due.delayed.clear();
        return due;
    }
    due
}

/// Since when the event holds: from its object, or else since it was first seen. A pod's deletion time may be
/// long in the future.
fn stands_since(view: &View<'_>, event: &Event<'_>) -> Timestamp {
    let now = view.input.now;
    let mut remembered = view.input.delayed.iter();
    // Each pod is pending for the first time; its own time tells since when.
    let known = remembered.find(|known| is_of(known, event) && event.name != "PodPending");
    let known = known.filter(|known| known.version == view.version).map(|known| known.since);
    event.since.into_iter().chain(known).min().unwrap_or(now).min(now)
}

/// Pods that failed or were lost and have not run since: their timeouts go on although no object shows them.
fn remembered<'a>(view: &'a View<'a>, standing: &[Event<'a>]) -> Vec<Event<'a>> {
    let runs = |pod: &str| view.pods.get(pod).is_some_and(|pod| pod.is_running() || pod.is_succeeded());
    let goes_on = |known: &&Delayed| {
        let waits = known.pod.as_deref().is_some_and(|pod| !runs(pod) && view.task_of(pod).is_some());
        (known.name == "JobUpdated" || (matches!(known.name, "PodFailed" | "PodEvicted") && waits))
            && known.version == view.version
            && !standing.iter().any(|event| is_of(known, event))
    };
    let event = |known: &Delayed| Event {
        name: known.name,
        exit_code: known.exit_code,
        task: known.pod.as_deref().and_then(|pod| view.task_of(pod)).map(|(task, _)| task),
        pod: known.pod.clone(),
        since: Some(known.since),
    };
    view.input.delayed.iter().filter(goes_on).map(event).collect()
}

/// The action, and how long its event must have held.
fn policy_for(view: &View<'_>, event: &Event<'_>) -> Option<(Action, Duration)> {
    let of_task = event.task.into_iter().flat_map(|task| task.policies);
    let of_job = view.job.spec["policies"].as_array().into_iter().flatten();
    for policy in of_task.chain(of_job) {
        let named = |name: &Value| name == event.name || name == "*";
        let events = policy["events"].as_array().into_iter().flatten();
        let by_event = named(&policy["event"]) || events.into_iter().any(named);
        let by_code =
            event.exit_code.is_some_and(|code| policy["exitCode"].as_i64() == Some(code) && code != 0);
        if !by_event && !by_code {
            continue;
        }
        let timeout = policy["timeout"].as_str().and_then(timeout);
        // A pod is pending from the start; only a long wait matters.
        if event.name == "PodPending" && timeout.is_none() {
            continue;
        }
        return Some((Action::read(&policy["action"]), timeout.unwrap_or_default()));
    }
    None
}

/// A duration in Go's format (`1h30m`, `90s`), which jiff parses as well.
pub(super) fn timeout(text: &str) -> Option<Duration> {
    let span: jiff::SignedDuration = text.parse().ok()?;
    Duration::try_from(span).ok()
}

/// Events in a fixed order: ends of pods, pods lost, tasks over, the group, the job, pods that wait.
fn events<'a>(view: &'a View<'a>) -> Vec<Event<'a>> {
    let mut events = Vec::new();
    let current = || view.pods.values().filter(|pod| view.is_current(pod));
    let of_pod = |pod: &Arc<Pod>, name, exit_code, since| Event {
        name,
        exit_code,
        task: view.task_of(pod.name()).map(|(task, _)| task),
        pod: Some(pod.name().to_owned()),
        since,
    };
    for pod in current().filter(|pod| pod.is_failed() && !pod.is_deleting()) {
        events.push(of_pod(pod, "PodFailed", pod.first_exit_code(), pod.finished_at()));
    }
    for pod in current().filter(|pod| pod.is_deleting() && !pod.is_ended()) {
        let since = pod.metadata.deletion_timestamp.as_ref().map(|time| time.0);
        // A pod above the replicas of a scaled-down job is not missing.
        if view.task_of(pod.name()).is_some() {
            events.push(of_pod(pod, "PodEvicted", None, since));
        }
    }
    for pod in view.input.lost.iter().filter(|pod| view.is_current(pod) && !pod.is_ended()) {
        if view.task_of(pod.name()).is_some() && !view.pods.contains_key(pod.name()) {
            events.push(of_pod(pod, "PodEvicted", None, None));
        }
    }
    for task in &view.tasks {
        let tally = view.tally(task);
        let of_task = |name, since| Event { name, exit_code: None, task: Some(task), pod: None, since };
        if task.replicas > 0 && tally.succeeded >= task.replicas {
            let ends = current().filter(|pod| task.index_of(view.job, pod.name()).is_some());
            events.push(of_task("TaskCompleted", ends.filter_map(|pod| pod.finished_at()).max()));
        }
        if let Some(limit) = task.max_restarts()
            && tally.restarts >= limit
        {
            events.push(of_task("TaskFailed", None));
        }
    }
    if view.input.pod_group.is_some_and(|group| group.status["phase"] == "Unknown") {
        events.push(Event { name: "Unknown", exit_code: None, task: None, pod: None, since: None });
    }
    if view.input.updated {
        events.push(Event { name: "JobUpdated", exit_code: None, task: None, pod: None, since: None });
    }
    for pod in current().filter(|pod| pod.status.phase == "Pending" && !pod.is_deleting()) {
        let since = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        events.push(of_pod(pod, "PodPending", None, since));
    }
    events.extend(remembered(view, &events));
    events
}

/// Entry of `status.controlledResources` for a retried task: `<retries that count> <uid of the last counted pod>
/// <retries for want of room>`.
const TRIES: &str = "retries-";
/// Entry for the retries of the whole job for want of room. It outlives attempts.
pub(super) const TRIES_FOR_ROOM: &str = "retries.resource";

/// A task whose pod has ended, or is gone or terminating without having ended.
struct End<'p> {
    role: usize,
    index: i64,
    pod: &'p Pod,
    code: i64,
}

/// The consequence of an end.
enum Next {
    /// The task is over for this attempt.
    Over,
    Again {
        counts: bool,
        delay_s: i64,
    },
    /// It was counted before.
    Counted,
}

/// The action that the rules of a job trigger instead of its policies.
pub(super) fn due_by_rules(view: &View<'_>, rules: &Rules) -> Due {
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
    let for_room = tries_for_room(view);
    let retried = Retried {
        total: view.retries.saturating_add(for_room),
        accountable: view.retries,
        resource: for_room,
    };
    due.action = match retry::decide(rules.job_retry, &retried, completed.code) {
        Decision::Retry { counts, delay_s } => {
            let end = ends.iter().find(|end| Some(end.pod.name()) == due.pod.as_deref());
            if let Some((left, delayed)) = end.and_then(|end| wait(view, end, delay_s)) {
                let why = due.why.as_deref().unwrap_or_default();
                let waits = Some(format!("{why}; {}", retry::after(delay_s)));
                return Due { look_again: Some(left), delayed: vec![delayed], waits, ..Due::nothing() };
            }
            due.counts = counts;
            due.for_room = retried.after(completed.code, counts).resource > for_room;
            Action::RestartJob
        }
        Decision::End if completed.code == exit::SUCCEEDED => Action::CompleteJob,
        Decision::End => Action::TerminateJob,
    };
    due
}

/// How long a retry still waits, counted from the end that it follows; and that end, to be remembered, as not every
/// pod says when it ended.
fn wait(view: &View<'_>, end: &End<'_>, delay_s: i64) -> Option<(Duration, Delayed)> {
    let now = view.input.now;
    let known = view.input.delayed.iter().find(|known| {
        known.version == view.version
            && known.pod.as_deref() == Some(end.pod.name())
            && known.name == "PodFailed"
    });
    let since = end.pod.finished_at().or(known.map(|known| known.since)).unwrap_or(now).min(now);
    let left_ms = delay_s.saturating_mul(1000).saturating_sub(now.as_millisecond() - since.as_millisecond());
    let left = Duration::from_millis(u64::try_from(left_ms).unwrap_or(0));
    let delayed = Delayed {
        name: "PodFailed",
        pod: Some(end.pod.name().to_owned()),
        task: view.task_of(end.pod.name()).map(|(task, _)| task.name.clone()),
        exit_code: Some(end.code),
        since,
        version: view.version,
    };
    (!left.is_zero()).then_some((left, delayed))
}

/// How often the whole job was retried for want of room.
pub(super) fn tries_for_room(view: &View<'_>) -> i64 {
    let text = view.job.status["controlledResources"][TRIES_FOR_ROOM].as_str().unwrap_or_default();
    text.parse().unwrap_or(0)
}

/// Ends of tasks of the current run, in the order in which they occurred.
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

/// Whether the task is retried. A deleted pod is created again anyway.
fn next(view: &View<'_>, rules: &Rules, end: &End<'_>) -> Next {
    let (retried, counted) = tries(view, end.pod.name());
    if counted == end.pod.uid() && !counted.is_empty() {
        return Next::Counted;
    }
    let rule: &RoleRule = &rules.roles[end.role];
    match retry::decide(rule.task_retry, &retried, end.code) {
        Decision::Retry { counts, delay_s } => Next::Again { counts, delay_s },
        Decision::End => Next::Over,
    }
}

/// Retries of the pod's task, and the pod that was counted last.
fn tries<'v>(view: &'v View<'_>, pod: &str) -> (Retried, &'v str) {
    let text = view.job.status["controlledResources"][format!("{TRIES}{pod}")].as_str().unwrap_or_default();
    let mut words = text.split(' ');
    let accountable: i64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
    let uid = words.next().unwrap_or_default();
    let resource: i64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
    (Retried { total: accountable.saturating_add(resource), accountable, resource }, uid)
}

/// Deletes ended pods whose tasks are retried, once the retries are written.
pub(super) fn retry_tasks(view: &View<'_>, rules: &Rules, plan: &mut JobPlan, status: &mut Value) {
    let known = view.job.status["controlledResources"].as_object().into_iter().flatten();
    let mut tried: BTreeMap<String, Value> = known
        .filter(|(name, _)| name.starts_with(TRIES) || *name == TRIES_FOR_ROOM)
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    for end in ends(view, rules).into_iter().filter(|end| end.pod.is_ended()) {
        match next(view, rules, &end) {
            Next::Over => continue,
            Next::Counted => {}
            Next::Again { counts, delay_s } => {
                if let Some((left, delayed)) = wait(view, &end, delay_s) {
                    plan.look_again_in(left);
                    plan.delayed.get_or_insert_default().push(delayed);
                    continue;
                }
                let (before, _) = tries(view, end.pod.name());
                let after = before.after(end.code, counts);
                if (after.accountable, after.resource) != (before.accountable, before.resource) {
                    let noted = format!("{} {} {}", after.accountable, end.pod.uid(), after.resource);
                    tried.insert(format!("{TRIES}{}", end.pod.name()), noted.into());
                    plan.status_first = true;
                }
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
