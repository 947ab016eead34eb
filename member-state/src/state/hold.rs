//! Holds: places reserved for the pods of one binding and epoch.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fleet_api::reservation::ReservationSpec;
use fleet_resources::Resources;

use super::PodKey;

#[derive(Clone, Debug)]
pub struct Hold {
    /// Name of the reservation.
    pub name: String,
    /// By component, then by index. Who changes occupants uses [`Hold::occupy`] and [`Hold::vacate`].
    pub places: Vec<Place>,
    /// Its places are cells of a virtual cluster: its pods run nowhere else.
    pub of_cells: bool,
    /// Pods of each component at a time.
    pods: BTreeMap<String, usize>,
    /// By component, how many pods must succeed, where pods follow one another.
    completions: BTreeMap<String, i64>,
    /// Components with pods, by their names in lower case.
    names: BTreeMap<String, String>,
    index: Index,
}

/// Positions in the list of places: a job may have a hundred thousand of them, and each of its pods asks for its own again
/// and again.
#[derive(Clone, Debug, Default)]
struct Index {
    /// By component and index.
    named: BTreeMap<String, BTreeMap<usize, usize>>,
    by_pod: BTreeMap<PodKey, usize>,
    /// Places without a pod, by component.
    unused: BTreeMap<String, BTreeSet<usize>>,
    /// The same by node.
    unused_on: BTreeMap<String, BTreeSet<usize>>,
}

impl Index {
    fn of(places: &[Place]) -> Self {
        let mut index = Self::default();
        for (at, place) in places.iter().enumerate() {
            index.named.entry(place.component.clone()).or_default().entry(place.index).or_insert(at);
            match &place.occupant {
                Some(pod) => drop(index.by_pod.insert(pod.clone(), at)),
                None => index.free(at, place),
            }
        }
        index
    }

    fn free(&mut self, at: usize, place: &Place) {
        self.unused.entry(place.component.clone()).or_default().insert(at);
        self.unused_on.entry(place.node.clone()).or_default().insert(at);
    }

    fn take(&mut self, at: usize, place: &Place) {
        if let Some(unused) = self.unused.get_mut(&place.component) {
            unused.remove(&at);
        }
        if let Some(unused) = self.unused_on.get_mut(&place.node) {
            unused.remove(&at);
        }
    }
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
        let mut names = BTreeMap::new();
        for (component, _) in pods.iter().filter(|(_, pods)| **pods > 0) {
            names.entry(component.to_ascii_lowercase()).or_insert_with(|| component.clone());
        }
        let (index, completions) = (Index::of(&places), spec.completions.clone());
        let of_cells = !spec.cells.is_empty();
        let mut hold = Self { name: name.to_owned(), places, of_cells, pods, completions, names, index };
        super::marks::mark(&mut hold, spec);
        hold
    }

    /// The place of this index of a component.
    pub(super) fn at(&self, component: &str, index: i64) -> Option<usize> {
        self.index.named.get(component)?.get(&usize::try_from(index).ok()?).copied()
    }

    /// Places of a node without a pod, in order.
    pub(super) fn unused_on(&self, node: &str) -> impl Iterator<Item = usize> {
        self.index.unused_on.get(node).into_iter().flatten().copied()
    }

    /// The bound pod uses the place from now on.
    pub(super) fn occupy(&mut self, at: usize, pod: PodKey) {
        let Some(place) = self.places.get_mut(at) else { return };
        self.index.take(at, place);
        self.index.by_pod.insert(pod.clone(), at);
        place.occupant = Some(pod);
    }

    /// The pod uses its place no longer. Returns the place, if it had one.
    pub(super) fn vacate(&mut self, pod: &PodKey) -> Option<&Place> {
        let at = self.index.by_pod.remove(pod)?;
        let place = self.places.get_mut(at)?;
        place.occupant = None;
        self.index.free(at, place);
        Some(place)
    }

    /// Nobody gets the unused place any more; [`Hold::remove`] takes it out.
    pub(super) fn give_up(&mut self, at: usize) -> Option<&Place> {
        let place = self.places.get(at)?;
        self.index.take(at, place);
        Some(place)
    }

    /// Takes places out.
    pub(super) fn remove(&mut self, lost: &BTreeSet<usize>) {
        let mut at = 0..;
        self.places.retain(|_| at.next().is_some_and(|at| !lost.contains(&at)));
        self.index = Index::of(&self.places);
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
        if let Some(at) = self.index.by_pod.get(pod) {
            return Some(*at);
        }
        let component = self.component_of(component);
        let named = index.and_then(|index| self.index.named.get(component)?.get(&index).copied());
        let is = |at: &usize, wanted: &dyn Fn(&Place) -> bool| self.places.get(*at).is_some_and(wanted);
        if let Some(node) = node {
            let own = named.filter(|at| is(at, &|place| place.occupant.is_none() && place.node == node));
            let mut there = self.index.unused_on.get(node).into_iter().flatten().copied();
            let found = own.or_else(|| there.find(|at| is(at, &|place| place.component == component)));
            if found.is_some() {
                return found;
            }
        }
        let own = named.filter(|at| is(at, &|place| place.occupant.is_none() && !place.leaving));
        if own.is_some() {
            return own;
        }
        // A pod without cells waits for its own: cells of another pod stay with that one until it is gone.
        let waits = self.of_cells && !self.is_follower(component, index);
        if waits || (named.is_some() && node.is_none()) {
            return None;
        }
        let mut unused = self.index.unused.get(component)?.iter().copied();
        unused.find(|at| is(at, &|place| !place.leaving && !place.over))
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
        if let Some(name) = self.names.get(&role.to_ascii_lowercase()) {
            return name;
        }
        let mut known = self.pods.iter().filter(|(_, pods)| **pods > 0).map(|(name, _)| name);
        match (known.next(), known.next()) {
            (Some(only), None) if role.is_empty() => only,
            _ => role,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::testing::reservation;

    /// Each pod compared with each place takes minutes.
    #[test]
    fn pods_of_a_large_job_find_their_places_without_a_search() {
        const PODS: usize = 100_000;
        let spec = reservation("r", "u", 1, &["w 100000 1"]).spec;
        let nodes: Vec<String> = (0..PODS).map(|i| format!("n{}", i / 100)).collect();
        let mut hold = Hold::new("r", &spec, &BTreeMap::from([("w".to_owned(), nodes)]));
        let key = |i: usize| PodKey { namespace: "default".to_owned(), name: format!("a-{i}") };
        for i in (0..PODS).rev() {
            let at = hold.place_for(&key(i), "W", Some(i), None);
            assert_eq!(at, Some(i));
            hold.occupy(i, key(i));
        }
        // Others have the places. One that another scheduler has bound takes one on its node that comes free.
        assert_eq!(hold.place_for(&key(PODS), "w", None, Some("n7")), None);
        for i in 0..PODS {
            assert_eq!(hold.place_for(&key(i), "w", None, None), Some(i), "it has its place already");
            assert_eq!(hold.vacate(&key(i)).map(|place| place.index), Some(i));
        }
        assert_eq!(hold.vacate(&key(0)), None);
        assert_eq!(hold.place_for(&key(PODS), "w", None, Some("n7")), Some(700));
        assert_eq!(hold.place_for(&key(PODS), "w", None, None), Some(0));
        assert_eq!(hold.give_up(1).map(|place| place.index), Some(1));
        assert_eq!(
            hold.place_for(&key(PODS), "w", None, Some("n0")),
            Some(0),
            "the others stay where they are"
        );
        hold.remove(&BTreeSet::from([0, 1]));
        assert_eq!((hold.at("w", 0), hold.at("w", 1), hold.at("w", 2)), (None, None, Some(0)));
    }
}
