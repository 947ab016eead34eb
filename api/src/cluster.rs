//! Cluster (`fleet.dev/v1alpha1`, cluster-scoped): one member of the fleet.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[kube(
    group = "fleet.dev",
    version = "v1alpha1",
    kind = "Cluster",
    plural = "clusters",
    status = "ClusterStatus",
    derive = "Default",
    printcolumn = r#"{"name":"VERSION","type":"string","jsonPath":".status.kubernetesVersion"}"#,
    printcolumn = r#"{"name":"MODE","type":"string","jsonPath":".spec.syncMode"}"#,
    printcolumn = r#"{"name":"READY","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"AGE","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"ZONES","type":"string","jsonPath":".spec.zones","priority":1}"#,
    printcolumn = r#"{"name":"REGION","type":"string","jsonPath":".spec.region","priority":1}"#,
    printcolumn = r#"{"name":"PROVIDER","type":"string","jsonPath":".spec.provider","priority":1}"#,
    printcolumn = r#"{"name":"API-ENDPOINT","type":"string","jsonPath":".spec.apiEndpoint","priority":1}"#,
    printcolumn = r#"{"name":"PROXY-URL","type":"string","jsonPath":".spec.proxyURL","priority":1}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `Pull`: the member's agent does the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync_mode: Option<String>,
    /// Where the member's API server can be reached from the hub's users, for `kubectl fleet get -m`. An
    /// administrator writes it: the member's token is sent there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_endpoint: Option<String>,
    /// Secret with `token` and `caBundle`: allowed is `member-access` in the cluster's own hub namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretReference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub impersonator_secret_ref: Option<SecretReference>,
    #[serde(default, rename = "insecureSkipTLSVerification", skip_serializing_if = "Option::is_none")]
    pub insecure_skip_tls_verification: Option<bool>,
    #[serde(default, rename = "proxyURL", skip_serializing_if = "Option::is_none")]
    pub proxy_url: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub proxy_header: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<ClusterTaint>,
    /// Grades of nodes for estimates; kept for Karmada's users, the node shapes in the status serve instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::any_object_list")]
    pub resource_models: Vec<serde_json::Value>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
pub struct SecretReference {
    pub namespace: String,
    pub name: String,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterTaint {
    pub key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// NoSchedule, NoExecute or NoSelect.
    pub effect: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_added: Option<String>,
}

/// Taint key that `fleet cordon` sets with effect NoSchedule.
pub const CORDON_TAINT: &str = "cluster.fleet.dev/unschedulable";
/// Taint key that `fleet drain` sets with effect NoExecute: its jobs are moved, one gang at a time. No
/// toleration stands against it.
pub const DRAIN_TAINT: &str = "cluster.fleet.dev/drain";
/// Taint key that `fleet unjoin --force` sets with effect NoExecute: an administrator says that nothing
/// runs there any more, and the controller finishes each of its jobs without waiting for the agent.
pub const GONE_TAINT: &str = "cluster.fleet.dev/gone";

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes_version: Option<String>,
    /// API resources the member serves, `group/version/Kind`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub api_enablements: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_summary: Option<NodeSummary>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_summary: Option<ResourceSummary>,
    /// Nodes grouped by equal labels, taints, allocatable and free amounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_shapes: Vec<NodeShape>,
    /// Rises with every report; a reservation answered with this number or a lower one is counted in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_sequence: Option<i64>,
    /// Whether the agent answers reservations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<bool>,
    /// What the agent says of address and place. Nobody acts on it before an administrator has confirmed it:
    /// `fleet join --confirm` copies it into the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposed: Option<Proposed>,
    /// The agent and what it does in the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentStatus>,
}

/// What is installed in a member.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// Version of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Schedulers' names whose pods it binds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scheduler_names: Vec<String>,
    /// Kinds whose pods it makes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub controllers: Vec<String>,
    /// Rights in the member that it needs and does not have, as `verb resource.group`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_rights: Vec<String>,
}

/// Fields of the spec, and labels, as a member's agent proposes them.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Proposed {
    /// Address of the member's API server, as its agent says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_endpoint: Option<String>,
    /// Cloud provider, as its agent says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Region, as its agent says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Zones, as its agent says them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    /// Labels for the Cluster, as its agent says them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeSummary {
    pub total_num: i64,
    pub ready_num: i64,
}

/// Amounts over all ready, schedulable nodes: resource to quantity.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
pub struct ResourceSummary {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::schema::written_quantities")]
    pub allocatable: BTreeMap<String, String>,
    /// Requests of pods bound to nodes and of reservations held.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::schema::written_quantities")]
    pub allocated: BTreeMap<String, String>,
    /// Requests of pods not bound yet.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::schema::written_quantities")]
    pub allocating: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeShape {
    pub count: i64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<ClusterTaint>,
    #[schemars(schema_with = "crate::schema::written_quantities")]
    pub allocatable: BTreeMap<String, String>,
    #[schemars(schema_with = "crate::schema::written_quantities")]
    pub free: BTreeMap<String, String>,
    /// Names of the nodes, where something runs on them: so that the hub knows which jobs stand side by side.
    /// May be fewer than `count`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
}
