//! What a member is to have for a binding: the governed object and what it depends on, written for that
//! member.

use std::collections::BTreeMap;

use fleet_api::{Work, names};
use fleet_policies::{
    choice::ObjectRef,
    overrides, spec,
    workload::{self, DependencyKind},
};
use serde_json::{Value, json};

use crate::{
    binding::BindingEntry,
    kinds::{self, KindRef},
    sent::SentWork,
    world::{Key, Object, World},
};

/// The kind under which a dependency is watched.
fn kind_of(dependency: DependencyKind) -> KindRef {
    let kind = dependency.to_string();
    kinds::dependencies()
        .into_iter()
        .find(|known| known.kind == kind)
        .unwrap_or_else(|| kinds::jobs()[0].clone())
}

/// Whether the object names anything that `propagateDeps` would send along.
pub fn has_dependencies(entry: &BindingEntry, object: &Object) -> bool {
    entry.object.spec.propagate_deps == Some(true)
        && !workload::dependencies(entry.workload, &object.value).is_empty()
}

/// What the object names and the hub does not have yet, in a sentence; `None` where nothing is missing.
pub fn missing_dependencies(world: &World, entry: &BindingEntry) -> Option<String> {
    if entry.object.spec.propagate_deps != Some(true) {
        return None;
    }
    let object = world.bound_object(entry)?;
    let missing: Vec<String> = workload::dependencies(entry.workload, &object.value)
        .into_iter()
        .filter(|dependency| !dependency.optional)
        .filter(|dependency| {
            let key = (entry.namespace().to_string(), dependency.name.clone());
            world.object(&kind_of(dependency.kind), &key).is_none_or(|object| object.deleting)
        })
        .map(|dependency| format!("{} {}", dependency.kind, dependency.name))
        .collect();
    (!missing.is_empty()).then(|| format!("not on the hub: {}", missing.join(", ")))
}

/// Manifests for `cluster`: the object first, then its dependencies that exist on the hub.
///
/// # Errors
/// An override that cannot be applied, naming policy and field.
pub fn build(
    world: &World,
    entry: &BindingEntry,
    object: &Object,
    cluster: &str,
    replicas: i64,
) -> Result<Vec<Value>, String> {
    let mut governed = (*object.value).clone();
    if !entry.is_gang() && replicas > 0 {
        workload::revise_replicas(entry.workload, &mut governed, replicas);
    }
    if entry.is_gang() {
        hold_replicas(entry, &mut governed);
        crate::dispatch::restore::hand_over(entry, &mut governed);
    }
    let mut manifests = vec![written(world, entry.namespace(), governed, cluster)?];
    if entry.object.spec.propagate_deps == Some(true) {
        for dependency in workload::dependencies(entry.workload, &object.value) {
            let key = (entry.namespace().to_string(), dependency.name.clone());
            let found = world.object(&kind_of(dependency.kind), &key).filter(|object| !object.deleting);
            if let Some(found) = found {
                manifests.push(written(world, entry.namespace(), (*found.value).clone(), cluster)?);
            }
        }
    }
    Ok(manifests)
}

/// A gang is sent with as many pods as were counted and reserved for it, whatever is edited later.
fn hold_replicas(entry: &BindingEntry, object: &mut Value) {
    let counted = |role: &str| {
        let components = &entry.object.spec.components;
        components.iter().find(|c| c.name.eq_ignore_ascii_case(role)).map(|c| c.replicas)
    };
    for field in ["pytorchReplicaSpecs", "tfReplicaSpecs", "mpiReplicaSpecs"] {
        let Some(roles) = object["spec"].get_mut(field).and_then(Value::as_object_mut) else { continue };
        for (role, spec) in roles {
            if let (Some(replicas), true) = (counted(role), spec["replicas"].is_number()) {
                spec["replicas"] = json!(replicas);
            }
        }
    }
    for task in object["spec"].get_mut("tasks").and_then(Value::as_array_mut).into_iter().flatten() {
        let replicas = task["name"].as_str().and_then(counted);
        if let (Some(replicas), true) = (replicas, task["replicas"].is_number()) {
            task["replicas"] = json!(replicas);
        }
    }
}

fn written(world: &World, namespace: &str, mut manifest: Value, cluster: &str) -> Result<Value, String> {
    workload::strip_for_member(&mut manifest);
    apply_overrides(world, namespace, &mut manifest, cluster)?;
    Ok(manifest)
}

fn apply_overrides(
    world: &World,
    namespace: &str,
    manifest: &mut Value,
    cluster: &str,
) -> Result<(), String> {
    if world.override_list.is_empty() {
        return Ok(());
    }
    let Some(facts) = world.clusters.get(cluster).map(crate::cluster::facts) else { return Ok(()) };
    let text = |path: &str| manifest.pointer(path).and_then(Value::as_str).unwrap_or_default().to_string();
    let labels: BTreeMap<String, String> =
        serde_json::from_value(manifest["metadata"]["labels"].clone()).unwrap_or_default();
    let reference = ObjectRef {
        api_version: text("/apiVersion"),
        kind: text("/kind"),
        namespace: namespace.to_string(),
        name: text("/metadata/name"),
        labels,
    };
    overrides::apply(manifest, &reference, &facts, &world.override_list, &Yaml)
        .map(|_| ())
        .map_err(|error| error.to_string())
}

/// Documents embedded in fields, through the one YAML module.
struct Yaml;

impl overrides::YamlText for Yaml {
    fn read(&self, text: &str) -> Result<Value, String> {
        fleet_api::yaml::read(text).map_err(|error| error.to_string())
    }

    fn write(&self, value: &Value) -> Result<String, String> {
        fleet_api::yaml::write(value).map_err(|error| error.to_string())
    }
}

/// The spec a binding's Work should have.
pub fn work_spec(
    entry: &BindingEntry,
    manifests: Vec<Value>,
    reservation: Option<String>,
    term: Option<i64>,
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
    if spec.preserve_resources_on_deletion == Some(true) {
        body["preserveResourcesOnDeletion"] = json!(true);
    }
    if spec.suspension.as_ref().is_some_and(|suspension| suspension.dispatching == Some(true)) {
        body["suspendDispatching"] = json!(true);
    }
    body
}

/// A new Work, with the finalizer by which the agent sees its end through.
pub fn work(entry: &BindingEntry, key: &Key, spec: Value) -> Value {
    work_of(entry.uid(), key, spec)
}

/// A Work that brings nothing about. It takes the name of one that was sent and may still arrive, so that it no
/// longer can; its end closes the epoch in the member.
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

/// Status of the governed object in a Work's member, under the Work's own epoch.
pub fn reported_status(work: &Work) -> Option<&Value> {
    let status = work.status.as_ref()?;
    if status.observed_epoch != Some(work.spec.epoch) {
        return None;
    }
    let first = status.manifest_statuses.iter().find(|manifest| manifest.identifier.ordinal == 0)?;
    Some(&first.status).filter(|status| !status.is_null())
}
