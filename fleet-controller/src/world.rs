//! What the controller knows of the hub: every object it watches, indexed as the planners ask for it.
//!
//! Fed by observations, in any order and twice if need be: an object older than the one known is passed
//! over. Each change marks what must be looked at again. Deliberately absent: decisions and IO.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use fleet_api::{
    Cluster, ElasticQuotaTree, Queue, QueueUnit, Reservation, Work, names,
    policy::{OverrideSpec, PropagationSpec},
};
use fleet_policies::choice::{ObjectRef, PolicyRule, PolicyScope};
use fleet_policies::overrides::{self, OverridePolicy};
use fleet_policies::pod_security::{ENFORCE_LABEL, Level};
use fleet_policies::reason::Reason;
use fleet_policies::selector::match_selectors;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Resource, ResourceExt,
    core::{DynamicObject, TypeMeta},
};
use serde_json::Value;

use crate::{
    binding::BindingEntry,
    gather::{Change, Observation},
    kinds::KindRef,
    policy,
    sent::{SentWork, SentWorks},
};

/// Namespace and name.
pub type Key = (String, String);

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
    Policy(PolicyScope, Key),
    /// A Work or a Reservation that may have lost its binding: hub namespace and name.
    Orphan(Key),
}

/// One propagated or depended-on object.
#[derive(Clone, Debug)]
pub struct Object {
    pub value: Arc<Value>,
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    pub deleting: bool,
    pub created: String,
}

/// One policy, read.
#[derive(Clone, Debug)]
pub struct PolicyEntry {
    pub rule: PolicyRule,
    pub spec: PropagationSpec,
    pub generation: i64,
    /// The first rule that the policy breaks; such a policy governs nothing.
    pub violations: Vec<String>,
    pub conditions: Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>,
}

/// A run that something other than its own binding wants over: a cluster is drained, a quota taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// Of the run that is meant; a later one is not touched.
    pub epoch: i64,
    pub reason: Reason,
    pub message: String,
}

/// What the Lease of a cluster's agent says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentLease {
    pub version: String,
    /// Changes with every renewal, and with nothing else.
    renewal: String,
    pub duration: Option<Duration>,
    /// Time beyond the duration within which the pods of fenced jobs are gone.
    pub grace: Option<Duration>,
    /// The hub's mark: jobs are being moved off the cluster.
    pub declared_lost: bool,
}

/// Everything known.
#[derive(Default)]
pub struct World {
    pub objects: BTreeMap<KindRef, BTreeMap<Key, Object>>,
    pub policies: BTreeMap<(PolicyScope, Key), PolicyEntry>,
    /// Policies that say in their status that something they name is not there, or that they select nothing.
    idle_policies: BTreeSet<(PolicyScope, Key)>,
    /// The rules of all valid policies, rebuilt when one changes.
    pub rules: Vec<PolicyRule>,
    overrides: BTreeMap<(PolicyScope, Key), OverridePolicy>,
    /// All override policies, as the rules take them.
    pub override_list: Vec<OverridePolicy>,
    pub bindings: BTreeMap<Key, BindingEntry>,
    pub units: BTreeMap<Key, QueueUnit>,
    pub queues: BTreeMap<Key, Queue>,
    pub trees: BTreeMap<Key, ElasticQuotaTree>,
    pub clusters: BTreeMap<String, Cluster>,
    /// The hub's namespaces, with the pod security level that each enforces.
    pub namespaces: BTreeMap<String, Level>,
    pub priority_classes: BTreeMap<String, i32>,
    pub reservations: BTreeMap<Key, Reservation>,
    pub works: BTreeMap<Key, Work>,
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
    /// Lost clusters off which a job is to be moved: their leases get the mark of loss first.
    pub to_declare: BTreeSet<String>,
    pub evictions: BTreeMap<Key, Eviction>,
    /// Term of the leader that this process is; none where there is no election.
    pub term: Option<i64>,
    /// Works on their way to the hub.
    pub sent: SentWorks,
    dirty: BTreeSet<Dirty>,
    ended: Ended,
    /// Works and Reservations seen without their binding. They are judged a moment later: the binding may
    /// be on its way.
    pub orphans: BTreeSet<Key>,
    /// Set when capacity, quota or the set of waiting jobs changed: a scheduling pass may find something.
    /// Changes of one binding set it when the scheduler looks at it.
    pub schedule: bool,
}

/// Whether a version is older than another. Resource versions are numbers in every API server since 1.35
/// and in etcd-backed ones before; others cannot be compared and count as newer.
fn older(version: Option<&str>, than: Option<&str>) -> bool {
    match (version.and_then(|v| v.parse::<u64>().ok()), than.and_then(|v| v.parse::<u64>().ok())) {
        (Some(version), Some(than)) => version < than,
        _ => false,
    }
}

fn key<K: Resource>(object: &K) -> Key {
    let meta = object.meta();
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

/// Uids of objects whose end was seen. The answer to a write may come after the watch has told that the
/// object is gone; without this memory it would stand up again.
#[derive(Default)]
struct Ended {
    uids: BTreeSet<String>,
    order: VecDeque<String>,
}

/// Ends remembered; answers are never that late.
const ENDED_KEPT: usize = 4096;

impl Ended {
    fn note(&mut self, uid: Option<String>) {
        let Some(uid) = uid.filter(|uid| !uid.is_empty()) else { return };
        if self.uids.insert(uid.clone()) {
            self.order.push_back(uid);
        }
        if self.order.len() > ENDED_KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.uids.remove(&oldest);
        }
    }

    fn has(&self, uid: Option<&str>) -> bool {
        uid.is_some_and(|uid| self.uids.contains(uid))
    }
}

/// What `keep` asks of a kept value.
trait Kept {
    fn version(&self) -> Option<String>;
    fn uid(&self) -> Option<String>;
}

impl Kept for Object {
    fn version(&self) -> Option<String> {
        self.value["metadata"]["resourceVersion"].as_str().map(str::to_string)
    }

    fn uid(&self) -> Option<String> {
        Some(self.uid.clone())
    }
}

impl Kept for BindingEntry {
    fn version(&self) -> Option<String> {
        self.object.resource_version()
    }

    fn uid(&self) -> Option<String> {
        self.object.metadata.uid.clone()
    }
}

macro_rules! kept_by_metadata {
    ($($kind:ty),+) => {$(
        impl Kept for $kind {
            fn version(&self) -> Option<String> {
                self.metadata.resource_version.clone()
            }

            fn uid(&self) -> Option<String> {
                self.metadata.uid.clone()
            }
        }
    )+};
}

kept_by_metadata!(QueueUnit, Queue, ElasticQuotaTree, Reservation, Work);

/// Applies a change to a map of objects; returns the keys that changed. `read` is given what is known so far.
/// A write's answer and the watch tell the same: what is told again changes nothing.
fn keep<K, V, F>(map: &mut BTreeMap<Key, V>, ended: &mut Ended, change: Change<K>, read: F) -> Vec<Key>
where
    K: Resource,
    V: Kept,
    F: Fn(K, Option<&V>) -> V,
{
    match change {
        Change::Reset(objects) => {
            let mut fresh: BTreeMap<Key, V> = BTreeMap::new();
            for object in objects {
                let key = key(&object);
                // A listing may be older than the answer to a write of ours.
                let newer = map.remove(&key).filter(|known| {
                    known.uid() == object.meta().uid
                        && older(object.meta().resource_version.as_deref(), known.version().as_deref())
                });
                let value = newer.unwrap_or_else(|| read(object, None));
                fresh.insert(key, value);
            }
            let mut changed: Vec<Key> = fresh.keys().cloned().collect();
            for (key, gone) in std::mem::replace(map, fresh) {
                ended.note(gone.uid());
                changed.push(key);
            }
            changed
        }
        Change::Apply(object) => {
            let key = key(&object);
            let known = map.get(&key);
            let stale = known.is_some_and(|known| {
                let (version, known_version) = (&object.meta().resource_version, known.version());
                older(version.as_deref(), known_version.as_deref())
                    || (version.is_some() && *version == known_version && known.uid() == object.meta().uid)
            });
            if stale || ended.has(object.meta().uid.as_deref()) {
                return Vec::new();
            }
            let value = read(object, known);
            map.insert(key.clone(), value);
            vec![key]
        }
        Change::Delete(object) => {
            let key = key(&object);
            ended.note(object.meta().uid.clone());
            // A successor of the same name may be known already.
            if map.get(&key).is_some_and(|known| known.uid() == object.meta().uid) {
                map.remove(&key);
            }
            vec![key]
        }
    }
}

/// Whether an object comes again with nothing changed that `asked` tells: its status has, for instance.
fn told_again<K: Resource, T: PartialEq>(
    known: &BTreeMap<Key, K>,
    change: &Change<K>,
    asked: impl Fn(&K) -> T,
) -> bool {
    let Change::Apply(object) = change else { return false };
    known
        .get(&key(object))
        .is_some_and(|known| known.meta().uid == object.meta().uid && asked(known) == asked(object))
}

impl World {
    /// Takes in one observation and marks what it touches.
    pub fn observe(&mut self, observation: Observation) {
        match observation {
            Observation::Object(kind, change) => self.observe_object(kind, change),
            Observation::Policy(change) => {
                let read = |p: fleet_api::PropagationPolicy| {
                    policy::read(PolicyScope::Namespaced, &p.metadata, p.spec, p.status)
                };
                self.observe_policy(PolicyScope::Namespaced, map_change(change, |p| (key(&p), read(p))));
            }
            Observation::ClusterPolicy(change) => {
                let read = |p: fleet_api::ClusterPropagationPolicy| {
                    policy::read(PolicyScope::Cluster, &p.metadata, p.spec.propagation, p.status)
                };
                self.observe_policy(PolicyScope::Cluster, map_change(change, |p| (key(&p), read(p))));
            }
            Observation::Override(change) => {
                let change = map_change(change, |p| {
                    let (namespace, name) = key(&p);
                    OverridePolicy {
                        scope: PolicyScope::Namespaced,
                        namespace,
                        name,
                        spec: override_spec(&p.spec),
                    }
                });
                self.observe_override(PolicyScope::Namespaced, change);
            }
            Observation::ClusterOverride(change) => {
                let change = map_change(change, |p| {
                    let (namespace, name) = key(&p);
                    OverridePolicy {
                        scope: PolicyScope::Cluster,
                        namespace,
                        name,
                        spec: override_spec(&p.spec.overrides),
                    }
                });
                self.observe_override(PolicyScope::Cluster, change);
            }
            Observation::Binding(change) => {
                let was_bound = match &change {
                    Change::Apply(binding) => {
                        self.bindings.get(&key(binding)).is_some_and(BindingEntry::is_bound)
                    }
                    _ => false,
                };
                let changed = keep(&mut self.bindings, &mut self.ended, change, BindingEntry::read);
                for key in changed {
                    let entry = self.bindings.get(&key);
                    if let Some(entry) = entry.filter(|entry| was_bound && !entry.is_bound()) {
                        // While it was bound, edits of its object were not counted.
                        let reference = &entry.object.spec.resource;
                        let object = (reference.namespace.clone(), reference.name.clone());
                        self.dirty.insert(Dirty::Object(entry.kind.clone(), object));
                    }
                    let over = |asked: &Eviction| {
                        entry.is_none_or(|entry| {
                            entry.object.spec.epoch != asked.epoch
                                || entry.is_finished()
                                || crate::dispatch::is_given_up(entry)
                        })
                    };
                    if self.evictions.get(&key).is_some_and(over) {
                        self.evictions.remove(&key);
                    }
                    let of_older = |(_, sent): (&Key, &SentWork)| {
                        entry.is_some_and(|entry| entry.uid() != sent.binding.uid)
                    };
                    let left = self.sent.of(&key).any(of_older)
                        || entry.is_some_and(|entry| self.has_of_another(&key, entry.uid()));
                    if !self.bindings.contains_key(&key) {
                        self.mark_orphans(&key);
                        self.mark_objects_of_binding(&key);
                    } else if left {
                        self.mark_orphans(&key);
                    }
                    self.dirty.insert(Dirty::Binding(key));
                }
            }
            Observation::Unit(change) => {
                let changed = keep(&mut self.units, &mut self.ended, change, |unit, _| unit);
                for (namespace, name) in changed {
                    if let Some(binding) = name.strip_suffix(crate::binding::UNIT_SUFFIX) {
                        self.dirty.insert(Dirty::Binding((namespace, binding.to_string())));
                    }
                }
            }
            Observation::Queue(change) => {
                let asked =
                    |queue: &Queue| (queue.spec.clone(), queue.annotations().clone(), queue.labels().clone());
                let told = told_again(&self.queues, &change, asked);
                keep(&mut self.queues, &mut self.ended, change, |queue, _| queue);
                self.mark_tree(told);
            }
            Observation::Tree(change) => {
                let asked = |tree: &ElasticQuotaTree| {
                    let conditions = tree.status.as_ref().map(|status| status.conditions.clone());
                    (tree.metadata.generation, tree.metadata.deletion_timestamp.is_some(), conditions)
                };
                let told = told_again(&self.trees, &change, asked);
                keep(&mut self.trees, &mut self.ended, change, |tree, _| tree);
                self.mark_tree(told);
            }
            Observation::Cluster(change) => self.observe_cluster(change),
            Observation::Reservation(change) => {
                let mut bindings = BTreeSet::new();
                observe_owned(
                    &mut self.reservations,
                    &mut self.reservations_of,
                    &mut self.ended,
                    change,
                    &mut bindings,
                    |r| (r.spec.binding.namespace.clone(), r.spec.binding.name.clone()),
                );
                self.mark_bindings(bindings);
            }
            Observation::Work(change) => {
                let mut bindings = BTreeSet::new();
                let shown: &[Work] = match &change {
                    Change::Reset(works) => works,
                    Change::Apply(work) | Change::Delete(work) => std::slice::from_ref(work),
                };
                for work in shown {
                    let key = (work.namespace().unwrap_or_default(), work.name_any());
                    bindings.extend(self.sent.heard(&key));
                }
                let ended = &mut self.ended;
                observe_owned(&mut self.works, &mut self.works_of, ended, change, &mut bindings, |w| {
                    (w.spec.binding.namespace.clone(), w.spec.binding.name.clone())
                });
                self.mark_bindings(bindings);
            }
            Observation::Lease(change) => self.observe_lease(change),
            Observation::Namespace(change) => self.observe_namespace(change),
            Observation::PriorityClass(change) => {
                let set =
                    |map: &mut BTreeMap<String, i32>,
                     class: &k8s_openapi::api::scheduling::v1::PriorityClass| {
                        map.insert(class.name_any(), class.value.unwrap_or(0));
                    };
                match change {
                    Change::Reset(classes) => {
                        self.priority_classes.clear();
                        classes.iter().for_each(|class| set(&mut self.priority_classes, class));
                    }
                    Change::Apply(class) => set(&mut self.priority_classes, &class),
                    Change::Delete(class) => {
                        self.priority_classes.remove(&class.name_any());
                    }
                }
                self.mark_all_objects();
            }
        }
    }

    /// What must be looked at again, in a fixed order; the marks are taken away.
    pub fn take_dirty(&mut self) -> BTreeSet<Dirty> {
        std::mem::take(&mut self.dirty)
    }

    /// Whether anything waits to be looked at.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    pub fn mark(&mut self, dirty: Dirty) {
        self.dirty.insert(dirty);
    }

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

    /// Everything governed may have another governor now.
    pub fn mark_all_objects(&mut self) {
        for (kind, objects) in &self.objects {
            self.dirty.extend(objects.keys().map(|key| Dirty::Object(kind.clone(), key.clone())));
        }
    }

    fn mark_orphans(&mut self, binding: &Key) {
        let works = self.works_of.get(binding).into_iter().flatten();
        let reservations = self.reservations_of.get(binding).into_iter().flatten();
        self.orphans.extend(works.chain(reservations).cloned());
        self.orphans.extend(self.sent.of(binding).map(|(work, _)| work.clone()));
    }

    /// Whether something stands that an earlier binding of this name has left.
    fn has_of_another(&self, binding: &Key, uid: &str) -> bool {
        self.works_of(binding).any(|(_, work)| work.spec.binding.uid != uid)
            || self.reservations_of(binding).any(|(_, reservation)| reservation.spec.binding.uid != uid)
    }

    fn mark_bindings(&mut self, bindings: BTreeSet<Key>) {
        for key in bindings {
            if self.bindings.get(&key).is_none_or(|entry| self.has_of_another(&key, entry.uid())) {
                self.mark_orphans(&key);
            }
            self.dirty.insert(Dirty::Binding(key));
        }
    }

    /// Whatever waits for a cluster's answer, or follows the set of clusters, is looked at again.
    fn mark_users_of(&mut self, cluster: &str) {
        let namespace = names::cluster_namespace(cluster);
        let first: Key = (namespace.clone(), String::new());
        let here = self.reservations.range(first..).take_while(|((ns, _), _)| *ns == namespace);
        let asked = here.map(|(_, r)| (r.spec.binding.namespace.clone(), r.spec.binding.name.clone()));
        let plain = self.bindings.iter().filter(|(_, entry)| !entry.is_gang()).map(|(key, _)| key.clone());
        self.dirty.extend(asked.chain(plain).map(Dirty::Binding));
    }

    fn mark_objects_of_binding(&mut self, (namespace, binding): &Key) {
        for (kind, objects) in &self.objects {
            let start = match names::object_of_binding(&kind.api_version, &kind.kind, binding) {
                None => continue,
                Some(names::Named::Exactly(name)) => {
                    let key = (namespace.clone(), name);
                    if objects.contains_key(&key) {
                        self.dirty.insert(Dirty::Object(kind.clone(), key));
                    }
                    continue;
                }
                Some(names::Named::StartsWith(start)) => start,
            };
            let alike = objects
                .range((namespace.clone(), start.clone())..)
                .take_while(|((ns, name), _)| ns == namespace && name.starts_with(&start));
            self.dirty.extend(alike.map(|(key, _)| Dirty::Object(kind.clone(), key.clone())));
        }
    }

    fn mark_tree(&mut self, told_again: bool) {
        if !told_again {
            self.dirty.insert(Dirty::Tree);
            self.schedule = true;
        }
    }

    fn observe_object(&mut self, kind: KindRef, change: Change<DynamicObject>) {
        let listed = matches!(change, Change::Reset(_));
        // A kind first known by a guess is served as discovery says.
        if self.objects.get_key_value(&kind).is_some_and(|(known, _)| known.plural != kind.plural)
            && let Some(objects) = self.objects.remove(&kind)
        {
            self.objects.insert(kind.clone(), objects);
        }
        let gone = match &change {
            Change::Delete(object) => Some((key(object), object.labels().clone())),
            _ => None,
        };
        let objects = self.objects.entry(kind.clone()).or_default();
        let changed = keep(objects, &mut self.ended, change, |object, _| read_object(&kind, object));
        if listed {
            // What was deleted meanwhile is in no listing, but its binding is still there.
            let of_kind = self.bindings.iter().filter(|(_, entry)| entry.kind == kind);
            self.dirty.extend(of_kind.map(|(key, _)| Dirty::Binding(key.clone())));
        }
        self.mark_policies_of(&kind, listed, gone.as_ref());
        let governed = !crate::kinds::dependencies().contains(&kind);
        for key in changed {
            let binding = self.binding_key(&kind, &key);
            if self.bindings.contains_key(&binding) {
                self.dirty.insert(Dirty::Binding(binding));
            }
            if !governed {
                // Whoever depends on it has it in a Work; there are few, and the look is cheap.
                let users = self.bindings.iter().filter(|((namespace, _), entry)| {
                    *namespace == key.0 && entry.object.spec.propagate_deps == Some(true)
                });
                self.dirty.extend(users.map(|(key, _)| Dirty::Binding(key.clone())));
                // A job may have waited for it.
                self.schedule = true;
            }
            self.dirty.insert(Dirty::Object(kind.clone(), key));
        }
    }

    /// Policies that may select something now, or nothing any more.
    fn mark_policies_of(
        &mut self,
        kind: &KindRef,
        listed: bool,
        gone: Option<&(Key, BTreeMap<String, String>)>,
    ) {
        let of_kind = |entry: &PolicyEntry| {
            let mut selectors = entry.rule.selectors.iter();
            selectors.any(|s| s.kind == kind.kind && s.api_version == kind.api_version)
        };
        if listed {
            let all = self.policies.iter().filter(|(_, entry)| of_kind(entry));
            self.dirty.extend(all.map(|((scope, key), _)| Dirty::Policy(*scope, key.clone())));
        } else if let Some(((namespace, name), labels)) = gone {
            let reference = ObjectRef {
                api_version: kind.api_version.clone(),
                kind: kind.kind.clone(),
                namespace: namespace.clone(),
                name: name.clone(),
                labels: labels.clone(),
            };
            let had = self
                .policies
                .iter()
                .filter(|(_, entry)| match_selectors(&entry.rule.selectors, &reference).is_some());
            self.dirty.extend(had.map(|((scope, key), _)| Dirty::Policy(*scope, key.clone())));
        } else {
            let idle = self.idle_policies.iter().filter(|id| self.policies.get(*id).is_some_and(of_kind));
            self.dirty.extend(idle.map(|(scope, key)| Dirty::Policy(*scope, key.clone())));
        }
    }

    /// Policies call clusters by name.
    fn mark_all_policies(&mut self) {
        self.dirty.extend(self.policies.keys().map(|(scope, key)| Dirty::Policy(*scope, key.clone())));
    }

    fn observe_policy(&mut self, scope: PolicyScope, change: Change<(Key, PolicyEntry)>) {
        match change {
            Change::Reset(list) => {
                self.policies.retain(|(kept, _), _| *kept != scope);
                self.idle_policies.retain(|(kept, _)| *kept != scope);
                for (key, entry) in list {
                    self.dirty.insert(Dirty::Policy(scope, key.clone()));
                    self.note_idle(scope, &key, &entry);
                    self.policies.insert((scope, key), entry);
                }
            }
            Change::Apply((key, entry)) => {
                let known = self.policies.get(&(scope, key.clone()));
                let same = known
                    .is_some_and(|known| known.generation == entry.generation && known.rule == entry.rule);
                self.dirty.insert(Dirty::Policy(scope, key.clone()));
                self.note_idle(scope, &key, &entry);
                self.policies.insert((scope, key), entry);
                if same {
                    return;
                }
            }
            Change::Delete((key, _)) => {
                self.idle_policies.remove(&(scope, key.clone()));
                self.policies.remove(&(scope, key));
            }
        }
        let valid = self.policies.values().filter(|entry| entry.violations.is_empty());
        self.rules = valid.map(|entry| entry.rule.clone()).collect();
        self.mark_all_objects();
    }

    fn note_idle(&mut self, scope: PolicyScope, key: &Key, entry: &PolicyEntry) {
        let is_idle = entry.conditions.iter().any(|c| c.type_ == "Effective" && c.status == "False");
        let id = (scope, key.clone());
        if is_idle {
            self.idle_policies.insert(id)
        } else {
            self.idle_policies.remove(&id)
        };
    }

    fn observe_override(&mut self, scope: PolicyScope, change: Change<OverridePolicy>) {
        let mut touched = None;
        let id = |entry: &OverridePolicy| (scope, (entry.namespace.clone(), entry.name.clone()));
        match change {
            Change::Reset(list) => {
                self.overrides.retain(|(kept, _), _| *kept != scope);
                self.overrides.extend(list.into_iter().map(|entry| (id(&entry), entry)));
            }
            Change::Apply(entry) => {
                let id = id(&entry);
                if self.overrides.get(&id) == Some(&entry) {
                    return;
                }
                touched = Some(entry.namespace.clone());
                self.overrides.insert(id, entry);
            }
            Change::Delete(entry) => {
                touched = Some(entry.namespace.clone());
                self.overrides.remove(&id(&entry));
            }
        }
        self.override_list = self.overrides.values().cloned().collect();
        // A namespaced policy is no business of other namespaces.
        let touched = touched.filter(|_| scope == PolicyScope::Namespaced);
        let is_touched = |key: &Key| touched.as_ref().is_none_or(|namespace| key.0 == *namespace);
        let bindings = self.bindings.keys().filter(|key| is_touched(key));
        self.dirty.extend(bindings.cloned().map(Dirty::Binding));
        // What is counted of a job is what overrides make of it.
        for (kind, objects) in &self.objects {
            let objects = objects.keys().filter(|key| is_touched(key));
            self.dirty.extend(objects.map(|key| Dirty::Object(kind.clone(), key.clone())));
        }
    }

    fn observe_cluster(&mut self, change: Change<Cluster>) {
        match change {
            Change::Reset(list) => {
                let gone: Vec<String> = self.clusters.keys().cloned().collect();
                self.clusters = list.into_iter().map(|cluster| (cluster.name_any(), cluster)).collect();
                let all: BTreeSet<String> = gone.into_iter().chain(self.clusters.keys().cloned()).collect();
                for name in &all {
                    self.mark_users_of(name);
                }
                self.recount.extend(self.clusters.keys().cloned());
                self.dirty.extend(self.clusters.keys().cloned().map(Dirty::Cluster));
                self.mark_all_policies();
                self.mark_waiting();
            }
            Change::Apply(cluster) => {
                let name = cluster.name_any();
                let known = self.clusters.get(&name);
                let joined = known.is_none();
                let version = &cluster.metadata.resource_version;
                let known_version = known.and_then(ResourceExt::resource_version);
                let told_again = known.is_some_and(|known| known.metadata.uid == cluster.metadata.uid)
                    && version.is_some()
                    && *version == known_version;
                if told_again || older(version.as_deref(), known_version.as_deref()) {
                    return;
                }
                self.dirty.insert(Dirty::Cluster(name.clone()));
                self.recount.insert(name.clone());
                let marked = name.clone();
                let moved = known.is_none_or(|known| {
                    known.spec != cluster.spec
                        || known.metadata.labels != cluster.metadata.labels
                        || ready(known) != ready(&cluster)
                });
                let tainted = known.map_or(&[][..], |known| &known.spec.taints) != cluster.spec.taints;
                self.clusters.insert(name, cluster);
                if joined {
                    self.mark_all_policies();
                }
                if tainted {
                    self.mark_waiting();
                }
                if moved && !self.override_list.is_empty() {
                    self.mark_all_objects();
                }
                if moved {
                    self.mark_users_of(&marked);
                    self.mark_bound_to(&marked);
                }
            }
            Change::Delete(cluster) => {
                let name = cluster.name_any();
                self.clusters.remove(&name);
                self.mark_all_policies();
                self.recount.insert(name.clone());
                self.lost.remove(&name);
                self.mark_users_of(&name);
                self.mark_bound_to(&name);
                self.dirty.insert(Dirty::Cluster(name));
            }
        }
        self.schedule = true;
    }

    /// Who was kept off a cluster by its taints may go there now, and the other way round.
    fn mark_waiting(&mut self) {
        let waiting = self.bindings.iter().filter(|(_, entry)| !entry.is_bound());
        self.dirty.extend(waiting.map(|(key, _)| Dirty::Binding(key.clone())));
    }

    /// Clusters that objects without a gang leave: those that are gone, and those that are drained.
    pub fn leaving_clusters(&self) -> BTreeSet<String> {
        let is_left = |cluster: &Cluster| crate::drain::is_gone(cluster) || crate::drain::is_drained(cluster);
        let leaving = self.clusters.iter().filter(|(_, cluster)| is_left(cluster));
        leaving.map(|(name, _)| name.clone()).collect()
    }

    /// Whether a cluster is lost by the process's clock. A change is news to all that runs there.
    pub fn set_lost(&mut self, cluster: &str, lost: bool) {
        let changed = if lost { self.lost.insert(cluster.to_string()) } else { self.lost.remove(cluster) };
        if changed {
            self.mark_bound_to(cluster);
        }
    }

    /// Bindings whose target is the cluster, or of which a Work still stands there.
    pub fn mark_bound_to(&mut self, cluster: &str) {
        let namespace = names::cluster_namespace(cluster);
        let first: Key = (namespace.clone(), String::new());
        let works = self.works.range(first..).take_while(|((ns, _), _)| *ns == namespace);
        let mut with_work = Vec::new();
        for (key, work) in works {
            let binding = (work.spec.binding.namespace.clone(), work.spec.binding.name.clone());
            if !self.bindings.contains_key(&binding) {
                self.orphans.insert(key.clone());
            }
            with_work.push(binding);
        }
        let bound = self
            .bindings
            .iter()
            .filter(|(_, entry)| entry.object.spec.clusters.iter().any(|target| target.name == cluster));
        self.dirty.extend(bound.map(|(key, _)| key.clone()).chain(with_work).map(Dirty::Binding));
        self.schedule = true;
    }

    fn observe_lease(&mut self, change: Change<Lease>) {
        // What the first listing shows may be long past: only what is renewed under this process's eyes counts.
        let first = !self.leases_listed && matches!(change, Change::Reset(_));
        self.leases_listed |= first;
        let leases = match change {
            Change::Reset(list) => list,
            Change::Apply(lease) => vec![lease],
            Change::Delete(lease) => {
                if let Some(cluster) = cluster_of_lease(&lease) {
                    self.leases.remove(&cluster);
                    self.mark_bound_to(&cluster);
                }
                return;
            }
        };
        for lease in leases {
            let Some(cluster) = cluster_of_lease(&lease) else { continue };
            let fresh = read_lease(&lease);
            let known = self.leases.get(&cluster);
            if known.is_some_and(|known| older(Some(&fresh.version), Some(&known.version))) {
                continue;
            }
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

    fn observe_namespace(&mut self, change: Change<k8s_openapi::api::core::v1::Namespace>) {
        type Namespace = k8s_openapi::api::core::v1::Namespace;
        let level = |namespace: &Namespace| {
            Level::from_label(namespace.labels().get(ENFORCE_LABEL).map(String::as_str))
        };
        match change {
            Change::Reset(list) => {
                self.namespaces =
                    list.iter().map(|namespace| (namespace.name_any(), level(namespace))).collect();
                self.mark_waiting();
            }
            Change::Apply(namespace) => {
                let (name, level) = (namespace.name_any(), level(&namespace));
                if self.namespaces.insert(name, level).is_some_and(|known| known != level) {
                    self.mark_waiting();
                }
            }
            Change::Delete(namespace) => {
                self.namespaces.remove(&namespace.name_any());
                self.dirty.insert(Dirty::Tree);
                self.dirty.extend(self.clusters.keys().cloned().map(Dirty::Cluster));
            }
        }
    }
}

fn cluster_of_lease(lease: &Lease) -> Option<String> {
    let namespace = lease.namespace().filter(|_| lease.name_any() == names::LEASE_NAME)?;
    namespace.strip_prefix(names::CLUSTER_NAMESPACE_PREFIX).map(str::to_string)
}

fn read_lease(lease: &Lease) -> AgentLease {
    let version = lease.resource_version().unwrap_or_default();
    let spec = lease.spec.as_ref();
    let seconds = spec.and_then(|spec| spec.lease_duration_seconds);
    let grace = lease.annotations().get(names::FENCE_GRACE_ANNOTATION);
    AgentLease {
        renewal: spec
            .and_then(|spec| spec.renew_time.as_ref())
            .map_or_else(|| version.clone(), |time| time.0.to_string()),
        version,
        duration: seconds.and_then(|s| u64::try_from(s).ok()).map(Duration::from_secs),
        grace: grace.and_then(|text| text.parse().ok()).map(Duration::from_secs),
        declared_lost: lease.annotations().contains_key(names::DECLARED_LOST_ANNOTATION),
    }
}

/// Whether the condition Ready of a cluster is True.
pub fn ready(cluster: &Cluster) -> bool {
    let conditions = cluster.status.as_ref().map_or(&[][..], |status| &status.conditions);
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn map_change<T, U>(change: Change<T>, map: impl Fn(T) -> U) -> Change<U> {
    match change {
        Change::Reset(list) => Change::Reset(list.into_iter().map(map).collect()),
        Change::Apply(object) => Change::Apply(map(object)),
        Change::Delete(object) => Change::Delete(map(object)),
    }
}

/// The wire's form is that of the rules, field for field; what cannot be read overrides nothing.
fn override_spec(wire: &OverrideSpec) -> overrides::OverrideSpec {
    let value = serde_json::to_value(wire).unwrap_or_default();
    serde_json::from_value(value).unwrap_or_default()
}

/// The items of a list do not say what they are; it is put down here, since a copy goes to the members.
fn read_object(kind: &KindRef, object: DynamicObject) -> Object {
    let mut object = object;
    let resource = kind.resource();
    object.types = Some(TypeMeta { api_version: resource.api_version, kind: resource.kind });
    let created =
        object.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default();
    Object {
        uid: object.metadata.uid.clone().unwrap_or_default(),
        labels: object.metadata.labels.clone().unwrap_or_default(),
        deleting: object.metadata.deletion_timestamp.is_some(),
        created,
        value: Arc::new(serde_json::to_value(object).unwrap_or_default()),
    }
}

/// Keeps objects that belong to a binding, with the index by binding; collects the bindings touched.
fn observe_owned<K>(
    map: &mut BTreeMap<Key, K>,
    index: &mut BTreeMap<Key, BTreeSet<Key>>,
    ended: &mut Ended,
    change: Change<K>,
    touched: &mut BTreeSet<Key>,
    owner: fn(&K) -> Key,
) where
    K: Resource + Kept,
{
    let mut before = None;
    match &change {
        Change::Reset(_) => touched.extend(std::mem::take(index).into_keys()),
        Change::Delete(gone) => {
            let owner = owner(gone);
            if let Some(keys) = index.get_mut(&owner) {
                keys.remove(&key(gone));
                if keys.is_empty() {
                    index.remove(&owner);
                }
            }
            touched.insert(owner);
        }
        Change::Apply(object) => before = map.get(&key(object)).map(owner),
    }
    let changed = keep(map, ended, change, |object, _| object);
    if !changed.is_empty() {
        // A member may have changed whose it is: whoever it belonged to puts it right.
        touched.extend(before);
    }
    for key in changed {
        if let Some(object) = map.get(&key) {
            let owner = owner(object);
            index.entry(owner.clone()).or_default().insert(key);
            touched.insert(owner);
        }
    }
}
