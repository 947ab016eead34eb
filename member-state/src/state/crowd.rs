//! Over-committed nodes: another scheduler has bound a pod to capacity that was held here.
//!
//! The other pod stays: it is bound, while ours are not, or have not started. So held places on the node are
//! released, and our bound pods there that have not started are deleted with the rest of their gang.

use std::collections::{BTreeMap, BTreeSet};

use fleet_placement::Node;
use fleet_resources::{ResourceName, Resources};
use jiff::Timestamp;

use super::{GangKey, Hold, MemberState, PodEntry, PodKey, pod::Phase};

/// Over-committed nodes with the resources that they lack.
type Short = BTreeMap<String, Vec<ResourceName>>;
/// By reservation, the places that it has lost, with their nodes.
type Lost = BTreeMap<String, BTreeMap<usize, String>>;

/// What other schedulers have taken.
#[derive(Debug, Default)]
pub struct Taken {
    /// Reservations, and the nodes on which they have lost places.
    pub places: BTreeMap<String, Vec<String>>,
    /// Gangs with bound pods that have not started, and why they are deleted.
    pub gangs: BTreeMap<GangKey, String>,
}

impl MemberState {
    /// Marks a node that may be over-committed.
    pub(super) fn note_crowd(&mut self, node: &str) {
        if self.nodes.get(node).is_some_and(|node| !over(node).is_empty()) && !self.crowded.contains(node) {
            self.crowded.insert(node.to_owned());
        }
    }

    /// Releases the places on over-committed nodes, and returns their owners.
    pub fn take_crowd(&mut self) -> Taken {
        let mut taken = Taken::default();
        let (mut short, mut lost): (Short, Lost) = (BTreeMap::new(), BTreeMap::new());
        for name in std::mem::take(&mut self.crowded) {
            self.give_way(&name, &mut lost);
            if let Some(lacks) = self.nodes.get(&name).map(over).filter(|lacks| !lacks.is_empty()) {
                short.insert(name, lacks);
            }
        }
        for (name, places) in lost {
            let Some(hold) = self.holds.get_mut(&name) else { continue };
            hold.remove(&places.keys().copied().collect());
            let mut nodes: Vec<String> = places.into_values().collect();
            nodes.sort_unstable();
            taken.places.insert(name, nodes);
        }
        if short.is_empty() {
            return taken;
        }
        let not_started = self.not_started_on(&short);
        let others = self.last_others_on(&not_started);
        for (node, gangs) in &not_started {
            let by = others.get(node).map_or(String::new(), |(_, key, pod)| {
                format!(" by pod {}/{} of scheduler {:?}", key.namespace, key.name, pod.scheduler_name)
            });
            let lacks: Vec<&str> = short.get(*node).into_iter().flatten().map(AsRef::as_ref).collect();
            let why = format!(
                "node {node}: {} was taken{by} before the gang's pods started there",
                lacks.join(", ")
            );
            taken.gangs.extend(gangs.iter().map(|gang| ((*gang).clone(), why.clone())));
        }
        taken
    }

    /// Releases unused places until the node is no longer over-committed.
    fn give_way(&mut self, node: &str, lost: &mut Lost) {
        while let Some(short) = self.nodes.get(node).map(over).filter(|short| !short.is_empty()) {
            let helps = |hold: &Hold| {
                let mut unused = hold.unused_on(node);
                let at =
                    unused.find(|at| hold.places.get(*at).is_some_and(|p| asks_for(&p.requests, &short)));
                at.map(|at| (hold.name.clone(), at))
            };
            let Some((name, at)) = self.holds.values().rev().find_map(helps) else { return };
            let place = self.holds.get_mut(&name).and_then(|hold| hold.give_up(at));
            let Some(requests) = place.map(|place| place.requests.clone()) else { return };
            self.unhold(node, &requests);
            lost.entry(name).or_default().insert(at, node.to_owned());
        }
    }

    /// Gangs that this agent has bound, or is binding, to one of these nodes, and that have not started, by node.
    fn not_started_on<'s>(&'s self, short: &'s Short) -> BTreeMap<&'s str, BTreeSet<&'s GangKey>> {
        let mut found: BTreeMap<&str, BTreeSet<&GangKey>> = BTreeMap::new();
        for (gang, key) in
            self.gangs.iter().flat_map(|(gang, entry)| entry.pods.iter().map(move |key| (gang, key)))
        {
            let Some(pod) = self.pods.get(key) else { continue };
            let lacks = pod.counted_on().and_then(|node| short.get_key_value(node));
            let waits = pod.ours
                && !pod.deleting
                && !pod.evicting
                && pod.phase == Phase::Pending
                && pod.started.is_none();
            if let Some((node, _)) = lacks.filter(|(_, lacks)| waits && asks_for(pod.requests(), lacks)) {
                found.entry(node.as_str()).or_default().insert(gang);
            }
        }
        found
    }

    /// The newest pod of another scheduler on each of these nodes.
    fn last_others_on<'s>(
        &'s self,
        nodes: &BTreeMap<&str, BTreeSet<&GangKey>>,
    ) -> BTreeMap<&'s str, (Option<Timestamp>, &'s PodKey, &'s PodEntry)> {
        let mut found: BTreeMap<&str, (Option<Timestamp>, &PodKey, &PodEntry)> = BTreeMap::new();
        for (key, pod) in self.pods.iter().filter(|(_, pod)| !pod.ours) {
            let Some(node) = pod.counted_on().filter(|node| nodes.contains_key(*node)) else { continue };
            let last = found.entry(node).or_insert((pod.created, key, pod));
            if (pod.created, key) > (last.0, last.1) {
                *last = (pod.created, key, pod);
            }
        }
        found
    }
}

/// The over-committed resources of the node.
fn over(node: &Node) -> Vec<ResourceName> {
    let used = node.used.iter().filter(|(name, used)| *used > node.allocatable.get(name.as_str()));
    let mut over: Vec<ResourceName> = used.map(|(name, _)| name.clone()).collect();
    if node.max_pods > 0 && node.pods > node.max_pods {
        over.push(ResourceName::PODS.into());
    }
    over
}

fn asks_for(requests: &Resources, short: &[ResourceName]) -> bool {
    short.iter().any(|name| name.as_str() == ResourceName::PODS || requests.get(name.as_str()) > 0)
}
