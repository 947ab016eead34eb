//! States as OpenPAI shows them.

use serde::{Deserialize, Serialize};

use crate::exit;

/// Of a job or a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum State {
    Waiting,
    Running,
    Stopping,
    Succeeded,
    Failed,
    Stopped,
    Unknown,
}

impl State {
    pub const ALL: [Self; 7] = [
        Self::Waiting,
        Self::Running,
        Self::Stopping,
        Self::Succeeded,
        Self::Failed,
        Self::Stopped,
        Self::Unknown,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "WAITING",
            Self::Running => "RUNNING",
            Self::Stopping => "STOPPING",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Stopped => "STOPPED",
            Self::Unknown => "UNKNOWN",
        }
    }

    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Stopped)
    }
}

/// The framework controller's states, of a job or a task; `subState` in lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SubState {
    AttemptCreationPending,
    AttemptCreationRequested,
    AttemptPreparing,
    AttemptRunning,
    AttemptDeletionPending,
    AttemptDeletionRequested,
    AttemptDeleting,
    AttemptCompleted,
    Completed,
}

/// What its owner wants of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ExecutionType {
    Start,
    Stop,
}

impl ExecutionType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "START",
            Self::Stop => "STOP",
        }
    }

    pub fn read(text: &str) -> Option<Self> {
        [Self::Start, Self::Stop].into_iter().find(|one| one.as_str() == text)
    }
}

/// What is shown. `delayed`: it is tried again after a while.
pub fn shown(state: SubState, code: Option<i64>, delayed: bool) -> State {
    let asked_for = matches!(code, Some(exit::STOP_REQUESTED | exit::ATTEMPT_COMPLETION));
    match state {
        SubState::AttemptCreationPending
        | SubState::AttemptCreationRequested
        | SubState::AttemptPreparing => State::Waiting,
        SubState::AttemptRunning => State::Running,
        SubState::AttemptDeletionPending | SubState::AttemptDeletionRequested | SubState::AttemptDeleting
            if asked_for =>
        {
            State::Stopping
        }
        SubState::AttemptCompleted if delayed => State::Waiting,
        SubState::AttemptDeletionPending
        | SubState::AttemptDeletionRequested
        | SubState::AttemptDeleting
        | SubState::AttemptCompleted => State::Running,
        SubState::Completed => match code {
            Some(exit::SUCCEEDED) => State::Succeeded,
            _ if asked_for => State::Stopped,
            _ => State::Failed,
        },
    }
}
