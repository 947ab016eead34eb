//! The controller's cache of the hub: every watched object, with indexes for the planners.
//!
//! [`fleet_mirror`] merges observations, which may come in any order and twice, into the current objects;
//! `observe` files them, and `marks` records what must be reconciled. Deliberately absent: decisions and IO.

mod dependents;
mod kept;
mod marks;
mod mirrors;
mod observe;
mod offers;
mod overrides;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_api::{
    CellConfiguration, Cluster, ElasticQuotaTree, Queue, QueueUnit, Reservation, VirtualCluster, Work, names,
};
use fleet_mirror::Mirror;
use fleet_policies::choice::PolicyScope;
use fleet_policies::pod_security::Level;
use fleet_policies::policy_index::PolicyIndex;
use fleet_policies::priority::Classes;
use fleet_quota_tree::QuotaTree;

use crate::{binding::BindingEntry, kinds::KindRef};

use dependents::NamedByWork;
pub use kept::{AgentLease, Key, LONGEST_SAID, Object, PolicyEntry, is_drained, is_gone, read_policy, ready};
use mirrors::Mirrors;
use offers::Offers;
pub use overrides::{Overrides, POLICIES_MAX as OVERRIDE_POLICIES_MAX};

/// Something to reconcile.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dirty {
    /// A propagated object: which policy governs it, and whether its binding is up to date.
    Object(KindRef, Key),
    /// One binding: its Works, its status, its end.
    Binding(Key),
    Cluster(String),
    /// The quota tree and its Queue objects.
    Tree,
    /// The configuration of cells and its VirtualClusters.
    Cells,
    Policy(PolicyScope, Key),
    /// A Work or a Reservation that may have lost its binding: hub namespace and name.
    Orphan(Key),
}

/// The cached state of the hub.
#[derive(Default)]
pub struct World {
    pub objects: BTreeMap<KindRef, Mirror<Object>>,
    pub policies: BTreeMap<(PolicyScope, Key), PolicyEntry>,
    /// Policies whose status reports that something they name is missing, or that they select nothing.
    idle_policies: BTreeSet<(PolicyScope, Key)>,
    /// The rules of all valid policies.
    pub rules: PolicyIndex,
    pub overrides: Overrides,
    pub bindings: Mirror<BindingEntry>,
    pub units: Mirror<QueueUnit>,
    pub queues: Mirror<Queue>,
    pub trees: Mirror<ElasticQuotaTree>,
    pub cell_configurations: Mirror<CellConfiguration>,
    pub virtual_clusters: Mirror<VirtualCluster>,
    pub clusters: BTreeMap<String, Cluster>,
    /// The hub's namespaces, with the pod security level that each enforces.
    pub namespaces: BTreeMap<String, Level>,
    pub priority_classes: Classes,
    pub reservations: Mirror<Reservation>,
    pub works: Mirror<Work>,
    /// Reservations and works by (namespace, name) of their binding.
    reservations_of: BTreeMap<Key, BTreeSet<Key>>,
    works_of: BTreeMap<Key, BTreeSet<Key>>,
    /// What the objects in Works name.
    named_by_works: BTreeMap<Key, NamedByWork>,
    /// The quota tree in force.
    pub quota_tree: Option<Arc<QuotaTree>>,
    /// Full path of the quota leaf of each queued binding.
    pub leaves: BTreeMap<Key, String>,
    /// Clusters whose free capacity must be recomputed.
    pub recount: BTreeSet<String>,
    /// Clusters whose lease renewals were seen since the last reconcile.
    pub renewed: BTreeSet<String>,
    /// The agents' leases by cluster.
    pub leases: BTreeMap<String, AgentLease>,
    leases_listed: bool,
    /// Clusters that are lost, by this process's clock.
    pub lost: BTreeSet<String>,
    /// Term of this leader; `None` without leader election.
    pub term: Option<i64>,
    dirty: BTreeSet<Dirty>,
    /// Bindings affected by the current observation.
    touched: BTreeSet<Key>,
    mirrors: Mirrors,
    offers: Offers,
    /// The hub's store was restored: cached state may be wrong, and everything is listed again.
    pub restored: bool,
    /// The hub's incarnation.
    pub incarnation: Option<String>,
    /// Works and Reservations seen without their binding. They are reconciled a moment later, because the
    /// binding may not have been seen yet.
    pub orphans: BTreeSet<Key>,
    /// Set when capacity, quota or the set of waiting jobs changed, so a scheduling pass may find something.
    /// For changes of one binding the scheduler sets it.
    pub schedule: bool,
}

impl World {
    pub fn object(&self, kind: &KindRef, key: &Key) -> Option<&Object> {
        self.objects.get(kind)?.get(key)
    }

    /// The object of a binding, if it is still the same one.
    pub fn bound_object(&self, entry: &BindingEntry) -> Option<&Object> {
        let reference = &entry.object.spec.resource;
        let key = (reference.namespace.clone(), reference.name.clone());
        self.object(&entry.kind, &key).filter(|object| object.uid == reference.uid)
    }

    /// Whether the object of a binding is gone or about to be. Nothing is known of kinds that are not listed yet.
    pub fn is_going(&self, entry: &BindingEntry) -> bool {
        match self.bound_object(entry) {
            Some(object) => object.deleting,
            None => self.objects.contains_key(&entry.kind),
        }
    }

    /// Key of the binding of an object, existing or future. A binding with a name of an earlier version keeps
    /// it: under a new name the job would run a second time.
    pub fn binding_key(&self, kind: &KindRef, (namespace, name): &Key) -> Key {
        let key = (namespace.clone(), names::binding_name(&kind.api_version, &kind.kind, name));
        if self.bindings.contains_key(&key) {
            return key;
        }
        let earlier = (namespace.clone(), names::earlier_binding_name(&kind.kind, name));
        let is_its = |entry: &BindingEntry| entry.kind == *kind && entry.object.spec.resource.name == *name;
        if self.bindings.get(&earlier).is_some_and(is_its) { earlier } else { key }
    }

    /// Whether the agent of a cluster names another incarnation of the hub than this one as that for which it has
    /// removed all unknown runs. An agent that names none has not reported to any.
    pub fn is_unsorted(&self, cluster: &str) -> bool {
        let sorted = self.leases.get(cluster).and_then(|lease| lease.sorted.as_ref());
        let stays = || self.clusters.get(cluster).is_some_and(|cluster| !is_gone(cluster));
        sorted.is_some() && self.incarnation.is_some() && sorted != self.incarnation.as_ref() && stays()
    }

    /// Whether the agent of a cluster has once reported to this incarnation of the hub, as recorded on the Cluster.
    pub fn was_sorted(&self, cluster: &str) -> bool {
        let recorded = self
            .clusters
            .get(cluster)
            .and_then(|c| c.metadata.annotations.as_ref()?.get(names::SORTED_ANNOTATION));
        recorded.is_some() && recorded == self.incarnation.as_ref()
    }

    /// Clusters that may run what this incarnation of the hub does not know of. One that was sorted before has no
    /// unknown runs, whatever its lease says now: it cannot make the others wait.
    pub fn unsorted_clusters(&self) -> BTreeSet<String> {
        let unsorted = |cluster: &&String| self.is_unsorted(cluster) && !self.was_sorted(cluster);
        self.leases.keys().filter(unsorted).cloned().collect()
    }

    /// Whether the member supports reservations; true until it reports.
    pub fn reserves(&self, cluster: &str) -> bool {
        let status = self.clusters.get(cluster).and_then(|cluster| cluster.status.as_ref());
        status.is_none_or(|status| status.reservation != Some(false))
    }

    pub fn works_of<'a>(&'a self, binding: &Key) -> impl Iterator<Item = (&'a Key, &'a Work)> {
        self.works_of.get(binding).into_iter().flatten().filter_map(|key| self.works.get_key_value(key))
    }

    pub fn reservations_of<'a>(&'a self, binding: &Key) -> impl Iterator<Item = (&'a Key, &'a Reservation)> {
        self.reservations_of
            .get(binding)
            .into_iter()
            .flatten()
            .filter_map(|key| self.reservations.get_key_value(key))
    }

    /// The reservation whose places a bound gang takes.
    pub fn reservation_of_run<'a>(&'a self, entry: &BindingEntry) -> Option<(&'a Key, &'a Reservation)> {
        let namespace = names::cluster_namespace(&entry.object.spec.clusters.first()?.name);
        let binding = (entry.namespace().to_string(), entry.name().to_string());
        self.reservations_of(&binding).find(|(key, reservation)| {
            key.0 == namespace
                && reservation.spec.epoch == entry.object.spec.epoch
                && reservation.spec.binding.uid == entry.uid()
        })
    }

    /// Clusters that objects without a gang must leave: gone or draining ones.
    pub fn leaving_clusters(&self) -> BTreeSet<String> {
        let is_left = |cluster: &Cluster| is_gone(cluster) || is_drained(cluster);
        let leaving = self.clusters.iter().filter(|(_, cluster)| is_left(cluster));
        leaving.map(|(name, _)| name.clone()).collect()
    }
}
