//! Statuses that wait for what comes next: until when, and when at once.

use std::time::Duration;

use fleet_hub_core::{
    dispatch::{Pace, Step},
    world::Dirty,
    writes::Write,
};
use tokio::time::Instant;

use super::Process;

/// How long the news of a run and the reason of a wait are gathered.
const NEWS: Duration = Duration::from_millis(250);
/// How long a state between two others may go unsaid.
const BETWEEN: Duration = Duration::from_secs(1);
/// With fewer writes on their way than so many the hub has time: how a run fares is written at once.
const QUIET: usize = 8;

impl Process {
    /// The writes of a look that go now. What waits is planned again when its time has come, by what stands then.
    pub(super) fn paced(&mut self, dirty: &Dirty, step: Step, at: Instant) -> Vec<Write> {
        let Step { mut writes, later, .. } = step;
        let Some(pace) = later.iter().map(|(pace, _)| *pace).min() else {
            self.held.remove(dirty);
            return writes;
        };
        let is_quiet = self.flights.len() + self.backlog.len() < QUIET;
        let wait = match pace {
            Pace::Now => Duration::ZERO,
            Pace::Progress if is_quiet => Duration::ZERO,
            Pace::Progress | Pace::Reason => NEWS,
            Pace::Between => BETWEEN,
        };
        let known = self.held.get(dirty).copied();
        let due = known.map_or(at + wait, |known| known.min(at + wait));
        if due <= at {
            self.held.remove(dirty);
            writes.extend(later.into_iter().map(|(_, write)| write));
        } else if known != Some(due) {
            self.held.insert(dirty.clone(), due);
            self.timers.ring_at(due, dirty.clone());
        }
        writes
    }
}
