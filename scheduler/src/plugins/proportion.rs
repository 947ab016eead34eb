//! Plugin proportion: queues share the cluster by weight; what each deserves follows from what its pods request.
//!
//! The shares are computed in `shares`, which reads which hooks are on.

use super::rules::{Rules, Taking};
use crate::ids::PodId;
use crate::settings::{Action, ArgumentError, Hook, Settings};
use crate::state::State;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proportion;

impl Rules for Proportion {
    const NAME: &'static str = "proportion";
    const HOOKS: &'static [Hook] = &[
        Hook::QueueOrder,
        Hook::Overused,
        Hook::Allocatable,
        Hook::Preemptive,
        Hook::JobEnqueued,
        Hook::Reclaimable,
    ];

    fn compile(_: &Settings<'_>) -> Result<Self, ArgumentError> {
        Ok(Self)
    }

    /// Candidates are of queues over their share already.
    fn victims(&self, _: &State, taking: Taking, candidates: &[PodId]) -> Option<Vec<PodId>> {
        (taking.action == Action::Reclaim).then(|| candidates.to_vec())
    }
}
