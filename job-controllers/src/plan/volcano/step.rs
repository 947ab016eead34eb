//! Transitions between the phases of a Job.

use fleet_agent_ground::Object;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    phase::Phase,
    policy::{Action, Due},
    task::Task,
    view::View,
};
use crate::plan::rfc3339;

/// Which pods a restart deletes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kill {
    Whole,
    /// Names of pods.
    Targets(Vec<String>),
}

/// The next transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// An action leads to another phase; the text is the action's message.
    Enter(Phase, &'static str),
    /// The state of the pods leads to another phase.
    Settle(Phase),
    Stay,
}

pub(super) fn step(view: &View<'_>, action: &Action) -> Step {
    let restarts = matches!(
        action,
        Action::RestartJob | Action::RestartTask | Action::RestartPod | Action::RestartPartition
    );
    match view.phase {
        Phase::Pending | Phase::Running => match action {
            _ if restarts => Step::Enter(Phase::Restarting, action.as_str()),
            Action::AbortJob => Step::Enter(Phase::Aborting, action.as_str()),
            Action::CompleteJob => Step::Enter(Phase::Completing, action.as_str()),
            Action::TerminateJob => Step::Enter(Phase::Terminating, action.as_str()),
            _ if view.phase == Phase::Pending => pending(view),
            _ => running(view),
        },
        Phase::Restarting => restarting(view),
        Phase::Aborting | Phase::Aborted if *action == Action::ResumeJob => {
            Step::Enter(Phase::Restarting, action.as_str())
        }
        Phase::Aborting => settle(view, Phase::Aborted),
        Phase::Completing => settle(view, Phase::Completed),
        Phase::Terminating => settle(view, Phase::Terminated),
        Phase::Aborted | Phase::Completed | Phase::Terminated | Phase::Failed => Step::Stay,
    }
}

fn pending(view: &View<'_>) -> Step {
    let counts = view.counts();
    let started = counts.running + counts.succeeded + counts.failed;
    if view.total() > 0 && view.min_available <= started && started > 0 {
        return Step::Settle(Phase::Running);
    }
    Step::Stay
}

fn running(view: &View<'_>) -> Step {
    let (counts, total) = (view.counts(), view.total());
    if total == 0 {
        return Step::Stay;
    }
    if view.rules.is_some() {
        // The rules decide whether the attempt is over.
        let short = counts.pending > total.saturating_sub(view.min_available);
        return if short { Step::Settle(Phase::Pending) } else { Step::Stay };
    }
    let min_success = view.job.spec["minSuccess"].as_i64();
    if min_success.is_some_and(|min| counts.succeeded >= min) {
        return Step::Settle(Phase::Completed);
    }
    if counts.succeeded + counts.failed >= total {
        let tasks = fleet_resources::sum(view.tasks.iter().map(|task| task.min_available));
        let short = |task: &Task<'_>| view.tally(task).succeeded < task.min_available;
        let failed = (view.min_available >= tasks && view.tasks.iter().any(short))
            || min_success.is_some()
            || counts.succeeded < view.min_available;
        return Step::Settle(if failed { Phase::Failed } else { Phase::Completed });
    }
    if counts.pending > total.saturating_sub(view.min_available) {
        return Step::Settle(Phase::Pending);
    }
    Step::Stay
}

/// Leaves Restarting when enough of the old pods are gone; a job that was restarted too often ends.
fn restarting(view: &View<'_>) -> Step {
    let outgoing = view.pods.values().filter(|pod| !view.is_current(pod));
    if view.retries >= view.max_retry() {
        let alive = outgoing.filter(|pod| !pod.is_ended() && !pod.is_deleting()).count();
        return if alive == 0 { Step::Settle(Phase::Failed) } else { Step::Stay };
    }
    let (terminating, left): (Vec<_>, Vec<_>) = outgoing.partition(|pod| pod.is_deleting());
    let terminating = i64::try_from(terminating.len()).unwrap_or(i64::MAX);
    let min = view.job.status["minAvailable"].as_i64().unwrap_or(view.min_available);
    if left.is_empty() && view.total() - terminating >= min {
        return Step::Settle(Phase::Pending);
    }
    Step::Stay
}

fn settle(view: &View<'_>, next: Phase) -> Step {
    if view.pods.values().all(|pod| pod.is_ended() && !pod.is_deleting()) {
        return Step::Settle(next);
    }
    Step::Stay
}

/// Writes the phase, its time, and its condition (a phase entered again moves to the end of the list).
pub(super) fn enter(
    status: &mut Value,
    next: Phase,
    cause: Option<(&'static str, String)>,
    job: &Object,
    now: Timestamp,
) {
    let mut state = json!({"phase": next.as_str(), "lastTransitionTime": rfc3339(now)});
    if let Some((action, why)) = cause {
        state["reason"] = action.into();
        state["message"] = why.into();
    }
    status["state"] = state;
    let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|condition| condition["status"] != next.as_str());
    conditions.push(json!({"status": next.as_str(), "lastTransitionTime": rfc3339(now)}));
    status["conditions"] = conditions.into();
    if next.is_final()
        && let Some(created) = &job.metadata.creation_timestamp
    {
        let seconds = now.as_second().saturating_sub(created.0.as_second()).max(0);
        status["runningDuration"] = go_duration(seconds).into();
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

/// The pods that a targeted action deletes.
impl Due {
    pub fn targets(&self, view: &View<'_>) -> Kill {
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
