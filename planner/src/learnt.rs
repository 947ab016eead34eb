//! Run times learnt from ended jobs. A claim is made only for a job whose start can be predicted.
//!
//! Jobs of one namespace are taken to be alike. All of it is memory: after a restart nothing is known until jobs
//! end, and claims are then given up after a while.

use std::collections::{BTreeMap, VecDeque};

use crate::job::{Job, namespace_of};

/// Ended runs remembered for each namespace.
const RUNS_KEPT: usize = 32;
/// Namespaces remembered; beyond that all is learnt anew.
const NAMESPACES_KEPT: usize = 16_384;
/// A job that has run so many times as long as the longest of these has outrun what is known.
const OUTRUN: i64 = 2;

#[derive(Clone, Debug, Default)]
pub(super) struct Learnt {
    /// By namespace.
    runs: BTreeMap<String, Runs>,
}

/// Ended runs, in milliseconds.
#[derive(Clone, Debug, Default)]
struct Runs {
    last: VecDeque<i64>,
    longest: i64,
}

impl Learnt {
    /// The job's last run has ended.
    pub fn ended(&mut self, job: &Job, now_ms: i64) {
        let Some(started_ms) = job.started_at_ms else { return };
        if self.runs.len() >= NAMESPACES_KEPT {
            self.runs.clear();
        }
        let runs = self.runs.entry(namespace_of(&job.id).to_string()).or_default();
        runs.last.push_back((now_ms - started_ms).max(1));
        if runs.last.len() > RUNS_KEPT {
            runs.last.pop_front();
        }
        runs.longest = runs.last.iter().copied().fold(0, i64::max);
    }

    fn longest_ms(&self, job: &Job) -> Option<i64> {
        self.runs.get(namespace_of(&job.id)).map(|runs| runs.longest)
    }

    /// When the run is over by its declared run time, else by the longest of those before it; `None` where neither
    /// says. One that has not started yet counts as starting now.
    pub fn ends_at_ms(&self, job: &Job, now_ms: i64) -> Option<i64> {
        let started_ms = job.started_at_ms.unwrap_or(now_ms);
        if let Some(run_ms) = job.runtime_ms {
            return Some(started_ms.saturating_add(run_ms));
        }
        let longest_ms = self.longest_ms(job)?;
        let expected = [longest_ms, longest_ms.saturating_mul(OUTRUN)].into_iter();
        expected.map(|run_ms| started_ms.saturating_add(run_ms)).find(|end_ms| *end_ms > now_ms)
    }

    /// Its end is known by nothing: it goes on although no job like it ran for so long.
    pub fn has_outrun(&self, job: &Job, now_ms: i64) -> bool {
        self.longest_ms(job).is_some() && self.ends_at_ms(job, now_ms).is_none()
    }
}
