//! Validation of policies, beyond what their types express.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::{
    ApplicationFailover, Failover, Placement, PropagationSpec, PurgeMode, ReplicaDivisionPreference,
    ReplicaScheduling, SpreadConstraint, StatePreservation,
};
use crate::choice::{PolicyScope, is_skipped_kind};
use crate::json_path::JsonPath;
use crate::names::may_carry_state;
use crate::selector::breadth;

/// One broken rule: the field, what was found there, and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    pub field: String,
    pub found: String,
    pub allowed: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: found {}; allowed: {}", self.field, self.found, self.allowed)
    }
}

/// Most runs of one job before its failure is final; the binding keeps an entry for each.
const MAX_BACKOFF_LIMIT: i64 = 50;

/// Most selectors of one policy: each is compared with each object, and is an entry of what is watched.
const MAX_SELECTORS: usize = 256;

/// Most comparisons of an object with the selectors of one policy: labels, expressions and values in all of them, and the
/// selectors themselves. People write a few.
const MAX_COMPARED: usize = 2048;

/// Longest `placement` and `failover` of a policy, in bytes as JSON: each object that it selects has a copy of both.
const MAX_COPIED_BYTES: usize = 32 << 10;

/// Longest name of an affinity group, in bytes.
const MAX_AFFINITY_NAME: usize = 32;

/// Every rule `spec` breaks, in a stable order; empty where it is usable.
/// `namespace` is the policy's own, empty for cluster scope.
pub fn validate(spec: &Value, scope: PolicyScope, namespace: &str) -> Vec<Violation> {
    let mut found = Violations::default();
    for field in ["placement", "failover"] {
        let bytes = spec.get(field).map_or(0, |copied| copied.to_string().len());
        if bytes > MAX_COPIED_BYTES {
            found.add(
                format!("spec.{field}"),
                format!("{bytes} bytes as JSON"),
                format!("at most {MAX_COPIED_BYTES}"),
            );
        }
    }
    if !found.0.is_empty() {
        return found.0;
    }
    check_words(spec, &mut found);
    if !found.0.is_empty() {
        return found.0;
    }
    match serde_json::from_value::<PropagationSpec>(spec.clone()) {
        Err(error) => found.add("spec", error, "a value of the type the field's schema gives"),
        Ok(spec) => check_spec(&spec, scope, namespace, &mut found),
    }
    found.0
}

#[derive(Default)]
struct Violations(Vec<Violation>);

impl Violations {
    fn add(&mut self, field: impl Into<String>, found: impl fmt::Display, allowed: impl Into<String>) {
        // It is repeated in the status of each object that the policy selects.
        let found = super::shortened(&found.to_string());
        self.0.push(Violation { field: field.into(), found, allowed: allowed.into() });
    }
}

const PURGE_MODES: &[&str] = &["Directly", "Gracefully", "Never", "Immediately", "Graciously"];
const CLUSTER_PURGE_MODES: &[&str] = &["Directly", "Gracefully", "Immediately", "Graciously"];

/// Fields that take one of a few words, as JSON pointers into the spec.
const WORDS: &[(&str, &[&str])] = &[
    ("/preemption", &["Never", "Always"]),
    ("/conflictResolution", &["Abort", "Overwrite"]),
    ("/podScheduling", &["Fleet", "Gates", "AsWritten"]),
    ("/activationPreference", &["", "Lazy"]),
    ("/failover/application/purgeMode", PURGE_MODES),
    ("/failover/cluster/purgeMode", CLUSTER_PURGE_MODES),
    ("/failover/cluster/fencing", &["None", "Lease", "Watchdog"]),
    ("/placement/replicaScheduling/replicaSchedulingType", &["Duplicated", "Divided"]),
    ("/placement/replicaScheduling/replicaDivisionPreference", &["Aggregated", "Weighted"]),
    ("/placement/replicaScheduling/customSchedulingType", &["Gang"]),
    ("/placement/replicaScheduling/weightPreference/dynamicWeight", &["AvailableReplicas"]),
];

fn check_words(spec: &Value, found: &mut Violations) {
    for (pointer, allowed) in WORDS {
        let Some(value) = spec.pointer(pointer).filter(|value| !value.is_null()) else {
            continue;
        };
        if !value.as_str().is_some_and(|word| allowed.contains(&word)) {
            let words: Vec<String> = allowed.iter().map(|word| format!("{word:?}")).collect();
            found.add(format!("spec{}", pointer.replace('/', ".")), value, words.join(", "));
        }
    }
    let tolerations = spec.pointer("/placement/clusterTolerations").and_then(Value::as_array);
    for (i, toleration) in tolerations.into_iter().flatten().enumerate() {
        let operator = toleration.get("operator").and_then(Value::as_str).unwrap_or("Equal");
        if !matches!(operator, "Equal" | "Exists") {
            let field = format!("spec.placement.clusterTolerations[{i}].operator");
            found.add(field, format!("{operator:?}"), "\"Equal\", \"Exists\"");
        }
    }
    for (pointer, affinity) in affinity_values(spec) {
        check_field_selector(&pointer, affinity, found);
    }
}

fn affinity_values(spec: &Value) -> Vec<(String, &Value)> {
    let mut all = Vec::new();
    if let Some(affinity) = spec.pointer("/placement/clusterAffinity") {
        all.push(("spec.placement.clusterAffinity".to_owned(), affinity));
    }
    let groups = spec.pointer("/placement/clusterAffinities").and_then(Value::as_array);
    for (i, group) in groups.into_iter().flatten().enumerate() {
        all.push((format!("spec.placement.clusterAffinities[{i}]"), group));
    }
    all
}

fn check_field_selector(field: &str, affinity: &Value, found: &mut Violations) {
    let expressions = affinity.pointer("/fieldSelector/matchExpressions").and_then(Value::as_array);
    for (i, expression) in expressions.into_iter().flatten().enumerate() {
        let at = format!("{field}.fieldSelector.matchExpressions[{i}]");
        let text = |name: &str| expression.get(name).and_then(Value::as_str).unwrap_or("").to_owned();
        if !matches!(text("key").as_str(), "provider" | "region" | "zone") {
            found.add(format!("{at}.key"), format!("{:?}", text("key")), "provider, region, zone");
        }
        if !matches!(text("operator").as_str(), "In" | "NotIn") {
            found.add(format!("{at}.operator"), format!("{:?}", text("operator")), "In, NotIn");
        }
    }
}

fn check_spec(spec: &PropagationSpec, scope: PolicyScope, namespace: &str, found: &mut Violations) {
    check_selectors(spec, scope, namespace, found);
    check_placement(&spec.placement, found);
    if let Some(failover) = &spec.failover {
        if let Some(application) = &failover.application {
            check_application(application, spec.propagates_dependencies(), found);
        }
        if let Some(cluster) = &failover.cluster {
            if cluster.toleration_s() < 0 {
                let field = "spec.failover.cluster.tolerationSeconds";
                found.add(field, cluster.toleration_s(), "0 or more");
            }
            check_preservation("spec.failover.cluster", cluster.state_preservation.as_ref(), found);
        }
        check_two_runs(failover, found);
    }
    if let Some(suspension) = &spec.suspension {
        let clusters = suspension.dispatching_on_clusters.as_ref().map_or(0, |on| on.cluster_names.len());
        if suspension.dispatching == Some(true) && clusters > 0 {
            found.add(
                "spec.suspension",
                format!("dispatching true and {clusters} names in dispatchingOnClusters"),
                "one of the two",
            );
        }
    }
    if let Some(priority) = &spec.schedule_priority
        && !matches!(
            priority.priority_class_source.as_str(),
            "KubePriorityClass" | "PodPriorityClass" | "FederatedPriorityClass"
        )
    {
        let field = "spec.schedulePriority.priorityClassSource";
        let allowed = "KubePriorityClass, PodPriorityClass, FederatedPriorityClass";
        found.add(field, format!("{:?}", priority.priority_class_source), allowed);
    }
}

fn check_selectors(spec: &PropagationSpec, scope: PolicyScope, namespace: &str, found: &mut Violations) {
    if spec.resource_selectors.is_empty() {
        found.add("spec.resourceSelectors", "no entries", "at least one entry");
    }
    if spec.resource_selectors.len() > MAX_SELECTORS {
        let count = format!("{} entries", spec.resource_selectors.len());
        found.add("spec.resourceSelectors", count, format!("at most {MAX_SELECTORS}"));
        return;
    }
    let compared = breadth(&spec.resource_selectors);
    if compared > MAX_COMPARED {
        let count = format!("{compared} selectors, labels, expressions and values");
        found.add("spec.resourceSelectors", count, format!("at most {MAX_COMPARED} together"));
        return;
    }
    for (i, selector) in spec.resource_selectors.iter().enumerate() {
        let at = format!("spec.resourceSelectors[{i}]");
        for (name, value) in [("apiVersion", &selector.api_version), ("kind", &selector.kind)] {
            if value.is_empty() {
                found.add(format!("{at}.{name}"), "\"\"", "a non-empty text");
            }
        }
        if is_skipped_kind(&selector.api_version, &selector.kind) {
            let kind = format!("{} {}", selector.api_version, selector.kind);
            found.add(&at, kind, "a kind that is neither Fleet's own, nor Event, nor Lease");
        }
        let foreign = !selector.namespace.is_empty() && selector.namespace != namespace;
        if scope == PolicyScope::Namespaced && foreign {
            let allowed = format!("the policy's own namespace {namespace:?}, or nothing");
            found.add(format!("{at}.namespace"), format!("{:?}", selector.namespace), allowed);
        }
        if spec.preemption == super::Preemption::Always && selector.name.is_empty() {
            found.add(format!("{at}.name"), "\"\"", "a name, because spec.preemption is Always");
        }
    }
}

fn check_placement(placement: &Placement, found: &mut Violations) {
    if placement.cluster_affinity.is_some() && !placement.cluster_affinities.is_empty() {
        found.add(
            "spec.placement",
            "clusterAffinity and clusterAffinities",
            "one of the two forms of affinity",
        );
    }
    let mut names = BTreeSet::new();
    for (i, term) in placement.cluster_affinities.iter().enumerate() {
        let field = format!("spec.placement.clusterAffinities[{i}].affinityName");
        let name = &term.affinity_name;
        if name.is_empty() || name.len() > MAX_AFFINITY_NAME {
            found.add(field, format!("{name:?}"), format!("1 to {MAX_AFFINITY_NAME} characters"));
        } else if !names.insert(name) {
            found.add(field, format!("{name:?} twice"), "a name used once");
        }
    }
    check_spread(&placement.spread_constraints, found);
    if let Some(scheduling) = &placement.replica_scheduling {
        check_weights(scheduling, found);
    }
}

fn check_spread(constraints: &[SpreadConstraint], found: &mut Violations) {
    let mut fields = BTreeSet::new();
    for (i, constraint) in constraints.iter().enumerate() {
        let at = format!("spec.placement.spreadConstraints[{i}]");
        let (min, max) = (constraint.min_groups.unwrap_or(1), constraint.max_groups.unwrap_or(0));
        match (&constraint.spread_by_field, &constraint.spread_by_label) {
            (Some(_), Some(_)) => {
                found.add(&at, "spreadByField and spreadByLabel", "one of the two");
            }
            (None, Some(_)) => {}
            (field, None) => {
                let field = field.as_deref().unwrap_or("cluster");
                if !matches!(field, "cluster" | "region" | "zone" | "provider") {
                    let allowed = "cluster, region, zone, provider";
                    found.add(format!("{at}.spreadByField"), format!("{field:?}"), allowed);
                }
                if !fields.insert(field) {
                    found.add(format!("{at}.spreadByField"), format!("{field:?} twice"), "a field used once");
                }
            }
        }
        if min < 0 {
            found.add(format!("{at}.minGroups"), min, "0 or more");
        }
        if max < 0 || (max > 0 && max < min) {
            let allowed = format!("0 (no bound) or at least minGroups, here {min}");
            found.add(format!("{at}.maxGroups"), max, allowed);
        }
    }
    if !fields.is_empty() && !fields.contains("cluster") {
        let listed: Vec<&str> = fields.into_iter().collect();
        found.add(
            "spec.placement.spreadConstraints",
            format!("spreadByField {} without cluster", listed.join(", ")),
            "other fields only together with cluster",
        );
    }
}

fn check_weights(scheduling: &ReplicaScheduling, found: &mut Violations) {
    let Some(preference) = &scheduling.weight_preference else {
        return;
    };
    let at = "spec.placement.replicaScheduling.weightPreference";
    for (i, entry) in preference.static_weight_list.iter().enumerate() {
        if entry.weight < 1 {
            found.add(format!("{at}.staticWeightList[{i}].weight"), entry.weight, "1 or more");
        }
    }
    let aggregated = scheduling.replica_division_preference == Some(ReplicaDivisionPreference::Aggregated);
    if aggregated && !preference.static_weight_list.is_empty() {
        found.add(
            format!("{at}.staticWeightList"),
            "entries with replicaDivisionPreference Aggregated",
            "static weights only with Weighted",
        );
    }
}

fn check_application(failover: &ApplicationFailover, propagates_dependencies: bool, found: &mut Violations) {
    let at = "spec.failover.application";
    if !propagates_dependencies {
        found.add("spec.propagateDeps", "false", "true, because spec.failover.application is set");
    }
    if failover.toleration_s() < 0 {
        let field = format!("{at}.decisionConditions.tolerationSeconds");
        found.add(field, failover.toleration_s(), "0 or more");
    }
    if let Some(grace) = failover.grace_period_seconds {
        let field = format!("{at}.gracePeriodSeconds");
        if failover.purge_mode() != PurgeMode::Gracefully {
            let purge = format!("{grace} with purgeMode {:?}", failover.purge_mode());
            found.add(field, purge, "set only with purgeMode Gracefully");
        } else if grace <= 0 {
            found.add(field, grace, "1 or more");
        }
    }
    if let Some(limit) = failover.backoff_limit.filter(|limit| !(1..=MAX_BACKOFF_LIMIT).contains(limit)) {
        found.add(format!("{at}.backoffLimit"), limit, format!("1 to {MAX_BACKOFF_LIMIT}"));
    }
    check_preservation(at, failover.state_preservation.as_ref(), found);
}

/// A fenced job is promised one run at a time, which a graceful purge cannot keep.
fn check_two_runs(failover: &Failover, found: &mut Violations) {
    if !failover.is_fenced() || failover.allow_two_runs == Some(true) {
        return;
    }
    let application = failover.application.as_ref().and_then(|application| application.purge_mode);
    let cluster = failover.cluster.as_ref().and_then(|cluster| cluster.purge_mode);
    for (name, mode) in [("application", application), ("cluster", cluster)] {
        if mode == Some(PurgeMode::Gracefully) {
            let fencing = failover.cluster.as_ref().map(super::ClusterFailover::fencing).unwrap_or_default();
            found.add(
                format!("spec.failover.{name}.purgeMode"),
                format!("Gracefully with failover.cluster.fencing {fencing:?}"),
                "Directly, or failover.allowTwoRuns true, or failover.cluster.fencing None",
            );
        }
    }
}

fn check_preservation(at: &str, preservation: Option<&StatePreservation>, found: &mut Violations) {
    let rules = preservation.map_or(&[][..], |preservation| &preservation.rules);
    if rules.len() > StatePreservation::MOST_RULES {
        let allowed = format!("at most {}", StatePreservation::MOST_RULES);
        found.add(format!("{at}.statePreservation.rules"), format!("{} rules", rules.len()), allowed);
    }
    for (i, rule) in rules.iter().enumerate().take(StatePreservation::MOST_RULES) {
        let field = format!("{at}.statePreservation.rules[{i}]");
        if !is_label_key(&rule.alias_label_name) {
            let name = format!("{:?}", rule.alias_label_name);
            found.add(
                format!("{field}.aliasLabelName"),
                name,
                "a label key: [prefix/]name of at most 63 characters",
            );
        } else if !may_carry_state(&rule.alias_label_name) {
            found.add(
                format!("{field}.aliasLabelName"),
                format!("{:?}", rule.alias_label_name),
                "any label but those under fleet.dev/ and those that name a quota, which are Fleet's own",
            );
        }
        if JsonPath::read(&rule.json_path).is_none() {
            found.add(
                format!("{field}.jsonPath"),
                format!("{:?}", super::shortened(&rule.json_path)),
                "a JSONPath into the status of at most 256 bytes, with filters at most 8 levels deep, and without \"..\", \
                 lists of selectors, functions, and $ inside of a filter",
            );
        }
    }
}

/// A qualified name: an optional DNS prefix and a name of 1 to 63 characters.
fn is_label_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let name_fits = name.len() <= 63
        && edge(name.chars().next())
        && edge(name.chars().last())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    let prefix_fits = prefix.is_none_or(|prefix| {
        !prefix.is_empty()
            && prefix.len() <= 253
            && prefix.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.'))
    });
    name_fits && prefix_fits
}

#[cfg(test)]
mod tests;
