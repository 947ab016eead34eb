//! The condition about nodes that members do not let the hub keep for cells.

use fleet_api::cell_places::CELL_NODES_PREFIX;

use crate::{schedule::cluster_of, world::World};

/// Most nodes that the condition names.
const NAMED_NODES: usize = 10;

/// Status and message of the condition `NodesPermitted`; `None` if no node was ever refused.
pub(super) fn nodes_permitted(world: &World, was_set: bool) -> Option<(&'static str, String)> {
    let of_nobody = (String::new(), String::new());
    let mut refused: Vec<String> = Vec::new();
    for (key, reservation) in world.reservations_of(&of_nobody) {
        let is_standing =
            key.1.starts_with(CELL_NODES_PREFIX) && reservation.metadata.deletion_timestamp.is_none();
        let Some(status) = reservation.status.as_ref().filter(|_| is_standing) else { continue };
        let cluster = cluster_of(&key.0);
        refused.extend(status.not_permitted_nodes.iter().map(|node| format!("{cluster}/{node}")));
    }
    refused.sort();
    refused.dedup();
    if refused.is_empty() {
        let message = "the members let the hub keep all nodes that are cells".to_string();
        return was_set.then_some(("True", message));
    }
    let more = refused.len().saturating_sub(NAMED_NODES);
    let mut message = format!(
        "cells on these nodes are bad because their member does not let the hub keep them (--cell-node-selector, \
         --max-cell-nodes): {}",
        refused[..refused.len() - more].join(", ")
    );
    if more > 0 {
        message.push_str(&format!(" and {more} more"));
    }
    Some(("False", message))
}
