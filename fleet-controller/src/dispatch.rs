//! From a binding to its Works and back: what each member is to have, what the hub's objects say of it,
//! how a run ends and how a binding is taken down.
//!
//! A function of the world and the time. It asks for every write that can be made now; what depends on
//! another write's answer follows at the next look.

use std::collections::BTreeMap;

use fleet_api::{Work, binding as wire, names};
use fleet_policies::{
    reason::Reason,
    spec::PurgeMode,
    workload::{self, Health, Outcome},
};
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::{
    binding::{API_VERSION, BindingEntry, cluster_namespace},
    events, manifests,
    options::Options,
    status::{condition, find_condition, merge_patch, rfc3339},
    world::{Key, Object, World},
    writes::{Target, Verb, Write},
};

/// Why a binding waits, as the scheduler last saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub reason: Reason,
    pub message: String,
}

/// What a look at one binding came to.
#[derive(Debug, Default)]
pub struct Step {
    pub writes: Vec<Write>,
    /// Look again then, if nothing else happens before.
    pub wake: Option<Timestamp>,
}

/// Looks at one binding.
pub fn plan(world: &World, key: &Key, waiting: Option<&Waiting>, options: &Options, now: Timestamp) -> Step {
    let Some(entry) = world.bindings.get(key) else { return Step::default() };
    if !world.objects.contains_key(&entry.kind) {
        // The kind has not been listed yet: nothing is known of the object.
        return Step::default();
    }
    let mut step = Step::default();
    match world.bound_object(entry).filter(|object| !object.deleting) {
        None => take_down(world, key, entry, &mut step),
        Some(object) if entry.is_finished() => finished(world, key, entry, object, &mut step, now),
        Some(object) if entry.is_bound() => bound(world, key, entry, object, options, &mut step, now),
        Some(object) => unbound(world, key, entry, object, waiting, &mut step, now),
    }
    step
}

/// The object is gone: everything made for it goes, members first.
fn take_down(world: &World, key: &Key, entry: &BindingEntry, step: &mut Step) {
    let mut left = false;
    for (key, work) in world.works_of(key) {
        left = true;
        delete_work(key, work, step);
    }
    for (key, reservation) in world.reservations_of(key) {
        delete(Target::Reservation, key, &reservation.metadata, step);
    }
    if left {
        return;
    }
    let unit = (key.0.clone(), entry.unit_name());
    if let Some(known) = world.units.get(&unit) {
        delete(Target::Unit, &unit, &known.metadata, step);
    }
    delete(Target::Binding, key, &entry.object.metadata, step);
}

/// A Work or a Reservation whose binding is gone goes too.
pub fn plan_orphan(world: &World, key: &Key) -> Vec<Write> {
    let mut step = Step::default();
    let lost = |binding: &fleet_api::reservation::BindingReference| {
        let known = world.bindings.get(&(binding.namespace.clone(), binding.name.clone()));
        known.is_none_or(|entry| entry.uid() != binding.uid)
    };
    if let Some(work) = world.works.get(key).filter(|work| lost(&work.spec.binding)) {
        delete_work(key, work, &mut step);
    }
    if let Some(reservation) = world.reservations.get(key).filter(|r| lost(&r.spec.binding)) {
        delete(Target::Reservation, key, &reservation.metadata, &mut step);
    }
    step.writes
}

fn delete_work(key: &Key, work: &Work, step: &mut Step) {
    delete(Target::Work, key, &work.metadata, step);
}

fn delete(
    target: Target,
    key: &Key,
    meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    step: &mut Step,
) {
    if meta.deletion_timestamp.is_none() {
        let uid = meta.uid.clone().unwrap_or_default();
        step.writes.push(Write::new(target, &key.0, &key.1, Verb::Delete { uid }));
    }
}

/// Not placed: it waits, in its queue or for a cluster, and says why.
fn unbound(
    world: &World,
    key: &Key,
    entry: &BindingEntry,
    object: &Object,
    waiting: Option<&Waiting>,
    step: &mut Step,
    now: Timestamp,
) {
    for (key, work) in world.works_of(key) {
        delete_work(key, work, step);
    }
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
    patch_binding_status(entry, &known, &desired, step);
    if entry.workload.is_job() {
        let mut status = object.value["status"].clone();
        let time = rfc3339(now);
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
        patch_object_status(entry, object, &status, step);
    }
}

/// Placed: each target has its Work, and the hub's objects say what the members report.
fn bound(
    world: &World,
    key: &Key,
    entry: &BindingEntry,
    object: &Object,
    options: &Options,
    step: &mut Step,
    now: Timestamp,
) {
    let winner = dispatch(world, key, entry, object, step, now);
    let items = collect(world, entry);
    let known = binding_status(entry);
    let mut desired = known.clone();
    report(entry, &items, &mut desired, now);
    let scheduled = ("Scheduled", "True", Reason::ScheduleBindingSucceed, "the binding has been scheduled");
    let queuing = ("Queuing", "False", Reason::Dequeued, "the job has left its queue");
    let was_queued =
        entry.object.status.as_ref().is_some_and(|s| find_condition(&s.conditions, "Queuing").is_some());
    set_conditions(entry, &mut desired, &[scheduled, queuing][..if was_queued { 2 } else { 1 }], now);

    let status = aggregated_object_status(entry, object, &items, now);
    let outcome = job_outcome(entry, &items);
    let ending = match outcome {
        Some(outcome) => judge_end(entry, outcome, options, now, step),
        None => judge_health(entry, &items, now, step),
    };
    match ending {
        Ending::None => {
            desired.as_object_mut().map(|status| status.remove("unhealthySince"));
        }
        Ending::Watch { since } => desired["unhealthySince"] = json!(since),
        Ending::Result(outcome) => {
            let target = &entry.object.spec.clusters[0].name;
            desired["result"] = json!({
                "outcome": outcome_text(outcome),
                "cluster": target,
                "epoch": entry.object.spec.epoch,
                "recordedAt": rfc3339(now),
            });
        }
        Ending::Evict { message } => {
            evict(world, key, entry, &message, &known, step, now);
            return;
        }
    }
    patch_binding_status(entry, &known, &desired, step);
    patch_object_status(entry, object, &status, step);
    let running =
        items.iter().any(|item| item.status.is_some_and(|s| workload::is_running(entry.workload, s)));
    let phase = if running { UnitPhase::Running } else { UnitPhase::Dequeued };
    unit(world, key, entry, phase, None, step, now);
    drop_other_reservations(world, key, entry, winner.as_deref(), step);
}

/// The end stands on the binding: places go, the member may forget, the unit says how it ended.
fn finished(
    world: &World,
    key: &Key,
    entry: &BindingEntry,
    object: &Object,
    step: &mut Step,
    now: Timestamp,
) {
    let items = collect(world, entry);
    let status = aggregated_object_status(entry, object, &items, now);
    patch_object_status(entry, object, &status, step);
    let succeeded = entry
        .object
        .status
        .as_ref()
        .and_then(|status| status.result.as_ref())
        .is_some_and(|result| result.outcome == outcome_text(Outcome::Succeeded));
    unit(world, key, entry, if succeeded { UnitPhase::Succeed } else { UnitPhase::Failed }, None, step, now);
    drop_other_reservations(world, key, entry, None, step);
    for (key, work) in world.works_of(key) {
        let told = work.annotations().contains_key(names::RESULT_RECORDED_ANNOTATION);
        if !told && work.metadata.deletion_timestamp.is_none() {
            let patch = json!({"metadata": {"annotations": {names::RESULT_RECORDED_ANNOTATION: "true"}}});
            step.writes.push(Write::new(Target::Work, &key.0, &key.1, Verb::Merge(patch)));
        }
    }
}

/// Makes, changes and deletes Works so that they are what the targets say. Returns the reservation whose
/// places the run takes.
fn dispatch(
    world: &World,
    key: &Key,
    entry: &BindingEntry,
    object: &Object,
    step: &mut Step,
    now: Timestamp,
) -> Option<String> {
    let spec = &entry.object.spec;
    let mut winner = None;
    let mut wanted: BTreeMap<Key, &wire::TargetCluster> = BTreeMap::new();
    for target in &spec.clusters {
        wanted.insert((cluster_namespace(&target.name), entry.work_name()), target);
    }
    for (key, work) in world.works_of(key) {
        if !wanted.contains_key(key) {
            delete_work(key, work, step);
        }
    }
    for (work_key, target) in wanted {
        let reservation = world
            .reservations_of(key)
            .find(|((namespace, _), r)| {
                *namespace == work_key.0 && r.spec.epoch == spec.epoch && r.spec.binding.uid == entry.uid()
            })
            .map(|(key, _)| key.1.clone());
        let known = world.works.get(&work_key);
        let known_reservation = known.and_then(|work| work.spec.reservation.clone());
        let reservation = reservation.or(known_reservation);
        winner = winner.or_else(|| reservation.clone());
        let desired = match manifests::build(world, entry, object, &target.name, target.replicas) {
            Ok(manifests) => manifests::work_spec(entry, manifests, reservation),
            Err(message) => {
                step.writes.push(events::warning(
                    &entry.subject(),
                    "fleet-controller",
                    Reason::SyncWorkFailed,
                    &message,
                    now,
                ));
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
                if let Some(patch) = merge_patch(&known, &desired) {
                    let verb = Verb::Merge(json!({"spec": patch}));
                    step.writes.push(Write::new(Target::Work, &work_key.0, &work_key.1, verb));
                }
            }
            // It is being cleaned up; a new one is made once it is gone.
            Some(_) => {}
        }
    }
    winner
}

struct Item<'a> {
    cluster: &'a str,
    work: &'a Work,
    status: Option<&'a Value>,
}

fn collect<'a>(world: &'a World, entry: &'a BindingEntry) -> Vec<Item<'a>> {
    let targets = entry.object.spec.clusters.iter().filter_map(|target| {
        let work = world.works.get(&(cluster_namespace(&target.name), entry.work_name()))?;
        let current = work.spec.epoch == entry.object.spec.epoch;
        let status = manifests::reported_status(work).filter(|_| current);
        Some(Item { cluster: &target.name, work, status })
    });
    targets.collect()
}

/// What each member reports, into the binding's status.
fn report(entry: &BindingEntry, items: &[Item], status: &mut Value, now: Timestamp) {
    let listed: Vec<Value> = items
        .iter()
        .map(|item| {
            let conditions = item.work.status.as_ref().map_or(&[][..], |status| &status.conditions);
            let applied = find_condition(conditions, "Applied");
            let mut value = json!({
                "clusterName": item.cluster,
                "applied": applied.is_some_and(|condition| condition.status == "True"),
            });
            if let Some(refused) = applied.filter(|condition| condition.status != "True") {
                value["appliedMessage"] = json!(format!("{}: {}", refused.reason, refused.message));
            }
            if let Some(reported) = item.status {
                value["status"] = reported.clone();
                value["health"] = json!(health_text(workload::health(entry.workload, reported)));
            }
            value
        })
        .collect();
    let all = !listed.is_empty() && listed.iter().all(|item| item["applied"] == true);
    status["aggregatedStatus"] = Value::Array(listed);
    let failed: Vec<String> = items
        .iter()
        .filter_map(|item| {
            let status = item.work.status.as_ref()?;
            let applied = find_condition(&status.conditions, "Applied").filter(|c| c.status != "True")?;
            Some(format!("{}: {}: {}", item.cluster, applied.reason, applied.message))
        })
        .collect();
    let told = match (all, failed.is_empty()) {
        (true, _) => Some((
            "FullyApplied",
            "True",
            Reason::SyncWorkSucceed,
            "every cluster has the object".to_string(),
        )),
        (false, false) => Some(("FullyApplied", "False", Reason::SyncWorkFailed, failed.join("; "))),
        (false, true) => None,
    };
    if let Some((kind, value, reason, message)) = told {
        set_conditions(entry, status, &[(kind, value, reason, &message)], now);
    }
}

fn aggregated_object_status(entry: &BindingEntry, object: &Object, items: &[Item], now: Timestamp) -> Value {
    let current = &object.value["status"];
    let reported: Vec<(&str, &Value)> =
        items.iter().filter_map(|item| Some((item.cluster, item.status?))).collect();
    let mut status = workload::aggregate(entry.workload, current, &reported);
    if entry.workload.is_kubeflow() {
        let time = rfc3339(now);
        workload::created_condition(&mut status, &entry.kind.kind, &entry.object.spec.resource.name, &time);
        workload::queuing_condition(&mut status, None, &time);
    }
    status
}

fn job_outcome(entry: &BindingEntry, items: &[Item]) -> Option<Outcome> {
    if !entry.workload.is_job() || items.len() != entry.object.spec.clusters.len() {
        return None;
    }
    let outcomes: Vec<Outcome> =
        items.iter().map(|item| workload::outcome(entry.workload, item.status?)).collect::<Option<_>>()?;
    let failed = outcomes.contains(&Outcome::Failed);
    Some(if failed { Outcome::Failed } else { Outcome::Succeeded })
}

enum Ending {
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
fn judge_end(
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

fn attempts_limit(entry: &BindingEntry, options: &Options) -> usize {
    let asked = entry.object.spec.failover.as_ref().and_then(|f| f.application.as_ref()?.backoff_limit);
    asked.and_then(|limit| usize::try_from(limit).ok()).map_or(options.attempts_limit, |limit| limit.max(1))
}

/// A job that runs on, perhaps unhealthy.
fn judge_health(entry: &BindingEntry, items: &[Item], now: Timestamp, step: &mut Step) -> Ending {
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
fn tolerate(entry: &BindingEntry, toleration_s: i64, what: &str, now: Timestamp, step: &mut Step) -> Ending {
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

/// Ends a run before its job. The attempt is noted first, then the Work goes; when the member has let go
/// of it, the target is cleared and the job is free to be placed again.
fn evict(
    world: &World,
    key: &Key,
    entry: &BindingEntry,
    message: &str,
    known: &Value,
    step: &mut Step,
    now: Timestamp,
) {
    let spec = &entry.object.spec;
    let cluster = &spec.clusters[0].name;
    let noted = entry
        .object
        .status
        .as_ref()
        .is_some_and(|status| status.attempts.iter().any(|attempt| attempt.epoch == spec.epoch));
    if !noted {
        let mut desired = known.clone();
        let mut attempts = known["attempts"].as_array().cloned().unwrap_or_default();
        attempts.push(json!({
            "cluster": cluster,
            "epoch": spec.epoch,
            "reason": Reason::ApplicationFailure.as_str(),
            "message": message,
            "endedAt": rfc3339(now),
        }));
        desired["attempts"] = Value::Array(attempts);
        patch_binding_status(entry, known, &desired, step);
        let subject = entry.object_subject();
        let text = format!("taken back from {cluster}: {message}");
        step.writes.push(events::warning(&subject, entry.source(), Reason::ApplicationFailure, &text, now));
        return;
    }
    let mut left = false;
    for (key, work) in world.works_of(key) {
        left = true;
        delete_work(key, work, step);
    }
    for (key, reservation) in world.reservations_of(key) {
        delete(Target::Reservation, key, &reservation.metadata, step);
    }
    if left {
        return;
    }
    let patch = json!({
        "metadata": {"resourceVersion": entry.object.resource_version()},
        "spec": {"clusters": null},
    });
    let forget = json!({"status": {"unhealthySince": null, "aggregatedStatus": null}});
    let cleared = Write::new(Target::Binding, &key.0, &key.1, Verb::Merge(patch)).then([Write::new(
        Target::Binding,
        &key.0,
        &key.1,
        Verb::MergeStatus(forget),
    )]);
    step.writes.push(cleared);
}

fn drop_other_reservations(
    world: &World,
    key: &Key,
    entry: &BindingEntry,
    keep: Option<&str>,
    step: &mut Step,
) {
    for (key, reservation) in world.reservations_of(key) {
        let kept = keep == Some(key.1.as_str()) && reservation.spec.epoch == entry.object.spec.epoch;
        if !kept {
            delete(Target::Reservation, key, &reservation.metadata, step);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum UnitPhase {
    Enqueued,
    Dequeued,
    Running,
    Succeed,
    Failed,
}

impl UnitPhase {
    fn as_str(self) -> &'static str {
        match self {
            Self::Enqueued => "Enqueued",
            Self::Dequeued => "Dequeued",
            Self::Running => "Running",
            Self::Succeed => "Succeed",
            Self::Failed => "Failed",
        }
    }
}

/// Keeps the QueueUnit of a queued job. One is made only while the job waits; a job that never queued has none.
fn unit(
    world: &World,
    key: &Key,
    entry: &BindingEntry,
    phase: UnitPhase,
    waiting: Option<&Waiting>,
    step: &mut Step,
    now: Timestamp,
) {
    let unit_key = (key.0.clone(), entry.unit_name());
    let Some(known) = world.units.get(&unit_key) else {
        if phase == UnitPhase::Enqueued {
            let body = new_unit(entry, &unit_key, world.leaves.get(key));
            step.writes.push(Write::new(Target::Unit, &unit_key.0, &unit_key.1, Verb::Create(body)));
        }
        return;
    };
    let status = serde_json::to_value(&known.status).unwrap_or_default();
    let mut desired = if status.is_object() { status.clone() } else { json!({}) };
    desired["phase"] = json!(phase.as_str());
    match waiting.filter(|_| phase == UnitPhase::Enqueued) {
        Some(waiting) => {
            desired["reason"] = json!(waiting.reason.as_str());
            desired["message"] = json!(waiting.message);
        }
        None => {
            if let Some(fields) = desired.as_object_mut() {
                fields.remove("reason");
                fields.remove("message");
            }
        }
    }
    if let Some(leaf) = world.leaves.get(key).filter(|leaf| known.spec.queue.as_ref() != Some(leaf)) {
        let patch = json!({"spec": {"queue": leaf}});
        step.writes.push(Write::new(Target::Unit, &unit_key.0, &unit_key.1, Verb::Merge(patch)));
    }
    if desired == status {
        return;
    }
    desired["lastUpdateTime"] = json!(rfc3339(now));
    if phase == UnitPhase::Dequeued && status["phase"] != "Dequeued" {
        desired["lastAllocateTime"] = json!(rfc3339(now));
    }
    if let Some(patch) = merge_patch(&status, &desired) {
        let verb = Verb::MergeStatus(json!({"status": patch}));
        step.writes.push(Write::new(Target::Unit, &unit_key.0, &unit_key.1, verb));
    }
}

fn new_unit(entry: &BindingEntry, key: &Key, leaf: Option<&String>) -> Value {
    let pods: Vec<Value> = entry
        .object
        .spec
        .components
        .iter()
        .map(|component| json!({"name": component.name, "count": component.replicas}))
        .collect();
    let request = entry.total.to_quantities();
    json!({
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "QueueUnit",
        "metadata": {
            "name": key.1,
            "namespace": key.0,
            "ownerReferences": [{
                "apiVersion": API_VERSION,
                "kind": "ResourceBinding",
                "name": entry.name(),
                "uid": entry.uid(),
                "controller": true,
                "blockOwnerDeletion": false,
            }],
        },
        "spec": {
            "consumerRef": {
                "apiVersion": API_VERSION,
                "kind": "ResourceBinding",
                "namespace": key.0,
                "name": entry.name(),
            },
            "priority": entry.object.spec.priority,
            "queue": leaf,
            "jobType": entry.kind.kind,
            "resource": request,
            "request": request,
            "podSet": pods,
        },
    })
}

fn binding_status(entry: &BindingEntry) -> Value {
    match &entry.object.status {
        Some(status) => serde_json::to_value(status).unwrap_or_default(),
        None => json!({}),
    }
}

fn patch_binding_status(entry: &BindingEntry, known: &Value, desired: &Value, step: &mut Step) {
    if let Some(patch) = merge_patch(known, desired) {
        let verb = Verb::MergeStatus(json!({"status": patch}));
        step.writes.push(Write::new(Target::Binding, entry.namespace(), entry.name(), verb));
    }
}

fn patch_object_status(entry: &BindingEntry, object: &Object, desired: &Value, step: &mut Step) {
    if desired.is_null() {
        return;
    }
    if let Some(patch) = merge_patch(&object.value["status"], desired) {
        let reference = &entry.object.spec.resource;
        let verb = Verb::MergeStatus(json!({"status": patch}));
        step.writes.push(Write::new(
            Target::Object(entry.kind.clone()),
            &reference.namespace,
            &reference.name,
            verb,
        ));
    }
}

/// Sets conditions by type, keeping the others and the order of first appearance.
fn set_conditions(
    entry: &BindingEntry,
    status: &mut Value,
    wanted: &[(&str, &str, Reason, &str)],
    now: Timestamp,
) {
    let known = entry.object.status.as_ref().map_or(&[][..], |status| &status.conditions);
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(list) = status["conditions"].as_array_mut() else { return };
    for (kind, value, reason, message) in wanted {
        let fresh = condition(kind, value, *reason, message, find_condition(known, kind), now);
        match list.iter_mut().find(|condition| condition["type"] == *kind) {
            Some(place) => *place = fresh,
            None => list.push(fresh),
        }
    }
}

fn health_text(health: Health) -> &'static str {
    match health {
        Health::Healthy => "Healthy",
        Health::Unhealthy => "Unhealthy",
        Health::Unknown => "Unknown",
    }
}

fn outcome_text(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Succeeded => "Succeeded",
        Outcome::Failed => "Failed",
    }
}
