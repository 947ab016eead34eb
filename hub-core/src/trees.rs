//! Which ElasticQuotaTree is in force, and the conditions of the tree objects.
//!
//! In force is the oldest usable tree in kube-system. If none is usable, the last usable one stays in force.
//! It is kept in `status.inForce` of its object and survives a restart. A tree too large for the status is
//! lost by a restart while its object is invalid.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use fleet_api::{ElasticQuotaTree, names, patch::merge_diff};
use fleet_policies::reason::Reason;
use fleet_quota_tree::{NodeSpec, QuotaTree};
use jiff::Timestamp;
use kube_core::ResourceExt;
use serde_json::{Value, json};

use crate::{
    events,
    status::{condition, find_condition},
    world::{Key, World},
    writes::{Target, Verb, Write},
};

const TREE_API: &str = "scheduling.sigs.k8s.io/v1beta1";
const SOURCE: &str = "fleet-controller";
/// Largest tree that is copied to its status, in bytes of JSON: the limit of an object is near 1 MB.
const MAX_KEPT: usize = 256 * 1024;

/// The last state of the tree objects.
#[derive(Default)]
pub struct Trees {
    readings: BTreeMap<Key, Reading>,
    in_force: Option<InForce>,
    /// Why no tree is in force although one exists.
    trouble: Option<String>,
}

/// One object, parsed at one generation.
struct Reading {
    id: (String, i64),
    built: Result<Built, String>,
}

#[derive(Clone)]
struct Built {
    tree: Arc<QuotaTree>,
    warnings: Vec<String>,
}

struct InForce {
    key: Key,
    uid: String,
    generation: i64,
    /// As written in the object.
    root: Value,
}

/// A change of the tree in force: `Some(None)` removes it.
pub type TreeChange = Option<Option<Arc<QuotaTree>>>;

/// A condition: type, status, reason, message.
type Wanted = (&'static str, &'static str, Reason, String);

impl Trees {
    /// Parses the trees and selects the one in force.
    pub fn read(&mut self, world: &World) -> TreeChange {
        let candidates = candidates(world);
        self.read_all(&candidates);
        if candidates.is_empty() {
            self.trouble = None;
            return self.in_force.take().map(|_| None);
        }
        let usable = candidates.iter().find_map(|tree| {
            let built = self.readings.get(&key(tree))?.built.as_ref().ok()?;
            Some((*tree, Arc::clone(&built.tree)))
        });
        if let Some((object, tree)) = usable {
            let found = InForce::of(object);
            self.trouble = None;
            if self.in_force.as_ref().is_some_and(|known| known.is_same(&found)) {
                return None;
            }
            self.in_force = Some(found);
            return Some(Some(tree));
        }
        if self.in_force.is_some() {
            return None;
        }
        if let Some((kept, tree)) = candidates.iter().find_map(|tree| kept(tree)) {
            self.trouble = None;
            self.in_force = Some(kept);
            return Some(Some(tree));
        }
        let first = candidates.first().map(|tree| key(tree));
        let error = first.as_ref().and_then(|key| self.readings.get(key)?.built.as_ref().err());
        let (namespace, name) = first.clone().unwrap_or_default();
        let trouble = error.map(|error| format!("{namespace}/{name}: {error}"));
        if trouble == self.trouble {
            return None;
        }
        self.trouble = trouble;
        Some(None)
    }

    /// Why no tree is in force although one exists; names the object.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// The object that provides the tree in force.
    pub fn holder<'w>(&self, world: &'w World) -> Option<&'w ElasticQuotaTree> {
        let known = self.in_force.as_ref()?;
        world.trees.get(&known.key).filter(|tree| tree.uid().unwrap_or_default() == known.uid)
    }

    fn read_all(&mut self, candidates: &[&ElasticQuotaTree]) {
        self.readings.retain(|known, _| candidates.iter().any(|tree| key(tree) == *known));
        for tree in candidates {
            let (key, id) = (key(tree), id(tree));
            if self.readings.get(&key).is_none_or(|known| known.id != id) {
                self.readings.insert(key, Reading { id, built: build(&root(tree)) });
            }
        }
    }

    /// Conditions and warning events of every tree object, and the tree in force.
    pub fn plan_conditions(&self, world: &World, now: Timestamp) -> Vec<Write> {
        let mut writes = Vec::new();
        for (tree_key, tree) in world.trees.iter() {
            if tree.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let conditions = self.conditions(world, tree_key, tree);
            writes.extend(self.status(tree_key, tree, &conditions, now));
        }
        writes
    }

    fn conditions(&self, world: &World, tree_key: &Key, tree: &ElasticQuotaTree) -> Vec<Wanted> {
        let known = self.in_force.as_ref();
        match self.readings.get(tree_key).map(|reading| &reading.built) {
            Some(Err(error)) => {
                let message = format!("{error}; {}", in_force_instead(known, tree_key));
                vec![("Valid", "False", Reason::QuotaTreeInvalid, message)]
            }
            Some(Ok(built)) if known.is_some_and(|known| known.key == *tree_key) => {
                let valid = ("Valid", "True", Reason::ApplyPolicySucceed, "the tree is in force".to_string());
                let absent = absent(world, &built.tree);
                let warnings: Vec<&str> = built.warnings.iter().chain(&absent).map(String::as_str).collect();
                let kept = match warnings.is_empty() {
                    true => ("True", Reason::ApplyPolicySucceed, "no rule is broken".to_string()),
                    false => ("False", Reason::QuotaTreeWarning, warnings.join("; ")),
                };
                vec![valid, ("RulesKept", kept.0, kept.1, kept.2)]
            }
            _ => {
                let first =
                    known.map_or("none".to_string(), |known| format!("{}/{}", known.key.0, known.key.1));
                let message = format!(
                    "metadata: found {}/{}; allowed: one tree, in namespace {}; {first} is in force",
                    tree_key.0,
                    tree.name_any(),
                    names::QUOTA_NAMESPACE
                );
                vec![("Valid", "False", Reason::QuotaTreeInvalid, message)]
            }
        }
    }

    fn status(&self, key: &Key, tree: &ElasticQuotaTree, wanted: &[Wanted], now: Timestamp) -> Option<Write> {
        let generation = tree.metadata.generation;
        let known = tree.status.as_ref().map_or(&[][..], |status| &status.conditions);
        let moved = wanted.iter().any(|(kind, status, _, message)| {
            find_condition(known, kind).is_none_or(|c| {
                c.status != *status
                    || c.message != crate::status::cut(message)
                    || c.observed_generation != generation
            })
        });
        let kept = tree.status.as_ref().and_then(|status| status.in_force.as_ref());
        let kept = kept.map_or(Value::Null, |kept| json!(kept));
        let in_force = self.in_force.as_ref().filter(|holder| holder.key == *key);
        let in_force = in_force.map_or(Value::Null, InForce::kept);
        let patch = merge_diff(&kept, &in_force);
        if !moved && patch.is_none() {
            return None;
        }
        let fresh: Vec<Value> = wanted
            .iter()
            .map(|(kind, status, reason, message)| {
                let known = find_condition(known, kind);
                let mut condition = condition(kind, status, *reason, message, known, now);
                condition["observedGeneration"] = json!(generation);
                condition
            })
            .collect();
        let mut status = json!({"conditions": fresh});
        if let Some(patch) = patch {
            status["inForce"] = patch;
        }
        let write = Write::new(Target::Tree, &key.0, &key.1, Verb::MergeStatus(json!({"status": status})));
        if !moved {
            return Some(write);
        }
        Some(write.then(warnings(key, tree, wanted, now)))
    }
}

/// An event for each condition that is False.
fn warnings(key: &Key, tree: &ElasticQuotaTree, conditions: &[Wanted], now: Timestamp) -> Vec<Write> {
    let uid = tree.uid().unwrap_or_default();
    let subject = events::Subject {
        api_version: TREE_API,
        kind: "ElasticQuotaTree",
        namespace: &key.0,
        name: &key.1,
        uid: &uid,
    };
    let broken = conditions.iter().filter(|(_, status, ..)| *status == "False");
    broken.map(|(_, _, reason, message)| events::warning(&subject, SOURCE, *reason, message, now)).collect()
}

fn in_force_instead(known: Option<&InForce>, own: &Key) -> String {
    match known {
        Some(known) if known.key == *own => {
            format!("generation {} of this tree stays in force", known.generation)
        }
        Some(known) => format!("{}/{} is in force", known.key.0, known.key.1),
        None => "no tree is in force".to_string(),
    }
}

impl InForce {
    fn of(tree: &ElasticQuotaTree) -> Self {
        let (uid, generation) = id(tree);
        Self { key: key(tree), uid, generation, root: root(tree) }
    }

    fn is_same(&self, other: &Self) -> bool {
        self.key == other.key && self.uid == other.uid && self.generation == other.generation
    }

    /// The copy for the status; null if it is too large.
    fn kept(&self) -> Value {
        match self.root.to_string().len() <= MAX_KEPT {
            true => json!({"generation": self.generation, "root": self.root}),
            false => Value::Null,
        }
    }
}

/// The tree that was in force before a restart.
fn kept(tree: &ElasticQuotaTree) -> Option<(InForce, Arc<QuotaTree>)> {
    let kept = tree.status.as_ref()?.in_force.as_ref()?;
    let root = json!(kept.root);
    let built = build(&root).ok()?;
    let uid = tree.uid().unwrap_or_default();
    Some((InForce { key: key(tree), uid, generation: kept.generation, root }, built.tree))
}

/// Names in the tree that the fleet does not have, or not yet.
fn absent(world: &World, tree: &QuotaTree) -> Vec<String> {
    let shapes = world.clusters.values().flat_map(|cluster| &cluster.status);
    let allocatable =
        shapes.flat_map(|status| &status.node_shapes).flat_map(|shape| shape.allocatable.keys());
    let listed = |name: &str| world.namespaces.is_empty() || world.namespaces.contains_key(name);
    let found = tree.names_absent(&allocatable.cloned().collect(), &listed);
    found.into_iter().map(|warning| warning.sentence).collect()
}

fn build(root: &Value) -> Result<Built, String> {
    let spec: NodeSpec = serde_json::from_value(root.clone()).map_err(|error| error.to_string())?;
    let (tree, warnings) = QuotaTree::build(&spec).map_err(|error| error.to_string())?;
    let warnings = warnings.into_iter().map(|warning| warning.sentence).collect();
    Ok(Built { tree: Arc::new(tree), warnings })
}

fn root(tree: &ElasticQuotaTree) -> Value {
    serde_json::to_value(&tree.spec.root).unwrap_or_default()
}

fn key(tree: &ElasticQuotaTree) -> Key {
    (tree.namespace().unwrap_or_default(), tree.name_any())
}

fn id(tree: &ElasticQuotaTree) -> (String, i64) {
    (tree.uid().unwrap_or_default(), tree.metadata.generation.unwrap_or(0))
}

/// Trees that may come into force, the oldest first.
fn candidates(world: &World) -> Vec<&ElasticQuotaTree> {
    let here =
        world.trees.values().filter(|tree| tree.namespace().as_deref() == Some(names::QUOTA_NAMESPACE));
    let mut alive: Vec<&ElasticQuotaTree> =
        here.filter(|tree| tree.metadata.deletion_timestamp.is_none()).collect();
    alive.sort_by_cached_key(|tree| (tree.creation_timestamp().map(|time| time.0), tree.name_any()));
    alive
}
