//! The member clusters: state, what keeps work away, and what is used.

use serde::Serialize;

use crate::{
    amounts,
    bars::{Bar, bar},
    facts::{ClusterFacts, LeaseFacts, TaintFacts},
    heat::{Heat, heat},
    jobs::{JobRow, job_row},
    known::Known,
    sight::Sight,
};

/// Running jobs named below a cluster.
const MOST_JOBS: usize = 10;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
}

/// Every cluster by name; none for a viewer who may not list them.
pub fn clusters(known: &Known, sight: &Sight) -> Vec<ClusterRow> {
    if !sight.clusters {
        return Vec::new();
    }
    let seen = || known.longest_running().filter(|job| sight.jobs.has(job.namespace()));
    known
        .clusters()
        .iter()
        .map(|(name, facts)| {
            let lease = known.leases().get(name);
            let (state, is_well, sentence) = state(facts, lease);
            let here = || seen().filter(|job| job.cluster() == name);
            ClusterRow {
                name: name.clone(),
                version: facts.version.clone(),
                region: facts.region.clone(),
                state,
                is_well,
                sentence,
                taints: facts.taints.clone(),
                nodes: facts.nodes,
                nodes_ready: facts.nodes_ready,
                bars: bars(facts),
                heat: heat(facts),
                lease_renewed_s: lease.and_then(|lease| lease.renewed_s),
                jobs: here().take(MOST_JOBS).map(job_row).collect(),
                more_jobs: here().count().saturating_sub(MOST_JOBS),
            }
        })
        .collect()
}

fn bars(facts: &ClusterFacts) -> Vec<Bar> {
    let shown = [amounts::GPU, "cpu", "memory"].into_iter();
    shown
        .filter_map(|name| {
            let total = facts.allocatable.get(name).copied().filter(|total| *total > 0)?;
            Some(bar(name, facts.allocated.get(name).copied().unwrap_or(0), None, Some(total), 0))
        })
        .collect()
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
