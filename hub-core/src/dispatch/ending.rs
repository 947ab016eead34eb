//! How a run ends: with its job, or before it, to run again elsewhere.

use fleet_api::mutation::{self, Mutation};
use fleet_api::reservation::ReservationPhase;
use fleet_api::{Reservation, ReservationStatus, Work, names};
use fleet_policies::{reason::Reason, workload};
use fleet_quota::JobId;
use fleet_runs::Eviction;
use jiff::Timestamp;
use kube_core::ResourceExt;
use serde_json::{Value, json};

use super::{
    attempts::{self, Stay, stays},
    fence,
    statuses::{binding_status, patch_binding_status},
    step::{Step, delete, delete_work},
};
use crate::{
    binding::BindingEntry,
    events,
    intents::Intents,
    manifests,
    options::Options,
    sent::SentWork,
    status::{cut, rfc3339},
    unqueued,
    world::{Key, Object, World},
    writes::{Target, Verb, Write},
};

/// Evicts a run: its Work is deleted first. Once the member has confirmed the cleanup, or need not be
/// waited for, the target is cleared and the job can be placed again, through its queue if it came from one;
/// or the job ends.
pub(super) fn take_back(
    world: &World,
    intents: &Intents,
    key: &Key,
    entry: &BindingEntry,
    options: &Options,
    step: &mut Step,
    now: Timestamp,
) {
    let mut left = false;
    let last = attempts::final_reason(entry, options);
    for (work_key, work) in world.works_of(key) {
        // A job that ends counts only the pods that its member reports after the run's own end. Of a run that has not
        // reported one nothing would count, so it is removed first, whatever its purge mode.
        let is_uncounted =
            last.is_some() && work.spec.epoch == entry.object.spec.epoch && !fence::has_reported_end(work);
        let is_kept = !is_uncounted && stays(intents, entry, (work_key, work), now) != Stay::No;
        if work.spec.binding.uid != entry.uid() || is_kept {
            continue;
        }
        delete_work(work_key, work, step);
        let cluster = fence::cluster_of(&work_key.0);
        if !fence::is_left_behind(world, entry, cluster, work) {
            left = true;
            fence::ask_for_mark(world, entry, cluster, step);
        }
        remove_finalizer_if_cluster_gone(world, work_key, work, step);
    }
    for (work_key, sent) in intents.sent.of(key) {
        // The Work may still arrive and start after the next run has begun, so its name is taken first.
        let is_gone = fence::is_gone(world, fence::cluster_of(&work_key.0));
        if sent.binding.uid == entry.uid() && !world.works.contains_key(work_key) && !is_gone {
            step.writes.push(create_placeholder(work_key, sent));
            left = true;
        }
    }
    drop_reservations(world, key, step);
    if left && !mutation::is_on(Mutation::TargetClearedTooEarly) {
        return;
    }
    match last {
        Some((reason, message)) => end_job(entry, reason, &message, step, now),
        None => step.writes.push(clear_target(world, key, entry)),
    }
}

/// Deletes the reservations of a run that ends, except those whose cells may still be in use.
pub(super) fn drop_reservations(world: &World, key: &Key, step: &mut Step) {
    for (place, reservation) in world.reservations_of(key) {
        if !fence::are_cells_in_use(world, place, reservation) {
            delete(Target::Reservation, place, &reservation.metadata, step);
        }
    }
}

/// Creates an empty Work with the name of one that was sent and never seen. That Work does not exist now, but its
/// write may still arrive.
pub(super) fn create_placeholder(key: &Key, sent: &SentWork) -> Write {
    Write::new(Target::Work, &key.0, &key.1, Verb::Create(manifests::empty_work(sent, key)))
}

/// Removes the finalizer of a Work whose cluster is gone for good, instead of the agent.
pub(super) fn remove_finalizer_if_cluster_gone(world: &World, key: &Key, work: &Work, step: &mut Step) {
    let held = work.finalizers().iter().any(|finalizer| finalizer == names::WORK_FINALIZER);
    if held && work.metadata.deletion_timestamp.is_some() && fence::is_gone(world, fence::cluster_of(&key.0))
    {
        let others: Vec<&String> =
            work.finalizers().iter().filter(|finalizer| *finalizer != names::WORK_FINALIZER).collect();
        let patch = json!({"metadata": {"finalizers": others}});
        step.writes.push(Write::new(Target::Work, &key.0, &key.1, Verb::Merge(patch)));
    }
}

/// Ends a job that is not placed again, although no member has reported its end.
pub(super) fn end_job(entry: &BindingEntry, reason: Reason, message: &str, step: &mut Step, now: Timestamp) {
    let known = binding_status(entry);
    let mut desired = known.clone();
    desired["result"] = json!({
        "outcome": "Failed",
        "cluster": entry.object.spec.clusters.first().map(|target| target.name.clone()).unwrap_or_default(),
        "epoch": entry.object.spec.epoch,
        "recordedAt": rfc3339(now),
        "reason": reason.as_str(),
        "message": cut(message),
    });
    patch_binding_status(entry, &known, &desired, step);
    step.writes.push(events::warning(&entry.object_subject(), entry.source(), reason, message, now));
}

/// Pods that outlive their job make way: the agent deletes them now instead of when their time is over.
pub(super) fn end_pods(entry: &BindingEntry, work: &Key, taker: &JobId, now: Timestamp) -> Write {
    let patch = json!({"metadata": {"annotations": {names::END_PODS_ANNOTATION: taker.as_str()}}});
    let text = format!("its remaining pods end, because {taker} needs what they use");
    let told = events::warning(&entry.object_subject(), entry.source(), Reason::Preempted, &text, now);
    Write::new(Target::Work, &work.0, &work.1, Verb::Merge(patch)).then([told])
}

/// The end of a job that its owner stopped.
pub(super) fn stopped(entry: &BindingEntry, object: &Object) -> Option<Eviction> {
    let wanted = entry.workload.is_job() && names::is_stopped(&object.value["metadata"]["annotations"]);
    let message = format!("stopped by the annotation {}", names::STOP_ANNOTATION);
    wanted.then_some(Eviction { reason: Reason::Stopped, message })
}

/// The status of a failed job reports the failure, whatever its last run reported, and the earlier runs.
pub(super) fn tell_end(entry: &BindingEntry, status: &mut Value, now: Timestamp) {
    let Some(binding) = &entry.object.status else { return };
    let Some(result) = binding.result.as_ref().filter(|result| result.outcome == "Failed") else { return };
    let before = attempts::history(entry);
    if workload::outcome(entry.workload, status) != Some(workload::Outcome::Failed) {
        let reason = result.reason.clone().unwrap_or_else(|| Reason::Failed.to_string());
        let message = result.message.clone().unwrap_or_default();
        workload::set_failed(entry.workload, status, &reason, &message, &rfc3339(now));
    } else if !before.is_empty() && result.reason.is_none() {
        let told = format!("runs before this one: {before}");
        for condition in status["conditions"].as_array_mut().into_iter().flatten() {
            let message = condition["message"].as_str().unwrap_or_default();
            if condition["type"] == "Failed" && !message.contains(&told) {
                condition["message"] = json!(format!("{message} ({told})"));
            }
        }
    }
}

/// Clears the target by compare-and-swap; the epoch stays, and the next bind raises it.
fn clear_target(world: &World, key: &Key, entry: &BindingEntry) -> Write {
    let mut spec = json!({"clusters": null, "cells": null, "queue": null});
    let queued = world.units.contains_key(&(key.0.clone(), entry.unit_name()));
    if entry.has_left_queue() || queued || unqueued::must_queue(world, entry) {
        spec["suspension"] = json!({"scheduling": true});
    }
    let patch = json!({"metadata": {"resourceVersion": entry.object.resource_version()}, "spec": spec});
    Write::new(Target::Binding, &key.0, &key.1, Verb::Merge(patch))
}

/// The reservation of a bound gang whose places the member does not hold any more.
fn closed_reservation<'w>(world: &'w World, entry: &BindingEntry) -> Option<(&'w Key, &'w Reservation)> {
    let is_closed = |status: &ReservationStatus| {
        matches!(status.phase, Some(ReservationPhase::Expired | ReservationPhase::Refused))
    };
    let own = world.reservation_of_run(entry).filter(|_| entry.is_gang());
    own.filter(|(_, reservation)| reservation.status.as_ref().is_some_and(is_closed))
}

/// The end of a run on cells that its member does not hold any more: no pod of it is placed anywhere else. Pods without
/// cells find other places.
pub(super) fn lost_cells(world: &World, entry: &BindingEntry) -> Option<Eviction> {
    let cluster = &entry.object.spec.clusters.first().filter(|_| entry.is_gang())?.name;
    let why = match (world.reservation_of_run(entry), closed_reservation(world, entry)) {
        (None, _) if entry.object.spec.cells.is_some() && world.reserves(cluster) => {
            "their reservation is gone"
        }
        (_, Some((_, closed))) if !closed.spec.cells.is_empty() => {
            closed.status.as_ref().and_then(|status| status.message.as_deref()).unwrap_or_default()
        }
        _ => return None,
    };
    let message = format!("{cluster} does not hold its cells any more: {why}");
    Some(Eviction { reason: Reason::ReservationRefused, message })
}

/// Places a bound gang again whose places expired before its Work was created. A Work that was sent and not seen may
/// have begun.
pub(super) fn lost_places(
    world: &World,
    intents: &Intents,
    key: &Key,
    entry: &BindingEntry,
    step: &mut Step,
) -> bool {
    let Some((place, reservation)) = closed_reservation(world, entry) else { return false };
    let work = (place.0.clone(), entry.work_name());
    if intents.sent.get(&work).is_some() || world.works_of(key).next().is_some() {
        return false;
    }
    delete(Target::Reservation, place, &reservation.metadata, step);
    step.writes.push(clear_target(world, key, entry));
    true
}

/// Between two runs a job is neither failed nor running: what the last run reported is removed.
pub(super) fn between_runs(entry: &BindingEntry, status: &mut Value, now: Timestamp) {
    let attempts = entry.object.status.as_ref().map_or(&[][..], |status| &status.attempts);
    let Some(last) = attempts.last().filter(|_| !entry.is_finished()) else { return };
    workload::between_runs(entry.workload, status, &last.reason, &rfc3339(now));
}
