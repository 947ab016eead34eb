//! Overrides: changes of an object for one cluster.
//!
//! The rules of the policies that select the object apply in this order: cluster-wide policies before namespaced
//! ones, the wider selector first, then name; inside a policy rule by rule, inside a rule overrider by overrider.
//! Either all rules apply, or the object stays as it was. The identity of an object (API version, kind, namespace,
//! name, Fleet's own marks) cannot be overridden: see `identity`.

mod allowance;
mod identity;
mod image;
mod path;
mod pointer;
mod problem;
mod shape;
mod spec;
mod templates;

use std::{borrow::Borrow, collections::BTreeSet};

use serde_json::{Map, Value};

use crate::affinity::{ClusterFacts, cluster_matches};
use crate::choice::{ObjectRef, PolicyScope};
use crate::nesting;
use crate::selector::match_selectors;
use crate::spec::ClusterAffinity;
use allowance::Allowance;
pub use allowance::Visits;
use problem::Problem;
use templates::pod_specs;

pub use spec::{
    CommandOverrider, EmbeddedOperation, FieldOverrider, ImageComponent, ImageOverrider, ImagePredicate,
    MapOverrider, Operator, OverrideError, OverridePolicy, OverrideRule, OverrideSpec, Overriders,
    PlaintextOverrider,
};

/// Selectors, labels and values that are compared with an object in the time of a visit.
const SELECTORS_OF_VISIT: usize = 4;
/// Most rules of one policy that are applied.
const RULES_MAX: usize = 64;

/// Embedded documents in YAML are read and written by the caller's module.
pub trait YamlText {
    /// # Errors
    /// The text is not YAML; the error is a sentence.
    fn read(&self, text: &str) -> Result<Value, String>;
    /// # Errors
    /// The value cannot be written as YAML; the error is a sentence.
    fn write(&self, value: &Value) -> Result<String, String>;
}

/// Applies every policy that selects the object to it, for one cluster. Returns
/// the names of the policies that applied, in order.
///
/// # Errors
/// The first rule that does not apply; the object is unchanged then.
pub fn apply(
    object: &mut Value,
    reference: &ObjectRef,
    cluster: &ClusterFacts,
    policies: &[impl Borrow<OverridePolicy>],
    yaml: &dyn YamlText,
    visits: &mut Visits,
) -> Result<Vec<String>, OverrideError> {
    let mut changed = object.clone();
    let mut applied = Vec::new();
    let mut allowance = Allowance::of(visits);
    let refused = |policy: &OverridePolicy, problem: Problem| OverrideError {
        policy: policy.name.clone(),
        object: format!("{} {}/{}", reference.kind, reference.namespace, reference.name),
        field: problem.field,
        found: problem.found,
        allowed: problem.allowed.to_owned(),
    };
    let compares = |policy: &OverridePolicy| policy.breadth();
    let compared: usize = policies.iter().map(|policy| compares(policy.borrow())).sum();
    let looked_at = allowance.visits("spec.resourceSelectors", compared / SELECTORS_OF_VISIT);
    if let (Err(problem), Some(policy)) = (looked_at, policies.first()) {
        return Err(refused(policy.borrow(), problem));
    }
    for policy in selected(reference, policies) {
        let rules = &policy.spec.override_rules;
        if rules.len() > RULES_MAX {
            let found = rules.len().to_string();
            return Err(refused(policy, Problem::new("spec.overrideRules", found, "at most 64")));
        }
        let targets = |rule: &&OverrideRule| {
            rule.target_cluster.as_ref().is_none_or(|affinity| cluster_matches(affinity, cluster))
        };
        let overridden = allowance.visits("spec.overrideRules", 1 + rules.iter().map(breadth).sum::<usize>());
        let touched = overridden.and_then(|()| {
            let mut touched = false;
            for rule in rules.iter().filter(targets) {
                touched = true;
                override_by(&mut changed, &rule.overriders, yaml, &mut allowance)?;
            }
            if touched {
                allowance.whole("spec.overrideRules", &changed)?;
                shape::check(object, &changed)?;
                identity::check(object, &changed)?;
            }
            Ok(touched)
        });
        if touched.map_err(|problem| refused(policy, problem))? {
            applied.push(policy.name.clone());
        }
    }
    *object = changed;
    Ok(applied)
}

/// What it costs to see whether a rule is for a cluster.
fn breadth(rule: &OverrideRule) -> usize {
    let names = |affinity: &ClusterAffinity| affinity.cluster_names.len() + affinity.exclude.len();
    1 + rule.target_cluster.as_ref().map_or(0, names)
}

/// Whether any policy selects the object, for whatever cluster.
pub fn is_selected(reference: &ObjectRef, policies: &[impl Borrow<OverridePolicy>]) -> bool {
    !selected(reference, policies).is_empty()
}

fn selected<'p>(object: &ObjectRef, policies: &'p [impl Borrow<OverridePolicy>]) -> Vec<&'p OverridePolicy> {
    let mut found: Vec<_> = policies
        .iter()
        .map(Borrow::borrow)
        .filter(|policy| policy.scope == PolicyScope::Cluster || policy.namespace == object.namespace)
        .filter_map(|policy| {
            let selectors = &policy.spec.resource_selectors;
            let implicit = match_selectors(selectors, object);
            (selectors.is_empty() || implicit.is_some()).then_some((policy, implicit))
        })
        .collect();
    found
        .sort_by_key(|(policy, implicit)| (policy.scope == PolicyScope::Namespaced, *implicit, &policy.name));
    found.into_iter().map(|(policy, _)| policy).collect()
}

/// How many times the overriders of a rule visit the whole object.
fn visitors(overriders: &Overriders) -> usize {
    overriders.image_overrider.len() + overriders.command_overrider.len() + overriders.args_overrider.len()
}

fn override_by(
    object: &mut Value,
    overriders: &Overriders,
    yaml: &dyn YamlText,
    allowance: &mut Allowance<'_>,
) -> Result<(), Problem> {
    if let visitors @ 1.. = visitors(overriders) {
        allowance.visits("spec.overrideRules", visitors.saturating_mul(nesting::values(object)))?;
    }
    for overrider in &overriders.image_overrider {
        image::apply(object, overrider, allowance)?;
    }
    for overrider in &overriders.command_overrider {
        change_list(object, "command", overrider, allowance)?;
    }
    for overrider in &overriders.args_overrider {
        change_list(object, "args", overrider, allowance)?;
    }
    for overrider in &overriders.labels_overrider {
        change_map(object, "labels", overrider, allowance)?;
    }
    for overrider in &overriders.annotations_overrider {
        change_map(object, "annotations", overrider, allowance)?;
    }
    for overrider in &overriders.field_overrider {
        change_embedded(object, overrider, yaml, allowance)?;
    }
    for overrider in &overriders.plaintext {
        pointer::change(object, &overrider.path, overrider.operator, &overrider.value, allowance)?;
    }
    Ok(())
}

fn change_list(
    object: &mut Value,
    field: &str,
    overrider: &CommandOverrider,
    allowance: &mut Allowance<'_>,
) -> Result<(), Problem> {
    allowance.operation(field)?;
    let given: BTreeSet<&str> = overrider.value.iter().map(String::as_str).collect();
    let bytes: usize = overrider.value.iter().map(|word| word.len() + 3).sum();
    let mut outcome = Ok(());
    pod_specs(object, &mut |spec| {
        for list in ["containers", "initContainers"] {
            let containers = spec.get_mut(list).and_then(Value::as_array_mut);
            for container in
                containers.into_iter().flatten().filter(|c| c["name"] == overrider.container_name.as_str())
            {
                if overrider.operator != Operator::Remove && outcome.is_ok() {
                    outcome = allowance.bytes(field, bytes);
                }
                if outcome.is_err() {
                    return;
                }
                let mut words = match container[field].take() {
                    Value::Array(words) => words,
                    _ => Vec::new(),
                };
                let added = overrider.value.iter().map(|word| Value::from(word.as_str()));
                match overrider.operator {
                    Operator::Add => words.extend(added),
                    Operator::Remove => {
                        words.retain(|word| !word.as_str().is_some_and(|word| given.contains(word)));
                    }
                    Operator::Replace => words = added.collect(),
                }
                container[field] = Value::Array(words);
            }
        }
    });
    outcome
}

fn change_map(
    object: &mut Value,
    field: &str,
    overrider: &MapOverrider,
    allowance: &mut Allowance<'_>,
) -> Result<(), Problem> {
    allowance.operation(field)?;
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return Ok(());
    };
    let map = metadata.entry(field).or_insert_with(|| Value::Object(Map::new()));
    if !map.is_object() {
        *map = Value::Object(Map::new());
    }
    let Some(map) = map.as_object_mut() else { return Ok(()) };
    for (key, value) in &overrider.value {
        // Below the object, its metadata, and labels or annotations.
        allowance.value(field, 3, value)?;
        allowance.bytes(field, key.len())?;
        match overrider.operator {
            Operator::Add => {
                map.insert(key.clone(), value.clone());
            }
            Operator::Replace => {
                if let Some(present) = map.get_mut(key) {
                    *present = value.clone();
                }
            }
            Operator::Remove => {
                map.remove(key);
            }
        }
    }
    Ok(())
}

fn change_embedded(
    object: &mut Value,
    overrider: &FieldOverrider,
    yaml: &dyn YamlText,
    allowance: &mut Allowance<'_>,
) -> Result<(), Problem> {
    let path = &overrider.field_path;
    allowance.operation(path)?;
    if overrider.json.is_empty() == overrider.yaml.is_empty() {
        return Err(Problem::new(path, "json and yaml, or neither", "exactly one of json and yaml"));
    }
    let Some(field) = object.pointer_mut(path) else {
        return Err(Problem::new(path, "nothing", "a field that exists"));
    };
    let Some(text) = field.as_str() else {
        return Err(Problem::new(path, &*field, "a text"));
    };
    let is_yaml = !overrider.yaml.is_empty();
    allowance.bytes(path, text.len())?;
    let mut document: Value = if is_yaml {
        yaml.read(text).map_err(|error| Problem::new(path, error, "a YAML document"))?
    } else {
        serde_json::from_str(text).map_err(|error| Problem::new(path, error, "a JSON document"))?
    };
    for operation in overrider.json.iter().chain(&overrider.yaml) {
        pointer::change(&mut document, &operation.sub_path, operation.operator, &operation.value, allowance)?;
    }
    let text = if is_yaml {
        yaml.write(&document).map_err(|error| Problem::new(path, error, "a document that YAML can hold"))?
    } else {
        document.to_string()
    };
    allowance.bytes(path, text.len())?;
    *field = Value::from(text);
    Ok(())
}

#[cfg(test)]
mod tests;
