//! Plugin priority: jobs of higher priority first; they preempt those of lower priority in their queue.

use super::rules::{Rules, Taking};
use crate::group::Group;
use crate::ids::PodId;
use crate::pod::Status;
use crate::settings::{Action, ArgumentError, Hook, Settings};
use crate::state::State;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Priority;

impl Rules for Priority {
    const NAME: &'static str = "priority";
    const HOOKS: &'static [Hook] = &[Hook::JobOrder, Hook::JobStarving, Hook::Preemptable, Hook::Reclaimable];

    fn compile(_: &Settings<'_>) -> Result<Self, ArgumentError> {
        Ok(Self)
    }

    fn job_order(&self, _: &State, group: &Group) -> i64 {
        -group.input.priority
    }

    /// Any of its pods waits.
    fn starves(&self, group: &Group) -> bool {
        group.ready() + group.count(Status::Pipelined) < group.pods.len() as i64
    }

    fn victims(&self, state: &State, taking: Taking, candidates: &[PodId]) -> Option<Vec<PodId>> {
        if taking.action != Action::Preempt {
            return None;
        }
        let priority = |pod: PodId| state.group(state.pod(pod).group).input.priority;
        let own = priority(taking.taker);
        Some(candidates.iter().copied().filter(|pod| priority(*pod) < own).collect())
    }
}
