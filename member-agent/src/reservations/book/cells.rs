//! Reservations that name their places: cells of virtual clusters, and the nodes that are kept for them.

use std::collections::BTreeMap;

use fleet_api::{ReservationSpec, ReservationStatus, convert, reservation::ReservationPhase};
use fleet_placement::Gang;

use super::{CopyState, Entry, Verdict, refused};
use crate::state::{Hold, MemberState, cells};

/// The answer to a standing reservation: which of its nodes are of no use now.
pub(super) fn standing(spec: &ReservationSpec, state: &MemberState) -> ReservationStatus {
    let (bad_nodes, unknown_nodes) = state.bad_cell_nodes(&spec.cell_nodes);
    let usable = spec.cell_nodes.len() - bad_nodes.len() - unknown_nodes.len();
    ReservationStatus {
        phase: Some(ReservationPhase::Reserved),
        message: Some(format!("{usable} of {} nodes usable", spec.cell_nodes.len())),
        bad_nodes,
        unknown_nodes,
        ..ReservationStatus::default()
    }
}

pub(super) fn refusal(why: cells::NoCells) -> ReservationStatus {
    ReservationStatus { bad_nodes: why.bad.into_iter().collect(), ..refused(why.message, Vec::new()) }
}

pub(super) fn held_message(gang: &Gang, nodes: &BTreeMap<String, Vec<String>>) -> String {
    let given = nodes.values().flatten().filter(|node| !node.is_empty()).count();
    format!("cells held for {given} of {} pods", gang.pods())
}

/// The hub gives a job that runs more cells, or takes back those of pods that have ended. What cannot be given is not
/// held, and the answer says so; what is held stays.
pub(super) fn change(entry: &mut Entry, name: &str, spec: &ReservationSpec, state: &mut MemberState) {
    let Verdict::Held(status) = &mut entry.verdict else { return };
    let Ok(gang) = convert::gang(&spec.components) else { return };
    match cells::places(spec, &gang, name, state) {
        Ok(nodes) => {
            status.message = Some(held_message(&gang, &nodes));
            status.nodes = nodes;
            status.bad_nodes.clear();
            entry.spec = std::sync::Arc::new(spec.clone());
            state.add_hold(Hold::new(name, spec, &status.nodes));
            // The copy carries the spec: it is written anew.
            entry.copy = CopyState::Maybe;
        }
        Err(why) => {
            status.message = Some(format!("the change was refused: {}", why.message));
            status.bad_nodes = why.bad.into_iter().collect();
        }
    }
}

/// Brings the answer in line with nodes and pods; whether it changed.
pub(super) fn refresh(entry: &mut Entry, name: &str, state: &MemberState) -> bool {
    let Verdict::Held(status) = &mut entry.verdict else { return false };
    let before = status.clone();
    if entry.spec.cell_nodes.is_empty() {
        status.ended = state.ended_of(name);
    } else {
        *status = standing(&entry.spec, state);
    }
    *status != before
}
