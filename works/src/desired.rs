//! The desired form of an object of a Work in the member, and the comparison with the existing object.
//!
//! Pure. Only fields that the manifest sets are compared: defaults, and fields of the member's controllers
//! and users, stay.

use fleet_api::mutation::{self, Mutation};
use fleet_api::{
    names::{
        BINDING_UID_LABEL, EPOCH_ANNOTATION, FENCED_ANNOTATION, FENCING_ANNOTATION, MANAGED_LABEL,
        RESERVATION_ANNOTATION, RESULT_FINALIZER,
    },
    policy::{ConflictResolution, Fencing},
    work::WorkSpec,
};
use fleet_policies::WorkloadKind;
use fleet_resources::quantity;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Map, Value, json};

use crate::{
    inject,
    marks::{BINDINGS_ANNOTATION, bindings_of, epoch_of, is_fenced_level, is_managed, kind_of, suspend_path},
};

/// Field of a batch Job: when its pods are replaced.
pub(crate) const POD_REPLACEMENT: &str = "podReplacementPolicy";

/// Result of the comparison of an existing object with a manifest.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ObjectComparison {
    Same,
    /// This merge patch updates it.
    Patch(Value),
    /// Created by Fleet for something that must be deleted first, which is named.
    Wait(String),
    /// An older run of the same binding: it must be removed first, by this agent.
    Supersede,
    /// Not created by Fleet.
    Taken,
    /// A newer epoch exists.
    Stale(i64),
}

/// The manifest with Fleet's marks. Position 0 is the selected object. `means` is for the side container of
/// fencing Watchdog.
///
/// # Errors
/// Why the object cannot be created, as a sentence.
pub(crate) fn desired(spec: &WorkSpec, ordinal: usize, means: inject::Means<'_>) -> Result<Value, String> {
    let not_an_object = || {
        format!("spec.workload.manifests[{ordinal}]: found a value that is not an object; allowed: an object")
    };
    let mut object = spec.workload.manifests.get(ordinal).cloned().ok_or_else(not_an_object)?;
    let kind = kind_of(&object);
    let fields = object.as_object_mut().ok_or_else(not_an_object)?;
    fields.remove("status");
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    if !metadata.is_object() {
        return Err(format!(
            "spec.workload.manifests[{ordinal}].metadata: found no object; allowed: an object"
        ));
    }
    let uid = spec.binding.uid.as_str();
    let is_job = ordinal == 0 && kind.is_job();
    mark(metadata, "labels", MANAGED_LABEL, "true");
    if ordinal == 0 {
        mark(metadata, "labels", BINDING_UID_LABEL, uid);
        mark(metadata, "annotations", EPOCH_ANNOTATION, &spec.epoch.to_string());
        if let Some(reservation) = &spec.reservation {
            mark(metadata, "annotations", RESERVATION_ANNOTATION, reservation);
        }
    }
    if !is_job {
        mark(metadata, "annotations", BINDINGS_ANNOTATION, uid);
        return Ok(object);
    }
    metadata["finalizers"] = json!([RESULT_FINALIZER]);
    let fencing = spec.fencing();
    if fencing != Fencing::None {
        mark(metadata, "annotations", FENCING_ANNOTATION, &format!("{fencing:?}"));
    }
    replace_ended_pods(kind, &mut object);
    if fencing == Fencing::Watchdog {
        inject::watchdog(kind, &mut object, means)?;
    }
    Ok(object)
}

/// Pods of a batch Job are replaced once they have ended. By default Kubernetes replaces them while they still end, so that a
/// job whose pods do not end has more of them than were counted and reserved. Whatever the manifest says: a hub fills in the
/// default as well.
fn replace_ended_pods(kind: WorkloadKind, object: &mut Value) {
    if kind == WorkloadKind::BatchJob && object["spec"].is_object() {
        object["spec"][POD_REPLACEMENT] = "Failed".into();
    }
}

/// The patch lets a suspended job run again.
pub(crate) fn resumes(desired: &Value, live: &DynamicObject, patch: &Value) -> bool {
    let text = |field: &str| desired[field].as_str().unwrap_or_default();
    let Some(path) = suspend_path(text("apiVersion"), text("kind")) else { return false };
    let pointer = format!("/{}", path.join("/"));
    live.data.pointer(&pointer) == Some(&Value::Bool(true))
        && patch.pointer(&pointer).is_some_and(|suspend| *suspend != true)
}

/// Compares the existing object with the desired one. `overwrite`: the member's administrator allows policies
/// to take over objects that Fleet did not create.
pub(crate) fn judge(
    spec: &WorkSpec,
    ordinal: usize,
    desired: &Value,
    live: &DynamicObject,
    overwrite: bool,
) -> ObjectComparison {
    let is_job = ordinal == 0 && kind_of(desired).is_job();
    if !is_managed(live) {
        if mutation::is_on(Mutation::ForeignAdopted) {
            return bring_in_line(desired, live);
        }
        return match spec.conflict_resolution {
            Some(ConflictResolution::Overwrite) if overwrite => bring_in_line(desired, live),
            _ => ObjectComparison::Taken,
        };
    }
    if ordinal == 0
        && let Some(owner) = live.labels().get(BINDING_UID_LABEL)
    {
        if *owner != spec.binding.uid {
            return ObjectComparison::Wait(format!(
                "an object of another binding ({owner}) must be deleted first"
            ));
        }
        match epoch_of(live) {
            Some(epoch) if epoch > spec.epoch => return ObjectComparison::Stale(epoch),
            Some(_) if mutation::is_on(Mutation::OlderRunKept) => return ObjectComparison::Same,
            Some(epoch) if epoch < spec.epoch && is_job => return ObjectComparison::Supersede,
            _ => {}
        }
    }
    if live.metadata.deletion_timestamp.is_some() && !is_job {
        return ObjectComparison::Wait("the object of that name is being deleted".to_owned());
    }
    bring_in_line(desired, live)
}

/// The patch of an object that is not a job when these bindings no longer need it; `None` deletes it.
pub(crate) fn without(live: &DynamicObject, gone: &dyn Fn(&str) -> bool) -> Option<Value> {
    let mut stay = bindings_of(live);
    stay.retain(|uid| !gone(uid));
    if stay.is_empty() {
        return None;
    }
    let list: Vec<&str> = stay.iter().map(String::as_str).collect();
    let mut patch = json!({"metadata": {"annotations": {BINDINGS_ANNOTATION: list.join(",")}}});
    if live.labels().get(BINDING_UID_LABEL).is_some_and(|uid| gone(uid)) {
        patch["metadata"]["labels"] = json!({BINDING_UID_LABEL: null});
    }
    Some(patch)
}

/// Removes all of Fleet's marks from an object that stays.
pub(crate) fn unmarked(live: &DynamicObject) -> Value {
    let mut patch = json!({"metadata": {
        "labels": {MANAGED_LABEL: null, BINDING_UID_LABEL: null},
        "annotations": {EPOCH_ANNOTATION: null, RESERVATION_ANNOTATION: null, BINDINGS_ANNOTATION: null},
    }});
    if let Some(without) = without_finalizer(live, RESULT_FINALIZER) {
        patch["metadata"]["finalizers"] = without["metadata"]["finalizers"].clone();
        patch["metadata"]["resourceVersion"] = without["metadata"]["resourceVersion"].clone();
    }
    patch
}

/// The patch that removes a finalizer, if there is one; it fails if the object changed meanwhile.
pub(crate) fn without_finalizer<K: ResourceExt>(live: &K, finalizer: &str) -> Option<Value> {
    if !live.finalizers().iter().any(|one| one == finalizer) {
        return None;
    }
    let rest: Vec<&String> = live.finalizers().iter().filter(|one| *one != finalizer).collect();
    Some(json!({"metadata": {"finalizers": rest, "resourceVersion": live.resource_version()}}))
}

fn bring_in_line(desired: &Value, live: &DynamicObject) -> ObjectComparison {
    let mut patch = Map::new();
    for (field, wanted) in desired.as_object().into_iter().flatten() {
        let found = &live.data[field];
        let change = match field.as_str() {
            "apiVersion" | "kind" | "metadata" | "status" => None,
            // Keys of these maps are content: a key that the hub removed is removed here.
            "data" | "binaryData" => exact(wanted, found),
            _ => lacking(wanted, found),
        };
        patch.extend(change.map(|change| (field.clone(), change)));
    }
    if let Some(metadata) = metadata_lacking(&desired["metadata"], live) {
        patch.insert("metadata".to_owned(), metadata);
    }
    let mut patch = Value::Object(patch);
    unfence(desired, live, &mut patch);
    let Value::Object(patch) = patch else { return ObjectComparison::Same };
    if patch.is_empty() { ObjectComparison::Same } else { ObjectComparison::Patch(Value::Object(patch)) }
}

/// Removes the marks of a stopped job, and a fencing level that it no longer has.
fn unfence(desired: &Value, live: &DynamicObject, patch: &mut Value) {
    if !desired["metadata"]["annotations"][FENCING_ANNOTATION].is_string() && is_fenced_level(live) {
        patch["metadata"]["annotations"][FENCING_ANNOTATION] = Value::Null;
    }
    if !live.annotations().contains_key(FENCED_ANNOTATION) {
        return;
    }
    patch["metadata"]["annotations"][FENCED_ANNOTATION] = Value::Null;
    let text = |field: &str| desired[field].as_str().unwrap_or_default();
    let Some(path) = suspend_path(text("apiVersion"), text("kind")) else { return };
    let pointer = format!("/{}", path.join("/"));
    // A value set by the manifest is in the patch already, if it differs.
    let named = desired.pointer(&pointer).is_some_and(|value| !value.is_null());
    if !named && live.data.pointer(&pointer).is_some() {
        let mut at = patch;
        for field in path {
            // What is no object is sent as it is, and refused by the member.
            if !at.is_object() && !at.is_null() {
                return;
            }
            at = &mut at[*field];
        }
        *at = Value::Null;
    }
}

fn metadata_lacking(desired: &Value, live: &DynamicObject) -> Option<Value> {
    let mut patch = Map::new();
    let labels: Value =
        live.labels().iter().map(|(k, v)| (k.clone(), json!(v))).collect::<Map<_, _>>().into();
    patch.extend(lacking(&desired["labels"], &labels).map(|change| ("labels".to_owned(), change)));
    let annotations: Value =
        live.annotations().iter().map(|(k, v)| (k.clone(), json!(v))).collect::<Map<_, _>>().into();
    let mut wanted = desired["annotations"].clone();
    if let Some(uid) = wanted[BINDINGS_ANNOTATION].as_str().map(str::to_owned) {
        let mut all = bindings_of(live);
        all.insert(uid);
        wanted[BINDINGS_ANNOTATION] = all.into_iter().collect::<Vec<_>>().join(",").into();
    }
    patch.extend(lacking(&wanted, &annotations).map(|change| ("annotations".to_owned(), change)));
    let wanted = desired["finalizers"].as_array().map_or(&[][..], Vec::as_slice);
    let missing: Vec<&str> = wanted
        .iter()
        .filter_map(Value::as_str)
        .filter(|one| !live.finalizers().iter().any(|known| known == one))
        .collect();
    // An object that is being deleted accepts no finalizers.
    if !missing.is_empty() && live.metadata.deletion_timestamp.is_none() {
        let all: Vec<&str> = live.finalizers().iter().map(String::as_str).chain(missing).collect();
        patch.insert("finalizers".to_owned(), json!(all));
        patch.insert("resourceVersion".to_owned(), json!(live.resource_version()));
    }
    if patch.is_empty() { None } else { Some(Value::Object(patch)) }
}

/// The merge patch that adds what `found` lacks of `wanted`; lists are compared item by item and replaced as
/// a whole.
fn lacking(wanted: &Value, found: &Value) -> Option<Value> {
    match (wanted, found) {
        (Value::Null, _) => None,
        // A server removes empty maps and lists.
        (Value::Object(wanted), Value::Null) if wanted.is_empty() => None,
        (Value::Array(wanted), Value::Null) if wanted.is_empty() => None,
        (Value::Object(wanted), Value::Object(found)) => {
            let mut patch = Map::new();
            for (field, value) in wanted {
                let change = lacking(value, found.get(field).unwrap_or(&Value::Null));
                patch.extend(change.map(|change| (field.clone(), change)));
            }
            if patch.is_empty() { None } else { Some(Value::Object(patch)) }
        }
        (Value::Array(list), Value::Array(known)) => {
            let same = list.len() == known.len()
                && list.iter().zip(known).all(|(wanted, found)| lacking(wanted, found).is_none());
            if same { None } else { Some(wanted.clone()) }
        }
        _ if wanted == found || same_quantity(wanted, found) => None,
        _ => Some(wanted.clone()),
    }
}

fn exact(wanted: &Value, found: &Value) -> Option<Value> {
    fleet_api::patch::merge_diff(found, wanted).filter(|_| !(found.is_null() && wanted == &json!({})))
}

/// Servers that normalize quantities treat `1000m` and `1` as equal. Compared in thousandths.
fn same_quantity(a: &Value, b: &Value) -> bool {
    let thousandths = |value: &Value| match value {
        Value::String(text) => quantity::parse("cpu", text).ok(),
        Value::Number(number) => quantity::parse("cpu", &number.to_string()).ok(),
        _ => None,
    };
    thousandths(a).is_some_and(|a| thousandths(b) == Some(a))
}

fn mark(metadata: &mut Value, map: &str, name: &str, value: &str) {
    let map = &mut metadata[map];
    if !map.is_object() {
        *map = json!({});
    }
    map[name] = value.into();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(manifest: Value) -> WorkSpec {
        let mut spec = WorkSpec { epoch: 2, reservation: Some("r".to_owned()), ..WorkSpec::default() };
        spec.binding.uid = "u1".to_owned();
        spec.workload.manifests = vec![manifest];
        spec
    }

    fn job() -> Value {
        json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "a", "namespace": "n"},
            "spec": {"x": {"cpu": "1000m"}, "list": [{"name": "c"}]}})
    }

    fn live(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    /// The object as a server would keep it, changed by `change`.
    fn check(change: impl Fn(&mut Value), expected: ObjectComparison) {
        let spec = spec(job());
        let wanted = desired(&spec, 0, inject::Means::default()).unwrap();
        let mut stored = wanted.clone();
        stored["metadata"]["uid"] = "x".into();
        stored["metadata"]["resourceVersion"] = "7".into();
        stored["spec"]["defaulted"] = true.into();
        stored["spec"]["list"][0]["image"] = "i".into();
        stored["spec"]["x"]["cpu"] = "1".into();
        change(&mut stored);
        assert_eq!(judge(&spec, 0, &wanted, &live(stored), true), expected);
    }

    #[test]
    fn what_stands_in_the_member() {
        check(|_| {}, ObjectComparison::Same);
        check(
            |o| o["spec"]["x"]["cpu"] = "2".into(),
            ObjectComparison::Patch(json!({"spec": {"x": {"cpu": "1000m"}}})),
        );
        check(|o| o["metadata"]["annotations"][EPOCH_ANNOTATION] = "1".into(), ObjectComparison::Supersede);
        check(|o| o["metadata"]["annotations"][EPOCH_ANNOTATION] = "3".into(), ObjectComparison::Stale(3));
        check(|o| o["metadata"]["labels"] = json!({}), ObjectComparison::Taken);
        check(
            |o| o["metadata"]["labels"][BINDING_UID_LABEL] = "u0".into(),
            ObjectComparison::Wait("an object of another binding (u0) must be deleted first".to_owned()),
        );
        check(
            |o| o["metadata"]["finalizers"] = json!(["other"]),
            ObjectComparison::Patch(
                json!({"metadata": {"finalizers": ["other", RESULT_FINALIZER], "resourceVersion": "7"}}),
            ),
        );
    }

    #[test]
    fn a_stopped_job_is_resumed_as_its_manifest_says() {
        let resumed = |manifest: Option<bool>| {
            let mut job = job();
            if let Some(suspend) = manifest {
                job["spec"]["runPolicy"] = json!({"suspend": suspend});
            }
            let mut spec = spec(job);
            spec.fenced = true;
            let wanted = desired(&spec, 0, inject::Means::default()).unwrap();
            assert_eq!(wanted["metadata"]["annotations"][FENCING_ANNOTATION], "Lease");
            let mut stored = wanted.clone();
            stored["metadata"]["annotations"][FENCED_ANNOTATION] = "2".into();
            stored["spec"]["runPolicy"]["suspend"] = true.into();
            let ObjectComparison::Patch(patch) = judge(&spec, 0, &wanted, &live(stored), true) else {
                panic!("no patch")
            };
            assert_eq!(patch["metadata"], json!({"annotations": {FENCED_ANNOTATION: null}}));
            patch["spec"].clone()
        };
        assert_eq!(resumed(None), json!({"runPolicy": {"suspend": null}}));
        assert_eq!(resumed(Some(false)), json!({"runPolicy": {"suspend": false}}));
        assert_eq!(resumed(Some(true)), Value::Null);
        // No longer a job that may move.
        check(
            |o| o["metadata"]["annotations"][FENCING_ANNOTATION] = "Lease".into(),
            ObjectComparison::Patch(json!({"metadata": {"annotations": {FENCING_ANNOTATION: null}}})),
        );
    }

    /// Whatever the manifest says, or the hub's API server has filled in.
    #[test]
    fn pods_of_a_batch_job_are_replaced_when_they_have_ended() {
        for said in [Value::Null, json!("TerminatingOrFailed"), json!("Failed")] {
            let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "namespace": "n"},
                "spec": {"podReplacementPolicy": said, "template": {}}});
            let wanted = desired(&spec(job), 0, inject::Means::default()).unwrap();
            assert_eq!(wanted["spec"]["podReplacementPolicy"], "Failed", "{said}");
        }
        let other = desired(&spec(job()), 0, inject::Means::default()).unwrap();
        assert_eq!(other["spec"]["podReplacementPolicy"], Value::Null);
    }

    #[test]
    fn overwrite_takes_over() {
        let mut spec = spec(job());
        spec.conflict_resolution = Some(ConflictResolution::Overwrite);
        let wanted = desired(&spec, 0, inject::Means::default()).unwrap();
        let found = live(json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
            "metadata": {"name": "a", "namespace": "n"}, "spec": {}}));
        let ObjectComparison::Patch(patch) = judge(&spec, 0, &wanted, &found, true) else {
            panic!("no patch")
        };
        assert_eq!(patch["metadata"]["labels"][BINDING_UID_LABEL], "u1");
        assert_eq!(patch["spec"]["x"]["cpu"], "1000m");
    }

    #[test]
    fn a_shared_dependency() {
        let mut spec = spec(job());
        let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"},
            "data": {"a": "1"}});
        spec.workload.manifests.push(config);
        let wanted = desired(&spec, 1, inject::Means::default()).unwrap();
        let mut stored = wanted.clone();
        stored["metadata"]["annotations"][BINDINGS_ANNOTATION] = "u0".into();
        stored["data"]["b"] = "2".into();
        let found = live(stored);
        assert_eq!(
            judge(&spec, 1, &wanted, &found, true),
            ObjectComparison::Patch(
                json!({"data": {"b": null}, "metadata": {"annotations": {BINDINGS_ANNOTATION: "u0,u1"}}})
            )
        );
        assert_eq!(without(&found, &|uid| uid == "u0"), None);
        assert_eq!(
            without(&found, &|uid| uid == "u1").unwrap()["metadata"]["annotations"][BINDINGS_ANNOTATION],
            "u0"
        );
    }
}
