//! Reservation (`fleet.dev/v1alpha1`): places for all components of one binding, asked of one member.
//!
//! On the hub it lives in the cluster's namespace: the controller writes the spec, that cluster's agent
//! the status. In the member the agent keeps its own copy in `fleet-system`, written before it answers.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{binding::Component, volcano::NetworkTopology};

#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[kube(
    group = "fleet.dev",
    version = "v1alpha1",
    kind = "Reservation",
    plural = "reservations",
    shortname = "rsv",
    namespaced,
    status = "ReservationStatus",
    derive = "Default",
    printcolumn = r#"{"name":"BINDING","type":"string","jsonPath":".spec.binding.name"}"#,
    printcolumn = r#"{"name":"EPOCH","type":"integer","jsonPath":".spec.epoch"}"#,
    printcolumn = r#"{"name":"PHASE","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"AGE","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"MESSAGE","type":"string","jsonPath":".status.message","priority":1}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ReservationSpec {
    pub binding: BindingReference,
    /// The epoch the binding will have if this reservation wins.
    pub epoch: i64,
    pub components: Vec<Component>,
    /// How close together the places must be in the member's network (HyperNodes).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_topology: Option<NetworkTopology>,
    /// Seconds the hold lives without the job's Work arriving.
    pub ttl_seconds: i64,
    /// Term of the leader that asks. A member refuses an older term than the newest it has seen; absent: not
    /// checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<i64>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
pub struct BindingReference {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReservationStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<ReservationPhase>,
    /// Component to the node of each of its replicas, by index.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, Vec<String>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<ComponentRefusal>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The first capacity report (`reportSequence` in the Cluster's status) that counts this hold, so
    /// that the hub knows when to stop counting it itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_sequence: Option<i64>,
    /// RFC 3339; the places are given back then, unless the job's Work has arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum ReservationPhase {
    Reserved,
    Refused,
    Expired,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
pub struct ComponentRefusal {
    pub component: String,
    pub wanted: i64,
    pub fit: i64,
    /// Resources short, each with amounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub short: Vec<String>,
    /// Nodes looked at.
    #[serde(default)]
    pub nodes: i64,
}
