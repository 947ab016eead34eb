//! The work queue: objects to reconcile. Namespaces take turns; within one, objects come in order of arrival.
//!
//! An object is reconciled only when its writes can be sent. Until then further changes of it are merged, so
//! a controller with a backlog writes only the newest state. However many objects one tenant has marked, an object
//! of another one waits for at most one of each namespace. An object that costs more than a turn allows uses up further
//! turns of its namespace.

use std::collections::{BTreeMap, VecDeque};

use fleet_hub_core::world::Dirty;

/// The queue in which an object waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Turn {
    /// Jobs that hold places.
    Bound,
    /// Workloads that may need a binding.
    Claim,
    /// Jobs that wait.
    Waiting,
    /// Objects that run nothing, and conditions of policies.
    Plain,
}

/// Jobs that hold places come first, because their resources stay idle until they start. A running job is
/// reconciled several times for each reconcile of a new one.
const TURNS: [Turn; 7] =
    [Turn::Bound, Turn::Bound, Turn::Claim, Turn::Bound, Turn::Bound, Turn::Waiting, Turn::Plain];

/// What an object may cost in one turn, in values visited: a fiftieth of what overrides may visit of one object.
const TURN_COST: usize = 20_000;

/// The queues take turns, so neither many new jobs nor many running ones starve the others.
#[derive(Debug, Default)]
pub(super) struct WorkQueue {
    queues: BTreeMap<Turn, Namespaces>,
    /// Waiting objects with their queue; an entry in another queue is stale.
    waiting: BTreeMap<Dirty, Turn>,
    /// Number of them in each queue.
    counts: BTreeMap<Turn, usize>,
    /// What namespaces have used beyond their turns.
    debts: BTreeMap<String, usize>,
    next: usize,
}

/// One queue of each namespace that has any objects.
#[derive(Debug, Default)]
struct Namespaces {
    lines: BTreeMap<String, VecDeque<Dirty>>,
    /// Whose turn is next.
    order: VecDeque<String>,
}

impl Namespaces {
    fn push(&mut self, dirty: Dirty) {
        let namespace = namespace_of(&dirty);
        if !self.lines.contains_key(namespace) {
            self.order.push_back(namespace.to_owned());
        }
        self.lines.entry(namespace.to_owned()).or_default().push_back(dirty);
    }

    /// The next one that is not stale.
    fn pop(
        &mut self,
        debts: &mut BTreeMap<String, usize>,
        is_current: impl Fn(&Dirty) -> bool,
    ) -> Option<Dirty> {
        while let Some(namespace) = self.order.pop_front() {
            let Some(line) = self.lines.get_mut(&namespace) else { continue };
            if let Some(debt) = debts.get_mut(&namespace) {
                *debt = debt.saturating_sub(TURN_COST);
                if *debt == 0 {
                    debts.remove(&namespace);
                }
                self.order.push_back(namespace);
                continue;
            }
            let mut found = None;
            while found.is_none()
                && let Some(dirty) = line.pop_front()
            {
                found = Some(dirty).filter(&is_current);
            }
            match line.is_empty() {
                true => drop(self.lines.remove(&namespace)),
                false => self.order.push_back(namespace),
            }
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

impl WorkQueue {
    /// Adds an object. One that already waits keeps its position, unless it belongs to another queue now.
    pub(super) fn push(&mut self, dirty: Dirty, turn: Turn) {
        let before = self.waiting.insert(dirty.clone(), turn);
        if before != Some(turn) {
            before.iter().for_each(|before| self.uncount(*before));
            *self.counts.entry(turn).or_default() += 1;
            self.queues.entry(turn).or_default().push(dirty);
        }
    }

    pub(super) fn pop(&mut self) -> Option<Dirty> {
        (0..TURNS.len()).find_map(|_| {
            let turn = TURNS[self.next % TURNS.len()];
            self.next = (self.next + 1) % TURNS.len();
            self.pop_of(turn)
        })
    }

    /// Charges a namespace for one of its objects.
    pub(super) fn charge(&mut self, dirty: &Dirty, cost: usize) {
        if cost > TURN_COST {
            let debt = self.debts.entry(namespace_of(dirty).to_owned()).or_default();
            *debt = debt.saturating_add(cost - TURN_COST);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether something waits for this turn.
    pub(super) fn has(&self, turn: Turn) -> bool {
        self.counts.get(&turn).is_some_and(|count| *count > 0)
    }

    fn uncount(&mut self, turn: Turn) {
        if let Some(count) = self.counts.get_mut(&turn) {
            *count -= 1;
        }
    }

    fn pop_of(&mut self, turn: Turn) -> Option<Dirty> {
        let waiting = &self.waiting;
        let is_current = |dirty: &Dirty| waiting.get(dirty) == Some(&turn);
        let found = self.queues.get_mut(&turn)?.pop(&mut self.debts, is_current)?;
        self.waiting.remove(&found);
        self.uncount(turn);
        Some(found)
    }
}

/// The namespace whose turn it is; empty for what belongs to none.
fn namespace_of(dirty: &Dirty) -> &str {
    match dirty {
        Dirty::Object(_, (namespace, _))
        | Dirty::Binding((namespace, _))
        | Dirty::Policy(_, (namespace, _)) => namespace,
        Dirty::Orphan(_) | Dirty::Cluster(_) | Dirty::Tree | Dirty::Cells => "",
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

    /// How many objects are reconciled before the job of another tenant: all of the first one's, if they shared a queue.
    #[test]
    fn one_tenants_objects_keep_no_other_tenants_job_waiting() {
        let mut queue = WorkQueue::default();
        let of = |namespace: &str, name: String| (namespace.to_owned(), name);
        let map = fleet_hub_core::kinds::dependencies().remove(0);
        for n in 0..1_500 {
            let key = of("a", format!("o{n}"));
            queue.push(Dirty::Policy(fleet_policies::PolicyScope::Namespaced, key.clone()), Turn::Plain);
            queue.push(Dirty::Object(map.clone(), key.clone()), Turn::Plain);
            for turn in [Turn::Claim, Turn::Bound, Turn::Waiting] {
                queue.push(Dirty::Binding(of("a", format!("{turn:?}-{n}"))), turn);
            }
        }
        for turn in [Turn::Claim, Turn::Bound, Turn::Waiting, Turn::Plain] {
            let job = Dirty::Binding(of("b", format!("{turn:?}")));
            queue.push(job.clone(), turn);
            let steps = std::iter::from_fn(|| queue.pop()).take_while(|dirty| *dirty != job).count();
            assert!(steps < 2 * TURNS.len(), "{turn:?}: {steps}");
        }
    }

    /// A tenant whose jobs cost a hundred turns each gets one of them in while others get a hundred.
    #[test]
    fn an_object_that_costs_more_than_its_turn_uses_up_further_turns() {
        let mut queue = WorkQueue::default();
        let of = |namespace: &str, n: usize| Dirty::Binding((namespace.to_owned(), format!("j{n}")));
        for n in 0..300 {
            queue.push(of("a", n), Turn::Claim);
            queue.push(of("b", n), Turn::Claim);
        }
        let mut taken: Vec<(usize, usize)> = Vec::new();
        let (mut dear, mut cheap) = (0, 0);
        while cheap < 300 {
            let dirty = queue.pop().expect("both have objects");
            match namespace_of(&dirty) {
                "a" => {
                    queue.charge(&dirty, 100 * TURN_COST);
                    dear += 1;
                    taken.push((dear, cheap));
                }
                _ => {
                    queue.charge(&dirty, TURN_COST);
                    cheap += 1;
                }
            }
        }
        assert_eq!(taken.iter().map(|(_, cheap)| *cheap).collect::<Vec<_>>(), [0, 100, 200], "{taken:?}");
        // Alone, it has every turn.
        assert_eq!(std::iter::from_fn(|| queue.pop()).count(), 300 - dear);
    }

    #[test]
    fn objects_that_run_nothing_come_after_each_round_of_jobs() {
        let mut queue = WorkQueue::default();
        for n in 0..3 {
            queue.push(binding(&format!("p{n}")), Turn::Plain);
            queue.push(binding(&format!("c{n}")), Turn::Claim);
        }
        assert_eq!(drain(&mut queue), ["c0", "p0", "c1", "p1", "c2", "p2"].map(binding));
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
