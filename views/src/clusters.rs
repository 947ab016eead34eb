//! The member clusters: their state, why they take no jobs, and their usage.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    amounts,
    bars::{Bar, bar},
    facts::{ClusterFacts, LeaseFacts, TaintFacts},
    heat::{Heat, Who, heat},
    job::{Job, State},
    jobs::{JobRow, job_row},
    known::Known,
    sight::Sight,
};

/// Running jobs named below a cluster.
const MOST_JOBS: usize = 10;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRow {
    pub name: String,
    pub version: String,
    pub region: String,
    /// `Ready`, `NotReady`, `Unknown`, with what an administrator has set.
    pub state: String,
    pub is_well: bool,
    /// What its state means for jobs.
    pub sentence: String,
    pub taints: Vec<TaintFacts>,
    pub nodes: i64,
    pub nodes_ready: i64,
    pub bars: Vec<Bar>,
    pub heat: Heat,
    pub lease_renewed_s: Option<i64>,
    /// Jobs here that the viewer may see.
    pub jobs: Vec<JobRow>,
    pub more_jobs: usize,
    /// Jobs that the hub moves away from here.
    pub moving: Vec<MovingRow>,
    pub more_moving: usize,
}

/// A job whose run here has ended, or has to end, and that runs nowhere else yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MovingRow {
    pub job: JobRow,
    /// Why it leaves.
    pub why: String,
    /// How far it is.
    pub state: String,
    pub since_s: i64,
}

/// Every cluster by name; none for a viewer who may not list them.
pub fn clusters(known: &Known, sight: &Sight) -> Vec<ClusterRow> {
    if !sight.clusters {
        return Vec::new();
    }
    known.clusters().iter().map(|(name, facts)| row(known, sight, name, facts)).collect()
}

/// One of them.
pub(crate) fn cluster(known: &Known, sight: &Sight, name: &str) -> Option<ClusterRow> {
    let facts = known.clusters().get(name).filter(|_| sight.clusters)?;
    Some(row(known, sight, name, facts))
}

fn row(known: &Known, sight: &Sight, name: &str, facts: &ClusterFacts) -> ClusterRow {
    let lease = known.leases().get(name);
    let (state, is_well, mut sentence) = state(facts, lease);
    let fenced = fenced(known, sight, name);
    if !fenced.is_empty() {
        sentence = format!("{sentence} {fenced}").trim_start().to_owned();
    }
    let (here, running) = known.running_in(sight, name);
    // Without the bound a viewer of few of them would look for more until the last.
    let shown = running.min(MOST_JOBS);
    let mut moving = moving(known, sight, name, facts, lease);
    let more_moving = moving.len().saturating_sub(MOST_JOBS);
    moving.truncate(MOST_JOBS);
    ClusterRow {
        name: name.to_owned(),
        version: facts.version.clone(),
        region: facts.region.clone(),
        state,
        is_well,
        sentence,
        taints: facts.taints.clone(),
        nodes: facts.nodes,
        nodes_ready: facts.nodes_ready,
        bars: bars(facts),
        heat: heat(facts, &Who { known, sight, cluster: name }),
        lease_renewed_s: lease.and_then(|lease| lease.renewed_s),
        jobs: here.take(shown).map(|job| job_row(known, sight, job)).collect(),
        more_jobs: running - shown,
        moving,
        more_moving,
    }
}

/// What leaves a cluster: first what is still there, then what already waits or starts elsewhere.
fn moving(
    known: &Known,
    sight: &Sight,
    cluster: &str,
    facts: &ClusterFacts,
    lease: Option<&LeaseFacts>,
) -> Vec<MovingRow> {
    let is_lost = lease.is_some_and(|lease| lease.declared_lost);
    let mut found = Vec::new();
    // Only such a cluster loses jobs that it still has: all jobs are looked at then.
    if is_lost || facts.draining {
        let here = known.jobs().values().filter(|job| job.binding.end.is_none() && job.is_in(cluster));
        for job in here.filter(|job| sight.jobs.has(job.namespace()) && job.binding.is_job) {
            let lost_s = job.binding.run.as_ref().and_then(|run| run.lost_since_s);
            let (why, state) = match (is_lost, lost_s) {
                (true, Some(_)) => {
                    ("the cluster is lost", "may still run here; waits until that is out of the question")
                }
                (true, None) => ("the cluster is lost", "runs here until the hub gives it up"),
                (false, _) => ("the cluster is drained", "runs here until its turn"),
            };
            let since_s = lost_s.unwrap_or_else(|| job.since_s());
            found.push(MovingRow {
                job: job_row(known, sight, job),
                why: why.to_owned(),
                state: state.to_owned(),
                since_s,
            });
        }
    }
    let gone =
        known.most_evicted(sight).filter(|job| matches!(job.state(), State::Waiting | State::Starting));
    for job in gone.filter(|job| !job.is_in(cluster)) {
        let last = job.binding.attempts.iter().max_by_key(|attempt| attempt.epoch);
        let Some(last) = last.filter(|last| last.cluster == cluster) else { continue };
        let state = match job.state() {
            State::Starting => format!("starts in {}", job.cluster()),
            _ => "waits for another place".to_owned(),
        };
        found.push(MovingRow {
            job: job_row(known, sight, job),
            why: last.reason.clone(),
            state,
            since_s: last.ended_s,
        });
    }
    found
}

/// Jobs of a lost cluster that wait until they certainly no longer run there.
fn fenced(known: &Known, sight: &Sight, cluster: &str) -> String {
    let is_fenced = |job: &&Job| {
        job.binding.end.is_none()
            && job.is_in(cluster)
            && job.binding.run.as_ref().is_some_and(|run| run.lost_since_s.is_some())
    };
    // Only a cluster that is lost has any, and such a cluster is rare: all jobs are looked at then.
    if !known.leases().get(cluster).is_some_and(|lease| lease.declared_lost) {
        return String::new();
    }
    let jobs = known.jobs().values().filter(|job| sight.jobs.has(job.namespace()));
    match jobs.filter(is_fenced).count() {
        0 => String::new(),
        1 => "1 job waits for that.".to_owned(),
        many => format!("{many} jobs wait for that."),
    }
}

fn bars(facts: &ClusterFacts) -> Vec<Bar> {
    let shown = [amounts::GPU, "cpu", "memory"].into_iter();
    shown
        .filter_map(|name| {
            let (used, total) = used_and_total(facts, name).filter(|(_, total)| *total > 0)?;
            Some(bar(name, used, None, Some(total), 0))
        })
        .collect()
}

/// Requests of pods and reservations, and what is allocatable; `None` if no node has any of it.
fn used_and_total(facts: &ClusterFacts, resource: &str) -> Option<(i64, i64)> {
    let total = *facts.allocatable.get(resource)?;
    Some((facts.allocated.get(resource).copied().unwrap_or(0), total))
}

/// `3/32`, as tables print it; `-` if no node has any of it.
pub fn used_of_total(facts: &ClusterFacts, resource: &str) -> String {
    used_and_total(facts, resource).map_or_else(
        || "-".to_owned(),
        |(used, total)| format!("{}/{}", amounts::short(resource, used), amounts::short(resource, total)),
    )
}

/// `4`, or `3/4` while not all are ready.
pub fn ready_nodes(facts: &ClusterFacts) -> String {
    match facts.nodes_ready == facts.nodes {
        true => facts.nodes.to_string(),
        false => format!("{}/{}", facts.nodes_ready, facts.nodes),
    }
}

fn state(facts: &ClusterFacts, lease: Option<&LeaseFacts>) -> (String, bool, String) {
    let lost = lease.is_some_and(|lease| lease.declared_lost);
    let said = &facts.ready_said.message;
    let (word, is_well, sentence) = match facts.ready {
        _ if facts.gone => {
            ("Gone", false, "An administrator says that nothing runs there any more.".to_owned())
        }
        _ if lost => (
            "Lost",
            false,
            "The hub moves its jobs elsewhere, once they certainly no longer run there.".to_owned(),
        ),
        Some(false) => ("NotReady", false, format!("It takes no new jobs. {said}").trim_end().to_owned()),
        None => ("Unknown", false, "Its agent has not reported yet.".to_owned()),
        Some(true) if facts.draining => {
            ("Ready, draining", false, "Its jobs are moved elsewhere, one at a time.".to_owned())
        }
        Some(true) if facts.cordoned => ("Ready, cordoned", false, "It takes no new jobs.".to_owned()),
        Some(true) => ("Ready", true, String::new()),
    };
    (word.to_owned(), is_well, sentence)
}
