//! Writes for which the controller has no right.

use std::time::Duration;

use fleet_hub_core::{events, world::Dirty};
use fleet_policies::reason::Reason;

use super::{Process, lane::Lane};

/// First pause before what was forbidden is looked at again; doubles up to the longest one.
const PAUSE: Duration = Duration::from_secs(1);
/// What is missing is given by a person.
const PAUSE_MAX: Duration = Duration::from_secs(60);

impl Process {
    /// A right is missing: whoever installed the controller has to know, and the job's owner why nothing happens.
    /// Returns how long the lane rests; a quota that was full, or a namespace that ends, may be told the same way.
    pub(super) fn tell_forbidden(&mut self, lane: &Lane, message: &str) -> Duration {
        let failures = self.failures.entry(lane.clone()).or_insert(0);
        *failures += 1;
        let pause = (PAUSE * (1 << (*failures - 1).min(6))).min(PAUSE_MAX);
        let is_first = *failures == 1;
        self.options.metrics.forbidden();
        tracing::error!(?lane, failures, %message, "the hub forbids a write; is a rule of the controller's role missing?");
        if let (true, Lane::Place(key) | Lane::Look(Dirty::Binding(key))) = (is_first, lane)
            && let Some(entry) = self.world.bindings.get(key)
        {
            let (subject, now) = (entry.object_subject(), self.options.clock.now());
            let event = events::warning(&subject, entry.source(), Reason::WriteForbidden, message, now);
            self.send(Lane::Tell, vec![event]);
        }
        pause
    }
}
