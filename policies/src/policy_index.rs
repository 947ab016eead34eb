//! Policies by what their selectors name, so that an object is compared only with policies that may select it.
//!
//! A selector is found by namespace and kind, and then by its name, or by one of the labels that it requires. Only selectors
//! with neither are compared with every object of their kind and namespace. The policies of one namespace cost the
//! objects of others nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    choice::{ObjectRef, PolicyRule, PolicyScope},
    selector::ResourceSelector,
};

/// Scope, namespace (empty for cluster scope) and name.
type PolicyId = (PolicyScope, String, String);

/// Namespace (empty: all), API version and kind of the selected objects.
type Place = (String, String, String);

/// The policies of a hub.
#[derive(Clone, Debug, Default)]
pub struct PolicyIndex {
    rules: BTreeMap<PolicyId, PolicyRule>,
    shelves: BTreeMap<Place, Shelf>,
}

/// The policies with selectors of one place.
#[derive(Clone, Debug, Default)]
struct Shelf {
    by_name: BTreeMap<String, BTreeSet<PolicyId>>,
    /// By one of the labels that the selector requires.
    by_label: BTreeMap<(String, String), BTreeSet<PolicyId>>,
    others: BTreeSet<PolicyId>,
}

/// Where a selector is found on its shelf.
enum Spot {
    Name(String),
    Label((String, String)),
    Others,
}

impl PolicyIndex {
    /// Adds the policy, or replaces the one of its name.
    pub fn insert(&mut self, rule: PolicyRule) {
        let id = id_of(&rule);
        self.remove(rule.scope, &rule.namespace, &rule.name);
        for (place, spot) in spots(&rule) {
            let shelf = self.shelves.entry(place).or_default();
            match spot {
                Spot::Name(name) => shelf.by_name.entry(name).or_default().insert(id.clone()),
                Spot::Label(label) => shelf.by_label.entry(label).or_default().insert(id.clone()),
                Spot::Others => shelf.others.insert(id.clone()),
            };
        }
        self.rules.insert(id, rule);
    }

    pub fn remove(&mut self, scope: PolicyScope, namespace: &str, name: &str) -> Option<PolicyRule> {
        let rule = self.rules.remove(&(scope, namespace.to_string(), name.to_string()))?;
        let id = id_of(&rule);
        for (place, spot) in spots(&rule) {
            let Some(shelf) = self.shelves.get_mut(&place) else { continue };
            match spot {
                Spot::Name(name) => take_out(&mut shelf.by_name, &name, &id),
                Spot::Label(label) => take_out(&mut shelf.by_label, &label, &id),
                Spot::Others => drop(shelf.others.remove(&id)),
            }
            if shelf.by_name.is_empty() && shelf.by_label.is_empty() && shelf.others.is_empty() {
                self.shelves.remove(&place);
            }
        }
        Some(rule)
    }

    /// The policies that may select the object: all that do, and few others.
    pub fn candidates<'i>(&'i self, object: &ObjectRef) -> impl Iterator<Item = &'i PolicyRule> + use<'i> {
        let mut found: BTreeSet<&PolicyId> = BTreeSet::new();
        for namespace in [object.namespace.as_str(), ""] {
            let place = (namespace.to_string(), object.api_version.clone(), object.kind.clone());
            let Some(shelf) = self.shelves.get(&place) else { continue };
            found.extend(&shelf.others);
            found.extend(shelf.by_name.get(&object.name).into_iter().flatten());
            for (key, value) in object.labels.iter().filter(|_| !shelf.by_label.is_empty()) {
                found.extend(shelf.by_label.get(&(key.clone(), value.clone())).into_iter().flatten());
            }
        }
        found.into_iter().filter_map(|id| self.rules.get(id))
    }
}

fn id_of(rule: &PolicyRule) -> PolicyId {
    (rule.scope, rule.namespace.clone(), rule.name.clone())
}

fn take_out<K: Ord>(of: &mut BTreeMap<K, BTreeSet<PolicyId>>, key: &K, id: &PolicyId) {
    if let Some(ids) = of.get_mut(key) {
        ids.remove(id);
        if ids.is_empty() {
            of.remove(key);
        }
    }
}

/// Where the selectors of a policy that reach any object are found.
fn spots(rule: &PolicyRule) -> impl Iterator<Item = (Place, Spot)> {
    rule.selectors.iter().filter_map(|selector| {
        let namespace = match rule.scope {
            PolicyScope::Cluster => selector.namespace.clone(),
            // A policy of a namespace reaches no other.
            PolicyScope::Namespaced if selector.namespace.is_empty() => rule.namespace.clone(),
            PolicyScope::Namespaced if selector.namespace == rule.namespace => rule.namespace.clone(),
            PolicyScope::Namespaced => return None,
        };
        Some(((namespace, selector.api_version.clone(), selector.kind.clone()), spot(selector)))
    })
}

fn spot(selector: &ResourceSelector) -> Spot {
    if !selector.name.is_empty() {
        return Spot::Name(selector.name.clone());
    }
    let labels = selector.label_selector.iter().flat_map(|labels| &labels.match_labels);
    let label = labels.map(|(key, value)| (key.clone(), value.clone())).next();
    label.map_or(Spot::Others, Spot::Label)
}

#[cfg(test)]
mod tests;
