//! What may be so for a moment and not for long: a gang half bound, a hold without an owner, pods that the hub does
//! not count.

use std::collections::{BTreeMap, BTreeSet};

use super::{Violation, facts::Pod, violation::broken};

/// How long each may last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Pods of a gang are bound, and fewer than it needs, and never were as many.
    pub half_bound_ms: u64,
    /// A reservation stands, on the hub or in a member, whose job is gone, has ended, or runs under a newer epoch.
    pub ownerless_hold_ms: u64,
    /// Pods take more of a node of the quota tree than the hub says is used.
    pub uncounted_ms: u64,
    /// A virtual cluster's guaranteed job waits while its cells are free; a pod's cells are not those of its binding.
    pub promise_ms: u64,
}

impl Bounds {
    /// Where no process dies and every request arrives. The hub says what is used once a second.
    pub const WITHOUT_FAULTS: Self = Self {
        half_bound_ms: 10_000,
        ownerless_hold_ms: 30_000,
        uncounted_ms: 10_000,
        // Victims take their grace, and a reservation that was refused is asked for again after half a minute.
        promise_ms: 120_000,
    };
    /// Where any of them is away for minutes, one after the other.
    pub const WITH_FAULTS: Self = Self {
        half_bound_ms: 600_000,
        ownerless_hold_ms: 900_000,
        uncounted_ms: 600_000,
        promise_ms: 900_000,
    };
}

/// Keys of gangs of which a pod is bound before all exist.
pub(super) const EARLY: &str = "early ";
/// A watch that lists anew tells pods of one moment one after the other.
const EARLY_MS: u64 = 1;

/// Things that are so now, each with what is wrong and since when.
#[derive(Debug, Default)]
pub(super) struct Lasting {
    since: BTreeMap<String, (u64, Violation)>,
    told: BTreeSet<String>,
}

impl Lasting {
    /// From now on this is so, or is not so any more.
    pub fn set(&mut self, key: &str, now_ms: u64, wrong: Option<Violation>) {
        match wrong {
            Some(wrong) => {
                // Since when it is so stays; what is said of it may change.
                self.since.entry(key.to_string()).or_insert((now_ms, broken(0, String::new()))).1 = wrong;
            }
            None => {
                self.since.remove(key);
                self.told.remove(key);
            }
        }
    }

    /// Of all that begins with `prefix`, only these are so.
    pub fn set_all(&mut self, prefix: &str, now_ms: u64, wrong: BTreeMap<String, Violation>) {
        let over: Vec<String> = self
            .since
            .keys()
            .filter(|key| key.starts_with(prefix) && !wrong.contains_key(*key))
            .cloned()
            .collect();
        for key in over {
            self.set(&key, now_ms, None);
        }
        for (key, violation) in wrong {
            self.set(&key, now_ms, Some(violation));
        }
    }

    /// Conditions that lasted longer than their limit; each is reported once.
    pub fn overdue(&mut self, now_ms: u64, bounds: Bounds) -> Vec<Violation> {
        let mut found = Vec::new();
        for (key, (since, wrong)) in &self.since {
            let bound_ms = match wrong.invariant {
                2 if key.starts_with(EARLY) => EARLY_MS,
                2 => bounds.half_bound_ms,
                5 => bounds.ownerless_hold_ms,
                10 => bounds.promise_ms,
                _ => bounds.uncounted_ms,
            };
            if now_ms.saturating_sub(*since) > bound_ms && self.told.insert(key.clone()) {
                let what = match bound_ms / 1000 {
                    0 => wrong.what.clone(),
                    bound_s => format!("{}, for longer than {bound_s} s", wrong.what),
                };
                found.push(broken(wrong.invariant, what));
            }
        }
        found
    }
}

/// The pods of one gang of one run.
#[derive(Debug, Default)]
pub(super) struct Gang {
    /// Pods with a node, and those of them that leave.
    bound: i64,
    leaving: i64,
    size: i64,
    /// It was whole once, or a pod of it has ended: what is missing was lost since.
    was_whole: bool,
    /// Pods that were ever there.
    made: BTreeSet<String>,
}

impl Gang {
    pub fn add(&mut self, pod: &Pod) {
        let Some((_, size)) = pod.gang else { return };
        self.size = size;
        self.made.insert(pod.uid.clone());
        self.bound += i64::from(pod.node.is_some());
        self.leaving += i64::from(pod.node.is_some() && pod.leaves);
        self.was_whole |= self.bound >= self.size || pod.has_ended();
    }

    pub fn remove(&mut self, pod: &Pod) {
        self.bound -= i64::from(pod.gang.is_some() && pod.node.is_some());
        self.leaving -= i64::from(pod.gang.is_some() && pod.node.is_some() && pod.leaves);
    }

    /// 2: a pod is bound, and there were never as many pods as it needs.
    pub fn early(&self, of: &Pod) -> Option<Violation> {
        let made = i64::try_from(self.made.len()).unwrap_or(i64::MAX);
        let early = self.bound > 0 && made < self.size && !self.was_whole;
        let what = || {
            format!("gang of {} in {}: a pod is bound when {made} of {} exist", of.job, of.cluster, self.size)
        };
        early.then(|| broken(2, what()))
    }

    /// 2: some pods are bound to stay, and fewer than it needs.
    pub fn wrong(&self, of: &Pod) -> Option<Violation> {
        let (bound, size) = (self.bound - self.leaving, self.size);
        let half = bound > 0 && bound < size && !self.was_whole;
        let what = || format!("gang of {} in {}: {bound} of {size} pods are bound", of.job, of.cluster);
        half.then(|| broken(2, what()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_is_told_once_and_again_when_it_comes_back() {
        let mut lasting = Lasting::default();
        let wrong = |what: &str| Some(broken(2, what.to_string()));
        let bounds = Bounds { half_bound_ms: 1000, ..Bounds::WITHOUT_FAULTS };
        lasting.set("a", 0, wrong("1 of 3"));
        lasting.set("a", 900, wrong("2 of 3"));
        assert_eq!(lasting.overdue(1000, bounds), []);
        assert_eq!(lasting.overdue(1001, bounds)[0].what, "2 of 3, for longer than 1 s");
        assert_eq!(lasting.overdue(5000, bounds), []);
        lasting.set("a", 5000, None);
        lasting.set("a", 6000, wrong("1 of 3"));
        assert_eq!(lasting.overdue(7000, bounds), []);
        assert_eq!(lasting.overdue(7001, bounds).len(), 1);
        lasting.set_all("a", 7002, BTreeMap::new());
        assert_eq!(lasting.overdue(9000, bounds), []);
    }
}
