//! The gang scheduler: which pods go to which nodes now.
//!
//! [`decide`] looks at one gang and either takes places for all of its pods that wait, or says in one
//! sentence why not. Order between gangs, retries and writes are the core task's; deliberately absent
//! here are clocks and IO.

pub(crate) mod write;

use std::collections::BTreeMap;

use fleet_placement::{Gang, GangComponent, NodeIndex, PodShape, Refusal, place_gang};

use crate::state::{GangKey, MemberState, PodEntry, PodKey};

/// Orders gangs: higher priority, then older, then by name.
pub(crate) type Rank = (std::cmp::Reverse<i32>, Option<jiff::Timestamp>, GangKey);

/// What one look at a gang came to.
#[derive(Debug)]
pub(crate) enum Decision {
    /// No pod waits.
    Nothing,
    /// Fewer pods exist than the gang must have.
    Incomplete { exist: usize, size: usize },
    /// Places are taken: bind these pods.
    Bind(Vec<Binding>),
    /// The pods stay where they are.
    Refused(Refused),
}

/// One pod and its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    pub pod: PodKey,
    pub uid: String,
    pub node: String,
    pub scheduler_name: String,
}

#[derive(Debug)]
pub(crate) struct Refused {
    /// One sentence for people.
    pub message: String,
    /// Some of its pods are bound, but not enough for it to start, and it has no hold: these are to give
    /// their places back when that lasts.
    pub half_bound: Vec<PodKey>,
}

/// Gangs refused in one pass, by what they ask for: while nothing comes free, an equal gang is refused
/// as well.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    refused: BTreeMap<Vec<(PodShape, i64)>, Refusal>,
}

/// Where the gang stands in line; `None` when none of its pods waits.
pub(crate) fn rank(state: &MemberState, key: &GangKey) -> Option<Rank> {
    let gang = state.gang(key)?;
    let waiting = || gang.pods.iter().filter_map(|pod| state.pod(pod)).filter(|pod| pod.is_pending());
    let priority = waiting().map(|pod| pod.priority).max()?;
    let created = waiting().filter_map(|pod| pod.created).min();
    Some((std::cmp::Reverse(priority), created, key.clone()))
}

/// Places what waits of one gang: all that its size demands or nothing, then as many of the rest as fit.
pub(crate) fn decide(state: &mut MemberState, key: &GangKey, memo: &mut Memo) -> Decision {
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
    // Pods behind a scheduling gate are not there yet.
    let exist = pending.len() + placed;
    if exist < size {
        return Decision::Incomplete { exist, size };
    }
    if let Some((pod, error)) = pending.iter().find_map(|(key, pod)| Some((key, pod.unreadable.as_ref()?))) {
        return refuse(format!("pod {}: {error}", pod.name), Vec::new());
    }
    let demanded = size.saturating_sub(placed);
    let rest = pending.split_off(demanded);
    let mut bindings = match place_all(state, &pending, memo) {
        Ok(bindings) => bindings,
        Err(message) => return refuse(message, half_bound(&settled, &pending, size)),
    };
    let mut refusal = None;
    for one in rest {
        match place_all(state, &[one], memo) {
            Ok(binding) => bindings.extend(binding),
            Err(message) => refusal = Some(message),
        }
    }
    match refusal {
        Some(message) if bindings.is_empty() => refuse(message, Vec::new()),
        _ => Decision::Bind(bindings),
    }
}

fn refuse(message: String, half_bound: Vec<PodKey>) -> Decision {
    Decision::Refused(Refused { message, half_bound })
}

/// Bound pods of a gang that was never complete. Pods that were made after a bound pod started replace
/// others: that gang has run, and its job's controller decides about it.
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

/// Takes a place for each pod, or changes nothing and says why.
fn place_all(
    state: &mut MemberState,
    pods: &[(PodKey, PodEntry)],
    memo: &mut Memo,
) -> Result<Vec<Binding>, String> {
    let before = state.take_effects();
    let mut bindings = Vec::with_capacity(pods.len());
    let mut unplaced = Vec::new();
    for (key, pod) in pods {
        match held_node(state, key, pod) {
            Some(node) => {
                state.assume(key, &node);
                bindings.push(binding(key, pod, node));
            }
            None => unplaced.push((key, pod)),
        }
    }
    let planned = plan(state.nodes(), &unplaced, memo);
    match planned {
        Ok(nodes) => {
            for ((key, pod), node) in unplaced.into_iter().zip(nodes) {
                state.assume(key, &node);
                bindings.push(binding(key, pod, node));
            }
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

fn binding(key: &PodKey, pod: &PodEntry, node: String) -> Binding {
    Binding { pod: key.clone(), uid: pod.uid.clone(), node, scheduler_name: pod.scheduler_name.clone() }
}

/// The node held for the pod, when the pod may go there and fits. A place whose node has gone, or may
/// not be used any more, binds nobody: the pod is placed as if it had none.
fn held_node(state: &MemberState, key: &PodKey, pod: &PodEntry) -> Option<String> {
    let place = state.place_of(key, pod)?;
    let node = state.nodes().get(&place.node)?;
    // The place itself is counted as used until the pod has it.
    let free = node.free().plus(&place.requests);
    let fits = node.admits(&pod.shape) && pod.shape.requests.fits_in(&free);
    (fits && place.occupant.is_none()).then(|| place.node.clone())
}

/// A node for each pod, in their order.
fn plan(nodes: &NodeIndex, pods: &[(&PodKey, &PodEntry)], memo: &mut Memo) -> Result<Vec<String>, String> {
    if pods.is_empty() {
        return Ok(Vec::new());
    }
    let mut components: Vec<GangComponent> = Vec::new();
    let mut component_of = Vec::with_capacity(pods.len());
    for (_, pod) in pods {
        let same =
            |known: &GangComponent| known.shape == *pod.shape && base(&known.name) == component_name(pod);
        let at = components.iter().position(same).unwrap_or_else(|| {
            let name = unused_name(&components, component_name(pod));
            components.push(GangComponent::whole(&name, 0, (*pod.shape).clone()));
            components.len() - 1
        });
        components[at].replicas += 1;
        components[at].min += 1;
        component_of.push(at);
    }
    let gang = Gang { components };
    let asked: Vec<(PodShape, i64)> = gang.components.iter().map(|c| (c.shape.clone(), c.replicas)).collect();
    if let Some(refusal) = memo.refused.get(&asked) {
        return Err(refusal.sentence());
    }
    let placement = place_gang(nodes, &gang).map_err(|refusal| {
        let message = refusal.sentence();
        memo.refused.insert(asked, refusal);
        message
    })?;
    let mut places: Vec<_> = gang
        .components
        .iter()
        .map(|component| placement.components.get(&component.name).cloned().unwrap_or_default().into_iter())
        .collect();
    component_of
        .into_iter()
        .map(|at| places[at].next().ok_or_else(|| "the plan holds fewer places than pods".to_owned()))
        .collect()
}

fn component_name(pod: &PodEntry) -> &str {
    if pod.component.is_empty() { "pod" } else { &pod.component }
}

/// Pods of one component with different shapes become components of their own: `worker`, `worker/2`.
fn unused_name(components: &[GangComponent], name: &str) -> String {
    match components.iter().filter(|known| base(&known.name) == name).count() {
        0 => name.to_owned(),
        known => format!("{name}/{}", known + 1),
    }
}

fn base(name: &str) -> &str {
    name.split_once('/').map_or(name, |(base, _)| base)
}

#[cfg(test)]
mod tests;
