//! How soon a job may take again.
//!
//! Each right to take is sound by itself, yet three jobs may take from one another in a circle: one by its
//! min, one by its share, one by its priority. No such circle goes on at full speed: a job that takes again
//! and again waits twice as long each time. The first taking is never held back, nor one that takes a min back.

use std::collections::{BTreeMap, BTreeSet};

use crate::ledger::JobId;

/// From a job's first taking to its second, at least.
const FIRST_REST_MS: i64 = 10_000;
const LONGEST_REST_MS: i64 = 3_600_000;
/// Rests after which a taking is forgotten: so many may take in a circle, each when the one before it is not safe
/// from it any more.
const RESTS_KEPT: i64 = 10;

#[derive(Clone, Debug)]
struct Retake {
    takings: u32,
    /// It takes nobody before.
    until_ms: i64,
    /// Its takings are forgotten then.
    forget_ms: i64,
}

/// Jobs that took lately.
#[derive(Clone, Debug, Default)]
pub(super) struct Retakes {
    jobs: BTreeMap<JobId, Retake>,
    /// When a rest ends, or is forgotten.
    due: BTreeSet<(i64, JobId)>,
}

impl Retakes {
    /// The job takes now.
    pub fn took(&mut self, job: &JobId, now_ms: i64) {
        let takings = self.jobs.get(job).map_or(0, |retake| retake.takings);
        let rest_ms = FIRST_REST_MS.saturating_mul(1 << takings.min(20)).min(LONGEST_REST_MS);
        let until_ms = now_ms.saturating_add(rest_ms);
        let forget_ms = until_ms.saturating_add(RESTS_KEPT * rest_ms);
        self.due.insert((until_ms, job.clone()));
        self.jobs.insert(job.clone(), Retake { takings: takings + 1, until_ms, forget_ms });
    }

    pub fn rests(&self, job: &JobId, now_ms: i64) -> bool {
        self.jobs.get(job).is_some_and(|retake| now_ms < retake.until_ms)
    }

    /// The jobs whose rest has ended.
    pub fn end(&mut self, now_ms: i64) -> Vec<JobId> {
        let mut ended = Vec::new();
        while self.due.first().is_some_and(|(due_ms, _)| *due_ms <= now_ms) {
            let Some((due_ms, job)) = self.due.pop_first() else { break };
            let Some(retake) = self.jobs.get(&job) else { continue };
            if retake.forget_ms <= due_ms {
                self.jobs.remove(&job);
            } else if retake.until_ms <= due_ms {
                self.due.insert((retake.forget_ms, job.clone()));
                ended.push(job);
            }
        }
        ended
    }

    /// When the next rest ends of a job that waits.
    pub fn next_end_ms(&self, waits: impl Fn(&JobId) -> bool) -> Option<i64> {
        let rests = |(due_ms, job): &&(i64, JobId)| {
            self.jobs.get(job).is_some_and(|retake| retake.until_ms == *due_ms) && waits(job)
        };
        self.due.iter().find(rests).map(|(due_ms, _)| *due_ms)
    }
}
