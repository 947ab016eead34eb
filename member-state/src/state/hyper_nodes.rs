//! HyperNodes: network domains from their objects, resolved to node names for the scheduler.
//!
//! Patterns are resolved here, because the scheduler only knows names; they are resolved again when nodes
//! come or go.

use std::{collections::BTreeMap, sync::Arc};

use fleet_api::volcano::NetworkTopology;
use fleet_scheduler::{
    group::Topology,
    topology::{HyperNodeInput, Member},
};

use super::{
    MemberState,
    hyper_node::{HyperNode, Selector},
};

impl MemberState {
    pub fn put_hyper_node(&mut self, name: &str, node: HyperNode) {
        self.hyper_nodes.insert(name.to_owned(), node);
        self.hyper_nodes_stale = true;
    }

    pub fn remove_hyper_node(&mut self, name: &str) {
        if self.hyper_nodes.remove(name).is_some() {
            self.cluster.hypernodes.remove(name);
            self.hyper_nodes_stale = true;
        }
    }

    /// Updates the scheduler if a domain or the set of nodes has changed; returns whether it did.
    pub fn resolve_hyper_nodes(&mut self) -> bool {
        if !std::mem::take(&mut self.hyper_nodes_stale) {
            return false;
        }
        let inputs: Vec<HyperNodeInput> =
            self.hyper_nodes.iter().map(|(name, node)| self.resolve(name, node)).collect();
        for input in inputs {
            // Mistakes are reported in its status; see `hyper_node_problem`.
            let _ = self.cluster.hypernodes.put(input);
        }
        let by_name: BTreeMap<&str, i64> = self
            .hyper_nodes
            .values()
            .filter_map(|node| Some((node.tier_name.as_deref()?, node.tier)))
            .collect();
        let mut changed = Vec::new();
        for group in self.pod_groups.values_mut() {
            if group.tier_names.resolve(&mut group.input, |name| tier_of(&by_name, name)) {
                changed.push(group.input.clone());
            }
        }
        for input in changed {
            self.cluster.put_group(input);
        }
        self.cluster.freed();
        true
    }

    /// For each node, the HyperNode of the lowest tier that has it.
    pub fn hyper_node_of_each(&mut self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        if self.hyper_nodes.is_empty() {
            return found;
        }
        // The lowest tier comes first.
        let state = &mut *self.cluster;
        for (_, name, nodes) in state.hypernodes.domains(&state.nodes, None) {
            for id in nodes {
                let node = state.nodes.get(id).name.to_string();
                found.entry(node).or_insert_with(|| name.to_string());
            }
        }
        found
    }

    /// A network topology requirement with the number of its tier.
    pub fn topology_of(&self, wish: &NetworkTopology) -> Topology {
        let named = wish.highest_tier_name.as_deref().filter(|name| !name.is_empty());
        Topology {
            hard: wish.mode.as_deref() != Some("soft"),
            highest_tier: named
                .map(|name| self.tier_named(name))
                .or(wish.highest_tier_allowed.map(i64::from)),
        }
    }

    /// The highest tier that a PodGroup allows by name.
    pub(super) fn tier_named(&self, name: &str) -> i64 {
        let tiers = self.hyper_nodes.values().filter(|node| node.tier_name.as_deref() == Some(name));
        tiers.map(|node| node.tier).max().unwrap_or(NO_TIER)
    }

    /// Mistakes of a HyperNode, and the number of nodes below it.
    pub fn hyper_node_stands(&self, name: &str) -> Option<(usize, Option<String>)> {
        let known = self.hyper_nodes.get(name)?;
        let problem = known
            .problem
            .clone()
            .or_else(|| self.unknown_node(name))
            .or_else(|| self.cluster.hypernodes.problem(name));
        Some((self.cluster.hypernodes.count(&self.cluster.nodes, name), problem))
    }

    fn unknown_node(&self, name: &str) -> Option<String> {
        let members = &self.hyper_nodes.get(name)?.members;
        members.iter().enumerate().find_map(|(at, member)| {
            let Selector::Name(node) = &member.selector else { return None };
            (!member.of_hyper_nodes && self.nodes.get(node).is_none()).then(|| {
                format!(
                    "hypernode {name}, field spec.members[{at}]: found node {node}, which does not exist; allowed: nodes and \
                     hypernodes that exist"
                )
            })
        })
    }

    fn resolve(&self, name: &str, node: &HyperNode) -> HyperNodeInput {
        let mut members = Vec::new();
        for entry in &node.members {
            match (&entry.selector, entry.of_hyper_nodes) {
                (Selector::Name(name), true) => members.push(Member::HyperNode(name.clone())),
                (Selector::Name(name), false) => members.push(Member::Node(name.clone())),
                (Selector::Pattern(pattern), true) => {
                    let named =
                        self.hyper_nodes.keys().filter(|other| *other != name && pattern.is_match(other));
                    members.extend(named.cloned().map(Member::HyperNode));
                }
                (Selector::Pattern(pattern), false) => {
                    let named =
                        self.nodes.iter().map(|node| &node.name).filter(|name| pattern.is_match(name));
                    members.extend(named.cloned().map(Member::Node));
                }
                (Selector::Labels(rules), _) => members.push(Member::NodeLabels(rules.clone())),
            }
        }
        HyperNodeInput { name: Arc::from(name), tier: node.tier, members }
    }
}

/// A tier that no HyperNode has: an unknown name allows none.
const NO_TIER: i64 = -1;

fn tier_of(by_name: &BTreeMap<&str, i64>, name: &str) -> i64 {
    by_name.get(name).copied().unwrap_or(NO_TIER)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::state::testing;

    fn member(kind: &str, selector: Value) -> Value {
        json!({"type": kind, "selector": selector})
    }

    #[test]
    fn members_are_found_by_name_pattern_and_label() {
        let mut state = testing::state(&["a-0 8", "a-1 8", "b-0 8"]);
        let leaf = json!({"tier": 1, "members": [member("Node", json!({"regexMatch": {"pattern": "^a-"}}))]});
        let top = json!({"tier": 2, "tierName": "pod", "members": [
            member("HyperNode", json!({"exactMatch": {"name": "leaf"}})),
            member("Node", json!({"exactMatch": {"name": "b-0"}})),
        ]});
        state.put_hyper_node("top", HyperNode::read("top", &top));
        state.put_hyper_node("leaf", HyperNode::read("leaf", &leaf));
        assert!(state.resolve_hyper_nodes());
        assert!(!state.resolve_hyper_nodes(), "nothing has changed since");
        assert_eq!(state.hyper_node_stands("leaf"), Some((2, None)));
        assert_eq!(state.hyper_node_stands("top"), Some((3, None)));
        assert_eq!(state.tier_named("pod"), 2);
        // A node that comes later belongs to the pattern too.
        state.apply_node(&testing::node("a-2 8"));
        assert!(state.resolve_hyper_nodes());
        assert_eq!(state.hyper_node_stands("top"), Some((4, None)));
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let mut state = testing::state(&["a-0 8"]);
        let mut said = |name: &str, members: Value| {
            state.put_hyper_node(name, HyperNode::read(name, &json!({"tier": 1, "members": members})));
            state.resolve_hyper_nodes();
            state.hyper_node_stands(name).and_then(|(_, problem)| problem).unwrap_or_default()
        };
        let two = json!({"exactMatch": {"name": "a-0"}, "regexMatch": {"pattern": "a"}});
        assert!(said("s", json!([member("Node", two)])).contains("found 2 of exactMatch"));
        let bad = json!({"regexMatch": {"pattern": "("}});
        assert!(said("s", json!([member("Node", bad)])).contains("allowed: a regular expression"));
        let unknown = |kind: &str| json!([member(kind, json!({"exactMatch": {"name": "nobody"}}))]);
        assert!(said("s", unknown("Node")).contains("found node nobody, which does not exist"));
        assert!(said("s", unknown("HyperNode")).contains("found nobody, which does not exist"));
        assert_eq!(said("s", json!([member("Node", json!({"exactMatch": {"name": "a-0"}}))])), "");
    }
}
