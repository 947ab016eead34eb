//! The ten phases of a Job and what leads from one to the next.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Object, View, go_duration, policy::Action, stamp};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Pending,
    Running,
    Restarting,
    Aborting,
    Aborted,
    Completing,
    Completed,
    Terminating,
    Terminated,
    Failed,
}

/// Conditions kept: at most one per phase.
const NAMES: [(Phase, &str); 10] = [
    (Phase::Pending, "Pending"),
    (Phase::Running, "Running"),
    (Phase::Restarting, "Restarting"),
    (Phase::Aborting, "Aborting"),
    (Phase::Aborted, "Aborted"),
    (Phase::Completing, "Completing"),
    (Phase::Completed, "Completed"),
    (Phase::Terminating, "Terminating"),
    (Phase::Terminated, "Terminated"),
    (Phase::Failed, "Failed"),
];

impl Phase {
    /// An absent or unknown phase is that of a job nobody has looked at.
    pub fn read(text: Option<&str>) -> Self {
        let known = NAMES.iter().find(|(_, name)| Some(*name) == text);
        known.map_or(Self::Pending, |(phase, _)| *phase)
    }

    pub fn as_str(self) -> &'static str {
        NAMES.iter().find(|(phase, _)| *phase == self).map_or("", |(_, name)| name)
    }

    /// All of the job's pods go when the phase is entered.
    pub fn is_whole_kill(self) -> bool {
        matches!(self, Self::Aborting | Self::Completing | Self::Terminating)
    }

    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Terminated | Self::Failed)
    }
}

/// Whose pods a restart takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kill {
    Whole,
    /// Names of pods.
    Targets(Vec<String>),
}

/// What a look at the phase comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// An action leads to another phase; the text is the action's.
    Enter(Phase, &'static str),
    /// What stands leads to another phase.
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
        // Whether the attempt is over is the rules' to say.
        let short = counts.pending > total - view.min_available;
        return if short { Step::Settle(Phase::Pending) } else { Step::Stay };
    }
    let min_success = view.job.spec["minSuccess"].as_i64();
    if min_success.is_some_and(|min| counts.succeeded >= min) {
        return Step::Settle(Phase::Completed);
    }
    if counts.succeeded + counts.failed >= total {
        let tasks: i64 = view.tasks.iter().map(|task| task.min_available).sum();
        let short = |task: &super::Task<'_>| view.tally(task).succeeded < task.min_available;
        let failed = (view.min_available >= tasks && view.tasks.iter().any(short))
            || min_success.is_some()
            || counts.succeeded < view.min_available;
        return Step::Settle(if failed { Phase::Failed } else { Phase::Completed });
    }
    if counts.pending > total - view.min_available {
        return Step::Settle(Phase::Pending);
    }
    Step::Stay
}

/// Out of a restart when enough of the old pods are gone; a job that has been restarted too often ends.
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
    let mut state = json!({"phase": next.as_str(), "lastTransitionTime": stamp(now)});
    if let Some((action, why)) = cause {
        state["reason"] = action.into();
        state["message"] = why.into();
    }
    status["state"] = state;
    let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|condition| condition["status"] != next.as_str());
    conditions.push(json!({"status": next.as_str(), "lastTransitionTime": stamp(now)}));
    status["conditions"] = conditions.into();
    if next.is_final()
        && let Some(created) = &job.metadata.creation_timestamp
    {
        let seconds = now.as_second().saturating_sub(created.0.as_second()).max(0);
        status["runningDuration"] = go_duration(seconds).into();
    }
}
