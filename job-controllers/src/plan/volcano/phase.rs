//! The ten phases of a Job.

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

/// Conditions that are kept: at most one per phase.
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
    /// An absent or unknown phase is that of a new job.
    pub fn read(text: Option<&str>) -> Self {
        let known = NAMES.iter().find(|(_, name)| Some(*name) == text);
        known.map_or(Self::Pending, |(phase, _)| *phase)
    }

    pub fn as_str(self) -> &'static str {
        NAMES.iter().find(|(phase, _)| *phase == self).map_or("", |(_, name)| name)
    }

    /// All of the job's pods are deleted when the phase is entered.
    pub fn is_whole_kill(self) -> bool {
        matches!(self, Self::Aborting | Self::Completing | Self::Terminating)
    }

    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Terminated | Self::Failed)
    }
}
