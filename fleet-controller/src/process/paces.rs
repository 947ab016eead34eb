//! Delayed statuses and planner passes: until when, and when they happen at once.

use std::time::Duration;

use fleet_hub_core::{
    dispatch::{Pace, Step},
    world::Dirty,
    writes::Write,
};
use fleet_policies::WorkloadKind;
use tokio::time::Instant;

use super::{Process, lane::Lane, work_queue::Turn};

/// Delay of the progress of a run and of the reason for a wait.
const NEWS: Duration = Duration::from_millis(250);
/// Delay of an intermediate state.
const BETWEEN: Duration = Duration::from_secs(1);
/// With fewer writes in flight than this, progress of runs is written at once.
const QUIET: usize = 8;
/// How long a pass waits for bindings that are being made. Jobs created together are planned together: otherwise the
/// job whose binding is answered first would go first.
const TOGETHER: Duration = Duration::from_millis(50);

impl Process {
    /// The writes that are sent now. The others are computed again when they are due, from the state at that
    /// time.
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

    /// Whether bindings of workloads are being made, or are about to be.
    pub(super) fn is_claiming(&self) -> bool {
        let claims = |lane: &Lane| match lane {
            Lane::Reconcile(Dirty::Object(kind, _)) => kind.workload() != WorkloadKind::Other,
            _ => false,
        };
        self.work_queue.has(Turn::Claim) || self.busy.keys().any(claims)
    }

    /// Whether a pass that is due has waited long enough for bindings that are being made.
    pub(super) fn has_gathered(&mut self, at: Instant) -> bool {
        let has_gathered = !self.is_claiming() || *self.gathers.get_or_insert(at + TOGETHER) <= at;
        if has_gathered {
            self.gathers = None;
        }
        has_gathered
    }
}
