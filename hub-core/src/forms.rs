//! What overrides make of objects, kept between looks; and what computing it costs, by namespace.
//!
//! Overrides may visit large objects many times, and a job is looked at many times while it waits, with every cluster. So
//! each result is kept until the object, one of its dependencies, an override policy of its namespace, a cluster or the
//! namespace changes. A tenant decides how often that is: he pays for it with his own share of each round, and his jobs wait
//! for the next one when it is spent. A restart loses what is kept, and computes it again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use fleet_api::{binding::Component, convert};
use fleet_policies::{
    affinity::ClusterFacts,
    overrides::Visits,
    pod_security::Level,
    priority::Classes,
    spec::Placement,
    workload::{self, WorkloadError},
};
use serde_json::Value;

use crate::{
    asked,
    binding::BindingEntry,
    cluster,
    kinds::KindRef,
    manifests,
    planner::Waiting,
    queue_place,
    world::{Key, Object, World},
};

/// Results at which all are dropped: more than the waiting jobs with overrides of any hub.
const KEPT_MAX: usize = 20_000;
/// What each namespace may spend in one round, in values visited: half of what overrides may visit of one object. A job
/// that is looked at before it is spent is looked at whole.
const SHARE: usize = 500_000;

/// What the requests of one job, counted for all clusters, may visit. A job of 500 values with policies that visit it ten times
/// visits as many for a thousand clusters.
const COUNTED_MAX: usize = 5_000_000;

/// Facts of every cluster.
type Clusters = BTreeMap<String, ClusterFacts>;

#[derive(Default)]
pub struct Forms {
    sendable: BTreeMap<(Key, String), Sendable>,
    counted: BTreeMap<(KindRef, Key), Counted>,
    /// Those of the last look at the clusters; results share them.
    clusters: Arc<Clusters>,
    /// Those of the last look; no result outlives them.
    classes: Classes,
    /// What each namespace has spent in this round.
    spent: BTreeMap<String, usize>,
    /// Bindings whose look was put off to the next round.
    put_off: BTreeSet<Key>,
    /// What was spent since it was last taken.
    cost: usize,
}

/// What a result was computed from, other than clusters.
#[derive(PartialEq)]
struct Basis {
    overrides: u64,
    level: Option<Level>,
}

impl Basis {
    fn of(world: &World, namespace: &str) -> Self {
        let level = world.namespaces.get(namespace).copied();
        Self { overrides: world.overrides.in_namespace(namespace).version, level }
    }
}

struct Sendable {
    /// The job and its dependencies. A weak reference keeps an address from being used again.
    parts: Vec<Weak<Value>>,
    from: Basis,
    facts: ClusterFacts,
    found: Result<Option<Vec<Component>>, Waiting>,
}

struct Counted {
    object: Weak<Value>,
    from: Basis,
    clusters: Arc<Clusters>,
    placement: Placement,
    found: Result<Vec<workload::Component>, WorkloadError>,
}

/// How many comparisons it takes to see which override policies select an object of the namespace; 0 without a policy.
pub(crate) fn policies(world: &World, namespace: &str) -> usize {
    let applicable = world.overrides.in_namespace(namespace);
    match applicable.too_many {
        // They are not compared.
        Some(_) => applicable.policies.len(),
        None => applicable.breadth,
    }
}

impl Forms {
    /// Begins a round. Returns the bindings that are to be looked at again in it.
    pub fn begin(&mut self) -> BTreeSet<Key> {
        self.spent.clear();
        std::mem::take(&mut self.put_off)
    }

    /// Whether a look at an object of this namespace may compute something in this round. If not, the binding is noted for
    /// the next.
    pub(crate) fn affords(&mut self, key: &Key) -> bool {
        let affords = self.spent.get(&key.0).is_none_or(|spent| *spent < SHARE);
        if !affords {
            self.put_off.insert(key.clone());
        }
        affords
    }

    /// Whether a look was put off to the next round.
    pub fn is_behind(&self) -> bool {
        !self.put_off.is_empty()
    }

    /// What was spent since the last call, in values visited.
    pub fn take_cost(&mut self) -> usize {
        std::mem::take(&mut self.cost)
    }

    fn spend(&mut self, namespace: &str, cost: usize) {
        let spent = self.spent.entry(namespace.to_string()).or_default();
        *spent = spent.saturating_add(cost);
        self.cost = self.cost.saturating_add(cost);
    }

    /// The requests that quota counts, as [`asked::counted`] finds them.
    ///
    /// # Errors
    /// The object's own requests cannot be parsed.
    pub fn counted(
        &mut self,
        world: &World,
        kind: &KindRef,
        key: &Key,
        object: &Object,
        placement: &Placement,
    ) -> Result<Vec<workload::Component>, WorkloadError> {
        let policies = policies(world, &key.0);
        if policies == 0 {
            return workload::components(kind.workload(), &object.value);
        }
        self.look_at_clusters(world);
        self.look_at_classes(world);
        let (place, from) = ((kind.clone(), key.clone()), Basis::of(world, &key.0));
        if let Some(kept) = self.counted.get(&place)
            && kept.object.as_ptr() == Arc::as_ptr(&object.value)
            && kept.from == from
            && Arc::ptr_eq(&kept.clusters, &self.clusters)
            && kept.placement == *placement
        {
            return kept.found.clone();
        }
        if self.counted.len() >= KEPT_MAX {
            self.counted.clear();
        }
        let mut visits = Visits::of(COUNTED_MAX);
        let found = asked::counted(world, kind, key, object, placement, &mut visits);
        self.spend(&key.0, policies.saturating_add(visits.used()));
        let kept = Counted {
            object: Arc::downgrade(&object.value),
            from,
            clusters: self.clusters.clone(),
            placement: placement.clone(),
            found: found.clone(),
        };
        self.counted.insert(place, kept);
        found
    }

    /// Whether the binding of a waiting job matches its object. Until then, no placement is based on it.
    pub fn is_current(&mut self, world: &World, entry: &BindingEntry, object: &Object) -> bool {
        if !queue_place::knows_leaf(entry, &object.labels) {
            return false;
        }
        let reference = &entry.object.spec.resource;
        let key = (reference.namespace.clone(), reference.name.clone());
        let counted = self.counted(world, &entry.kind, &key, object, &entry.placement);
        counted.is_ok_and(|counted| {
            let components = &entry.object.spec.components;
            counted.len() == components.len()
                && counted.iter().zip(components).all(|(now, known)| convert::component(now) == *known)
        })
    }

    /// What a look at the objects of a run has visited.
    pub fn charge(&mut self, namespace: &str, visited: usize) {
        if visited > 0 {
            self.spend(namespace, visited);
        }
    }

    /// Requests of a job in one cluster as overrides make them, if it can be sent there with its dependencies; `parts`: the
    /// job first. `Ok(None)` if no override policy selects any of them, `None` if the namespace has spent its share: the
    /// look goes on in the next round.
    ///
    /// # Errors
    /// Why it cannot be sent there.
    pub(crate) fn sendable_in(
        &mut self,
        world: &World,
        entry: &BindingEntry,
        parts: &[&Object],
        cluster: &str,
    ) -> Option<Result<Option<Vec<Component>>, Waiting>> {
        self.look_at_classes(world);
        let facts = world.clusters.get(cluster).map(cluster::facts).unwrap_or_default();
        let from = Basis::of(world, entry.namespace());
        let place = ((entry.namespace().to_string(), entry.name().to_string()), cluster.to_string());
        if let Some(kept) = self.sendable.get(&place) {
            let known = kept.parts.iter().map(Weak::as_ptr);
            let same = known.eq(parts.iter().map(|part| Arc::as_ptr(&part.value)));
            if same && kept.from == from && kept.facts == facts {
                return Some(kept.found.clone());
            }
        }
        if !self.affords(&place.0) {
            return None;
        }
        let mut visits = Visits::default();
        let is_overridden = parts.iter().any(|part| asked::is_overridden(world, entry.namespace(), part));
        let found = match is_overridden {
            true => manifests::sendable_in(world, entry, parts, cluster, &mut visits).map(Some),
            false => Ok(None),
        };
        let looked_at = parts.len().saturating_mul(policies(world, entry.namespace()));
        self.spend(entry.namespace(), looked_at.saturating_add(visits.used()));
        if self.sendable.len() >= KEPT_MAX {
            self.sendable.clear();
        }
        let parts = parts.iter().map(|part| Arc::downgrade(&part.value)).collect();
        self.sendable.insert(place, Sendable { parts, from, facts, found: found.clone() });
        Some(found)
    }

    fn look_at_clusters(&mut self, world: &World) {
        let now = world.clusters.iter().map(|(name, cluster)| (name, cluster::facts(cluster)));
        if !now.clone().eq(self.clusters.iter().map(|(name, facts)| (name, facts.clone()))) {
            self.clusters = Arc::new(now.map(|(name, facts)| (name.clone(), facts)).collect());
        }
    }

    /// A class names the priority that a manifest may have.
    fn look_at_classes(&mut self, world: &World) {
        if self.classes != world.priority_classes {
            self.classes = world.priority_classes.clone();
            self.sendable.clear();
            self.counted.clear();
        }
    }
}

#[cfg(test)]
mod tests;
