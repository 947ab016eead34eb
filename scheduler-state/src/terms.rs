//! Pod affinity, anti-affinity and spreading: counts of selected pods per topology domain.
//!
//! A term is counted once, however many classes name it. Pods know which terms select them, so placing a pod costs
//! by the terms that concern it, which is none for most pods. The terms that select a new pod are found by its
//! namespace and by its labels: each application may have a term of its own, which selects no other's pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_resources::constraints::NodeSelectorOperator;

use crate::ids::TermId;
use crate::pod::{Labels, PodTerm};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    /// Pods in the domain that the term selects.
    selected: i64,
    /// Pods in the domain whose own required anti-affinity is this term.
    repelling: i64,
}

#[derive(Clone, Debug)]
struct Term {
    term: Arc<PodTerm>,
    domains: BTreeMap<Arc<str>, Count>,
    selected: i64,
    repelling: i64,
}

/// Terms by what they ask of a pod's labels.
#[derive(Clone, Debug, Default)]
struct Asking {
    /// Terms that ask for one of some values of a label, by label and value.
    for_value: BTreeMap<String, BTreeMap<String, BTreeSet<TermId>>>,
    /// The others.
    for_more: BTreeSet<TermId>,
}

#[derive(Clone, Debug, Default)]
pub struct Terms {
    list: Vec<Option<Term>>,
    free: Vec<TermId>,
    by_term: BTreeMap<Arc<PodTerm>, TermId>,
    /// Terms for pods of some namespaces, by namespace.
    somewhere: BTreeMap<String, Asking>,
    /// Terms for pods of all.
    everywhere: Asking,
}

/// Most places of one term among those that ask for values.
const MAX_VALUES: usize = 64;

/// The label of which a term asks for one of some values, and these; `None`: it asks for other things, or for too many.
fn values_of(term: &PodTerm) -> Option<(&str, &[String])> {
    let wanted = term.selector.iter().find(|rule| rule.operator == NodeSelectorOperator::In)?;
    let places = wanted.values.len().saturating_mul(term.namespaces.len().max(1));
    (places <= MAX_VALUES).then_some((wanted.key.as_str(), wanted.values.as_slice()))
}

impl Asking {
    fn add(&mut self, id: TermId, term: &PodTerm) {
        let Some((label, values)) = values_of(term) else {
            self.for_more.insert(id);
            return;
        };
        let of_label = self.for_value.entry(label.to_owned()).or_default();
        for value in values {
            of_label.entry(value.clone()).or_default().insert(id);
        }
    }

    fn remove(&mut self, id: TermId, term: &PodTerm) {
        self.for_more.remove(&id);
        let Some((label, values)) = values_of(term) else { return };
        let Some(of_label) = self.for_value.get_mut(label) else { return };
        for value in values {
            if let Some(terms) = of_label.get_mut(value) {
                terms.remove(&id);
                if terms.is_empty() {
                    of_label.remove(value);
                }
            }
        }
        if of_label.is_empty() {
            self.for_value.remove(label);
        }
    }

    fn is_empty(&self) -> bool {
        self.for_value.is_empty() && self.for_more.is_empty()
    }

    /// Terms that may select a pod with these labels.
    fn find(&self, labels: &Labels, found: &mut Vec<TermId>) {
        found.extend(&self.for_more);
        if self.for_value.is_empty() {
            return;
        }
        for (label, value) in labels.iter() {
            let terms = self.for_value.get(label).and_then(|of_label| of_label.get(value));
            found.extend(terms.into_iter().flatten());
        }
    }
}

impl Terms {
    pub fn is_empty(&self) -> bool {
        self.by_term.is_empty()
    }

    pub fn len(&self) -> usize {
        self.by_term.len()
    }

    fn get(&self, id: TermId) -> &Term {
        self.list[id as usize].as_ref().unwrap_or_else(|| unreachable!("term {id} was dropped"))
    }

    fn get_mut(&mut self, id: TermId) -> &mut Term {
        self.list[id as usize].as_mut().unwrap_or_else(|| unreachable!("term {id} was dropped"))
    }

    /// The term's number, and whether it is new.
    pub fn intern(&mut self, term: &PodTerm) -> (TermId, bool) {
        if let Some(id) = self.by_term.get(term) {
            return (*id, false);
        }
        let term = Arc::new(term.clone());
        let id = self.free.pop().unwrap_or_else(|| {
            self.list.push(None);
            self.list.len() as TermId - 1
        });
        self.by_term.insert(term.clone(), id);
        if term.namespaces.is_empty() {
            self.everywhere.add(id, &term);
        }
        for namespace in &term.namespaces {
            self.somewhere.entry(namespace.clone()).or_default().add(id, &term);
        }
        self.list[id as usize] = Some(Term { term, domains: BTreeMap::new(), selected: 0, repelling: 0 });
        (id, true)
    }

    /// Drops all other terms, and returns whether there were any. No class and no pod may name them any more.
    pub(crate) fn keep(&mut self, used: &BTreeSet<TermId>) -> bool {
        let gone: Vec<TermId> = self.by_term.values().copied().filter(|id| !used.contains(id)).collect();
        self.by_term.retain(|_, id| used.contains(id));
        for id in &gone {
            let Some(Term { term, .. }) = self.list[*id as usize].take() else { continue };
            self.everywhere.remove(*id, &term);
            for namespace in &term.namespaces {
                if let Some(asking) = self.somewhere.get_mut(namespace) {
                    asking.remove(*id, &term);
                    if asking.is_empty() {
                        self.somewhere.remove(namespace);
                    }
                }
            }
        }
        self.free.extend(&gone);
        !gone.is_empty()
    }

    pub fn key(&self, id: TermId) -> &str {
        &self.get(id).term.topology_key
    }

    /// Namespaces of the pods that the term selects; empty: all.
    pub fn namespaces(&self, id: TermId) -> &[String] {
        &self.get(id).term.namespaces
    }

    /// Whether the term selects pods with these labels, in its namespaces.
    pub fn selects(&self, id: TermId, labels: &Labels) -> bool {
        let mut rules = self.get(id).term.selector.iter();
        rules.all(|requirement| requirement.matches(labels.get(&requirement.key)))
    }

    /// The terms that select a pod, by number.
    pub fn selected_by(&self, namespace: &str, labels: &Labels) -> Vec<TermId> {
        let mut found = Vec::new();
        self.everywhere.find(labels, &mut found);
        if let Some(asking) = self.somewhere.get(namespace) {
            asking.find(labels, &mut found);
        }
        found.retain(|id| self.selects(*id, labels));
        found.sort_unstable();
        found
    }

    pub fn count_selected(&mut self, id: TermId, domain: Option<&str>, sign: i64) {
        let term = self.get_mut(id);
        term.selected += sign;
        if let Some(domain) = domain {
            term.change(domain, |count| count.selected += sign);
        }
    }

    pub fn count_repelling(&mut self, id: TermId, domain: Option<&str>, sign: i64) {
        let term = self.get_mut(id);
        term.repelling += sign;
        if let Some(domain) = domain {
            term.change(domain, |count| count.repelling += sign);
        }
    }

    /// Selected pods in a domain.
    pub fn selected(&self, id: TermId, domain: &str) -> i64 {
        self.get(id).domains.get(domain).map_or(0, |count| count.selected)
    }

    /// Selected pods anywhere.
    pub fn selected_anywhere(&self, id: TermId) -> i64 {
        self.get(id).selected
    }

    /// Whether a pod in the domain has anti-affinity to the selected pods.
    pub fn repels(&self, id: TermId, domain: Option<&str>) -> bool {
        let term = self.get(id);
        term.repelling > 0
            && domain.is_some_and(|domain| term.domains.get(domain).is_some_and(|count| count.repelling > 0))
    }
}

impl Term {
    fn change(&mut self, domain: &str, change: impl Fn(&mut Count)) {
        match self.domains.get_mut(domain) {
            Some(count) => {
                change(count);
                if *count == Count::default() {
                    self.domains.remove(domain);
                }
            }
            None => {
                let mut count = Count::default();
                change(&mut count);
                self.domains.insert(domain.into(), count);
            }
        }
    }
}
