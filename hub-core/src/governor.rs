//! Chooses the policy that governs an object.

use fleet_api::policy::PropagationSpec;
use fleet_policies::choice::{self, ClaimRef, ObjectRef, PolicyRule, PolicyScope};

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
    let reference = ObjectRef {
        api_version: kind.api_version.clone(),
        kind: kind.kind.clone(),
        namespace: key.0.clone(),
        name: key.1.clone(),
        labels: object.labels.clone(),
    };
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
