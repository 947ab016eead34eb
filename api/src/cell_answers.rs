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
    let ended = reservation.status.as_ref().map(ReservationStatus::ended_pods).unwrap_or_default();
    let ended =
        |place: &CellPlace| ended.get(&place.component).is_some_and(|indices| indices.contains(&place.index));
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// 20,000 places looked up in a list of 200,000 indices are 4 x 10^9 steps.
    #[test]
    fn a_member_that_lists_any_number_of_ended_pods_keeps_nobody_waiting() {
        let place = |index: i64| CellPlace {
            component: "w".to_owned(),
            index,
            node: "n".to_owned(),
            ..CellPlace::default()
        };
        let mut reservation = Reservation::default();
        reservation.spec.cells =
            vec![CellGroup { places: (0..20_000).map(place).collect(), ..CellGroup::default() }];
        let ended = BTreeMap::from([("w".to_owned(), (10_000..210_000).rev().chain([10_000]).collect())]);
        reservation.status = Some(ReservationStatus { ended, ..ReservationStatus::default() });
        let groups = without_cells(&reservation);
        let kept = |place: &CellPlace| (!place.node.is_empty()).then_some(place.index);
        let kept: Vec<i64> = groups[0].places.iter().filter_map(kept).collect();
        assert_eq!(kept, (0..10_000).collect::<Vec<i64>>());
    }
}
