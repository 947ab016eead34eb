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
    /// Pods of each component at a time.
    pods: BTreeMap<String, usize>,
    /// By component, how many pods must succeed, where pods follow one another.
    completions: BTreeMap<String, i64>,
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
    /// Its pod has ended and no other follows: the hub may give its cells to others.
    pub over: bool,
    /// The bound pod that uses the place; while there is one, the place itself is not counted.
    pub occupant: Option<PodKey>,
}

impl Hold {
    /// `nodes`: component to the node of each of its replicas, by index. An invalid quantity in the spec is
    /// ignored; such a spec was refused on arrival.
    pub fn new(name: &str, spec: &ReservationSpec, nodes: &BTreeMap<String, Vec<String>>) -> Self {
        let (mut places, mut pods) = (Vec::new(), BTreeMap::new());
        for component in &spec.components {
            pods.insert(component.name.clone(), usize::try_from(component.replicas).unwrap_or_default());
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
                over: false,
                occupant: None,
            }));
        }
        let completions = spec.completions.clone();
        let mut hold =
            Self { name: name.to_owned(), places, of_cells: !spec.cells.is_empty(), pods, completions };
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
                if self.of_cells && !self.is_follower(component, index) {
                    return None;
                }
                let named = position(&|place| place.component == component && Some(place.index) == index);
                let open = |place: &Place| free(place) && !place.over;
                if named.is_some() && node.is_none() { None } else { position(&open) }
            })
    }

    /// For how many pods at a time the hub reserved.
    pub(super) fn size(&self) -> usize {
        self.pods.values().fold(0, |sum, pods| sum.saturating_add(*pods))
    }

    /// Whether a pod has no place of its own, but takes that of one that has ended.
    pub(super) fn is_follower(&self, component: &str, index: Option<usize>) -> bool {
        index.is_none_or(|index| self.pods.get(component).is_some_and(|pods| index >= *pods))
    }

    /// How many places of a component no pod needs any more after so many successes; `None`: each whose pod has ended.
    pub(super) fn places_over(&self, component: &str, succeeded: usize) -> Option<usize> {
        let completions = usize::try_from(*self.completions.get(component)?).unwrap_or_default();
        let pods = self.pods.get(component).copied().unwrap_or_default();
        Some(pods.saturating_sub(completions.saturating_sub(succeeded)))
    }

    /// The component of a pod's role: controllers differ in upper and lower case, and some set no role.
    pub fn component_of<'a>(&'a self, role: &'a str) -> &'a str {
        let mut known = self.pods.iter().filter(|(_, pods)| **pods > 0).map(|(name, _)| name);
        if let Some(name) = known.clone().find(|name| name.eq_ignore_ascii_case(role)) {
            return name;
        }
        match (known.next(), known.next()) {
            (Some(only), None) if role.is_empty() => only,
            _ => role,
        }
    }
}
