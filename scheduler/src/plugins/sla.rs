//! Plugin sla: a job that has waited for its time goes before others, and is admitted whatever its queue holds.

use super::rules::Rules;
use crate::group::Group;
use crate::settings::{ArgumentError, Hook, Settings, duration_s};
use crate::state::State;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sla {
    /// For jobs that name no time of their own.
    pub wait_s: Option<i64>,
}

impl Rules for Sla {
    const NAME: &'static str = "sla";
    const ARGUMENTS: &'static [&'static str] = &["sla-waiting-time"];
    const HOOKS: &'static [Hook] = &[Hook::JobOrder, Hook::JobEnqueued];

    fn compile(settings: &Settings<'_>) -> Result<Self, ArgumentError> {
        let name = "sla-waiting-time";
        let wait_s = match settings.text(name) {
            None => None,
            Some(text) => Some(
                duration_s(text)
                    .ok_or_else(|| settings.error(name, text, "a duration such as 30m or 1h30m"))?,
            ),
        };
        Ok(Self { wait_s })
    }

    fn job_order(&self, _: &State, group: &Group) -> i64 {
        self.due(group)
    }
}

impl Sla {
    /// When the job has waited for its time, in seconds since the epoch.
    pub(crate) fn due(&self, group: &Group) -> i64 {
        let wait = group.input.sla_wait.or(self.wait_s);
        wait.map_or(i64::MAX, |wait| group.input.created.saturating_add(wait))
    }
}
