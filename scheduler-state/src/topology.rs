//! HyperNodes: topology domains of the network, in tiers, and the nodes below each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_resources::NodeSelectorRequirement;

use crate::ids::NodeId;
use crate::node::Nodes;

/// Which HyperNodes may hold a whole group, or each sub-group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    /// False: only preferred.
    pub hard: bool,
    pub highest_tier: Option<i64>,
}

/// A member entry of a HyperNode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Member {
    Node(String),
    /// Nodes whose labels meet all of these.
    NodeLabels(Vec<NodeSelectorRequirement>),
    HyperNode(String),
}

/// A HyperNode, as its owner reports it, with patterns resolved to names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HyperNodeInput {
    pub name: Arc<str>,
    pub tier: i64,
    pub members: Vec<Member>,
}

/// All domains.
#[derive(Clone, Debug, Default)]
pub struct HyperNodes {
    list: BTreeMap<Arc<str>, HyperNodeInput>,
    /// Nodes of each domain, by tier and name.
    domains: BTreeMap<(i64, Arc<str>), BTreeSet<NodeId>>,
    stale: bool,
}

/// Deepest nesting of HyperNodes.
const MAX_DEPTH: usize = 16;

impl HyperNodes {
    /// # Errors
    /// Members that are not HyperNodes, or form a cycle.
    pub fn put(&mut self, input: HyperNodeInput) -> Result<(), String> {
        self.stale = true;
        let name = input.name.clone();
        self.list.insert(name.clone(), input);
        self.problem(&name).map_or(Ok(()), Err)
    }

    pub fn remove(&mut self, name: &str) {
        self.stale = true;
        self.list.remove(name);
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn node_changed(&mut self, _: &Nodes, _: NodeId) {
        self.stale |= !self.list.is_empty();
    }

    /// Number of known nodes below a HyperNode.
    pub fn count(&self, nodes: &Nodes, name: &str) -> usize {
        let mut found = BTreeSet::new();
        self.collect(name, nodes, MAX_DEPTH, (&mut found, &mut BTreeMap::new()));
        found.into_iter().filter(|id| nodes.get(*id).known).count()
    }

    /// What is wrong with a HyperNode, in one sentence.
    pub fn problem(&self, name: &str) -> Option<String> {
        let input = self.list.get(name)?;
        for (at, member) in input.members.iter().enumerate() {
            let Member::HyperNode(child) = member else { continue };
            let Some(below) = self.list.get(child.as_str()) else {
                return Some(format!(
                    "hypernode {name}, field spec.members[{at}]: found {child}, which does not exist; allowed: nodes and hypernodes that exist"
                ));
            };
            if below.tier >= input.tier {
                return Some(format!(
                    "hypernode {name}, field spec.members[{at}]: found {child} of tier {}; allowed: tiers below {}",
                    below.tier, input.tier
                ));
            }
        }
        None
    }

    /// Domains up to `tier`, lowest tier first; each with its nodes.
    pub fn domains(&mut self, nodes: &Nodes, tier: Option<i64>) -> Vec<(i64, Arc<str>, BTreeSet<NodeId>)> {
        if std::mem::take(&mut self.stale) {
            self.resolve(nodes);
        }
        let within = self.domains.iter().filter(|((t, _), _)| tier.is_none_or(|most| *t <= most));
        within.map(|((t, name), nodes)| (*t, name.clone(), nodes.clone())).collect()
    }

    fn resolve(&mut self, nodes: &Nodes) {
        let mut domains = BTreeMap::new();
        for (name, input) in self.list.iter().filter(|(name, _)| self.problem(name).is_none()) {
            let mut found = BTreeSet::new();
            self.collect(name, nodes, MAX_DEPTH, (&mut found, &mut BTreeMap::new()));
            domains.insert((input.tier, name.clone()), found);
        }
        self.domains = domains;
    }

    /// Adds the nodes below a HyperNode. `seen`: how deep it has looked below each; it looks below one again only if it
    /// may look deeper there.
    fn collect<'a>(
        &'a self,
        name: &'a str,
        nodes: &Nodes,
        depth: usize,
        (found, seen): (&mut BTreeSet<NodeId>, &mut BTreeMap<&'a str, usize>),
    ) {
        let Some(input) = self.list.get(name).filter(|_| depth > 0) else { return };
        if seen.get(name).is_some_and(|looked| *looked >= depth) {
            return;
        }
        seen.insert(name, depth);
        for member in &input.members {
            match member {
                Member::Node(node) => found.extend(nodes.find(node)),
                Member::NodeLabels(labels) => found.extend(
                    nodes
                        .iter()
                        .filter(|(_, node)| {
                            labels
                                .iter()
                                .all(|rule| rule.matches(node.labels.get(&rule.key).map(String::as_str)))
                        })
                        .map(|(id, _)| id),
                ),
                Member::HyperNode(child) => {
                    self.collect(child, nodes, depth - 1, (&mut *found, &mut *seen));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each names the one below it a hundred times: below the first are 100^14 ways to the node.
    #[test]
    fn a_hypernode_is_looked_into_once_however_often_it_is_named() {
        let (mut nodes, mut known) = (Nodes::default(), HyperNodes::default());
        let node = nodes.intern("n1");
        for tier in 0..15 {
            let below = match tier {
                0 => Member::Node("n1".to_owned()),
                _ => Member::HyperNode(format!("h{}", tier - 1)),
            };
            let name = format!("h{tier}").as_str().into();
            known.put(HyperNodeInput { name, tier, members: vec![below; 100] }).unwrap();
        }
        let domains = known.domains(&nodes, None);
        assert_eq!(domains.len(), 15);
        assert!(domains.iter().all(|(.., found)| *found == BTreeSet::from([node])));
    }
}
