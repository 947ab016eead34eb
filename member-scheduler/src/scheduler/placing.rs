//! Gangs with places reserved by the hub: assigns pods to nodes.
//!
//! [`decide`] considers one gang and either takes places for all of its waiting pods, or returns one sentence
//! why not. The core task has the order of gangs, retries and writes. Deliberately absent: clocks and IO.

use std::collections::BTreeMap;

use fleet_agent_ground::lean::LeanPod;
use fleet_api::mutation::{self, Mutation};
use fleet_member_state::{GangKey, MemberState, PodEntry, PodKey, devices::Assigned};

use super::binding::Binding;

/// The scheduler of pods without a scheduler name.
const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// Order of gangs: higher priority, then older, then by name.
pub(crate) type Rank = (std::cmp::Reverse<i32>, Option<jiff::Timestamp>, GangKey);

/// Result for one gang.
#[derive(Debug)]
pub(crate) enum Decision {
    /// No pod waits.
    Nothing,
    /// Fewer pods exist than the gang needs.
    Incomplete { exist: usize, size: usize },
    /// Places are taken: bind these pods.
    Bind(Vec<Binding>),
    /// The pods keep waiting.
    Refused(Refused),
}

#[derive(Debug)]
pub(crate) struct Refused {
    /// One sentence for users.
    pub message: String,
    /// Some of its pods are bound, but too few for it to start, and it has no hold: these pods release their
    /// places if that lasts.
    pub half_bound: Vec<PodKey>,
}

/// The gang's position in the order; `None` if none of its pods waits.
pub(crate) fn rank(state: &MemberState, key: &GangKey) -> Option<Rank> {
    let gang = state.gang(key)?;
    let waiting = || gang.pods.iter().filter_map(|pod| state.pod(pod)).filter(|pod| pod.is_pending());
    let priority = waiting().map(|pod| pod.priority).max()?;
    let created = waiting().filter_map(|pod| pod.created).min();
    Some((std::cmp::Reverse(priority), created, key.clone()))
}

/// Whether the hub has reserved places for the gang, or its pods name a reservation: its pods are placed by
/// name.
pub(crate) fn is_reserved(state: &MemberState, key: &GangKey) -> bool {
    let group = state.gang(key).and_then(|gang| gang.group);
    group.and_then(|group| state.cluster.try_group(group)).is_some_and(|group| group.input.manual)
}

/// Bound pods of a gang without a hold that was never complete. Without the plugin gang there are no gangs:
/// pods start one by one and keep their places.
pub(crate) fn half_bound_pods(state: &MemberState, key: &GangKey) -> Vec<PodKey> {
    if !state.cluster.policy.gang {
        return Vec::new();
    }
    let Some(gang) = state.gang(key) else { return Vec::new() };
    let members = gang.pods.iter().filter_map(|pod| state.pod(pod).map(|entry| (pod.clone(), entry.clone())));
    let members = members.filter(|(_, pod)| !pod.deleting);
    let (pending, settled): (Vec<_>, Vec<_>) = members.partition(|(_, pod)| pod.is_pending());
    if settled.is_empty() || settled.len() >= gang.size {
        return Vec::new();
    }
    half_bound(&settled, &pending, gang.size)
}

/// Places the waiting pods of one gang: all that its size requires or none, then as many further pods as fit.
pub(crate) fn decide(state: &mut MemberState, key: &GangKey) -> Decision {
    let Some(gang) = state.gang(key) else { return Decision::Nothing };
    let size = gang.size;
    let members: Vec<(PodKey, PodEntry)> = gang
        .pods
        .iter()
        .filter_map(|pod| state.pod(pod).map(|entry| (pod.clone(), entry.clone())))
        .filter(|(_, pod)| !pod.deleting)
        .collect();
    let (mut pending, settled): (Vec<_>, Vec<_>) = members.into_iter().partition(|(_, pod)| pod.is_pending());
    if pending.is_empty() {
        return Decision::Nothing;
    }
    let placed = settled.iter().filter(|(_, pod)| pod.finished || pod.counted_on().is_some()).count();
    // Pods behind a scheduling gate do not count yet.
    let exist = pending.len() + placed;
    let one_by_one = mutation::is_on(Mutation::GangBoundOneByOne);
    if exist < size && !one_by_one {
        return Decision::Incomplete { exist, size };
    }
    if let Some((pod, error)) = pending.iter().find_map(|(key, pod)| Some((key, pod.unreadable.as_ref()?))) {
        return refuse(format!("pod {}: {error}", pod.name), Vec::new());
    }
    // For pods that start one by one, those with cells go first.
    pending.sort_by_key(|(key, pod)| state.is_bound_to_cells(pod) && held_node(state, key, pod).is_none());
    let surplus = drop_surplus(state, &mut pending);
    let demanded = if one_by_one { 0 } else { size.saturating_sub(placed) };
    if let Some(message) = surplus.as_ref().filter(|_| pending.len() < demanded) {
        return refuse(message.clone(), half_bound(&settled, &pending, size));
    }
    let rest = pending.split_off(demanded);
    let mut bindings = match place_all(state, key, &pending) {
        Ok(bindings) => bindings,
        Err(message) => return refuse(message, half_bound(&settled, &pending, size)),
    };
    let mut refusal = surplus;
    for one in rest {
        match place_all(state, key, &[one]) {
            Ok(binding) => bindings.extend(binding),
            Err(message) => refusal = Some(message),
        }
    }
    match refusal {
        Some(message) if bindings.is_empty() => {
            let back = settled.iter().filter(|(_, pod)| one_by_one && pod.counted_on().is_some());
            refuse(message, back.map(|(key, _)| key.clone()).collect())
        }
        _ => Decision::Bind(bindings),
    }
}

/// Leaves out pods beyond what was reserved for their run, and says why they wait: what they would use counts nowhere.
fn drop_surplus(state: &MemberState, pending: &mut Vec<(PodKey, PodEntry)>) -> Option<String> {
    let mut left: BTreeMap<String, usize> = BTreeMap::new();
    let fits = |(_, pod): &(PodKey, PodEntry)| {
        let (Some(name), Some(room)) = (&pod.reservation, state.places_left(pod)) else { return true };
        let left = left.entry(name.clone()).or_insert(room);
        let fits = *left > 0;
        *left = left.saturating_sub(1);
        fits
    };
    // Those whose own place is free go first.
    pending.sort_by_key(|(key, pod)| held_node(state, key, pod).is_none());
    let (fitting, surplus): (Vec<_>, Vec<_>) = std::mem::take(pending).into_iter().partition(fits);
    *pending = fitting;
    let (key, _) = surplus.first()?;
    Some(format!(
        "pod {}: other pods of its run use all that is reserved for it; it waits for their end",
        key.name
    ))
}

fn refuse(message: String, half_bound: Vec<PodKey>) -> Decision {
    Decision::Refused(Refused { message, half_bound })
}

/// Bound pods of a gang that was never complete. A pod created after a bound pod started replaces another
/// one: that gang has run, and its job's controller decides about it.
fn half_bound(settled: &[(PodKey, PodEntry)], pending: &[(PodKey, PodEntry)], size: usize) -> Vec<PodKey> {
    let bound = || settled.iter().filter(|(_, pod)| pod.counted_on().is_some());
    let first_start = bound().filter_map(|(_, pod)| pod.started).min();
    let replaced = pending.iter().any(|(_, pod)| match (pod.created, first_start) {
        (Some(created), Some(started)) => created > started,
        _ => false,
    });
    let held = pending.iter().chain(settled).any(|(_, pod)| pod.reservation.is_some());
    if size < 2 || replaced || held || settled.iter().any(|(_, pod)| pod.finished) {
        return Vec::new();
    }
    bound().map(|(key, _)| key.clone()).collect()
}

/// Takes a place for each pod, or changes nothing and returns why.
fn place_all(
    state: &mut MemberState,
    gang: &GangKey,
    pods: &[(PodKey, PodEntry)],
) -> Result<Vec<Binding>, String> {
    let before = state.take_effects();
    let mut bindings = Vec::with_capacity(pods.len());
    let mut unplaced = Vec::new();
    for (key, pod) in pods {
        match held_node(state, key, pod) {
            Some(node) => {
                state.assume(key, &node);
                bindings.push(binding(state, key, pod, node));
            }
            None if state.is_bound_to_cells(pod) => {
                for taken in &bindings {
                    let taken: &Binding = taken;
                    state.forget(&taken.pod, &taken.uid);
                }
                state.take_effects();
                state.merge_effects(before);
                return Err(no_cells(state, key, pod));
            }
            None => unplaced.push((key, pod)),
        }
    }
    let ids: Vec<u32> = unplaced.iter().filter_map(|(key, _)| state.pod(key)?.id).collect();
    let group = state.gang(gang).and_then(|gang| gang.group);
    let planned = match group {
        _ if unplaced.is_empty() => Ok(Vec::new()),
        Some(group) => state.cluster.place_exactly(group, &ids).map_err(|why| why.to_string()),
        None => Err("the gang is not known to the scheduler".to_owned()),
    };
    match planned {
        Ok(placed) => {
            for (id, node) in placed {
                let node = state.cluster.nodes.get(node).name.to_string();
                let Some(key) = state.key_of(id) else { continue };
                let Some((_, pod)) = unplaced.iter().find(|(known, _)| **known == key) else { continue };
                state.assume(&key, &node);
                bindings.push(binding(state, &key, pod, node));
            }
            bindings.sort_by(|a, b| a.pod.cmp(&b.pod));
            state.merge_effects(before);
            Ok(bindings)
        }
        Err(message) => {
            for taken in &bindings {
                state.forget(&taken.pod, &taken.uid);
            }
            state.take_effects();
            state.merge_effects(before);
            Err(message)
        }
    }
}

fn no_cells(state: &MemberState, key: &PodKey, pod: &PodEntry) -> String {
    match state.place_of(key, pod) {
        Some(place) => {
            format!("pod {}: node {}, where its cells are, does not take it now", key.name, place.node)
        }
        None => format!("pod {}: it has no cells of its virtual cluster yet", key.name),
    }
}

/// The binding of a pod whose place is taken already.
pub(crate) fn binding(state: &MemberState, key: &PodKey, pod: &PodEntry, node: String) -> Binding {
    let known =
        pod.id.and_then(|id| state.cluster.find_pod(id)).filter(|known| !known.reserved.parts.is_empty());
    let devices = known.map(|known| {
        let id = state.cluster.nodes.find(&node);
        Box::new(Assigned {
            parts: known.reserved.parts.clone(),
            asks: pod.spec.extras.as_ref().map_or(Vec::new(), |extras| extras.devices.clone()),
            cards: id.map_or(Vec::new(), |id| state.cluster.nodes.get(id).cards.clone()),
        })
    });
    let marks =
        state.place_of(key, pod).filter(|place| place.node == node).and_then(|place| place.marks.clone());
    Binding {
        pod: key.clone(),
        uid: pod.uid.clone(),
        node,
        scheduler_name: pod.scheduler_name.clone(),
        devices,
        marks,
        check: None,
    }
}

/// The node held for the pod, if the pod may run there and fits. A place on a node that is gone or unusable
/// is ignored: the pod is placed as if it had none.
fn held_node(state: &MemberState, key: &PodKey, pod: &PodEntry) -> Option<String> {
    let place = state.place_of(key, pod)?;
    let node = state.nodes().get(&place.node)?;
    // The place itself counts as used until the pod has it.
    let free = node.free().plus(&place.requests);
    let fits = node.admits(&pod.spec.shape) && pod.requests().fits_in(&free);
    (fits && place.occupant.is_none()).then(|| place.node.clone())
}

/// The node held for a pod that does not exist yet, if the pod may be created on that node at once: it needs
/// no other pods, and only its place matters. The conditions of [`held_node`] apply as well. A pod with cells
/// is bound instead, because its binding carries its devices.
pub(crate) fn node_for_one(state: &MemberState, pod: &LeanPod) -> Option<String> {
    let mut pod = pod.clone();
    // As the API server will do.
    pod.spec.scheduler_name.get_or_insert_with(|| DEFAULT_SCHEDULER.to_owned());
    pod.metadata.uid.get_or_insert_default();
    let entry = PodEntry::read(&pod, state.scheduler_names())?;
    let key = PodKey::of(&pod);
    let alone = entry.gang_size == 1 && entry.group_owner.is_none() && entry.spec.extras.is_none();
    let may = alone && entry.is_pending() && entry.unreadable.is_none() && state.pod(&key).is_none();
    let may = may && !state.is_bound_to_cells(&entry);
    may.then(|| held_node(state, &key, &entry)).flatten()
}

#[cfg(test)]
mod tests;
