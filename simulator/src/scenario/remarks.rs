//! Values of a scenario file that are ignored: values of the quota tree and of policies that are unknown or
//! impossible, and job names used twice. The run goes on; a hub would report the same in conditions and events.

use std::{collections::BTreeMap, fmt};

use fleet_api::names;
use fleet_policies::{choice::PolicyScope, spec, workload::WorkloadKind};
use fleet_quota::{NodeSpec, QuotaTree};
use serde_json::Value;

use super::model::{Action, Manifest, ObjectName, Scenario};

/// Fields of a node of the tree.
const NODE_FIELDS: [&str; 6] = ["name", "namespaces", "attributes", "min", "max", "children"];
/// Remarks on one file; the rest are counted.
const MOST: usize = 50;

/// One thing that does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    pub file: String,
    /// Of the object; 1 for the first.
    pub line: u64,
    /// Kind and name.
    pub object: String,
    /// Field, what was found, what is allowed.
    pub sentence: String,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file, self.line, self.object, self.sentence)
    }
}

/// Everything in the file that does not count, in its order, and how many more there are.
pub(super) fn remarks(scenario: &Scenario) -> (Vec<Remark>, usize) {
    let mut found = Vec::new();
    let mut jobs: BTreeMap<(&str, &str), &Manifest> = BTreeMap::new();
    let mut trees: BTreeMap<(&str, &str), ()> = BTreeMap::new();
    for manifest in scenario.objects.iter().filter(|manifest| manifest.line > 0) {
        look(scenario, manifest, &mut jobs, &mut trees, &mut found);
    }
    for event in &scenario.events {
        match &event.action {
            Action::Apply(manifest) => look(scenario, manifest, &mut jobs, &mut trees, &mut found),
            Action::Delete(ObjectName { namespace, name, kind, .. }) => {
                if kind == "ElasticQuotaTree" {
                    trees.remove(&(namespace.as_str(), name.as_str()));
                }
                jobs.remove(&(namespace.as_str(), name.as_str()));
            }
            _ => {}
        }
    }
    let more = found.len().saturating_sub(MOST);
    found.truncate(MOST);
    (found, more)
}

fn look<'s>(
    scenario: &Scenario,
    manifest: &'s Manifest,
    jobs: &mut BTreeMap<(&'s str, &'s str), &'s Manifest>,
    trees: &mut BTreeMap<(&'s str, &'s str), ()>,
    found: &mut Vec<Remark>,
) {
    let mut tell = |sentence: String| {
        found.push(Remark {
            file: scenario.file.clone(),
            line: manifest.line,
            object: format!("{} {}", manifest.kind, manifest.name),
            sentence,
        });
    };
    let key = (manifest.namespace.as_str(), manifest.name.as_str());
    let spec = &manifest.value["spec"];
    match manifest.kind.as_str() {
        "ElasticQuotaTree" => {
            if manifest.namespace != names::QUOTA_NAMESPACE {
                let allowed = names::QUOTA_NAMESPACE;
                tell(format!("metadata.namespace: found {}; allowed: {allowed}", manifest.namespace));
            } else {
                trees.insert(key, ());
                if let Some(((_, first), ())) = trees.iter().find(|(other, ())| **other != key) {
                    tell(format!("metadata.name: found a second tree beside {first}; allowed: one tree"));
                }
            }
            tree(&spec["root"]).into_iter().for_each(tell);
        }
        "PropagationPolicy" => violations(spec, PolicyScope::Namespaced, key.0).into_iter().for_each(tell),
        "ClusterPropagationPolicy" => violations(spec, PolicyScope::Cluster, "").into_iter().for_each(tell),
        kind if WorkloadKind::of(&manifest.api_version, kind).is_job() => {
            if let Some(first) = jobs.insert(key, manifest) {
                tell(format!(
                    "metadata.name: found a second job {}/{}, the first is the {} of line {}; allowed: each name once, \
                     or a delete in between; a job keeps the fields it was made with",
                    key.0, key.1, first.kind, first.line
                ));
            }
        }
        _ => {}
    }
}

fn violations(spec: &Value, scope: PolicyScope, namespace: &str) -> Vec<String> {
    let broken = spec::validate(spec, scope, namespace);
    broken.iter().map(|violation| format!("{violation}; the policy governs nothing")).collect()
}

/// What the tree's values do not do.
fn tree(root: &Value) -> Vec<String> {
    let mut found = Vec::new();
    unknown_fields(root, "root", &mut found);
    match serde_json::from_value::<NodeSpec>(root.clone()) {
        Err(error) => found.push(format!("spec.root: found {error}; allowed: nodes of a quota tree")),
        Ok(spec) => match QuotaTree::build(&spec) {
            Err(error) => found.push(format!("{error}; the tree is not used")),
            Ok((_, warnings)) => found.extend(
                warnings.into_iter().filter(|warning| warning.is_mistake).map(|warning| warning.sentence),
            ),
        },
    }
    found
}

fn unknown_fields(root: &Value, path: &str, found: &mut Vec<String>) {
    let mut open = vec![(root, path.to_string())];
    while let Some((node, path)) = open.pop() {
        for field in node.as_object().into_iter().flatten().map(|(field, _)| field) {
            if !NODE_FIELDS.contains(&field.as_str()) {
                let allowed = NODE_FIELDS.join(", ");
                found.push(format!("quota {path}: found the field {field:?}; allowed: {allowed}"));
            }
        }
        for child in node["children"].as_array().into_iter().flatten() {
            open.push((child, format!("{path}/{}", child["name"].as_str().unwrap_or("?"))));
        }
    }
}
