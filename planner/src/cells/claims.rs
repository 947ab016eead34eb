//! Claims in virtual clusters: a job that others of its queue have passed for too long blocks later ones.
//!
//! A job is passed if it has too few free cells while jobs behind it start. After [`PASSED_FOR_MS`] later
//! jobs of the queue wait, so that freed cells accumulate. [`KEPT_FOR_MS`] later the claim is given up, and
//! the count starts again. A restart also starts it again.

use std::collections::{BTreeMap, BTreeSet};

use fleet_quota::JobId;

use super::Place;

/// How long others may pass a job.
const PASSED_FOR_MS: i64 = 5 * 60_000;
/// How long cells are reserved for it.
const KEPT_FOR_MS: i64 = 30 * 60_000;

#[derive(Clone, Debug, Default)]
pub(crate) struct Claims {
    /// Jobs that waited for cells when a job behind them started, and since when.
    passed: BTreeMap<JobId, i64>,
    /// The holder of the claim of each queue, and until when.
    held: BTreeMap<String, (Place, i64)>,
    /// Jobs of each queue that were considered in this pass and wait for cells.
    short: BTreeMap<String, Vec<Place>>,
}

impl Claims {
    /// Begins a pass over these jobs.
    pub fn begin(&mut self, line: &BTreeSet<Place>, now_ms: i64) {
        self.short.clear();
        let waits: BTreeSet<&JobId> = line.iter().map(|place| &place.4).collect();
        self.passed.retain(|id, _| waits.contains(id));
        let passed = &mut self.passed;
        self.held.retain(|_, (place, until)| {
            let stands = waits.contains(&place.4) && *until > now_ms;
            if !stands {
                passed.remove(&place.4);
            }
            stands
        });
        for place in line {
            let due = self.passed.get(&place.4).is_some_and(|since| since + PASSED_FOR_MS <= now_ms);
            if due && !self.held.contains_key(&place.1) {
                self.held.insert(place.1.clone(), (place.clone(), now_ms + KEPT_FOR_MS));
            }
        }
    }

    /// Records that the job has too few free cells.
    pub fn waits(&mut self, place: &Place) {
        self.short.entry(place.1.clone()).or_default().push(place.clone());
    }

    /// Records that the job starts, and that it passes those of its queue that wait for cells.
    pub fn started(&mut self, place: &Place, now_ms: i64) {
        for passed in self.short.get(&place.1).into_iter().flatten() {
            self.passed.entry(passed.4.clone()).or_insert(now_ms);
        }
        self.forget(&place.4);
    }

    /// The holder of the claim that blocks the job.
    pub fn keeps_from(&self, place: &Place) -> Option<&JobId> {
        let (holder, _) = self.held.get(&place.1)?;
        (holder < place).then_some(&holder.4)
    }

    pub fn forget(&mut self, id: &JobId) {
        self.passed.remove(id);
        self.held.retain(|_, (place, _)| place.4 != *id);
    }

    /// The next time at which a claim begins or ends by itself.
    pub fn wake_ms(&self, now_ms: i64) -> Option<i64> {
        let ends = self.held.values().map(|(_, until)| *until).min();
        let begins = self.passed.values().map(|since| since + PASSED_FOR_MS).filter(|at| *at > now_ms).min();
        [ends, begins].into_iter().flatten().min()
    }
}
