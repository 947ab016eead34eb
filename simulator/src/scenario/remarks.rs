//! Values of a scenario file that are ignored: values of the quota tree, of queues, policies and jobs that are unknown
//! or impossible, and job names used twice. The run goes on; a hub would report the same in conditions and events.

mod jobs;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use fleet_api::names;
use fleet_policies::{choice::PolicyScope, spec, workload::WorkloadKind};
use fleet_quota::QueuePolicy;
use fleet_quota_tree::{NodeSpec, QuotaTree};
use serde_json::{Value, json};

use super::model::{Action, Manifest, ObjectName, Scenario};
use jobs::Known;

/// Fields of a node of the tree.
const NODE_FIELDS: [&str; 6] = ["name", "namespaces", "attributes", "min", "max", "children"];
/// Paths that a remark names.
const PATHS_NAMED: usize = 20;
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
    let known = Known {
        classes: applied(scenario).filter(|m| m.kind == "PriorityClass").map(|m| m.name.as_str()).collect(),
        clusters: scenario.clusters.iter().map(|cluster| cluster.name.as_str()).collect(),
    };
    let mut found = nodes(scenario);
    let mut jobs: BTreeMap<(&str, &str), &Manifest> = BTreeMap::new();
    let mut trees: BTreeMap<(&str, &str), ()> = BTreeMap::new();
    for manifest in scenario.objects.iter().filter(|manifest| manifest.line > 0) {
        look(scenario, manifest, &known, &mut jobs, &mut trees, &mut found);
    }
    for event in &scenario.events {
        match &event.action {
            Action::Apply(manifest) => look(scenario, manifest, &known, &mut jobs, &mut trees, &mut found),
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

/// Objects of the file, whenever they are applied.
fn applied(scenario: &Scenario) -> impl Iterator<Item = &Manifest> {
    let later = scenario.events.iter().filter_map(|event| match &event.action {
        Action::Apply(manifest) => Some(manifest),
        _ => None,
    });
    scenario.objects.iter().chain(later)
}

/// Amounts of nodes that no pod can ask for.
fn nodes(scenario: &Scenario) -> Vec<Remark> {
    let mut found = Vec::new();
    for cluster in &scenario.clusters {
        for pool in &cluster.node_pools {
            let mut sentences = Vec::new();
            let path = format!("nodePools[{}].allocatable", pool.name);
            jobs::amounts(&json!(pool.allocatable), &path, &mut sentences);
            found.extend(sentences.into_iter().map(|sentence| Remark {
                file: scenario.file.clone(),
                line: 1,
                object: format!("cluster {}", cluster.name),
                sentence,
            }));
        }
    }
    found
}

fn look<'s>(
    scenario: &Scenario,
    manifest: &'s Manifest,
    known: &Known,
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
        "Queue" => queue(scenario, manifest).into_iter().for_each(tell),
        kind if WorkloadKind::of(&manifest.api_version, kind).is_job() => {
            jobs::broken(&manifest.value, known).into_iter().for_each(&mut tell);
            let first = jobs.insert(key, manifest);
            if let Some(first) = first.filter(|first| manifest.is_new || first.kind != manifest.kind) {
                tell(format!(
                    "metadata.name: found a second job {}/{}, the first is the {} of line {}; allowed: each name once, \
                     or a delete in between, or edit; a job keeps the fields it was made with",
                    key.0, key.1, first.kind, first.line
                ));
            }
        }
        _ => {}
    }
}

/// What a Queue's values do not do.
fn queue(scenario: &Scenario, manifest: &Manifest) -> Vec<String> {
    let (metadata, spec) = (&manifest.value["metadata"], &manifest.value["spec"]);
    if manifest.namespace != names::QUEUE_NAMESPACE {
        let allowed = names::QUEUE_NAMESPACE;
        return vec![format!("metadata.namespace: found {}; allowed: {allowed}", manifest.namespace)];
    }
    let mut found = Vec::new();
    let label = names::QUEUE_CREATED_LABEL;
    if metadata["labels"][label].is_null() {
        found.push(format!(
            "metadata.labels[{label}]: found nothing; allowed: \"true\"; the queue sets no policy"
        ));
    }
    let name = names::QUOTA_FULLNAME_ANNOTATION;
    let paths = paths(scenario);
    let path = metadata["annotations"][name].as_str();
    if path.is_none_or(|path| !paths.contains(path)) {
        let path = path.map_or("nothing".to_string(), |path| format!("{path:?}"));
        let known: Vec<&str> = paths.iter().map(String::as_str).take(PATHS_NAMED).collect();
        let more = if paths.len() > PATHS_NAMED { ", ..." } else { "" };
        let allowed = format!("the path of a node of the quota tree: {}{more}", known.join(", "));
        found.push(format!(
            "metadata.annotations[{name}]: found {path}; allowed: {allowed}; the queue sets no policy"
        ));
    }
    let policy = spec["queuePolicy"].as_str().unwrap_or_default();
    if QueuePolicy::from_text(policy, None).is_none() {
        let allowed = "Priority, Block, Intelligent; it counts as Priority";
        found.push(format!("spec.queuePolicy: found {policy:?}; allowed: {allowed}"));
    }
    let threshold = &metadata["annotations"]["priority-threshold"];
    if let Some(text) = threshold.as_str().filter(|text| text.parse::<i64>().is_err()) {
        let default = QueuePolicy::DEFAULT_THRESHOLD;
        found.push(format!(
            "metadata.annotations[priority-threshold]: found {text:?}; allowed: a whole number; it counts as {default}"
        ));
    }
    found
}

/// Paths of all nodes of the file's trees, whenever these are applied.
fn paths(scenario: &Scenario) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    for manifest in applied(scenario).filter(|manifest| manifest.kind == "ElasticQuotaTree") {
        let mut open = vec![(&manifest.value["spec"]["root"], "root".to_string())];
        while let Some((node, path)) = open.pop() {
            for child in node["children"].as_array().into_iter().flatten() {
                open.push((child, format!("{path}/{}", child["name"].as_str().unwrap_or_default())));
            }
            paths.insert(path);
        }
    }
    paths
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
