//! The attributes of nodes of the tree: on which nodes each has an effect, and its values.
//!
//! A wrong value has no effect, so it is reported: otherwise a misspelt rule would look as if it were in force.
//! Attributes with foreign prefixes are ignored.

use fleet_resources::{ResourceName, quantity};

use crate::model::{NodeId, QuotaTree, TreeWarning};
use crate::spec::{duration_ms, quantities_in};
use crate::submit::{SUBMITTER_NAMESPACES, SUBMITTERS};

/// A node's share of the parent's idle quota; default 1.
pub(crate) const WEIGHT: &str = "fleet.dev/weight";
/// How much of min may be lent, a JSON object of quantities.
pub(crate) const LEND_LIMIT: &str = "alibabacloud.com/lendlimit";
/// How long others may pass the first job of a leaf.
pub(crate) const MAX_BYPASS: &str = "fleet.dev/max-bypass";
/// How long a claim may keep capacity idle for the first job of a leaf.
pub(crate) const MAX_CLAIM: &str = "fleet.dev/max-claim";
/// How long jobs of a leaf run before they may be preempted, except by a reclaim inside min.
pub(crate) const MIN_RUNTIME: &str = "fleet.dev/min-runtime";
/// On the root: GPU-hours that may be lost for each GPU-hour gained by a preemption.
pub(crate) const MAX_LOSS: &str = "fleet.dev/max-gpu-loss";
/// On a leaf: from whom its jobs may reclaim: Any (default), LowerPriority, Never.
pub(crate) const RECLAIM: &str = "fleet.dev/reclaim";
/// On an inner node: `Subtree` lends its own min to any job below it.
pub(crate) const GUARANTEE: &str = "fleet.dev/guarantee";
/// On the root: `FairShare` lets borrowers preempt larger borrowers.
pub(crate) const SHARE_PREEMPTION: &str = "fleet.dev/share-preemption";
/// On a leaf: LowerPriority (default), LowerOrNewerEqualPriority, Never.
pub(crate) const WITHIN: &str = "fleet.dev/preempt-within";
const WITHIN_WORDS: &[&str] = &["LowerPriority", "LowerOrNewerEqualPriority", "Never"];

/// Nothing that the tree counts runs here without having waited in the queue; nodes below have it too.
pub const REQUIRE_QUEUE: &str = "fleet.dev/require-queue";

/// On a leaf: the virtual cluster whose cells its jobs take.
const VIRTUAL_CLUSTER: &str = "fleet.dev/virtual-cluster";

/// Prefix of Fleet's own attributes; an unknown one is a mistake.
const OWN_PREFIX: &str = "fleet.dev/";

/// The nodes on which an attribute has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    Any,
    Root,
    /// With children, below the root.
    Inner,
    Leaf,
}

/// The values of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    Words(&'static [&'static str]),
    /// 0 or more; a fraction is allowed.
    Number,
    Duration,
    /// A flat JSON object of quantities.
    Quantities,
    /// Separated by commas; parsed in `submit`.
    Namespaces,
    Subjects,
    /// Not empty.
    Name,
}

/// An attribute with an effect: name, nodes, values, and what is used instead of a wrong value.
#[derive(Clone, Copy, Debug)]
pub struct Attribute(pub &'static str, pub On, pub Values, pub &'static str);

/// Every attribute with an effect.
pub const ATTRIBUTES: &[Attribute] = &[
    Attribute(WEIGHT, On::Any, Values::Number, "1 is used"),
    Attribute(LEND_LIMIT, On::Any, Values::Quantities, "it is ignored"),
    Attribute(MAX_BYPASS, On::Leaf, Values::Duration, "5m is used"),
    Attribute(MAX_CLAIM, On::Leaf, Values::Duration, "30m is used"),
    Attribute(MIN_RUNTIME, On::Leaf, Values::Duration, "none is used"),
    Attribute(SUBMITTER_NAMESPACES, On::Any, Values::Namespaces, ""),
    Attribute(SUBMITTERS, On::Any, Values::Subjects, ""),
    Attribute(REQUIRE_QUEUE, On::Any, Values::Words(&["true", "false"]), "that of the node above is used"),
    Attribute(MAX_LOSS, On::Root, Values::Number, "there is no limit"),
    Attribute(VIRTUAL_CLUSTER, On::Leaf, Values::Name, "its jobs take no cells"),
    Attribute(RECLAIM, On::Leaf, Values::Words(&["Any", "LowerPriority", "Never"]), "Any is used"),
    Attribute(GUARANTEE, On::Inner, Values::Words(&["Subtree"]), "it is ignored"),
    Attribute(SHARE_PREEMPTION, On::Root, Values::Words(&["FairShare"]), "it is ignored"),
    Attribute(WITHIN, On::Leaf, Values::Words(WITHIN_WORDS), "LowerPriority is used"),
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

    pub fn describe(self) -> &'static str {
        match self {
            Self::Any => "any node",
            Self::Root => "the root",
            Self::Inner => "nodes with children, below the root",
            Self::Leaf => "leaves",
        }
    }
}

impl Values {
    fn accepts(self, text: &str) -> bool {
        match self {
            Self::Words(words) => words.contains(&text),
            Self::Number => quantity::parse(ResourceName::CPU, text).is_ok_and(|number| number >= 0),
            Self::Duration => duration_ms(text).is_some(),
            Self::Quantities => quantities_in(text).is_some(),
            Self::Namespaces | Self::Subjects => true,
            Self::Name => !text.is_empty(),
        }
    }

    pub fn describe(self) -> String {
        match self {
            Self::Words(words) => words.join(", "),
            Self::Number => "a number of 0 or more".to_owned(),
            Self::Duration => "a duration such as 90s, 5m or 1h30m".to_owned(),
            Self::Quantities => "a JSON object of quantities".to_owned(),
            Self::Namespaces => "names of namespaces, with commas".to_owned(),
            Self::Subjects => {
                "user:NAME, group:NAME and serviceaccount:NAMESPACE/NAME, with commas".to_owned()
            }
            Self::Name => "a name".to_owned(),
        }
    }
}

/// Attributes of a node that have no effect as they are written.
pub(crate) fn broken(tree: &QuotaTree, id: NodeId, found: &mut Vec<TreeWarning>) {
    let node = tree.node(id);
    for (name, text) in &node.attributes {
        let field = format!("attributes[{name}]");
        let mut tell = |what: &str, allowed: String| {
            found.push(TreeWarning::new(&node.path, &field, what, &allowed));
        };
        let known = ATTRIBUTES.iter().find(|known| known.0 == name);
        match known {
            Some(Attribute(_, on, values, default)) => {
                if !values.accepts(text) {
                    tell(text, format!("{}; {default}", values.describe()));
                }
                if !on.holds(tree, id) {
                    tell(text, format!("this attribute on {}; it is ignored here", on.describe()));
                }
            }
            None if is_meant_for_us(name) => {
                let names: Vec<&str> = ATTRIBUTES.iter().map(|known| known.0).collect();
                tell(text, format!("the attributes {}; it is ignored", names.join(", ")));
            }
            None => {}
        }
    }
    if let Some(limits) = node.attributes.get(LEND_LIMIT).and_then(|text| quantities_in(text)) {
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

/// Has Fleet's prefix, or is a known name without its prefix or in other case.
fn is_meant_for_us(name: &str) -> bool {
    let last = |name: &str| name.rsplit('/').next().unwrap_or_default().to_lowercase().replace('_', "-");
    name.to_lowercase().starts_with(OWN_PREFIX) || ATTRIBUTES.iter().any(|known| last(known.0) == last(name))
}
