//! The last line of a log, counted from its records alone, so that both modes count alike.

use std::{collections::HashMap, sync::Arc};

use serde::Serialize;

use super::record::{Ending, Record, What};

const MS_PER_HOUR: f64 = 3_600_000.0;
/// Most violations that are listed; more add no information.
const VIOLATIONS_KEPT: usize = 100;

/// A run in numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    pub jobs: usize,
    pub finished: usize,
    pub succeeded: usize,
    pub failed: usize,
    /// Neither running nor at an end.
    pub pending: usize,
    pub running: usize,
    pub rejected: usize,
    pub deleted: usize,
    pub preemptions: usize,
    pub evictions: usize,
    /// From the first submission to the last end.
    pub makespan_s: f64,
    /// From submission to the first start, over the jobs that started.
    pub wait_mean_s: f64,
    pub wait_p50_s: f64,
    pub wait_p99_s: f64,
    /// From submission to the end, over the jobs that finished.
    pub jct_mean_s: f64,
    /// GPUs times the time they ran for jobs.
    pub gpu_hours_used: f64,
    /// Of these, what runs took that did not end their job well: preempted, evicted, fenced, failed, deleted.
    pub gpu_hours_lost: f64,
    pub violations: Vec<Violation>,
}

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Violation {
    /// Number in `docs/ARCHITECTURE.md`.
    pub invariant: u8,
    /// Virtual seconds.
    pub t: f64,
    pub objects: Vec<String>,
    pub what: String,
}

#[derive(Clone, Debug, Default)]
struct JobTally {
    submitted_ms: i64,
    gpus: i64,
    started: bool,
    /// Start of the run that goes on.
    running_since_ms: Option<i64>,
    over: bool,
}

/// Counts records.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    jobs: HashMap<Arc<str>, JobTally>,
    counts: Summary,
    first_submit_ms: Option<i64>,
    last_end_ms: i64,
    waits_ms: Vec<i64>,
    jct_sum_ms: f64,
    used_gpu_ms: f64,
    lost_gpu_ms: f64,
}

impl Tally {
    pub fn count(&mut self, record: &Record) {
        let at_ms = record.at_ms;
        if let What::Submitted { gpus, .. } = record.what {
            self.counts.jobs += 1;
            self.first_submit_ms.get_or_insert(at_ms);
            let job = JobTally { submitted_ms: at_ms, gpus, ..JobTally::default() };
            self.jobs.insert(Arc::clone(&record.job), job);
            return;
        }
        let Some(job) = self.jobs.get_mut(&record.job) else { return };
        let mut ended = |job: &mut JobTally, well: bool| {
            if let Some(since) = job.running_since_ms.take() {
                let took = job.gpus as f64 * (at_ms - since) as f64;
                self.used_gpu_ms += took;
                self.lost_gpu_ms += if well { 0.0 } else { took };
            }
        };
        match &record.what {
            What::Started { .. } => {
                ended(job, false);
                job.running_since_ms = Some(at_ms);
                if !std::mem::replace(&mut job.started, true) {
                    self.waits_ms.push(at_ms - job.submitted_ms);
                }
            }
            What::Preempted { .. } => {
                self.counts.preemptions += 1;
                ended(job, false);
            }
            What::Evicted { .. } => {
                self.counts.evictions += 1;
                ended(job, false);
            }
            What::Fenced { .. } => ended(job, false),
            What::Rejected { .. } => {
                self.counts.rejected += 1;
                job.over = true;
            }
            What::Deleted {} => {
                self.counts.deleted += 1;
                ended(job, false);
                job.over = true;
            }
            What::Finished { result, .. } => {
                ended(job, *result == Ending::Succeeded);
                job.over = true;
                self.counts.finished += 1;
                match result {
                    Ending::Succeeded => self.counts.succeeded += 1,
                    Ending::Failed => self.counts.failed += 1,
                }
                self.last_end_ms = at_ms;
                self.jct_sum_ms += (at_ms - job.submitted_ms) as f64;
            }
            _ => {}
        }
    }

    pub fn violate(&mut self, violation: Violation) {
        if self.counts.violations.len() < VIOLATIONS_KEPT {
            self.counts.violations.push(violation);
        }
    }

    /// The summary at the virtual end.
    pub fn finish(&self, at_ms: i64) -> Summary {
        let mut summary = self.counts.clone();
        let (mut used, mut running) = (self.used_gpu_ms, 0);
        let mut over = 0;
        for job in self.jobs.values() {
            over += usize::from(job.over);
            if let Some(since) = job.running_since_ms {
                used += job.gpus as f64 * (at_ms - since) as f64;
                running += 1;
            }
        }
        summary.running = running;
        summary.pending = self.jobs.len() - over - running;
        summary.makespan_s = match (self.first_submit_ms, summary.finished) {
            (Some(first), 1..) => thousandths((self.last_end_ms - first) as f64 / 1000.0),
            _ => 0.0,
        };
        let mut waits = self.waits_ms.clone();
        waits.sort_unstable();
        let mean = |sum: f64, count: usize| if count == 0 { 0.0 } else { sum / count as f64 / 1000.0 };
        summary.wait_mean_s = thousandths(mean(waits.iter().map(|ms| *ms as f64).sum(), waits.len()));
        summary.wait_p50_s = rank(&waits, 50);
        summary.wait_p99_s = rank(&waits, 99);
        summary.jct_mean_s = thousandths(mean(self.jct_sum_ms, summary.finished));
        summary.gpu_hours_used = thousandths(used / MS_PER_HOUR);
        summary.gpu_hours_lost = thousandths(self.lost_gpu_ms / MS_PER_HOUR);
        summary
    }
}

/// The nearest rank of sorted milliseconds, in seconds.
fn rank(sorted: &[i64], per_cent: usize) -> f64 {
    let at = (sorted.len() * per_cent).div_ceil(100).saturating_sub(1);
    sorted.get(at).map_or(0.0, |ms| *ms as f64 / 1000.0)
}

fn thousandths(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
