//! The agent's cache of its member: nodes with their use, pods, holds and gangs, kept up to date by events.
//!
//! Pure: no clock, no IO. The core task owns it. The use of a node is the sum of its bound, unfinished pods
//! and of held places whose pod is not bound.

pub mod cells;
mod crowd;
mod effects;
mod gangs;
pub mod gates;
mod groups;
mod hold;
mod hyper_node;
mod hyper_nodes;
mod job_pods;
mod kept;
mod marks;
mod pod;
mod pod_group;
mod pod_key;
mod pod_owner;
mod specs;
mod surplus;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use fleet_placement::NodeIndex;
use fleet_resources::Resources;
use fleet_scheduler::{Cluster, Config, GroupId, PodId, PodInput, PodSpec, Policy, QueueInput};

pub use effects::Effects;
pub use gangs::{GangEntry, GangKey};
pub use gates::{Gated, Release};
pub use hold::{Hold, Place};
pub use hyper_node::{HyperNode, read_labels};
pub use kept::UnusableNodes;
pub use marks::{BIND_INFO_ANNOTATION, ISOLATION_ANNOTATION};
pub use pod::{PodEntry, UNKNOWN_SIZE};
pub use pod_group::{PodGroup, PodGroupObject};
pub use pod_key::PodKey;

use fleet_agent_ground::{
    OwnedJob,
    lean::{LeanNode, LeanPod},
};

#[derive(Debug, Default)]
struct Usage {
    requests: Resources,
    pods: i64,
}

#[derive(Debug)]
pub struct MemberState {
    /// The scheduler's own view, which decides about placement.
    pub cluster: Cluster,
    /// Specs of pods; equal ones are shared.
    specs: BTreeSet<Arc<PodSpec>>,
    /// Specs that the last sweep left.
    specs_left: usize,
    /// PodGroup objects, by namespace and name.
    pub pod_groups: BTreeMap<(String, String), PodGroup>,
    /// Values of PriorityClasses, by name.
    pub priorities: BTreeMap<String, i64>,
    /// HyperNode objects by name.
    hyper_nodes: BTreeMap<String, HyperNode>,
    /// HyperNodes or nodes have changed since the scheduler was last updated.
    hyper_nodes_stale: bool,
    gangs_by_group: BTreeMap<GroupId, GangKey>,
    /// Group of the pods that other schedulers place.
    foreign: Option<GroupId>,
    nodes: NodeIndex,
    /// Use by node name, also for nodes that were not seen yet.
    usage: BTreeMap<String, Usage>,
    /// Looked up by key only; no decision depends on its order.
    pods: HashMap<PodKey, PodEntry>,
    holds: BTreeMap<String, Hold>,
    kept: kept::Kept,
    /// Reservations of cells whose pods or nodes have changed.
    cells_changed: BTreeSet<String>,
    /// Holds of which pods must leave their cells.
    leaving: BTreeSet<String>,
    /// Pods by the reservation they name.
    reserved_pods: BTreeMap<String, BTreeSet<PodKey>>,
    gangs: BTreeMap<GangKey, GangEntry>,
    /// Numbers of unfinished pods without a node and without a place.
    unbound: BTreeMap<Arc<PodSpec>, i64>,
    /// Jobs with held places, by uid, and their uids by namespace and name.
    jobs: BTreeMap<String, Arc<OwnedJob>>,
    jobs_by_name: BTreeMap<(String, String), BTreeSet<String>>,
    /// Pods that name no reservation, by namespace and name of their possible job.
    pods_by_job: BTreeMap<(String, String), BTreeSet<PodKey>>,
    /// Nodes that may be over-committed.
    crowded: BTreeSet<String>,
    /// Another scheduler has bound pods here.
    pub is_shared: bool,
    /// Scheduler names whose pods this agent binds.
    scheduler_names: BTreeSet<String>,
    effects: Effects,
}

impl MemberState {
    pub fn new(scheduler_names: BTreeSet<String>) -> Self {
        // The built-in configuration has no invalid argument.
        let policy = Policy::compile(&Config::default()).unwrap_or_else(|error| unreachable!("{error}"));
        let mut cluster = Cluster::new(policy);
        cluster.put_queue(QueueInput::named(fleet_scheduler::queue::DEFAULT_QUEUE));
        Self {
            cluster,
            specs: BTreeSet::new(),
            specs_left: 0,
            pod_groups: BTreeMap::new(),
            priorities: BTreeMap::new(),
            hyper_nodes: BTreeMap::new(),
            hyper_nodes_stale: false,
            gangs_by_group: BTreeMap::new(),
            foreign: None,
            nodes: NodeIndex::default(),
            usage: BTreeMap::new(),
            pods: HashMap::new(),
            holds: BTreeMap::new(),
            kept: kept::Kept::default(),
            cells_changed: BTreeSet::new(),
            leaving: BTreeSet::new(),
            reserved_pods: BTreeMap::new(),
            gangs: BTreeMap::new(),
            unbound: BTreeMap::new(),
            jobs: BTreeMap::new(),
            jobs_by_name: BTreeMap::new(),
            pods_by_job: BTreeMap::new(),
            crowded: BTreeSet::new(),
            is_shared: false,
            scheduler_names,
            effects: Effects::default(),
        }
    }

    pub fn take_effects(&mut self) -> Effects {
        std::mem::take(&mut self.effects)
    }

    pub fn merge_effects(&mut self, earlier: Effects) {
        self.effects.dirty.extend(earlier.dirty);
        self.effects.freed |= earlier.freed;
        self.effects.capacity |= earlier.capacity;
        self.effects.gates.extend(earlier.gates);
    }

    pub fn scheduler_names(&self) -> &BTreeSet<String> {
        &self.scheduler_names
    }

    pub fn nodes(&self) -> &NodeIndex {
        &self.nodes
    }

    pub fn pod(&self, key: &PodKey) -> Option<&PodEntry> {
        self.pods.get(key)
    }

    pub fn gang(&self, key: &GangKey) -> Option<&GangEntry> {
        self.gangs.get(key)
    }

    pub fn gang_mut(&mut self, key: &GangKey) -> Option<&mut GangEntry> {
        self.gangs.get_mut(key)
    }

    /// Whether pods that name this reservation exist.
    pub fn has_pods_of(&self, reservation: &str) -> bool {
        self.reserved_pods.contains_key(reservation)
    }

    // ---- nodes

    pub fn apply_node(&mut self, node: &LeanNode) {
        let cards = crate::devices::cards(node);
        let mut node = crate::shape::node(node);
        let had = self
            .cluster
            .nodes
            .find(&node.name)
            .is_some_and(|id| !self.cluster.nodes.get(id).cards.is_empty());
        let is_bare = cards.is_empty() && !had;
        if let Some(usage) = self.usage.get(&node.name) {
            node.used = usage.requests.clone();
            node.pods = usage.pods;
        }
        if !is_bare {
            self.cluster.set_cards(&node.name, cards);
        }
        // Heartbeats change nothing here.
        if self.nodes.get(&node.name) == Some(&node) {
            return;
        }
        self.hyper_nodes_stale |= !self.hyper_nodes.is_empty();
        self.tell_scheduler(&node);
        let name = node.name.clone();
        self.nodes.upsert(node);
        self.note_cell_node(&name);
        self.note_crowd(&name);
        self.effects.capacity = true;
        self.effects.freed = true;
    }

    pub fn remove_node(&mut self, name: &str) {
        if self.nodes.remove(name).is_some() {
            self.note_cell_node(name);
            self.hyper_nodes_stale |= !self.hyper_nodes.is_empty();
            self.cluster.remove_node(name);
            self.effects.capacity = true;
        }
    }

    // ---- pods

    pub fn apply_pod(&mut self, pod: &LeanPod) {
        let Some(mut entry) = PodEntry::read(pod, &self.scheduler_names) else { return };
        let key = PodKey::of(pod);
        match self.pods.get(&key) {
            Some(known) if known.uid == entry.uid => entry.inherit(known),
            Some(_) => self.remove_pod(&key),
            None => {}
        }
        self.assign_reservation(&key, &mut entry);
        self.is_shared |= !entry.ours && entry.node.is_some() && !entry.of_node;
        self.put_pod(key, entry);
    }

    pub fn remove_pod(&mut self, key: &PodKey) {
        let Some(mut entry) = self.pods.remove(key) else { return };
        self.note_cells(&entry);
        if let Some(id) = entry.id.take() {
            self.cluster.remove_pod(id);
        }
        self.uncount(key, &entry);
        self.forget_pod_of_job(key, &entry);
        self.leave_gang(key, &entry);
        if let Some(reservation) = &entry.reservation
            && let Some(pods) = self.reserved_pods.get_mut(reservation)
        {
            pods.remove(key);
            if pods.is_empty() {
                self.reserved_pods.remove(reservation);
            }
        }
    }

    /// Counts the pod on `node` before the API server confirms the binding.
    pub fn assume(&mut self, key: &PodKey, node: &str) {
        let Some(mut entry) = self.pods.remove(key) else { return };
        let moves = entry.node.is_none() && entry.assumed.as_deref() != Some(node);
        if moves {
            self.uncount(key, &entry);
        }
        entry.assumed = Some(node.to_owned());
        if moves {
            self.count(key, &entry);
        }
        self.pods.insert(key.clone(), entry);
        self.mirror(key);
    }

    /// The binding failed.
    pub fn forget(&mut self, key: &PodKey, uid: &str) {
        if let Some(mut entry) =
            self.pods.get(key).filter(|pod| pod.uid == uid && pod.node.is_none()).cloned()
        {
            entry.assumed = None;
            self.put_pod(key.clone(), entry);
        }
    }

    /// Records the message of the pod's condition.
    pub fn set_told(&mut self, key: &PodKey, message: Option<&str>) {
        if let Some(entry) = self.pods.get_mut(key) {
            entry.told = message.map(str::to_owned);
        }
    }

    /// The scheduler has decided to evict the pod, or its eviction failed.
    pub fn set_evicting(&mut self, key: &PodKey, evicting: bool) {
        if let Some(entry) = self.pods.get_mut(key) {
            entry.evicting = evicting;
            self.mirror(key);
        }
    }

    fn put_pod(&mut self, key: PodKey, mut entry: PodEntry) {
        entry.spec = self.shared(entry.spec);
        if let Some(known) = self.pods.get(&key) {
            if *known == entry {
                return;
            }
            if known.gang != entry.gang || known.reservation != entry.reservation || known.ours != entry.ours
            {
                self.remove_pod(&key);
                entry.id = None;
            }
        }
        let known = self.pods.remove(&key);
        if known.as_ref().is_none_or(|known| known.finished != entry.finished) {
            self.note_cells(&entry);
        }
        // A confirmed binding, or a mere change of phase, changes no amounts.
        let same = known.as_ref().is_some_and(|known| known.counts_as(&entry));
        if !same && let Some(known) = &known {
            self.uncount(&key, known);
        }
        self.join_gang(&key, &entry);
        self.note_pod_of_job(&key, &entry);
        if let Some(reservation) = &entry.reservation {
            if entry.held_back.is_some() && !self.effects.gates.contains(reservation) {
                self.effects.gates.insert(reservation.clone());
            }
            self.reserved_pods.entry(reservation.clone()).or_default().insert(key.clone());
        }
        if !same {
            self.count(&key, &entry);
        }
        self.pods.insert(key.clone(), entry);
        self.mirror(&key);
    }

    /// Updates the scheduler's view of a pod.
    fn mirror(&mut self, key: &PodKey) {
        let Some(entry) = self.pods.get(key) else { return };
        let (status, id, ours, gang) = (entry.status(), entry.id, entry.ours, entry.gang.clone());
        let node: Option<Arc<str>> = entry.node.as_deref().or(entry.assumed.as_deref()).map(Arc::from);
        if !ours && node.is_none() {
            return;
        }
        if let Some(id) = id {
            let known = self.cluster.pod(id);
            // Only the scheduler knows its reserved places; the API server does not.
            let promised = known.status == fleet_scheduler::Status::Pipelined
                && status == fleet_scheduler::Status::Pending;
            if !promised {
                self.cluster.update_pod(id, status, node.as_deref());
            }
            self.tell_more(key);
            return;
        }
        let group = if ours { self.group_of(&gang) } else { self.foreign_group() };
        let Some(entry) = self.pods.get_mut(key) else { return };
        // The group of all other schedulers' pods has no minima of roles, and outlives every role that they name.
        let role = if ours { entry.component.as_str() } else { "" };
        let held = entry.reservation.as_ref().is_some_and(|name| self.holds.contains_key(name));
        let input = PodInput {
            namespace: key.namespace.as_str().into(),
            name: key.name.as_str().into(),
            group,
            spec: entry.spec.clone(),
            role: role.into(),
            status,
            node,
            priority: entry.priority.into(),
            created: entry.created.map_or(0, |at| at.as_second()),
            preemptable: entry.preemptable && ours && !held,
            never_preempts: entry.never_preempts,
            critical: entry.critical,
            cooldown_s: entry.cooldown_s,
            labels: entry.labels.clone(),
        };
        entry.id = Some(self.cluster.add_pod(input));
        self.tell_more(key);
    }

    pub fn key_of(&self, id: PodId) -> Option<PodKey> {
        let pod = self.cluster.find_pod(id)?;
        Some(PodKey { namespace: pod.namespace.to_string(), name: pod.name.to_string() })
    }

    pub fn gang_of_group(&self, group: GroupId) -> Option<&GangKey> {
        self.gangs_by_group.get(&group)
    }

    fn count(&mut self, key: &PodKey, entry: &PodEntry) {
        match entry.counted_on() {
            Some(node) => {
                let node = node.to_owned();
                self.take(&node, entry.requests());
                self.seat(key, entry);
            }
            None if self.lacks_place(entry) => {
                self.count_unbound(&entry.spec, 1);
                self.effects.capacity = true;
            }
            None => {}
        }
    }

    /// Waits for a node and has no held place, which would count already.
    fn lacks_place(&self, entry: &PodEntry) -> bool {
        let is_held = |name: &String| self.holds.contains_key(name);
        entry.wants_node() && !entry.reservation.as_ref().is_some_and(is_held)
    }

    /// Recounts the pods of a reservation around a change of its hold.
    fn recount(&mut self, name: &str, change: impl FnOnce(&mut Self)) {
        let pods = self.reserved_pods.get(name).cloned().unwrap_or_default();
        let waits = |state: &Self| -> Vec<Arc<PodSpec>> {
            let waiting =
                pods.iter().filter_map(|key| state.pods.get(key)).filter(|pod| state.lacks_place(pod));
            waiting.map(|pod| pod.spec.clone()).collect()
        };
        waits(self).iter().for_each(|spec| self.count_unbound(spec, -1));
        change(self);
        waits(self).iter().for_each(|spec| self.count_unbound(spec, 1));
    }

    fn uncount(&mut self, key: &PodKey, entry: &PodEntry) {
        match entry.counted_on() {
            Some(node) => {
                let node = node.to_owned();
                self.unseat(key, entry);
                self.give_back(&node, entry.requests());
            }
            None if self.lacks_place(entry) => {
                self.count_unbound(&entry.spec, -1);
                self.effects.capacity = true;
            }
            None => {}
        }
    }

    // ---- holds

    /// Counts the hold's places; a hold of the same name is replaced.
    pub fn add_hold(&mut self, hold: Hold) {
        self.remove_hold(&hold.name);
        let name = hold.name.clone();
        if hold.places.iter().any(|place| place.leaving) {
            self.leaving.insert(name.clone());
        }
        for place in &hold.places {
            self.hold(&place.node, &place.requests);
        }
        self.recount(&name, |state| drop(state.holds.insert(name.clone(), hold)));
        self.effects.gates.insert(name.clone());
        for key in self.reserved_pods.get(&name).cloned().unwrap_or_default() {
            if let Some(entry) = self.pods.get(&key).cloned() {
                if entry.counted_on().is_some() {
                    self.seat(&key, &entry);
                } else if entry.is_pending() {
                    self.effects.dirty.insert(entry.gang.clone());
                }
            }
        }
    }

    /// Releases the places; returns whether the hold existed.
    pub fn remove_hold(&mut self, name: &str) -> bool {
        let mut removed = None;
        self.recount(name, |state| removed = state.holds.remove(name));
        let Some(hold) = removed else { return false };
        self.leaving.remove(name);
        for place in hold.places.iter().filter(|place| place.occupant.is_none()) {
            self.unhold(&place.node, &place.requests);
        }
        true
    }

    /// No pod uses a place of the hold.
    pub fn is_vacant(&self, name: &str) -> bool {
        self.holds.get(name).is_none_or(|hold| hold.places.iter().all(|place| place.occupant.is_none()))
    }

    /// Some pods of the reservation have nodes.
    pub fn is_placed(&self, name: &str) -> bool {
        let pods = self.reserved_pods.get(name).into_iter().flatten();
        pods.filter_map(|key| self.pods.get(key)).any(|pod| pod.counted_on().is_some())
    }

    /// The pods of the reservation might be released from their gates.
    pub fn look_at_gates(&mut self, name: String) {
        self.effects.gates.insert(name);
    }

    /// The pod's place in its reservation, if that is held.
    pub fn place_of(&self, key: &PodKey, entry: &PodEntry) -> Option<&Place> {
        let hold = self.holds.get(entry.reservation.as_deref()?)?;
        hold.place_for(key, &entry.component, entry.index, None).map(|at| &hold.places[at])
    }

    /// The pod is bound, so its place need not be held. If this agent binds it, its node is that of the
    /// place; if the member's own scheduler chose another node, the place is released as well.
    fn seat(&mut self, key: &PodKey, entry: &PodEntry) {
        let Some(hold) = entry.reservation.as_ref().and_then(|name| self.holds.get_mut(name)) else { return };
        let Some(at) = hold.place_for(key, &entry.component, entry.index, entry.counted_on()) else { return };
        let place = &hold.places[at];
        if place.occupant.is_none() {
            let (node, requests) = (place.node.clone(), place.requests.clone());
            hold.occupy(at, key.clone());
            // The pod uses what the place releases; capacity is freed only if it requests less.
            let freed = self.effects.freed
                || entry.counted_on() != Some(&*node)
                || !requests.fits_in(entry.requests());
            self.unhold(&node, &requests);
            self.effects.freed = freed;
        }
    }

    fn unseat(&mut self, key: &PodKey, entry: &PodEntry) {
        let Some(hold) = entry.reservation.as_ref().and_then(|name| self.holds.get_mut(name)) else { return };
        let Some(place) = hold.vacate(key) else { return };
        let (node, requests) = (place.node.clone(), place.requests.clone());
        self.hold(&node, &requests);
    }

    // ---- use of nodes

    fn hold(&mut self, node: &str, requests: &Resources) {
        self.take(node, requests);
        self.cluster.reserve(node, requests, 1);
    }

    fn unhold(&mut self, node: &str, requests: &Resources) {
        self.give_back(node, requests);
        self.cluster.reserve(node, requests, -1);
    }

    fn take(&mut self, node: &str, requests: &Resources) {
        let usage = self.usage.entry(node.to_owned()).or_default();
        usage.requests.add(requests);
        usage.pods += 1;
        self.nodes.assign(node, requests, 1);
        self.note_crowd(node);
        self.effects.capacity = true;
    }

    fn give_back(&mut self, node: &str, requests: &Resources) {
        if let Some(usage) = self.usage.get_mut(node) {
            usage.requests.sub(requests);
            usage.pods -= 1;
            if usage.pods == 0 {
                self.usage.remove(node);
            }
        }
        self.nodes.unassign(node, requests, 1);
        self.effects.capacity = true;
        self.effects.freed = true;
    }

    // ---- gangs

    fn join_gang(&mut self, key: &PodKey, entry: &PodEntry) {
        if !entry.ours {
            return;
        }
        if !self.gangs.contains_key(&entry.gang) {
            self.gangs.insert(entry.gang.clone(), GangEntry::default());
        }
        let Some(gang) = self.gangs.get_mut(&entry.gang) else { return };
        if !gang.pods.contains(key) {
            gang.pods.insert(key.clone());
        }
        if entry.unreadable.is_some() {
            gang.unreadable.insert(key.clone());
        } else {
            gang.unreadable.remove(key);
        }
        gang.size = entry.gang_size.max(1);
        let new = gang.group.is_none();
        if entry.is_pending() && !self.effects.dirty.contains(&entry.gang) {
            self.effects.dirty.insert(entry.gang.clone());
        }
        self.group_joined(&entry.gang, entry, new);
    }

    fn leave_gang(&mut self, key: &PodKey, entry: &PodEntry) {
        if let Some(gang) = self.gangs.get_mut(&entry.gang) {
            gang.pods.remove(key);
            gang.unreadable.remove(key);
            if gang.pods.is_empty() {
                let group = self.gangs.remove(&entry.gang).and_then(|gang| gang.group);
                self.drop_group(&entry.gang, group);
            }
        }
    }
}

#[cfg(test)]
mod shared_tests;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
