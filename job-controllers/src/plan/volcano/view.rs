//! A Job as input of its rules: the job, its pods, its tasks and phase.

use std::sync::Arc;

use fleet_agent_ground::{Object, Pod};
use fleet_pai::{completion::Rules, names};
use fleet_resources::sum;
use jiff::Timestamp;
use kube::discovery::ApiResource;
use serde_json::Value;

use super::{
    phase::Phase,
    task::{self, DEFAULT_MAX_RETRY, Task},
};
use crate::plan::{Delayed, Pods};

/// Pod annotation: version of the job's run that created it; pods of older versions are terminating.
pub(super) const VERSION: &str = "volcano.sh/job-version";
/// Pod annotation: the controller itself deletes the pod, so its end is no event.
pub(crate) const OUT_OF_SYNC: &str = "volcano.sh/controller-out-of-sync";
/// Input of a plan.
pub(crate) struct Input<'a> {
    pub resource: &'a ApiResource,
    pub job: &'a Object,
    pub pods: &'a Pods,
    /// Pods that are gone and that no plan has seen being deleted.
    pub lost: &'a [Arc<Pod>],
    /// Its spec has changed since the last plan.
    pub updated: bool,
    /// Events whose timeouts ran at the last plan.
    pub delayed: &'a [Delayed],
    pub pod_group: Option<&'a Object>,
    /// The oldest Command (`bus.volcano.sh`) for the job.
    pub command: Option<&'a Command>,
    /// Whether the queue admits the job's group, or why not.
    pub gate: &'a Result<(), String>,
    /// Id of this plan, for conditions.
    pub session: &'a str,
    /// Value of a PriorityClass, by name.
    pub priority_of: &'a dyn Fn(&str) -> i64,
    pub now: Timestamp,
}

/// A request of a user (`bus.volcano.sh/v1alpha1` Command), deleted after it was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    pub name: String,
    pub uid: String,
    pub action: String,
}

/// Input of the rules.
pub(super) struct View<'a> {
    pub input: &'a Input<'a>,
    pub job: &'a Object,
    pub pods: &'a Pods,
    pub tasks: Vec<Task<'a>>,
    pub min_available: i64,
    pub phase: Phase,
    pub version: i64,
    pub retries: i64,
    /// Replace its policies.
    pub rules: Option<fleet_pai::completion::Rules>,
}

impl<'a> View<'a> {
    pub fn of(input: &'a Input<'a>) -> Self {
        let (job, status) = (input.job, &input.job.status);
        let tasks = task::of(job);
        let min_available =
            job.spec["minAvailable"].as_i64().unwrap_or_else(|| sum(tasks.iter().map(|t| t.min_available)));
        Self {
            input,
            job,
            pods: input.pods,
            tasks,
            min_available,
            phase: Phase::read(status["state"]["phase"].as_str()),
            version: status["version"].as_i64().unwrap_or(0),
            retries: status["retryCount"].as_i64().unwrap_or(0),
            rules: rules_of(job),
        }
    }

    pub fn total(&self) -> i64 {
        sum(self.tasks.iter().map(|task| task.replicas))
    }

    pub fn max_retry(&self) -> i64 {
        self.job.spec["maxRetry"].as_i64().unwrap_or(DEFAULT_MAX_RETRY)
    }

    pub fn task_of(&self, pod: &str) -> Option<(&Task<'a>, i64)> {
        self.tasks.iter().find_map(|task| Some((task, task.index_of(self.job, pod)?)))
    }

    /// The tasks on which it depends have enough pods that have succeeded or are ready.
    pub fn may_start(&self, task: &Task<'_>) -> bool {
        let names = task.spec["dependsOn"]["name"].as_array().map_or(&[][..], Vec::as_slice);
        let satisfied = |name: &Value| {
            let task = self.tasks.iter().find(|task| Some(task.name.as_str()) == name.as_str());
            task.is_none_or(|task| {
                let tally = self.tally(task);
                tally.succeeded + tally.ready >= task.min_available
            })
        };
        let any = task.spec["dependsOn"]["iteration"] == "any" && names.len() > 1;
        if any { names.iter().any(satisfied) } else { names.iter().all(satisfied) }
    }

    /// Whether the pod belongs to the current run and is not being deleted by this controller.
    pub fn is_current(&self, pod: &Pod) -> bool {
        version_of(pod) == self.version && !is_out_of_sync(pod)
    }
}

pub(super) fn version_of(pod: &Pod) -> i64 {
    annotation(pod, VERSION).and_then(|text| text.parse().ok()).unwrap_or(0)
}

pub(super) fn is_out_of_sync(pod: &Pod) -> bool {
    annotation(pod, OUT_OF_SYNC) == Some("true")
}

pub(super) fn annotation<'p>(pod: &'p Pod, name: &str) -> Option<&'p str> {
    pod.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// The completion rules of an OpenPAI job. `None` without them, and if a value is outside the limits of a job file.
fn rules_of(job: &Object) -> Option<Rules> {
    Rules::read(job.annotation(names::RULES_ANNOTATION)?)
}
