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
mod tests {
    use super::*;
    use crate::{
        choice::{ClaimRef, PreemptionRule, choose},
        selector::LabelSelector,
    };

    fn labels(pairs: &[(&str, usize)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    fn selector(kind: &str, label: Option<usize>) -> ResourceSelector {
        let label_selector =
            label.map(|of| LabelSelector { match_labels: labels(&[("p", of)]), ..LabelSelector::default() });
        ResourceSelector {
            api_version: "v1".into(),
            kind: kind.into(),
            label_selector,
            ..ResourceSelector::default()
        }
    }

    fn policy(namespace: &str, name: &str, selectors: Vec<ResourceSelector>) -> PolicyRule {
        let scope = if namespace.is_empty() { PolicyScope::Cluster } else { PolicyScope::Namespaced };
        PolicyRule {
            scope,
            namespace: namespace.into(),
            name: name.into(),
            uid: format!("uid-{namespace}-{name}"),
            priority: 0,
            preemption: PreemptionRule::Never,
            deleting: false,
            selectors,
        }
    }

    fn object(namespace: &str, kind: &str, name: &str, label: usize) -> ObjectRef {
        ObjectRef {
            api_version: "v1".into(),
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
            labels: labels(&[("p", label), ("q", 0)]),
        }
    }

    /// One tenant's 1,500 policies of 50 selectors each: 75,000 comparisons for each object of anybody, without the index.
    #[test]
    fn policies_of_one_tenant_cost_the_objects_of_others_nothing() {
        let mut index = PolicyIndex::default();
        for n in 0..1_500 {
            let selectors = (0..50).map(|_| selector("ConfigMap", Some(n))).collect();
            index.insert(policy("a", &format!("pp{n}"), selectors));
        }
        index.insert(policy("b", "own", vec![selector("Job", None)]));
        let compared = |of: &ObjectRef| index.candidates(of).map(|rule| rule.selectors.len()).sum::<usize>();
        assert_eq!(compared(&object("b", "Job", "j", 0)), 1);
        assert_eq!(compared(&object("b", "ConfigMap", "c", 7)), 0);
        assert_eq!(compared(&object("a", "ConfigMap", "c", 7)), 50, "its own policy");
        assert_eq!(compared(&object("a", "Job", "j", 7)), 0);
    }

    /// The index leaves out no policy that a comparison with all of them would choose.
    #[test]
    fn the_choice_is_that_of_a_comparison_with_all() {
        // A small generator; its numbers only have to differ.
        let mut seed = 7_u64;
        let mut below = |limit: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from((seed >> 33) % limit).unwrap()
        };
        let (spaces, kinds) = (["a", "b"], ["Job", "ConfigMap"]);
        for _ in 0..300 {
            let mut index = PolicyIndex::default();
            let mut all: Vec<PolicyRule> = Vec::new();
            for _ in 0..12 {
                let mut selectors = Vec::new();
                for _ in 0..below(3) + 1 {
                    let label = (below(3) == 0).then(|| below(3));
                    let mut one = selector(kinds[below(2)], label);
                    if below(3) == 0 {
                        one.name = format!("o{}", below(3));
                    }
                    if below(3) == 0 {
                        one.namespace = spaces[below(2)].into();
                    }
                    selectors.push(one);
                }
                let name = format!("p{}", below(6));
                let mut rule = policy(["a", "b", ""][below(3)], &name, selectors);
                rule.priority = i32::try_from(below(2)).unwrap();
                rule.deleting = below(8) == 0;
                if below(4) == 0 {
                    rule.preemption = PreemptionRule::Always;
                }
                all.retain(|known| id_of(known) != id_of(&rule));
                if below(5) == 0 {
                    index.remove(rule.scope, &rule.namespace, &rule.name);
                } else {
                    index.insert(rule.clone());
                    all.push(rule);
                }
            }
            for _ in 0..10 {
                let object = object(spaces[below(2)], kinds[below(2)], &format!("o{}", below(3)), below(3));
                let claim = all.get(below(16)).map(|rule| ClaimRef {
                    scope: rule.scope,
                    namespace: rule.namespace.clone(),
                    name: rule.name.clone(),
                    uid: rule.uid.clone(),
                });
                let chosen = choose(&object, claim.as_ref(), index.candidates(&object));
                assert_eq!(chosen, choose(&object, claim.as_ref(), &all), "{object:?} {claim:?} {all:#?}");
            }
            for rule in &all {
                index.remove(rule.scope, &rule.namespace, &rule.name);
            }
            assert!(index.rules.is_empty() && index.shelves.is_empty());
        }
    }
}
