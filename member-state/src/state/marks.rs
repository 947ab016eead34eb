//! Annotations of pods on cells: the numbers of their devices and the placement of their group.

use std::{collections::BTreeMap, sync::Arc};

use fleet_api::{
    ReservationSpec,
    cell_places::{CellGroup, CellPlace},
    mutation::{self, Mutation},
};
use fleet_cells::{GroupRequest, Placement, PodBindInfo, PodPlacement};

use super::hold::{Hold, Place};

/// HiveD's annotation on a pod: the numbers of its devices, separated by commas.
pub const ISOLATION_ANNOTATION: &str = "hivedscheduler.microsoft.com/pod-leaf-cell-isolation";
/// HiveD's annotation on a pod: the placement of its whole group.
pub const BIND_INFO_ANNOTATION: &str = "hivedscheduler.microsoft.com/pod-bind-info";
/// The placement of a larger group is only in the reservation: an API server accepts 256 KiB of annotations.
const BIND_INFO_MAX: usize = 128 * 1024;

/// Sets the leaf cells of each place of a hold and the annotations of its pod.
pub(super) fn mark(hold: &mut Hold, spec: &ReservationSpec) {
    for group in &spec.cells {
        let placement = placement(group);
        let request: Option<GroupRequest> = serde_json::from_value(group.request.clone()).ok();
        for (number, given) in group.places.iter().enumerate() {
            let own = |place: &&mut Place| {
                place.component == given.component && i64::try_from(place.index) == Ok(given.index)
            };
            let Some(place) = hold.places.iter_mut().find(own) else { continue };
            place.leaf_cells.clone_from(&given.leaf_cells);
            place.leaving = group.preempted.is_some();
            let number = if mutation::is_on(Mutation::LeafCellsOfFirst) { 0 } else { number };
            let info = request.as_ref().and_then(|request| PodBindInfo::of(request, &placement, number));
            place.marks = info.map(|info| Arc::new(annotations(&info)));
        }
    }
}

fn annotations(info: &PodBindInfo) -> BTreeMap<String, String> {
    let mut marks = BTreeMap::from([(ISOLATION_ANNOTATION.to_owned(), info.isolation())]);
    // JSON is valid YAML; strings and numbers always serialize.
    let text = serde_json::to_string(info).unwrap_or_default();
    if text.len() <= BIND_INFO_MAX {
        marks.insert(BIND_INFO_ANNOTATION.to_owned(), text);
    }
    marks
}

fn placement(group: &CellGroup) -> Placement {
    let pod = |place: &CellPlace| PodPlacement {
        node: place.node.clone(),
        leaf_cells: place.leaf_cells.clone(),
        preassigned_cell_type: place.cell_type.clone(),
    };
    Placement {
        cluster: String::new(),
        cell_chain: group.cell_chain.clone(),
        leaf_cell_type: group.leaf_cell_type.clone(),
        pods: group.places.iter().map(pod).collect(),
    }
}
