//! The attributes that a node of the tree may carry: on which nodes each counts and which values it takes.
//!
//! What is written differently changes nothing, so it is told: a misspelt rule would else pass for one that holds.
//! Attributes of other makers are theirs.

use fleet_resources::{ResourceName, quantity};

use super::build::{duration_ms, flat_json_object};
use super::{NodeId, QuotaTree, SUBMITTER_NAMESPACES, SUBMITTERS, TreeWarning};

/// Share of the parent's idle room a node gets; default 1.
pub(super) const WEIGHT: &str = "fleet.dev/weight";
/// How much of min may be lent, a JSON object of quantities.
pub(super) const LEND_LIMIT: &str = "alibabacloud.com/lendlimit";
/// How long others may pass the first job of a leaf.
pub(super) const MAX_BYPASS: &str = "fleet.dev/max-bypass";
/// How long a claim may keep room idle for the first job of a leaf.
pub(super) const MAX_CLAIM: &str = "fleet.dev/max-claim";
/// How long jobs of a leaf run before they may be preempted, but by a reclaim inside min.
pub(super) const MIN_RUNTIME: &str = "fleet.dev/min-runtime";
/// On the root: GPU-hours that may be lost for each GPU-hour gained by a preemption.
pub(super) const MAX_LOSS: &str = "fleet.dev/max-gpu-loss";
/// On a leaf: from whom its jobs may reclaim: Any (default), LowerPriority, Never.
pub(crate) const RECLAIM: &str = "fleet.dev/reclaim";
/// On an inner node: `Subtree` lends its own min to any job below it.
pub(crate) const GUARANTEE: &str = "fleet.dev/guarantee";
/// On the root: `FairShare` lets borrowers take from larger borrowers.
pub(crate) const SHARE_PREEMPTION: &str = "fleet.dev/share-preemption";
/// On a leaf: LowerPriority (default), LowerOrNewerEqualPriority, Never.
pub(crate) const WITHIN: &str = "fleet.dev/preempt-within";

/// Fleet's own attributes begin so; an unknown one of them is a mistake.
const OWN_PREFIX: &str = "fleet.dev/";

/// The nodes on which an attribute counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Any,
    Root,
    /// With children, below the root.
    Inner,
    Leaf,
}

/// What an attribute takes.
#[derive(Clone, Copy, Debug)]
enum Takes {
    Words(&'static [&'static str]),
    /// 0 or more, with a fraction where need be.
    Number,
    Duration,
    /// A flat JSON object of quantities.
    Quantities,
    /// Entries with commas between them, which are read one by one elsewhere.
    List,
}

/// Every attribute that is acted on: name, where it counts, its values, and what holds where the value is none.
const ATTRIBUTES: &[(&str, On, Takes, &str)] = &[
    (WEIGHT, On::Any, Takes::Number, "1 is used"),
    (LEND_LIMIT, On::Any, Takes::Quantities, "it is ignored"),
    (MAX_BYPASS, On::Leaf, Takes::Duration, "5m is used"),
    (MAX_CLAIM, On::Leaf, Takes::Duration, "30m is used"),
    (MIN_RUNTIME, On::Leaf, Takes::Duration, "none is used"),
    (SUBMITTER_NAMESPACES, On::Any, Takes::List, ""),
    (SUBMITTERS, On::Any, Takes::List, ""),
    (MAX_LOSS, On::Root, Takes::Number, "there is no limit"),
    (RECLAIM, On::Leaf, Takes::Words(&["Any", "LowerPriority", "Never"]), "Any is used"),
    (GUARANTEE, On::Inner, Takes::Words(&["Subtree"]), "it is ignored"),
    (SHARE_PREEMPTION, On::Root, Takes::Words(&["FairShare"]), "it is ignored"),
    (
        WITHIN,
        On::Leaf,
        Takes::Words(&["LowerPriority", "LowerOrNewerEqualPriority", "Never"]),
        "LowerPriority is used",
    ),
];

impl On {
    fn holds(self, tree: &QuotaTree, id: NodeId) -> bool {
        let (root, leaf) = (id == NodeId::ROOT, tree.node(id).is_leaf());
        match self {
            Self::Any => true,
            Self::Root => root,
            Self::Inner => !root && !leaf,
            Self::Leaf => leaf,
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Self::Any => "any node",
            Self::Root => "the root",
            Self::Inner => "nodes with children, below the root",
            Self::Leaf => "leaves",
        }
    }
}

impl Takes {
    fn accepts(self, text: &str) -> bool {
        match self {
            Self::Words(words) => words.contains(&text),
            Self::Number => quantity::parse(ResourceName::CPU, text).is_ok_and(|number| number >= 0),
            Self::Duration => duration_ms(text).is_some(),
            Self::Quantities => flat_json_object(text).is_some(),
            Self::List => true,
        }
    }

    fn describe(self) -> String {
        match self {
            Self::Words(words) => words.join(", "),
            Self::Number => "a number of 0 or more".to_owned(),
            Self::Duration => "a duration such as 90s, 5m or 1h30m".to_owned(),
            Self::Quantities => "a JSON object of quantities".to_owned(),
            Self::List => "a list with commas".to_owned(),
        }
    }
}

/// What each attribute takes, and where, for the schema's texts: `(name, nodes, values)`.
pub fn known_attributes() -> impl Iterator<Item = (&'static str, &'static str, String)> {
    ATTRIBUTES.iter().map(|(name, on, takes, _)| (*name, on.describe(), takes.describe()))
}

/// Attributes of a node that do not count as they are written.
pub(super) fn broken(tree: &QuotaTree, id: NodeId, found: &mut Vec<TreeWarning>) {
    let node = tree.node(id);
    for (name, text) in &node.attributes {
        let field = format!("attributes[{name}]");
        let mut tell = |what: &str, allowed: String| {
            found.push(TreeWarning::new(&node.path, &field, what, &allowed));
        };
        let known = ATTRIBUTES.iter().find(|(known, ..)| known == name);
        match known {
            Some((_, on, takes, instead)) => {
                if !takes.accepts(text) {
                    tell(text, format!("{}; {instead}", takes.describe()));
                }
                if !on.holds(tree, id) {
                    tell(text, format!("this attribute on {}; it is ignored here", on.describe()));
                }
            }
            None if is_meant_for_us(name) => {
                let names: Vec<&str> = ATTRIBUTES.iter().map(|(name, ..)| *name).collect();
                tell(text, format!("the attributes {}; it is ignored", names.join(", ")));
            }
            None => {}
        }
    }
    if let Some(limits) = node.attributes.get(LEND_LIMIT).and_then(|text| flat_json_object(text)) {
        for (resource, text) in limits {
            let field = format!("attributes[{LEND_LIMIT}], resource {resource}");
            let mut tell = |allowed: &str| {
                found.push(TreeWarning::new(&node.path, &field, &text, allowed));
            };
            match tree.resource_index(&resource) {
                None => tell("resources that the tree names in a min or max; it is ignored"),
                Some(_) if !quantity::parse(&resource, &text).is_ok_and(|amount| amount >= 0) => {
                    tell("a quantity of 0 or more; it is ignored");
                }
                Some(_) => {}
            }
        }
    }
}

/// Under Fleet's name, or one of the known names without their prefix or in other letters.
fn is_meant_for_us(name: &str) -> bool {
    let last = |name: &str| name.rsplit('/').next().unwrap_or_default().to_lowercase().replace('_', "-");
    name.to_lowercase().starts_with(OWN_PREFIX)
        || ATTRIBUTES.iter().any(|(known, ..)| last(known) == last(name))
}
