//! Which bindings a change of a dependency concerns.
//!
//! A tenant may change a ConfigMap as often as he likes, and name it in many jobs. So only those are marked for which
//! something may follow from the change. Whether the dependency exists does not matter: a job that waits for it is marked
//! when it appears.

use std::{collections::BTreeSet, sync::OnceLock};

use fleet_api::Work;
use fleet_policies::{
    names, overrides,
    workload::{self, DependencyKind, DependencyRef, WorkloadKind},
};

use super::{Dirty, Key, Object, World, kept::reference};
use crate::{
    binding::BindingEntry,
    kinds::{self, KindRef},
};

/// What the object in a Work names, found when it is first asked for.
pub(super) type NamedByWork = OnceLock<BTreeSet<DependencyRef>>;

/// As which dependency an object of this kind is sent.
pub(super) fn dependency_kind(kind: &KindRef) -> Option<DependencyKind> {
    use DependencyKind::{ConfigMap, PersistentVolumeClaim, Secret, ServiceAccount};
    let is_sent = kinds::dependencies().contains(kind);
    [ConfigMap, PersistentVolumeClaim, Secret, ServiceAccount]
        .into_iter()
        .find(|dependency| is_sent && dependency.to_string() == kind.kind)
}

/// Whether a dependency of this kind and name is among them; pods may start without it or not.
fn has(named: &BTreeSet<DependencyRef>, wanted: &[DependencyRef; 2]) -> bool {
    wanted.iter().any(|dependency| named.contains(dependency))
}

impl World {
    /// Marks the bindings that a change of one dependency concerns.
    pub(super) fn mark_dependents(&mut self, kind: DependencyKind, (namespace, name): &Key) {
        let wanted = [false, true].map(|optional| DependencyRef { kind, name: name.clone(), optional });
        let here = self.bindings.range((namespace.clone(), String::new())..);
        let users: Vec<Dirty> = here
            .take_while(|((of, _), _)| of == namespace)
            .filter(|(_, entry)| entry.object.spec.propagate_deps == Some(true))
            .filter(|(key, entry)| self.may_depend(key, entry, &wanted))
            .map(|(key, _)| Dirty::Binding(key.clone()))
            .collect();
        // A job may wait for it.
        self.schedule |= !users.is_empty();
        self.dirty.extend(users);
    }

    /// Marks bound jobs that were not sent because it was not known what there is of a kind of dependencies.
    pub(super) fn mark_unsent(&mut self) {
        let depends = |entry: &BindingEntry| entry.object.spec.propagate_deps == Some(true);
        let waiting = self.bindings.iter().filter(|(_, entry)| entry.is_bound() && depends(entry));
        self.dirty.extend(waiting.map(|(key, _)| Dirty::Binding(key.clone())));
    }

    /// Notes that Works have changed, or all of them.
    pub(super) fn renew_named(&mut self, changed: Vec<Key>, is_listing: bool) {
        for key in changed {
            match self.works.contains_key(&key) {
                true => drop(self.named_by_works.insert(key, NamedByWork::new())),
                false => drop(self.named_by_works.remove(&key)),
            }
        }
        if is_listing {
            self.named_by_works.retain(|key, _| self.works.contains_key(key));
        }
    }

    /// Whether a binding may need something else when such a dependency changes.
    fn may_depend(&self, key: &Key, entry: &BindingEntry, wanted: &[DependencyRef; 2]) -> bool {
        let object = self.bound_object(entry);
        if object.is_some_and(|object| has(object.dependencies(entry.workload), wanted)) {
            return true;
        }
        // What is sent may name more than its object does: the run is older than an edit, or an override names it. While
        // that cannot be sent, no Work shows what it would name.
        entry.is_bound()
            && (self.works_of(key).any(|(key, work)| self.work_names(key, work, entry.workload, wanted))
                || object.is_some_and(|object| self.is_overridden(entry, object)))
    }

    fn work_names(&self, key: &Key, work: &Work, kind: WorkloadKind, wanted: &[DependencyRef; 2]) -> bool {
        let Some(sent) = work.spec.workload.manifests.first() else { return false };
        let find = || workload::dependencies(kind, sent);
        match self.named_by_works.get(key) {
            Some(named) => has(named.get_or_init(find), wanted),
            None => has(&find(), wanted),
        }
    }

    /// Whether an override policy selects the object, for any cluster. With too many policies nothing is sent, whatever it
    /// names.
    fn is_overridden(&self, entry: &BindingEntry, object: &Object) -> bool {
        let applicable = self.overrides.in_namespace(entry.namespace());
        if applicable.too_many.is_some() || applicable.policies.is_empty() {
            return false;
        }
        let resource = &entry.object.spec.resource;
        let mut labels = object.labels.clone();
        // As they are when overrides are applied.
        labels.retain(|name, _| !names::is_reserved(name));
        let key = (resource.namespace.clone(), resource.name.clone());
        overrides::is_selected(&reference(&entry.kind, &key, labels), &applicable.policies)
    }
}
