//! Runs of a job that ended before it did: their records, and their consequences for the next run.

use std::collections::BTreeSet;

use fleet_api::mutation::{self, Mutation};
use fleet_api::{Work, binding::Attempt, policy::PurgeMode as WirePurge};
use fleet_policies::{reason::Reason, spec::PurgeMode, state_preservation, workload};
pub(super) use fleet_runs::purge::Stay;
use fleet_runs::{Attempt as RunAttempt, Eviction};
pub use fleet_runs::{Avoid, attempts::WAITS_FOR_RESUME};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{fence, statuses::patch_binding_status, step::Step};
use crate::{
    binding::BindingEntry,
    events,
    intents::Intents,
    options::Options,
    status::{cut, rfc3339},
    world::{Key, World},
};

fn attempts(entry: &BindingEntry) -> &[Attempt] {
    entry.object.status.as_ref().map_or(&[], |status| &status.attempts)
}

/// The runs that were given up, in the form of the rules.
fn known(entry: &BindingEntry) -> impl Iterator<Item = RunAttempt<'_>> + Clone {
    attempts(entry).iter().map(as_known)
}

fn as_known(attempt: &Attempt) -> RunAttempt<'_> {
    RunAttempt {
        cluster: &attempt.cluster,
        reason: Reason::from_text(&attempt.reason),
        message: &attempt.message,
        ended_at_ms: attempt.ended_at.parse::<Timestamp>().ok().map(Timestamp::as_millisecond),
    }
}

/// Number of runs that failed because of the job itself.
pub(super) fn failures(entry: &BindingEntry) -> usize {
    fleet_runs::attempts::failures(known(entry))
}

/// How often the job was preempted.
pub fn preemptions(entry: &BindingEntry) -> u32 {
    fleet_runs::attempts::preemptions(known(entry))
}

/// Whether a waiting job is placed again only when its owner resumes it.
pub fn waits_for_resume(world: &World, entry: &BindingEntry) -> bool {
    let object = world.bound_object(entry);
    let is_suspended = object.is_some_and(|object| workload::is_suspended(entry.workload, &object.value));
    fleet_runs::attempts::waits_for_resume(known(entry), is_suspended)
}

/// Whether and how long `cluster` is avoided because of earlier runs there.
pub fn avoidance(entry: &BindingEntry, cluster: &str, options: &Options, now: Timestamp) -> Avoid {
    let limits = options.run_limits();
    fleet_runs::attempts::avoidance(known(entry), cluster, &limits, now.as_millisecond())
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
    let attempt = entry.attempt(entry.object.spec.epoch)?;
    let limits = options.run_limits();
    let failover = entry.failover.as_ref();
    let reason = fleet_runs::attempts::final_reason(known(entry), as_known(attempt), failover, &limits)?;
    let message = match reason {
        Reason::Stopped => attempt.message.clone(),
        Reason::ClusterGone => format!(
            "cluster {} was declared gone, and the job's policy has no failover.cluster",
            attempt.cluster
        ),
        _ => format!("all {} runs failed: {}", failures(entry), history(entry)),
    };
    Some((reason, message))
}

/// Records that the run ended before its job. From then on the run is only evicted, whatever the member
/// still reports, also after a restart of the controller.
pub(super) fn note(
    entry: &BindingEntry,
    over: &Eviction,
    status: Option<&Value>,
    known: &Value,
    step: &mut Step,
    now: Timestamp,
) {
    let spec = &entry.object.spec;
    let Some(target) = spec.clusters.first() else { return };
    let mut desired = known.clone();
    let mut all = attempts(entry).to_vec();
    while let Some(oldest) = fleet_runs::attempts::to_forget(all.iter().map(as_known)) {
        all.remove(oldest);
    }
    let run = entry.object.status.as_ref().and_then(|status| status.run.as_ref());
    let state = state_preservation::read(entry.failover.as_ref(), over.reason, status);
    all.push(Attempt {
        cluster: target.name.clone(),
        epoch: spec.epoch,
        reason: over.reason.to_string(),
        // Members and tenants have words in it, and the binding has to hold many of them.
        message: cut(&over.message).to_owned(),
        started_at: run.filter(|run| run.epoch == spec.epoch).and_then(|run| run.started_at.clone()),
        ended_at: rfc3339(now),
        purge: match fleet_runs::purge::mode(entry.failover.as_ref(), over.reason) {
            PurgeMode::Directly => None,
            PurgeMode::Gracefully => Some(WirePurge::Gracefully),
            PurgeMode::Never => Some(WirePurge::Never),
        },
        preserved_state: state.into_iter().map(|(alias, value)| (alias, cut(&value).to_string())).collect(),
    });
    desired["attempts"] = json!(all);
    patch_binding_status(entry, known, &desired, step);
    let text = format!("evicted from {}: {}", target.name, over.message);
    step.writes.push(events::warning(&entry.object_subject(), entry.source(), over.reason, &text, now));
}

/// Whether the Work of a run that was given up is kept for now, and until when.
pub(super) fn stay(entry: &BindingEntry, work: &Work, now: Timestamp) -> Stay {
    if work.spec.binding.uid != entry.uid() || work.metadata.deletion_timestamp.is_some() {
        return Stay::No;
    }
    let Some(attempt) = entry.attempt(work.spec.epoch) else { return Stay::No };
    let mode = match attempt.purge {
        None | Some(WirePurge::Directly | WirePurge::Immediately) => PurgeMode::Directly,
        Some(WirePurge::Gracefully | WirePurge::Graciously) => PurgeMode::Gracefully,
        Some(WirePurge::Never) => PurgeMode::Never,
    };
    let spec = &entry.object.spec;
    let run = entry.object.status.as_ref().and_then(|status| status.run.as_ref());
    let replaced = spec.epoch > work.spec.epoch
        && entry.is_bound()
        && run.is_some_and(|run| run.epoch == spec.epoch && run.started_at.is_some());
    let now_ms = now.as_millisecond();
    let ended_ms = attempt.ended_at.parse::<Timestamp>().map_or(now_ms, Timestamp::as_millisecond);
    fleet_runs::purge::stay(mode, entry.failover.as_ref(), ended_ms, replaced, now_ms)
}

/// The same, unless another job needs what the kept run uses.
pub(super) fn stays(
    intents: &Intents,
    entry: &BindingEntry,
    (key, work): (&Key, &Work),
    now: Timestamp,
) -> Stay {
    match intents.pod_ends.contains_key(key) {
        true => Stay::No,
        false => stay(entry, work, now),
    }
}

/// Clusters that an older run of the binding's name excludes.
///
/// # Errors
/// Why the job must wait for an older run before it may be placed at all.
pub fn older_runs(
    world: &World,
    intents: &Intents,
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
            // A deleted job of the same name: to its user it is the same job, so it must end first, in
            // whichever cluster it is.
            fence::is_gone(world, cluster)
        };
        if !passed && !mutation::is_on(Mutation::TargetClearedTooEarly) {
            return Err(format!("an older run of this name is still being cleaned up in {cluster}"));
        }
        taken.insert(cluster.to_string());
    }
    for ((namespace, _), sent) in intents.sent.of(key) {
        let cluster = fence::cluster_of(namespace);
        if sent.binding.uid != entry.uid() && !fence::is_gone(world, cluster) {
            return Err(format!(
                "an older run of this name may have begun in {cluster}; its write has an unknown outcome"
            ));
        }
    }
    Ok(taken)
}
