//! Overrides: changes of an object for one cluster.
//!
//! The rules of the policies that select the object apply in this order: cluster-wide policies before namespaced
//! ones, the wider selector first, then name; inside a policy rule by rule, inside a rule overrider by overrider.
//! Either all rules apply, or the object stays as it was. The identity of an object (API version, kind, namespace,
//! name, Fleet's own marks) cannot be overridden: see `identity`.

mod identity;
mod image;
mod pointer;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::affinity::{ClusterFacts, cluster_matches};
use crate::choice::{ObjectRef, PolicyScope};
use crate::selector::{ResourceSelector, match_selectors};
use crate::spec::ClusterAffinity;

/// Most rules of one policy that are applied.
const RULES_MAX: usize = 64;

/// The spec of an OverridePolicy or ClusterOverridePolicy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OverrideSpec {
    /// Empty: everything in the policy's scope.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_selectors: Vec<ResourceSelector>,
    pub override_rules: Vec<OverrideRule>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OverrideRule {
    /// Absent: every cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_cluster: Option<ClusterAffinity>,
    pub overriders: Overriders,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Overriders {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub image_overrider: Vec<ImageOverrider>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command_overrider: Vec<CommandOverrider>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args_overrider: Vec<CommandOverrider>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels_overrider: Vec<MapOverrider>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub annotations_overrider: Vec<MapOverrider>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub field_overrider: Vec<FieldOverrider>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plaintext: Vec<PlaintextOverrider>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operator {
    Add,
    Remove,
    Replace,
}

/// `path` is a JSON pointer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlaintextOverrider {
    pub path: String,
    pub operator: Operator,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub value: Value,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImageOverrider {
    /// Absent: every container of every pod template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicate: Option<ImagePredicate>,
    pub component: ImageComponent,
    pub operator: Operator,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImagePredicate {
    pub path: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImageComponent {
    Registry,
    Repository,
    Tag,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandOverrider {
    pub container_name: String,
    pub operator: Operator,
    #[serde(default)]
    pub value: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MapOverrider {
    pub operator: Operator,
    #[serde(default)]
    pub value: Map<String, Value>,
}

/// Changes a document embedded as text in one field, such as a ConfigMap's `/data/config.json`. The caller changes
/// YAML, because it has a YAML module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FieldOverrider {
    pub field_path: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub json: Vec<EmbeddedOperation>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub yaml: Vec<EmbeddedOperation>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EmbeddedOperation {
    pub sub_path: String,
    pub operator: Operator,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub value: Value,
}

/// An override policy, for the rules.
#[derive(Clone, Debug, PartialEq)]
pub struct OverridePolicy {
    pub scope: PolicyScope,
    /// Empty for cluster scope.
    pub namespace: String,
    pub name: String,
    pub spec: OverrideSpec,
}

/// A rule that cannot be applied to an object it selects.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("override policy {policy}: {field} of {object}: found {found}; allowed: {allowed}")]
pub struct OverrideError {
    pub policy: String,
    pub object: String,
    pub field: String,
    pub found: String,
    pub allowed: String,
}

/// What is wrong at a field; the caller adds policy and object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    field: String,
    found: String,
    allowed: &'static str,
}

impl Problem {
    fn new(field: &str, found: impl ToString, allowed: &'static str) -> Self {
        Self { field: field.to_owned(), found: crate::spec::shortened(&found.to_string()), allowed }
    }
}

/// Embedded documents in YAML are read and written by the caller's module.
pub trait YamlText {
    /// # Errors
    /// The text is no YAML, said in words.
    fn read(&self, text: &str) -> Result<Value, String>;
    /// # Errors
    /// The value cannot be written as YAML, said in words.
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
    policies: &[OverridePolicy],
    yaml: &dyn YamlText,
) -> Result<Vec<String>, OverrideError> {
    let mut changed = object.clone();
    let mut applied = Vec::new();
    for policy in selected(reference, policies) {
        let mut touched = false;
        if policy.spec.override_rules.len() > RULES_MAX {
            return Err(OverrideError {
                policy: policy.name.clone(),
                object: format!("{} {}/{}", reference.kind, reference.namespace, reference.name),
                field: "spec.overrideRules".to_owned(),
                found: policy.spec.override_rules.len().to_string(),
                allowed: format!("at most {RULES_MAX}"),
            });
        }
        for rule in &policy.spec.override_rules {
            let targets =
                rule.target_cluster.as_ref().is_none_or(|affinity| cluster_matches(affinity, cluster));
            if !targets {
                continue;
            }
            touched = true;
            let overridden = override_by(&mut changed, &rule.overriders, yaml)
                .and_then(|()| identity::check(object, &changed));
            overridden.map_err(|problem| OverrideError {
                policy: policy.name.clone(),
                object: format!("{} {}/{}", reference.kind, reference.namespace, reference.name),
                field: problem.field,
                found: problem.found,
                allowed: problem.allowed.to_owned(),
            })?;
        }
        if touched {
            applied.push(policy.name.clone());
        }
    }
    *object = changed;
    Ok(applied)
}

/// Whether any policy selects the object, for whatever cluster.
pub fn is_selected(reference: &ObjectRef, policies: &[OverridePolicy]) -> bool {
    !selected(reference, policies).is_empty()
}

fn selected<'p>(object: &ObjectRef, policies: &'p [OverridePolicy]) -> Vec<&'p OverridePolicy> {
    let mut found: Vec<_> = policies
        .iter()
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

fn override_by(object: &mut Value, overriders: &Overriders, yaml: &dyn YamlText) -> Result<(), Problem> {
    for overrider in &overriders.image_overrider {
        image::apply(object, overrider)?;
    }
    for overrider in &overriders.command_overrider {
        change_list(object, "command", overrider);
    }
    for overrider in &overriders.args_overrider {
        change_list(object, "args", overrider);
    }
    for overrider in &overriders.labels_overrider {
        change_map(object, "labels", overrider);
    }
    for overrider in &overriders.annotations_overrider {
        change_map(object, "annotations", overrider);
    }
    for overrider in &overriders.field_overrider {
        change_embedded(object, overrider, yaml)?;
    }
    for overrider in &overriders.plaintext {
        pointer::change(object, &overrider.path, overrider.operator, &overrider.value)?;
    }
    Ok(())
}

/// Pod specs of every known kind of workload, found by their containers.
pub(crate) fn pod_specs(value: &mut Value, visit: &mut dyn FnMut(&mut Map<String, Value>)) {
    match value {
        Value::Object(fields) => {
            if fields.get("containers").is_some_and(Value::is_array) {
                visit(fields);
                return;
            }
            for field in fields.values_mut() {
                pod_specs(field, visit);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| pod_specs(item, visit)),
        _ => {}
    }
}

fn change_list(object: &mut Value, field: &str, overrider: &CommandOverrider) {
    pod_specs(object, &mut |spec| {
        for list in ["containers", "initContainers"] {
            let containers = spec.get_mut(list).and_then(Value::as_array_mut);
            for container in
                containers.into_iter().flatten().filter(|c| c["name"] == overrider.container_name.as_str())
            {
                let mut words: Vec<Value> = container[field].as_array().cloned().unwrap_or_default();
                let given = || overrider.value.iter().map(|word| Value::from(word.as_str()));
                match overrider.operator {
                    Operator::Add => words.extend(given()),
                    Operator::Remove => words.retain(|word| !given().any(|given| given == *word)),
                    Operator::Replace => words = given().collect(),
                }
                container[field] = Value::Array(words);
            }
        }
    });
}

fn change_map(object: &mut Value, field: &str, overrider: &MapOverrider) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    let map = metadata.entry(field).or_insert_with(|| Value::Object(Map::new()));
    if !map.is_object() {
        *map = Value::Object(Map::new());
    }
    let Some(map) = map.as_object_mut() else { return };
    for (key, value) in &overrider.value {
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
}

fn change_embedded(
    object: &mut Value,
    overrider: &FieldOverrider,
    yaml: &dyn YamlText,
) -> Result<(), Problem> {
    let path = &overrider.field_path;
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
    let mut document: Value = if is_yaml {
        yaml.read(text).map_err(|error| Problem::new(path, error, "a YAML document"))?
    } else {
        serde_json::from_str(text).map_err(|error| Problem::new(path, error, "a JSON document"))?
    };
    for operation in overrider.json.iter().chain(&overrider.yaml) {
        pointer::change(&mut document, &operation.sub_path, operation.operator, &operation.value)?;
    }
    let text = if is_yaml {
        yaml.write(&document).map_err(|error| Problem::new(path, error, "a document that YAML can hold"))?
    } else {
        document.to_string()
    };
    *field = Value::from(text);
    Ok(())
}

#[cfg(test)]
mod tests;
