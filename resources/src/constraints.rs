//! Whether a pod may use a node, or a job a cluster: label requirements, taints and tolerations, with the meaning
//! they have in Kubernetes.
//!
//! Field names are those of the Kubernetes JSON, so the types parse a pod spec or a policy as it is written.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How a requirement compares a label with its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NodeSelectorOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

/// One requirement on a label. `Gt` and `Lt` compare integers and take one value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeSelectorRequirement {
    pub key: String,
    pub operator: NodeSelectorOperator,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

impl NodeSelectorRequirement {
    /// `value` is the label's value; `None`: the label is absent.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let listed = |value: &str| self.values.iter().any(|allowed| allowed == value);
        match self.operator {
            NodeSelectorOperator::In => value.is_some_and(listed),
            NodeSelectorOperator::NotIn => !value.is_some_and(listed),
            NodeSelectorOperator::Exists => value.is_some(),
            NodeSelectorOperator::DoesNotExist => value.is_none(),
            NodeSelectorOperator::Gt => self.compared(value).is_some_and(|(found, bound)| found > bound),
            NodeSelectorOperator::Lt => self.compared(value).is_some_and(|(found, bound)| found < bound),
        }
    }

    fn compared(&self, value: Option<&str>) -> Option<(i64, i64)> {
        let [bound] = self.values.as_slice() else {
            return None;
        };
        Some((value?.parse().ok()?, bound.parse().ok()?))
    }
}

/// Requirements that must all hold; terms of a list are alternatives.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelectorTerm {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<NodeSelectorRequirement>,
    /// Only `metadata.name` is a field of a node that can be matched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_fields: Vec<NodeSelectorRequirement>,
}

impl NodeSelectorTerm {
    /// An empty term matches nothing, as in Kubernetes.
    pub fn matches(&self, node_name: &str, labels: &BTreeMap<String, String>) -> bool {
        let empty = self.match_expressions.is_empty() && self.match_fields.is_empty();
        !empty
            && self.match_expressions.iter().all(|r| r.matches(labels.get(&r.key).map(String::as_str)))
            && self.match_fields.iter().all(|r| r.key == "metadata.name" && r.matches(Some(node_name)))
    }
}

/// Required node affinity; no terms: no requirement.
pub fn any_term_matches(
    terms: &[NodeSelectorTerm],
    node_name: &str,
    labels: &BTreeMap<String, String>,
) -> bool {
    terms.is_empty() || terms.iter().any(|term| term.matches(node_name, labels))
}

/// The effect of a taint on jobs that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TaintEffect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
    /// ACK's effect for a member whose agent does not answer: no new work.
    NoSelect,
}

impl TaintEffect {
    /// True when new work must stay away.
    pub fn repels(self) -> bool {
        !matches!(self, Self::PreferNoSchedule)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Taint {
    pub key: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    pub effect: TaintEffect,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TolerationOperator {
    #[default]
    Equal,
    Exists,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Toleration {
    /// Empty with `Exists` tolerates every key.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    #[serde(default)]
    pub operator: TolerationOperator,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// `None` tolerates every effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<TaintEffect>,
    /// How long a `NoExecute` taint is tolerated, in seconds; `None`: forever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

impl Toleration {
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let effect = self.effect.is_none_or(|effect| effect == taint.effect);
        let key = match self.operator {
            TolerationOperator::Exists => self.key.is_empty() || self.key == taint.key,
            TolerationOperator::Equal => self.key == taint.key && self.value == taint.value,
        };
        effect && key
    }
}

/// The first taint that keeps new work away, if any.
pub fn repelling_taint<'t>(tolerations: &[Toleration], taints: &'t [Taint]) -> Option<&'t Taint> {
    taints.iter().find(|taint| {
        taint.effect.repels() && !tolerations.iter().any(|toleration| toleration.tolerates(taint))
    })
}

/// Every taint that would keep new work away is tolerated.
pub fn tolerates(tolerations: &[Toleration], taints: &[Taint]) -> bool {
    repelling_taint(tolerations, taints).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirement(key: &str, operator: NodeSelectorOperator, values: &[&str]) -> NodeSelectorRequirement {
        NodeSelectorRequirement {
            key: key.to_owned(),
            operator,
            values: values.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn operators() {
        use NodeSelectorOperator::{DoesNotExist, Exists, Gt, In, Lt, NotIn};
        let check = |operator, values: &[&str], label: Option<&str>, expected: bool| {
            assert_eq!(
                requirement("k", operator, values).matches(label),
                expected,
                "{operator:?} {values:?} {label:?}"
            );
        };
        check(In, &["a", "b"], Some("b"), true);
        check(In, &["a"], None, false);
        check(NotIn, &["a"], None, true);
        check(NotIn, &["a"], Some("a"), false);
        check(Exists, &[], Some(""), true);
        check(DoesNotExist, &[], Some(""), false);
        check(Gt, &["4"], Some("8"), true);
        check(Gt, &["4"], Some("x"), false);
        check(Lt, &["4"], Some("3"), true);
        check(Lt, &["4", "5"], Some("3"), false);
        check(Gt, &["4"], None, false);
    }

    #[test]
    fn an_empty_term_matches_nothing_and_no_terms_match_all() {
        let labels = BTreeMap::new();
        assert!(!NodeSelectorTerm::default().matches("n", &labels));
        assert!(any_term_matches(&[], "n", &labels));
    }

    #[test]
    fn tolerations() {
        let gpu = Taint { key: "gpu".into(), value: "yes".into(), effect: TaintEffect::NoSchedule };
        let toleration = |operator, key: &str, value: &str| Toleration {
            key: key.into(),
            operator,
            value: value.into(),
            ..Toleration::default()
        };
        let check =
            |t: Toleration, expected| assert_eq!(tolerates(&[t], std::slice::from_ref(&gpu)), expected);
        check(toleration(TolerationOperator::Equal, "gpu", "yes"), true);
        check(toleration(TolerationOperator::Equal, "gpu", "no"), false);
        check(toleration(TolerationOperator::Exists, "gpu", ""), true);
        check(toleration(TolerationOperator::Exists, "", ""), true);
        assert!(!tolerates(&[], std::slice::from_ref(&gpu)));
        let soft = Taint { effect: TaintEffect::PreferNoSchedule, ..gpu.clone() };
        assert!(tolerates(&[], &[soft]));
    }
}
