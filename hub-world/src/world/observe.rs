//! Applies observations to the world.

use std::collections::{BTreeMap, BTreeSet};

use fleet_api::{
    CellConfiguration, Cluster, ElasticQuotaTree, Queue, VirtualCluster, Work,
    cells::read::reported,
    mutation::{self, Mutation},
    names,
};
use fleet_mirror::{Changed, Mirror};
use fleet_mirror::{INCARNATION_ANNOTATION, Kube};
use fleet_policies::choice::{ObjectRef, PolicyScope};
use fleet_policies::overrides::OverridePolicy;
use fleet_policies::pod_security::{ENFORCE_LABEL, Level};
use fleet_policies::priority::{Class, NAMESPACES_ANNOTATION};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Namespace, scheduling::v1::PriorityClass};
use kube_core::{DynamicObject, Resource, ResourceExt};

use super::{
    Dirty, Key, PolicyEntry, World,
    dependents::dependency_kind,
    kept::{cluster_of_lease, read_lease, read_object, read_override, read_policy, ready, reference},
};
use crate::{
    binding::BindingEntry,
    kinds::KindRef,
    observation::{Change, Observation},
};

/// System namespace, whose annotation has the hub's incarnation.
const SYSTEM_NAMESPACE: &str = "kube-system";

/// Changes of one kind.
struct News<K> {
    /// New objects or new versions.
    objects: Vec<K>,
    gone: Vec<Key>,
    is_listing: bool,
}

/// Applies a change; returns what changed, and records whether the hub was restored.
fn keep<K: Resource, V>(
    mirror: &mut Mirror<V>,
    restored: &mut bool,
    change: Change<K>,
    read: impl FnMut(K, Option<&V>) -> V,
) -> Vec<Changed<V>> {
    let outcome = mirror.take::<Kube, K>(change, read);
    *restored |= outcome.restored;
    outcome.changed
}

/// The same for what the hub itself creates.
fn keep_own<K: Resource + Clone>(
    mirror: &mut Mirror<K>,
    restored: &mut bool,
    change: Change<K>,
) -> Vec<Changed<K>> {
    let named: Option<BTreeSet<Key>> = (mutation::is_on(Mutation::ListingEndsAnswers) && change.is_listing())
        .then(|| change.objects().iter().map(key).collect());
    let mut changed = keep(mirror, restored, change, |object, _| object);
    if let Some(named) = named {
        let unnamed: Vec<K> =
            mirror.values().filter(|object| !named.contains(&key(*object))).cloned().collect();
        let ends = unnamed.into_iter().map(Change::Delete);
        changed
            .extend(ends.flat_map(|end| keep(mirror, restored, end, |object, _| object)).collect::<Vec<_>>());
    }
    changed
}

fn news<K: Resource>(mirror: &mut Mirror<()>, restored: &mut bool, change: Change<K>) -> News<K> {
    let is_listing = change.is_listing();
    let mut objects = Vec::new();
    let changed = keep(mirror, restored, change, |object, _| objects.push(object));
    let keys = changed.into_iter().map(|changed| changed.key);
    let gone = keys.filter(|key| !mirror.contains_key(key)).collect();
    News { objects, gone, is_listing }
}

/// Whether anything relevant to `asked` has changed; a status, for instance, is not.
fn is_news<V, T: PartialEq>(mirror: &Mirror<V>, changed: &[Changed<V>], asked: impl Fn(&V) -> T) -> bool {
    changed.iter().any(|changed| {
        let (before, now) = (changed.before.as_ref(), mirror.get(&changed.key));
        before.map(&asked) != now.map(&asked)
    })
}

impl World {
    /// Applies one observation and marks what it affects. Returns bindings that changed, or whose Works or
    /// Reservations did.
    pub fn observe(&mut self, observation: Observation) -> BTreeSet<Key> {
        self.take_in(observation);
        std::mem::take(&mut self.touched)
    }

    fn take_in(&mut self, observation: Observation) {
        // One arm for each watched kind.
        match observation {
            Observation::Object(kind, change) => self.observe_object(kind, change),
            Observation::Policy(change) => {
                let news = news(&mut self.mirrors.policies, &mut self.restored, change);
                let read = |p: fleet_api::PropagationPolicy| {
                    (key(&p), read_policy(PolicyScope::Namespaced, &p.metadata, p.spec, p.status))
                };
                self.observe_policy(PolicyScope::Namespaced, news, read);
            }
            Observation::ClusterPolicy(change) => {
                let news = news(&mut self.mirrors.cluster_policies, &mut self.restored, change);
                let read = |p: fleet_api::ClusterPropagationPolicy| {
                    (key(&p), read_policy(PolicyScope::Cluster, &p.metadata, p.spec.propagation, p.status))
                };
                self.observe_policy(PolicyScope::Cluster, news, read);
            }
            Observation::Override(change) => {
                let news = news(&mut self.mirrors.overrides, &mut self.restored, change);
                self.observe_override(PolicyScope::Namespaced, news, |p| {
                    read_override(PolicyScope::Namespaced, key(&p), &p.spec)
                });
            }
            Observation::ClusterOverride(change) => {
                let news = news(&mut self.mirrors.cluster_overrides, &mut self.restored, change);
                self.observe_override(PolicyScope::Cluster, news, |p| {
                    read_override(PolicyScope::Cluster, key(&p), &p.spec.overrides)
                });
            }
            Observation::Binding(change) => {
                let changed = keep(&mut self.bindings, &mut self.restored, change, BindingEntry::read);
                for Changed { key, before } in changed {
                    self.binding_changed(key, before.is_some_and(|before| before.is_bound()));
                }
            }
            Observation::Unit(change) => {
                for unit in keep_own(&mut self.units, &mut self.restored, change) {
                    let (namespace, name) = unit.key;
                    if let Some(binding) = name.strip_suffix(crate::binding::UNIT_SUFFIX) {
                        self.dirty.insert(Dirty::Binding((namespace, binding.to_string())));
                    }
                }
            }
            Observation::Queue(change) => {
                let is_listing = change.is_listing();
                let changed = keep(&mut self.queues, &mut self.restored, change, |queue, _| queue);
                let asked = |queue: &Queue| {
                    (queue.uid(), queue.spec.clone(), queue.annotations().clone(), queue.labels().clone())
                };
                if is_listing || is_news(&self.queues, &changed, asked) {
                    self.mark_tree();
                }
            }
            Observation::Tree(change) => {
                let is_listing = change.is_listing();
                let changed = keep(&mut self.trees, &mut self.restored, change, |tree, _| tree);
                let asked = |tree: &ElasticQuotaTree| {
                    let conditions = tree.status.as_ref().map(|status| status.conditions.clone());
                    let is_deleted = tree.metadata.deletion_timestamp.is_some();
                    (tree.metadata.uid.clone(), tree.metadata.generation, is_deleted, conditions)
                };
                if is_listing || is_news(&self.trees, &changed, asked) {
                    self.mark_tree();
                }
            }
            Observation::CellConfiguration(change) => {
                let is_listing = change.is_listing();
                let changed =
                    keep(&mut self.cell_configurations, &mut self.restored, change, |object, _| object);
                let asked = |object: &CellConfiguration| {
                    let conditions = object.status.as_ref().map(|status| status.conditions.clone());
                    (asked_of(object), conditions)
                };
                if is_listing || is_news(&self.cell_configurations, &changed, asked) {
                    self.dirty.insert(Dirty::Cells);
                }
            }
            Observation::VirtualCluster(change) => {
                let is_listing = change.is_listing();
                let changed =
                    keep(&mut self.virtual_clusters, &mut self.restored, change, |object, _| object);
                // The admission policy reads the submitters from labels and annotations.
                let asked = |object: &VirtualCluster| {
                    let marks = (object.metadata.labels.clone(), object.metadata.annotations.clone());
                    (asked_of(object), object.spec.clone(), marks)
                };
                if is_listing || is_news(&self.virtual_clusters, &changed, asked) {
                    self.dirty.insert(Dirty::Cells);
                }
            }
            Observation::Cluster(change) => self.observe_cluster(change),
            Observation::Reservation(change) => {
                let mut bindings = BTreeSet::new();
                observe_owned(
                    &mut self.reservations,
                    &mut self.reservations_of,
                    &mut self.restored,
                    change,
                    &mut bindings,
                    |r| (r.spec.binding.namespace.clone(), r.spec.binding.name.clone()),
                );
                if bindings.remove(&(String::new(), String::new())) {
                    self.mark_cell_nodes();
                }
                bindings.iter().for_each(|binding| self.mark_binding(binding));
            }
            Observation::Work(change) => self.observe_work(change),
            Observation::Lease(change) => self.observe_lease(change),
            Observation::Namespace(change) => self.observe_namespace(change),
            Observation::PriorityClass(change) => self.observe_priority_class(change),
        }
    }

    fn binding_changed(&mut self, key: Key, was_bound: bool) {
        let entry = self.bindings.get(&key);
        if let Some(entry) = entry.filter(|entry| was_bound && !entry.is_bound()) {
            // Edits of its object while it was bound were not counted.
            let reference = &entry.object.spec.resource;
            let object = (reference.namespace.clone(), reference.name.clone());
            self.dirty.insert(Dirty::Object(entry.kind.clone(), object));
        }
        let left = entry.is_some_and(|entry| self.has_of_another(&key, entry.uid()));
        if !self.bindings.contains_key(&key) {
            self.mark_orphans(&key);
            self.mark_objects_of_binding(&key);
        } else if left {
            self.mark_orphans(&key);
        }
        self.touched.insert(key.clone());
        self.dirty.insert(Dirty::Binding(key));
    }

    fn observe_work(&mut self, change: Change<Work>) {
        let mut bindings = BTreeSet::new();
        let (changed, is_listing) = (change.objects().iter().map(key).collect(), change.is_listing());
        let restored = &mut self.restored;
        observe_owned(&mut self.works, &mut self.works_of, restored, change, &mut bindings, |w| {
            (w.spec.binding.namespace.clone(), w.spec.binding.name.clone())
        });
        self.renew_named(changed, is_listing);
        bindings.iter().for_each(|binding| self.mark_binding(binding));
    }

    fn observe_priority_class(&mut self, change: Change<PriorityClass>) {
        let news = news(&mut self.mirrors.priority_classes, &mut self.restored, change);
        for class in news.objects {
            let listed = class.annotations().get(NAMESPACES_ANNOTATION).map(String::as_str);
            let read = Class::new(class.value.unwrap_or(0), listed);
            self.priority_classes.insert(class.name_any(), read);
        }
        for (_, name) in news.gone {
            self.priority_classes.remove(&name);
        }
        self.mark_all_objects();
    }

    fn observe_object(&mut self, kind: KindRef, change: Change<DynamicObject>) {
        // A kind is known once its list is: until then nobody can tell what is missing.
        if matches!(change, Change::Listing) && !self.objects.contains_key(&kind) {
            return;
        }
        let listed = change.is_listing();
        // A kind that was assumed is now served as discovery reports.
        if self.objects.get_key_value(&kind).is_some_and(|(known, _)| known.plural != kind.plural)
            && let Some(objects) = self.objects.remove(&kind)
        {
            self.objects.insert(kind.clone(), objects);
        }
        let is_gone = matches!(change, Change::Delete(_));
        let touched: Vec<ObjectRef> = match listed {
            // It marks all policies of the kind.
            true => Vec::new(),
            false => change
                .objects()
                .iter()
                .map(|object| reference(&kind, &key(object), object.labels().clone()))
                .collect(),
        };
        let dependency = dependency_kind(&kind);
        if dependency.is_some() && !self.objects.contains_key(&kind) {
            self.mark_unsent();
        }
        let objects = self.objects.entry(kind.clone()).or_default();
        let restored = &mut self.restored;
        let changed = keep(objects, restored, change, |object, _| read_object(&kind, object));
        if listed {
            // A deleted object is not in the list, but its binding still exists.
            let of_kind = self.bindings.iter().filter(|(_, entry)| entry.kind == kind);
            self.dirty.extend(of_kind.map(|(key, _)| Dirty::Binding(key.clone())));
        }
        if listed {
            self.mark_policies_of(&kind);
        }
        touched.iter().for_each(|object| self.mark_policies_that_select(object, is_gone));
        for Changed { key, .. } in changed {
            let binding = self.binding_key(&kind, &key);
            if self.bindings.contains_key(&binding) {
                self.dirty.insert(Dirty::Binding(binding));
            }
            if let Some(dependency) = dependency {
                self.mark_dependents(dependency, &key);
            }
            self.dirty.insert(Dirty::Object(kind.clone(), key));
        }
    }

    fn observe_policy<K>(
        &mut self,
        scope: PolicyScope,
        news: News<K>,
        read: impl Fn(K) -> (Key, PolicyEntry),
    ) {
        for (key, entry) in news.objects.into_iter().map(read) {
            let known = self.policies.get(&(scope, key.clone()));
            let same =
                known.is_some_and(|known| known.generation == entry.generation && known.rule == entry.rule);
            if !same {
                let before = known.map(|known| known.rule.clone());
                before.iter().for_each(|before| self.mark_reached(before));
                self.mark_reached(&entry.rule);
                match entry.violations.is_empty() {
                    true => self.rules.insert(entry.rule.clone()),
                    false => drop(self.rules.remove(scope, &key.0, &key.1)),
                }
            }
            self.dirty.insert(Dirty::Policy(scope, key.clone()));
            self.note_idle(scope, &key, &entry);
            self.policies.insert((scope, key), entry);
        }
        for key in news.gone {
            self.rules.remove(scope, &key.0, &key.1);
            self.idle_policies.remove(&(scope, key.clone()));
            if let Some(gone) = self.policies.remove(&(scope, key)) {
                self.mark_reached(&gone.rule);
            }
        }
        if news.is_listing {
            self.mark_all_objects();
        }
    }

    fn observe_override<K>(&mut self, scope: PolicyScope, news: News<K>, read: impl Fn(K) -> OverridePolicy) {
        // No key, the keys of these namespaces, or all keys.
        let mut touches_all = news.is_listing;
        let touched = self.overrides.observe(scope, news.objects.into_iter().map(read), news.gone);
        if touched.is_empty() && !touches_all {
            return;
        }
        // A namespaced policy does not affect other namespaces.
        touches_all |= scope == PolicyScope::Cluster;
        let is_touched = |key: &Key| touches_all || touched.contains(&key.0);
        let bindings = self.bindings.keys().filter(|key| is_touched(key));
        self.dirty.extend(bindings.cloned().map(Dirty::Binding));
        // Requests are counted after overrides.
        for (kind, objects) in &self.objects {
            let objects = objects.keys().filter(|key| is_touched(key));
            self.dirty.extend(objects.map(|key| Dirty::Object(kind.clone(), key.clone())));
        }
    }

    fn observe_cluster(&mut self, change: Change<Cluster>) {
        let news = news(&mut self.mirrors.clusters, &mut self.restored, change);
        if news.objects.is_empty() && news.gone.is_empty() && !news.is_listing {
            return;
        }
        for cluster in news.objects {
            self.cluster_changed(cluster);
        }
        for (_, name) in news.gone {
            self.cluster_gone(name);
        }
        if news.is_listing {
            self.mark_all_policies();
            self.mark_waiting();
        }
        self.schedule = true;
    }

    fn cluster_changed(&mut self, cluster: Cluster) {
        let name = cluster.name_any();
        let known = self.clusters.get(&name);
        let joined = known.is_none();
        self.dirty.insert(Dirty::Cluster(name.clone()));
        self.recount.insert(name.clone());
        let moved = known.is_none_or(|known| {
            known.spec != cluster.spec
                || known.metadata.labels != cluster.metadata.labels
                || ready(known) != ready(&cluster)
        });
        let tainted = known.map_or(&[][..], |known| &known.spec.taints) != cluster.spec.taints;
        // A quota tree may name what no node has.
        if self.offers.set(&name, Some(&cluster), self.quota_tree.as_deref()) {
            self.dirty.insert(Dirty::Tree);
        }
        let has_cells = !self.cell_configurations.is_empty();
        // Trees of cells without a member are matched by their nodes.
        if joined || has_cells && known.map(reported) != Some(reported(&cluster)) {
            self.dirty.insert(Dirty::Cells);
        }
        self.clusters.insert(name.clone(), cluster);
        if joined {
            self.mark_all_policies();
        }
        if tainted {
            self.mark_waiting();
        }
        if moved && !self.overrides.is_empty() {
            self.mark_all_objects();
        }
        if moved {
            self.mark_users_of(&name);
            self.mark_bound_to(&name);
        }
    }

    fn cluster_gone(&mut self, name: String) {
        self.clusters.remove(&name);
        self.mark_all_policies();
        self.recount.insert(name.clone());
        self.lost.remove(&name);
        if self.offers.set(&name, None, self.quota_tree.as_deref()) {
            self.dirty.insert(Dirty::Tree);
        }
        self.mark_users_of(&name);
        self.mark_bound_to(&name);
        self.dirty.extend([Dirty::Cluster(name), Dirty::Cells]);
    }

    fn observe_lease(&mut self, change: Change<Lease>) {
        let news = news(&mut self.mirrors.leases, &mut self.restored, change);
        // The first list may show old renewals: only those seen after it count.
        let first = !self.leases_listed && news.is_listing;
        self.leases_listed |= first;
        for (namespace, _) in news.gone {
            if let Some(cluster) = namespace.strip_prefix(names::CLUSTER_NAMESPACE_PREFIX) {
                self.leases.remove(cluster);
                self.mark_bound_to(cluster);
                // It may have asked for a longer time than counts now.
                self.dirty.insert(Dirty::Cluster(cluster.to_string()));
            }
        }
        for lease in news.objects {
            let Some(cluster) = cluster_of_lease(&lease) else { continue };
            let fresh = read_lease(&lease);
            let known = self.leases.get(&cluster);
            let renewed = known.is_none_or(|known| known.renewal != fresh.renewal);
            let marked = known.is_some_and(|known| known.declared_lost) != fresh.declared_lost;
            self.leases.insert(cluster.clone(), fresh);
            if renewed && !first {
                self.renewed.insert(cluster.clone());
            }
            if renewed || marked {
                self.dirty.insert(Dirty::Cluster(cluster.clone()));
            }
            if marked {
                self.mark_bound_to(&cluster);
            }
        }
    }

    fn observe_namespace(&mut self, change: Change<Namespace>) {
        let news = news(&mut self.mirrors.namespaces, &mut self.restored, change);
        for namespace in news.objects {
            let label = namespace.labels().get(ENFORCE_LABEL);
            let (name, level) = (namespace.name_any(), Level::from_label(label.map(String::as_str)));
            if name == SYSTEM_NAMESPACE {
                self.incarnation = namespace.annotations().get(INCARNATION_ANNOTATION).cloned();
            }
            match self.namespaces.insert(name.clone(), level) {
                Some(known) if known != level => self.mark_waiting(),
                Some(_) => {}
                None => {
                    self.dirty.insert(Dirty::Tree);
                    // Its objects may have been seen before it.
                    let own = self.bindings.range((name.clone(), String::new())..);
                    let own = own.take_while(|((namespace, _), _)| *namespace == name);
                    self.dirty.extend(own.map(|(key, _)| Dirty::Binding(key.clone())));
                }
            }
        }
        if news.is_listing {
            self.mark_waiting();
        }
        for (_, name) in news.gone {
            self.namespaces.remove(&name);
            self.dirty.insert(Dirty::Tree);
            self.dirty.extend(self.clusters.keys().cloned().map(Dirty::Cluster));
        }
    }
}

/// Identity of the object, its generation, and whether it is being deleted.
fn asked_of<K: Resource>(object: &K) -> (Option<String>, Option<i64>, bool) {
    let meta = object.meta();
    (meta.uid.clone(), meta.generation, meta.deletion_timestamp.is_some())
}

fn key<K: Resource>(object: &K) -> Key {
    let meta = object.meta();
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

/// Caches objects that belong to a binding, with an index by binding; collects the affected bindings.
fn observe_owned<K: Resource + Clone>(
    mirror: &mut Mirror<K>,
    index: &mut BTreeMap<Key, BTreeSet<Key>>,
    restored: &mut bool,
    change: Change<K>,
    touched: &mut BTreeSet<Key>,
    owner: fn(&K) -> Key,
) {
    if let Change::Delete(gone) = &change {
        touched.insert(owner(gone));
    }
    for Changed { key, before } in keep_own(mirror, restored, change) {
        // A member may have changed the owner in the spec: the previous owner's reconcile corrects it.
        if let Some(before) = before.map(|before| owner(&before)) {
            if let Some(keys) = index.get_mut(&before) {
                keys.remove(&key);
                if keys.is_empty() {
                    index.remove(&before);
                }
            }
            touched.insert(before);
        }
        if let Some(owner) = mirror.get(&key).map(owner) {
            index.entry(owner.clone()).or_default().insert(key);
            touched.insert(owner);
        }
    }
}
