//! A job, from its binding and its place in a queue.

use fleet_policies::reason::Reason;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    amounts::GPU,
    facts::{BindingFacts, Id, UnitFacts},
};

/// The state of a job, as users see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub enum State {
    Waiting,
    /// Bound to a cluster, and not yet reported as running.
    Starting,
    Running,
    Succeeded,
    Failed,
    Stopped,
}

impl State {
    pub const ALL: [Self; 6] =
        [Self::Waiting, Self::Starting, Self::Running, Self::Succeeded, Self::Failed, Self::Stopped];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "Waiting",
            Self::Starting => "Starting",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Stopped => "Stopped",
        }
    }

    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str().eq_ignore_ascii_case(text))
    }

    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Stopped)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub id: Id,
    pub binding: BindingFacts,
    pub unit: Option<UnitFacts>,
}

impl Job {
    pub fn namespace(&self) -> &str {
        &self.id.0
    }

    pub fn name(&self) -> &str {
        &self.binding.name
    }

    pub fn state(&self) -> State {
        let binding = &self.binding;
        if let Some(end) = &binding.end {
            return match (end.is_success, end.reason.as_deref()) {
                (true, _) => State::Succeeded,
                (false, Some(reason)) if reason == Reason::Stopped.as_str() => State::Stopped,
                (false, _) => State::Failed,
            };
        }
        if binding.clusters.is_empty() {
            return State::Waiting;
        }
        let started = binding.run.as_ref().is_some_and(|run| run.started_s.is_some());
        // Workloads that run until they are deleted have no runs.
        if started || !binding.is_job || self.unit.as_ref().is_some_and(|unit| unit.runs) {
            State::Running
        } else {
            State::Starting
        }
    }

    pub fn queue(&self) -> &str {
        self.unit.as_ref().map_or("", |unit| unit.queue.as_str())
    }

    /// The first of its clusters; a gang has one.
    pub fn cluster(&self) -> &str {
        match &self.binding.end {
            Some(end) => &end.cluster,
            None => self.binding.clusters.first().map_or("", String::as_str),
        }
    }

    /// Where it is, or where it ended.
    pub fn clusters(&self) -> impl Iterator<Item = &str> {
        let end = self.binding.end.as_ref().map(|end| end.cluster.as_str());
        let bound = self.binding.clusters.iter().filter(move |_| end.is_none()).map(String::as_str);
        end.filter(|cluster| !cluster.is_empty()).into_iter().chain(bound)
    }

    pub fn is_in(&self, cluster: &str) -> bool {
        self.clusters().any(|one| one == cluster)
    }

    pub fn gpus(&self) -> i64 {
        self.binding.requests.get(GPU).copied().unwrap_or(0)
    }

    /// Since when the job has been in its state; of a running job, when it was first reported as running.
    pub fn since_s(&self) -> i64 {
        let binding = &self.binding;
        match self.state() {
            State::Waiting => {
                binding.attempts.iter().map(|attempt| attempt.ended_s).max().unwrap_or(binding.created_s)
            }
            State::Starting => binding.run.as_ref().map_or(binding.created_s, |run| run.since_s),
            State::Running => {
                let started = binding.run.as_ref().and_then(|run| run.started_s);
                started.unwrap_or(binding.created_s)
            }
            State::Succeeded | State::Failed | State::Stopped => {
                binding.end.as_ref().map_or(binding.created_s, |end| end.at_s)
            }
        }
    }

    /// Reason and message of its state: why it waits, or why it ended; empty if there is nothing to report.
    pub fn said(&self) -> (&str, &str) {
        if let Some(end) = &self.binding.end {
            return (end.reason.as_deref().unwrap_or(""), end.message.as_deref().unwrap_or(""));
        }
        if self.state() != State::Waiting {
            let lost = self.binding.run.as_ref().is_some_and(|run| run.lost_since_s.is_some());
            return if lost {
                (Reason::WaitingForFence.as_str(), Reason::ClusterNotReady.describe())
            } else {
                ("", "")
            };
        }
        let said = self.unit.as_ref().and_then(|unit| unit.said.as_ref());
        match said.filter(|said| !said.reason.is_empty()).or(self.binding.unscheduled.as_ref()) {
            Some(said) => (&said.reason, &said.message),
            None => (Reason::Queuing.as_str(), Reason::Queuing.describe()),
        }
    }

    /// Waits in its queue, by the queue's own count.
    pub fn waits_in_queue(&self) -> bool {
        self.binding.end.is_none() && self.unit.as_ref().is_some_and(|unit| unit.waits)
    }
}
