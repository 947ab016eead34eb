//! Writing a workload for a member.

use serde_json::{Value, json};

use super::WorkloadKind;
use crate::names::is_reserved;

/// Sets the number of replicas of a Deployment-like object, or the parallelism
/// of a batch Job. Other kinds are whole and stay as they are.
pub fn revise_replicas(kind: WorkloadKind, object: &mut Value, replicas: i64) {
    let field = match kind {
        WorkloadKind::Deployment => "replicas",
        WorkloadKind::BatchJob => "parallelism",
        _ => return,
    };
    if object["spec"].is_object() {
        object["spec"][field] = json!(replicas);
    }
}

/// Sets environment variables in every container of every pod of a workload.
pub fn set_env(kind: WorkloadKind, object: &mut Value, variables: &[(String, String)]) {
    let spec = &mut object["spec"];
    let mut templates: Vec<&mut Value> = Vec::new();
    match kind {
        WorkloadKind::PyTorchJob | WorkloadKind::TFJob | WorkloadKind::MPIJob => {
            let roles = spec.get_mut(super::replica_specs_field(kind)).and_then(Value::as_object_mut);
            let roles = roles.into_iter().flat_map(|roles| roles.values_mut());
            templates.extend(roles.filter_map(|role| role.get_mut("template")));
        }
        WorkloadKind::VolcanoJob => {
            let tasks = spec.get_mut("tasks").and_then(Value::as_array_mut).into_iter().flatten();
            templates.extend(tasks.filter_map(|task| task.get_mut("template")));
        }
        WorkloadKind::BatchJob | WorkloadKind::Deployment => templates.extend(spec.get_mut("template")),
        WorkloadKind::Other => {}
    }
    for template in templates {
        for field in ["initContainers", "containers"] {
            let containers = template.pointer_mut(&format!("/spec/{field}")).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten().filter(|container| container.is_object()) {
                set_env_of(container, variables);
            }
        }
    }
}

fn set_env_of(container: &mut Value, variables: &[(String, String)]) {
    if !container["env"].is_array() {
        container["env"] = json!([]);
    }
    let Some(env) = container["env"].as_array_mut() else { return };
    for (name, value) in variables {
        env.retain(|known| known["name"] != name.as_str());
        env.push(json!({"name": name, "value": value}));
    }
}

/// Metadata that an API server sets and that has no meaning on another.
const OWNED_BY_SERVER: &[&str] = &[
    "uid",
    "resourceVersion",
    "managedFields",
    "ownerReferences",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
    "generateName",
    "finalizers",
];

/// Annotations for the hub alone.
const OWNED_BY_HUB: &[&str] = &[
    "kubectl.kubernetes.io/last-applied-configuration",
    "deployment.kubernetes.io/revision",
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
    "volume.kubernetes.io/selected-node",
];

/// Removes everything that the hub's API server or its controllers added, and marks that only Fleet sets on what it
/// sends: a member would mistake a user's marks for Fleet's, and the devices that a user names for those that its scheduler gave.
pub fn strip_for_member(object: &mut Value) {
    remove_reserved(object);
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    fields.remove("status");
    let kind = fields.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|name, _| !OWNED_BY_SERVER.contains(&name.as_str()));
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|name, _| !OWNED_BY_HUB.contains(&name.as_str()));
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    match kind.as_str() {
        "PersistentVolumeClaim" => remove_from_spec(object, &["volumeName"]),
        "Service" => remove_from_spec(object, &["clusterIP", "clusterIPs"]),
        // The hub's service account tokens are secrets of the hub.
        "ServiceAccount" => {
            if let Some(fields) = object.as_object_mut() {
                fields.remove("secrets");
            }
        }
        "Job" if object["apiVersion"] == "batch/v1" => strip_generated_job_fields(object),
        _ => {}
    }
}

/// Removes the finalizers of the object and of every template in it, also after overrides: what has one that nobody removes
/// stays in its member forever, with the places of its pods.
pub fn remove_finalizers(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_object_mut().filter(|_| name == "metadata") {
                    Some(metadata) => drop(metadata.remove("finalizers")),
                    None => remove_finalizers(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(remove_finalizers),
        _ => {}
    }
}

/// Removes reserved labels and annotations of the object and of every template in it.
fn remove_reserved(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
                for field in ["labels", "annotations"] {
                    let marks = metadata.get_mut(field).and_then(Value::as_object_mut);
                    if let Some(marks) = marks.filter(|marks| marks.keys().any(|name| is_reserved(name))) {
                        marks.retain(|name, _| !is_reserved(name));
                    }
                }
            }
            let nested = fields.iter_mut().filter(|(name, _)| *name != "metadata");
            nested.for_each(|(_, value)| remove_reserved(value));
        }
        Value::Array(items) => items.iter_mut().for_each(remove_reserved),
        _ => {}
    }
}

fn remove_from_spec(object: &mut Value, fields: &[&str]) {
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.retain(|name, _| !fields.contains(&name.as_str()));
    }
}

/// A batch Job's selector and controller labels carry the uid of the hub's
/// object; the member makes its own, unless the user chose the selector.
fn strip_generated_job_fields(object: &mut Value) {
    const GENERATED: &[&str] =
        &["controller-uid", "batch.kubernetes.io/controller-uid", "job-name", "batch.kubernetes.io/job-name"];
    // On the hub this keeps the hub's own job controller away; in the member a controller must run the job.
    remove_from_spec(object, &["managedBy"]);
    if object["spec"]["manualSelector"] == true {
        return;
    }
    remove_from_spec(object, &["selector"]);
    for pointer in ["/metadata/labels", "/spec/template/metadata/labels"] {
        if let Some(labels) = object.pointer_mut(pointer).and_then(Value::as_object_mut) {
            labels.retain(|name, _| !GENERATED.contains(&name.as_str()));
        }
    }
}

#[cfg(test)]
mod tests;
