//! PodDisruptionBudgets.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_resources::constraints::NodeSelectorRequirement;

use crate::pod::Pod;

/// A PodDisruptionBudget.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// All must match; empty selects no pod.
    pub selector: Vec<NodeSelectorRequirement>,
    /// `status.disruptionsAllowed`.
    pub allowed: i64,
}

impl Budget {
    pub fn selects(&self, pod: &Pod) -> bool {
        !self.selector.is_empty()
            && self.selector.iter().all(|requirement| requirement.matches(pod.labels.get(&requirement.key)))
    }
}

/// By namespace and name.
pub type Budgets = BTreeMap<Arc<str>, BTreeMap<Arc<str>, Budget>>;
