//! Lifecycle policies: which events stand, and which action they call for.
//!
//! The first that applies counts: a Command, then the task's policies, then the job's. A policy with a
//! `timeout` acts when the event has stood for that long.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::Value;

use super::{Phase, View, task::Task};
use crate::jobs::objects::Pod;

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
    /// Actions that users cannot name do nothing.
    pub fn read(text: &Value) -> Self {
        let known = ACTIONS.iter().find(|(_, name)| text.as_str() == Some(name));
        known.map_or(Self::Sync, |(action, _)| *action)
    }

    pub fn as_str(self) -> &'static str {
        ACTIONS.iter().find(|(action, _)| *action == self).map_or("SyncJob", |(_, name)| name)
    }
}

/// What is due now.
pub(super) struct Due {
    pub action: Action,
    /// The pod that the event is about.
    pub pod: Option<String>,
    /// For people: which event.
    pub why: Option<String>,
    /// A policy's timeout runs until then.
    pub look_again: Option<Duration>,
    /// Events whose timeouts run.
    pub delayed: Vec<Delayed>,
    /// A restart counts against the job's bound.
    pub counts: bool,
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
        }
    }
}

/// An event that a policy's timeout lets stand, kept between looks: of what is gone nothing else tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delayed {
    name: &'static str,
    pod: Option<String>,
    task: Option<String>,
    exit_code: Option<i64>,
    since: Timestamp,
    /// Version of the job's run that it happened in.
    version: i64,
}

impl Delayed {
    fn is_of(&self, event: &Event<'_>) -> bool {
        let task = event.task.map(|task| task.name.as_str());
        (self.name, self.pod.as_deref(), self.task.as_deref()) == (event.name, event.pod.as_deref(), task)
    }
}

/// An event that stands.
struct Event<'a> {
    name: &'static str,
    exit_code: Option<i64>,
    task: Option<&'a Task<'a>>,
    pod: Option<String>,
    since: Option<Timestamp>,
}

/// The action that a command or the first event with a policy calls for.
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
        // What else was delayed is over with the run it happened in.
        due.delayed.clear();
        return due;
    }
    due
}

/// Since when the event stands: as its object says, else since it was first seen. A pod may be on its way out until
/// long after, by its deletion time.
fn stands_since(view: &View<'_>, event: &Event<'_>) -> Timestamp {
    let now = view.input.now;
    let mut remembered = view.input.delayed.iter();
    // Each pod is pending anew; its own time says since when.
    let known = remembered.find(|known| known.is_of(event) && event.name != "PodPending");
    let known = known.filter(|known| known.version == view.version).map(|known| known.since);
    event.since.into_iter().chain(known).min().unwrap_or(now).min(now)
}

/// Pods that failed or were lost and have not run since: a timeout goes on although nothing shows them any more.
fn remembered<'a>(view: &'a View<'a>, standing: &[Event<'a>]) -> Vec<Event<'a>> {
    let runs = |pod: &str| view.pods.get(pod).is_some_and(|pod| pod.is_running() || pod.is_succeeded());
    let goes_on = |known: &&Delayed| {
        let waits = known.pod.as_deref().is_some_and(|pod| !runs(pod) && view.task_of(pod).is_some());
        (known.name == "JobUpdated" || (matches!(known.name, "PodFailed" | "PodEvicted") && waits))
            && known.version == view.version
            && !standing.iter().any(|event| known.is_of(event))
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

/// The action and how long its event must have stood.
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
        // A pod is pending from its first moment; only a stay says something.
        if event.name == "PodPending" && timeout.is_none() {
            continue;
        }
        return Some((Action::read(&policy["action"]), timeout.unwrap_or_default()));
    }
    None
}

/// A duration as Go writes it (`1h30m`, `90s`); jiff reads the same.
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
        // A pod above the replicas of a job that was scaled down is not missed.
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
