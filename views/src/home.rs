//! The overview of the fleet.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    age,
    clusters::{ClusterRow, clusters},
    heat::nodes_by_free,
    job::{Job, State},
    jobs::{JobRow, job_row},
    known::Known,
    queues::{QueueRow, queues},
    sight::Sight,
    virtual_clusters::{VirtualClusterRow, virtual_clusters},
};

const MOST_RECENT: usize = 8;
/// Most jobs of each kind of warning.
const MOST_STRANGE: usize = 3;
const DAY_S: i64 = 24 * 3600;
/// OpenPAI calls a job that runs longer abnormal.
const LONG_RUN_S: i64 = 5 * DAY_S;
const LONG_WAIT_S: i64 = 3600;
const MANY_RUNS: usize = 3;
/// Most queues, and most virtual clusters, on the first page; the others have pages of their own.
const MOST_QUEUES: usize = 12;

/// A job that may need attention, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Strange {
    pub job: JobRow,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Home {
    pub counts: Vec<(State, usize)>,
    pub queues: Vec<QueueRow>,
    pub more_queues: usize,
    pub virtual_clusters: Vec<VirtualClusterRow>,
    pub more_virtual_clusters: usize,
    pub clusters: Vec<ClusterRow>,
    /// Free GPUs to nodes.
    pub nodes_by_free: Vec<(i64, i64)>,
    pub recent: Vec<JobRow>,
    pub strange: Vec<Strange>,
}

pub fn home(known: &Known, sight: &Sight, now_s: i64) -> Home {
    let counts = State::ALL.into_iter().map(|state| {
        let seen = known.counts().iter().filter(|(namespace, _)| sight.jobs.has(namespace));
        (state, seen.filter_map(|(_, counts)| counts.get(&state)).sum())
    });
    let mut queues = queues(known, sight).rows;
    let more_queues = queues.len().saturating_sub(MOST_QUEUES);
    queues.truncate(MOST_QUEUES);
    let mut of_cells = virtual_clusters(known, sight);
    let more_virtual_clusters = of_cells.len().saturating_sub(MOST_QUEUES);
    of_cells.truncate(MOST_QUEUES);
    let free = if sight.clusters { nodes_by_free(known.clusters().values()) } else { Vec::new() };
    let recent = known.newest().filter(|job| sight.jobs.has(job.namespace()));
    Home {
        counts: counts.collect(),
        queues,
        more_queues,
        virtual_clusters: of_cells,
        more_virtual_clusters,
        clusters: clusters(known, sight),
        nodes_by_free: free,
        recent: recent.take(MOST_RECENT).map(|job| job_row(known, job)).collect(),
        strange: strange(known, sight, now_s),
    }
}

fn strange(known: &Known, sight: &Sight, now_s: i64) -> Vec<Strange> {
    let seen = |job: &&Job| sight.jobs.has(job.namespace());
    let long_runs = known.longest_running().filter(seen).take_while(|job| now_s - job.since_s() > LONG_RUN_S);
    let long_runs = long_runs.map(|job| (job, format!("runs for {}", age::human(now_s - job.since_s()))));
    let long_waits =
        known.longest_waiting().filter(seen).take_while(|job| now_s - job.since_s() > LONG_WAIT_S);
    let long_waits = long_waits.map(|job| (job, format!("waits for {}", age::human(now_s - job.since_s()))));
    let evicted = known.most_evicted().filter(seen).take_while(|job| job.binding.attempts.len() >= MANY_RUNS);
    let evicted = evicted.map(|job| {
        let last = job.binding.attempts.iter().max_by_key(|attempt| attempt.ended_s);
        let reason = last.map_or("", |attempt| attempt.reason.as_str());
        (job, format!("has ended {} runs, the last one by {reason}", job.binding.attempts.len()))
    });
    let found =
        evicted.take(MOST_STRANGE).chain(long_waits.take(MOST_STRANGE)).chain(long_runs.take(MOST_STRANGE));
    found.map(|(job, why)| Strange { job: job_row(known, job), why }).collect()
}
