//! ResourceBinding (`fleet.dev/v1alpha1`): one for each object that a policy selects, in the object's
//! namespace. It has the object's requests, its target and the epoch of the target.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
#[cfg(feature = "schemas")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cells::CellBinding;
use crate::policy::{
    ConflictResolution, Failover, Placement, PodScheduling, PurgeMode, RunningEdits, Suspension,
};
use crate::volcano::NetworkTopology;

#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[cfg_attr(not(feature = "schemas"), kube(schema = "disabled"))]
#[kube(
    group = "fleet.dev",
    version = "v1alpha1",
    kind = "ResourceBinding",
    plural = "resourcebindings",
    shortname = "rb",
    namespaced,
    status = "ResourceBindingStatus",
    derive = "Default",
    printcolumn = r#"{"name":"CLUSTER","type":"string","jsonPath":".spec.clusters[*].name"}"#,
    printcolumn = r#"{"name":"EPOCH","type":"integer","jsonPath":".spec.epoch"}"#,
    printcolumn = r#"{"name":"SCHEDULED","type":"string","jsonPath":".status.conditions[?(@.type==\"Scheduled\")].status"}"#,
    printcolumn = r#"{"name":"FULLYAPPLIED","type":"string","jsonPath":".status.conditions[?(@.type==\"FullyApplied\")].status"}"#,
    printcolumn = r#"{"name":"AGE","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"REASON","type":"string","jsonPath":".status.conditions[?(@.type==\"Scheduled\")].message","priority":1}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ResourceBindingSpec {
    pub resource: ObjectReference,
    /// The policy that governs the object, until it is deleted or no longer matches.
    pub policy: PolicyReference,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub propagate_deps: Option<bool>,
    /// What one set of the object's pods requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<Component>,
    /// Pods of the object, over all components.
    #[serde(default)]
    pub replicas: i64,
    /// How close together its pods must be in the member's network, as the job requests it (Volcano Job).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_topology: Option<NetworkTopology>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failover: Option<Failover>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspension: Option<Suspension>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict_resolution: Option<ConflictResolution>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preserve_resources_on_deletion: Option<bool>,
    /// Who binds the pods; fixed for a run when it is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_scheduling: Option<PodScheduling>,
    /// What happens to the run when the object is changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_edits: Option<RunningEdits>,
    /// Source printed with scheduling events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    #[serde(default)]
    pub priority: i32,
    /// Who submitted the job, as its label says; not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The virtual cluster that the job names; absent if that of its queue decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_cluster: Option<String>,
    /// The place of a gang among waiting jobs of equal priority, and what it asks for beside its components.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_place: Option<QueuePlace>,
    /// The target: one cluster for a gang, several for plain objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<TargetCluster>,
    /// Raised by compare-and-swap with every change of the target. 0: never bound.
    #[serde(default)]
    pub epoch: i64,
    /// Cells of its virtual cluster that the job got with the target; absent for jobs without a virtual
    /// cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cells: Option<CellBinding>,
    /// Path of the leaf of the quota tree in which the run was admitted. Its use counts there until the run has ended,
    /// also when its labels change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// What the run was admitted as. It holds until the run has ended, also when its object changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admitted: Option<Admission>,
}

/// The place of a gang among waiting jobs of equal priority. An edit that asks for more takes a new one.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct QueuePlace {
    /// Since when it has this place (RFC 3339). Absent: since its binding was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Labels of the job that name its leaf of the quota tree.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Class in its virtual cluster; absent: that of jobs that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<i32>,
    /// Cells that the job names; absent: as many as its requests need.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cells: Option<i64>,
}

/// What decided over the admission of a run.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Admission {
    /// Whether the run may be preempted for quota.
    pub preemptible: bool,
    /// How long it runs at most, as its job declared. Others may have waited because it ends by then, so it gets no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_time_seconds: Option<i64>,
}

impl ResourceBindingSpec {
    /// That of its cells, or that the job names; empty where its queue decides and it has no cells yet.
    pub fn virtual_cluster(&self) -> &str {
        let group = self.cells.iter().flat_map(|cells| &cells.groups).next();
        let of_cells = group.and_then(|group| group.request["virtualCluster"].as_str());
        of_cells.or(self.virtual_cluster.as_deref()).unwrap_or_default()
    }
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    pub api_version: String,
    pub kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PolicyReference {
    /// PropagationPolicy or ClusterPropagationPolicy.
    pub kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Component {
    #[cfg_attr(feature = "schemas", schemars(length(max = 63)))]
    pub name: String,
    pub replicas: i64,
    /// Request of one replica: resource to quantity.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::written_quantities"))]
    pub request: BTreeMap<String, String>,
    /// `nodeSelector`, `affinity` and `tolerations` of the pod template, unchanged.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::any_object"))]
    pub node_claim: Value,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct TargetCluster {
    pub name: String,
    /// Replicas for this cluster; 0 for a gang, which has them in its components.
    #[serde(default)]
    pub replicas: i64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<TargetComponent>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct TargetComponent {
    pub name: String,
    pub replicas: i64,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ResourceBindingStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_observed_generation: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scheduled_time: Option<String>,
    /// `Scheduled`, `FullyApplied` and, for queued jobs, `Queuing`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aggregated_status: Vec<AggregatedStatusItem>,
    /// The result of the job, recorded before anything is removed in the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<JobResult>,
    /// Runs that ended before the job did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
    /// When the run under the current target was first seen failed or unhealthy (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy_since: Option<String>,
    /// The current run of a gang.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunStatus>,
}

/// State of the run of one epoch. All times are RFC 3339.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RunStatus {
    pub epoch: i64,
    /// When the controller first saw the job bound under this epoch.
    pub since: String,
    /// When it was first seen running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// When its cluster was first seen lost; removed when the cluster renews its lease again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_since: Option<String>,
    /// When it was first seen suspended. Its time goes on while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended_since: Option<String>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AggregatedStatusItem {
    pub cluster_name: String,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::any_object"))]
    pub status: Value,
    #[serde(default)]
    pub applied: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_message: Option<String>,
    /// Healthy, Unhealthy or Unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<String>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct JobResult {
    /// Succeeded or Failed.
    pub outcome: String,
    pub cluster: String,
    pub epoch: i64,
    /// RFC 3339.
    pub recorded_at: String,
    /// Why Fleet itself ended the job; absent if the member reported the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    pub cluster: String,
    pub epoch: i64,
    pub reason: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// RFC 3339; absent if the run never started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// RFC 3339.
    pub ended_at: String,
    /// How the old run is removed. Absent: `Directly`, it is gone before the next one starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purge: Option<PurgeMode>,
    /// Values of the policy's `statePreservation` rules, by alias, read from the run's last status.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub preserved_state: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests;
