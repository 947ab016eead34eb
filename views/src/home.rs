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
    preemptions::{PreemptionRow, preemptions},
    queues::{QueueRow, queues},
    sight::{Namespaces, Sight},
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
const MANY_RESTARTS: i64 = 3;
/// Of a user's own jobs, so many of the newest are looked at for those that have not ended.
const MOST_OWN: usize = 500;
const MOST_PREEMPTIONS: usize = 5;
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
    /// The viewer's own jobs: those whose label names him. What has not ended is first.
    pub own: Vec<JobRow>,
    /// His own queues first.
    pub queues: Vec<QueueRow>,
    /// How many of them, from the first, are his own: they list one of his namespaces, or have a job of his.
    pub own_queues: usize,
    pub more_queues: usize,
    pub virtual_clusters: Vec<VirtualClusterRow>,
    pub more_virtual_clusters: usize,
    pub clusters: Vec<ClusterRow>,
    /// Free GPUs to nodes.
    pub nodes_by_free: Vec<(i64, i64)>,
    pub recent: Vec<JobRow>,
    pub strange: Vec<Strange>,
    /// The last preemptions.
    pub preemptions: Vec<PreemptionRow>,
}

/// `user` is the viewer's name as labels of jobs have it; empty: nobody's.
pub fn home(known: &Known, sight: &Sight, user: &str, now_s: i64) -> Home {
    let counts = State::ALL.into_iter().map(|state| {
        let seen = known.counts().iter().filter(|(namespace, _)| sight.jobs.has(namespace));
        (state, seen.filter_map(|(_, counts)| counts.get(&state)).sum())
    });
    let own = own_jobs(known, sight, user);
    let (mut queues, others): (Vec<QueueRow>, Vec<QueueRow>) =
        queues(known, sight).rows.into_iter().partition(|row| is_own(row, sight, &own));
    let own_queues = queues.len().min(MOST_QUEUES);
    queues.extend(others);
    let more_queues = queues.len().saturating_sub(MOST_QUEUES);
    queues.truncate(MOST_QUEUES);
    let mut of_cells = virtual_clusters(known, sight);
    let more_virtual_clusters = of_cells.len().saturating_sub(MOST_QUEUES);
    of_cells.truncate(MOST_QUEUES);
    let free = if sight.clusters { nodes_by_free(known.clusters().values()) } else { Vec::new() };
    Home {
        counts: counts.collect(),
        own: own.into_iter().take(MOST_RECENT).map(|job| job_row(known, sight, job)).collect(),
        queues,
        own_queues,
        more_queues,
        virtual_clusters: of_cells,
        more_virtual_clusters,
        clusters: clusters(known, sight),
        nodes_by_free: free,
        recent: known.newest(sight).take(MOST_RECENT).map(|job| job_row(known, sight, job)).collect(),
        strange: strange(known, sight, now_s),
        preemptions: preemptions(known, sight, None, MOST_PREEMPTIONS),
    }
}

/// The newest first, and before them those that have not ended.
fn own_jobs<'k>(known: &'k Known, sight: &'k Sight, user: &str) -> Vec<&'k Job> {
    let newest = known.of_user(sight, user).take(MOST_OWN);
    let (ended, mut own): (Vec<&Job>, Vec<&Job>) = newest.partition(|job| job.state().is_final());
    own.extend(ended);
    own
}

/// A leaf of the viewer. Who sees the jobs of all namespaces has no namespaces of his own.
fn is_own(row: &QueueRow, sight: &Sight, own: &[&Job]) -> bool {
    let lists_his = || match &sight.jobs {
        Namespaces::All => false,
        Namespaces::Only(names) => row.namespaces.iter().any(|namespace| names.contains(namespace)),
    };
    let has_his = || own.iter().any(|job| !job.state().is_final() && job.queue() == row.path);
    row.is_leaf && (lists_his() || has_his())
}

fn strange(known: &Known, sight: &Sight, now_s: i64) -> Vec<Strange> {
    let long_runs = known.longest_running(sight).take_while(|job| now_s - job.since_s() > LONG_RUN_S);
    let long_runs = long_runs.map(|job| (job, format!("runs for {}", age::human(now_s - job.since_s()))));
    let long_waits = known.longest_waiting(sight).take_while(|job| now_s - job.since_s() > LONG_WAIT_S);
    let long_waits = long_waits.map(|job| (job, format!("waits for {}", age::human(now_s - job.since_s()))));
    let evicted = known.most_evicted(sight).take_while(|job| job.binding.attempts.len() >= MANY_RUNS);
    let evicted = evicted.map(|job| {
        let last = job.binding.attempts.iter().max_by_key(|attempt| attempt.ended_s);
        let reason = last.map_or("", |attempt| attempt.reason.as_str());
        (job, format!("has ended {} runs, the last one by {reason}", job.binding.attempts.len()))
    });
    let restarted = known.most_restarted(sight);
    let restarted = restarted.take_while(|job| job.binding.restarts >= MANY_RESTARTS);
    let restarted = restarted.map(|job| {
        (job, format!("started anew {} times in {}, in the same run", job.binding.restarts, job.cluster()))
    });
    let evicted = evicted.take(MOST_STRANGE).chain(restarted.take(MOST_STRANGE));
    let found = evicted.chain(long_waits.take(MOST_STRANGE)).chain(long_runs.take(MOST_STRANGE));
    found.map(|(job, why)| Strange { job: job_row(known, sight, job), why }).collect()
}
