//! The manifests that a member gets for a binding: the selected object and its dependencies.

use std::collections::BTreeSet;

use fleet_api::{
    Work,
    binding::Component,
    names::{self, INCREMENTAL_ANNOTATION, ON_CELLS_ANNOTATION},
};
use fleet_policies::{
    credentials,
    nesting::{self, Load},
    overrides::Visits,
    priority,
    reason::Reason,
    spec, state_preservation,
    workload::{self, DependencyKind, DependencyRef},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    asked,
    binding::BindingEntry,
    kinds::{self, KindRef},
    planner::Waiting,
    pod_scheduling, run_time,
    sent::SentWork,
    unqueued,
    world::{Key, Object, World},
};

/// The kind that is watched for a dependency.
fn kind_of(dependency: DependencyKind) -> KindRef {
    let kind = dependency.to_string();
    kinds::dependencies()
        .into_iter()
        .find(|known| known.kind == kind)
        .unwrap_or_else(|| kinds::jobs()[0].clone())
}

/// The kinds of what `propagateDeps` sends with the object: of what it names, and of what its run was sent with. What
/// overrides make of it may name any.
pub fn kinds_needed(world: &World, key: &Key, entry: &BindingEntry, object: &Object) -> Vec<KindRef> {
    if entry.object.spec.propagate_deps != Some(true) {
        return Vec::new();
    }
    if asked::is_overridden(world, entry.namespace(), object) {
        return kinds::dependencies();
    }
    let sent = running(world, key, entry).map(|sent| workload::dependencies(entry.workload, sent));
    let named = object.dependencies(entry.workload).iter().chain(sent.iter().flatten());
    let found: BTreeSet<DependencyKind> = named.map(|dependency| dependency.kind).collect();
    found.into_iter().map(kind_of).collect()
}

/// Referenced objects that are missing on the hub, as a sentence; `None` if there are none.
pub fn missing_dependencies(world: &World, entry: &BindingEntry) -> Option<String> {
    if entry.object.spec.propagate_deps != Some(true) {
        return None;
    }
    let object = world.bound_object(entry)?;
    let missing: Vec<String> = object
        .dependencies(entry.workload)
        .iter()
        .filter(|dependency| !dependency.optional)
        .filter(|dependency| on_hub(world, entry, dependency).is_none())
        .map(|dependency| format!("{} {}", dependency.kind, dependency.name))
        .collect();
    (!missing.is_empty()).then(|| format!("not on the hub: {}", missing.join(", ")))
}

/// When the last of the objects that the pods need was created, in milliseconds since 1970. A job that names what is not there
/// cannot start, so its place in the queue is not older. Before that, and without any, the least time.
pub fn complete_ms(world: &World, entry: &BindingEntry) -> i64 {
    let Some(object) = world.bound_object(entry) else { return i64::MIN };
    let needed = named(world, entry, object).filter(|(_, is_optional)| !is_optional);
    let created = needed.filter_map(|(found, _)| found.created.parse::<Timestamp>().ok());
    created.max().map_or(i64::MIN, Timestamp::as_millisecond)
}

/// Manifests of a Work, and the changes that wait for the job's next run.
pub struct Built {
    /// The object first, then its dependencies that exist on the hub.
    pub manifests: Vec<Value>,
    /// Fields of the object that differ from the running job, such as `spec.tasks`.
    pub pending: Vec<String>,
    /// Why objects that the pods name are not among the manifests.
    pub withheld: Vec<String>,
}

/// Manifests for `cluster`. If the gang's Work exists (`sent`), the object stays as it was counted and
/// reserved; otherwise it must not request more than that.
///
/// # Errors
/// Why nothing is sent: an override that cannot be applied, a pod security violation, a job that was changed
/// after it was bound (`Edited`), or one that is too large.
pub fn build(
    world: &World,
    entry: &BindingEntry,
    object: &Object,
    cluster: &str,
    replicas: i64,
    sent: Option<&Work>,
    visits: &mut Visits,
) -> Result<Built, Waiting> {
    let mut governed = (*object.value).clone();
    if !entry.is_gang() && replicas > 0 {
        workload::revise_replicas(entry.workload, &mut governed, replicas);
    }
    if entry.is_gang() {
        let attempts = entry.object.status.iter().flat_map(|status| &status.attempts);
        let states = attempts.map(|attempt| &attempt.preserved_state);
        state_preservation::hand_over(entry.workload, &mut governed, states);
    }
    let mut governed = asked::written(world, entry.namespace(), governed, cluster, visits)?;
    if let Some(why) = unqueued::barred(world, entry, object, &governed) {
        return Err(why);
    }
    let (mut pending, mut withheld) = (Vec::new(), Vec::new());
    if entry.is_gang() {
        let running =
            sent.filter(|work| is_of_run(entry, work)).and_then(|work| work.spec.workload.manifests.first());
        withheld.extend(run_time::limit(entry, object, running, &mut governed));
        mark_incremental(entry, object, running, &mut governed);
        mark_on_cells(world, entry, running, &mut governed);
        if let Some(running) = running {
            pending = workload::keep_run(entry.workload, running, &mut governed);
            keep_quota_labels(running, &mut governed);
        }
        fleet_api::convert::within(
            &asked::of_manifest(&entry.kind, &governed)?,
            &entry.object.spec.components,
        )
        .map_err(|message| Waiting::new(Reason::Edited, message))?;
    }
    let depends = entry.object.spec.propagate_deps == Some(true);
    let needed = if depends { workload::dependencies(entry.workload, &governed) } else { Default::default() };
    let mut sent_with = Vec::new();
    for dependency in &needed {
        let found = on_hub(world, entry, dependency);
        match found.map(|found| (found, credentials::withheld(&found.value))) {
            Some((found, None)) => sent_with.push(found),
            Some((_, Some(why))) if !dependency.optional => withheld.push(why),
            _ => {}
        }
    }
    let manifests = with_dependencies(world, entry, governed, &sent_with, cluster, visits)?;
    Ok(Built { manifests, pending, withheld })
}

/// The object as it is written for `cluster`, and then its dependencies, which are not written any further once they are
/// too large.
fn with_dependencies(
    world: &World,
    entry: &BindingEntry,
    governed: Value,
    dependencies: &[&Object],
    cluster: &str,
    visits: &mut Visits,
) -> Result<Vec<Value>, Waiting> {
    let mut load = Load::new(dependencies.len(), asked::WORK_BYTES_MAX);
    let mut add = |manifest: &Value| load.add(manifest, &nesting::size(manifest)).map_err(too_large);
    add(&governed)?;
    let mut manifests = vec![governed];
    for dependency in dependencies {
        let value = (*dependency.value).clone();
        let manifest = asked::written(world, entry.namespace(), value, cluster, visits)?;
        add(&manifest)?;
        manifests.push(manifest);
    }
    Ok(manifests)
}

/// Marks a job with cells whose pods start one by one; fixed for the whole run.
fn mark_incremental(entry: &BindingEntry, object: &Object, running: Option<&Value>, governed: &mut Value) {
    let is_incremental = match running {
        Some(running) => running["metadata"]["annotations"][INCREMENTAL_ANNOTATION] == "true",
        None => {
            entry.object.spec.cells.is_some()
                && fleet_cell_requests::is_incremental(entry.workload, &object.value)
        }
    };
    if is_incremental {
        annotate(governed, INCREMENTAL_ANNOTATION, "true");
    }
}

/// Marks a job that has cells, so that no pod of it is placed without them; fixed for the whole run.
fn mark_on_cells(world: &World, entry: &BindingEntry, running: Option<&Value>, governed: &mut Value) {
    let is_on_cells = match running {
        Some(running) => running["metadata"]["annotations"][ON_CELLS_ANNOTATION] == "true",
        // The configuration may have been removed between the reservation and the bind.
        None => {
            entry.object.spec.cells.is_some()
                || world.reservation_of_run(entry).is_some_and(|(_, held)| !held.spec.cells.is_empty())
        }
    };
    if is_on_cells {
        annotate(governed, ON_CELLS_ANNOTATION, "true");
    }
}

fn annotate(manifest: &mut Value, name: &str, value: &str) {
    let metadata = &mut manifest["metadata"];
    if !metadata["annotations"].is_object() {
        metadata["annotations"] = json!({});
    }
    metadata["annotations"][name] = value.into();
}

/// Keeps the quota labels of a run: an edited label applies from the next run on.
fn keep_quota_labels(running: &Value, governed: &mut Value) {
    for label in fleet_quota_tree::QUOTA_LABELS {
        let known = running["metadata"]["labels"].get(label).cloned();
        if known.is_some() && governed["metadata"]["labels"].is_null() {
            governed["metadata"]["labels"] = json!({});
        }
        // An object without labels stays without: `labels: null` would differ from what was sent.
        let labels = governed.pointer_mut("/metadata/labels").and_then(Value::as_object_mut);
        match (known, labels) {
            (Some(value), Some(labels)) => drop(labels.insert(label.to_owned(), value)),
            (None, Some(labels)) => drop(labels.remove(label)),
            (_, None) => {}
        }
    }
}

/// The object with the spec of its run, if one was sent: an edit applies from the next run on. What is left of a run that is
/// over says nothing of the next one.
pub fn as_running(world: &World, key: &Key, entry: &BindingEntry, object: &Object) -> Value {
    let mut value = (*object.value).clone();
    let running = running(world, key, entry).filter(|_| entry.is_bound());
    // What overrides made of it asks for no cells.
    if let Some(running) = running.filter(|_| !asked::is_overridden(world, &key.0, object)) {
        workload::keep_run(entry.workload, running, &mut value);
        if running["metadata"]["annotations"][INCREMENTAL_ANNOTATION] == "true" {
            annotate(&mut value, names::GANG_ALLOCATION_ANNOTATION, "false");
        }
    }
    value
}

/// The object as the binding's current run was sent.
pub fn running<'w>(world: &'w World, key: &Key, entry: &BindingEntry) -> Option<&'w Value> {
    let (_, work) = world.works_of(key).find(|(_, work)| is_of_run(entry, work))?;
    work.spec.workload.manifests.first()
}

/// Whether a Work belongs to the binding's current run.
pub fn is_of_run(entry: &BindingEntry, work: &Work) -> bool {
    work.spec.binding.uid == entry.uid()
        && work.spec.epoch == entry.object.spec.epoch
        && work.metadata.deletion_timestamp.is_none()
}

fn too_large(why: String) -> Waiting {
    Waiting::new(Reason::WorkloadTooLarge, why)
}

/// Why the job cannot be sent to any cluster in its current form with its dependencies.
pub fn unsendable(world: &World, entry: &BindingEntry) -> Option<Waiting> {
    let object = world.bound_object(entry)?;
    if let Err(why) = asked::harmless(&object.value, Reason::InvalidWorkload) {
        return Some(why);
    }
    if let Err(why) = asked::secure(world, entry.namespace(), &object.value) {
        return Some(why);
    }
    if let Err(message) = priority::check(&world.priority_classes, entry.namespace(), &object.value) {
        return Some(Waiting::new(Reason::InvalidWorkload, message));
    }
    if let Some(why) = unqueued::barred(world, entry, object, &object.value) {
        return Some(why);
    }
    // Pods start without an optional one.
    let mut needed = named(world, entry, object).filter(|(_, optional)| !optional);
    if let Some(why) = needed.find_map(|(found, _)| credentials::withheld(&found.value)) {
        return Some(Waiting::new(Reason::InvalidWorkload, why));
    }
    let parts = parts(world, entry, object);
    let mut load = Load::new(parts.len().saturating_sub(1), asked::WORK_BYTES_MAX);
    parts.iter().find_map(|part| load.add(&part.value, part.size()).err()).map(too_large)
}

/// Objects on the hub that are sent with the binding's object.
fn dependencies<'w>(
    world: &'w World,
    entry: &'w BindingEntry,
    object: &'w Object,
) -> impl Iterator<Item = &'w Object> {
    let found = named(world, entry, object).map(|(found, _)| found);
    found.filter(|found| credentials::withheld(&found.value).is_none())
}

/// Objects on the hub that the pods name, and whether they are optional.
fn named<'w>(
    world: &'w World,
    entry: &'w BindingEntry,
    object: &'w Object,
) -> impl Iterator<Item = (&'w Object, bool)> {
    let depends = entry.object.spec.propagate_deps == Some(true);
    let needed = depends.then(|| object.dependencies(entry.workload)).into_iter().flatten();
    needed.filter_map(move |dependency| Some((on_hub(world, entry, dependency)?, dependency.optional)))
}

/// The dependency of a binding's object, unless it is going.
fn on_hub<'w>(world: &'w World, entry: &BindingEntry, dependency: &DependencyRef) -> Option<&'w Object> {
    let key = (entry.namespace().to_string(), dependency.name.clone());
    world.object(&kind_of(dependency.kind), &key).filter(|object| !object.deleting)
}

/// The binding's object, and its dependencies that are on the hub.
pub fn parts<'w>(world: &'w World, entry: &'w BindingEntry, object: &'w Object) -> Vec<&'w Object> {
    std::iter::once(object).chain(dependencies(world, entry, object)).collect()
}

/// Requests of a job in the form that overrides give it in `cluster`, if it can be sent there with its dependencies.
/// Asked before anything is reserved: an override that fails would hold quota for a run that never starts.
///
/// # Errors
/// Why it cannot be sent there.
pub fn sendable_in(
    world: &World,
    entry: &BindingEntry,
    parts: &[&Object],
    cluster: &str,
    visits: &mut Visits,
) -> Result<Vec<Component>, Waiting> {
    let Some((job, dependencies)) = parts.split_first() else { return Ok(Vec::new()) };
    let job = asked::written(world, entry.namespace(), (*job.value).clone(), cluster, visits)?;
    let manifests = with_dependencies(world, entry, job, dependencies, cluster, visits)?;
    manifests.first().map_or(Ok(Vec::new()), |job| asked::of_manifest(&entry.kind, job))
}

/// The spec a binding's Work should have. `known` is the Work that stands there.
pub fn work_spec(
    world: &World,
    entry: &BindingEntry,
    manifests: Vec<Value>,
    reservation: Option<String>,
    term: Option<i64>,
    known: Option<&Work>,
) -> Value {
    let spec = &entry.object.spec;
    let may_move = entry.failover.as_ref().and_then(|failover| failover.cluster.as_ref());
    let fencing = may_move.map(spec::ClusterFailover::fencing);
    let fenced = fencing.is_some_and(|fencing| fencing != spec::Fencing::None);
    let mut body = json!({
        "binding": {"namespace": entry.namespace(), "name": entry.name(), "uid": entry.uid()},
        "epoch": spec.epoch,
        "workload": {"manifests": manifests},
        "fenced": fenced,
    });
    if let Some(fencing) = fencing {
        body["fencing"] = json!(fencing);
    }
    if let Some(term) = term {
        body["term"] = json!(term);
    }
    if let Some(reservation) = reservation {
        body["reservation"] = json!(reservation);
    }
    if let Some(resolution) = spec.conflict_resolution {
        body["conflictResolution"] = json!(resolution);
    }
    if spec.preserve_resources_on_deletion == Some(true) && !unqueued::leaves_nothing(world, entry) {
        body["preserveResourcesOnDeletion"] = json!(true);
    }
    if let Some(scheduling) = pod_scheduling::of_run(entry, known) {
        body["podScheduling"] = json!(scheduling);
    }
    if spec.suspension.as_ref().is_some_and(|suspension| suspension.dispatching == Some(true)) {
        body["suspendDispatching"] = json!(true);
    }
    body
}

/// A new Work, with the finalizer that keeps it until the agent has cleaned up.
pub fn work(entry: &BindingEntry, key: &Key, spec: Value) -> Value {
    work_of(entry.uid(), key, spec)
}

/// A Work without manifests. It takes the name of a Work that was sent and may still arrive, so that the
/// other one can no longer be created. Its end closes the epoch in the member.
pub fn empty_work(sent: &SentWork, key: &Key) -> Value {
    let spec = json!({
        "binding": sent.binding,
        "epoch": sent.epoch,
        "workload": {"manifests": []},
    });
    work_of(&sent.binding.uid, key, spec)
}

fn work_of(binding_uid: &str, key: &Key, spec: Value) -> Value {
    json!({
        "apiVersion": crate::binding::API_VERSION,
        "kind": "Work",
        "metadata": {
            "name": key.1,
            "namespace": key.0,
            "finalizers": [names::WORK_FINALIZER],
            "labels": {names::BINDING_UID_LABEL: binding_uid},
        },
        "spec": spec,
    })
}

/// Status of the selected object in a Work's member, under the Work's own epoch.
pub fn reported_status(work: &Work) -> Option<&Value> {
    let status = work.status.as_ref()?;
    if status.observed_epoch != Some(work.spec.epoch) {
        return None;
    }
    let first = status.manifest_statuses.iter().find(|manifest| manifest.identifier.ordinal == 0)?;
    Some(&first.status).filter(|status| !status.is_null())
}
