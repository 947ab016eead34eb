//! Reservation (`fleet.dev/v1alpha1`): places for all components of one binding, asked of one member.
//!
//! On the hub it lives in the cluster's namespace: the controller writes the spec, that cluster's agent
//! the status. In the member the agent keeps its own copy in `fleet-system`, written before it answers.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{binding::Component, cell_places::CellGroup, volcano::NetworkTopology};

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
    /// Cells of a virtual cluster: the pods have these places and no others. May grow and shrink while the job runs,
    /// when its pods start one by one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<CellGroup>,
    /// Of a reservation that belongs to no binding: nodes that are cells of virtual clusters. Only pods with places by
    /// `cells` are bound to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cell_nodes: Vec<String>,
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
    /// Of nodes in `cellNodes`, or of places by `cells` that were refused: those that cannot be used, because they are
    /// not ready, cordoned, not there, or full.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bad_nodes: Vec<String>,
    /// Of nodes in `cellNodes`: those that the member does not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_nodes: Vec<String>,
    /// Of `badNodes` with `cellNodes`: those that the member's administrator does not let the hub keep for cells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_permitted_nodes: Vec<String>,
    /// With places by `cells`: component to the indices of pods that have ended.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ended: BTreeMap<String, Vec<i64>>,
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
