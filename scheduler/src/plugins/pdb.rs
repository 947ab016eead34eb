//! Plugin pdb: a pod protected by a PodDisruptionBudget is no victim.
//!
//! A budget's status says how many pods may be evicted. Pods that this scheduler has evicted and that still
//! terminate are subtracted, until the status counts them.

use std::collections::BTreeMap;

use super::rules::{Rules, Taking};
use crate::budgets::Budget;
use crate::ids::PodId;
use crate::settings::{ArgumentError, Hook, Settings};
use crate::state::State;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pdb;

impl Rules for Pdb {
    const NAME: &'static str = "pdb";
    const HOOKS: &'static [Hook] = &[Hook::Preemptable, Hook::Reclaimable];

    fn compile(_: &Settings<'_>) -> Result<Self, ArgumentError> {
        Ok(Self)
    }

    fn victims(&self, state: &State, _: Taking, candidates: &[PodId]) -> Option<Vec<PodId>> {
        Some(within_budgets(state, candidates))
    }
}

/// The `candidates`, in their order, that their budgets allow together.
fn within_budgets(state: &State, candidates: &[PodId]) -> Vec<PodId> {
    if state.budgets.values().all(BTreeMap::is_empty) {
        return candidates.to_vec();
    }
    let mut left: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    let mut found = Vec::new();
    for id in candidates {
        let pod = state.pod(*id);
        let of_namespace = state.budgets.get(&pod.namespace).into_iter().flatten();
        let over: Vec<(&str, &str)> = of_namespace
            .filter(|(_, budget)| budget.selects(pod))
            .map(|(name, budget)| {
                let key = (&*pod.namespace, &**name);
                left.entry(key).or_insert_with(|| budget.allowed - leaving(state, &pod.namespace, budget));
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

fn leaving(state: &State, namespace: &str, budget: &Budget) -> i64 {
    let pods = state.leaving.iter().map(|id| state.pod(*id));
    pods.filter(|pod| &*pod.namespace == namespace && budget.selects(pod)).count() as i64
}
