//! Timers: objects to reconcile at a later time.

use std::collections::BTreeMap;

use fleet_hub_core::world::Dirty;
use tokio::time::Instant;

#[derive(Debug, Default)]
pub(super) struct Timers {
    /// The number distinguishes timers of the same instant.
    timers: BTreeMap<(Instant, u64), Dirty>,
    count: u64,
    /// The next reconcile that each object asked for.
    wakes: BTreeMap<Dirty, Instant>,
    /// When each cluster becomes not ready or lost.
    deadlines: BTreeMap<String, Instant>,
}

impl Timers {
    pub(super) fn ring_at(&mut self, due: Instant, dirty: Dirty) {
        self.count += 1;
        self.timers.insert((due, self.count), dirty);
    }

    /// Sets when an object is to be reconciled next.
    pub(super) fn wake_at(&mut self, due: Instant, dirty: &Dirty) {
        // The earlier reconcile computes the later time again.
        if self.wakes.get(dirty).is_none_or(|known| due < *known) {
            self.wakes.insert(dirty.clone(), due);
            self.ring_at(due, dirty.clone());
        }
    }

    /// Sets the deadline of a cluster; `None` removes it.
    pub(super) fn set_deadline(&mut self, cluster: &str, due: Option<Instant>) {
        match due {
            Some(due) => self.deadlines.insert(cluster.to_string(), due),
            None => self.deadlines.remove(cluster),
        };
    }

    /// Takes the objects that are due.
    pub(super) fn take_due(&mut self, at: Instant) -> Vec<Dirty> {
        let mut found = Vec::new();
        while let Some(entry) = self.timers.first_entry().filter(|entry| entry.key().0 <= at) {
            let ((due, _), dirty) = entry.remove_entry();
            if self.wakes.get(&dirty) == Some(&due) {
                self.wakes.remove(&dirty);
            }
            found.push(dirty);
        }
        let late = self.deadlines.extract_if(.., |_, due| *due <= at);
        found.extend(late.map(|(cluster, _)| Dirty::Cluster(cluster)));
        found
    }

    pub(super) fn next(&self) -> Option<Instant> {
        let timer = self.timers.first_key_value().map(|((due, _), _)| *due);
        timer.into_iter().chain(self.deadlines.values().copied()).min()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn dirty(name: &str) -> Dirty {
        Dirty::Binding(("team".to_string(), name.to_string()))
    }

    #[test]
    fn what_is_due_comes_in_its_order_and_once() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut timers = Timers::default();
        timers.ring_at(at(20), dirty("b"));
        timers.ring_at(at(10), dirty("a"));
        timers.ring_at(at(10), dirty("c"));
        timers.set_deadline("east", Some(at(15)));
        assert_eq!(timers.next(), Some(at(10)));
        assert!(timers.take_due(at(9)).is_empty());
        assert_eq!(timers.take_due(at(10)), [dirty("a"), dirty("c")]);
        assert_eq!(timers.next(), Some(at(15)));
        assert_eq!(timers.take_due(at(20)), [dirty("b"), Dirty::Cluster("east".to_string())]);
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn of_the_looks_that_plans_ask_for_the_earliest_counts() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut timers = Timers::default();
        timers.wake_at(at(20), &dirty("a"));
        timers.wake_at(at(30), &dirty("a"));
        timers.wake_at(at(10), &dirty("a"));
        assert_eq!(timers.take_due(at(10)), [dirty("a")]);
        // The later one that was replaced still rings: a look too many does no harm, one too few would.
        assert_eq!(timers.take_due(at(40)), [dirty("a")]);
        timers.set_deadline("east", Some(at(50)));
        timers.set_deadline("east", None);
        assert_eq!(timers.next(), None);
    }
}
