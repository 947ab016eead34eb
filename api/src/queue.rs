//! Group `scheduling.x-k8s.io/v1alpha1`: Queue (one per quota node and per virtual cluster) and QueueUnit (one per queued job).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
#[cfg(feature = "schemas")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[cfg_attr(not(feature = "schemas"), kube(schema = "disabled"))]
#[kube(
    group = "scheduling.x-k8s.io",
    version = "v1alpha1",
    kind = "Queue",
    plural = "queues",
    namespaced,
    status = "QueueStatus",
    derive = "Default",
    printcolumn = r#"{"name":"AGE","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"POLICY","type":"string","jsonPath":".spec.queuePolicy","priority":1}"#,
    printcolumn = r#"{"name":"WAITING","type":"integer","jsonPath":".status.waiting","priority":1}"#,
    printcolumn = r#"{"name":"ADMITTED","type":"integer","jsonPath":".status.admitted","priority":1}"#,
    printcolumn = r#"{"name":"FIRST","type":"string","jsonPath":".status.queueItemDetails.active[0].name","priority":1}"#
)]
#[serde(rename_all = "camelCase")]
pub struct QueueSpec {
    /// `Priority` (default), `Block` or `Intelligent`. Administrators may change it, except for virtual clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_policy: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::any_object_list"))]
    pub admission_checks: Vec<Value>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct QueueStatus {
    /// `active`: the waiting jobs in the order in which they are considered.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub queue_item_details: BTreeMap<String, Vec<QueueItem>>,
    /// Jobs waiting in this queue and below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<i64>,
    /// Jobs admitted and unfinished in this queue and below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admitted: Option<i64>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct QueueItem {
    pub name: String,
    pub namespace: String,
    pub priority: i32,
    /// 1-based.
    pub position: i64,
}

#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[cfg_attr(not(feature = "schemas"), kube(schema = "disabled"))]
#[kube(
    group = "scheduling.x-k8s.io",
    version = "v1alpha1",
    kind = "QueueUnit",
    plural = "queueunits",
    shortname = "qu",
    namespaced,
    status = "QueueUnitStatus",
    derive = "Default",
    printcolumn = r#"{"name":"PHASE","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"PRIORITY","type":"integer","jsonPath":".spec.priority"}"#,
    printcolumn = r#"{"name":"QUEUE","type":"string","jsonPath":".spec.queue"}"#,
    printcolumn = r#"{"name":"JOBTYPE","type":"string","jsonPath":".spec.jobType"}"#,
    printcolumn = r#"{"name":"AGE","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"MESSAGE","type":"string","jsonPath":".status.message","priority":1}"#
)]
#[serde(rename_all = "camelCase")]
pub struct QueueUnitSpec {
    /// The ResourceBinding that waits.
    pub consumer_ref: ConsumerRef,
    #[serde(default)]
    pub priority: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// Full path of the leaf, `root/child-2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Kind of the job that waits, as `kubectl get queueunit` prints it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_type: Option<String>,
    /// Requests of the whole job: resource to quantity.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::written_quantities"))]
    pub resource: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::written_quantities"))]
    pub request: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pod_set: Vec<PodSet>,
    /// Whether the job may be preempted. Default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemptible: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum_execution_time_seconds: Option<i64>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ConsumerRef {
    pub api_version: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct PodSet {
    pub name: String,
    pub count: i64,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct QueueUnitStatus {
    /// Enqueued, Reserved, Dequeued, Running, Succeed or Failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Number of runs that were started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<i64>,
    /// One sentence on the current state: why the job waits and for what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The reason's code, one of the fixed vocabulary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Capacity that is reserved for the job while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<UnitClaim>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_allocate_time: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_state: Option<PodState>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Capacity reserved for a job that others have passed. Times are RFC 3339.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct UnitClaim {
    /// The member in which the job will start.
    pub cluster: String,
    pub since: String,
    /// When the job is expected to start; absent if the end of some other job is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// The claim is given up then at the latest.
    pub until: String,
}

impl UnitClaim {
    /// Times are milliseconds since 1970.
    pub fn new(cluster: &str, since_ms: i64, start_ms: Option<i64>, until_ms: i64) -> Self {
        let at = |ms: i64| {
            let at = jiff::Timestamp::from_millisecond(ms).unwrap_or_default();
            at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
        };
        Self {
            cluster: cluster.to_owned(),
            since: at(since_ms),
            start: start_ms.map(at),
            until: at(until_ms),
        }
    }
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct PodState {
    #[serde(default)]
    pub running: i64,
    #[serde(default)]
    pub pending: i64,
}
