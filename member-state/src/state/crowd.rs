//! Over-committed nodes: another scheduler has bound a pod to capacity that was held here.
//!
//! The other pod stays: it is bound, while ours are not, or have not started. So held places on the node are
//! released, and our bound pods there that have not started are deleted with the rest of their gang.

use std::collections::BTreeMap;

use fleet_placement::Node;
use fleet_resources::{ResourceName, Resources};

use super::{GangKey, MemberState, Place, PodKey, pod::Phase};

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
        for name in std::mem::take(&mut self.crowded) {
            self.give_way(&name, &mut taken);
            let Some(short) = self.nodes.get(&name).map(over).filter(|short| !short.is_empty()) else {
                continue;
            };
            let gangs = self.not_started_on(&name, &short);
            if gangs.is_empty() {
                continue;
            }
            let by = self.last_other_on(&name).map_or(String::new(), |pod| format!(" by pod {pod}"));
            let short: Vec<&str> = short.iter().map(AsRef::as_ref).collect();
            let why = format!(
                "node {name}: {} was taken{by} before the gang's pods started there",
                short.join(", ")
            );
            taken.gangs.extend(gangs.into_iter().map(|gang| (gang, why.clone())));
        }
        taken
    }

    /// Releases unused places until the node is no longer over-committed.
    fn give_way(&mut self, node: &str, taken: &mut Taken) {
        while let Some(short) = self.nodes.get(node).map(over).filter(|short| !short.is_empty()) {
            let helps = |place: &Place| {
                place.occupant.is_none() && place.node == node && asks_for(&place.requests, &short)
            };
            let found = self
                .holds
                .values()
                .rev()
                .find_map(|hold| Some((hold.name.clone(), hold.places.iter().position(helps)?)));
            let Some((name, at)) = found else { return };
            let Some(hold) = self.holds.get_mut(&name) else { return };
            let place = hold.places.remove(at);
            self.unhold(&place.node, &place.requests);
            taken.places.entry(name).or_default().push(node.to_owned());
        }
    }

    /// Gangs that this agent has bound, or is binding, to the node, and that have not started.
    fn not_started_on(&self, node: &str, short: &[ResourceName]) -> Vec<GangKey> {
        let is_there = |key: &PodKey| {
            self.pods.get(key).is_some_and(|pod| {
                pod.ours
                    && !pod.deleting
                    && !pod.evicting
                    && pod.phase == Phase::Pending
                    && pod.started.is_none()
                    && pod.counted_on() == Some(node)
                    && asks_for(pod.requests(), short)
            })
        };
        let of_ours = self.gangs.iter().filter(|(_, gang)| gang.pods.iter().any(is_there));
        of_ours.map(|(key, _)| key.clone()).collect()
    }

    /// The newest pod of another scheduler on the node.
    fn last_other_on(&self, node: &str) -> Option<String> {
        let others = self.pods.iter().filter(|(_, pod)| !pod.ours && pod.counted_on() == Some(node));
        let last = others.max_by_key(|(key, pod)| (pod.created, (*key).clone()))?;
        Some(format!("{}/{} of scheduler {:?}", last.0.namespace, last.0.name, last.1.scheduler_name))
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
