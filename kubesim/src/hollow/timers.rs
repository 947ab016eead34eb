//! Timers: one ordered map instead of a sleeping task per pod.

use std::collections::BTreeMap;

use tokio::time::Instant;

/// Values by the instant at which they are due; equal instants keep the order of insertion.
#[derive(Debug)]
pub struct Timers<T> {
    due: BTreeMap<(Instant, u64), T>,
    inserted: u64,
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Self { due: BTreeMap::new(), inserted: 0 }
    }
}

impl<T> Timers<T> {
    pub fn insert(&mut self, at: Instant, value: T) {
        self.inserted += 1;
        self.due.insert((at, self.inserted), value);
    }

    /// The next instant at which something is due.
    pub fn next(&self) -> Option<Instant> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes one value that is due by `now`.
    pub fn pop_due(&mut self, now: Instant) -> Option<T> {
        let entry = self.due.first_entry()?;
        if entry.key().0 > now {
            return None;
        }
        Some(entry.remove())
    }
}
