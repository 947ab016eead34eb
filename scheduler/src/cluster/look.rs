//! When a cycle may decide something without an event.

use super::Cluster;
use crate::ids::GroupId;
use crate::plugins::rules::On;
use crate::settings::{Action, Hook};
use crate::usage::STALE_AFTER_S;

impl Cluster {
    /// The next time, in seconds since the epoch, at which a cycle may decide something that it could not before:
    /// an answer of the extender or a measurement expires, a cooldown ends, a zone opens or closes, a group has
    /// waited for its time, pods are to be moved.
    pub fn next_look(&self) -> Option<i64> {
        let plugins = &self.policy.plugins;
        let cooling = plugins.cdp.is_some().then(|| self.cooling.first()).flatten();
        let zones = plugins.tdm.as_ref().and_then(|on| on.rules.next(self.now));
        let moves = plugins.rescheduling.as_ref().filter(|_| self.policy.has(Action::Shuffle));
        let stale = self.oldest_load.filter(|_| plugins.usage.is_some());
        [
            self.next_word_ends(),
            cooling.map(|(until, _)| *until),
            zones,
            moves.map(|on| on.rules.next(&self.state)),
            stale.map(|at| at + STALE_AFTER_S + 1),
            self.next_due,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Notes when the first group that waits for admission has waited for its time.
    pub(crate) fn note_next_due(&mut self) {
        self.next_due = None;
        let Some(sla) = On::at(&self.policy.plugins.sla, Hook::JobEnqueued) else { return };
        let waiting = self.queue_ids().flat_map(|id| self.queue(id).pending.iter().map(|(_, group)| *group));
        let due = |id: GroupId| sla.due(self.group(id));
        self.next_due = waiting.map(due).filter(|due| *due > self.now && *due < i64::MAX).min();
    }
}
