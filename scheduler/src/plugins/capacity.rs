//! Plugin capacity: queues deserve what their objects say, in a tree if its hierarchy is on.
//!
//! The shares are computed in `shares`, which reads which hooks are on.

use super::rules::{Rules, Taking};
use crate::ids::PodId;
use crate::settings::{Action, ArgumentError, Hook, Settings};
use crate::state::State;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// How many queues above a victim's must hold more than they deserve, too.
    pub ancestor_reclaim_level: usize,
}

impl Rules for Capacity {
    const NAME: &'static str = "capacity";
    const ARGUMENTS: &'static [&'static str] = &["ancestorReclaimLevel"];
    const HOOKS: &'static [Hook] = &[
        Hook::QueueOrder,
        Hook::Hierarchy,
        Hook::Allocatable,
        Hook::Preemptive,
        Hook::JobEnqueued,
        Hook::Reclaimable,
    ];

    fn compile(settings: &Settings<'_>) -> Result<Self, ArgumentError> {
        let level = settings.from_zero("ancestorReclaimLevel", 0)?;
        Ok(Self { ancestor_reclaim_level: usize::try_from(level).unwrap_or(0) })
    }

    /// Candidates are of queues over what they deserve already.
    fn victims(&self, _: &State, taking: Taking, candidates: &[PodId]) -> Option<Vec<PodId>> {
        (taking.action == Action::Reclaim).then(|| candidates.to_vec())
    }
}
