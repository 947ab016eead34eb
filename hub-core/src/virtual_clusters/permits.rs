//! Conditions about nodes that members do not let the hub keep for cells, or do not have.

use std::collections::{BTreeMap, BTreeSet};

use fleet_api::{cell_places::CELL_NODES_PREFIX, cells::read::AbsentNodes, reservation::ReservationStatus};
use fleet_cells::NodeName;

use crate::{schedule::cluster_of, world::World};

/// Most nodes that the condition names.
const NAMED_NODES: usize = 10;

/// Status and message of the condition `NodesPermitted`; `None` if no node was ever refused.
pub(super) fn nodes_permitted(world: &World, was_set: bool) -> Option<(&'static str, String)> {
    let refused = answered(world, |status| &status.not_permitted_nodes);
    if refused.is_empty() {
        let message = "the members let the hub keep all nodes that are cells".to_string();
        return was_set.then_some(("True", message));
    }
    let mut names: Vec<String> = refused.iter().map(ToString::to_string).collect();
    let more = names.len().saturating_sub(NAMED_NODES);
    names.truncate(NAMED_NODES);
    let mut message = format!(
        "cells on these nodes are bad because their member does not let the hub keep them (--cell-node-selector, \
         --max-cell-nodes): {}",
        names.join(", ")
    );
    if more > 0 {
        message.push_str(&format!(" and {more} more"));
    }
    Some(("False", message))
}

/// The nodes of a configuration that their member does not have, in a sentence.
pub(super) fn absent(world: &World, nodes: &[NodeName]) -> Option<String> {
    let mut unknown: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let answered = answered(world, |status| &status.unknown_nodes);
    if answered.is_empty() {
        return None;
    }
    // Where no member is named, every member is asked.
    let named: BTreeSet<&NodeName> = nodes.iter().collect();
    for node in answered.into_iter().filter(|node| named.contains(node)) {
        unknown.entry(node.cluster).or_default().push(node.node);
    }
    let told = unknown.into_iter().filter_map(|(cluster, names)| {
        let cluster = world.clusters.get(&cluster)?;
        Some(AbsentNodes::of(cluster, names, nodes).to_string())
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| format!("bad, because their member has no such node: {}", told.join("; ")))
}

/// Nodes of the members' answers.
fn answered(world: &World, list: impl Fn(&ReservationStatus) -> &Vec<String>) -> BTreeSet<NodeName> {
    let of_nobody = (String::new(), String::new());
    let mut nodes = BTreeSet::new();
    for (key, reservation) in world.reservations_of(&of_nobody) {
        let is_standing =
            key.1.starts_with(CELL_NODES_PREFIX) && reservation.metadata.deletion_timestamp.is_none();
        let Some(status) = reservation.status.as_ref().filter(|_| is_standing) else { continue };
        let cluster = cluster_of(&key.0);
        nodes.extend(list(status).iter().map(|node| NodeName::new(cluster, node)));
    }
    nodes
}
