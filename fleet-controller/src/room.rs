//! Room on each member as the hub counts it: what the last report says is free, less what was promised
//! since.
//!
//! A promise is a reservation that was asked, or answered with a report sequence newer than the last
//! report. Being wrong is safe: too much costs a refused reservation, too little a short wait.

use std::collections::{BTreeMap, BTreeSet};

use fleet_api::{convert, reservation::ReservationPhase};
use fleet_placement::{
    Gang, GangPlacement, Node, NodeIndex, NodeShape, PodShape, expand, fits_shapes_empty, fits_sum,
    place_gang,
};
use fleet_policies::affinity::ClusterFacts;
use fleet_resources::Resources;

use crate::{
    binding::cluster_namespace,
    cluster,
    world::{Key, World},
};

/// One member's room.
#[derive(Clone, Debug)]
pub struct Room {
    pub facts: ClusterFacts,
    /// Whether it answers reservations; else sums are compared.
    pub reserves: bool,
    pub allocatable: Resources,
    pub free: Resources,
    /// Kinds it serves; empty where it does not say.
    serves: BTreeSet<String>,
    shapes: Vec<NodeShape>,
    nodes: NodeIndex,
}

impl Room {
    /// Whether the member serves a kind.
    pub fn serves(&self, api_version: &str, kind: &str) -> bool {
        self.serves.is_empty() || self.serves.contains(&format!("{api_version}/{kind}"))
    }

    /// Takes room for a gang, or says in one sentence what is missing.
    pub fn take(&mut self, gang: &Gang) -> Result<(), String> {
        if self.reserves {
            let placement = place_gang(&self.nodes, gang).map_err(|refusal| refusal.sentence())?;
            self.apply(&placement, gang);
            return Ok(());
        }
        fits_sum(&self.free, gang).map_err(|short| {
            let short: Vec<String> = short.iter().map(ToString::to_string).collect();
            format!("the sum of what is free is short of {}", short.join(", "))
        })?;
        self.free.sub(&gang.total());
        Ok(())
    }

    /// How many pods of one shape still fit, at most `limit`. Counted node by node: alone, pods of one shape
    /// never stand in each other's way.
    pub fn pods_of(&self, shape: &PodShape, limit: i64) -> i64 {
        let in_node = |node: &Node| {
            let by_amount = shape.requests.times_in(&node.free()).unwrap_or(i64::MAX);
            by_amount.min(node.free_pods())
        };
        let fitting = self.nodes.iter().filter(|node| node.admits(shape));
        fitting.map(in_node).fold(0, i64::saturating_add).min(limit)
    }

    fn apply(&mut self, placement: &GangPlacement, gang: &Gang) {
        placement.apply(&mut self.nodes, gang);
        self.free.sub(&gang.total());
    }

    /// Whether the gang would fit if nothing ran here.
    pub fn holds_when_empty(&self, gang: &Gang) -> bool {
        if self.reserves {
            fits_shapes_empty(&self.shapes, gang)
        } else {
            fits_sum(&self.allocatable, gang).is_ok()
        }
    }
}

/// Counts the room of one member. `asked`: gangs whose reservation is on its way to the hub. `None`: the
/// member is not known or has not reported.
pub fn count<'a>(world: &'a World, name: &str, asked: impl Iterator<Item = &'a Gang>) -> Option<Room> {
    let object = world.clusters.get(name)?;
    let status = object.status.as_ref()?;
    let reported = status.report_sequence?;
    let shapes: Vec<NodeShape> = status.node_shapes.iter().map(convert::placement_shape).collect();
    let mut room = Room {
        facts: cluster::facts(object),
        reserves: status.reservation != Some(false),
        allocatable: sum(&shapes, |shape| &shape.allocatable),
        free: sum(&shapes, |shape| &shape.free),
        serves: status.api_enablements.iter().cloned().collect(),
        nodes: NodeIndex::new(expand(&shapes)),
        shapes,
    };
    let namespace = cluster_namespace(name);
    let first: Key = (namespace.clone(), String::new());
    let here = world.reservations.range(first..).take_while(|((ns, _), _)| *ns == namespace);
    let promised = here.filter_map(|(_, reservation)| {
        let status = reservation.status.as_ref();
        let open = match status.and_then(|status| status.phase) {
            None => true,
            Some(ReservationPhase::Reserved) => {
                status.and_then(|s| s.report_sequence).is_some_and(|n| n > reported)
            }
            Some(_) => false,
        };
        let binding = &reservation.spec.binding;
        let entry = world.bindings.get(&(binding.namespace.clone(), binding.name.clone()))?;
        open.then_some(&entry.gang)
    });
    let gangs: Vec<&Gang> = promised.chain(asked).collect();
    for gang in gangs {
        // One that does not fit any more is refused by the member itself.
        let _ = room.take(gang);
    }
    if !room.reserves {
        // Without reservations a bound gang counts until its pods are seen running.
        for entry in world.bindings.values().filter(|entry| entry.is_bound() && !entry.is_finished()) {
            let here = entry.object.spec.clusters.iter().any(|target| target.name == name);
            let seen = entry.object.status.as_ref().is_some_and(|status| {
                status
                    .aggregated_status
                    .iter()
                    .any(|item| fleet_policies::workload::is_running(entry.workload, &item.status))
            });
            if here && !seen {
                room.free.sub(&entry.total);
            }
        }
    }
    Some(room)
}

fn sum(shapes: &[NodeShape], of: fn(&NodeShape) -> &Resources) -> Resources {
    let mut sum = Resources::new();
    for shape in shapes {
        sum.add(&of(shape).scaled(shape.count));
    }
    sum
}

/// All members' room, counted anew only where something changed.
#[derive(Default)]
pub struct Rooms {
    known: BTreeMap<String, Room>,
}

impl Rooms {
    /// Counts again what `world.recount` names. `asked` gives the gangs on their way to a cluster.
    pub fn refresh<'a>(
        &mut self,
        world: &'a World,
        stale: &BTreeSet<String>,
        asked: impl Fn(&str) -> Vec<&'a Gang>,
    ) {
        for name in stale {
            match count(world, name, asked(name).into_iter()) {
                Some(room) => self.known.insert(name.clone(), room),
                None => self.known.remove(name),
            };
        }
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut Room> {
        self.known.get_mut(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&String, &Room)> {
        self.known.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}
