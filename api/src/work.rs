//! Work (`fleet.dev/v1alpha1`): the objects one member is to have for one binding, under one epoch. It
//! lives in the cluster's namespace on the hub: the controller writes the spec, that agent the status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    policy::{ConflictResolution, Fencing, PodScheduling},
    reservation::BindingReference,
};

#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
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
    /// The job may move when the cluster is lost, so the agent must stop it when cut off.
    #[serde(default)]
    pub fenced: bool,
    /// By what means a fenced job is stopped; absent: `Lease`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fencing: Option<Fencing>,
    /// Term of the leader that wrote this. A member starts nothing for an older term than the newest it has
    /// seen; absent: not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<i64>,
}

impl WorkSpec {
    /// How the job is stopped when its cluster is cut off.
    pub fn fencing(&self) -> Fencing {
        match (self.fenced, self.fencing) {
            (false, _) => Fencing::None,
            (true, Some(Fencing::Watchdog)) => Fencing::Watchdog,
            (true, _) => Fencing::Lease,
        }
    }
}

/// The governed object first, then what it depends on.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
pub struct WorkloadTemplate {
    #[schemars(schema_with = "crate::schema::embedded_objects")]
    pub manifests: Vec<Value>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkStatus {
    /// `Applied`: every manifest stands in the member; else the reason and which one does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub manifest_statuses: Vec<ManifestStatus>,
    /// Epoch of the objects that stand in the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_epoch: Option<i64>,
    /// Pods that have not ended of a job that has: its quota is held as long as there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live_pods: Option<i64>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
pub struct ManifestStatus {
    pub identifier: ManifestIdentifier,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub status: Value,
    /// Healthy, Unhealthy or Unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<String>,
    /// The object's `metadata.generation` in the member when this was read: whether `status.observedGeneration` there
    /// is of what the hub sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
pub struct ManifestIdentifier {
    /// Position in `spec.workload.manifests`.
    pub ordinal: i64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    pub version: String,
    pub kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
}
