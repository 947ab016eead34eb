//! Which policy governs an object.
//!
//! A claim is sticky: a policy that governs an object keeps it while the policy exists and selects the object,
//! unless a policy with `preemption: Always` takes it over. Otherwise a policy of the object's namespace comes
//! before a cluster-wide one, then higher priority, then the narrower selector, then name.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::selector::{ImplicitPriority, ResourceSelector, match_selectors};

/// What the choice needs to know of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectRef {
    pub api_version: String,
    pub kind: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    pub name: String,
    pub labels: BTreeMap<String, String>,
}

/// Whether a policy applies to its own namespace or to every namespace, in the order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyScope {
    Namespaced,
    Cluster,
}

/// Whether a policy takes over objects that another policy governs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PreemptionRule {
    #[default]
    Never,
    Always,
}

/// What the choice needs to know of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRule {
    pub scope: PolicyScope,
    /// Empty for cluster scope.
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub priority: i32,
    pub preemption: PreemptionRule,
    /// A deletion timestamp is set.
    pub deleting: bool,
    pub selectors: Vec<ResourceSelector>,
}

/// The claim recorded on an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRef {
    pub scope: PolicyScope,
    pub namespace: String,
    pub name: String,
    /// Empty if only the name was recorded.
    pub uid: String,
}

impl ClaimRef {
    fn names(&self, policy: &PolicyRule) -> bool {
        self.scope == policy.scope
            && self.namespace == policy.namespace
            && self.name == policy.name
            && (self.uid.is_empty() || self.uid == policy.uid)
    }
}

/// The policy that governs `object`; `None` if there is none. The order of `policies` does not matter.
pub fn choose<'a>(
    object: &ObjectRef,
    claimed: Option<&ClaimRef>,
    policies: impl IntoIterator<Item = &'a PolicyRule>,
) -> Option<&'a PolicyRule> {
    if is_skipped_namespace(&object.namespace) || is_skipped_kind(&object.api_version, &object.kind) {
        return None;
    }
    let matching: Vec<Match<'a>> =
        policies.into_iter().filter_map(|policy| matched(policy, object)).collect();
    let holder = claimed.and_then(|claim| matching.iter().find(|m| claim.names(m.policy)));
    let best = match holder {
        None => matching.iter().min_by_key(|m| m.rank()),
        Some(holder) => {
            matching.iter().filter(|m| m.takes_from(holder.policy)).min_by_key(|m| m.rank()).or(Some(holder))
        }
    };
    best.map(|m| m.policy)
}

/// Namespaces whose objects are never propagated.
pub fn is_skipped_namespace(namespace: &str) -> bool {
    namespace.starts_with("kube-") || namespace.starts_with("fleet-")
}

/// Kinds that are never propagated: Fleet's own, and what servers and controllers write about other objects. A binding of a
/// binding would need a binding, and so on without end.
pub fn is_skipped_kind(api_version: &str, kind: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    match group {
        "" => kind == "Event",
        "scheduling.x-k8s.io" => matches!(kind, "Queue" | "QueueUnit"),
        "scheduling.sigs.k8s.io" => kind == "ElasticQuotaTree",
        "coordination.k8s.io" | "events.k8s.io" | "fleet.dev" | "policy.one.alibabacloud.com" => true,
        _ => false,
    }
}

struct Match<'a> {
    policy: &'a PolicyRule,
    implicit: ImplicitPriority,
}

impl<'a> Match<'a> {
    fn rank(&self) -> (PolicyScope, Reverse<i32>, Reverse<ImplicitPriority>, &'a str) {
        let policy = self.policy;
        (policy.scope, Reverse(policy.priority), Reverse(self.implicit), &policy.name)
    }

    /// A namespaced policy takes over from namespaced ones with lower priority and from any cluster-wide one; a
    /// cluster-wide policy only from cluster-wide ones with lower priority.
    fn takes_from(&self, holder: &PolicyRule) -> bool {
        let scope = match (self.policy.scope, holder.scope) {
            (PolicyScope::Namespaced, PolicyScope::Cluster) => true,
            (PolicyScope::Cluster, PolicyScope::Namespaced) => false,
            _ => self.policy.priority > holder.priority,
        };
        self.policy.preemption == PreemptionRule::Always && scope
    }
}

fn matched<'a>(policy: &'a PolicyRule, object: &ObjectRef) -> Option<Match<'a>> {
    let reaches = match policy.scope {
        PolicyScope::Namespaced => !object.namespace.is_empty() && policy.namespace == object.namespace,
        PolicyScope::Cluster => true,
    };
    if policy.deleting || !reaches {
        return None;
    }
    let implicit = match_selectors(&policy.selectors, object)?;
    Some(Match { policy, implicit })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selector::LabelSelector;

    fn policy(name: &str, scope: PolicyScope, by: ImplicitPriority, priority: i32) -> PolicyRule {
        let selector = ResourceSelector {
            api_version: "kubeflow.org/v1".into(),
            kind: "PyTorchJob".into(),
            name: if by == ImplicitPriority::Name { "job".into() } else { String::new() },
            label_selector: (by == ImplicitPriority::LabelSelector).then(LabelSelector::default),
            ..ResourceSelector::default()
        };
        PolicyRule {
            scope,
            namespace: if scope == PolicyScope::Namespaced { "team".into() } else { String::new() },
            name: name.into(),
            uid: format!("uid-{name}"),
            priority,
            preemption: PreemptionRule::Never,
            deleting: false,
            selectors: vec![selector],
        }
    }

    fn always(mut policy: PolicyRule) -> PolicyRule {
        policy.preemption = PreemptionRule::Always;
        policy
    }

    fn claim(policy: &PolicyRule) -> ClaimRef {
        ClaimRef {
            scope: policy.scope,
            namespace: policy.namespace.clone(),
            name: policy.name.clone(),
            uid: policy.uid.clone(),
        }
    }

    #[test]
    fn no_policy_governs_a_binding() {
        let mut policy = policy("all", PolicyScope::Namespaced, ImplicitPriority::All, 0);
        for (api_version, kind, is_governed) in [
            ("fleet.dev/v1alpha1", "ResourceBinding", false),
            ("v1", "Event", false),
            ("batch/v1", "Job", true),
        ] {
            policy.selectors[0].api_version = api_version.into();
            policy.selectors[0].kind = kind.into();
            let object = ObjectRef {
                api_version: api_version.into(),
                kind: kind.into(),
                namespace: "team".into(),
                name: "job".into(),
                labels: BTreeMap::new(),
            };
            assert_eq!(choose(&object, None, [&policy]).is_some(), is_governed, "{kind}");
            assert_eq!(choose(&object, Some(&claim(&policy)), [&policy]).is_some(), is_governed, "{kind}");
        }
    }

    /// `holder` is the index of the policy that already governs the object.
    fn check(policies: &[PolicyRule], holder: Option<usize>, expected: Option<&str>) {
        let object = ObjectRef {
            api_version: "kubeflow.org/v1".into(),
            kind: "PyTorchJob".into(),
            namespace: "team".into(),
            name: "job".into(),
            labels: BTreeMap::new(),
        };
        let claimed = holder.map(|at| claim(&policies[at]));
        let chosen =
            |policies: &[PolicyRule]| choose(&object, claimed.as_ref(), policies).map(|p| p.name.clone());
        assert_eq!(chosen(policies).as_deref(), expected);
        let reversed: Vec<PolicyRule> = policies.iter().rev().cloned().collect();
        assert_eq!(chosen(&reversed).as_deref(), expected, "order must not matter");
    }

    use ImplicitPriority::{All, LabelSelector as Label, Name};
    use PolicyScope::{Cluster, Namespaced};

    #[test]
    fn ties_and_priorities() {
        check(&[policy("abc", Namespaced, All, 0), policy("ab", Namespaced, All, 0)], None, Some("ab"));
        let by_all = policy("a", Namespaced, All, 1);
        let by_label = policy("b", Namespaced, Label, 1);
        let by_name = policy("c", Namespaced, Name, 1);
        check(&[by_all.clone(), by_label.clone()], None, Some("b"));
        check(&[by_all, by_label, by_name.clone()], None, Some("c"));
        check(&[by_name, policy("d", Namespaced, Label, 2)], None, Some("d"));
    }

    #[test]
    fn a_namespaced_policy_goes_before_a_cluster_one() {
        check(&[policy("a", Cluster, Name, 9), policy("b", Namespaced, All, 0)], None, Some("b"));
        check(&[policy("a", Cluster, Name, 9)], None, Some("a"));
    }

    #[test]
    fn a_claim_is_sticky_until_preempted() {
        let low = policy("low", Namespaced, All, 0);
        let high = policy("high", Namespaced, Name, 5);
        check(&[low.clone(), high.clone()], Some(0), Some("low"));
        check(&[low.clone(), always(high.clone())], Some(0), Some("high"));
        check(&[high.clone(), always(low.clone())], Some(0), Some("high"));
        let wide = policy("wide", Cluster, All, 9);
        check(&[wide.clone(), always(low.clone())], Some(0), Some("low"));
        check(&[low.clone(), always(wide.clone())], Some(0), Some("low"));
        check(&[policy("other", Cluster, All, 0), always(wide)], Some(0), Some("wide"));
        let equal = always(policy("aaa", Namespaced, Name, 0));
        check(&[low, equal], Some(0), Some("low"));
    }

    #[test]
    fn a_policy_that_goes_away_gives_its_objects_up() {
        let mut gone = policy("gone", Namespaced, All, 9);
        gone.deleting = true;
        check(&[gone.clone(), policy("next", Namespaced, All, 0)], Some(0), Some("next"));
        check(&[gone], Some(0), None);
    }

    #[test]
    fn system_namespaces_are_left_alone() {
        let everything = [policy("all", Cluster, All, 0)];
        let object = |namespace: &str| ObjectRef {
            api_version: "kubeflow.org/v1".into(),
            kind: "PyTorchJob".into(),
            namespace: namespace.into(),
            ..ObjectRef::default()
        };
        for skipped in ["kube-system", "kube-queue", "fleet-east", "fleet-system"] {
            assert_eq!(choose(&object(skipped), None, &everything), None);
        }
        assert!(choose(&object("default"), None, &everything).is_some());
    }
}
