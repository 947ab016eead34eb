//! Volcano's objects: `batch.volcano.sh/v1alpha1` Job (hub and members) and, in members only,
//! `scheduling.volcano.sh/v1beta1` PodGroup and Queue. On a hub the word `queue` must mean
//! `scheduling.x-k8s.io`, and kubectl takes the alphabetically first group that serves it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaimSpec, PodTemplateSpec};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, JsonSchema)]
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
    #[schemars(range(min = 0))]
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
    #[schemars(range(min = 1))]
    pub min_success: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_topology: Option<NetworkTopology>,
}

#[derive(Serialize, Deserialize, Clone, Debug, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSpec {
    pub mount_path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_claim_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_claim: Option<PersistentVolumeClaimSpec>,
}

#[derive(Serialize, Deserialize, Clone, Debug, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
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

#[derive(Serialize, Deserialize, Clone, Debug, JsonSchema)]
pub struct DependsOn {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub name: Vec<String>,
    /// any or all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iteration: Option<String>,
}

#[derive(Serialize, Deserialize, Clone, Debug, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PartitionPolicy {
    #[schemars(range(min = 1))]
    pub total_partitions: i32,
    #[schemars(range(min = 1))]
    pub partition_size: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_partitions: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_topology: Option<NetworkTopology>,
}

/// How close together in the network the pods of a gang must be.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
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

#[derive(Serialize, Deserialize, Clone, Debug, JsonSchema)]
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

#[derive(Serialize, Deserialize, Clone, Debug, JsonSchema)]
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

#[derive(Serialize, Deserialize, Clone, Debug, JsonSchema)]
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

#[derive(Serialize, Deserialize, Clone, Debug, JsonSchema)]
pub struct TaskState {
    /// Pod phase to count.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub phase: BTreeMap<String, i32>,
}

#[derive(Serialize, Deserialize, Clone, Debug, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolcanoJobCondition {
    /// On a hub: the phase in which the job stays, with status True, for `kubectl wait --for=condition=Completed`.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    pub status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
}

/// The definition of `bus.volcano.sh/v1alpha1` Command, by which users suspend, resume and restart a job. Its
/// fields stand beside the metadata, where no derived type can have them.
pub fn command_crd() -> CustomResourceDefinition {
    let text = serde_json::json!({"type": "string"});
    let definition = serde_json::json!({
        "metadata": {"name": "commands.bus.volcano.sh"},
        "spec": {
            "group": "bus.volcano.sh",
            "names": {"kind": "Command", "plural": "commands", "singular": "command"},
            "scope": "Namespaced",
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {
                    "apiVersion": text, "kind": text, "metadata": {"type": "object"},
                    "action": text, "reason": text, "message": text,
                    "target": {
                        "type": "object",
                        "required": ["apiVersion", "kind", "name", "uid"],
                        "properties": {
                            "apiVersion": text, "kind": text, "name": text, "uid": text,
                            "controller": {"type": "boolean"}, "blockOwnerDeletion": {"type": "boolean"},
                        },
                    },
                },
            }}}],
        },
    });
    // A constant of the right shape; the committed definitions are compared with it by a test.
    serde_json::from_value(definition).unwrap_or_default()
}

#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, JsonSchema)]
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
    #[schemars(schema_with = "crate::schema::resource_list")]
    pub min_resources: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_topology: Option<NetworkTopology>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::any_object_list")]
    pub sub_group_policy: Vec<Value>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, JsonSchema)]
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

#[derive(Serialize, Deserialize, Clone, Debug, Default, JsonSchema)]
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

#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, JsonSchema)]
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
    #[schemars(schema_with = "crate::schema::resource_list")]
    pub capability: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::schema::resource_list")]
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
    #[schemars(schema_with = "crate::schema::any_object")]
    pub affinity: Value,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::any_object_list")]
    pub extend_clusters: Vec<Value>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, JsonSchema)]
pub struct Guarantee {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::schema::resource_list")]
    pub resource: BTreeMap<String, Value>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, JsonSchema)]
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
    #[schemars(schema_with = "crate::schema::resource_list")]
    pub allocated: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub reservation: Value,
    /// Beyond Volcano's own: `Valid` is False where its place in the tree cannot be used, with why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>,
}

/// A domain of the network: nodes that reach each other at one tier's speed.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, JsonSchema)]
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
    /// 0 and more; what lies below has a lower tier.
    #[schemars(range(min = 0))]
    pub tier: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub tier_name: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<HyperNodeMember>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, JsonSchema)]
pub struct HyperNodeMember {
    /// Node or HyperNode.
    #[serde(rename = "type")]
    pub kind: String,
    pub selector: MemberSelector,
}

/// Exactly one of the three.
#[derive(Serialize, Deserialize, Clone, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberSelector {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact_match: Option<ExactMatch>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regex_match: Option<RegexMatch>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_match: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, JsonSchema)]
pub struct ExactMatch {
    #[schemars(length(min = 1))]
    pub name: String,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, JsonSchema)]
pub struct RegexMatch {
    #[schemars(length(min = 1))]
    pub pattern: String,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HyperNodeStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_count: Option<i64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>,
}

/// Cpus of a node and the kubelet's policies, as a node's exporter reports them; its name is the node's.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, JsonSchema)]
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
    /// Kept for the system, by resource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub res_reserved: BTreeMap<String, String>,
    /// What containers may still be given, by resource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub numares: BTreeMap<String, NumaResource>,
    /// By number of the cpu.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cpu_detail: BTreeMap<String, CpuDetail>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, JsonSchema)]
pub struct NumaResource {
    /// A list such as `1-7,9`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocatable: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<i64>,
}

/// Where a cpu is; what is not said is 0.
#[derive(Serialize, Deserialize, Clone, Debug, Default, JsonSchema)]
pub struct CpuDetail {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<i64>,
}

/// Makes jobs by the clock.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, JsonSchema)]
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
    /// Five fields: minute, hour, day of month, month, day of week; or @hourly and the like.
    #[schemars(length(min = 1))]
    pub schedule: String,
    /// A name such as Asia/Shanghai; UTC without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// How late a job may be started.
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

#[derive(Serialize, Deserialize, Clone, Debug, JsonSchema)]
pub struct CronJobTemplate {
    /// Labels and annotations of the jobs.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub metadata: Value,
    /// A job's spec. It is checked when a job is made of it: its schema is that of whole pods, which a server would
    /// hold once more for every kind that has it.
    #[schemars(schema_with = "crate::schema::any_object")]
    pub spec: Value,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CronJobStatus {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::any_object_list")]
    pub active: Vec<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_schedule_time: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_successful_time: Option<Time>,
}

/// A job that flows make: a job's spec, checked when a job is made of it.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug)]
#[kube(
    group = "flow.volcano.sh",
    version = "v1alpha1",
    kind = "JobTemplate",
    plural = "jobtemplates",
    shortname = "jt",
    namespaced,
    status = "JobTemplateStatus"
)]
#[kube(root = "VolcanoJobTemplate")]
#[serde(transparent)]
pub struct JobTemplateSpec(pub serde_json::Map<String, Value>);

impl JsonSchema for JobTemplateSpec {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "JobTemplateSpec".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        crate::schema::any_object(generator)
    }
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobTemplateStatus {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub job_depends_on_list: Vec<String>,
}

/// Jobs that are made one after the other.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, JsonSchema)]
#[kube(
    group = "flow.volcano.sh",
    version = "v1alpha1",
    kind = "JobFlow",
    plural = "jobflows",
    shortname = "jf",
    namespaced,
    status = "JobFlowStatus",
    printcolumn = r#"{"name":"Status","type":"string","jsonPath":".status.state.phase"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct JobFlowSpec {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<Flow>,
    /// retain or delete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_retain_policy: Option<String>,
}

/// One job of a flow.
#[derive(Serialize, Deserialize, Clone, Debug, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Flow {
    /// Name of a JobTemplate of the flow's namespace.
    #[schemars(length(min = 1))]
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depends_on: Option<FlowDependsOn>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<FlowPatch>,
}

#[derive(Serialize, Deserialize, Clone, Debug, JsonSchema)]
pub struct FlowDependsOn {
    /// Names of flows that must have completed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub probe: Value,
}

#[derive(Serialize, Deserialize, Clone, Debug, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlowPatch {
    /// Fields of the template's spec that differ.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub job_spec: Value,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobFlowStatus {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending_jobs: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub running_jobs: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_jobs: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub completed_jobs: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub terminated_jobs: Vec<String>,
    #[serde(default, rename = "unKnowJobs", skip_serializing_if = "Vec::is_empty")]
    pub un_know_jobs: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::any_object_list")]
    pub job_status_list: Vec<Value>,
    /// By name of the job.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub conditions: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<FlowState>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, JsonSchema)]
pub struct FlowState {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// What is wrong with the flow, or what it waits for that does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
