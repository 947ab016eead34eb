//! Pods behind Fleet's scheduling gate: once the whole gang exists, the member's own scheduler binds them to
//! the nodes reserved for them.

use std::{collections::BTreeMap, sync::Arc};

use super::{Hold, MemberState, PodEntry, PodKey, UNKNOWN_SIZE};

/// Label that selects one node.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// State of a gang behind gates.
#[derive(Debug, PartialEq, Eq)]
pub enum Gated {
    /// No pod of it waits behind the gate.
    Nothing,
    /// Why it waits.
    Waits(String),
    /// Pods to release, each to its reserved node: all pods of a gang; for pods that start one by one, those
    /// with cells.
    Go(Vec<Release>),
}

/// A pod whose gate is to be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    pub pod: PodKey,
    pub uid: String,
    /// Value of the label [`HOSTNAME`] of its node.
    pub hostname: String,
    /// Gates of others, which stay.
    pub others: Arc<[String]>,
    /// Annotations of its place, if it is on cells.
    pub marks: Option<Arc<BTreeMap<String, String>>>,
}

impl MemberState {
    /// Whether the pods of a reservation can be released now.
    pub fn gated(&self, reservation: &str) -> Gated {
        let pods = self.pods_of(reservation);
        let gated = |pod: &PodEntry| pod.held_back.is_some() && !pod.let_go;
        if !pods.iter().any(|(_, pod)| gated(pod)) {
            return Gated::Nothing;
        }
        let Some(hold) = self.holds.get(reservation) else {
            return Gated::Waits("no places are held for it".to_owned());
        };
        let one_by_one = is_one_by_one(hold, &pods);
        let said = pods.iter().map(|(_, pod)| pod.gang_size).filter(|size| *size < UNKNOWN_SIZE).max();
        let size = said.unwrap_or(hold.places.len());
        if pods.len() < size {
            return Gated::Waits(format!("waiting for the gang: {} of {size} pods exist", pods.len()));
        }
        let (mut hold, mut releases) = (hold.clone(), Vec::new());
        // Pods that are being bound take their places first.
        let on_their_way = pods.iter().filter(|(_, pod)| !gated(pod) && pod.wants_node());
        let (waiting, under_way): (Vec<_>, Vec<_>) =
            (pods.iter().filter(|(_, pod)| gated(pod)).collect(), on_their_way.collect());
        for (key, pod) in under_way.into_iter().chain(waiting) {
            let Some(at) = hold.place_for(key, &pod.component, pod.index, None) else {
                if one_by_one {
                    continue;
                }
                return Gated::Waits(format!("no place is left for pod {}", key.name));
            };
            hold.occupy(at, (*key).clone());
            let place = &hold.places[at];
            let Some(node) = self.nodes.get(&place.node).filter(|node| node.admits(&pod.spec.shape)) else {
                return Gated::Waits(format!(
                    "node {}, reserved for pod {}, no longer admits it",
                    place.node, key.name
                ));
            };
            let Some(others) = pod.held_back.clone().filter(|_| gated(pod)) else { continue };
            releases.push(Release {
                pod: (*key).clone(),
                uid: pod.uid.clone(),
                hostname: node.labels.get(HOSTNAME).unwrap_or(&node.name).clone(),
                others,
                marks: place.marks.clone(),
            });
        }
        if releases.is_empty() {
            return Gated::Waits("it has no cells of its virtual cluster yet".to_owned());
        }
        Gated::Go(releases)
    }

    /// For a gang whose gates were removed: pods with a node, and pods without one. For pods that start one
    /// by one, those with a node are in neither list.
    pub fn let_go(&self, reservation: &str) -> (Vec<PodKey>, Vec<PodKey>) {
        let pods = self.pods_of(reservation);
        let one_by_one = self.holds.get(reservation).is_some_and(|hold| is_one_by_one(hold, &pods));
        let others = pods.into_iter().filter(|(_, pod)| !pod.ours && !pod.finished);
        let (with, without): (Vec<_>, Vec<_>) = others.partition(|(_, pod)| pod.counted_on().is_some());
        let waiting = without.into_iter().filter(|(_, pod)| pod.held_back.is_none() || pod.let_go);
        let keys = |(key, _): (&PodKey, &PodEntry)| key.clone();
        let with = if one_by_one { Vec::new() } else { with };
        (with.into_iter().map(keys).collect(), waiting.map(keys).collect())
    }

    pub fn set_let_go(&mut self, pod: &PodKey, let_go: bool) {
        if let Some(entry) = self.pods.get_mut(pod) {
            entry.let_go = let_go;
        }
    }

    /// Pods behind the gate, whose condition is to be updated.
    pub fn behind_gate(&self, reservation: &str) -> Vec<PodKey> {
        let pods = self.pods_of(reservation).into_iter().filter(|(_, pod)| pod.held_back.is_some());
        pods.map(|(key, _)| key.clone()).collect()
    }

    /// Pods that name the reservation and are not being deleted, in order.
    fn pods_of(&self, reservation: &str) -> Vec<(&PodKey, &PodEntry)> {
        let keys = self.reserved_pods.get(reservation).into_iter().flatten();
        let pods = keys.filter_map(|key| Some((key, self.pods.get(key)?)));
        pods.filter(|(_, pod)| !pod.deleting).collect()
    }
}

/// Whether the pods of a hold on cells start one by one.
fn is_one_by_one(hold: &Hold, pods: &[(&PodKey, &PodEntry)]) -> bool {
    hold.of_cells && pods.iter().all(|(_, pod)| pod.gang_size == 1)
}
