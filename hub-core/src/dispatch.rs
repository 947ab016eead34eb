//! Reconciles a binding with its Works: what each member gets, what the hub's objects report, how a run ends,
//! and how a binding is removed.
//!
//! Pure function of (world, now). It returns every write that can be made now; what depends on the outcome of
//! a write follows in the next reconcile.

mod attempts;
mod ending;
mod fence;
mod judge;
mod pace;
mod reach;
mod removal;
mod report;
mod rollout;
mod statuses;
mod step;
pub mod taints;
mod unit;

use fleet_api::mutation::{self, Mutation};
use fleet_api::patch::merge_diff;
use std::collections::BTreeMap;

use fleet_api::{Work, binding as wire, names};
use fleet_policies::{
    WorkloadKind,
    overrides::Visits,
    reason::Reason,
    workload::{self, Outcome},
};
use jiff::Timestamp;
use kube_core::ResourceExt;
use serde_json::{Value, json};

use crate::{
    binding::{BindingEntry, cluster_namespace},
    events,
    intents::Intents,
    manifests,
    options::Options,
    planner::Waiting,
    pod_scheduling,
    status::{cut, find_condition, rfc3339},
    unqueued,
    world::{Key, Object, World},
    writes::{Target, Verb, Write},
};
pub use attempts::{Avoid, WAITS_FOR_RESUME, avoidance, older_runs, preemptions, waits_for_resume};
use attempts::{Stay, stays};
use ending::{
    between_runs, end_job, lost_places, remove_finalizer_if_cluster_gone, stopped, take_back, tell_end,
};
pub use fence::{are_cells_in_use, is_gone, is_left_behind, lingers, may_be_alive};
use judge::{Ending, RunContext, or_edited};
pub use removal::plan_orphan;
use removal::{delete_earlier, keep, take_down};
use report::{aggregated_object_status, collect, report};
use statuses::{binding_status, patch_binding_status, patch_object_status, set_conditions};
pub use step::{Pace, Step};
use step::{delete, delete_work};
use unit::{UnitPhase, unit};

/// Condition of a binding to a virtual cluster: False while pods of a running job wait for cells.
const CELLS_ALLOCATED: &str = "CellsAllocated";

/// Reconciles one binding.
pub fn plan(
    world: &World,
    intents: &Intents,
    key: &Key,
    waiting: Option<&Waiting>,
    options: &Options,
    now: Timestamp,
) -> Step {
    let Some(entry) = world.bindings.get(key) else { return Step::default() };
    if !world.objects.contains_key(&entry.kind) {
        // The kind has not been listed yet, so the state of the object is unknown.
        return Step::default();
    }
    let mut step = Step::default();
    let given = Given { intents, waiting, options };
    match world.bound_object(entry).filter(|object| !object.deleting) {
        None => take_down(world, key, entry, &mut step),
        Some(object) if entry.is_finished() => finished(world, intents, key, entry, object, &mut step, now),
        Some(object) if entry.is_bound() => bound(world, key, entry, object, given, &mut step, now),
        Some(object) => unbound(world, key, entry, object, given, &mut step, now),
    }
    step
}

/// Inputs of a reconcile besides the world.
#[derive(Clone, Copy)]
struct Given<'a> {
    intents: &'a Intents,
    /// Why the job waits, or some of its pods.
    waiting: Option<&'a Waiting>,
    options: &'a Options,
}

/// Not placed: it waits in its queue or for a cluster, with its reason.
fn unbound(
    world: &World,
    key: &Key,
    entry: &BindingEntry,
    object: &Object,
    given: Given<'_>,
    step: &mut Step,
    now: Timestamp,
) {
    let Given { intents, waiting, .. } = given;
    for (key, work) in world.works_of(key) {
        // A reservation of a later epoch belongs to a target that this reconcile does not see yet.
        if work.spec.epoch > entry.object.spec.epoch {
            continue;
        }
        match stays(intents, entry, (key, work), now) {
            Stay::No => delete_earlier(world, entry, key, work, step),
            Stay::Until(until) => keep(key, work, until, step),
        }
        remove_finalizer_if_cluster_gone(world, key, work, step);
    }
    if let Some(over) = stopped(entry, object) {
        end_job(entry, over.reason, &over.message, step, now);
        return;
    }
    let mut told = Step::default();
    tell_wait(world, key, entry, object, waiting, &mut told, now);
    step.tell(Pace::Reason, told.writes);
}

/// Reports what a job waits for.
fn tell_wait(
    world: &World,
    key: &Key,
    entry: &BindingEntry,
    object: &Object,
    waiting: Option<&Waiting>,
    step: &mut Step,
    now: Timestamp,
) {
    let queued = entry.is_suspended();
    if queued {
        unit(world, key, entry, UnitPhase::Enqueued, waiting, step, now);
    }
    let Some(waiting) = waiting else { return };
    let scheduled = ("Scheduled", "False", waiting.reason, waiting.message.as_str());
    let queuing =
        ("Queuing", if queued { "True" } else { "False" }, Reason::Enqueued, "the job waits in its queue");
    let known = binding_status(entry);
    let mut desired = known.clone();
    set_conditions(entry, &mut desired, &[scheduled, queuing][..if queued { 2 } else { 1 }], now);
    if let Some(fields) = desired.as_object_mut() {
        // The condition of an earlier run.
        fields.remove("unhealthySince");
        fields.remove("aggregatedStatus");
    }
    patch_binding_status(entry, &known, &desired, step);
    tell_of_refusal(entry, waiting, step, now);
    if entry.workload == WorkloadKind::Deployment {
        let mut status = object.value["status"].clone();
        workload::between_runs(entry.workload, &mut status, waiting.reason.as_str(), &rfc3339(now));
        patch_object_status(world, entry, object, &status, step);
    }
    if entry.workload.is_job() {
        let mut status = object.value["status"].clone();
        let time = rfc3339(now);
        between_runs(entry, &mut status, now);
        if entry.workload.is_kubeflow() {
            workload::created_condition(
                &mut status,
                &entry.kind.kind,
                &entry.object.spec.resource.name,
                &time,
            );
            let told = queued.then_some((waiting.reason.as_str(), waiting.message.as_str()));
            workload::queuing_condition(&mut status, told, &time);
        }
        patch_object_status(world, entry, object, &status, step);
    }
}

/// Reports a job that no cluster admits in an event, once per reason; waiting for quota is no event.
fn tell_of_refusal(entry: &BindingEntry, waiting: &Waiting, step: &mut Step, now: Timestamp) {
    let refused = matches!(
        waiting.reason,
        Reason::ExceedsEveryCluster
            | Reason::NoClusterFits
            | Reason::ClusterNotAdmitted
            | Reason::NotInQuotaTree
            | Reason::NotAdmittedToQueue
            | Reason::NotAdmittedToVirtualCluster
    );
    let known =
        entry.object.status.as_ref().and_then(|status| find_condition(&status.conditions, "Scheduled"));
    if refused && known.is_none_or(|known| known.reason != waiting.reason.as_str()) {
        let message = format!("{}: {}", waiting.reason, waiting.message);
        let subject = entry.object_subject();
        step.writes.push(events::warning(
            &subject,
            entry.source(),
            Reason::ScheduleBindingFailed,
            &message,
            now,
        ));
    }
}

/// Whether the dependencies of the object have been listed, so that none is missing from its Work.
fn dependencies_listed(world: &World, key: &Key, entry: &BindingEntry, object: &Object) -> bool {
    manifests::kinds_needed(world, key, entry, object).iter().all(|kind| world.objects.contains_key(kind))
}

/// Placed: each target has its Work, and the hub's objects report what the members report.
fn bound(
    world: &World,
    key: &Key,
    entry: &BindingEntry,
    object: &Object,
    given: Given<'_>,
    step: &mut Step,
    now: Timestamp,
) {
    let Given { intents, waiting, options } = given;
    if entry.is_given_up() {
        take_back(world, intents, key, entry, options, step, now);
        return;
    }
    if lost_places(world, intents, key, entry, step) || !dependencies_listed(world, key, entry, object) {
        return;
    }
    let Dispatched { winner, pending, unsent, unsendable } =
        dispatch(world, intents, key, entry, object, step, now);
    let items = collect(world, entry, step, now);
    let known = binding_status(entry);
    if let Some(why) = unsendable {
        attempts::note(entry, &why, items.first().and_then(|item| item.status), &known, step, now);
        return;
    }
    let mut desired = known.clone();
    report(entry, &items, &mut desired, now);
    let scheduled = ("Scheduled", "True", Reason::ScheduleBindingSucceed, "the binding has been scheduled");
    let queuing = ("Queuing", "False", Reason::Dequeued, "the job has left its queue");
    let told = &[scheduled, queuing][..if entry.has_left_queue() { 2 } else { 1 }];
    set_conditions(entry, &mut desired, told, now);
    tell_cells(entry, waiting, &mut desired, now);
    tell_pending(entry, object, &pending, &mut desired, step, now);
    tell_unsent(entry, &unsent, &mut desired, step, now);

    let mut status = aggregated_object_status(entry, object, &items, now);
    let sends = step.writes.iter().any(|write| write.target == Target::Work);
    rollout::observe(object, &items, sends, &mut status);
    let context = RunContext { world, intents, key, entry, object, items: &items, options, now };
    let run = context.run();
    let ending = or_edited(or_stopped(context.judge(&run, step), entry, object), entry, &pending);
    if !matches!(ending, Ending::Result(_)) {
        workload::withhold_end(entry.workload, &mut status);
    }
    if entry.is_gang() {
        reach::tell(&context, &run, &mut desired, step);
        desired["run"] = json!(run);
    }
    match ending {
        Ending::None => drop(desired.as_object_mut().map(|status| status.remove("unhealthySince"))),
        Ending::Watch { since } => desired["unhealthySince"] = json!(since),
        Ending::Result(_) if mutation::is_on(Mutation::WorkDeletedBeforeResult) => {
            for (key, work) in world.works_of(key) {
                delete_work(key, work, step);
            }
            return;
        }
        Ending::Result(outcome) => desired["result"] = result_of(entry, outcome, now),
        Ending::Evict(over) => {
            let reported = items.first().and_then(|item| item.status);
            attempts::note(entry, &over, reported, &known, step, now);
            return;
        }
    }
    let mut told = Step::default();
    patch_binding_status(entry, &known, &desired, &mut told);
    patch_object_status(world, entry, object, &status, &mut told);
    let is_running = |status: &Value| workload::is_running(entry.workload, status);
    let running = items.iter().any(|item| item.status.is_some_and(is_running));
    // A run that has begun does not go back; its end is reported once the result is recorded.
    if desired["result"].is_null() {
        let begun = run.started_at.is_some();
        let phase = if running || begun { UnitPhase::Running } else { UnitPhase::Dequeued };
        unit(world, key, entry, phase, None, &mut told, now);
    }
    let pace = pace::of_bound(&known, &desired, &items, &step.writes);
    step.tell(pace, told.writes);
    drop_other_reservations(world, key, entry, winner.as_deref(), step);
}

/// The result of the run, as its binding records it.
fn result_of(entry: &BindingEntry, outcome: Outcome, now: Timestamp) -> Value {
    json!({
        "outcome": outcome_text(outcome),
        "cluster": entry.object.spec.clusters[0].name,
        "epoch": entry.object.spec.epoch,
        "recordedAt": rfc3339(now),
    })
}

/// A job stopped by its owner ends; a job that has ended keeps its result.
fn or_stopped(ending: Ending, entry: &BindingEntry, object: &Object) -> Ending {
    match (ending, stopped(entry, object)) {
        (Ending::Result(outcome), _) => Ending::Result(outcome),
        (_, Some(over)) => Ending::Evict(over),
        (ending, None) => ending,
    }
}

/// The result is recorded: places are released, the member may forget the job, the unit gets its final phase.
fn finished(
    world: &World,
    intents: &Intents,
    key: &Key,
    entry: &BindingEntry,
    object: &Object,
    step: &mut Step,
    now: Timestamp,
) {
    let items = collect(world, entry, step, now);
    let mut status = aggregated_object_status(entry, object, &items, now);
    tell_end(entry, &mut status, now);
    patch_object_status(world, entry, object, &status, step);
    let succeeded = entry
        .object
        .status
        .as_ref()
        .and_then(|status| status.result.as_ref())
        .is_some_and(|result| result.outcome == outcome_text(Outcome::Succeeded));
    unit(world, key, entry, if succeeded { UnitPhase::Succeed } else { UnitPhase::Failed }, None, step, now);
    drop_other_reservations(world, key, entry, None, step);
    for (key, work) in world.works_of(key) {
        if fence::is_gone(world, fence::cluster_of(&key.0)) {
            delete_work(key, work, step);
            remove_finalizer_if_cluster_gone(world, key, work, step);
            continue;
        }
        let told = work.annotations().contains_key(names::RESULT_RECORDED_ANNOTATION);
        if !told && work.metadata.deletion_timestamp.is_none() {
            let patch = json!({"metadata": {"annotations": {names::RESULT_RECORDED_ANNOTATION: "true"}}});
            step.writes.push(Write::new(Target::Work, &key.0, &key.1, Verb::Merge(patch)));
        }
        if let Some(taker) = intents.pod_ends.get(key).filter(|_| fence::lingers(world, entry, work)) {
            step.writes.push(ending::end_pods(entry, key, taker, now));
        }
    }
}

/// Reports why some pods of a running job wait for cells, until none does.
fn tell_cells(
    entry: &BindingEntry,
    waiting: Option<&Waiting>,
    desired: &mut serde_json::Value,
    now: Timestamp,
) {
    let known =
        entry.object.status.as_ref().and_then(|status| find_condition(&status.conditions, CELLS_ALLOCATED));
    let told = match waiting.filter(|_| entry.object.spec.cells.is_some()) {
        Some(waiting) => (CELLS_ALLOCATED, "False", waiting.reason, waiting.message.as_str()),
        None if known.is_some_and(|known| known.status == "False") => {
            (CELLS_ALLOCATED, "True", Reason::Running, "every pod that has not ended has its cells")
        }
        None => return,
    };
    set_conditions(entry, desired, &[told], now);
}

/// Reports that an edit of a running job waits for its next run, until none waits.
fn tell_pending(
    entry: &BindingEntry,
    object: &Object,
    pending: &[String],
    desired: &mut serde_json::Value,
    step: &mut Step,
    now: Timestamp,
) {
    let known =
        entry.object.status.as_ref().and_then(|status| find_condition(&status.conditions, "EditPending"));
    let label = unqueued::waits_for_next_run(entry, object);
    let pending: Vec<&str> = label.as_deref().into_iter().chain(pending.iter().map(String::as_str)).collect();
    if pending.is_empty() {
        if known.is_some_and(|known| known.status == "True") {
            let told = ("EditPending", "False", Reason::Running, "the running job matches its object");
            set_conditions(entry, desired, &[told], now);
        }
        return;
    }
    let message =
        format!("{} changed while the job runs; it takes effect with the next run", pending.join(", "));
    let message = cut(&message);
    set_conditions(entry, desired, &[("EditPending", "True", Reason::EditPending, message)], now);
    if known.is_none_or(|known| known.status != "True" || known.message != message) {
        let (subject, source) = (entry.object_subject(), entry.source());
        step.writes.push(events::warning(&subject, source, Reason::EditPending, message, now));
    }
}

/// Reports what is not sent in a condition, and in an event when it is first seen.
fn tell_unsent(
    entry: &BindingEntry,
    unsent: &[String],
    desired: &mut serde_json::Value,
    step: &mut Step,
    now: Timestamp,
) {
    let known =
        entry.object.status.as_ref().and_then(|status| find_condition(&status.conditions, "Sendable"));
    if unsent.is_empty() {
        if known.is_some_and(|known| known.status == "False") {
            let told = ("Sendable", "True", Reason::SyncWorkSucceed, "every cluster gets the current object");
            set_conditions(entry, desired, &[told], now);
        }
        return;
    }
    let message = unsent.join("; ");
    let message = cut(&message);
    set_conditions(entry, desired, &[("Sendable", "False", Reason::SyncWorkFailed, message)], now);
    if known.is_none_or(|known| known.status != "False" || known.message != message) {
        let told =
            events::warning(&entry.subject(), "fleet-controller", Reason::SyncWorkFailed, message, now);
        step.writes.push(told);
    }
}

/// Result of dispatching.
#[derive(Default)]
struct Dispatched {
    /// The reservation whose places the run takes.
    winner: Option<String>,
    /// Fields of the object that wait for the job's next run.
    pending: Vec<String>,
    /// Clusters that do not get the current object, and why.
    unsent: Vec<String>,
    /// Why the run of a gang cannot be sent as it was bound.
    unsendable: Option<fleet_runs::Eviction>,
}

/// Creates, updates and deletes Works to match the targets.
fn dispatch(
    world: &World,
    intents: &Intents,
    key: &Key,
    entry: &BindingEntry,
    object: &Object,
    step: &mut Step,
    now: Timestamp,
) -> Dispatched {
    let spec = &entry.object.spec;
    let mut done = Dispatched::default();
    let mut wanted: BTreeMap<Key, &wire::TargetCluster> = BTreeMap::new();
    for target in &spec.clusters {
        wanted.insert((cluster_namespace(&target.name), entry.work_name()), target);
    }
    for (key, work) in world.works_of(key) {
        if wanted.contains_key(key) {
            continue;
        }
        match stays(intents, entry, (key, work), now) {
            Stay::No => delete_earlier(world, entry, key, work, step),
            Stay::Until(until) => keep(key, work, until, step),
        }
        remove_finalizer_if_cluster_gone(world, key, work, step);
    }
    for (work_key, target) in wanted {
        // A reservation that a member without reservations has not answered holds no places and is no longer
        // needed.
        let reserves = world.reserves(&target.name);
        let reservation = world
            .reservations_of(key)
            .find(|((namespace, _), r)| {
                *namespace == work_key.0 && r.spec.epoch == spec.epoch && r.spec.binding.uid == entry.uid()
            })
            .filter(|_| reserves)
            .map(|(key, _)| key.1.clone());
        let known = world.works.get(&work_key);
        let known_reservation = known.and_then(|work| work.spec.reservation.clone());
        let reservation = reservation.or(known_reservation);
        done.winner = done.winner.or_else(|| reservation.clone());
        let mut visits = Visits::default();
        let built = manifests::build(world, entry, object, &target.name, target.replicas, known, &mut visits);
        step.visited += visits.used();
        let desired = match built {
            Ok(built) => {
                done.pending.extend(built.pending);
                let without = |why| format!("{}: sent without {why}", target.name);
                let withheld = built.withheld.into_iter().chain(removal::not_preserved(world, entry));
                let withheld = withheld.chain(pod_scheduling::not_as_written(entry, known));
                done.unsent.extend(withheld.map(without));
                manifests::work_spec(world, entry, built.manifests, reservation, term_of(world, known), known)
            }
            Err(why) if entry.is_gang() && (known.is_none() || why.reason == Reason::Edited) => {
                done.unsendable = Some(fleet_runs::Eviction { reason: why.reason, message: why.message });
                continue;
            }
            Err(why) => {
                done.unsent.push(format!("{}: {}: {}", target.name, why.reason, why.message));
                continue;
            }
        };
        match known {
            None => {
                let body = manifests::work(entry, &work_key, desired);
                step.writes.push(Write::new(Target::Work, &work_key.0, &work_key.1, Verb::Create(body)));
            }
            Some(work) if work.metadata.deletion_timestamp.is_none() => {
                let known = serde_json::to_value(&work.spec).unwrap_or_default();
                if let Some(patch) = merge_diff(&known, &desired) {
                    let verb = Verb::Merge(json!({"spec": patch}));
                    step.writes.push(Write::new(Target::Work, &work_key.0, &work_key.1, verb));
                }
            }
            // It is being cleaned up; a new one is created once it is gone.
            Some(_) => {}
        }
    }
    done
}

/// The term of a Work: that of the leader that created it, unless the member refuses it as too old.
fn term_of(world: &World, known: Option<&Work>) -> Option<i64> {
    let Some(work) = known else { return world.term };
    let conditions = work.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let refused = find_condition(conditions, "Applied").is_some_and(|applied| applied.reason == "StaleTerm");
    if refused { world.term.max(work.spec.term) } else { work.spec.term }
}

fn drop_other_reservations(
    world: &World,
    key: &Key,
    entry: &BindingEntry,
    keep: Option<&str>,
    step: &mut Step,
) {
    for (key, reservation) in world.reservations_of(key) {
        let kept = keep == Some(key.1.as_str()) && reservation.spec.epoch == entry.object.spec.epoch
            || fence::are_cells_in_use(world, key, reservation)
            || mutation::is_on(Mutation::ReservationKept);
        if !kept {
            delete(Target::Reservation, key, &reservation.metadata, step);
        }
    }
}

fn outcome_text(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Succeeded => "Succeeded",
        Outcome::Failed => "Failed",
    }
}

#[cfg(test)]
mod tests;
