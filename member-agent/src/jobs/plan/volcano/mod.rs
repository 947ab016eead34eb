//! Volcano's Job (`batch.volcano.sh/v1alpha1`): tasks of pods in one gang, driven through ten phases by
//! lifecycle policies, or by the completion rules of a job that brings its own (`policy`).
//!
//! Upstream derives events as they happen; here they are read off what stands (a failed pod of the present
//! version, a task whose pods have all succeeded), so that a restart of the agent loses none. Only a pod that
//! was gone before a plan saw it go leaves no such mark: the driver hands those in as `lost`. A change of phase is
//! written before anything it entails is done. What has changed of a job is handed in as well: a change made while no
//! agent ran is the event `JobUpdated` for nobody.

mod count;
mod group;
mod group_status;
mod make;
mod phase;
mod plugins;
mod policy;
mod task;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::Timestamp;
use kube::discovery::ApiResource;
use serde_json::{Map, Value, json};

use super::{Object, Plan, Pod, Pods, rfc3339, time_left};
use phase::{Kill, Phase, Step};
use policy::Action;
use task::Task;

pub(crate) use plugins::SSH_SECRET_LABEL;
pub(crate) use policy::Delayed;
pub(crate) use task::problem;

/// Pod annotation: version of the job's run that made it; older versions are on their way out.
const VERSION: &str = "volcano.sh/job-version";
/// Pod annotation: the controller itself takes the pod away, so its end is no event.
pub(crate) const OUT_OF_SYNC: &str = "volcano.sh/controller-out-of-sync";
/// Reason of a job that says what can never be.
const INVALID_SPEC: &str = "InvalidSpec";
/// Reason of a job whose queue has not let it in.
const GROUP_PENDING: &str = "PodGroupPending";
pub(crate) const DEFAULT_MAX_RETRY: i64 = 3;

/// Everything a plan is made from.
pub(crate) struct Input<'a> {
    pub resource: &'a ApiResource,
    pub job: &'a Object,
    pub pods: &'a Pods,
    /// Pods that are gone and that no plan has seen being deleted.
    pub lost: &'a [Arc<Pod>],
    /// Its spec has changed since the last look.
    pub updated: bool,
    /// Events whose timeouts ran at the last look.
    pub delayed: &'a [Delayed],
    pub pod_group: Option<&'a Object>,
    /// The oldest Command (`bus.volcano.sh`) for the job.
    pub command: Option<&'a Command>,
    /// Whether the queue lets the job's group in, or why not.
    pub gate: &'a Result<(), String>,
    /// Id of this look, for conditions.
    pub session: &'a str,
    /// Value of a PriorityClass, by name.
    pub priority_of: &'a dyn Fn(&str) -> i64,
    pub now: Timestamp,
}

/// A request of a user (`bus.volcano.sh/v1alpha1` Command): it is carried out, then deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    pub name: String,
    pub uid: String,
    pub action: String,
}

/// What the rules read.
struct View<'a> {
    input: &'a Input<'a>,
    job: &'a Object,
    pods: &'a Pods,
    tasks: Vec<Task<'a>>,
    min_available: i64,
    phase: Phase,
    version: i64,
    retries: i64,
    /// Take the place of its policies.
    rules: Option<fleet_pai::completion::Rules>,
}

impl<'a> View<'a> {
    fn of(input: &'a Input<'a>) -> Self {
        let (job, status) = (input.job, &input.job.status);
        let tasks = task::of(job);
        let min_available =
            job.spec["minAvailable"].as_i64().unwrap_or_else(|| tasks.iter().map(|t| t.min_available).sum());
        Self {
            input,
            job,
            pods: input.pods,
            tasks,
            min_available,
            phase: Phase::read(status["state"]["phase"].as_str()),
            version: status["version"].as_i64().unwrap_or(0),
            retries: status["retryCount"].as_i64().unwrap_or(0),
            rules: policy::rules(job),
        }
    }

    fn total(&self) -> i64 {
        self.tasks.iter().map(|task| task.replicas).sum()
    }

    fn max_retry(&self) -> i64 {
        self.job.spec["maxRetry"].as_i64().unwrap_or(DEFAULT_MAX_RETRY)
    }

    fn task_of(&self, pod: &str) -> Option<(&Task<'a>, i64)> {
        self.tasks.iter().find_map(|task| Some((task, task.index_of(self.job, pod)?)))
    }

    /// Of the run that goes on now, and not being taken away by this controller.
    fn is_current(&self, pod: &Pod) -> bool {
        version_of(pod) == self.version && !is_out_of_sync(pod)
    }
}

fn version_of(pod: &Pod) -> i64 {
    annotation(pod, VERSION).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn is_out_of_sync(pod: &Pod) -> bool {
    annotation(pod, OUT_OF_SYNC) == Some("true")
}

fn annotation<'p>(pod: &'p Pod, name: &str) -> Option<&'p str> {
    pod.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// The plan of one Job.
pub(crate) fn plan(input: &Input<'_>) -> Plan {
    let view = View::of(input);
    let mut plan = Plan { support: plugins::support(&view), ..Plan::default() };
    if view.job.is_deleting() {
        plan.delete_all(view.pods);
        plan.delete_support = true;
        plan.delete_pod_group = true;
        return plan;
    }
    let mut status = view.job.status.clone();
    if !status.is_object() {
        status = json!({});
    }
    if !status["state"]["phase"].is_string() {
        // As Volcano's admission writes it. What does not depend on other fields stands in the definition.
        if view.job.spec["minAvailable"].is_null() {
            plan.spec = Some(json!({"minAvailable": view.min_available}));
        }
        phase::enter(&mut status, Phase::Pending, None, view.job, input.now);
        plan.status_first = true;
        count::write(&mut status, &view);
        plan.set_status(view.job, status);
        return plan;
    }
    let due = match &view.rules {
        Some(rules) if input.command.is_none() => policy::due_by_rules(&view, rules),
        _ => policy::due(&view),
    };
    plan.delayed = Some(due.delayed.clone());
    if let Some(wait) = due.look_again {
        plan.look_again_in(wait);
    }
    match phase::step(&view, &due.action) {
        Step::Enter(next, cause) => {
            let reason = due.why.clone().map(|why| (cause, why));
            if next == Phase::Restarting {
                status["retryCount"] = (view.retries + i64::from(due.counts)).into();
                if let Kill::Targets(targets) = &due.targets(&view) {
                    plan.mark = targets.clone();
                } else {
                    status["version"] = (view.version + 1).into();
                }
            } else if next.is_whole_kill() {
                status["version"] = (view.version + 1).into();
            }
            phase::enter(&mut status, next, reason, view.job, input.now);
            plan.status_first = true;
            plan.command_done = input.command.is_some();
        }
        Step::Settle(next) => {
            let before = status["state"].clone();
            phase::enter(&mut status, next, None, view.job, input.now);
            if view.rules.is_some() && next.is_final() {
                // What ended it is what people ask for.
                for field in ["reason", "message"] {
                    if !before[field].is_null() {
                        status["state"][field] = before[field].clone();
                    }
                }
            }
            plan.status_first = true;
        }
        Step::Stay => {
            plan.command_done = input.command.is_some();
            say_why_it_waits(&view, &mut status);
            carry(&view, &mut plan, &mut status, input);
            if let Some(group) = input.pod_group.filter(|_| !plan.delete_pod_group) {
                plan.pod_group_status = group_status::plan(&view, group, &plan.delete);
            }
        }
    }
    count::write(&mut status, &view);
    plan.set_status(view.job, status);
    plan
}

/// A job that its queue does not let in says so, and no more once it is let in.
fn say_why_it_waits(view: &View<'_>, status: &mut Value) {
    if view.phase != Phase::Pending {
        return;
    }
    if let Some(problem) = problem(view.job) {
        status["state"]["reason"] = INVALID_SPEC.into();
        status["state"]["message"] = problem.into();
        return;
    }
    match view.input.gate {
        Err(why) if !why.is_empty() => {
            status["state"]["reason"] = GROUP_PENDING.into();
            status["state"]["message"] = format!("field spec.queue: {why}").into();
        }
        Ok(()) if status["state"]["reason"] == GROUP_PENDING => {
            if let Some(state) = status["state"].as_object_mut() {
                state.remove("reason");
                state.remove("message");
            }
        }
        _ => {}
    }
}

/// What the present phase entails, again and again until it is done.
fn carry(view: &View<'_>, plan: &mut Plan, status: &mut Value, input: &Input<'_>) {
    match view.phase {
        Phase::Pending | Phase::Running => {
            sync(view, plan, status);
            if let Some(rules) = &view.rules {
                policy::retry_tasks(view, rules, plan, status);
            }
        }
        Phase::Restarting => {
            let keep_ended = view.retries >= view.max_retry();
            let doomed = view.pods.values().filter(|pod| !pod.is_deleting() && !view.is_current(pod));
            let doomed = doomed.filter(|pod| !(keep_ended && pod.is_ended()));
            plan.delete = doomed.map(|pod| pod.name().to_owned()).collect();
            let whole = view.pods.values().all(|pod| version_of(pod) != view.version);
            plan.delete_support = whole;
            plan.delete_pod_group = whole;
        }
        _ => {
            let doomed = view.pods.values().filter(|pod| !pod.is_deleting() && !pod.is_ended());
            plan.delete = doomed.map(|pod| pod.name().to_owned()).collect();
            plan.delete_support = true;
            // The group of a finished job stays and shows how it ended; that of a job that may resume goes.
            plan.delete_pod_group = view.phase == Phase::Aborted;
            expire(view, plan, input.now);
        }
    }
    if plan.delete_support {
        status["controlledResources"] = Value::Object(Map::new());
    }
}

fn expire(view: &View<'_>, plan: &mut Plan, now: Timestamp) {
    if !matches!(view.phase, Phase::Completed | Phase::Failed | Phase::Terminated) {
        return;
    }
    let ended = &view.job.status["state"]["lastTransitionTime"];
    if let Some(seconds) = view.job.spec["ttlSecondsAfterFinished"].as_i64()
        && let Some(left) = time_left(ended, seconds, now)
    {
        if left.is_zero() {
            plan.delete_job = true;
        } else {
            plan.look_again_in(left);
        }
    }
}

/// Makes the group and, once it is let in, the pods that lack; deletes those above the replicas.
fn sync(view: &View<'_>, plan: &mut Plan, status: &mut Value) {
    plan.pod_group = Some(group::desired(view));
    plan.support.extend(make::claims(view));
    status["controlledResources"] = make::controlled_resources(view);
    let surplus = view.pods.values().filter(|pod| !pod.is_deleting());
    let surplus = surplus.filter(|pod| !view.is_current(pod) || view.task_of(pod.name()).is_none());
    plan.delete.extend(surplus.map(|pod| pod.name().to_owned()));
    let admitted = view.input.pod_group.is_some_and(|group| {
        group.metadata.deletion_timestamp.is_none()
            && group.status["phase"].as_str().is_some_and(|phase| !phase.is_empty() && phase != "Pending")
    });
    if !admitted {
        return;
    }
    for task in view.tasks.iter().filter(|task| task.may_start(view)) {
        for index in 0..task.replicas {
            if !view.pods.contains_key(&task.pod_name(view.job, index)) {
                plan.create.push(make::pod(view, task, index));
            }
        }
    }
}

/// Seconds as Go prints a duration: `1h2m3s`.
fn go_duration(seconds: i64) -> String {
    let (h, m, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (h, m) {
        (0, 0) => format!("{s}s"),
        (0, m) => format!("{m}m{s}s"),
        (h, m) => format!("{h}h{m}m{s}s"),
    }
}

/// Which pods a targeted action takes.
impl policy::Due {
    fn targets(&self, view: &View<'_>) -> Kill {
        let Some(pod) = self.pod.as_deref() else { return Kill::Whole };
        let Some((task, index)) = view.task_of(pod) else { return Kill::Whole };
        let live = || view.pods.values().filter(|pod| !pod.is_deleting()).map(|pod| pod.name().to_owned());
        match self.action {
            Action::RestartTask => {
                Kill::Targets(live().filter(|pod| task.index_of(view.job, pod).is_some()).collect())
            }
            Action::RestartPartition => Kill::Targets(
                live()
                    .filter(|pod| {
                        task.index_of(view.job, pod)
                            .is_some_and(|other| task.partition_of(other) == task.partition_of(index))
                    })
                    .collect(),
            ),
            Action::RestartPod => Kill::Targets(live().filter(|name| name == pod).collect()),
            _ => Kill::Whole,
        }
    }
}

/// Time as the status carries it.
fn stamp(now: Timestamp) -> Value {
    rfc3339(now).into()
}
