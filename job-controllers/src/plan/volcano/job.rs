//! The plan of one Job: the due action, the phase it leads to, and the work of that phase.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    count, group, group_status, make,
    phase::Phase,
    plugins, policy, seen,
    step::{self, Kill, Step},
    task::{problem, too_many},
    view::{Input, View, version_of},
};
use crate::plan::{JobPlan, time_left};

/// Reason of a job that can never run.
pub(crate) const INVALID_SPEC: &str = "InvalidSpec";
/// Reason of a job that its queue has not admitted.
const GROUP_PENDING: &str = "PodGroupPending";
/// The plan of one Job.
pub(crate) fn plan(input: &Input<'_>) -> JobPlan {
    let view = View::of(input);
    let mut plan = JobPlan { support: plugins::support(&view), ..JobPlan::default() };
    if view.job.is_deleting() {
        plan.delete_all(view.pods);
        plan.delete_support = true;
        plan.delete_pod_group = true;
        return plan;
    }
    let mut status = Some(view.job.status.clone()).filter(Value::is_object).unwrap_or_else(|| json!({}));
    if !status["state"]["phase"].is_string() {
        // Defaults of Volcano's admission. Those that do not depend on other fields are in the definition.
        if view.job.spec["minAvailable"].is_null() {
            plan.spec = Some(json!({"minAvailable": view.min_available}));
        }
        step::enter(&mut status, Phase::Pending, None, view.job, input.now);
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
    match step::step(&view, &due.action) {
        Step::Enter(next, cause) => {
            let reason = due.why.clone().map(|why| (cause, why));
            if next == Phase::Restarting {
                count_retry(&view, &due, &mut status);
                if let Kill::Targets(targets) = &due.targets(&view) {
                    plan.mark = targets.clone();
                } else {
                    status["version"] = view.version.saturating_add(1).into();
                }
            } else if next.is_whole_kill() {
                status["version"] = view.version.saturating_add(1).into();
            }
            step::enter(&mut status, next, reason, view.job, input.now);
            plan.status_first = true;
            plan.command_done = input.command.is_some();
        }
        Step::Settle(next) => {
            let before = status["state"].clone();
            step::enter(&mut status, next, None, view.job, input.now);
            if view.rules.is_some() && next.is_final() {
                // Users look for what ended it.
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
            if let Some(why) = &due.waits {
                status["state"]["reason"] = fleet_pai::retry::DELAYED.into();
                status["state"]["message"] = why.as_str().into();
            }
            carry(&view, &mut plan, &mut status, input);
            if let Some(group) = input.pod_group.filter(|_| !plan.delete_pod_group) {
                plan.pod_group_status = group_status::plan(&view, group, &plan.delete);
            }
        }
    }
    seen::note(&view, &due, &mut status);
    count::write(&mut status, &view);
    plan.set_status(view.job, status);
    plan
}

/// A retry counts against the job's limit, or is for want of room, or neither.
fn count_retry(view: &View<'_>, due: &policy::Due, status: &mut Value) {
    status["retryCount"] = view.retries.saturating_add(i64::from(due.counts)).into();
    if due.for_room {
        let tries = policy::tries_for_room(view).saturating_add(1);
        status["controlledResources"][policy::TRIES_FOR_ROOM] = tries.to_string().into();
    }
}

/// Reports that the queue does not admit the job, until it does.
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

/// The work of the current phase, repeated until it is done.
fn carry(view: &View<'_>, plan: &mut JobPlan, status: &mut Value, input: &Input<'_>) {
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
            // The group of a finished job stays and shows how it ended; that of a job that may resume is
            // deleted.
            plan.delete_pod_group = view.phase == Phase::Aborted;
            expire(view, plan, input.now);
        }
    }
    if plan.delete_support {
        let mut kept = Map::new();
        let for_room = &view.job.status["controlledResources"][policy::TRIES_FOR_ROOM];
        if for_room.is_string() {
            kept.insert(policy::TRIES_FOR_ROOM.to_owned(), for_room.clone());
        }
        status["controlledResources"] = Value::Object(kept);
    }
}

fn expire(view: &View<'_>, plan: &mut JobPlan, now: Timestamp) {
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

/// Creates the group and, once it is admitted, missing pods; deletes excess ones.
fn sync(view: &View<'_>, plan: &mut JobPlan, status: &mut Value) {
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
    if !admitted || too_many(view.job).is_some() {
        return;
    }
    for task in view.tasks.iter().filter(|task| view.may_start(task)) {
        for index in 0..task.replicas {
            if plan.create.is_full() {
                return;
            }
            if !view.pods.contains_key(&task.pod_name(view.job, index)) {
                plan.create.push(make::pod(view, task, index));
            }
        }
    }
}
