//! The conditions of a policy, which report its mistakes to the author.

mod effects;

use std::collections::BTreeMap;

use fleet_policies::{choice::PolicyScope, reason::Reason};
use serde_json::{Value, json};

use crate::{
    status::{condition, find_condition},
    world::{Key, World},
    writes::{Target, Verb, Write},
};

/// Conditions of a policy: `Valid` is False if a rule is broken. `Effective` is False if a valid policy has
/// no effect, or only a part of it. `unserved` are kinds that the hub does not serve.
pub fn plan<T>(
    world: &World,
    unserved: &BTreeMap<(String, String), T>,
    scope: PolicyScope,
    key: &Key,
    now: jiff::Timestamp,
) -> Vec<Write> {
    let Some(entry) = world.policies.get(&(scope, key.clone())) else { return Vec::new() };
    let valid = match entry.violations.first() {
        Some(first) => ("Valid", "False", Reason::PolicyInvalid, first.clone()),
        None => ("Valid", "True", Reason::ApplyPolicySucceed, "the policy is in effect".to_string()),
    };
    let effective = match effects::lacking(world, &|id| unserved.contains_key(id), entry) {
        Some((reason, message)) => ("Effective", "False", reason, message),
        None => (
            "Effective",
            "True",
            Reason::ApplyPolicySucceed,
            "the policy selects objects, and everything that it names exists".to_string(),
        ),
    };
    // Most policies are valid; writing the condition on each would be a wasted write.
    let wanted: Vec<_> = [valid, effective]
        .into_iter()
        .filter(|(kind, status, ..)| *status == "False" || find_condition(&entry.conditions, kind).is_some())
        .collect();
    let is_new = |(kind, status, _, message): &(&str, &str, Reason, String)| {
        find_condition(&entry.conditions, kind).is_none_or(|c| {
            c.status != *status
                || c.message != crate::status::cut(message)
                || c.observed_generation != Some(entry.generation)
        })
    };
    if !wanted.iter().any(is_new) {
        return Vec::new();
    }
    let conditions: Vec<Value> = wanted
        .iter()
        .map(|(kind, status, reason, message)| {
            let known = find_condition(&entry.conditions, kind);
            let mut written = condition(kind, status, *reason, message, known, now);
            written["observedGeneration"] = json!(entry.generation);
            written
        })
        .collect();
    let (target, kind) = match scope {
        PolicyScope::Namespaced => (Target::Policy, "PropagationPolicy"),
        PolicyScope::Cluster => (Target::ClusterPolicy, "ClusterPropagationPolicy"),
    };
    let subject = crate::events::Subject {
        api_version: "policy.one.alibabacloud.com/v1alpha1",
        kind,
        namespace: &key.0,
        name: &key.1,
        uid: &entry.rule.uid,
    };
    // A policy is often applied before its objects, so an empty selection alone is no warning.
    let warned = wanted.iter().filter(|c| c.1 == "False" && c.2 != Reason::SelectsNothing && is_new(c));
    let warnings: Vec<Write> = warned
        .map(|(_, _, reason, message)| {
            crate::events::warning(&subject, "fleet-controller", *reason, message, now)
        })
        .collect();
    let verb = Verb::MergeStatus(json!({"status": {"conditions": conditions}}));
    vec![Write::new(target, &key.0, &key.1, verb).then(warnings)]
}
