//! The work queue: objects to reconcile, in order of arrival.
//!
//! An object is reconciled only when its writes can be sent. Until then further changes of it are merged, so
//! a controller with a backlog writes only the newest state.

use std::collections::{BTreeMap, VecDeque};

use fleet_hub_core::world::Dirty;

/// The queue in which an object waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Turn {
    /// Jobs that hold places.
    Bound,
    /// Objects that may need a binding.
    Claim,
    /// Jobs that wait.
    Waiting,
}

/// Jobs that hold places come first, because their resources stay idle until they start. A running job is
/// reconciled several times for each reconcile of a new one.
const TURNS: [Turn; 6] = [Turn::Bound, Turn::Bound, Turn::Claim, Turn::Bound, Turn::Bound, Turn::Waiting];

/// The queues take turns, so neither many new jobs nor many running ones starve the others.
#[derive(Debug, Default)]
pub(super) struct WorkQueue {
    queues: BTreeMap<Turn, VecDeque<Dirty>>,
    /// Waiting objects with their queue; an entry in another queue is stale.
    waiting: BTreeMap<Dirty, Turn>,
    next: usize,
}

impl WorkQueue {
    /// Adds an object. One that already waits keeps its position, unless it belongs to another queue now.
    pub(super) fn push(&mut self, dirty: Dirty, turn: Turn) {
        if self.waiting.insert(dirty.clone(), turn) != Some(turn) {
            self.queues.entry(turn).or_default().push_back(dirty);
        }
    }

    pub(super) fn pop(&mut self) -> Option<Dirty> {
        (0..TURNS.len()).find_map(|_| {
            let turn = TURNS[self.next % TURNS.len()];
            self.next = (self.next + 1) % TURNS.len();
            self.pop_of(turn)
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether something waits for this turn.
    pub(super) fn has(&self, turn: Turn) -> bool {
        self.queues
            .get(&turn)
            .is_some_and(|queue| queue.iter().any(|dirty| self.waiting.get(dirty) == Some(&turn)))
    }

    fn pop_of(&mut self, turn: Turn) -> Option<Dirty> {
        let queue = self.queues.get_mut(&turn)?;
        while let Some(dirty) = queue.pop_front() {
            if self.waiting.get(&dirty) == Some(&turn) {
                self.waiting.remove(&dirty);
                return Some(dirty);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(name: &str) -> Dirty {
        Dirty::Binding(("ns".to_string(), name.to_string()))
    }

    fn drain(queue: &mut WorkQueue) -> Vec<Dirty> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn each_waits_once_and_in_the_order_it_came() {
        let mut queue = WorkQueue::default();
        for name in ["b", "a", "b", "c", "a"] {
            queue.push(binding(name), Turn::Waiting);
        }
        assert_eq!(drain(&mut queue), ["b", "a", "c"].map(binding));
        assert!(queue.is_empty());
    }

    #[test]
    fn who_holds_places_goes_on_first_and_keeps_nobody_waiting() {
        let mut queue = WorkQueue::default();
        for n in 0..6 {
            queue.push(binding(&format!("w{n}")), Turn::Waiting);
            queue.push(binding(&format!("c{n}")), Turn::Claim);
            queue.push(binding(&format!("r{n}")), Turn::Bound);
        }
        let order = [
            "r0", "r1", "c0", "r2", "r3", "w0", "r4", "r5", "c1", "w1", "c2", "w2", "c3", "w3", "c4", "w4",
            "c5", "w5",
        ];
        assert_eq!(drain(&mut queue), order.map(binding));
    }

    #[test]
    fn a_job_that_is_bound_meanwhile_does_not_wait_with_those_that_wait() {
        let mut queue = WorkQueue::default();
        for name in ["a", "b", "c"] {
            queue.push(binding(name), Turn::Waiting);
        }
        queue.push(binding("c"), Turn::Bound);
        assert!(queue.has(Turn::Bound) && queue.has(Turn::Waiting) && !queue.has(Turn::Claim));
        assert_eq!(drain(&mut queue), ["c", "a", "b"].map(binding));
        assert!(queue.is_empty());
    }
}
