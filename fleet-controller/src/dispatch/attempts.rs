//! The runs of a job that were ended before it: what is noted of each, and what follows from them for the
//! next one.

use std::collections::BTreeSet;

use fleet_api::mutation::{self, Mutation};
use fleet_api::{Work, binding::Attempt, policy::PurgeMode as WirePurge};
use fleet_policies::{reason::Reason, spec::PurgeMode};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Step, fence, restore, statuses::patch_binding_status};
use crate::{
    binding::BindingEntry,
    events,
    options::Options,
    planner::Waiting,
    status::rfc3339,
    world::{Key, World},
};

/// Runs remembered of one job. More than any allowed `backoffLimit`.
const KEPT: usize = 64;
/// How long a cluster in which the job's name was taken is not tried again.
const NAME_TAKEN_PAUSE: SignedDuration = SignedDuration::from_secs(600);
/// How long a cluster is not tried again to which the job could not be sent as it is.
const UNSENDABLE_PAUSE: SignedDuration = SignedDuration::from_secs(60);
/// Doublings of the time for which a cluster that failed a job is avoided.
const AVOID_DOUBLINGS: u32 = 6;

/// A run that is to end.
#[derive(Clone, Debug)]
pub(super) struct Over {
    pub reason: Reason,
    pub message: String,
}

/// Whether a cluster is chosen for a job that it has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Avoid {
    No,
    /// Only when no other one can hold the job.
    Last,
    /// Not before then, and why.
    Until(Timestamp, Waiting),
}

/// Whether the present run was given up.
pub fn is_given_up(entry: &BindingEntry) -> bool {
    attempt_of(entry, entry.object.spec.epoch).is_some()
}

fn attempts(entry: &BindingEntry) -> &[Attempt] {
    entry.object.status.as_ref().map_or(&[], |status| &status.attempts)
}

pub(super) fn attempt_of(entry: &BindingEntry, epoch: i64) -> Option<&Attempt> {
    attempts(entry).iter().find(|attempt| attempt.epoch == epoch)
}

/// Whether a run that ended so is the job's own fault.
fn counts(attempt: &Attempt) -> bool {
    matches!(Reason::from_text(&attempt.reason), Some(Reason::ApplicationFailure | Reason::GangNotStarted))
}

/// Runs that failed by the job's own fault.
pub(super) fn failures(entry: &BindingEntry) -> usize {
    attempts(entry).iter().filter(|attempt| counts(attempt)).count()
}

pub(super) fn limit(entry: &BindingEntry, options: &Options) -> usize {
    let asked = entry.failover.as_ref().and_then(|failover| failover.application.as_ref()?.backoff_limit);
    asked.and_then(|limit| usize::try_from(limit).ok()).map_or(options.attempts_limit, |limit| limit.max(1))
}

/// What is remembered against a cluster fades: each failure keeps the job off for a time that doubles with
/// the number of failures there.
pub fn avoidance(entry: &BindingEntry, cluster: &str, options: &Options, now: Timestamp) -> Avoid {
    let base = SignedDuration::try_from(options.avoid_base).unwrap_or_default();
    let (mut failed, mut last) = (0, None);
    for attempt in attempts(entry).iter().filter(|attempt| attempt.cluster == cluster) {
        let Ok(ended) = attempt.ended_at.parse::<Timestamp>() else { continue };
        match Reason::from_text(&attempt.reason) {
            Some(Reason::NameTaken) if now < ended + NAME_TAKEN_PAUSE => {
                let message = format!("an object of that name in {cluster} is not Fleet's");
                return Avoid::Until(ended + NAME_TAKEN_PAUSE, Waiting::new(Reason::NameTaken, message));
            }
            Some(reason @ Reason::NotPermitted) if now < ended + NAME_TAKEN_PAUSE => {
                let why = Waiting::new(reason, attempt.message.clone());
                return Avoid::Until(ended + NAME_TAKEN_PAUSE, why);
            }
            Some(
                reason @ (Reason::OverrideInvalid | Reason::PodSecurityViolation | Reason::WorkloadTooLarge),
            ) if now < ended + UNSENDABLE_PAUSE => {
                let why = Waiting::new(reason, attempt.message.clone());
                return Avoid::Until(ended + UNSENDABLE_PAUSE, why);
            }
            Some(Reason::ApplicationFailure | Reason::GangNotStarted | Reason::ClusterLost) => {
                failed += 1;
                last = last.max(Some(ended));
            }
            _ => {}
        }
    }
    // An edit may come at a bad moment once; what is bound and taken back again and again is no edit.
    let edited = attempts(entry).iter().filter(|attempt| {
        attempt.cluster == cluster
            && matches!(Reason::from_text(&attempt.reason), Some(Reason::Edited | Reason::InvalidWorkload))
    });
    let edited: Vec<&Attempt> = edited.collect();
    if let (2.., Some(latest)) = (edited.len(), edited.last())
        && let Ok(ended) = latest.ended_at.parse::<Timestamp>()
    {
        let doublings = u32::try_from(edited.len() - 2).unwrap_or(AVOID_DOUBLINGS).min(AVOID_DOUBLINGS);
        let until = ended + UNSENDABLE_PAUSE * (1 << doublings);
        if now < until {
            return Avoid::Until(until, Waiting::new(Reason::Edited, latest.message.clone()));
        }
    }
    let Some(last) = last else { return Avoid::No };
    let doublings = (failed - 1u32).min(AVOID_DOUBLINGS);
    if now < last + base * (1 << doublings) { Avoid::Last } else { Avoid::No }
}

/// `east (epoch 1): ApplicationFailure; west (epoch 2): GangNotStarted`.
pub(super) fn history(entry: &BindingEntry) -> String {
    let each: Vec<String> = attempts(entry)
        .iter()
        .map(|attempt| format!("{} (epoch {}): {}", attempt.cluster, attempt.epoch, attempt.reason))
        .collect();
    each.join("; ")
}

/// Why the job ends with the run that was given up, instead of being placed again.
pub(super) fn final_reason(entry: &BindingEntry, options: &Options) -> Option<(Reason, String)> {
    let attempt = attempt_of(entry, entry.object.spec.epoch)?;
    if counts(attempt) && failures(entry) >= limit(entry, options) {
        let message = format!("none of {} runs ended well: {}", failures(entry), history(entry));
        return Some((Reason::BackoffLimitExceeded, message));
    }
    if attempt.reason == Reason::Stopped.as_str() {
        return Some((Reason::Stopped, attempt.message.clone()));
    }
    let moves = entry.failover.as_ref().is_some_and(|failover| failover.cluster.is_some());
    if attempt.reason == Reason::ClusterGone.as_str() && !moves {
        let message = format!(
            "cluster {} was taken out of the fleet and the job's policy has no failover.cluster",
            attempt.cluster
        );
        return Some((Reason::ClusterGone, message));
    }
    None
}

/// How the old run goes, as the policy says for this reason.
fn purge(entry: &BindingEntry, reason: Reason) -> PurgeMode {
    let Some(failover) = &entry.failover else { return PurgeMode::Directly };
    match reason {
        Reason::ApplicationFailure | Reason::GangNotStarted => failover.application_purge(),
        Reason::TaintUntolerated | Reason::Drained => failover.cluster_purge(),
        _ => PurgeMode::Directly,
    }
}

/// Notes that the run is over before its job. From then on the run is only taken back, whatever the member
/// still reports, also by a controller that was restarted in between.
pub(super) fn note(
    entry: &BindingEntry,
    over: &Over,
    status: Option<&Value>,
    known: &Value,
    step: &mut Step,
    now: Timestamp,
) {
    let spec = &entry.object.spec;
    let Some(target) = spec.clusters.first() else { return };
    let mut desired = known.clone();
    let mut all = attempts(entry).to_vec();
    while all.len() >= KEPT {
        let oldest = all.iter().position(|attempt| !counts(attempt)).unwrap_or(0);
        all.remove(oldest);
    }
    let run = entry.object.status.as_ref().and_then(|status| status.run.as_ref());
    all.push(Attempt {
        cluster: target.name.clone(),
        epoch: spec.epoch,
        reason: over.reason.to_string(),
        message: over.message.clone(),
        started_at: run.filter(|run| run.epoch == spec.epoch).and_then(|run| run.started_at.clone()),
        ended_at: rfc3339(now),
        purge: match purge(entry, over.reason) {
            PurgeMode::Directly => None,
            PurgeMode::Gracefully => Some(WirePurge::Gracefully),
            PurgeMode::Never => Some(WirePurge::Never),
        },
        preserved_state: restore::read(entry, over.reason, status),
    });
    desired["attempts"] = json!(all);
    patch_binding_status(entry, known, &desired, step);
    let text = format!("taken back from {}: {}", target.name, over.message);
    step.writes.push(events::warning(&entry.object_subject(), entry.source(), over.reason, &text, now));
}

/// Whether the Work of a run that was given up is left alone for now, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stay {
    No,
    Until(Option<Timestamp>),
}

pub(super) fn stay(entry: &BindingEntry, work: &Work, now: Timestamp) -> Stay {
    if work.spec.binding.uid != entry.uid() || work.metadata.deletion_timestamp.is_some() {
        return Stay::No;
    }
    let Some(attempt) = attempt_of(entry, work.spec.epoch) else { return Stay::No };
    match attempt.purge {
        Some(WirePurge::Never) => Stay::Until(None),
        Some(WirePurge::Gracefully | WirePurge::Graciously) => {
            let spec = &entry.object.spec;
            let run = entry.object.status.as_ref().and_then(|status| status.run.as_ref());
            let replaced = spec.epoch > work.spec.epoch
                && entry.is_bound()
                && run.is_some_and(|run| run.epoch == spec.epoch && run.started_at.is_some());
            let application = entry.failover.as_ref().and_then(|failover| failover.application.clone());
            let grace = application.unwrap_or_default().grace_period_s();
            let ended: Timestamp = attempt.ended_at.parse().unwrap_or(now);
            let until = ended + SignedDuration::from_secs(grace.max(0));
            if replaced || now >= until { Stay::No } else { Stay::Until(Some(until)) }
        }
        _ => Stay::No,
    }
}

/// Clusters that an older run of the binding's name keeps it off.
///
/// # Errors
/// Why the job has to wait for an older run before it may be placed at all.
pub fn older_runs(
    world: &World,
    key: &Key,
    entry: &BindingEntry,
    now: Timestamp,
) -> Result<BTreeSet<String>, String> {
    let mut taken = BTreeSet::new();
    for ((namespace, _), work) in world.works_of(key) {
        let cluster = fence::cluster_of(namespace);
        let own = work.spec.binding.uid == entry.uid();
        let passed = if own {
            stay(entry, work, now) != Stay::No || fence::is_left_behind(world, entry, cluster, work)
        } else {
            // Another job of that name, which was deleted: to its user it is the same one, so that it has to end
            // first, wherever it is.
            fence::is_gone(world, cluster)
        };
        if !passed && !mutation::is_on(Mutation::TargetClearedTooEarly) {
            return Err(format!("an older run of this name is still being cleaned up in {cluster}"));
        }
        taken.insert(cluster.to_string());
    }
    for ((namespace, _), sent) in world.sent.of(key) {
        let cluster = fence::cluster_of(namespace);
        if sent.binding.uid != entry.uid() && !fence::is_gone(world, cluster) {
            return Err(format!("it is not known yet whether an older run of this name began in {cluster}"));
        }
    }
    Ok(taken)
}
