//! Who made room for whom: runs that were preempted, with what it cost. Deliberately absent: who could be preempted.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    indexes::Over,
    job::Job,
    known::Known,
    paths::holds,
    preemption_message::{PreemptionMessage, is_preempted},
    sight::{Namespaces, Sight},
};

/// Preemptions on one page.
const MOST: usize = 20;
/// Those that are looked at for somebody who may see few of them.
const MOST_LOOKED_AT: usize = 2_000;

/// One run that was preempted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionRow {
    /// Namespace, name and resource of the job that gave way; absent if the viewer may not see it.
    pub victim: Option<(String, String, String)>,
    /// The job that took its place; the resource is empty if the job is gone. Absent if the viewer may not see it.
    pub taker: Option<(String, String, String)>,
    pub cluster: String,
    /// The right by which it was preempted: `Reclaim`, `Priority`, ...
    pub rule: String,
    /// `25 s of work are lost`; empty if it is not said.
    pub lost: String,
    pub at_s: i64,
}

/// The runs that were preempted for a job, the newest first, and how many more there are.
pub fn preempted_for(known: &Known, sight: &Sight, job: &Job) -> (Vec<PreemptionRow>, usize) {
    let taker = format!("{}/{}", job.namespace(), job.name());
    // Earlier ones were for another job of that name.
    let since = |over: &&Over| over.0.0 >= job.binding.created_s;
    let found = || known.indexes().preempted_for(&taker).take_while(since);
    let rows: Vec<PreemptionRow> =
        found().take(MOST).filter_map(|over| row(known, sight, over, Some(job))).collect();
    let more = found().count().saturating_sub(MOST);
    (rows, more)
}

/// The last preemptions in which the viewer may see one of the two jobs, the newest first; `queue`: those of a job that
/// is in this queue or in one below it, or all.
pub fn preemptions(known: &Known, sight: &Sight, queue: Option<&str>, most: usize) -> Vec<PreemptionRow> {
    let is_seen =
        |row: &PreemptionRow| sight.jobs == Namespaces::All || row.victim.is_some() || row.taker.is_some();
    let of_queue = |over: &Over| match queue {
        None => true,
        Some(path) => known.job(&over.1).is_some_and(|job| holds(path, job.queue())),
    };
    let found = known.indexes().preempted().take(MOST_LOOKED_AT).filter(|over| of_queue(over));
    found.filter_map(|over| row(known, sight, over, None)).filter(is_seen).take(most).collect()
}

fn row(known: &Known, sight: &Sight, over: &Over, taker: Option<&Job>) -> Option<PreemptionRow> {
    let (_, id, epoch) = over;
    let victim = known.job(id)?;
    let attempt =
        victim.binding.attempts.iter().find(|attempt| attempt.epoch == *epoch && is_preempted(attempt))?;
    let message = PreemptionMessage::read(&attempt.message);
    let names = |job: &Job| (job.namespace().to_owned(), job.name().to_owned(), job.binding.resource.clone());
    let (namespace, name) = message.by.split_once('/').unwrap_or(("", message.by));
    let taker = taker.or_else(|| known.named(namespace, name)).map(names);
    let gone = || (namespace.to_owned(), name.to_owned(), String::new());
    let has_taker = !name.is_empty() && sight.jobs.has(namespace);
    Some(PreemptionRow {
        victim: sight.jobs.has(victim.namespace()).then(|| names(victim)),
        taker: has_taker.then(|| taker.unwrap_or_else(gone)),
        cluster: attempt.cluster.clone(),
        rule: message.rule.to_owned(),
        lost: message.lost.to_owned(),
        at_s: attempt.ended_s,
    })
}
