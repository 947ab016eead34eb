//! Annotations of pods on cells: the numbers of their devices and the placement of their group.

use std::{collections::BTreeMap, sync::Arc};

use fleet_api::{
    ReservationSpec,
    cell_places::{CellGroup, CellPlace},
    mutation::{self, Mutation},
};
use fleet_cells::{GroupRequest, Placement, PodBindInfo, PodPlacement};

use super::hold::Hold;

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
        let infos = request.and_then(|request| Infos::of(&request, &placement));
        for (number, given) in group.places.iter().enumerate() {
            let at = hold.at(&given.component, given.index);
            let Some(place) = at.and_then(|at| hold.places.get_mut(at)) else { continue };
            place.leaf_cells.clone_from(&given.leaf_cells);
            place.leaving = group.preempted.is_some();
            let number = if mutation::is_on(Mutation::LeafCellsOfFirst) { 0 } else { number };
            let own = placement.pods.get(number);
            place.marks = own.and_then(|own| Some(infos.as_ref()?.annotations(own))).map(Arc::new);
        }
    }
}

/// The annotations of the pods of a group. That with the placement of the whole group is the same for all but for its
/// beginning, and is written once: each pod of a group of thousands would write thousands of places.
struct Infos {
    /// What follows on the pod's own part, as JSON.
    rest: String,
}

impl Infos {
    fn of(request: &GroupRequest, placement: &Placement) -> Option<Self> {
        let mut first = PodBindInfo::of(request, placement, 0)?;
        (first.node, first.leaf_cell_isolation) = (String::new(), Vec::new());
        let rest = json(&first).strip_prefix(&own_part("", &[])).map(str::to_owned)?;
        Some(Self { rest })
    }

    fn annotations(&self, own: &PodPlacement) -> BTreeMap<String, String> {
        let isolation = own.leaf_cells.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
        let mut marks = BTreeMap::from([(ISOLATION_ANNOTATION.to_owned(), isolation)]);
        // JSON is valid YAML.
        let own = own_part(&own.node, &own.leaf_cells);
        if own.len() + self.rest.len() <= BIND_INFO_MAX {
            marks.insert(BIND_INFO_ANNOTATION.to_owned(), own + &self.rest);
        }
        marks
    }
}

/// The beginning of a [`PodBindInfo`] as JSON.
fn own_part(node: &str, cells: &[i32]) -> String {
    format!("{{\"node\":{},\"leafCellIsolation\":{}", json(&node), json(&cells))
}

/// Strings, numbers and lists of them always serialize.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::testing::reservation;

    fn hold(pods: i64) -> (Hold, GroupRequest, Placement) {
        let place = |index: i64| CellPlace {
            component: "w".to_owned(),
            index,
            node: format!("n\"{index}"),
            leaf_cells: vec![1, 0],
            cell_type: "NODE".to_owned(),
        };
        let request = GroupRequest::new("default/j", "vc", 1, pods, 2);
        let group = CellGroup {
            request: serde_json::to_value(&request).expect("it serializes"),
            cell_chain: "chain".to_owned(),
            places: (0..pods).map(place).collect(),
            ..CellGroup::default()
        };
        let placement = placement(&group);
        let spec = ReservationSpec {
            cells: vec![group],
            ..reservation("r", "u", 1, &[&format!("w {pods} 2")]).spec
        };
        let nodes: Vec<String> = (0..pods).map(|index| format!("n\"{index}")).collect();
        (Hold::new("r", &spec, &BTreeMap::from([("w".to_owned(), nodes)])), request, placement)
    }

    #[test]
    fn each_pod_has_the_placement_of_its_group() {
        let (hold, request, placement) = hold(3);
        for (number, place) in hold.places.iter().enumerate() {
            let info = PodBindInfo::of(&request, &placement, number).expect("a pod");
            let marks = place.marks.as_ref().expect("it is on cells");
            assert_eq!(marks[ISOLATION_ANNOTATION], "1,0");
            assert_eq!(marks[BIND_INFO_ANNOTATION], serde_json::to_string(&info).expect("it serializes"));
        }
    }

    /// With the places of the whole group written for each pod, they have a terabyte.
    #[test]
    fn a_large_group_is_written_once() {
        let (hold, ..) = hold(100_000);
        let marks = hold.places[99_999].marks.as_ref().expect("it is on cells");
        assert_eq!((marks[ISOLATION_ANNOTATION].as_str(), marks.len()), ("1,0", 1));
    }
}
