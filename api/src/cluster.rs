//! Cluster (`fleet.dev/v1alpha1`, cluster-scoped): one member of the fleet.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
#[cfg(feature = "schemas")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[cfg_attr(not(feature = "schemas"), kube(schema = "disabled"))]
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
    /// Address of the member's API server for users of the hub (`kubectl fleet get -m`). Only an
    /// administrator writes it, because the member's token is sent there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_endpoint: Option<String>,
    /// Secret with `token` and `caBundle`; only `member-access` in the cluster's own hub namespace is
    /// allowed.
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
    /// Grades of nodes for estimates; kept for compatibility with Karmada. Fleet uses the node shapes of the
    /// status instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::any_object_list"))]
    pub resource_models: Vec<serde_json::Value>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct SecretReference {
    pub namespace: String,
    pub name: String,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
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
/// Taint key that `fleet drain` sets with effect NoExecute: the cluster's jobs are moved, one gang at a time.
/// It cannot be tolerated.
pub const DRAIN_TAINT: &str = "cluster.fleet.dev/drain";
/// Taint key that `fleet unjoin --force` sets with effect NoExecute: an administrator confirms that nothing
/// runs there any more, or accepts that something may. The controller ends each job of the cluster without waiting
/// for the agent.
pub const GONE_TAINT: &str = "cluster.fleet.dev/gone";

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
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
    /// Nodes grouped by equal labels, taints, allocatable and free resources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_shapes: Vec<NodeShape>,
    /// Nodes kept for cells of virtual clusters, grouped as in `nodeShapes` and named. No other job gets places on
    /// them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cell_node_shapes: Vec<NodeShape>,
    /// Names of nodes on which nothing runs, so that the hub knows which member has them. May be fewer than all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idle_nodes: Vec<String>,
    /// Nodes that take no pods. May be fewer than all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unusable_nodes: Vec<UnusableNode>,
    /// Rises with every report. A reservation answered with this number or a lower one is included in the
    /// report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_sequence: Option<i64>,
    /// Whether the agent answers reservations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<bool>,
    /// Address and location as the agent proposes them. They take effect only when an administrator confirms
    /// them: `fleet join --confirm` copies them into the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposed: Option<Proposed>,
    /// The agent and its role in the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentStatus>,
}

/// What is installed in a member.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// Version of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Scheduler names whose pods it binds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scheduler_names: Vec<String>,
    /// Kinds of jobs whose pods it creates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub controllers: Vec<String>,
    /// Rights in the member that it needs and lacks, as `verb resource.group`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_rights: Vec<String>,
}

/// Fields of the spec, and labels, proposed by a member's agent.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Proposed {
    /// Address of the member's API server, as its agent proposes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_endpoint: Option<String>,
    /// Cloud provider, as its agent proposes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Region, as its agent proposes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Zones, as its agent proposes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    /// Labels for the Cluster, as its agent proposes them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeSummary {
    pub total_num: i64,
    pub ready_num: i64,
}

/// Resources of all ready, schedulable nodes: resource to quantity.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct ResourceSummary {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::written_quantities"))]
    pub allocatable: BTreeMap<String, String>,
    /// Requests of pods bound to nodes and of reservations held.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::written_quantities"))]
    pub allocated: BTreeMap<String, String>,
    /// Requests of pods that are not bound yet.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::written_quantities"))]
    pub allocating: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeShape {
    pub count: i64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<ClusterTaint>,
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::written_quantities"))]
    pub allocatable: BTreeMap<String, String>,
    #[cfg_attr(feature = "schemas", schemars(schema_with = "crate::schema::written_quantities"))]
    pub free: BTreeMap<String, String>,
    /// Names of those nodes on which something runs, so that the hub knows which jobs share a node. May be
    /// fewer than `count`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// The HyperNode of the lowest tier that has these nodes; absent if none has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hyper_node: Option<String>,
}

/// Labels of nodes that name their rack, or else what is next above it.
const RACK_LABELS: [&str; 4] = [
    "topology.kubernetes.io/rack",
    "rack",
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/zone",
];

impl NodeShape {
    /// The HyperNode of these nodes, or the rack or zone in their labels; empty without any.
    pub fn domain(&self) -> &str {
        let rack = || RACK_LABELS.iter().find_map(|label| self.labels.get(*label));
        self.hyper_node.as_ref().or_else(rack).map_or("", String::as_str)
    }
}

/// Nodes of a report, and what they are for.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportedNodes {
    pub shape: NodeShape,
    pub of_cells: bool,
    /// Why they take no pods; empty if they do.
    pub unusable: String,
}

impl ClusterStatus {
    /// All nodes of the report.
    pub fn take_nodes(&mut self) -> Vec<ReportedNodes> {
        let nodes = |of_cells: bool| {
            move |shape: NodeShape| ReportedNodes { shape, of_cells, unusable: String::new() }
        };
        let shapes = std::mem::take(&mut self.node_shapes).into_iter().map(nodes(false));
        let of_cells = std::mem::take(&mut self.cell_node_shapes).into_iter().map(nodes(true));
        let unusable = std::mem::take(&mut self.unusable_nodes).into_iter().map(|node| {
            let allocatable = BTreeMap::from([("nvidia.com/gpu".to_owned(), node.gpus.max(0).to_string())]);
            let shape = NodeShape { count: 1, allocatable, nodes: vec![node.name], ..NodeShape::default() };
            ReportedNodes { shape, of_cells: false, unusable: node.reason }
        });
        shapes.chain(of_cells).chain(unusable).collect()
    }
}

/// A node that takes no pods.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct UnusableNode {
    pub name: String,
    /// NotReady or Cordoned.
    pub reason: String,
    /// Its GPUs.
    #[serde(default)]
    pub gpus: i64,
}
