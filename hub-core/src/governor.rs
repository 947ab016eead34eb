//! Chooses the policy that governs an object.

use fleet_api::policy::PropagationSpec;
use fleet_policies::choice::{self, ClaimRef, PolicyRule, PolicyScope};

use crate::{
    binding::BindingEntry,
    kinds::KindRef,
    world::{Key, Object, World},
};

pub(crate) fn governor<'a>(
    world: &'a World,
    kind: &KindRef,
    key: &Key,
    object: &Object,
    known: Option<&BindingEntry>,
) -> Option<(&'a PolicyRule, &'a PropagationSpec)> {
    let reference = object.reference(kind, key);
    let claimed = known.map(|entry| {
        let policy = &entry.object.spec.policy;
        ClaimRef {
            scope: scope_of(&policy.kind),
            namespace: policy.namespace.clone(),
            name: policy.name.clone(),
            uid: policy.uid.clone(),
        }
    });
    let rule = choice::choose(&reference, claimed.as_ref(), world.rules.candidates(&reference))?;
    let entry = world.policies.get(&(rule.scope, (rule.namespace.clone(), rule.name.clone())))?;
    Some((rule, &entry.spec))
}

pub(crate) fn scope_of(kind: &str) -> PolicyScope {
    if kind == "ClusterPropagationPolicy" { PolicyScope::Cluster } else { PolicyScope::Namespaced }
}
