//! Reservations with named places: cells of virtual clusters, and nodes that are kept for cells.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fleet_api::{ReservationSpec, ReservationStatus, convert, reservation::ReservationPhase};
use fleet_placement::{Gang, GangComponent};
use fleet_resources::Resources;
use fleet_scheduler::PodSpec;

use crate::reservations::entry::{CopyState, ReservationEntry, ReservationState, refused};
use fleet_member_state::{Hold, MemberState, UnusableNodes, cells};

/// The answer to a reservation of cell nodes: which of them cannot be used now.
pub(super) fn standing(spec: &ReservationSpec, state: &MemberState) -> ReservationStatus {
    let UnusableNodes { bad, unknown, not_permitted } = state.unusable_cell_nodes(&spec.cell_nodes);
    let usable = spec.cell_nodes.len() - bad.len() - unknown.len();
    let mut message = format!("{usable} of {} nodes usable", spec.cell_nodes.len());
    if !not_permitted.is_empty() {
        let (number, rule) = (not_permitted.len(), state.cell_node_permits());
        message.push_str(&format!("; {number} may not be kept for cells; allowed in this member: {rule}"));
    }
    ReservationStatus {
        phase: Some(ReservationPhase::Reserved),
        message: Some(message),
        bad_nodes: bad,
        unknown_nodes: unknown,
        not_permitted_nodes: not_permitted,
        ..ReservationStatus::default()
    }
}

pub(super) fn refusal(why: cells::NoCells) -> ReservationStatus {
    ReservationStatus {
        bad_nodes: why.bad.into_iter().collect(),
        excluded_nodes: listed(why.excluded),
        ..refused(why.message, Vec::new())
    }
}

fn listed(excluded: BTreeMap<String, BTreeSet<String>>) -> BTreeMap<String, Vec<String>> {
    excluded.into_iter().map(|(component, nodes)| (component, nodes.into_iter().collect())).collect()
}

pub(super) fn held_message(gang: &Gang, nodes: &BTreeMap<String, Vec<String>>) -> String {
    let given = nodes.values().flatten().filter(|node| !node.is_empty()).count();
    format!("cells held for {given} of {} pods", gang.pods())
}

/// Places for components that take no cells: outside of the nodes that are cells if there is room, else beside the job's
/// own cells.
///
/// # Errors
/// What of them finds no room.
pub(super) fn aside(
    spec: &ReservationSpec,
    gang: &Gang,
    places: &mut BTreeMap<String, Vec<String>>,
    state: &mut MemberState,
) -> Result<(), String> {
    let is_aside = |component: &&GangComponent| spec.without_cells.contains(&component.name);
    let asked: Vec<(String, Arc<PodSpec>, i64)> = gang
        .components
        .iter()
        .filter(is_aside)
        .map(|component| {
            let shape = PodSpec { shape: component.shape.clone(), extras: None };
            (component.name.clone(), Arc::new(shape), component.replicas)
        })
        .collect();
    if asked.is_empty() {
        return Ok(());
    }
    let none = match state.cluster.find_places(&asked, None) {
        Ok(found) => {
            places.extend(found);
            return Ok(());
        }
        Err(none) => none,
    };
    let mut free: BTreeMap<String, Resources> = BTreeMap::new();
    for component in &gang.components {
        for name in places.get(&component.name).into_iter().flatten() {
            let Some(node) = state.nodes().get(name) else { continue };
            free.entry(name.clone()).or_insert_with(|| node.free()).sub(&component.shape.requests);
        }
    }
    for component in gang.components.iter().filter(is_aside) {
        let slots = places.entry(component.name.clone()).or_default();
        slots.clear();
        for _ in 0..component.replicas {
            let fits = |(name, free): &(&String, &mut Resources)| {
                let admits = state.nodes().get(name).is_some_and(|node| node.admits(&component.shape));
                admits && component.shape.requests.fits_in(free)
            };
            let Some((name, free)) = free.iter_mut().find(fits) else {
                let message = format!("component {} takes no cells: {}", component.name, none.sentence());
                return Err(message);
            };
            free.sub(&component.shape.requests);
            slots.push(name.clone());
        }
    }
    Ok(())
}

/// The hub has changed the cells of a running job: more cells, or fewer after pods have ended. Cells that
/// cannot be provided are not held, and the answer names them; held cells stay. A pod that is still on cells which the
/// change takes from it leaves them first: until it is gone they are nobody else's. Returns whether the answer changed.
pub(super) fn change(
    entry: &mut ReservationEntry,
    name: &str,
    spec: &ReservationSpec,
    state: &mut MemberState,
) -> bool {
    let ReservationState::Held(status) = &mut entry.verdict else { return false };
    let Ok(gang) = convert::gang(&spec.components) else { return false };
    let there = state.leave_cells(name, &entry.spec, spec);
    let places = match there.is_empty() {
        true => cells::places(spec, &gang, name, state),
        false => {
            let message =
                format!("pods that are still on cells which it takes from them: {}", there.join(", "));
            Err(cells::NoCells::because(message))
        }
    };
    match places {
        Ok(mut nodes) => {
            // Pods without cells stay where they are.
            let kept = spec
                .without_cells
                .iter()
                .filter_map(|name| Some((name.clone(), status.nodes.get(name)?.clone())));
            nodes.extend(kept);
            status.message = Some(held_message(&gang, &nodes));
            status.nodes = nodes;
            status.bad_nodes.clear();
            status.excluded_nodes.clear();
            entry.spec = std::sync::Arc::new(spec.clone());
            state.add_hold(Hold::new(name, spec, &status.nodes));
            status.ended = state.close_places(name, &status.ended);
            status.vacated = state.vacated_of(name, spec);
            // The copy contains the spec, so it is written again.
            entry.copy = CopyState::Maybe;
            true
        }
        Err(why) => {
            let message = Some(format!("{REFUSED_CHANGE}{}", why.message));
            let (bad_nodes, excluded_nodes) = (why.bad.into_iter().collect(), listed(why.excluded));
            let changed = status.message != message
                || status.bad_nodes != bad_nodes
                || status.excluded_nodes != excluded_nodes;
            status.message = message;
            status.bad_nodes = bad_nodes;
            status.excluded_nodes = excluded_nodes;
            changed
        }
    }
}

/// Begins the message about a change that is not held.
const REFUSED_CHANGE: &str = "the change was refused: ";

/// The hub asks for what is held: no earlier change of it is open. Returns whether the answer changed.
pub(super) fn settle(entry: &mut ReservationEntry, name: &str, state: &mut MemberState) -> bool {
    state.leave_cells(name, &entry.spec, &entry.spec);
    let ReservationState::Held(status) = &mut entry.verdict else { return false };
    let Ok(gang) = convert::gang(&entry.spec.components) else { return false };
    if !status.message.as_ref().is_some_and(|message| message.starts_with(REFUSED_CHANGE)) {
        return false;
    }
    status.message = Some(held_message(&gang, &status.nodes));
    status.bad_nodes.clear();
    status.excluded_nodes.clear();
    true
}

/// Updates the answer to the state of nodes and pods; returns whether it changed.
pub(super) fn refresh(entry: &mut ReservationEntry, name: &str, state: &mut MemberState) -> bool {
    let ReservationState::Held(status) = &mut entry.verdict else { return false };
    let before = status.clone();
    if entry.spec.cell_nodes.is_empty() {
        status.ended = state.close_places(name, &status.ended);
        status.vacated = state.vacated_of(name, &entry.spec);
    } else {
        *status = standing(&entry.spec, state);
    }
    *status != before
}

#[cfg(test)]
mod tests;
