//! The hub's override policies, by the namespace in which they apply.
//!
//! What one tenant writes in his namespace costs no other one anything: neither a longer list to search, nor what was
//! computed from it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fleet_policies::{choice::PolicyScope, overrides::OverridePolicy};

use super::Key;

/// Most policies of one namespace that are applied. Each is compared with each of the namespace's objects.
pub const POLICIES_MAX: usize = 4096;

/// Most comparisons of an object with the selectors of the policies of its namespace, all together: with sixteen labels
/// and values in each, there may be as many policies as are applied.
const BREADTH_MAX: usize = 65_536;

/// The override policies that apply in one namespace, in the form of the rules: its own and the cluster-wide ones.
#[derive(Debug, Default)]
pub struct Applicable {
    pub policies: Vec<Arc<OverridePolicy>>,
    /// The namespace has more of its own than are applied, and nothing of it is sent: what was found and what is allowed.
    pub too_many: Option<String>,
    /// How many comparisons it takes to see which of the policies select an object.
    pub breadth: usize,
    /// Another one whenever the policies are others.
    pub version: u64,
}

/// A policy, and how many comparisons it takes to see whether it selects an object.
#[derive(Clone, Debug)]
struct Known {
    policy: Arc<OverridePolicy>,
    breadth: usize,
}

#[derive(Debug, Default)]
pub struct Overrides {
    all: BTreeMap<(PolicyScope, Key), Known>,
    /// Of the namespaces that have policies of their own.
    own: BTreeMap<String, Applicable>,
    /// Of every other namespace.
    shared: Applicable,
    versions: u64,
}

impl Overrides {
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn in_namespace(&self, namespace: &str) -> &Applicable {
        self.own.get(namespace).unwrap_or(&self.shared)
    }

    /// Takes in changed policies and the keys of deleted ones. Returns the namespaces of those that differ from what was known.
    pub(super) fn observe(
        &mut self,
        scope: PolicyScope,
        changed: impl Iterator<Item = OverridePolicy>,
        gone: Vec<Key>,
    ) -> BTreeSet<String> {
        let mut touched = BTreeSet::new();
        for policy in changed {
            let id = (scope, (policy.namespace.clone(), policy.name.clone()));
            if self.all.get(&id).is_none_or(|known| *known.policy != policy) {
                touched.insert(policy.namespace.clone());
                let breadth = policy.breadth();
                self.all.insert(id, Known { policy: Arc::new(policy), breadth });
            }
        }
        for key in gone {
            touched.insert(key.0.clone());
            self.all.remove(&(scope, key));
        }
        match scope {
            PolicyScope::Namespaced => touched.iter().for_each(|namespace| self.gather(namespace)),
            PolicyScope::Cluster if touched.is_empty() => {}
            PolicyScope::Cluster => self.gather_all(),
        }
        touched
    }

    fn gather_all(&mut self) {
        self.shared = self.applicable(Vec::new());
        let namespaces: Vec<String> = self.own.keys().cloned().collect();
        namespaces.iter().for_each(|namespace| self.gather(namespace));
    }

    fn gather(&mut self, namespace: &str) {
        let first = (PolicyScope::Namespaced, (namespace.to_string(), String::new()));
        let own = self.all.range(first..);
        let own = own.take_while(|((scope, key), _)| *scope == PolicyScope::Namespaced && key.0 == namespace);
        let own: Vec<_> = own.map(|(_, known)| known.clone()).take(POLICIES_MAX + 1).collect();
        if own.is_empty() {
            self.own.remove(namespace);
            return;
        }
        let applicable = self.applicable(own);
        self.own.insert(namespace.to_string(), applicable);
    }

    fn applicable(&mut self, own: Vec<Known>) -> Applicable {
        self.versions += 1;
        let breadth: usize = own.iter().map(|known| known.breadth).sum();
        let too_many = if own.len() > POLICIES_MAX {
            Some(format!("more override policies; allowed: {POLICIES_MAX}"))
        } else if breadth > BREADTH_MAX {
            let what =
                "selectors, labels, expressions and values in the resourceSelectors of all override policies";
            Some(format!("{breadth} {what}; allowed: {BREADTH_MAX}"))
        } else {
            None
        };
        let cluster_wide = self.all.range((PolicyScope::Cluster, Key::default())..);
        let all: Vec<Known> = cluster_wide.map(|(_, known)| known.clone()).chain(own).collect();
        Applicable {
            breadth: all.iter().map(|known| known.breadth).sum(),
            policies: all.into_iter().map(|known| known.policy).collect(),
            too_many,
            version: self.versions,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(scope: PolicyScope, namespace: &str, name: &str) -> OverridePolicy {
        OverridePolicy {
            scope,
            namespace: namespace.to_string(),
            name: name.to_string(),
            spec: Default::default(),
        }
    }

    fn apply(overrides: &mut Overrides, scope: PolicyScope, namespace: &str, name: &str) -> BTreeSet<String> {
        overrides.observe(scope, [policy(scope, namespace, name)].into_iter(), Vec::new())
    }

    fn names(overrides: &Overrides, namespace: &str) -> Vec<String> {
        overrides.in_namespace(namespace).policies.iter().map(|policy| policy.name.clone()).collect()
    }

    #[test]
    fn a_policy_of_one_namespace_changes_nothing_for_another() {
        let mut overrides = Overrides::default();
        apply(&mut overrides, PolicyScope::Cluster, "", "all");
        apply(&mut overrides, PolicyScope::Namespaced, "b", "own");
        let (of_b, of_c) = (overrides.in_namespace("b").version, overrides.in_namespace("c").version);
        let touched = apply(&mut overrides, PolicyScope::Namespaced, "a", "own");
        assert_eq!(touched, ["a".to_string()].into());
        assert!(apply(&mut overrides, PolicyScope::Namespaced, "a", "own").is_empty(), "the same again");
        assert_eq!(overrides.in_namespace("b").version, of_b);
        assert_eq!(overrides.in_namespace("c").version, of_c);
        assert_eq!(names(&overrides, "a"), ["all", "own"]);
        assert_eq!(names(&overrides, "c"), ["all"]);
        let gone = vec![("a".to_string(), "own".to_string())];
        overrides.observe(PolicyScope::Namespaced, std::iter::empty(), gone);
        assert_eq!(
            (names(&overrides, "a"), overrides.in_namespace("a").version),
            (vec!["all".to_string()], of_c)
        );
    }

    #[test]
    fn a_cluster_wide_policy_changes_every_namespace() {
        let mut overrides = Overrides::default();
        apply(&mut overrides, PolicyScope::Namespaced, "a", "own");
        let before = (overrides.in_namespace("a").version, overrides.in_namespace("c").version);
        apply(&mut overrides, PolicyScope::Cluster, "", "all");
        let after = (overrides.in_namespace("a").version, overrides.in_namespace("c").version);
        assert!(before.0 != after.0 && before.1 != after.1);
        assert_eq!(
            (names(&overrides, "a"), names(&overrides, "c")),
            (vec!["all".into(), "own".into()], vec!["all".into()])
        );
    }

    #[test]
    fn a_namespace_with_too_many_policies_says_so_and_costs_no_more() {
        let mut overrides = Overrides::default();
        let many = (0..POLICIES_MAX + 100).map(|n| policy(PolicyScope::Namespaced, "a", &format!("p{n}")));
        overrides.observe(PolicyScope::Namespaced, many, Vec::new());
        let applicable = overrides.in_namespace("a");
        assert_eq!(applicable.too_many.as_deref(), Some("more override policies; allowed: 4096"));
        assert_eq!((applicable.policies.len(), applicable.breadth), (POLICIES_MAX + 1, POLICIES_MAX + 1));
    }

    #[test]
    fn a_namespace_whose_policies_compare_too_much_says_so() {
        let mut overrides = Overrides::default();
        let mut broad = policy(PolicyScope::Namespaced, "a", "broad");
        broad.spec.resource_selectors = vec![Default::default(); BREADTH_MAX];
        let mut observe = |changed: Vec<OverridePolicy>, gone: &[&str]| {
            let gone = gone.iter().map(|name| ("a".to_string(), (*name).to_string())).collect();
            overrides.observe(PolicyScope::Namespaced, changed.into_iter(), gone);
            let applicable = overrides.in_namespace("a");
            (applicable.too_many.clone().unwrap_or_default(), applicable.breadth)
        };
        assert_eq!(observe(vec![broad], &[]), (String::new(), BREADTH_MAX));
        let (found, breadth) = observe(vec![policy(PolicyScope::Namespaced, "a", "one")], &[]);
        assert!(found.starts_with("65537 selectors, ") && found.ends_with("; allowed: 65536"), "{found}");
        assert_eq!(breadth, BREADTH_MAX + 1);
        assert_eq!(observe(Vec::new(), &["broad"]), (String::new(), 1));
    }
}
