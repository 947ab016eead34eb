//! What users and administrators write, and write again once a full disk has room.

use anyhow::Context;
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::Run;
use crate::{
    observe::resource,
    plan::{Server, What},
};
use fleet_simulator::scenario::ObjectName;

/// Who applies what users apply.
const MANAGER: &str = "kubectl";

impl Run<'_> {
    /// Whether something a user wrote before about the same object is still to be written.
    pub(super) fn is_unwritten(&self, what: &What) -> bool {
        name_of(what).is_some_and(|name| self.unwritten.iter().any(|other| is_of(other, &name)))
    }

    /// A user writes an object on the hub. False: its disk is full.
    pub(super) async fn write(&mut self, what: &What) -> bool {
        match what {
            What::Apply(object) => self.submit(object).await,
            What::Patch { object, patch } => self.patch(object, patch).await,
            _ => true,
        }
    }

    /// Users write what they could not before, in the same order.
    pub(super) async fn write_again(&mut self) {
        for what in std::mem::take(&mut self.unwritten) {
            if self.is_unwritten(&what) || !self.write(&what).await {
                self.unwritten.push(what);
            }
        }
    }

    pub(super) async fn delete(&self, server: &Server, name: &ObjectName) {
        let Some(client) = self.sim.direct.get(server) else { return };
        let api_version = name.api_version.as_deref().unwrap_or(default_version(&name.kind));
        let resource = resource(api_version, &name.kind);
        let api = api_in(client, &name.namespace, &resource);
        // It may have gone by itself.
        let _ = api.delete(&name.name, &DeleteParams::background()).await;
    }

    pub(super) async fn patch(&self, name: &ObjectName, patch: &Value) -> bool {
        let api_version = name.api_version.as_deref().unwrap_or(default_version(&name.kind));
        let api = api_in(self.sim.hub(), &name.namespace, &resource(api_version, &name.kind));
        let params = PatchParams { field_manager: Some(MANAGER.to_string()), ..PatchParams::default() };
        let Err(error) = api.patch(&name.name, &params, &Patch::Merge(patch)).await else { return true };
        let job = format!("{}/{}", name.namespace, name.name);
        self.observer.tell("Refused", &job, json!({"message": error.to_string()}));
        !is_full(&error)
    }

    pub(super) async fn submit(&mut self, object: &Value) -> bool {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let job = format!("{}/{}", text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
        let is_job = object["kind"].as_str().is_some_and(|kind| kind.ends_with("Job"));
        match self.apply(Server::Hub, object).await {
            Ok(is_leaving) if is_job => {
                // One that is being deleted goes, whatever is applied to it.
                if !is_leaving {
                    let meta = &object["metadata"];
                    self.accepted.insert((
                        text(&object["kind"]),
                        text(&meta["namespace"]),
                        text(&meta["name"]),
                    ));
                }
                self.observer.tell("Submitted", &job, json!({}));
            }
            Ok(_) => {}
            Err(error) if error.downcast_ref::<kube::Error>().is_some_and(is_full) => {
                self.observer.tell("Refused", &job, json!({"message": format!("{error:#}")}));
                return false;
            }
            Err(error) => {
                let message = format!("{error:#}");
                self.observer.tell("Rejected", &job, json!({"reason": "Invalid", "message": message}));
            }
        }
        true
    }

    /// Applies an object, in a namespace made for it. Returns whether it is being deleted.
    pub(super) async fn apply(&mut self, server: Server, object: &Value) -> anyhow::Result<bool> {
        let client = self.sim.direct.get(&server).with_context(|| format!("no {server}"))?.clone();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let namespace = text(&object["metadata"]["namespace"]);
        if !namespace.is_empty() && !self.namespaces.contains(&(server.clone(), namespace.clone())) {
            let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            put(&client, &made).await?;
            self.namespaces.insert((server, namespace));
        }
        put(&client, object).await
    }
}

/// Refused because the server's disk is full.
fn is_full(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason == "InsufficientStorage")
}

/// The object of the hub that a user writes.
fn name_of(what: &What) -> Option<ObjectName> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    match what {
        What::Apply(object) => Some(ObjectName {
            api_version: None,
            kind: text(&object["kind"]),
            namespace: text(&object["metadata"]["namespace"]),
            name: text(&object["metadata"]["name"]),
        }),
        What::Patch { object, .. } => Some(ObjectName { api_version: None, ..object.clone() }),
        _ => None,
    }
}

pub(super) fn is_of(what: &What, name: &ObjectName) -> bool {
    name_of(what).is_some_and(|own| {
        (&own.kind, &own.namespace, &own.name) == (&name.kind, &name.namespace, &name.name)
    })
}

/// The objects of a kind in a namespace; without one, those of the cluster.
pub(super) fn api_in(client: &Client, namespace: &str, resource: &ApiResource) -> Api<DynamicObject> {
    match namespace.is_empty() {
        true => Api::all_with(client.clone(), resource),
        false => Api::namespaced_with(client.clone(), namespace, resource),
    }
}

/// The API version of a kind that a delete names without one.
fn default_version(kind: &str) -> &'static str {
    match kind {
        "MPIJob" => "kubeflow.org/v2beta1",
        "PyTorchJob" | "TFJob" => "kubeflow.org/v1",
        "Job" => "batch/v1",
        "Deployment" => "apps/v1",
        "ElasticQuotaTree" => "scheduling.sigs.k8s.io/v1beta1",
        kind if kind.ends_with("Policy") => "policy.one.alibabacloud.com/v1alpha1",
        "Cluster" => "fleet.dev/v1alpha1",
        _ => "v1",
    }
}

async fn put(client: &Client, object: &Value) -> anyhow::Result<bool> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let resource = resource(&text(&object["apiVersion"]), &text(&object["kind"]));
    let namespace = text(&object["metadata"]["namespace"]);
    let api = api_in(client, &namespace, &resource);
    let name = text(&object["metadata"]["name"]);
    let put = api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(object)).await?;
    Ok(put.metadata.deletion_timestamp.is_some())
}
