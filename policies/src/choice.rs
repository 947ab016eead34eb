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
mod tests;
