//! What overrides make of a waiting job in each cluster, kept between looks at the job.
//!
//! Overrides may parse and write large documents. A job is looked at many times while it waits, with every cluster,
//! so each result is kept until the job, one of its dependencies, an override policy, the cluster or the namespace
//! changes. A restart loses what is kept, and computes it again.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use fleet_api::binding::Component;
use fleet_policies::{affinity::ClusterFacts, pod_security::Level};
use serde_json::Value;

use crate::{
    binding::BindingEntry,
    cluster, manifests,
    planner::Waiting,
    world::{Key, Object, World},
};

/// Results at which all are dropped: more than the waiting jobs with overrides of any hub.
const KEPT_MAX: usize = 20_000;

#[derive(Default)]
pub(super) struct Verdicts(BTreeMap<(Key, String), Kept>);

struct Kept {
    /// The job and its dependencies. A weak reference keeps an address from being used again.
    parts: Vec<Weak<Value>>,
    overrides: u64,
    facts: ClusterFacts,
    /// Of its namespace; `None` while that is not known.
    level: Option<Level>,
    found: Result<Vec<Component>, Waiting>,
}

impl Verdicts {
    /// Requests of a job in one cluster, if it can be sent there with its dependencies; `parts`: the job first.
    pub fn of(
        &mut self,
        world: &World,
        entry: &BindingEntry,
        parts: &[&Object],
        cluster: &str,
    ) -> Result<Vec<Component>, Waiting> {
        let facts = world.clusters.get(cluster).map(cluster::facts).unwrap_or_default();
        let level = world.namespaces.get(entry.namespace()).copied();
        let place = ((entry.namespace().to_string(), entry.name().to_string()), cluster.to_string());
        if let Some(kept) = self.0.get(&place) {
            let known = kept.parts.iter().map(Weak::as_ptr);
            let same = known.eq(parts.iter().map(|part| Arc::as_ptr(&part.value)));
            if same && kept.overrides == world.override_version && kept.facts == facts && kept.level == level
            {
                return kept.found.clone();
            }
        }
        if self.0.len() >= KEPT_MAX {
            self.0.clear();
        }
        let found = manifests::sendable_in(world, entry, parts, cluster);
        let parts = parts.iter().map(|part| Arc::downgrade(&part.value)).collect();
        let kept = Kept { parts, overrides: world.override_version, facts, level, found: found.clone() };
        self.0.insert(place, kept);
        found
    }
}
