//! Holds: places reserved for the pods of one binding and epoch.

use std::{collections::BTreeMap, sync::Arc};

use fleet_api::reservation::ReservationSpec;
use fleet_resources::Resources;

use super::PodKey;

#[derive(Clone, Debug)]
pub struct Hold {
    /// Name of the reservation.
    pub name: String,
    /// By component, then by index.
    pub places: Vec<Place>,
    /// Its places are cells of a virtual cluster: its pods run nowhere else.
    pub of_cells: bool,
}

/// Capacity for one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub component: String,
    pub index: usize,
    pub node: String,
    pub requests: Arc<Resources>,
    /// Numbers of the devices, if the place is on cells.
    pub leaf_cells: Vec<i32>,
    /// Annotations for the pod, if the place is on cells.
    pub marks: Option<Arc<BTreeMap<String, String>>>,
    /// Its pod must leave the cells: no other pod gets the place.
    pub leaving: bool,
    /// The bound pod that uses the place; while there is one, the place itself is not counted.
    pub occupant: Option<PodKey>,
}

impl Hold {
    /// `nodes`: component to the node of each of its replicas, by index. An invalid quantity in the spec is
    /// ignored; such a spec was refused on arrival.
    pub fn new(name: &str, spec: &ReservationSpec, nodes: &BTreeMap<String, Vec<String>>) -> Self {
        let mut places = Vec::new();
        for component in &spec.components {
            let requests = Arc::new(fleet_api::convert::resources(&component.request).unwrap_or_default());
            let nodes = nodes.get(&component.name).into_iter().flatten();
            // A pod without cells has no place yet.
            let nodes = nodes.enumerate().filter(|(_, node)| !node.is_empty());
            places.extend(nodes.map(|(index, node)| Place {
                component: component.name.clone(),
                index,
                node: node.clone(),
                requests: requests.clone(),
                leaf_cells: Vec::new(),
                marks: None,
                leaving: false,
                occupant: None,
            }));
        }
        let mut hold = Self { name: name.to_owned(), places, of_cells: !spec.cells.is_empty() };
        super::marks::mark(&mut hold, spec);
        hold
    }

    /// Index of the pod's place: that of its own index, or else the first free one of its component (some
    /// controllers put no index in pod names). `node`: where another scheduler has bound the pod; a place
    /// there comes first.
    pub fn place_for(
        &self,
        pod: &PodKey,
        component: &str,
        index: Option<usize>,
        node: Option<&str>,
    ) -> Option<usize> {
        let position = |wanted: &dyn Fn(&Place) -> bool| self.places.iter().position(wanted);
        let component = self.component_of(component);
        let unused = |place: &Place| place.component == component && place.occupant.is_none();
        let there = |place: &Place| unused(place) && Some(&*place.node) == node;
        let free = |place: &Place| unused(place) && !place.leaving;
        position(&|place| place.occupant.as_ref() == Some(pod))
            .or_else(|| position(&|place| there(place) && Some(place.index) == index))
            .or_else(|| position(&there))
            .or_else(|| position(&|place| free(place) && Some(place.index) == index))
            .or_else(|| {
                // A pod without cells waits for its own: cells of another pod stay with that one until it is
                // gone.
                if self.of_cells && index.is_some() {
                    return None;
                }
                let named = position(&|place| place.component == component && Some(place.index) == index);
                if named.is_some() && node.is_none() { None } else { position(&free) }
            })
    }

    /// The component of a pod's role: controllers differ in upper and lower case, and some set no role.
    pub fn component_of<'a>(&'a self, role: &'a str) -> &'a str {
        let is_it = |place: &&Place| place.component.eq_ignore_ascii_case(role);
        if let Some(place) = self.places.iter().find(is_it) {
            return &place.component;
        }
        match self.places.first() {
            Some(first)
                if role.is_empty() && self.places.iter().all(|place| place.component == first.component) =>
            {
                &first.component
            }
            _ => role,
        }
    }
}
