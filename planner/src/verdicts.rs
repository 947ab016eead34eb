//! The last reported reason of each waiting job.
//!
//! What stops the first job of a class stops its equals. The first job's reason is updated at once and
//! exactly. The others get the same reason when they join the class, and updates later, a bounded number at a
//! time, when the class waits for something else.

use std::collections::{BTreeMap, BTreeSet};

use fleet_policies::reason::Reason;
use fleet_quota::{JobId, NodeId};

use crate::{decision::earliest, job::Waiting};

/// Jobs updated in one plan because their class waits for something else.
const SWEPT: usize = 256;
/// Least time between two updates of a class.
const SWEEP_PAUSE_MS: i64 = 30_000;

/// Equal jobs of one leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClassId {
    pub leaf: NodeId,
    pub shape: u64,
    pub preemptible: bool,
}

#[derive(Clone, Debug, Default)]
struct Class {
    members: BTreeSet<JobId>,
    waiting: Option<Waiting>,
    /// The reason reported to its members, and when.
    told: Option<(Reason, i64)>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Verdicts {
    of_job: BTreeMap<JobId, Waiting>,
    by_reason: BTreeMap<Reason, i64>,
    classes: BTreeMap<ClassId, Class>,
    /// Jobs that joined since the last plan.
    joined: BTreeMap<JobId, ClassId>,
    /// Classes whose members need an update, from this one on.
    stale: BTreeMap<ClassId, Option<JobId>>,
    told: BTreeSet<JobId>,
    /// Running jobs of which some pods wait, and why.
    partial: BTreeMap<JobId, Waiting>,
    next_sweep_ms: Option<i64>,
}

impl Verdicts {
    pub fn get(&self, id: &JobId) -> Option<&Waiting> {
        self.of_job.get(id)
    }

    /// Why some pods of a running job wait.
    pub fn partial(&self, id: &JobId) -> Option<&Waiting> {
        self.partial.get(id)
    }

    /// Why some pods of a running job wait; `None` if none does.
    pub fn tell_partial(&mut self, id: &JobId, waiting: Option<Waiting>) {
        if self.partial.get(id) == waiting.as_ref() {
            return;
        }
        match waiting {
            Some(waiting) => drop(self.partial.insert(id.clone(), waiting)),
            None => drop(self.partial.remove(id)),
        }
        self.told.insert(id.clone());
    }

    /// Jobs for which [`Self::tell_partial`] gave a reason.
    pub fn partials(&self) -> impl Iterator<Item = &JobId> {
        self.partial.keys()
    }

    pub fn tell(&mut self, id: &JobId, waiting: Waiting) {
        if self.of_job.get(id) != Some(&waiting) {
            *self.by_reason.entry(waiting.reason).or_default() += 1;
            let before = self.of_job.insert(id.clone(), waiting);
            self.uncount(before);
            self.told.insert(id.clone());
        }
    }

    /// Number of waiting jobs by reason.
    pub fn by_reason(&self) -> &BTreeMap<Reason, i64> {
        &self.by_reason
    }

    fn uncount(&mut self, waiting: Option<Waiting>) {
        let Some(reason) = waiting.map(|waiting| waiting.reason) else { return };
        if let Some(count) = self.by_reason.get_mut(&reason) {
            *count -= 1;
            if *count == 0 {
                self.by_reason.remove(&reason);
            }
        }
    }

    pub fn join(&mut self, id: &JobId, class: ClassId) {
        self.classes.entry(class).or_default().members.insert(id.clone());
        if !self.of_job.contains_key(id) {
            self.joined.insert(id.clone(), class);
        }
    }

    pub fn leave(&mut self, id: &JobId, class: ClassId) {
        self.joined.remove(id);
        if let Some(known) = self.classes.get_mut(&class) {
            known.members.remove(id);
            if known.members.is_empty() {
                self.classes.remove(&class);
                self.stale.remove(&class);
            }
        }
    }

    /// The job no longer waits.
    pub fn remove(&mut self, id: &JobId) {
        let before = self.of_job.remove(id);
        self.uncount(before);
        self.told.remove(id);
        self.joined.remove(id);
    }

    /// The leaves got other ids.
    pub fn forget_classes(&mut self) {
        self.classes.clear();
        self.stale.clear();
        self.joined.clear();
    }

    /// Records what stops the first job of the class.
    pub fn tell_class(&mut self, id: ClassId, waiting: &Waiting) {
        let Some(class) = self.classes.get_mut(&id) else { return };
        if class.waiting.as_ref() != Some(waiting) {
            class.waiting = Some(waiting.clone());
        }
        match class.told {
            None => class.told = Some((waiting.reason, i64::MIN)),
            Some((reason, _)) if reason != waiting.reason => {
                self.stale.entry(id).or_insert(None);
            }
            Some(_) => {
                self.stale.remove(&id);
            }
        }
    }

    /// Jobs whose reason changed since the last call.
    pub fn take_told(&mut self, now_ms: i64) -> BTreeSet<JobId> {
        for (id, class) in std::mem::take(&mut self.joined) {
            if self.of_job.contains_key(&id) {
                continue;
            }
            let known = self.classes.get(&class).and_then(|class| class.waiting.clone());
            let waiting = known.unwrap_or_else(|| {
                Waiting::new(Reason::Queuing, "the job waits in its queue and was not considered yet")
            });
            self.tell(&id, waiting);
        }
        self.sweep(now_ms);
        std::mem::take(&mut self.told)
    }

    /// When a class is due for an update; `None` if none is.
    pub fn next_sweep_ms(&self) -> Option<i64> {
        self.next_sweep_ms
    }

    fn sweep(&mut self, now_ms: i64) {
        self.next_sweep_ms = None;
        let mut left = SWEPT;
        for (id, after) in std::mem::take(&mut self.stale) {
            let Some(class) = self.classes.get_mut(&id) else { continue };
            let Some(waiting) = class.waiting.clone() else { continue };
            let due = class.told.map_or(i64::MIN, |(_, at)| at.saturating_add(SWEEP_PAUSE_MS));
            if after.is_none() && due > now_ms {
                self.next_sweep_ms = earliest(self.next_sweep_ms, Some(due));
                self.stale.insert(id, None);
                continue;
            }
            let range = match &after {
                Some(after) => class
                    .members
                    .range::<JobId, _>((std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded)),
                None => class.members.range::<JobId, _>(..),
            };
            let next: Vec<JobId> = range.take(left).cloned().collect();
            left -= next.len();
            if left == 0 {
                self.stale.insert(id, next.last().cloned().or(after));
                self.next_sweep_ms = Some(now_ms);
            } else {
                class.told = Some((waiting.reason, now_ms));
            }
            for member in next {
                self.tell(&member, waiting.clone());
            }
        }
    }
}
