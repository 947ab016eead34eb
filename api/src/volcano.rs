//! Volcano's objects: `batch.volcano.sh/v1alpha1` Job (hub and members) and, in members only,
//! `scheduling.volcano.sh/v1beta1` PodGroup and Queue. On a hub `queue` must mean `scheduling.x-k8s.io`, and
//! kubectl resolves the name to the alphabetically first group that serves it.

mod flow;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaimSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
#[cfg(feature = "schemas")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use flow::{
    Flow, FlowDependsOn, FlowPatch, FlowState, JobFlow, JobFlowSpec, JobFlowStatus, JobTemplateSpec,
    JobTemplateStatus, VolcanoJobTemplate,
};

#[derive(CustomResource, Serialize, Deserialize, Clone, Debug)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[cfg_attr(not(feature = "schemas"), kube(schema = "disabled"))]
#[kube(
    group = "batch.volcano.sh",
    version = "v1alpha1",
    kind = "Job",
    plural = "jobs",
    shortname = "vcjob",
    shortname = "vj",
    namespaced,
    status = "VolcanoJobStatus",
    printcolumn = r#"{"name":"STATUS","type":"string","jsonPath":".status.state.phase"}"#,
    printcolumn = r#"{"name":"minAvailable","type":"integer","jsonPath":".status.minAvailable"}"#,
    printcolumn = r#"{"name":"RUNNINGS","type":"integer","jsonPath":".status.running"}"#,
    printcolumn = r#"{"name":"AGE","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"QUEUE","type":"string","jsonPath":".spec.queue","priority":1}"#
)]
#[kube(root = "VolcanoJob")]
#[serde(rename_all = "camelCase")]
pub struct VolcanoJobSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schemas", schemars(range(min = 0)))]
    pub min_available: Option<i32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeSpec>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskSpec>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<LifecyclePolicy>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub plugins: BTreeMap<String, Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_estimate: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_retry: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schemas", schemars(range(min = 1)))]
    pub min_success: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_topology: Option<NetworkTopology>,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct VolumeSpec {
    pub mount_path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_claim_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_claim: Option<PersistentVolumeClaimSpec>,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TaskSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schemas", schemars(range(min = 0)))]
    pub replicas: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schemas", schemars(range(min = 0)))]
    pub min_available: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<PodTemplateSpec>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<LifecyclePolicy>,
    /// none, best-effort, restricted or single-numa-node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_policy: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_retry: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depends_on: Option<DependsOn>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_policy: Option<PartitionPolicy>,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct DependsOn {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub name: Vec<String>,
    /// any or all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iteration: Option<String>,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PartitionPolicy {
    #[cfg_attr(feature = "schemas", schemars(range(min = 1)))]
    pub total_partitions: i32,
    #[cfg_attr(feature = "schemas", schemars(range(min = 1)))]
    pub partition_size: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_partitions: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_topology: Option<NetworkTopology>,
}

/// How close together in the network the pods of a gang must be.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NetworkTopology {
    /// hard or soft.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub highest_tier_allowed: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub highest_tier_name: Option<String>,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LifecyclePolicy {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct VolcanoJobStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<JobState>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_available: Option<i32>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub task_status_count: BTreeMap<String, TaskState>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub succeeded: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminating: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_count: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_duration: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub controlled_resources: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<VolcanoJobCondition>,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct JobState {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct TaskState {
    /// Pod phase to count.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub phase: BTreeMap<String, i32>,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct VolcanoJobCondition {
    /// On a hub: the phase of the job, with status True, for `kubectl wait --for=condition=Completed`.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    pub status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
}

#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[cfg_attr(not(feature = "schemas"), kube(schema = "disabled"))]
#[kube(
    group = "scheduling.volcano.sh",
    version = "v1beta1",
    kind = "PodGroup",
    plural = "podgroups",
    shortname = "pg",
    shortname = "podgroup-v1beta1",
    namespaced,
    status = "PodGroupStatus",
    printcolumn = r#"{"name":"STATUS","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"minMember","type":"integer","jsonPath":".spec.minMember"}"#,
    printcolumn = r#"{"name":"RUNNINGS","type":"integer","jsonPath":".status.running"}"#,
    printcolumn = r#"{"name":"AGE","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"QUEUE","type":"string","jsonPath":".spec.queue","priority":1}"#
)]
#[serde(rename_all = "camelCase")]
pub struct PodGroupSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_member: Option<i32>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub min_task_member: BTreeMap<String, i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::resource_list"))]
    pub min_resources: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_topology: Option<NetworkTopology>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::any_object_list"))]
    pub sub_group_policy: Vec<Value>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct PodGroupStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<PodGroupCondition>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub succeeded: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<i32>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PodGroupCondition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    #[serde(default, rename = "transitionID", skip_serializing_if = "Option::is_none")]
    pub transition_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[cfg_attr(not(feature = "schemas"), kube(schema = "disabled"))]
#[kube(
    group = "scheduling.volcano.sh",
    version = "v1beta1",
    kind = "Queue",
    plural = "queues",
    shortname = "q",
    shortname = "queue-v1beta1",
    status = "VolcanoQueueStatus",
    printcolumn = r#"{"name":"PARENT","type":"string","jsonPath":".spec.parent"}"#
)]
#[kube(root = "VolcanoQueue")]
#[serde(rename_all = "camelCase")]
pub struct VolcanoQueueSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::resource_list"))]
    pub capability: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::resource_list"))]
    pub deserved: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<Guarantee>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaimable: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dequeue_strategy: Option<String>,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::any_object"))]
    pub affinity: Value,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::any_object_list"))]
    pub extend_clusters: Vec<Value>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct Guarantee {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::resource_list"))]
    pub resource: BTreeMap<String, Value>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct VolcanoQueueStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inqueue: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<i32>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::resource_list"))]
    pub allocated: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::any_object"))]
    pub reservation: Value,
    /// Not in Volcano: `Valid` is False, with the reason, if the queue's place in the tree cannot be used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>,
}

/// A network domain: nodes that reach each other at the speed of one tier.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[cfg_attr(not(feature = "schemas"), kube(schema = "disabled"))]
#[kube(
    group = "topology.volcano.sh",
    version = "v1alpha1",
    kind = "HyperNode",
    plural = "hypernodes",
    shortname = "hn",
    status = "HyperNodeStatus",
    printcolumn = r#"{"name":"Tier","type":"integer","jsonPath":".spec.tier"}"#,
    printcolumn = r#"{"name":"TierName","type":"string","jsonPath":".spec.tierName"}"#,
    printcolumn = r#"{"name":"NodeCount","type":"integer","jsonPath":".status.nodeCount"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct HyperNodeSpec {
    /// 0 or more; domains inside this one have a lower tier.
    #[cfg_attr(feature = "schemas", schemars(range(min = 0)))]
    pub tier: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schemas", schemars(length(max = 253)))]
    pub tier_name: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<HyperNodeMember>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct HyperNodeMember {
    /// Node or HyperNode.
    #[serde(rename = "type")]
    pub kind: String,
    pub selector: MemberSelector,
}

/// Exactly one of the three.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct MemberSelector {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact_match: Option<ExactMatch>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regex_match: Option<RegexMatch>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_match: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct ExactMatch {
    #[cfg_attr(feature = "schemas", schemars(length(min = 1)))]
    pub name: String,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct RegexMatch {
    #[cfg_attr(feature = "schemas", schemars(length(min = 1)))]
    pub pattern: String,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct HyperNodeStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_count: Option<i64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>,
}

/// Cpus of a node and the kubelet's policies, as a node's exporter reports them; its name is the node's.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[cfg_attr(not(feature = "schemas"), kube(schema = "disabled"))]
#[kube(
    group = "nodeinfo.volcano.sh",
    version = "v1alpha1",
    kind = "Numatopology",
    plural = "numatopologies",
    shortname = "numatopo",
    printcolumn = r#"{"name":"CPUManager","type":"string","jsonPath":".spec.policies.CPUManagerPolicy"}"#,
    printcolumn = r#"{"name":"TopologyManager","type":"string","jsonPath":".spec.policies.TopologyManagerPolicy"}"#,
    printcolumn = r#"{"name":"FreeCPUs","type":"string","jsonPath":".spec.numares.cpu.allocatable"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct NumatopologySpec {
    /// CPUManagerPolicy and TopologyManagerPolicy, as the kubelet's configuration says.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub policies: BTreeMap<String, String>,
    /// Reserved for the system, by resource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub res_reserved: BTreeMap<String, String>,
    /// What is still available to containers, by resource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub numares: BTreeMap<String, NumaResource>,
    /// Details of each cpu, by its number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cpu_detail: BTreeMap<String, CpuDetail>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct NumaResource {
    /// A list such as `1-7,9`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocatable: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<i64>,
}

/// Location of a cpu; absent numbers are 0.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct CpuDetail {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<i64>,
}

/// Creates jobs on a schedule.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[cfg_attr(not(feature = "schemas"), kube(schema = "disabled"))]
#[kube(
    group = "batch.volcano.sh",
    version = "v1alpha1",
    kind = "CronJob",
    plural = "cronjobs",
    shortname = "cronvcjob",
    shortname = "cronvj",
    namespaced,
    status = "CronJobStatus",
    printcolumn = r#"{"name":"Schedule","type":"string","jsonPath":".spec.schedule"}"#,
    printcolumn = r#"{"name":"Suspend","type":"boolean","jsonPath":".spec.suspend"}"#,
    printcolumn = r#"{"name":"LastSchedule","type":"date","jsonPath":".status.lastScheduleTime"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct CronJobSpec {
    /// Five cron fields: minute, hour, day of month, month, day of week; or @hourly and the like.
    #[cfg_attr(feature = "schemas", schemars(length(min = 1)))]
    pub schedule: String,
    /// A name such as Asia/Shanghai; UTC without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// How late a job may still be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starting_deadline_seconds: Option<i64>,
    /// Allow, Forbid or Replace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_policy: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    pub job_template: CronJobTemplate,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub successful_jobs_history_limit: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_jobs_history_limit: Option<i32>,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct CronJobTemplate {
    /// Labels and annotations of the jobs.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::any_object"))]
    pub metadata: Value,
    /// Spec of a job. It is validated when a job is created from it. Its schema includes whole pod specs,
    /// which a server would hold again for every kind that has it.
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::any_object"))]
    pub spec: Value,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CronJobStatus {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::any_object_list"))]
    pub active: Vec<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_schedule_time: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_successful_time: Option<Time>,
}
