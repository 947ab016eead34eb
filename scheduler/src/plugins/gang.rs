//! Plugin gang: a job starts with its minimum or not at all, and is not evicted below it.

use std::collections::BTreeMap;

use super::rules::{Rules, Taking};
use crate::group::Group;
use crate::ids::{GroupId, PodId};
use crate::settings::{ArgumentError, Hook, Settings};
use crate::state::State;
use crate::sub_groups::Spare;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gang;

impl Rules for Gang {
    const NAME: &'static str = "gang";
    const HOOKS: &'static [Hook] =
        &[Hook::JobOrder, Hook::JobReady, Hook::JobStarving, Hook::Preemptable, Hook::Reclaimable];
    const REPAIRS_FIRST: bool = true;

    fn compile(_: &Settings<'_>) -> Result<Self, ArgumentError> {
        Ok(Self)
    }

    /// Jobs that miss pods come first.
    fn job_order(&self, _: &State, group: &Group) -> i64 {
        i64::from(group.ready() >= group.min())
    }

    fn starves(&self, group: &Group) -> bool {
        group.is_starving()
    }

    /// Pods beyond their gangs' minima, and those of their sub-groups.
    fn victims(&self, state: &State, taking: Taking, candidates: &[PodId]) -> Option<Vec<PodId>> {
        if taking.whole {
            return None;
        }
        let mut left: BTreeMap<GroupId, Spare> = BTreeMap::new();
        let mut found = candidates.to_vec();
        found.retain(|pod| {
            let pod = state.pod(*pod);
            let group = state.group(pod.group);
            left.entry(pod.group).or_insert_with(|| group.spare()).take(group, pod.sub_group)
        });
        Some(found)
    }
}
