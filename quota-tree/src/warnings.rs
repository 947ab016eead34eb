//! Documented rules that a valid tree may break.

use std::collections::BTreeSet;

use fleet_resources::{ResourceName, quantity};

use crate::attributes;
use crate::model::{JOBS, MAX_JOBS, NodeId, QuotaTree, TreeWarning};
use crate::spec::NodeSpec;

/// Broken rules: each warning names node, field and values.
pub(crate) fn broken_rules(tree: &QuotaTree, root: &NodeSpec) -> Vec<TreeWarning> {
    let mut found = Vec::new();
    if !root.name.is_empty() && root.name != "root" {
        found.push(TreeWarning::advice("root", "name", &root.name, "root; that name is used"));
    }
    // A number of jobs is no capacity, and has no min.
    for (name, max) in root.max.iter().filter(|(name, _)| *name != MAX_JOBS) {
        let min = root.min.get(name);
        if min != Some(max) {
            let min = min.map_or("nothing", String::as_str);
            let sentence = format!("max equal to min, here {min}; the max is the capacity");
            found.push(TreeWarning::advice("root", &format!("max[{name}]"), max, &sentence));
        }
    }
    unknown_resources(root, &mut found);
    fractions(root, &mut found);
    for id in tree.ids() {
        min_above_max(tree, id, &mut found);
        max_above_parent(tree, id, &mut found);
        children_above_parent(tree, id, &mut found);
        attributes::broken(tree, id, &mut found);
        let node = tree.node(id);
        let guarantees = (0..tree.names.len()).any(|r| tree.min_at(id, r) > 0);
        if id != NodeId::ROOT && !guarantees {
            let allowed = "a min for each node; without one nothing is guaranteed";
            found.push(TreeWarning::advice(&node.path, "min", "nothing", allowed));
        }
        if node.is_leaf() && node.namespaces.is_empty() {
            let allowed = "at least one namespace; only jobs with a quota label come here";
            found.push(TreeWarning::advice(&node.path, "namespaces", "nothing", allowed));
        }
    }
    found
}

/// Resource names without a domain are Kubernetes' own. No pod requests any other name without one.
fn unknown_resources(root: &NodeSpec, found: &mut Vec<TreeWarning>) {
    let is_known = |name: &str| name.contains('/') || is_own(name);
    let mut open = vec![(root, "root".to_owned())];
    while let Some((spec, path)) = open.pop() {
        for (field, amounts) in [("min", &spec.min), ("max", &spec.max)] {
            for name in amounts.keys().filter(|name| !is_known(name)) {
                let allowed = format!(
                    "{}, hugepages-SIZE, {MAX_JOBS}, or a name with a domain such as nvidia.com/gpu",
                    OWN.join(", ")
                );
                found.push(TreeWarning::new(&path, field, &format!("resource {name:?}"), &allowed));
            }
        }
        open.extend(spec.children.iter().map(|child| (child, format!("{path}/{}", child.name))));
    }
}

/// Only cpu comes in fractions: of all else, a fraction counts as the next whole number.
fn fractions(root: &NodeSpec, found: &mut Vec<TreeWarning>) {
    let mut open = vec![(root, "root".to_owned())];
    while let Some((spec, path)) = open.pop() {
        for (field, amounts) in [("min", &spec.min), ("max", &spec.max)] {
            for (name, text) in amounts.iter().filter(|(name, _)| *name != ResourceName::CPU) {
                let milli = quantity::parse(ResourceName::CPU, text);
                if milli.is_ok_and(|milli| milli % 1000 != 0)
                    && let Ok(counts) = quantity::parse(name, text)
                {
                    let allowed = format!("a whole number; it counts as {}", quantity::format(name, counts));
                    found.push(TreeWarning::new(&path, &format!("{field}[{name}]"), text, &allowed));
                }
            }
        }
        open.extend(spec.children.iter().map(|child| (child, format!("{path}/{}", child.name))));
    }
}

fn min_above_max(tree: &QuotaTree, id: NodeId, found: &mut Vec<TreeWarning>) {
    for r in 0..tree.names.len() {
        let (min, max) = (tree.min_at(id, r), tree.max_at(id, r));
        if min > max {
            let name = tree.names[r].as_str();
            let allowed = format!("at most the max, here {}", quantity::format(name, max));
            let field = format!("min[{name}]");
            found.push(TreeWarning::new(&tree.node(id).path, &field, &quantity::format(name, min), &allowed));
        }
    }
}

/// Also the number of jobs in min, which guarantees nothing.
fn max_above_parent(tree: &QuotaTree, id: NodeId, found: &mut Vec<TreeWarning>) {
    let node = tree.node(id);
    if tree.min_at(id, JOBS) > 0 {
        let jobs = tree.min_at(id, JOBS).to_string();
        let allowed = "a number of jobs in max only; nothing guarantees jobs";
        found.push(TreeWarning::advice(&node.path, &format!("min[{MAX_JOBS}]"), &jobs, allowed));
    }
    let Some(parent) = node.parent else { return };
    for r in 0..tree.names.len() {
        let (own, above) = (tree.max_at(id, r), tree.lendable_at(parent, r));
        if own != i64::MAX && own > above {
            let name = tree.names[r].as_str();
            let shown = |amount| quantity::format(name, amount);
            let allowed = format!("at most the max above it, here {}; more is never used", shown(above));
            found.push(TreeWarning::advice(&node.path, &format!("max[{name}]"), &shown(own), &allowed));
        }
    }
}

impl QuotaTree {
    /// What the tree names and the fleet does not have: resources of no node, of those known, and namespaces.
    /// Without any resource known, none is judged.
    pub fn names_absent(
        &self,
        resources: &BTreeSet<String>,
        is_namespace: &dyn Fn(&str) -> bool,
    ) -> Vec<TreeWarning> {
        let mut found = Vec::new();
        for (r, name) in self.names.iter().enumerate().filter(|(r, _)| *r != JOBS) {
            if resources.is_empty() || resources.contains(name.as_str()) || is_own(name.as_str()) {
                continue;
            }
            let names = |id: &NodeId| self.min_at(*id, r) > 0 || self.max_at(*id, r) != i64::MAX;
            let node = self.node(self.ids().find(names).unwrap_or(NodeId::ROOT));
            let known: Vec<&str> = resources.iter().map(String::as_str).collect();
            let allowed = format!("a resource of some node of the fleet: {}", known.join(", "));
            found.push(TreeWarning::advice(&node.path, "min and max", name.as_str(), &allowed));
        }
        for leaf in self.leaves() {
            let node = self.node(leaf);
            for namespace in node.namespaces.iter().filter(|namespace| !is_namespace(namespace)) {
                let allowed = "namespaces of the hub; it has none of this name";
                found.push(TreeWarning::advice(&node.path, "namespaces", namespace, allowed));
            }
        }
        found
    }
}

const OWN: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pods"];

/// Of Kubernetes itself: every node has it, whether or not a report says so.
fn is_own(name: &str) -> bool {
    OWN.contains(&name) || name.starts_with("hugepages-")
}

fn children_above_parent(tree: &QuotaTree, id: NodeId, found: &mut Vec<TreeWarning>) {
    let node = tree.node(id);
    for r in (0..tree.names.len()).filter(|r| *r != JOBS) {
        let sum = node.children.iter().fold(0_i64, |sum, child| sum.saturating_add(tree.min_at(*child, r)));
        let own = tree.min_at(id, r);
        if !node.is_leaf() && sum > own {
            let name = tree.names[r].as_str();
            let allowed = format!("at most its own min, here {}", quantity::format(name, own));
            let field = format!("sum of the children's min[{name}]");
            found.push(TreeWarning::new(&node.path, &field, &quantity::format(name, sum), &allowed));
        }
    }
}
