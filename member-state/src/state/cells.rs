//! Cells of virtual clusters in the member: their nodes, the leaf cells held by reservations, and the
//! annotations of pods that use them.
//!
//! A cell node accepts only pods whose reservation names it. Deliberately absent: the cells themselves, which
//! the hub plans; here a place is accepted as the hub sent it, or refused.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use fleet_api::{
    ReservationSpec,
    cell_places::CellPlace,
    mutation::{self, Mutation},
};
use fleet_placement::{Gang, GangComponent, Node, PodShape};

use super::{Hold, MemberState, Place, PodEntry, PodKey, pod::Phase};

/// Why places on cells are refused.
#[derive(Debug, PartialEq, Eq)]
pub struct NoCells {
    pub message: String,
    /// Nodes that provide places to nobody.
    pub bad: BTreeSet<String>,
    /// Component to the nodes that do not take its pods because of what these pods ask for.
    pub excluded: BTreeMap<String, BTreeSet<String>>,
}

impl NoCells {
    /// No node is at fault.
    pub fn because(message: String) -> Self {
        Self { message, bad: BTreeSet::new(), excluded: BTreeMap::new() }
    }
}

/// Why a node does not provide one place. What only concerns the pod must not keep other jobs from the node: whoever may
/// write a job may ask for more than any node has.
enum Fault {
    OfNode(String),
    OfPod(String),
}

/// The nodes named by a reservation of cells: component to the node of each replica, empty for pods without
/// cells.
///
/// # Errors
/// A place that cannot be provided: all problems of the first such node.
pub fn places(
    spec: &ReservationSpec,
    gang: &Gang,
    name: &str,
    state: &MemberState,
) -> Result<BTreeMap<String, Vec<String>>, NoCells> {
    let mut nodes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for component in &gang.components {
        let replicas = usize::try_from(component.replicas).unwrap_or(0);
        nodes.insert(component.name.clone(), vec![String::new(); replicas]);
    }
    let given = || spec.cells.iter().flat_map(|group| &group.places).filter(|place| !place.node.is_empty());
    let mut room = Room::new(state, state.hold_named(name), given());
    let mut components: BTreeMap<&str, &GangComponent> = BTreeMap::new();
    for component in &gang.components {
        components.entry(component.name.as_str()).or_insert(component);
    }
    let (mut told, mut bad, mut excluded) = (None, BTreeSet::new(), BTreeMap::new());
    for place in given() {
        let component = components.get(place.component.as_str()).copied();
        let slot = usize::try_from(place.index)
            .ok()
            .and_then(|index| nodes.get_mut(&place.component)?.get_mut(index))
            .filter(|slot| slot.is_empty());
        let (Some(component), Some(slot)) = (component, slot) else {
            let message = format!("cells for {}-{}: the job has no such pod", place.component, place.index);
            return Err(NoCells::because(message));
        };
        let why = match room.take(place, &component.shape) {
            Ok(()) => {
                slot.clone_from(&place.node);
                continue;
            }
            Err(Fault::OfNode(why)) => {
                bad.insert(place.node.clone());
                why
            }
            Err(Fault::OfPod(why)) => {
                let of_component = excluded
                    .entry(component.name.clone())
                    .or_insert_with(|| excluding_cell_nodes(&component.shape, state));
                of_component.insert(place.node.clone());
                why
            }
        };
        told.get_or_insert_with(|| format!("node {}: {why}", place.node));
    }
    match told {
        Some(message) => Err(NoCells { message, bad, excluded }),
        None => Ok(nodes),
    }
}

/// Most excluded nodes named for a component; the hub asks again for others.
const MAX_EXCLUDED: usize = 2_000;

/// All cell nodes that would not take the pod even if they were empty, so that the hub does not ask for one after the
/// other.
fn excluding_cell_nodes(shape: &PodShape, state: &MemberState) -> BTreeSet<String> {
    let usable = state.nodes().iter().filter(|node| node.ready && !node.unschedulable);
    let excludes = |node: &&Node| !node.admits(shape) || !shape.requests.fits_in(&node.allocatable);
    let names = usable.filter(excludes).map(|node| &node.name).filter(|name| state.is_cell_node(name));
    names.take(MAX_EXCLUDED).cloned().collect()
}

/// Remaining capacity of nodes while one reservation is checked.
struct Room<'a> {
    state: &'a MemberState,
    /// Current places of the reservation.
    own: Option<&'a Hold>,
    /// Those that it releases, by node: their capacity is available to the others.
    released: BTreeMap<&'a str, Vec<&'a Place>>,
    /// Leaf cells of other reservations, by node and number, with the first that holds them.
    held: BTreeMap<(&'a str, i32), &'a str>,
    taken: BTreeMap<String, (fleet_resources::Resources, i64)>,
    cells: BTreeSet<(String, i32)>,
}

impl<'a> Room<'a> {
    fn new<'p>(
        state: &'a MemberState,
        own: Option<&'a Hold>,
        given: impl Iterator<Item = &'p CellPlace>,
    ) -> Self {
        let given: BTreeSet<(&str, i64, &str)> = given.map(spot_of).collect();
        // A pod in a place counts by itself until it is gone.
        let unused = own.into_iter().flat_map(|own| &own.places).filter(|own| own.occupant.is_none());
        let mut released: BTreeMap<&str, Vec<&Place>> = BTreeMap::new();
        for place in unused.filter(|own| !spot(own).is_some_and(|spot| given.contains(&spot))) {
            released.entry(place.node.as_str()).or_default().push(place);
        }
        let mut held = BTreeMap::new();
        for hold in state.holds().filter(|hold| own.is_none_or(|own| own.name != hold.name)) {
            for place in &hold.places {
                for cell in &place.leaf_cells {
                    held.entry((place.node.as_str(), *cell)).or_insert(hold.name.as_str());
                }
            }
        }
        Self { state, own, released, held, taken: BTreeMap::new(), cells: BTreeSet::new() }
    }

    fn take(&mut self, place: &CellPlace, shape: &PodShape) -> Result<(), Fault> {
        for cell in &place.leaf_cells {
            if !self.cells.insert((place.node.clone(), *cell)) {
                return Err(Fault::OfNode(format!("leaf cell {cell} is named twice")));
            }
            if let Some(other) = self.held.get(&(place.node.as_str(), *cell)) {
                return Err(Fault::OfNode(format!("leaf cell {cell} is held by reservation {other}")));
            }
        }
        let same = self.own.and_then(|own| own.places.get(own.at(&place.component, place.index)?));
        if same.is_some_and(|own| own.node == place.node) {
            return Ok(());
        }
        let Some(node) = self.state.nodes().get(&place.node) else {
            return Err(Fault::OfNode("the member has no such node".to_owned()));
        };
        if !node.ready || node.unschedulable {
            return Err(Fault::OfNode("it is not ready, or cordoned".to_owned()));
        }
        if !node.admits(shape) {
            return Err(Fault::OfPod("its labels or taints exclude the pod".to_owned()));
        }
        let (used, pods) = self.taken.entry(place.node.clone()).or_default();
        used.add(&shape.requests);
        *pods += 1;
        let (mut free, mut free_pods) = (node.free(), node.free_pods());
        for own in self.released.get(place.node.as_str()).into_iter().flatten() {
            free.add(&own.requests);
            free_pods = free_pods.saturating_add(1);
        }
        let mut short: Vec<String> = used
            .iter()
            .filter(|(name, asked)| free.get(name.as_str()) < *asked)
            .map(|(name, _)| name.to_string())
            .collect();
        if free_pods < *pods {
            short.push("pods".to_owned());
        }
        match short.is_empty() {
            true => Ok(()),
            false => Err(Fault::OfPod(format!("it has too little free: {}", short.join(", ")))),
        }
    }
}

/// Component, index and node of a place.
type Spot<'a> = (&'a str, i64, &'a str);

fn spot(place: &Place) -> Option<Spot<'_>> {
    Some((place.component.as_str(), i64::try_from(place.index).ok()?, place.node.as_str()))
}

fn spot_of(given: &CellPlace) -> Spot<'_> {
    (given.component.as_str(), given.index, given.node.as_str())
}

/// Leaf cells in any order.
fn in_order(cells: &[i32]) -> Vec<i32> {
    cells.iter().copied().collect::<BTreeSet<i32>>().into_iter().collect()
}

/// Pods that the member's own scheduler is about to bind, by the place that they will use.
struct Released<'s> {
    named: BTreeMap<(&'s str, usize), &'s PodKey>,
    /// That of a component's pods which use any of its places.
    followers: BTreeMap<&'s str, &'s PodKey>,
}

impl<'s> Released<'s> {
    /// The first pod that will use the place.
    fn to(&self, place: &Place) -> Option<&'s PodKey> {
        let named = self.named.get(&(place.component.as_str(), place.index)).copied();
        named.into_iter().chain(self.followers.get(place.component.as_str()).copied()).min()
    }
}

/// Pods of one component.
#[derive(Default)]
struct Pods {
    ended: BTreeSet<i64>,
    live: BTreeSet<i64>,
    succeeded: usize,
}

impl Pods {
    fn add(&mut self, pod: &PodEntry) {
        self.succeeded += usize::from(pod.phase == Phase::Succeeded);
        let Some(index) = pod.index.and_then(|index| i64::try_from(index).ok()) else { return };
        if pod.finished {
            self.ended.insert(index);
        } else {
            self.live.insert(index);
        }
    }
}

impl MemberState {
    /// By component, the indices of a reservation's pods that have ended and that no other pod follows. Pods that follow
    /// take none of these places (`known`: those that were told before).
    pub fn close_places(
        &mut self,
        reservation: &str,
        known: &BTreeMap<String, Vec<i64>>,
    ) -> BTreeMap<String, Vec<i64>> {
        let ended = self.ended_of(reservation, known);
        for place in self.holds.get_mut(reservation).into_iter().flat_map(|hold| &mut hold.places) {
            let index = i64::try_from(place.index).unwrap_or(i64::MAX);
            // They are in order.
            place.over = ended.get(&place.component).is_some_and(|found| found.binary_search(&index).is_ok());
        }
        ended
    }

    fn ended_of(&self, reservation: &str, known: &BTreeMap<String, Vec<i64>>) -> BTreeMap<String, Vec<i64>> {
        let mut components: BTreeMap<&str, Pods> = BTreeMap::new();
        let hold = self.holds.get(reservation);
        for pod in self.pods_of_reservation(reservation) {
            let name = hold.map_or(&*pod.component, |hold| hold.component_of(&pod.component));
            components.entry(name).or_default().add(pod);
        }
        let mut ended = BTreeMap::new();
        for (component, pods) in components {
            let is_taken = |index: i64| {
                let place = hold.and_then(|hold| hold.places.get(hold.at(component, index)?));
                place.is_some_and(|place| place.occupant.is_some())
            };
            let mut indices: Vec<i64> = pods.ended.difference(&pods.live).copied().collect();
            indices.retain(|index| !is_taken(*index));
            if let Some(number) = hold.and_then(|hold| hold.places_over(component, pods.succeeded)) {
                let is_place = |index: i64| {
                    hold.is_some_and(|hold| !hold.is_follower(component, usize::try_from(index).ok()))
                };
                indices.retain(|index| is_place(*index));
                // What was told stays, then from the last on: pods that follow take the first.
                let told: BTreeSet<i64> = known.get(component).into_iter().flatten().copied().collect();
                indices.sort_by_key(|index| (Reverse(told.contains(index)), Reverse(*index)));
                indices.truncate(number);
                indices.sort_unstable();
            }
            if !indices.is_empty() {
                ended.insert(component.to_owned(), indices);
            }
        }
        ended
    }

    /// Preempted groups of a reservation whose pods are gone, with the time of their preemption.
    pub fn vacated_of(&self, reservation: &str, spec: &ReservationSpec) -> BTreeMap<String, i64> {
        let Some(hold) = self.holds.get(reservation) else { return BTreeMap::new() };
        let released = self.released(hold);
        let is_used = |given: &CellPlace| {
            let place = hold.at(&given.component, given.index).and_then(|at| hold.places.get(at));
            place.is_some_and(|place| place.occupant.is_some() || released.to(place).is_some())
        };
        let groups = spec.cells.iter().filter_map(|group| Some((group, group.preempted.as_ref()?)));
        let vacated = groups.filter(|(group, _)| !group.places.iter().any(is_used));
        vacated.map(|(group, preempted)| (group.name.clone(), preempted.at_ms)).collect()
    }

    /// Pods that must leave their cells and have not been deleted yet, with their uids.
    pub fn leaving_pods(&self) -> Vec<(PodKey, String)> {
        let holds = self.leaving.iter().filter_map(|name| self.holds.get(name));
        let keys = holds.flat_map(|hold| {
            let released = self.released(hold);
            let leaving = hold.places.iter().filter(|place| place.leaving);
            leaving.filter_map(move |place| place.occupant.as_ref().or_else(|| released.to(place)))
        });
        let pods = keys.filter_map(|key| Some((key, self.pods.get(key)?)));
        pods.filter(|(_, pod)| !pod.deleting && !pod.evicting)
            .map(|(key, pod)| (key.clone(), pod.uid.clone()))
            .collect()
    }

    /// Of a reservation's places: pods leave the cells that `spec` has no more, and those that `held`, which the places
    /// follow, has preempted; all others stay. Returns the pods that are still on cells which `spec` has no more.
    pub fn leave_cells(&mut self, name: &str, held: &ReservationSpec, spec: &ReservationSpec) -> Vec<String> {
        let Some(hold) = self.holds.get(name) else { return Vec::new() };
        let preempted = held.cells.iter().filter(|group| group.preempted.is_some());
        let preempted: BTreeSet<(&str, i64)> = preempted
            .flat_map(|group| &group.places)
            .map(|place| (place.component.as_str(), place.index))
            .collect();
        let given: BTreeSet<(Spot<'_>, Vec<i32>)> = spec
            .cells
            .iter()
            .flat_map(|group| &group.places)
            .map(|given| (spot_of(given), in_order(&given.leaf_cells)))
            .collect();
        let released = self.released(hold);
        let mut there = Vec::new();
        let mut leaving = Vec::with_capacity(hold.places.len());
        for own in &hold.places {
            let spot = spot(own);
            let stays = own.leaf_cells.is_empty()
                || spot.is_some_and(|spot| given.contains(&(spot, in_order(&own.leaf_cells))));
            let is_taken = !stays && (own.occupant.is_some() || released.to(own).is_some());
            if is_taken {
                there.push(format!("{}-{}", own.component, own.index));
            }
            let is_preempted =
                spot.is_some_and(|(component, index, _)| preempted.contains(&(component, index)));
            leaving.push(is_taken || is_preempted);
        }
        drop(released);
        if leaving.contains(&true) {
            self.leaving.insert(name.to_owned());
        } else {
            self.leaving.remove(name);
        }
        let places = self.holds.get_mut(name).into_iter().flat_map(|hold| &mut hold.places);
        places.zip(leaving).for_each(|(place, leaving)| place.leaving = leaving);
        there
    }

    /// The pods of a hold that the member's own scheduler is about to bind.
    fn released<'s>(&'s self, hold: &'s Hold) -> Released<'s> {
        let mut found = Released { named: BTreeMap::new(), followers: BTreeMap::new() };
        let keys = self.reserved_pods.get(&hold.name).into_iter().flatten();
        for (key, pod) in keys.filter_map(|key| Some((key, self.pods.get(key)?))) {
            if !pod.let_go || pod.finished || pod.counted_on().is_some() {
                continue;
            }
            let component = hold.component_of(&pod.component);
            if let Some(index) = pod.index {
                found.named.entry((component, index)).or_insert(key);
            }
            if hold.is_follower(component, pod.index) {
                found.followers.entry(component).or_insert(key);
            }
        }
        found
    }

    pub fn holds(&self) -> impl Iterator<Item = &Hold> {
        self.holds.values()
    }

    pub fn hold_named(&self, name: &str) -> Option<&Hold> {
        self.holds.get(name)
    }

    /// Whether the pod's reservation provides cells, so that it runs nowhere else: also after these have expired. Pods
    /// of runs that an earlier release sent do not say so themselves.
    pub fn is_bound_to_cells(&self, entry: &PodEntry) -> bool {
        let of_cells = |name: &String| self.holds.get(name).is_some_and(|hold| hold.of_cells);
        entry.on_cells || entry.reservation.as_ref().is_some_and(of_cells)
    }

    pub(super) fn pods_of_reservation(&self, name: &str) -> impl Iterator<Item = &PodEntry> {
        self.reserved_pods.get(name).into_iter().flatten().filter_map(|key| self.pods.get(key))
    }

    pub(super) fn note_cells(&mut self, entry: &PodEntry) {
        if let Some(name) =
            entry.reservation.as_ref().filter(|name| self.holds.get(*name).is_some_and(|h| h.of_cells))
        {
            self.cells_changed.insert(name.clone());
        }
    }

    pub fn take_cells_changed(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.cells_changed)
    }

    /// The scheduler places no pods on a cell node by itself.
    pub(super) fn tell_scheduler(&mut self, node: &fleet_placement::Node) {
        self.cluster.put_node(node);
        let kept = self.is_cell_node(&node.name) && !mutation::is_on(Mutation::CellNodesOpen);
        if self.cluster.nodes.find(&node.name).is_some_and(|id| self.cluster.nodes.get(id).kept != kept) {
            self.cluster.keep_node(&node.name, kept);
        }
    }

    /// Marks the capacity report as outdated.
    pub(super) fn note_capacity(&mut self) {
        self.effects.capacity = true;
        self.effects.freed = true;
    }
}

#[cfg(test)]
mod tests;
