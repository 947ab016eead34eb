//! Specs of pods, and what those without a place request.
//!
//! The texts in them are their owners' choice, also the names of resources. So no spec outlives its pods for long, and amounts are
//! added up only for reports: a sum that is kept would be as long as all names together.

use std::{collections::BTreeMap, sync::Arc};

use fleet_resources::{ResourceName, Resources};
use fleet_scheduler::PodSpec;

use super::MemberState;

/// Number of specs at which those that no pod has are dropped.
const SPECS_SWEPT_AT: usize = 1024;
/// Resources that no node offers, of which a report has the amounts that pods request.
const OTHERS_TOLD: usize = 64;

impl MemberState {
    /// The equal spec of other pods, if there is one. Specs that no pod has are dropped each time there are twice as many as were
    /// left the last time.
    pub(super) fn shared(&mut self, spec: Arc<PodSpec>) -> Arc<PodSpec> {
        if let Some(known) = self.specs.get(&spec) {
            return known.clone();
        }
        if self.specs.len() >= SPECS_SWEPT_AT.max(self.specs_left * 2) {
            self.specs.retain(|spec| Arc::strong_count(spec) > 1);
            self.specs_left = self.specs.len();
        }
        self.specs.insert(spec.clone());
        spec
    }

    /// Requests of unfinished pods without a node and without a place: of all resources that nodes offer, and of a few others.
    pub fn unbound(&self) -> Resources {
        let mut sums: BTreeMap<&ResourceName, i64> = BTreeMap::new();
        for (spec, pods) in &self.unbound {
            for (name, amount) in spec.shape.requests.iter() {
                let sum = sums.entry(name).or_default();
                *sum = sum.saturating_add(amount.saturating_mul(*pods));
            }
        }
        let total = self.cluster.nodes.total();
        let offers = |name: &ResourceName| {
            let place = self.cluster.dimensions.find(name.as_str());
            place.and_then(|place| total.get(place)).is_some_and(|amount| *amount > 0)
        };
        let (offered, others): (Vec<_>, Vec<_>) = sums.into_iter().partition(|(name, _)| offers(name));
        let told = offered.into_iter().chain(others.into_iter().take(OTHERS_TOLD));
        told.map(|(name, amount)| (name.clone(), amount)).collect()
    }

    /// Counts pods without a node and without a place.
    pub(super) fn count_unbound(&mut self, spec: &Arc<PodSpec>, pods: i64) {
        let count = self.unbound.entry(spec.clone()).or_default();
        *count += pods;
        if *count == 0 {
            self.unbound.remove(spec);
        }
    }
}
