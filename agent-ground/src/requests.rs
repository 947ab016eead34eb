//! The requests of the controllers, on plain JSON.

use fleet_api::names::{AGENT_MANAGER, RESERVATION_ANNOTATION};
use kube::{
    Client, Error, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::Request,
    discovery::ApiResource,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    call::{CallError, call},
    objects::{Object, resource},
    places::Reservations,
};

/// The resource of a manifest of the planners.
pub fn resource_of(manifest: &Value) -> ApiResource {
    let plural = match manifest["kind"].as_str().unwrap_or_default() {
        "Pod" => "pods",
        "Service" => "services",
        "ConfigMap" => "configmaps",
        "Secret" => "secrets",
        "NetworkPolicy" => "networkpolicies",
        "PersistentVolumeClaim" => "persistentvolumeclaims",
        "Event" => "events",
        "PodGroup" => "podgroups",
        "Queue" => "queues",
        "Job" => "jobs",
        _ => "replicasets",
    };
    let api_version = manifest["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    resource(group, version, manifest["kind"].as_str().unwrap_or_default(), plural)
}

/// Sets the pod's held node, if it need not wait for other pods.
pub async fn placed(places: Option<&Reservations>, manifest: &Value) -> Option<Value> {
    let is_free = manifest["spec"]["nodeName"].is_null();
    let is_reserved = manifest["metadata"]["annotations"][RESERVATION_ANNOTATION].is_string();
    let places = places.filter(|_| is_free && is_reserved)?;
    let node = places.node_for(serde_json::from_value(manifest.clone()).ok()?).await?;
    let mut placed = manifest.clone();
    placed["spec"]["nodeName"] = node.into();
    Some(placed)
}

pub async fn create<T: DeserializeOwned>(client: &Client, manifest: &Value) -> Result<T, CallError> {
    let namespace = manifest["metadata"]["namespace"].as_str();
    let request = request_to(&resource_of(manifest), namespace);
    let params = PostParams { field_manager: Some(AGENT_MANAGER.to_owned()), ..PostParams::default() };
    call(async {
        let body = serde_json::to_vec(manifest).map_err(Error::SerdeError)?;
        client.request(request.create(&params, body).map_err(Error::BuildRequest)?).await
    })
    .await
}

/// `None` if the object does not exist.
pub async fn get<T: DeserializeOwned>(
    client: &Client,
    resource: &ApiResource,
    namespace: &str,
    name: &str,
) -> Result<Option<T>, CallError> {
    let request = request_to(resource, Some(namespace));
    let answer = call(async {
        let request = request.get(name, &Default::default()).map_err(Error::BuildRequest)?;
        client.request(request).await
    })
    .await;
    match answer {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Deletes the object with that uid; success if it is gone. A conflict is returned: it means another object
/// of that name, which the watch will report, or a race in the server.
pub async fn delete(
    client: &Client,
    resource: &ApiResource,
    namespace: &str,
    name: &str,
    uid: &str,
) -> Result<(), CallError> {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let params = DeleteParams::background().preconditions(preconditions);
    let request = request_to(resource, Some(namespace));
    let answer = call(async {
        client.request_text(request.delete(name, &params).map_err(Error::BuildRequest)?).await.map(drop)
    })
    .await;
    match answer {
        Err(error) if error.is_not_found() => Ok(()),
        answer => answer,
    }
}

/// Merge patch of an object or, with `subresource`, of a part of it; returns the object.
pub async fn patch(
    client: &Client,
    resource: &ApiResource,
    object: &Object,
    subresource: Option<&str>,
    patch: &Value,
) -> Result<Object, CallError> {
    let request = request_to(resource, Some(object.namespace()));
    let params = PatchParams { field_manager: Some(AGENT_MANAGER.to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(patch);
    call(async {
        let request = match subresource {
            Some(part) => request.patch_subresource(part, object.name(), &params, &patch),
            None => request.patch(object.name(), &params, &patch),
        };
        client.request(request.map_err(Error::BuildRequest)?).await
    })
    .await
}

fn request_to(resource: &ApiResource, namespace: Option<&str>) -> Request {
    Request::new(Object::url_path(resource, namespace))
}
