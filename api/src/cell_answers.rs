//! What the status of a reservation says of its cells.

use std::collections::BTreeSet;

use crate::{
    cell_places::{CellGroup, CellPlace},
    reservation::{Reservation, ReservationPhase, ReservationStatus},
};

/// The cells in the reservation of a job that has none any more: without those of ended pods, and of pods for which the
/// member could not provide them. Without any group it would be a reservation of arbitrary nodes.
pub fn without_cells(reservation: &Reservation) -> Vec<CellGroup> {
    let (ungiven, _) = ungiven(reservation);
    let ended = |place: &CellPlace| {
        let status = reservation.status.as_ref();
        let indices = status.and_then(|status| status.ended.get(&place.component));
        indices.is_some_and(|indices| indices.contains(&place.index))
    };
    let mut groups = reservation.spec.cells.clone();
    for place in groups.iter_mut().flat_map(|group| &mut group.places) {
        if ended(place) || ungiven.contains(&(place.component.clone(), place.index)) {
            let (component, index) = (place.component.clone(), place.index);
            *place = CellPlace { component, index, ..CellPlace::default() };
        }
    }
    groups
}

/// Places of a reservation that the member cannot provide, and the nodes that nobody can use. Where it names neither such
/// nodes nor excluded ones, the places are only late.
pub fn ungiven(reservation: &Reservation) -> (BTreeSet<(String, i64)>, &[String]) {
    let is_at_fault =
        |status: &&ReservationStatus| !status.bad_nodes.is_empty() || !status.excluded_nodes.is_empty();
    let Some(status) = reservation.status.as_ref().filter(is_at_fault) else {
        return (BTreeSet::new(), &[]);
    };
    if status.phase != Some(ReservationPhase::Reserved) {
        return (BTreeSet::new(), &status.bad_nodes);
    }
    let given = |component: &str, index: i64| {
        let nodes = status.nodes.get(component);
        let node = usize::try_from(index).ok().and_then(|index| nodes?.get(index));
        node.is_some_and(|node| !node.is_empty())
    };
    let places = reservation.spec.cells.iter().flat_map(|group: &CellGroup| &group.places);
    let missing = places
        .filter(|place| !place.node.is_empty() && !given(&place.component, place.index))
        .map(|place| (place.component.clone(), place.index));
    (missing.collect(), &status.bad_nodes)
}
