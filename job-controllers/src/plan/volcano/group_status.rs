//! Status of a Job's PodGroup: whether it is admitted, how many of its pods have places, and one sentence why
//! the others have none.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use fleet_agent_ground::{
    Object, Pod,
    pod_group::{Condition, READY, remove_condition},
};

use super::{phase::Phase, view::View};
use crate::plan::rfc3339;

/// State of one pod in the terms of Volcano's scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    Pending,
    /// Bound and not running yet.
    Bound,
    Running,
    Releasing,
    Succeeded,
    Failed,
}

impl Task {
    fn of(pod: &Pod, doomed: bool) -> Self {
        let placed = pod.status.conditions.iter().any(|c| c.kind == "PodScheduled" && c.status == "True");
        match pod.status.phase.as_str() {
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            _ if pod.is_deleting() || doomed => Self::Releasing,
            "Running" => Self::Running,
            _ if placed => Self::Bound,
            _ => Self::Pending,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Bound => "Bound",
            Self::Running => "Running",
            Self::Releasing => "Releasing",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }
}

/// The group's whole new status, if it changed. `doomed`: pods that this plan deletes.
pub(super) fn plan(view: &View<'_>, group: &Object, doomed: &[String]) -> Option<Value> {
    let tasks: Vec<(&Pod, Task)> = view
        .pods
        .values()
        .map(|pod| (&**pod, Task::of(pod, doomed.iter().any(|name| name == pod.name()))))
        .collect();
    let count = |wanted: Task| tasks.iter().filter(|(_, task)| *task == wanted).count() as i64;
    let (running, succeeded, failed) = (count(Task::Running), count(Task::Succeeded), count(Task::Failed));
    let scheduled = running + succeeded + failed + count(Task::Bound);
    let ready = running + succeeded + count(Task::Bound);
    let min = view.min_available;
    let mut status = group.status.clone();
    if !status.is_object() {
        status = json!({});
    }
    let before = status["phase"].as_str().unwrap_or_default().to_owned();
    let starts = matches!(view.phase, Phase::Pending | Phase::Running);
    let phase = if scheduled >= min && scheduled > 0 {
        let ended = succeeded + failed == tasks.len() as i64;
        if ended { "Completed" } else { "Running" }
    } else if starts && running > 0 && matches!(before.as_str(), "Running" | "Unknown") {
        // It ran and lost pods: the others run on, until the new pods have places.
        "Unknown"
    } else {
        admitted(view, &before, ready)
    };
    status["phase"] = phase.into();
    for (field, number) in [("running", running), ("succeeded", succeeded), ("failed", failed)] {
        match (number, status.as_object_mut()) {
            (0, Some(fields)) => drop(fields.remove(field)),
            (number, _) => status[field] = number.into(),
        }
    }
    if ready >= min && min > 0 {
        set(&mut status, view, "Scheduled", READY, None);
        // A gang that starts again after losing pods is no longer short of anything.
        if !view.phase.is_final() && view.phase != Phase::Completing {
            remove_condition(&mut status, "Unschedulable");
        }
    } else if let Some((reason, message)) = shortage(view, &tasks, ready, phase) {
        set(&mut status, view, "Unschedulable", reason, Some(message));
    }
    (status != group.status).then_some(status)
}

/// Pending until the queue admits it, then Inqueue; a group whose pods are terminating is not admitted.
fn admitted(view: &View<'_>, before: &str, ready: i64) -> &'static str {
    let starts = matches!(view.phase, Phase::Pending | Phase::Running);
    match before {
        "Inqueue" | "Unknown" if starts => "Inqueue",
        // Pods were lost, and none runs: the rest stays admitted.
        "Running" if starts && ready > 0 => "Inqueue",
        _ if starts && view.input.gate.is_ok() => "Inqueue",
        _ => "Pending",
    }
}

fn shortage(
    view: &View<'_>,
    tasks: &[(&Pod, Task)],
    ready: i64,
    phase: &str,
) -> Option<(&'static str, String)> {
    if let (Err(why), "Pending") = (view.input.gate, phase)
        && tasks.is_empty()
        && !why.is_empty()
    {
        return Some(("NotEnoughResources", why.clone()));
    }
    let releasing = tasks.iter().filter(|(_, task)| *task == Task::Releasing).count();
    let told = tasks.iter().filter(|(_, task)| *task == Task::Pending).find_map(|(pod, _)| {
        let told = pod.status.conditions.iter().find(|c| c.kind == "PodScheduled" && c.status == "False")?;
        Some((pod.name(), told.message.as_str()))
    });
    // If pods only terminate and none waits, the first message stays.
    if releasing == 0 && told.is_none() {
        return None;
    }
    let mut histogram: BTreeMap<Task, usize> = BTreeMap::new();
    for (_, task) in tasks {
        *histogram.entry(*task).or_default() += 1;
    }
    // Sorted as text, so "10 Running" comes before "3 Releasing", as in Volcano.
    let mut counts: Vec<String> =
        histogram.iter().map(|(task, number)| format!("{number} {}", task.as_str())).collect();
    counts.sort();
    counts.push(format!("{} minAvailable", view.min_available));
    let mut message = format!(
        "{}/{} tasks in gang unschedulable: pod group is not ready, {}",
        view.min_available.saturating_sub(ready).max(0),
        tasks.len(),
        counts.join(", ")
    );
    if let Some((pod, why)) = told {
        let waiting = histogram.get(&Task::Pending).copied().unwrap_or(0);
        message.push_str(&format!("; Pending: {waiting} Unschedulable. Origin reason is {pod}: {why}"));
    }
    Some(("NotEnoughResources", message))
}

/// While the pods of a gang terminate one by one, the message of the first stays.
fn set(status: &mut Value, view: &View<'_>, kind: &str, reason: &str, message: Option<String>) {
    let going = kind == "Unschedulable" && !matches!(view.phase, Phase::Pending | Phase::Running);
    let now = rfc3339(view.input.now);
    let now = now.as_str();
    Condition { kind, reason, message, now, session: view.input.session }.set(status, going);
}
