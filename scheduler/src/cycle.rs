//! A cycle: runs the configured actions, and collects their decisions.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::Cluster;
use crate::ids::{GroupId, NodeId, PodId};
use crate::plugins::drf;
use crate::pod::Status;
use crate::settings::Action;

/// Limits of one cycle, so that events are handled between two.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most groups, or single pods of started groups, that are tried.
    pub turns: usize,
    /// Searches for victims.
    pub takes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { turns: 8_192, takes: 16 }
    }
}

/// One pod to evict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Eviction {
    pub pod: PodId,
    /// For which group; `None`: for no other (its node was revoked).
    pub taker: Option<GroupId>,
    pub action: Action,
}

/// The decisions of a cycle; all of them are counted already.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Pods to bind, group by group.
    pub bound: Vec<(GroupId, Vec<(PodId, NodeId)>)>,
    pub evicted: Vec<Eviction>,
    /// The former status of victims.
    pub(crate) stood: BTreeMap<PodId, Status>,
    /// The limits were reached: run the next cycle at once.
    pub more: bool,
}

impl Outcome {
    pub(crate) fn bind(&mut self, group: GroupId, pods: Vec<(PodId, NodeId)>) {
        match self.bound.last_mut() {
            Some((last, known)) if *last == group => known.extend(pods),
            _ if pods.is_empty() => {}
            _ => self.bound.push((group, pods)),
        }
    }
}

impl Cluster {
    /// Runs the actions in their order at `now` (seconds since the epoch).
    pub fn cycle(&mut self, now: i64, limits: &Limits) -> Outcome {
        let mut outcome = Outcome::default();
        let minute = now.rem_euclid(86_400) / 60;
        if self.policy.plugins.tdm.is_some() && self.minute != minute {
            self.freed();
        }
        self.minute = minute;
        self.set_now(now);
        self.refresh_usual();
        self.forget_old_loads(now);
        self.forget_old_answers(now);
        self.refresh();
        self.refresh_shares();
        self.settle_promises(&mut outcome);
        if !self.policy.has(Action::Enqueue) {
            self.admit_all();
        }
        for action in self.policy.actions.clone() {
            self.refresh();
            self.refresh_shares();
            self.refresh_fair();
            match action {
                Action::Enqueue => self.enqueue(now),
                Action::Allocate => self.allocate(limits, &mut outcome),
                Action::Backfill => self.backfill(&mut outcome),
                Action::Preempt | Action::Reclaim => {
                    self.take(action, limits, &mut outcome);
                    self.settle_promises(&mut outcome);
                }
                Action::Shuffle => self.shuffle(&mut outcome),
            }
        }
        self.spare_the_untaken(&mut outcome);
        self.refresh();
        self.claim_for_the_bypassed();
        self.note_next_due();
        outcome
    }

    /// Updates the order of queues along drf's tree; returns whether any queue's position may have changed.
    pub(crate) fn refresh_fair(&mut self) -> bool {
        self.policy.queues.tree.is_some() && drf::refresh_tree(&mut self.state)
    }

    /// Without the action enqueue, every group is admitted as it comes.
    fn admit_all(&mut self) {
        for queue in self.queue_ids() {
            if self.queue(queue).closed_because().is_some() {
                continue;
            }
            let groups: BTreeSet<GroupId> = self.queue(queue).pending.iter().map(|(_, id)| *id).collect();
            for id in groups {
                self.set_phase(id, crate::group::Phase::Inqueue);
                self.refresh_group(id);
            }
        }
    }
}
