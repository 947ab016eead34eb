//! What is to be looked at, in the order it came.
//!
//! A look is planned only when its writes can be sent: until then whatever else happens to the same thing is
//! one look, so that a controller behind its work writes what stands in the end and not each step to it.

use std::collections::{BTreeMap, VecDeque};

use fleet_hub_core::world::Dirty;

/// What looks wait their turn with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Turn {
    /// Jobs that hold places.
    Bound,
    /// Objects that may need a binding.
    Claim,
    /// Jobs that wait.
    Waiting,
}

/// Who holds places goes on first: nobody else uses them meanwhile. A job that runs is looked at several times for
/// each look that a new one needs.
const TURNS: [Turn; 6] = [Turn::Bound, Turn::Bound, Turn::Claim, Turn::Bound, Turn::Bound, Turn::Waiting];

/// The queues take turns, so that neither a flood of new jobs nor of running ones keeps the others waiting.
#[derive(Debug, Default)]
pub(super) struct Looks {
    queues: BTreeMap<Turn, VecDeque<Dirty>>,
    /// What waits, and for which turn; an entry of another queue is stale.
    waiting: BTreeMap<Dirty, Turn>,
    next: usize,
}

impl Looks {
    /// One that waits already keeps its place, unless its turn is another one now.
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

    fn drain(looks: &mut Looks) -> Vec<Dirty> {
        std::iter::from_fn(|| looks.pop()).collect()
    }

    #[test]
    fn each_waits_once_and_in_the_order_it_came() {
        let mut looks = Looks::default();
        for name in ["b", "a", "b", "c", "a"] {
            looks.push(binding(name), Turn::Waiting);
        }
        assert_eq!(drain(&mut looks), ["b", "a", "c"].map(binding));
        assert!(looks.is_empty());
    }

    #[test]
    fn who_holds_places_goes_on_first_and_keeps_nobody_waiting() {
        let mut looks = Looks::default();
        for n in 0..6 {
            looks.push(binding(&format!("w{n}")), Turn::Waiting);
            looks.push(binding(&format!("c{n}")), Turn::Claim);
            looks.push(binding(&format!("r{n}")), Turn::Bound);
        }
        let order = [
            "r0", "r1", "c0", "r2", "r3", "w0", "r4", "r5", "c1", "w1", "c2", "w2", "c3", "w3", "c4", "w4",
            "c5", "w5",
        ];
        assert_eq!(drain(&mut looks), order.map(binding));
    }

    #[test]
    fn a_job_that_is_bound_meanwhile_does_not_wait_with_those_that_wait() {
        let mut looks = Looks::default();
        for name in ["a", "b", "c"] {
            looks.push(binding(name), Turn::Waiting);
        }
        looks.push(binding("c"), Turn::Bound);
        assert_eq!(drain(&mut looks), ["c", "a", "b"].map(binding));
        assert!(looks.is_empty());
    }
}
