//! What the controller knows of the hub: every object it watches, indexed as the planners ask for it.
//!
//! Index and cache: [`fleet_mirror`] says what stands on the hub, from observations in any order and twice if need
//! be; `observe` files it, `marks` says what must be looked at again. Deliberately absent: decisions and IO.

mod kept;
mod marks;
mod observe;
#[cfg(test)]
mod tests;
mod told;

use std::collections::{BTreeMap, BTreeSet};

use fleet_api::{
    CellConfiguration, Cluster, ElasticQuotaTree, Queue, QueueUnit, Reservation, VirtualCluster, Work, names,
};
use fleet_mirror::Mirror;
use fleet_policies::choice::{PolicyRule, PolicyScope};
use fleet_policies::overrides::OverridePolicy;
use fleet_policies::pod_security::Level;

use crate::{binding::BindingEntry, kinds::KindRef};

pub use kept::{AgentLease, Key, Object, PolicyEntry, is_drained, is_gone, read_policy, ready};
use told::Told;

/// Something to look at again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dirty {
    /// A propagated object: which policy governs it, does its binding say what it should.
    Object(KindRef, Key),
    /// One binding: its works, its status, its end.
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

/// Everything known.
#[derive(Default)]
pub struct World {
    pub objects: BTreeMap<KindRef, Mirror<Object>>,
    pub policies: BTreeMap<(PolicyScope, Key), PolicyEntry>,
    /// Policies that say in their status that something they name is not there, or that they select nothing.
    idle_policies: BTreeSet<(PolicyScope, Key)>,
    /// The rules of all valid policies, rebuilt when one changes.
    pub rules: Vec<PolicyRule>,
    overrides: BTreeMap<(PolicyScope, Key), OverridePolicy>,
    /// All override policies, as the rules take them.
    pub override_list: Vec<OverridePolicy>,
    pub bindings: Mirror<BindingEntry>,
    pub units: Mirror<QueueUnit>,
    pub queues: Mirror<Queue>,
    pub trees: Mirror<ElasticQuotaTree>,
    pub cell_configurations: Mirror<CellConfiguration>,
    pub virtual_clusters: Mirror<VirtualCluster>,
    pub clusters: BTreeMap<String, Cluster>,
    /// The hub's namespaces, with the pod security level that each enforces.
    pub namespaces: BTreeMap<String, Level>,
    pub priority_classes: BTreeMap<String, i32>,
    pub reservations: Mirror<Reservation>,
    pub works: Mirror<Work>,
    /// Reservations and works by (namespace, name) of their binding.
    reservations_of: BTreeMap<Key, BTreeSet<Key>>,
    works_of: BTreeMap<Key, BTreeSet<Key>>,
    /// Full path of the quota leaf of each queued binding.
    pub leaves: BTreeMap<Key, String>,
    /// Clusters whose room must be counted anew.
    pub recount: BTreeSet<String>,
    /// Renewals of agents' leases seen since the last look: cluster names.
    pub renewed: BTreeSet<String>,
    /// The agents' leases by cluster.
    pub leases: BTreeMap<String, AgentLease>,
    leases_listed: bool,
    /// Clusters that are lost now, by the process's own clock.
    pub lost: BTreeSet<String>,
    /// Term of the leader that this process is; none where there is no election.
    pub term: Option<i64>,
    dirty: BTreeSet<Dirty>,
    /// Bindings that the observation which is being taken in touches.
    touched: BTreeSet<Key>,
    told: Told,
    /// The hub's store went back in time: whatever is remembered of it may be wrong, and all is learnt anew.
    pub restored: bool,
    /// Which incarnation of its state the hub says it is.
    pub incarnation: Option<String>,
    /// Works and Reservations seen without their binding. They are judged a moment later: the binding may
    /// be on its way.
    pub orphans: BTreeSet<Key>,
    /// Set when capacity, quota or the set of waiting jobs changed: a scheduling pass may find something.
    /// Changes of one binding set it when the scheduler looks at it.
    pub schedule: bool,
}

impl World {
    pub fn object(&self, kind: &KindRef, key: &Key) -> Option<&Object> {
        self.objects.get(kind)?.get(key)
    }

    /// The object a binding is about, if it is still the same one.
    pub fn bound_object(&self, entry: &BindingEntry) -> Option<&Object> {
        let reference = &entry.object.spec.resource;
        let key = (reference.namespace.clone(), reference.name.clone());
        self.object(&entry.kind, &key).filter(|object| object.uid == reference.uid)
    }

    /// Where the binding of an object stands, or is to stand. One that was made under the name of an earlier version
    /// stays there: under another name the job would run a second time.
    pub fn binding_key(&self, kind: &KindRef, (namespace, name): &Key) -> Key {
        let key = (namespace.clone(), names::binding_name(&kind.api_version, &kind.kind, name));
        if self.bindings.contains_key(&key) {
            return key;
        }
        let earlier = (namespace.clone(), names::earlier_binding_name(&kind.kind, name));
        let is_its = |entry: &BindingEntry| entry.kind == *kind && entry.object.spec.resource.name == *name;
        if self.bindings.get(&earlier).is_some_and(is_its) { earlier } else { key }
    }

    /// Whether the agent of a cluster has not said that it runs nothing that this incarnation of the hub knows nothing
    /// of. Only one that once said so of another incarnation counts: a hub that was never restored waits for nobody.
    pub fn is_unsorted(&self, cluster: &str) -> bool {
        let sorted = self.leases.get(cluster).and_then(|lease| lease.sorted.as_ref());
        let stays = || self.clusters.get(cluster).is_some_and(|cluster| !is_gone(cluster));
        sorted.is_some() && self.incarnation.is_some() && sorted != self.incarnation.as_ref() && stays()
    }

    pub fn unsorted_clusters(&self) -> BTreeSet<String> {
        self.leases.keys().filter(|cluster| self.is_unsorted(cluster)).cloned().collect()
    }

    /// Whether the member answers reservations; one that has not said counts as one that does.
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

    /// Clusters that objects without a gang leave: those that are gone, and those that are drained.
    pub fn leaving_clusters(&self) -> BTreeSet<String> {
        let is_left = |cluster: &Cluster| is_gone(cluster) || is_drained(cluster);
        let leaving = self.clusters.iter().filter(|(_, cluster)| is_left(cluster));
        leaving.map(|(name, _)| name.clone()).collect()
    }
}
