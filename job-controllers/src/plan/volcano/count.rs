//! Number of pods by state, for the rules and for the status.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{task::Task, view::View};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub pending: i64,
    pub running: i64,
    pub succeeded: i64,
    pub failed: i64,
    pub terminating: i64,
    pub unknown: i64,
}

/// Pods of one task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub succeeded: i64,
    pub ready: i64,
    /// Restarts of containers of pods that wait or run.
    pub restarts: i64,
}

impl View<'_> {
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for pod in self.pods.values() {
            let field = match pod.status.phase.as_str() {
                _ if pod.is_deleting() => &mut counts.terminating,
                "" | "Pending" => &mut counts.pending,
                "Running" => &mut counts.running,
                "Succeeded" => &mut counts.succeeded,
                "Failed" => &mut counts.failed,
                _ => &mut counts.unknown,
            };
            *field += 1;
        }
        counts
    }

    pub fn tally(&self, task: &Task<'_>) -> Tally {
        let mut tally = Tally::default();
        let live = self.pods.values().filter(|pod| !pod.is_deleting() && self.is_current(pod));
        for pod in live.filter(|pod| task.index_of(self.job, pod.name()).is_some()) {
            tally.succeeded += i64::from(pod.is_succeeded());
            tally.ready += i64::from(pod.is_ready());
            if !pod.is_ended() {
                tally.restarts = tally.restarts.saturating_add(pod.container_restarts());
            }
        }
        tally
    }
}

/// Writes the counts; zeros are left out, as in Volcano.
pub(super) fn write(status: &mut Value, view: &View<'_>) {
    let counts = view.counts();
    status["minAvailable"] = view.min_available.into();
    for (field, number) in [
        ("pending", counts.pending),
        ("running", counts.running),
        ("succeeded", counts.succeeded),
        ("failed", counts.failed),
        ("terminating", counts.terminating),
        ("unknown", counts.unknown),
    ] {
        set_or_remove(status, field, (number > 0).then(|| number.into()));
    }
    let mut by_task: BTreeMap<&str, BTreeMap<&str, i64>> = BTreeMap::new();
    for pod in view.pods.values().filter(|pod| !pod.is_deleting()) {
        if let Some((task, _)) = view.task_of(pod.name()) {
            let phase = if pod.status.phase.is_empty() { "Pending" } else { pod.status.phase.as_str() };
            *by_task.entry(&task.name).or_default().entry(phase).or_insert(0) += 1;
        }
    }
    let by_task: serde_json::Map<String, Value> =
        by_task.into_iter().map(|(task, phases)| (task.to_owned(), json!({"phase": phases}))).collect();
    set_or_remove(status, "taskStatusCount", (!by_task.is_empty()).then(|| by_task.into()));
}

fn set_or_remove(status: &mut Value, field: &str, value: Option<Value>) {
    match value {
        Some(value) => status[field] = value,
        None => drop(status.as_object_mut().and_then(|fields| fields.remove(field))),
    }
}
