//! Nodes and what is free on them.

use std::collections::BTreeMap;

use fleet_resources::Resources;
use fleet_resources::constraints::{self, Taint};
use serde::{Deserialize, Serialize};

use crate::gang::PodShape;

/// One node of a cluster. Amounts are in base units.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Node {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    /// Cordoned.
    pub unschedulable: bool,
    pub ready: bool,
    pub allocatable: Resources,
    /// Requests of the pods bound here and of places reserved here.
    pub used: Resources,
    /// How many pods the node may hold; 0: no limit.
    pub max_pods: i64,
    /// How many it holds.
    pub pods: i64,
}

impl Node {
    pub fn free(&self) -> Resources {
        self.allocatable.minus(&self.used)
    }

    /// Pods that still fit by number alone.
    pub fn free_pods(&self) -> i64 {
        free_pods(self.max_pods, self.pods)
    }

    /// Ready, not cordoned, and it meets the pod's constraints. Free amounts are not checked.
    pub fn admits(&self, shape: &PodShape) -> bool {
        self.ready
            && !self.unschedulable
            && admits(shape, &self.name, &self.labels)
            && constraints::tolerates(&shape.tolerations, &self.taints)
    }
}

pub(crate) fn free_pods(max_pods: i64, pods: i64) -> i64 {
    if max_pods <= 0 { i64::MAX } else { (max_pods - pods).max(0) }
}

/// Meets the node selector and the required affinity.
pub(crate) fn admits(shape: &PodShape, node_name: &str, labels: &BTreeMap<String, String>) -> bool {
    shape.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value))
        && constraints::any_term_matches(&shape.node_affinity, node_name, labels)
}

/// The nodes of one cluster by name, updated by events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeIndex {
    nodes: BTreeMap<String, Node>,
}

impl NodeIndex {
    pub fn new(nodes: impl IntoIterator<Item = Node>) -> Self {
        Self { nodes: nodes.into_iter().map(|node| (node.name.clone(), node)).collect() }
    }

    pub fn get(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds a node or replaces the one of that name, its use included.
    pub fn upsert(&mut self, node: Node) {
        self.nodes.insert(node.name.clone(), node);
    }

    pub fn remove(&mut self, name: &str) -> Option<Node> {
        self.nodes.remove(name)
    }

    /// Uses capacity for `pods` pods with these `requests` each. Returns whether the node exists.
    pub fn assign(&mut self, name: &str, requests: &Resources, pods: i64) -> bool {
        self.change(name, |node| {
            node.used.add(&requests.scaled(pods));
            node.pods += pods;
        })
    }

    /// Releases what [`assign`](Self::assign) used.
    pub fn unassign(&mut self, name: &str, requests: &Resources, pods: i64) -> bool {
        self.change(name, |node| {
            node.used.sub(&requests.scaled(pods));
            node.pods -= pods;
        })
    }

    fn change(&mut self, name: &str, change: impl FnOnce(&mut Node)) -> bool {
        self.nodes.get_mut(name).map(change).is_some()
    }
}
