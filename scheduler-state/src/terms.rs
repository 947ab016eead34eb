//! Pod affinity, anti-affinity and spreading: counts of selected pods per topology domain.
//!
//! A term is counted once, however many classes name it. Pods know which terms select them, so placing a pod costs
//! by the terms that concern it, which is none for most pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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

#[derive(Clone, Debug, Default)]
pub struct Terms {
    list: Vec<Option<Term>>,
    free: Vec<TermId>,
    by_term: BTreeMap<Arc<PodTerm>, TermId>,
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
        self.list[id as usize] = Some(Term { term, domains: BTreeMap::new(), selected: 0, repelling: 0 });
        (id, true)
    }

    /// Drops all other terms, and returns whether there were any. No class and no pod may name them any more.
    pub(crate) fn keep(&mut self, used: &BTreeSet<TermId>) -> bool {
        let gone: Vec<TermId> = self.by_term.values().copied().filter(|id| !used.contains(id)).collect();
        self.by_term.retain(|_, id| used.contains(id));
        gone.iter().for_each(|id| self.list[*id as usize] = None);
        self.free.extend(&gone);
        !gone.is_empty()
    }

    pub fn key(&self, id: TermId) -> &str {
        &self.get(id).term.topology_key
    }

    pub fn selects(&self, id: TermId, namespace: &str, labels: &Labels) -> bool {
        let term = &self.get(id).term;
        (term.namespaces.is_empty() || term.namespaces.iter().any(|n| n == namespace))
            && term.selector.iter().all(|requirement| requirement.matches(labels.get(&requirement.key)))
    }

    pub fn selected_by(&self, namespace: &str, labels: &Labels) -> Vec<TermId> {
        let known = (0..self.list.len() as TermId).filter(|id| self.list[*id as usize].is_some());
        known.filter(|id| self.selects(*id, namespace, labels)).collect()
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
