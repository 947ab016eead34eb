//! Plugin pdb: a pod protected by a PodDisruptionBudget is no victim.
//!
//! A budget's status says how many pods may be evicted. Pods that this scheduler has evicted and that still
//! terminate are subtracted, until the status counts them.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_resources::constraints::NodeSelectorRequirement;

use crate::cluster::Cluster;
use crate::pod::{Pod, PodId};

/// A PodDisruptionBudget.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// All must match; empty selects no pod.
    pub selector: Vec<NodeSelectorRequirement>,
    /// `status.disruptionsAllowed`.
    pub allowed: i64,
}

impl Budget {
    fn selects(&self, pod: &Pod) -> bool {
        !self.selector.is_empty()
            && self.selector.iter().all(|requirement| requirement.matches(pod.labels.get(&requirement.key)))
    }
}

/// By namespace and name.
pub(crate) type Budgets = BTreeMap<Arc<str>, BTreeMap<Arc<str>, Budget>>;

impl Cluster {
    /// `None`: the budget is gone.
    pub fn set_budget(&mut self, namespace: &str, name: &str, budget: Option<Budget>) {
        let of_namespace = self.budgets.entry(namespace.into()).or_default();
        let before = match &budget {
            Some(budget) => of_namespace.insert(name.into(), budget.clone()),
            None => of_namespace.remove(name),
        };
        if before != budget {
            self.freed();
        }
    }

    /// The `candidates`, in their order, that their budgets allow together.
    pub(crate) fn within_budgets(&self, candidates: &[PodId]) -> Vec<PodId> {
        if self.budgets.values().all(BTreeMap::is_empty) {
            return candidates.to_vec();
        }
        let mut left: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        let mut found = Vec::new();
        for id in candidates {
            let pod = self.pod(*id);
            let of_namespace = self.budgets.get(&pod.namespace).into_iter().flatten();
            let over: Vec<(&str, &str)> = of_namespace
                .filter(|(_, budget)| budget.selects(pod))
                .map(|(name, budget)| {
                    let key = (&*pod.namespace, &**name);
                    left.entry(key).or_insert_with(|| budget.allowed - self.leaving(&pod.namespace, budget));
                    key
                })
                .collect();
            if over.iter().all(|key| left.get(key).is_some_and(|left| *left > 0)) {
                over.iter().for_each(|key| *left.entry(*key).or_default() -= 1);
                found.push(*id);
            }
        }
        found
    }

    fn leaving(&self, namespace: &str, budget: &Budget) -> i64 {
        let pods = self.leaving.iter().map(|id| self.pod(*id));
        pods.filter(|pod| &*pod.namespace == namespace && budget.selects(pod)).count() as i64
    }
}
