//! What tests ask of the planner, and tell it.

use std::collections::BTreeSet;

use super::state::Planner;
use crate::names::JobId;
use crate::queues::{ClassId, Stop};

impl Planner {
    /// Entries that whoever frees quota may have to walk.
    pub(crate) fn listed_under_limits(&self) -> usize {
        self.index.bounds.values().map(BTreeSet::len).sum()
    }

    /// As if nobody had been refused what is reserved. The first job of each class that was.
    pub(crate) fn forget_kept(&mut self) -> BTreeSet<JobId> {
        let kept =
            |id: &ClassId| matches!(self.queues.class(*id).map(|class| &class.stop), Some(Stop::Kept(_)));
        let classes: BTreeSet<ClassId> = self.queues.class_ids().into_iter().filter(kept).collect();
        let fronts = self.queues.lines().flat_map(|(_, line)| &line.fronts);
        let jobs =
            fronts.filter(|(_, class)| classes.contains(class)).map(|(key, _)| key.id.clone()).collect();
        self.wake_kept();
        jobs
    }

    /// The first jobs of the classes that the limit on searches has left out; none if the last plan has searched for all.
    pub(crate) fn unsearched(&self) -> BTreeSet<JobId> {
        let fronts = self.queues.lines().flat_map(|(_, line)| &line.fronts);
        let left_out = |class: &ClassId| !self.searched.contains(class) && self.missed(*class).is_none();
        let left_out = fronts.filter(|(_, class)| !self.searched.is_empty() && left_out(class));
        left_out.map(|(key, _)| key.id.clone()).collect()
    }

    /// As if so many jobs had been preempted by share at this time.
    pub(crate) fn note_shared(&mut self, at_ms: i64, times: usize) {
        self.shared.extend(std::iter::repeat_n(at_ms, times));
    }
}
