//! Writes in flight, and the handling of their answers.

use std::time::Duration;

use fleet_hub_core::{
    world::Dirty,
    writes::{Target, Verb, Write},
};
use tokio::{task::JoinError, time::Instant};

use super::{
    Process, deletes,
    lane::{Flight, Lane},
};
use crate::writes::{self, Refused};

/// Pause before an object is reconciled again after a conflict.
const STALE_PAUSE: Duration = Duration::from_millis(20);
/// Conflicts in a row after which a warning is logged.
const STALE_TOLD: u32 = 8;
/// First back-off after a refused write; doubles up to the longest one.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);
/// Longest back-off after failed writes.
const RETRY_MAX: Duration = Duration::from_secs(10);
/// Pause between summaries, as a multiple of the time that their writes took.
const SUMMARY_REST: u32 = 8;

impl Process {
    pub(super) fn send(&mut self, lane: Lane, mut writes: Vec<Write>) {
        writes.retain(|write| self.deletes.note(&lane, write));
        if writes.is_empty() {
            return;
        }
        writes.iter().for_each(|write| self.intents.sent.note(write));
        *self.busy.entry(lane.clone()).or_insert(0) += writes.len();
        for write in writes {
            self.backlog.push(&lane, write);
        }
    }

    pub(super) fn launch(&mut self) {
        while self.flights.len() < self.options.writes_in_flight
            && let Some((lane, mut write)) = self.backlog.pop()
        {
            let hub = self.hub.clone();
            let then = std::mem::take(&mut write.then);
            let makes_work = write.target == Target::Work && matches!(write.verb, Verb::Create(_));
            let work = makes_work.then(|| (write.namespace.clone(), write.name.clone()));
            let deletes = deletes::uid_of(&write).map(str::to_string);
            self.flights.spawn(async move {
                let sent = match lane {
                    Lane::Place(_) => writes::send_until_known(&hub, write).await,
                    _ => writes::send(&hub, write).await.into(),
                };
                Flight { lane, work, deletes, then, sent }
            });
        }
    }

    pub(super) fn landed(&mut self, flight: Result<Flight, JoinError>) {
        let Flight { lane, work, deletes, then, sent } = match flight {
            Ok(flight) => flight,
            Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
            // The runtime is shutting down, and this loop with it.
            Err(_) => return,
        };
        if let Some(observation) = sent.observation {
            self.intents.observe(&mut self.world, observation);
        }
        // The cluster's namespace is gone, and everything in it.
        if let (Some(work), Some(Refused::Absent)) = (&work, &sent.refused)
            && let Some(binding) = self.intents.sent.heard(work)
            // That reconcile is repeated after a back-off.
            && lane != Lane::Reconcile(Dirty::Binding(binding.clone()))
        {
            self.world.mark(Dirty::Binding(binding));
        }
        let failed = deletes.filter(|_| !matches!(sent.refused, None | Some(Refused::Absent)));
        let others = failed.map(|uid| self.deletes.failed(&uid)).unwrap_or_default();
        match sent.refused {
            None => {
                self.failures.remove(&lane);
                self.send(Lane::Events, then);
            }
            Some(refused) => {
                let pause = self.pause_after(&lane, refused);
                self.rest(&lane, pause);
                others.iter().for_each(|other| self.rest(other, pause));
            }
        }
        self.leave(lane);
    }

    /// The back-off of a lane after a refusal.
    fn pause_after(&mut self, lane: &Lane, refused: Refused) -> Duration {
        if let Refused::Forbidden(message) = refused {
            return self.tell_forbidden(lane, &message);
        }
        let failures = self.failures.entry(lane.clone()).or_insert(0);
        *failures += 1;
        match refused {
            Refused::Stale | Refused::Absent => {
                if *failures == STALE_TOLD {
                    tracing::warn!(?lane, failures, "repeated conflicts: the object is gone or has changed");
                }
                (STALE_PAUSE * (1 << (*failures - 1).min(9))).min(RETRY_MAX)
            }
            Refused::Rejected(message)
            | Refused::Passing(message)
            | Refused::Unknown(message)
            | Refused::Forbidden(message) => {
                tracing::warn!(?lane, failures, %message, "a write was refused; retrying");
                (REFUSED_PAUSE * (1 << (*failures).min(10))).min(RETRY_MAX)
            }
        }
    }

    /// Reconciles the lane's object again after the back-off.
    fn rest(&mut self, lane: &Lane, pause: Duration) {
        let at = Instant::now() + pause;
        match lane {
            Lane::Reconcile(dirty) => self.timers.ring_at(at, dirty.clone()),
            Lane::Place(key) => {
                let now = self.options.clock.now();
                let until = now + jiff::SignedDuration::try_from(pause).unwrap_or_default();
                self.scheduler.hold(key, until, now);
                self.world.schedule = true;
                self.timers.ring_at(at, Dirty::Binding(key.clone()));
            }
            Lane::Summaries => self.summary_due = Some(at),
            // A refused event is not sent again.
            Lane::Events => drop(self.failures.remove(lane)),
        }
    }

    /// Counts down the lane's writes; after the last one, waiting reconciles go on.
    fn leave(&mut self, lane: Lane) {
        if let Some(count) = self.busy.get_mut(&lane) {
            *count -= 1;
            if *count > 0 {
                return;
            }
            self.busy.remove(&lane);
        }
        match lane {
            Lane::Reconcile(dirty) => {
                if self.again.remove(&dirty) {
                    self.world.mark(dirty);
                }
            }
            Lane::Place(key) => {
                self.scheduler.asked(&mut self.world, &self.intents, &key, self.options.clock.now());
                self.world.mark(Dirty::Binding(key));
            }
            // With many queues and a busy hub, summaries are a small part of all writes.
            Lane::Summaries => {
                let now = Instant::now();
                self.summary_rested = now + (now - self.summary_began) * SUMMARY_REST;
            }
            Lane::Events => {}
        }
    }
}
