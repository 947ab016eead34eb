//! Creates a pod from a job's template.

use fleet_api::names::{
    COMPONENT_LABEL, GANG_ANNOTATION, GANG_SIZE_ANNOTATION, INCREMENTAL_ANNOTATION, ON_CELLS_ANNOTATION,
    RESERVATION_ANNOTATION,
};
use kube::discovery::ApiResource;
use serde_json::{Map, Value, json};

use fleet_agent_ground::Object;

/// The pod of a template, owned by the job: the template's labels, annotations and spec as written.
pub(super) fn from_template(job: &Object, resource: &ApiResource, name: &str, template: &Value) -> Value {
    let mut spec = template["spec"].clone();
    if !spec.is_object() {
        spec = json!({});
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": job.namespace(),
            "labels": map_of(&template["metadata"]["labels"]),
            "annotations": map_of(&template["metadata"]["annotations"]),
            "ownerReferences": [owner_reference(job, resource)],
        },
        "spec": spec,
    })
}

pub(super) fn owner_reference(job: &Object, resource: &ApiResource) -> Value {
    json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": job.name(),
        "uid": job.uid(),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// Marks the pod as one of a gang of `size`, and names the reservation whose place it takes. Pods that start
/// one by one wait for no others.
pub(super) fn mark_gang(pod: &mut Value, job: &Object, component: &str, size: i64) {
    pod["metadata"]["labels"][COMPONENT_LABEL] = component.into();
    let gang = gang_of(pod, job.name());
    let annotations = &mut pod["metadata"]["annotations"];
    annotations[GANG_ANNOTATION] = gang.into();
    let size = if job.annotation(INCREMENTAL_ANNOTATION) == Some("true") { 1 } else { size };
    annotations[GANG_SIZE_ANNOTATION] = size.to_string().into();
    if pod["spec"]["schedulerName"] == "volcano" {
        pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = job.name().into();
    }
    let annotations = &mut pod["metadata"]["annotations"];
    for name in [RESERVATION_ANNOTATION, ON_CELLS_ANNOTATION] {
        if let Some(value) = job.annotation(name) {
            annotations[name] = value.into();
        }
    }
}

/// The gang of a job's pods. Jobs of two kinds may have one name, and their pods are not one gang. For Volcano's
/// scheduler a gang is the PodGroup, which has the name of the job.
fn gang_of(pod: &Value, job: &str) -> String {
    let owner = &pod["metadata"]["ownerReferences"][0];
    let of_volcano =
        owner["apiVersion"].as_str().is_some_and(|version| version.starts_with("batch.volcano.sh/"));
    if of_volcano || pod["spec"]["schedulerName"] == "volcano" {
        return job.to_owned();
    }
    format!("{job}-{}", owner["kind"].as_str().unwrap_or_default().to_lowercase())
}

pub(super) fn set_label(pod: &mut Value, name: &str, value: &str) {
    pod["metadata"]["labels"][name] = value.into();
}

/// Sets a variable in one container; an existing one of the same name is replaced.
pub(super) fn set_env(container: &mut Value, name: &str, value: &str) {
    let env = list_mut(container, "env");
    env.retain(|entry| entry["name"] != name);
    env.push(json!({"name": name, "value": value}));
}

pub(super) fn has_env(container: &Value, name: &str) -> bool {
    container["env"].as_array().is_some_and(|env| env.iter().any(|entry| entry["name"] == name))
}

/// The containers of a pod, without init containers.
pub(super) fn containers_mut(pod: &mut Value) -> impl Iterator<Item = &mut Value> {
    pod["spec"]["containers"].as_array_mut().into_iter().flatten().filter(|c| c.is_object())
}

/// The port named `name` in the container called `container`, or in the first one; `default` if none is
/// declared.
pub(super) fn declared_port(template: &Value, container: &str, name: &str, default: i64) -> i64 {
    let containers = template["spec"]["containers"].as_array().map_or(&[][..], Vec::as_slice);
    let chosen = containers.iter().find(|c| c["name"] == container).or(containers.first());
    let ports = chosen.and_then(|c| c["ports"].as_array()).map_or(&[][..], Vec::as_slice);
    ports.iter().find(|p| p["name"] == name).and_then(|p| p["containerPort"].as_i64()).unwrap_or(default)
}

/// Declares a port in the container called `container`, or in the first one, unless it exists.
pub(super) fn declare_port(pod: &mut Value, container: &str, name: &str, port: i64) {
    let Some(containers) = pod["spec"]["containers"].as_array_mut() else { return };
    let at = containers.iter().position(|c| c["name"] == container).unwrap_or(0);
    let Some(chosen) = containers.get_mut(at).filter(|c| c.is_object()) else { return };
    let ports = list_mut(chosen, "ports");
    if !ports.iter().any(|p| p["name"] == name) {
        ports.push(json!({"name": name, "containerPort": port, "protocol": "TCP"}));
    }
}

/// A headless service for the pods with these labels.
pub(super) fn headless_service(
    job: &Object,
    resource: &ApiResource,
    name: &str,
    labels: &Value,
    port: Option<(&str, i64)>,
) -> Value {
    let mut service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": job.namespace(),
            "labels": labels,
            "ownerReferences": [owner_reference(job, resource)],
        },
        "spec": {"clusterIP": "None", "selector": labels, "publishNotReadyAddresses": true},
    });
    if let Some((name, port)) = port {
        service["spec"]["ports"] =
            json!([{"name": name, "port": port, "targetPort": port, "protocol": "TCP"}]);
    }
    service
}

/// The object at a path. What is none on the way, or there, becomes one.
pub(super) fn object_at<'v>(value: &'v mut Value, path: &[&str]) -> &'v mut Value {
    let mut at = value;
    for field in path {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[*field];
    }
    if !at.is_object() {
        *at = json!({});
    }
    at
}

/// The list in a field of an object; created if missing.
pub(super) fn list_mut<'v>(object: &'v mut Value, field: &str) -> &'v mut Vec<Value> {
    let list = &mut object[field];
    if !list.is_array() {
        *list = Value::Array(Vec::new());
    }
    match list {
        Value::Array(list) => list,
        // Made an array by the lines above.
        _ => unreachable!("a list"),
    }
}

fn map_of(value: &Value) -> Value {
    value.as_object().cloned().map_or_else(|| Value::Object(Map::new()), Value::Object)
}

/// Mounts a volume in all containers and init containers.
pub(super) fn mount(pod: &mut Value, mount: &Value) {
    for field in ["containers", "initContainers"] {
        for container in pod["spec"][field].as_array_mut().into_iter().flatten() {
            list_mut(container, "volumeMounts").push(mount.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_of_two_kinds_and_one_name_are_two_gangs() {
        let gang = |version: &str, kind: &str, scheduler: &str| {
            let owner = json!([{"apiVersion": version, "kind": kind}]);
            gang_of(
                &json!({"metadata": {"ownerReferences": owner}, "spec": {"schedulerName": scheduler}}),
                "a",
            )
        };
        assert_eq!(gang("batch/v1", "Job", "fleet"), "a-job");
        assert_eq!(gang("kubeflow.org/v1", "PyTorchJob", "default-scheduler"), "a-pytorchjob");
        assert_eq!(gang("kubeflow.org/v1", "PyTorchJob", "volcano"), "a", "the PodGroup");
        assert_eq!(gang("batch.volcano.sh/v1alpha1", "Job", "volcano"), "a");
    }
}
