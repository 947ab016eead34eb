//! A policy object, read into the rule that chooses and the conditions that tell its author what is wrong.

use fleet_api::policy::{PolicyStatus, PropagationSpec, ResourceSelector};
use fleet_policies::{
    choice::{PolicyRule, PolicyScope, PreemptionRule},
    reason::Reason,
    selector, spec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use crate::{
    status::{condition, find_condition},
    world::{Key, PolicyEntry, World},
    writes::{Target, Verb, Write},
};

/// Reads a policy. One that breaks a rule keeps its violations and governs nothing.
pub fn read(
    scope: PolicyScope,
    meta: &ObjectMeta,
    spec: PropagationSpec,
    status: Option<PolicyStatus>,
) -> PolicyEntry {
    let namespace = meta.namespace.clone().unwrap_or_default();
    let value = serde_json::to_value(&spec).unwrap_or_default();
    let violations = spec::validate(&value, scope, &namespace).iter().map(ToString::to_string).collect();
    let rule = PolicyRule {
        scope,
        namespace: namespace.clone(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        priority: spec.priority.unwrap_or(0),
        preemption: match spec.preemption {
            Some(fleet_api::policy::Preemption::Always) => PreemptionRule::Always,
            _ => PreemptionRule::Never,
        },
        deleting: meta.deletion_timestamp.is_some(),
        selectors: spec.resource_selectors.iter().map(|s| selector_of(s, &namespace)).collect(),
    };
    PolicyEntry {
        rule,
        spec,
        generation: meta.generation.unwrap_or(0),
        violations,
        conditions: status.unwrap_or_default().conditions,
    }
}

fn selector_of(wire: &ResourceSelector, policy_namespace: &str) -> selector::ResourceSelector {
    let value = serde_json::to_value(wire).unwrap_or_default();
    let mut read: selector::ResourceSelector = serde_json::from_value(value).unwrap_or_default();
    if read.namespace.is_empty() {
        read.namespace = policy_namespace.to_string();
    }
    read
}

/// Tells the author of a policy whether it is acted on.
pub fn plan(world: &World, scope: PolicyScope, key: &Key, now: jiff::Timestamp) -> Vec<Write> {
    let Some(entry) = world.policies.get(&(scope, key.clone())) else { return Vec::new() };
    let (status, reason, message) = match entry.violations.first() {
        Some(first) => ("False", Reason::PolicyInvalid, first.clone()),
        None => ("True", Reason::ApplyPolicySucceed, "the policy is acted on".to_string()),
    };
    let known = find_condition(&entry.conditions, "Valid");
    if known.is_some_and(|c| {
        c.status == status && c.message == message && c.observed_generation == Some(entry.generation)
    }) {
        return Vec::new();
    }
    // A valid policy is the rule; saying so on each would be a write for nothing.
    if known.is_none() && entry.violations.is_empty() {
        return Vec::new();
    }
    let mut written = condition("Valid", status, reason, &message, known, now);
    written["observedGeneration"] = json!(entry.generation);
    let (target, kind) = match scope {
        PolicyScope::Namespaced => (Target::Policy, "PropagationPolicy"),
        PolicyScope::Cluster => (Target::ClusterPolicy, "ClusterPropagationPolicy"),
    };
    let mut write =
        Write::new(target, &key.0, &key.1, Verb::MergeStatus(json!({"status": {"conditions": [written]}})));
    if !entry.violations.is_empty() {
        let subject = crate::events::Subject {
            api_version: "policy.one.alibabacloud.com/v1alpha1",
            kind,
            namespace: &key.0,
            name: &key.1,
            uid: &entry.rule.uid,
        };
        write = write.then([crate::events::warning(
            &subject,
            "fleet-controller",
            Reason::PolicyInvalid,
            &message,
            now,
        )]);
    }
    vec![write]
}
