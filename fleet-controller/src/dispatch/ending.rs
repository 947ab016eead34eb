//! How a run ends: for good, or before its job, to be run again elsewhere.

use fleet_api::reservation::ReservationPhase;
use fleet_policies::{
    reason::Reason,
    spec::PurgeMode,
    workload::{self, Health, Outcome},
};
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{Step, delete, delete_work, report::Item, statuses::patch_binding_status};
use crate::{
    binding::BindingEntry,
    events,
    options::Options,
    status::rfc3339,
    world::{Key, World},
    writes::{Target, Verb, Write},
};

pub(super) fn job_outcome(entry: &BindingEntry, items: &[Item]) -> Option<Outcome> {
    if !entry.workload.is_job() || items.len() != entry.object.spec.clusters.len() {
        return None;
    }
    let outcomes: Vec<Outcome> =
        items.iter().map(|item| workload::outcome(entry.workload, item.status?)).collect::<Option<_>>()?;
    let failed = outcomes.contains(&Outcome::Failed);
    Some(if failed { Outcome::Failed } else { Outcome::Succeeded })
}

pub(super) enum Ending {
    None,
    /// Failed or unhealthy since then (RFC 3339), and still tolerated.
    Watch {
        since: String,
    },
    Result(Outcome),
    Evict {
        message: String,
    },
}

/// A job that ended: for good, or to be run again elsewhere.
pub(super) fn judge_end(
    entry: &BindingEntry,
    outcome: Outcome,
    options: &Options,
    now: Timestamp,
    step: &mut Step,
) -> Ending {
    if outcome == Outcome::Succeeded || !entry.is_gang() {
        return Ending::Result(outcome);
    }
    let Some(failover) = entry.failover.as_ref().and_then(|failover| failover.application.as_ref()) else {
        return Ending::Result(outcome);
    };
    let attempts = entry.object.status.as_ref().map_or(0, |status| status.attempts.len());
    if attempts + 1 >= attempts_limit(entry, options) || failover.purge_mode() == PurgeMode::Never {
        return Ending::Result(outcome);
    }
    tolerate(entry, failover.toleration_s(), "the job failed", now, step)
}

pub(super) fn attempts_limit(entry: &BindingEntry, options: &Options) -> usize {
    let asked = entry.object.spec.failover.as_ref().and_then(|f| f.application.as_ref()?.backoff_limit);
    asked.and_then(|limit| usize::try_from(limit).ok()).map_or(options.attempts_limit, |limit| limit.max(1))
}

/// A job that runs on, perhaps unhealthy.
pub(super) fn judge_health(entry: &BindingEntry, items: &[Item], now: Timestamp, step: &mut Step) -> Ending {
    let Some(failover) = entry.failover.as_ref().and_then(|failover| failover.application.as_ref()) else {
        return Ending::None;
    };
    let unhealthy = items
        .iter()
        .any(|item| item.status.is_some_and(|s| workload::health(entry.workload, s) == Health::Unhealthy));
    if !unhealthy || !entry.is_gang() || failover.purge_mode() == PurgeMode::Never {
        return Ending::None;
    }
    tolerate(entry, failover.toleration_s(), "the job was unhealthy", now, step)
}

/// The first time seen is kept in the binding, so that a restart neither forgets nor shortens it.
pub(super) fn tolerate(
    entry: &BindingEntry,
    toleration_s: i64,
    what: &str,
    now: Timestamp,
    step: &mut Step,
) -> Ending {
    let noted = entry.object.status.as_ref().and_then(|status| status.unhealthy_since.clone());
    let since = noted.unwrap_or_else(|| rfc3339(now));
    let first: Timestamp = since.parse().unwrap_or(now);
    let until = first + jiff::SignedDuration::from_secs(toleration_s.max(0));
    if now < until {
        step.wake = Some(until);
        return Ending::Watch { since };
    }
    Ending::Evict { message: format!("{what} and stayed so for {toleration_s} s") }
}

/// Notes that the run is over before its job. From then on the run is only taken back, whatever the member
/// still reports, also by a controller that was restarted in between.
pub(super) fn note_attempt(
    entry: &BindingEntry,
    message: &str,
    known: &Value,
    step: &mut Step,
    now: Timestamp,
) {
    let spec = &entry.object.spec;
    let Some(target) = spec.clusters.first() else { return };
    let mut desired = known.clone();
    let mut attempts = known["attempts"].as_array().cloned().unwrap_or_default();
    attempts.push(json!({
        "cluster": target.name,
        "epoch": spec.epoch,
        "reason": Reason::ApplicationFailure.as_str(),
        "message": message,
        "endedAt": rfc3339(now),
    }));
    desired["attempts"] = Value::Array(attempts);
    patch_binding_status(entry, known, &desired, step);
    let text = format!("taken back from {}: {message}", target.name);
    step.writes.push(events::warning(
        &entry.object_subject(),
        entry.source(),
        Reason::ApplicationFailure,
        &text,
        now,
    ));
}

/// Whether the present run was given up.
pub(super) fn is_given_up(entry: &BindingEntry) -> bool {
    let epoch = entry.object.spec.epoch;
    entry.object.status.as_ref().is_some_and(|status| status.attempts.iter().any(|a| a.epoch == epoch))
}

/// Takes a run back: its Work goes first; when the member has let go of it, the target is cleared and the
/// job is free to be placed again, through its queue if it came from one.
pub(super) fn take_back(world: &World, key: &Key, entry: &BindingEntry, step: &mut Step) {
    let mut left = false;
    for (key, work) in world.works_of(key) {
        left = true;
        delete_work(key, work, step);
    }
    for (key, reservation) in world.reservations_of(key) {
        delete(Target::Reservation, key, &reservation.metadata, step);
    }
    if !left {
        step.writes.push(clear_target(world, key, entry));
    }
}

/// Clears the target by compare-and-swap; the epoch stays, the next binding raises it.
fn clear_target(world: &World, key: &Key, entry: &BindingEntry) -> Write {
    let mut spec = json!({"clusters": null});
    if world.units.contains_key(&(key.0.clone(), entry.unit_name())) {
        spec["suspension"] = json!({"scheduling": true});
    }
    let patch = json!({"metadata": {"resourceVersion": entry.object.resource_version()}, "spec": spec});
    Write::new(Target::Binding, &key.0, &key.1, Verb::Merge(patch))
}

/// A gang that was bound, and whose places were given away before its Work was made, is placed anew.
pub(super) fn lost_places(world: &World, key: &Key, entry: &BindingEntry, step: &mut Step) -> bool {
    if !entry.is_gang() || world.works_of(key).next().is_some() {
        return false;
    }
    let expired = world.reservations_of(key).find(|(_, reservation)| {
        let phase = reservation.status.as_ref().and_then(|status| status.phase);
        reservation.spec.binding.uid == entry.uid()
            && reservation.spec.epoch == entry.object.spec.epoch
            && phase == Some(ReservationPhase::Expired)
    });
    let Some((place, reservation)) = expired else { return false };
    delete(Target::Reservation, place, &reservation.metadata, step);
    step.writes.push(clear_target(world, key, entry));
    true
}

/// Between two runs a job is neither failed nor running: what the last run said of it goes.
pub(super) fn between_runs(entry: &BindingEntry, status: &mut Value, now: Timestamp) {
    let given_up = entry.object.status.as_ref().is_some_and(|status| !status.attempts.is_empty());
    if !given_up || !entry.workload.is_kubeflow() {
        return;
    }
    let Some(conditions) = status["conditions"].as_array_mut() else { return };
    conditions.retain(|c| c["type"] != "Failed" && c["type"] != "Running");
    if !conditions.iter().any(|c| c["type"] == "Restarting") {
        let time = rfc3339(now);
        conditions.push(json!({
            "type": "Restarting",
            "status": "True",
            "reason": Reason::ApplicationFailure.as_str(),
            "message": "the run was taken back and the job is placed again",
            "lastUpdateTime": time,
            "lastTransitionTime": time,
        }));
    }
    if let Some(fields) = status.as_object_mut() {
        fields.remove("replicaStatuses");
    }
}
