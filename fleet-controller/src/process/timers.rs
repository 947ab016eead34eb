//! When to look again, and when the loop wakes.

use std::time::Duration;

use fleet_hub_core::world::Dirty;
use jiff::Timestamp;
use tokio::time::Instant;

use super::{Lane, Process};

impl Process {
    pub(super) fn set_timer(&mut self, dirty: Dirty, at: Instant, now: Timestamp, wake: Timestamp) {
        let due = at + wake.duration_since(now).unsigned_abs();
        // The look at an earlier time finds out anew when it has to be looked at again.
        if self.wakes.get(&dirty).is_none_or(|known| due < *known) {
            self.wakes.insert(dirty.clone(), due);
            self.ring_at(due, dirty);
        }
    }

    pub(super) fn ring_at(&mut self, due: Instant, dirty: Dirty) {
        // The number keeps two timers of one instant apart.
        self.timer_count += 1;
        self.timers.insert((due, self.timer_count), dirty);
    }

    /// Marks what was to be looked at by now.
    pub(super) fn ring(&mut self, at: Instant) {
        if self.plan_due.is_some_and(|due| due <= at) {
            self.plan_due = None;
            self.world.schedule = true;
        }
        while let Some(((due, _), _)) = self.timers.first_key_value() {
            if *due > at {
                break;
            }
            if let Some(((due, _), dirty)) = self.timers.pop_first() {
                if self.wakes.get(&dirty) == Some(&due) {
                    self.wakes.remove(&dirty);
                }
                self.world.mark(dirty);
            }
        }
        let late: Vec<String> =
            self.deadlines.iter().filter(|(_, due)| **due <= at).map(|(name, _)| name.clone()).collect();
        for name in late {
            self.deadlines.remove(&name);
            self.world.mark(Dirty::Cluster(name));
        }
    }

    pub(super) fn next_wake(&self) -> Instant {
        let goes_on = self.unsorted.is_empty();
        let may_look =
            self.world.is_dirty() || (goes_on && !self.looks.is_empty() && self.backlog.is_empty());
        if may_look && self.listed {
            return Instant::now();
        }
        let idle = Instant::now() + Duration::from_secs(60);
        let pass = Some(self.rested).filter(|_| self.world.schedule && self.listed && goes_on);
        let timer = self.timers.first_key_value().map(|((due, _), _)| *due);
        let deadline = self.deadlines.values().min().copied();
        // A summary that is due waits for the one under way, whose answer wakes the loop.
        let summary = self.summary_due.filter(|_| goes_on && !self.busy.contains_key(&Lane::Summaries));
        let summary = summary.map(|due| due.max(self.summary_rested));
        let plan_due = self.plan_due.filter(|_| goes_on);
        [pass, plan_due, timer, deadline, summary].into_iter().flatten().min().unwrap_or(idle)
    }
}
