//! The last reported reason of each waiting job.
//!
//! What stops the first job of a class stops its equals. The first job's reason is updated at once and
//! exactly. The others get the same reason when they join the class, and updates later, a bounded number at a
//! time, when the class waits for something else.
//!
//! Some reasons hold for the first jobs of a class only: capacity is free, and reserved for another job, or in no
//! cluster. Those behind for whom quota would not suffice wait for quota before and after, and are told nothing.

use std::collections::{BTreeMap, BTreeSet};

use fleet_policies::reason::Reason;
use fleet_quota::JobId;
use fleet_quota_tree::NodeId;

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
    pub run_time_ms: Option<i64>,
}

#[derive(Clone, Debug, Default)]
struct Class {
    members: BTreeSet<JobId>,
    waiting: Option<Waiting>,
    /// The reason reported to its members, and when.
    told: Option<(Reason, i64)>,
    /// Its first members, if they were told something else.
    first: BTreeSet<JobId>,
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
    /// Jobs that wait for something of their own, until they are candidates again.
    own: BTreeMap<JobId, ClassId>,
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
            known.first.remove(id);
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
        self.own.remove(id);
    }

    /// The leaves got other ids.
    pub fn forget_classes(&mut self) {
        self.classes.clear();
        self.stale.clear();
        self.joined.clear();
        self.own.clear();
    }

    /// The first job of each class.
    pub fn first_of_classes(&self) -> Vec<JobId> {
        self.classes.values().filter_map(|class| class.members.first().cloned()).collect()
    }

    /// Number of jobs of the class; 0 if nothing is known yet of what stops them.
    pub fn told_in(&self, id: ClassId) -> usize {
        self.classes.get(&id).filter(|class| class.told.is_some()).map_or(0, |class| class.members.len())
    }

    /// Records what stops only these, the first jobs of the class.
    pub fn tell_first(&mut self, id: ClassId, waiting: &Waiting, first: BTreeSet<JobId>) {
        let Some(class) = self.classes.get_mut(&id) else { return };
        let first: BTreeSet<JobId> = first.into_iter().filter(|id| class.members.contains(id)).collect();
        let before = std::mem::replace(&mut class.first, first.clone());
        let behind = class.waiting.clone();
        for member in before.difference(&first) {
            behind.iter().for_each(|behind| self.tell_member(member, behind));
        }
        for member in &first {
            self.tell_member(member, waiting);
        }
    }

    /// Records what stops one job, for as long as it is no candidate.
    pub fn tell_own(&mut self, id: &JobId, class: Option<ClassId>, waiting: Waiting) {
        self.tell(id, waiting);
        self.own.extend(class.map(|class| (id.clone(), class)));
    }

    /// Jobs that were told something of their own and are candidates now wait for what stops their class.
    pub fn end_own(&mut self, is_candidate: impl Fn(&JobId) -> bool) {
        let over: Vec<(JobId, ClassId)> = self.own.extract_if(.., |id, _| is_candidate(id)).collect();
        for (id, class) in over {
            let own = self.of_job.get(&id).is_some_and(|told| {
                told.claim.is_some() || matches!(told.reason, Reason::WaitingForVictims | Reason::Backoff)
            });
            let waiting = self.classes.get(&class).and_then(|class| class.waiting.clone());
            if let Some(waiting) = waiting.filter(|_| own) {
                self.tell(&id, waiting);
            }
        }
    }

    /// Another reason for a member; the same one with other numbers is no news.
    fn tell_member(&mut self, id: &JobId, waiting: &Waiting) {
        let same = self.of_job.get(id).is_some_and(|told| told.reason == waiting.reason);
        if !same && !self.own.contains_key(id) {
            self.tell(id, waiting.clone());
        }
    }

    /// Records what stops the first job of the class, and all others.
    pub fn tell_class(&mut self, id: ClassId, waiting: &Waiting) {
        let Some(class) = self.classes.get_mut(&id) else { return };
        if class.waiting.as_ref() != Some(waiting) {
            class.waiting = Some(waiting.clone());
        }
        let first = std::mem::take(&mut class.first);
        first.iter().for_each(|member| self.tell_member(member, waiting));
        let Some(class) = self.classes.get_mut(&id) else { return };
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

    /// Jobs whose reason changed since the last call. A blocked one keeps its own.
    pub fn take_told(&mut self, now_ms: i64, is_blocked: impl Fn(&JobId) -> bool) -> BTreeSet<JobId> {
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
        self.sweep(now_ms, is_blocked);
        std::mem::take(&mut self.told)
    }

    /// When a class is due for an update; `None` if none is.
    pub fn next_sweep_ms(&self) -> Option<i64> {
        self.next_sweep_ms
    }

    fn sweep(&mut self, now_ms: i64, is_blocked: impl Fn(&JobId) -> bool) {
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
            let first = class.first.clone();
            for member in next.iter().filter(|member| !first.contains(*member) && !is_blocked(member)) {
                self.tell_member(member, &waiting);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_class_have_their_own_reason_and_the_others_keep_theirs() {
        let class = ClassId { leaf: NodeId::ROOT, shape: 1, preemptible: true, run_time_ms: None };
        let ids: Vec<JobId> = ["a", "b", "c"].map(JobId::new).to_vec();
        let mut verdicts = Verdicts::default();
        let take = |verdicts: &mut Verdicts| -> Vec<String> {
            verdicts.take_told(0, |_| false).iter().map(ToString::to_string).collect()
        };
        for id in &ids {
            verdicts.join(id, class);
        }
        let short = Waiting::new(Reason::InsufficientQuota, "used 3 of 4");
        let claimed = Waiting::new(Reason::Claimed, "reserved");
        verdicts.tell_class(class, &short);
        assert_eq!(
            (take(&mut verdicts), verdicts.told_in(class)),
            (["a", "b", "c"].map(str::to_string).to_vec(), 3)
        );
        verdicts.tell_first(class, &claimed, BTreeSet::from([ids[0].clone()]));
        assert_eq!(take(&mut verdicts), ["a"]);
        // The next one is first now.
        verdicts.tell_first(class, &claimed, BTreeSet::from([ids[1].clone()]));
        assert_eq!(take(&mut verdicts), ["a", "b"]);
        let reason = |verdicts: &Verdicts, at: usize| verdicts.get(&ids[at]).map(|told| told.reason);
        assert_eq!(reason(&verdicts, 0), Some(Reason::InsufficientQuota));
        assert_eq!(reason(&verdicts, 1), Some(Reason::Claimed));
        // The same reason with other numbers is no news, but for the one whose reason changes.
        verdicts.tell_class(class, &Waiting::new(Reason::InsufficientQuota, "used 2 of 4"));
        assert_eq!(take(&mut verdicts), ["b"]);
    }

    #[test]
    fn a_job_that_waits_for_something_of_its_own_is_told_of_its_class_when_that_is_over() {
        let class = ClassId { leaf: NodeId::ROOT, shape: 1, preemptible: true, run_time_ms: None };
        let (own, other) = (JobId::new("own"), JobId::new("other"));
        let mut verdicts = Verdicts::default();
        verdicts.join(&own, class);
        verdicts.join(&other, class);
        verdicts.tell_class(class, &Waiting::new(Reason::InsufficientQuota, "used 3 of 4"));
        verdicts.take_told(0, |_| false);
        verdicts.tell_own(&own, Some(class), Waiting::new(Reason::Backoff, "gave up"));
        verdicts.tell_class(class, &Waiting::new(Reason::MaxJobs, "3 of 3"));
        verdicts.take_told(100_000, |_| false);
        let reason = |verdicts: &Verdicts, id: &JobId| verdicts.get(id).map(|told| told.reason);
        assert_eq!(reason(&verdicts, &other), Some(Reason::MaxJobs));
        assert_eq!(reason(&verdicts, &own), Some(Reason::Backoff));
        verdicts.end_own(|_| true);
        assert_eq!(reason(&verdicts, &own), Some(Reason::MaxJobs));
    }
}
