//! Records what must be reconciled after a change.

use std::collections::BTreeSet;

use fleet_api::names;
use fleet_policies::choice::{ObjectRef, PolicyRule, PolicyScope};
use fleet_policies::selector::match_selectors;

use super::{Dirty, Key, PolicyEntry, World};
use crate::kinds::KindRef;

impl World {
    /// Takes everything that must be reconciled, in a fixed order.
    pub fn take_dirty(&mut self) -> BTreeSet<Dirty> {
        std::mem::take(&mut self.dirty)
    }

    /// Whether anything must be reconciled.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    pub fn mark(&mut self, dirty: Dirty) {
        self.dirty.insert(dirty);
    }

    /// Marks every governed object, because its policy may have changed.
    pub fn mark_all_objects(&mut self) {
        for (kind, objects) in &self.objects {
            self.dirty.extend(objects.keys().map(|key| Dirty::Object(kind.clone(), key.clone())));
        }
    }

    pub(super) fn mark_orphans(&mut self, binding: &Key) {
        let works = self.works_of.get(binding).into_iter().flatten();
        let reservations = self.reservations_of.get(binding).into_iter().flatten();
        self.orphans.extend(works.chain(reservations).cloned());
    }

    /// Whether objects of an earlier binding of this name still exist.
    pub(super) fn has_of_another(&self, binding: &Key, uid: &str) -> bool {
        self.works_of(binding).any(|(_, work)| work.spec.binding.uid != uid)
            || self.reservations_of(binding).any(|(_, reservation)| reservation.spec.binding.uid != uid)
    }

    /// A binding, an earlier one of its name, or an object of one has changed.
    pub fn mark_binding(&mut self, key: &Key) {
        if self.bindings.get(key).is_none_or(|entry| self.has_of_another(key, entry.uid())) {
            self.mark_orphans(key);
        }
        self.touched.insert(key.clone());
        self.dirty.insert(Dirty::Binding(key.clone()));
    }

    /// Marks everything that waits for a cluster's answer or depends on the set of clusters.
    pub(super) fn mark_users_of(&mut self, cluster: &str) {
        let namespace = names::cluster_namespace(cluster);
        let first: Key = (namespace.clone(), String::new());
        let here = self.reservations.range(first..).take_while(|((ns, _), _)| *ns == namespace);
        let asked = here.map(|(_, r)| (r.spec.binding.namespace.clone(), r.spec.binding.name.clone()));
        let plain = self.bindings.iter().filter(|(_, entry)| !entry.is_gang()).map(|(key, _)| key.clone());
        self.dirty.extend(asked.chain(plain).map(Dirty::Binding));
    }

    pub(super) fn mark_objects_of_binding(&mut self, (namespace, binding): &Key) {
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

    /// Members' reports on their cell nodes have changed.
    pub(super) fn mark_cell_nodes(&mut self) {
        let names: Vec<String> = self.clusters.keys().cloned().collect();
        self.recount.extend(names.iter().cloned());
        self.dirty.extend(names.into_iter().map(Dirty::Cluster));
        self.dirty.insert(Dirty::Cells);
        self.schedule = true;
    }

    pub(super) fn mark_tree(&mut self) {
        self.dirty.insert(Dirty::Tree);
        self.schedule = true;
    }

    /// Marks the objects that a policy may select: others have the same policy with and without it.
    pub(super) fn mark_reached(&mut self, rule: &PolicyRule) {
        let places: BTreeSet<(&str, &str, &str)> = rule
            .selectors
            .iter()
            .map(|selector| {
                let namespace = match rule.scope {
                    PolicyScope::Namespaced => &rule.namespace,
                    PolicyScope::Cluster => &selector.namespace,
                };
                (selector.api_version.as_str(), selector.kind.as_str(), namespace.as_str())
            })
            .collect();
        for (api_version, kind_name, namespace) in places {
            let of_kind = |kind: &&KindRef| kind.api_version == api_version && kind.kind == kind_name;
            let Some((kind, objects)) = self.objects.iter().find(|(kind, _)| of_kind(kind)) else { continue };
            let here = objects.range((namespace.to_string(), String::new())..);
            let here = here.take_while(|((of, _), _)| namespace.is_empty() || of == namespace);
            self.dirty.extend(here.map(|(key, _)| Dirty::Object(kind.clone(), key.clone())));
        }
    }

    /// Marks the policies with selectors of a kind, which was listed.
    pub(super) fn mark_policies_of(&mut self, kind: &KindRef) {
        let of_kind = |entry: &PolicyEntry| {
            let mut selectors = entry.rule.selectors.iter();
            selectors.any(|s| s.kind == kind.kind && s.api_version == kind.api_version)
        };
        let all = self.policies.iter().filter(|(_, entry)| of_kind(entry));
        self.dirty.extend(all.map(|((scope, key), _)| Dirty::Policy(*scope, key.clone())));
    }

    /// Marks policies that select nothing any more, now that the object is gone, or something at last.
    pub(super) fn mark_policies_that_select(&mut self, object: &ObjectRef, is_gone: bool) {
        let selecting = self
            .rules
            .candidates(object)
            .filter(|rule| match_selectors(&rule.selectors, object).is_some())
            .map(|rule| (rule.scope, (rule.namespace.clone(), rule.name.clone())))
            .filter(|id| is_gone || self.idle_policies.contains(id));
        self.dirty.extend(selecting.map(|(scope, key)| Dirty::Policy(scope, key)));
    }

    /// Marks all policies, because they name clusters.
    pub(super) fn mark_all_policies(&mut self) {
        self.dirty.extend(self.policies.keys().map(|(scope, key)| Dirty::Policy(*scope, key.clone())));
    }

    pub(super) fn note_idle(&mut self, scope: PolicyScope, key: &Key, entry: &PolicyEntry) {
        let is_idle = entry.conditions.iter().any(|c| c.type_ == "Effective" && c.status == "False");
        let id = (scope, key.clone());
        if is_idle {
            self.idle_policies.insert(id)
        } else {
            self.idle_policies.remove(&id)
        };
    }

    /// Marks waiting jobs, because taints of a cluster have changed.
    pub(super) fn mark_waiting(&mut self) {
        let waiting = self.bindings.iter().filter(|(_, entry)| !entry.is_bound());
        self.dirty.extend(waiting.map(|(key, _)| Dirty::Binding(key.clone())));
    }

    /// Sets whether a cluster is lost by this process's clock; a change affects everything that runs there.
    pub fn set_lost(&mut self, cluster: &str, lost: bool) {
        let changed = if lost { self.lost.insert(cluster.to_string()) } else { self.lost.remove(cluster) };
        if changed {
            self.mark_bound_to(cluster);
        }
    }

    /// Marks bindings whose target is the cluster, or that still have a Work there.
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
}
