//! Parses HyperNode objects.

use fleet_resources::{NodeSelectorOperator, NodeSelectorRequirement};
use regex::Regex;
use serde_json::Value;

/// A parsed HyperNode.
#[derive(Debug, Default)]
pub struct HyperNode {
    pub tier: i64,
    pub tier_name: Option<String>,
    pub members: Vec<HyperNodeMember>,
    /// The first mistake, as a sentence.
    pub problem: Option<String>,
}

/// One entry of its members.
#[derive(Debug)]
pub struct HyperNodeMember {
    /// Members are HyperNodes, not nodes.
    pub of_hyper_nodes: bool,
    pub selector: Selector,
}

#[derive(Debug)]
pub enum Selector {
    Name(String),
    Pattern(Regex),
    Labels(Vec<NodeSelectorRequirement>),
}

impl HyperNode {
    pub fn read(name: &str, spec: &Value) -> Self {
        let mut found = Self {
            tier: spec["tier"].as_i64().unwrap_or(0),
            tier_name: spec["tierName"].as_str().filter(|tier| !tier.is_empty()).map(str::to_owned),
            ..Self::default()
        };
        for (at, member) in spec["members"].as_array().into_iter().flatten().enumerate() {
            match read_selector(&member["selector"]) {
                Ok(selector) => {
                    let of_hyper_nodes = member["type"] == "HyperNode";
                    found.members.push(HyperNodeMember { of_hyper_nodes, selector });
                }
                Err(why) => {
                    found
                        .problem
                        .get_or_insert(format!("hypernode {name}, field spec.members[{at}].selector: {why}"));
                }
            }
        }
        found
    }
}

fn read_selector(selector: &Value) -> Result<Selector, String> {
    let forms = ["exactMatch", "regexMatch", "labelMatch"];
    let given: Vec<&str> = forms.into_iter().filter(|form| selector[*form].is_object()).collect();
    match given.as_slice() {
        ["exactMatch"] => {
            Ok(Selector::Name(selector["exactMatch"]["name"].as_str().unwrap_or_default().to_owned()))
        }
        ["regexMatch"] => {
            let pattern = selector["regexMatch"]["pattern"].as_str().unwrap_or_default();
            // Limited by the regex library's maximum size of a compiled pattern.
            let read = Regex::new(pattern);
            read.map(Selector::Pattern)
                .map_err(|_| format!("regexMatch.pattern: found {pattern:?}; allowed: a regular expression"))
        }
        ["labelMatch"] => read_labels(&selector["labelMatch"]).map(Selector::Labels),
        others => Err(format!("found {} of {}; allowed: exactly one", others.len(), forms.join(", "))),
    }
}

/// A label selector as a list of requirements, which all must hold.
pub fn read_labels(selector: &Value) -> Result<Vec<NodeSelectorRequirement>, String> {
    let mut rules = Vec::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        let values = vec![value.as_str().unwrap_or_default().to_owned()];
        rules.push(NodeSelectorRequirement { key: key.clone(), operator: NodeSelectorOperator::In, values });
    }
    for rule in selector["matchExpressions"].as_array().into_iter().flatten() {
        let read = serde_json::from_value(rule.clone());
        rules.push(read.map_err(|error| format!("labelMatch.matchExpressions: {error}"))?);
    }
    Ok(rules)
}
