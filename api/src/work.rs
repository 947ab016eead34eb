//! Work (`fleet.dev/v1alpha1`): the objects that one member must apply for one binding, under one epoch. It
//! is in the cluster's namespace on the hub: the controller writes the spec, that cluster's agent the status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
#[cfg(feature = "schemas")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    policy::{ConflictResolution, Fencing, PodScheduling},
    reservation::BindingReference,
};

#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[cfg_attr(not(feature = "schemas"), kube(schema = "disabled"))]
#[kube(
    group = "fleet.dev",
    version = "v1alpha1",
    kind = "Work",
    plural = "works",
    namespaced,
    status = "WorkStatus",
    derive = "Default",
    printcolumn = r#"{"name":"BINDING","type":"string","jsonPath":".spec.binding.name"}"#,
    printcolumn = r#"{"name":"EPOCH","type":"integer","jsonPath":".spec.epoch"}"#,
    printcolumn = r#"{"name":"APPLIED","type":"string","jsonPath":".status.conditions[?(@.type==\"Applied\")].status"}"#,
    printcolumn = r#"{"name":"AGE","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct WorkSpec {
    pub binding: BindingReference,
    pub epoch: i64,
    /// Name of the reservation whose places the pods take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
    pub workload: WorkloadTemplate,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict_resolution: Option<ConflictResolution>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend_dispatching: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preserve_resources_on_deletion: Option<bool>,
    /// Who binds the pods; absent: `Fleet`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_scheduling: Option<PodScheduling>,
    /// The job may move when the cluster is lost, so the agent must stop it when it is cut off from the hub.
    #[serde(default)]
    pub fenced: bool,
    /// How a fenced job is stopped; absent: `Lease`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fencing: Option<Fencing>,
    /// Term of the leader that wrote this. A member starts nothing for a term older than the newest it has
    /// seen. Absent: not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<i64>,
}

impl WorkSpec {
    /// How the job is stopped when its cluster is cut off from the hub.
    pub fn fencing(&self) -> Fencing {
        match (self.fenced, self.fencing) {
            (false, _) => Fencing::None,
            (true, Some(Fencing::Watchdog)) => Fencing::Watchdog,
            (true, _) => Fencing::Lease,
        }
    }
}

/// The selected object first, then its dependencies.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct WorkloadTemplate {
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::embedded_objects"))]
    pub manifests: Vec<Value>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct WorkStatus {
    /// `Applied`: every manifest is applied in the member; otherwise the reason, and which manifest is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub manifest_statuses: Vec<ManifestStatus>,
    /// Epoch of the objects in the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_epoch: Option<i64>,
    /// Pods of an ended job that have not terminated; the job holds its quota while there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live_pods: Option<i64>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct ManifestStatus {
    pub identifier: ManifestIdentifier,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::any_object"))]
    pub status: Value,
    /// Healthy, Unhealthy or Unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<String>,
    /// The object's `metadata.generation` in the member when this was read. It tells whether
    /// `status.observedGeneration` belongs to what the hub sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct ManifestIdentifier {
    /// Index in `spec.workload.manifests`.
    pub ordinal: i64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    pub version: String,
    pub kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
}
