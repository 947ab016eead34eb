//! How soon a job may preempt again.
//!
//! Each right to preempt is sound by itself, yet three jobs could preempt each other in a circle: one by its min,
//! one by its share, one by its priority. So a job that preempts repeatedly backs off, twice as long each time. Its
//! first preemption never waits, nor does a reclaim inside min. A restart forgets all back-offs.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::JobId;

/// Least time from a job's first preemption to its second.
const FIRST_BACKOFF_MS: i64 = 10_000;
const LONGEST_BACKOFF_MS: i64 = 3_600_000;
/// A back-off is forgotten after this many times its length, and not before [`SHORTEST_MEMORY_MS`]. A larger circle of
/// jobs than this is not slowed down.
const BACKOFFS_KEPT: i64 = 10;
/// Two of the longest back-offs: a job that preempts right after each of others that back off for an hour is slowed
/// down like them.
const SHORTEST_MEMORY_MS: i64 = 2 * LONGEST_BACKOFF_MS;

#[derive(Clone, Debug)]
struct Backoff {
    preemptions: u32,
    /// It does not preempt before.
    until_ms: i64,
    /// The back-off is forgotten then.
    forget_ms: i64,
}

/// Jobs that preempted recently.
#[derive(Clone, Debug, Default)]
pub(super) struct Backoffs {
    jobs: BTreeMap<JobId, Backoff>,
    /// When a back-off ends.
    ends: BTreeSet<(i64, JobId)>,
    /// When one that has ended is forgotten.
    forgets: BTreeSet<(i64, JobId)>,
}

impl Backoffs {
    /// The job preempts now.
    pub fn preempted(&mut self, job: &JobId, now_ms: i64) {
        let preemptions = self.jobs.get(job).map_or(0, |backoff| backoff.preemptions);
        let backoff_ms = FIRST_BACKOFF_MS.saturating_mul(1 << preemptions.min(20)).min(LONGEST_BACKOFF_MS);
        let until_ms = now_ms.saturating_add(backoff_ms);
        let forget_ms = until_ms.saturating_add((BACKOFFS_KEPT * backoff_ms).max(SHORTEST_MEMORY_MS));
        self.ends.insert((until_ms, job.clone()));
        self.jobs.insert(job.clone(), Backoff { preemptions: preemptions + 1, until_ms, forget_ms });
    }

    pub fn backs_off(&self, job: &JobId, now_ms: i64) -> bool {
        self.jobs.get(job).is_some_and(|backoff| now_ms < backoff.until_ms)
    }

    /// The jobs whose back-off has ended.
    pub fn end(&mut self, now_ms: i64) -> Vec<JobId> {
        let mut ended = Vec::new();
        while let Some((until_ms, job)) = pop_due(&mut self.ends, now_ms) {
            let Some(backoff) = self.jobs.get(&job).filter(|backoff| backoff.until_ms == until_ms) else {
                continue;
            };
            self.forgets.insert((backoff.forget_ms, job.clone()));
            ended.push(job);
        }
        while let Some((forget_ms, job)) = pop_due(&mut self.forgets, now_ms) {
            if self.jobs.get(&job).is_some_and(|backoff| backoff.forget_ms == forget_ms) {
                self.jobs.remove(&job);
            }
        }
        ended
    }

    /// The next end of a back-off of a waiting job.
    pub fn next_end_ms(&self, waits: impl Fn(&JobId) -> bool) -> Option<i64> {
        let ends = |(until_ms, job): &&(i64, JobId)| {
            self.jobs.get(job).is_some_and(|backoff| backoff.until_ms == *until_ms) && waits(job)
        };
        self.ends.iter().find(ends).map(|(until_ms, _)| *until_ms)
    }
}

fn pop_due(times: &mut BTreeSet<(i64, JobId)>, now_ms: i64) -> Option<(i64, JobId)> {
    times.first().filter(|(due_ms, _)| *due_ms <= now_ms)?;
    times.pop_first()
}
