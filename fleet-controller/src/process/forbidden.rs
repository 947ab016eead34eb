//! Writes that the controller has no right to make.

use std::time::Duration;

use fleet_hub_core::{events, world::Dirty};
use fleet_policies::reason::Reason;

use super::{Process, lane::Lane};

/// First back-off after a forbidden write; doubles up to the longest one.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest back-off: somebody must grant the right.
const PAUSE_MAX: Duration = Duration::from_secs(60);

impl Process {
    /// Reports a missing right: in the log for the administrator, and as an event for the job's owner.
    /// Returns the lane's back-off. A full quota also answers with 403; a terminating namespace is told apart.
    pub(super) fn tell_forbidden(&mut self, lane: &Lane, message: &str) -> Duration {
        let failures = self.failures.entry(lane.clone()).or_insert(0);
        *failures += 1;
        let pause = (PAUSE * (1 << (*failures - 1).min(6))).min(PAUSE_MAX);
        let is_first = *failures == 1;
        self.options.metrics.forbidden();
        tracing::error!(?lane, failures, %message, "the hub forbids a write; is a rule of the controller's role missing?");
        if let (true, Lane::Place(key) | Lane::Reconcile(Dirty::Binding(key))) = (is_first, lane)
            && let Some(entry) = self.world.bindings.get(key)
        {
            let (subject, now) = (entry.object_subject(), self.options.clock.now());
            let event = events::warning(&subject, entry.source(), Reason::WriteForbidden, message, now);
            self.send(Lane::Events, vec![event]);
        }
        pause
    }
}
