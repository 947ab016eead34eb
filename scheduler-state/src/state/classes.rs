//! Classes of pods with the terms that they name: made for the first pod, dropped some time after the last one.
//!
//! Requests, selectors and names of resources are texts of those who own the pods. So what they fill is bounded: by the pods that
//! there are, and by the resources that are counted ([`MAX_ASKED`](crate::amounts::MAX_ASKED)).

use std::collections::BTreeSet;
use std::sync::Arc;

use fleet_resources::Resources;

use super::State;
use crate::ids::{ClassId, PodId, TermId};
use crate::pod::{Class, PodSpec, PodTerm, Status};

/// Number of classes at which those without pods are dropped. A job that comes back soon finds its class as it was.
const SWEPT_AT: usize = 1024;

impl State {
    /// The class of pods with that spec. It is kept until the next call, and as long as it has pods.
    pub(super) fn intern_class(&mut self, spec: &Arc<PodSpec>) -> ClassId {
        if let Some(id) = self.class_ids.get(spec) {
            return *id;
        }
        self.sweep_classes();
        let (request, whole) = self.dimensions.asked(&spec.shape.requests);
        self.nodes.widen(self.dimensions.len());
        let mut class = Class {
            spec: spec.clone(),
            serial: self.next_serial(),
            pods: 0,
            request,
            whole,
            affinity: Vec::new(),
            anti_affinity: Vec::new(),
            preferred_pods: Vec::new(),
            spread: Vec::new(),
        };
        if let Some(extras) = spec.extras.clone() {
            class.affinity = extras.affinity.iter().map(|term| self.intern_term(term)).collect();
            class.anti_affinity = extras.anti_affinity.iter().map(|term| self.intern_term(term)).collect();
            let preferred = extras.preferred_pods.iter();
            class.preferred_pods =
                preferred.map(|(weight, term)| (*weight, self.intern_term(term))).collect();
            let spread = extras.spread.iter();
            class.spread = spread.map(|spread| (spread.clone(), self.intern_term(&spread.term))).collect();
        }
        let id = self.free_classes.pop().unwrap_or_else(|| {
            self.classes.push(None);
            self.classes.len() as ClassId - 1
        });
        if !whole {
            self.cut_classes.insert(id);
        }
        self.classes[id as usize] = Some(class);
        self.class_ids.insert(spec.clone(), id);
        id
    }

    fn next_serial(&mut self) -> u64 {
        self.last_serial += 1;
        self.last_serial
    }

    pub(super) fn class_mut(&mut self, id: ClassId) -> &mut Class {
        self.classes[id as usize].as_mut().unwrap_or_else(|| unreachable!("class {id} was dropped"))
    }

    pub(super) fn count_of_class(&mut self, id: ClassId, sign: i32) {
        let class = self.class_mut(id);
        class.pods = class.pods.saturating_add_signed(sign);
    }

    /// Drops classes without pods, and terms that only they name. Each sweep waits until there are twice as many classes as the one
    /// before it left, so that it costs a constant for each new class.
    fn sweep_classes(&mut self) {
        if self.class_ids.len() < SWEPT_AT.max(self.classes_left * 2) {
            return;
        }
        let gone: BTreeSet<ClassId> =
            self.class_ids.values().copied().filter(|id| self.class(*id).pods == 0).collect();
        self.class_ids.retain(|_, id| !gone.contains(id));
        gone.iter().for_each(|id| self.classes[*id as usize] = None);
        self.free_classes.extend(&gone);
        self.cut_classes.retain(|id| !gone.contains(id));
        self.extender.forget_classes(&gone);
        self.classes_left = self.class_ids.len();
        self.sweep_terms();
        // Groups that changed since the last cycle may still wait under a number that now gets another meaning.
        self.freed();
    }

    fn sweep_terms(&mut self) {
        let mut used: BTreeSet<TermId> = BTreeSet::new();
        for class in self.classes.iter().flatten() {
            used.extend(class.affinity.iter().chain(&class.anti_affinity));
            used.extend(class.preferred_pods.iter().map(|(_, term)| term));
            used.extend(class.spread.iter().map(|(_, term)| term));
        }
        if self.terms.keep(&used) {
            let pods = self.pods.iter_mut().flatten();
            pods.for_each(|pod| pod.matches.retain(|term| used.contains(term)));
        }
    }

    fn intern_term(&mut self, term: &PodTerm) -> TermId {
        let (id, new) = self.terms.intern(term);
        if new {
            // Pods that were added before the term was known.
            for pod in self.pods_in(self.terms.namespaces(id)) {
                let Some(known) = self.find_pod(pod) else { continue };
                if self.terms.selects(id, &known.labels) {
                    let domain = known.node.and_then(|node| self.domain_of(node, id));
                    if known.node.is_some()
                        && (known.status.uses_node() || known.status == Status::Pipelined)
                        && known.status != Status::Releasing
                    {
                        self.terms.count_selected(id, domain.as_deref(), 1);
                    }
                    self.pod_mut(pod).matches.push(id);
                }
            }
        }
        id
    }

    /// The pods of these namespaces; of none: all.
    fn pods_in(&self, namespaces: &[String]) -> Vec<PodId> {
        if namespaces.is_empty() {
            return (0..self.pods.len() as PodId).collect();
        }
        let namespaces: BTreeSet<&str> = namespaces.iter().map(String::as_str).collect();
        let known = namespaces.into_iter().filter_map(|namespace| self.by_namespace.get(namespace));
        known.flatten().copied().collect()
    }

    /// What a group needs at least; keys are those of a resource quota.
    pub(super) fn minimum_of(&mut self, resources: &Resources) -> Vec<i64> {
        let (minimum, whole) = self.dimensions.minimum(&quota_keys(resources));
        self.has_cut_minima |= !whole;
        minimum
    }

    /// Nodes, queues or reserved places have brought about resources beyond the first `positions`: requests that named them in vain
    /// count them from now on.
    pub(super) fn complete_requests(&mut self, positions: usize) {
        if self.dimensions.len() == positions {
            return;
        }
        if !self.cut_classes.is_empty() {
            self.complete_classes();
        }
        if std::mem::take(&mut self.has_cut_minima) {
            for id in self.group_list() {
                let Some(resources) = self.group(id).input.min_resources.clone() else { continue };
                let minimum = Some(self.minimum_of(&resources));
                if self.group(id).min_resources != minimum {
                    self.group_mut(id).min_resources = minimum;
                    self.mark(id);
                }
            }
        }
        self.nodes.widen(self.dimensions.len());
    }

    fn complete_classes(&mut self) {
        let mut changed = BTreeSet::new();
        let mut requests = Vec::new();
        for id in std::mem::take(&mut self.cut_classes) {
            let class = self.class(id);
            let (spec, before) = (class.spec.clone(), class.request.clone());
            let (request, whole) = self.dimensions.asked(&spec.shape.requests);
            if !whole {
                self.cut_classes.insert(id);
            }
            if whole || request != before {
                changed.insert(id);
                requests.push((id, request, whole));
            }
        }
        self.nodes.widen(self.dimensions.len());
        let numbered = (0..self.pods.len() as PodId).zip(&self.pods);
        let of_changed = |(id, pod): (PodId, &Option<crate::pod::Pod>)| {
            pod.as_ref().filter(|pod| changed.contains(&pod.class)).map(|_| id)
        };
        let pods: Vec<PodId> = numbered.filter_map(of_changed).collect();
        pods.iter().for_each(|pod| self.count(*pod, -1));
        for (id, request, whole) in requests {
            let serial = self.next_serial();
            let class = self.class_mut(id);
            (class.serial, class.request, class.whole) = (serial, request, whole);
        }
        pods.iter().for_each(|pod| self.count(*pod, 1));
        self.freed();
    }
}

/// The keys of a resource quota as resources: `requests.cpu` is cpu; limits and counts are ignored.
fn quota_keys(resources: &Resources) -> Resources {
    let mut found = Resources::new();
    for (name, amount) in resources.iter() {
        let text = name.as_str();
        if text.starts_with("limits.") || text.starts_with("count/") {
            continue;
        }
        let name = text.strip_prefix("requests.").unwrap_or(text);
        if found.get(name) < amount {
            found.set(name, amount);
        }
    }
    found
}

#[cfg(test)]
mod tests;
