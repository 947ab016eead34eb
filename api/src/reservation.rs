//! Reservation (`fleet.dev/v1alpha1`): a request to one member to reserve places for all components of one
//! binding.
//!
//! On the hub it lives in the cluster's namespace: the controller writes the spec, that cluster's agent
//! the status. In the member the agent keeps its own copy in `fleet-system`, written before it answers.

use std::collections::{BTreeMap, BTreeSet};

use kube::CustomResource;
#[cfg(feature = "schemas")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{binding::Component, cell_places::CellGroup, volcano::NetworkTopology};

#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[cfg_attr(not(feature = "schemas"), kube(schema = "disabled"))]
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
    /// The epoch that the binding gets if it is bound by this reservation.
    pub epoch: i64,
    pub components: Vec<Component>,
    /// Cells of a virtual cluster: the pods get exactly these places. For jobs whose pods start one by one,
    /// the list may change while the job runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<CellGroup>,
    /// Components that take no cells beside others that do. They get places outside of cell nodes if there are any,
    /// else on the nodes of the job's cells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without_cells: Vec<String>,
    /// Of a batch Job on cells: how many of its pods must succeed, by component. A pod that follows others takes the place
    /// of one that has ended. A place is free for other jobs once no further pod can need it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub completions: BTreeMap<String, i64>,
    /// For a reservation without a binding: nodes that are cells of virtual clusters. Only pods with places
    /// in `cells` are bound to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cell_nodes: Vec<String>,
    /// How close together the places must be in the member's network (HyperNodes).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_topology: Option<NetworkTopology>,
    /// Seconds after which the reservation expires if the job's Work has not arrived.
    pub ttl_seconds: i64,
    /// Term of the leader that made the request. A member refuses a term older than the newest it has seen.
    /// Absent: not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<i64>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct BindingReference {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReservationStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<ReservationPhase>,
    /// Component to the node of each of its replicas, by index.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, Vec<String>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<ComponentRefusal>,
    /// Nodes that nobody can use now, of `cellNodes` or of refused places in `cells`: not ready, cordoned,
    /// missing, or with leaf cells that another reservation holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bad_nodes: Vec<String>,
    /// If places in `cells` are refused: component to the cell nodes that do not take its pods because of what these
    /// pods ask for: their labels or taints exclude the pods, or they have too little free. Other jobs may use these nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub excluded_nodes: BTreeMap<String, Vec<String>>,
    /// Nodes of `cellNodes` that the member does not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_nodes: Vec<String>,
    /// Nodes of `badNodes` that are in `cellNodes` and that the member's administrator does not let the hub
    /// keep for cells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_permitted_nodes: Vec<String>,
    /// For reservations with `cells`: component to the indices of pods that have ended.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ended: BTreeMap<String, Vec<i64>>,
    /// Preempted groups of `cells` whose pods are gone, with the time of their preemption (`atMs`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub vacated: BTreeMap<String, i64>,
    /// A reader keeps its beginning only, whatever a member writes.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::conditions::read_cut"
    )]
    #[cfg_attr(feature = "schemas", schemars(length(max = 32768)))]
    pub message: Option<String>,
    /// The first capacity report (`reportSequence` in the Cluster's status) that includes this reservation.
    /// From then on the hub no longer subtracts it itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_sequence: Option<i64>,
    /// RFC 3339. The places are released at this time unless the job's Work has arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

impl ReservationStatus {
    /// Component to the indices of pods that have ended: a member may list any number of them in any order, and each
    /// pod is looked up.
    pub fn ended_pods(&self) -> BTreeMap<String, BTreeSet<i64>> {
        let listed = self.ended.iter();
        listed.map(|(component, indices)| (component.clone(), indices.iter().copied().collect())).collect()
    }
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub enum ReservationPhase {
    Reserved,
    Refused,
    Expired,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub struct ComponentRefusal {
    pub component: String,
    pub wanted: i64,
    pub fit: i64,
    /// Resources that are short, each with amounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub short: Vec<String>,
    /// Number of nodes that were considered.
    #[serde(default)]
    pub nodes: i64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::MAX_MESSAGE;

    #[test]
    fn of_a_members_message_the_beginning_is_kept() {
        let read = |message: serde_json::Value| -> Option<String> {
            let status = serde_json::json!({"phase": "Refused", "message": message});
            serde_json::from_value::<ReservationStatus>(status).unwrap().message
        };
        let kept = read("no room; ".repeat(100_000).into()).unwrap();
        assert!(kept.len() <= MAX_MESSAGE && kept.starts_with("no room; no room; "), "{}", kept.len());
        assert_eq!(read("no room".into()).as_deref(), Some("no room"));
        assert_eq!(read(serde_json::Value::Null), None);
    }
}
