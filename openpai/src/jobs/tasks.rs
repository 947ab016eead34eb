//! What the hub knows of the tasks of a job that starts task by task: which of them wait and why, and which were
//! preempted while the others ran on.

use std::collections::{BTreeMap, BTreeSet};

use fleet_pai::{exit, state::State};
use fleet_policies::{reason::Reason, workload::WorkloadKind};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Run, events,
    rows::{Known, state_of},
    text,
};
use crate::{
    cells::{
        Standing,
        waiting::{WaitingPod, waiting_pods},
    },
    server::Server,
};

/// Tasks of a running job that wait for cells. Without the right to read what is on the cells, no level is named.
pub async fn waiting_tasks(server: &Server, run: &Run) -> Vec<WaitingPod> {
    if run.cluster().is_none() || run.state().is_final() || !starts_task_by_task(run) {
        return Vec::new();
    }
    let held: BTreeSet<String> = run.cells().into_keys().map(str::to_owned).collect();
    let now = Timestamp::now();
    let standing = Standing::read(server).await;
    match standing.and_then(|standing| standing.picture(now)) {
        Ok(Some(picture)) => waiting_pods(&picture, WorkloadKind::VolcanoJob, &run.object, &held, now),
        _ => unexplained(run, &held),
    }
}

/// The tasks that wait, for a caller who may not know why.
fn unexplained(run: &Run, held: &BTreeSet<String>) -> Vec<WaitingPod> {
    let Some(rules) = run.rules().filter(|_| !held.is_empty()) else { return Vec::new() };
    let known = Known::of(run);
    let pods = rules.roles.iter().flat_map(|rule| {
        let phases = known.phases(rule).into_iter().enumerate();
        let waiting = phases.filter(|(_, phase)| state_of(run, phase) == State::Waiting);
        waiting.map(|(index, _)| format!("{}-{index}", rule.task)).collect::<Vec<_>>()
    });
    let pods = pods.filter(|pod| !held.contains(pod));
    let message = "it has no cells yet; why is told to those who may read what is on the cells";
    pods.map(|pod| WaitingPod {
        pod,
        reason: Reason::Queuing.as_str().to_owned(),
        message: message.to_owned(),
    })
    .collect()
}

fn starts_task_by_task(run: &Run) -> bool {
    let tasks = run.rules().map_or(0, |rules| rules.tasks());
    let request = fleet_cell_requests::read(WorkloadKind::VolcanoJob, &run.object);
    tasks > 1 && request.is_ok_and(|request| !request.whole)
}

/// Adds to a job in OpenPAI's form why its tasks wait, and how often they were preempted.
pub async fn add_tasks(server: &Server, run: &Run, detail: &mut Value) {
    Notes::read(server, run).await.add(run, detail);
}

/// Why the tasks of a job wait, and how often they were preempted: what its object does not say of them.
#[derive(Debug, Default)]
pub struct Notes {
    /// The first that waits.
    first: Option<WaitingPod>,
    /// Why it waits, by pod such as `train-0`.
    waiting: BTreeMap<String, String>,
    preempted: BTreeMap<String, i64>,
}

impl Notes {
    /// What the hub knows. Nothing of a job that starts as a whole.
    pub async fn read(server: &Server, run: &Run) -> Self {
        if !starts_task_by_task(run) {
            return Self::default();
        }
        let waiting = waiting_tasks(server, run).await;
        let events = events::listed(server, run).await.unwrap_or_default();
        Self::of(waiting, preempted(&events))
    }

    fn of(waiting: Vec<WaitingPod>, preempted: BTreeMap<String, i64>) -> Self {
        let first = waiting.first().cloned();
        let why = |pod: WaitingPod| (pod.pod, format!("{}: {}", pod.reason, pod.message));
        Self { first, waiting: waiting.into_iter().map(why).collect(), preempted }
    }

    /// Adds them to a job in OpenPAI's form, to the job itself and to its tasks.
    fn add(&self, run: &Run, detail: &mut Value) {
        self.add_to_job(detail);
        let rules = run.rules();
        let roles = rules.iter().flat_map(|rules| &rules.roles);
        let names: BTreeMap<&str, &str> =
            roles.map(|rule| (rule.role.as_str(), rule.task.as_str())).collect();
        for (role, name) in names {
            let role = detail.get_mut("taskRoles").and_then(|roles| roles.get_mut(role));
            let tasks = role.and_then(|role| role.get_mut("taskStatuses")?.as_array_mut());
            for (index, task) in (0..).zip(tasks.into_iter().flatten()) {
                self.add_to_task(name, index, task);
            }
        }
    }

    /// Why the job waits, if all that waits are tasks of it.
    pub fn add_to_job(&self, detail: &mut Value) {
        let status = &mut detail["jobStatus"];
        let Some(first) = self.first.as_ref().filter(|_| status["waitingReason"].is_null()) else { return };
        let more = match self.waiting.len() {
            0 | 1 => String::new(),
            several => format!(" (and {} more tasks)", several - 1),
        };
        status["waitingReason"] =
            json!(format!("{}: {} waits: {}{more}", first.reason, first.pod, first.message));
    }

    /// What is known of the task of this name and index, added to it.
    pub fn add_to_task(&self, task: &str, index: i64, shown: &mut Value) {
        if self.waiting.is_empty() && self.preempted.is_empty() {
            return;
        }
        let pod = format!("{task}-{index}");
        if let Some(why) = self.waiting.get(&pod) {
            shown["waitingReason"] = json!(why);
        }
        if let Some(count) = self.preempted.get(&pod) {
            shown["retries"] = json!(shown["retries"].as_i64().unwrap_or(0).saturating_add(*count));
            shown["accountableRetries"] = json!(0);
            shown["lastRetriedExitCode"] = json!(exit::POD_DELETED);
        }
    }
}

/// How often each pod was preempted while others of its job ran on, by the events of the job.
fn preempted(events: &[Value]) -> BTreeMap<String, i64> {
    let mut counts = BTreeMap::new();
    for event in events.iter().filter(|event| event["reason"] == Reason::Preempted.as_str()) {
        let pods = text(&event["message"], "").split_once(" preempted by ").map_or("", |(pods, _)| pods);
        for pod in pods.split(", ").filter(|pod| !pod.is_empty()) {
            let count: &mut i64 = counts.entry(pod.to_owned()).or_default();
            *count = count.saturating_add(event["count"].as_i64().unwrap_or(1).max(0));
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use fleet_pai::names;

    use super::*;
    use crate::jobs;

    fn run() -> Run {
        let rules = json!({"roles": [{"role": "train", "task": "train", "instances": 3, "minFailed": 1,
            "minSucceeded": 3, "taskRetry": {"fancy": true, "max": 0}}], "jobRetry": {"fancy": true, "max": 0}});
        let object = json!({"metadata": {"name": "alice-j", "namespace": "ns",
                "annotations": {names::ID_ANNOTATION: "alice~j", names::RULES_ANNOTATION: rules.to_string()}},
            "status": {"state": {"phase": "Running"}, "running": 1}});
        Run::of(object, Some(json!({"spec": {"clusters": [{"name": "east"}]}}))).expect("a job")
    }

    #[test]
    fn without_the_rights_they_say_at_least_that_they_wait() {
        let held: BTreeSet<String> = ["train-1".to_owned()].into();
        let mut run = run();
        run.binding = Some(json!({"spec": {"clusters": [{"name": "east"}],
            "cells": {"groups": [{"pods": [{"name": "train-1", "node": "n1", "leafCells": [0]}]}]}}}));
        run.object["status"]["taskStatusCount"] = json!({"train": {"phase": {"Running": 1, "Succeeded": 1}}});
        let pods: Vec<(String, String)> =
            unexplained(&run, &held).into_iter().map(|pod| (pod.pod, pod.reason)).collect();
        assert_eq!(pods, [("train-2".to_owned(), "Queuing".to_owned())]);
        assert_eq!(unexplained(&run, &BTreeSet::new()), []);
    }

    #[test]
    fn rules_are_read_once_for_all_tasks_that_wait() {
        const TASKS: usize = 20_000;
        let mut run = run();
        let role = |i: usize| {
            let instances = if i == 99 { TASKS } else { 1 };
            json!({"role": format!("r{i}"), "task": format!("r{i}"), "instances": instances, "minFailed": 1,
                "minSucceeded": 3, "taskRetry": {"fancy": true, "max": 0}})
        };
        let rules =
            json!({"roles": (0..100).map(role).collect::<Vec<_>>(), "jobRetry": {"fancy": true, "max": 0}});
        run.object["metadata"]["annotations"][names::RULES_ANNOTATION] = json!(rules.to_string());
        let mut shown = jobs::detail(&run, jobs::tasks_of_counts(&run));
        let waits =
            |i: usize| WaitingPod { pod: format!("r99-{i}"), reason: "R".into(), message: "m".into() };
        let waiting: Vec<WaitingPod> = (0..TASKS).map(waits).collect();
        let began = std::time::Instant::now();
        let counts = waiting.iter().map(|pod| (pod.pod.clone(), i64::MAX)).collect();
        Notes::of(waiting, counts).add(&run, &mut shown);
        let last = &shown["taskRoles"]["r99"]["taskStatuses"][TASKS - 1];
        assert_eq!((&last["waitingReason"], &last["retries"]), (&json!("R: m"), &json!(i64::MAX)));
        // Read for each task, they have 600 MB.
        assert!(began.elapsed().as_secs() < 30);
    }

    #[test]
    fn tasks_say_why_they_wait_and_how_often_they_were_preempted() {
        let run = run();
        let mut shown = jobs::detail(&run, jobs::tasks_of_counts(&run));
        let pod = |pod: &str| WaitingPod {
            pod: pod.into(),
            reason: "InsufficientCells".into(),
            message: "none".into(),
        };
        let events = [
            json!({"reason": "Preempted", "count": 2,
                "message": "train-1 preempted by default/bob-j (VirtualCluster); the other pods run on"}),
            json!({"reason": "Preempted", "message": "evicted from east: preempted by bob"}),
            json!({"reason": "ScheduleBindingSucceed", "message": "train-0 preempted by nobody"}),
        ];
        Notes::of(vec![pod("train-1"), pod("train-2")], preempted(&events)).add(&run, &mut shown);
        let task = |index: usize| shown["taskRoles"]["train"]["taskStatuses"][index].clone();
        assert_eq!(task(1)["waitingReason"], "InsufficientCells: none");
        assert_eq!((&task(1)["retries"], &task(1)["lastRetriedExitCode"]), (&json!(2), &json!(-101)));
        assert_eq!((&task(0)["retries"], &task(0)["waitingReason"]), (&json!(0), &Value::Null));
        let why = &shown["jobStatus"]["waitingReason"];
        assert_eq!(why, "InsufficientCells: train-1 waits: none (and 1 more tasks)");
    }
}
