//! Which objects a policy selects.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::choice::ObjectRef;

/// One entry of a policy's `resourceSelectors`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceSelector {
    pub api_version: String,
    pub kind: String,
    /// Empty: every namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// If set, the label selector is ignored.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelSelectorRequirement {
    pub key: String,
    pub operator: LabelSelectorOperator,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LabelSelectorOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl LabelSelector {
    /// An empty selector matches everything.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|r| r.matches(labels))
    }
}

impl LabelSelectorRequirement {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let listed = value.is_some_and(|value| self.values.contains(value));
        match self.operator {
            LabelSelectorOperator::In => listed,
            LabelSelectorOperator::NotIn => !listed,
            LabelSelectorOperator::Exists => value.is_some(),
            LabelSelectorOperator::DoesNotExist => value.is_none(),
        }
    }
}

/// How narrowly a selector names an object; between policies, the narrower one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ImplicitPriority {
    All = 1,
    LabelSelector = 2,
    Name = 3,
}

/// How `selector` matches `object`; `None` if it does not.
pub fn match_selector(selector: &ResourceSelector, object: &ObjectRef) -> Option<ImplicitPriority> {
    let kind = selector.api_version == object.api_version && selector.kind == object.kind;
    let namespace = selector.namespace.is_empty() || selector.namespace == object.namespace;
    if !kind || !namespace {
        return None;
    }
    if !selector.name.is_empty() {
        return (selector.name == object.name).then_some(ImplicitPriority::Name);
    }
    match &selector.label_selector {
        None => Some(ImplicitPriority::All),
        Some(labels) => labels.matches(&object.labels).then_some(ImplicitPriority::LabelSelector),
    }
}

/// How many comparisons it takes to see whether selectors select an object: one for each selector, and one for each label,
/// expression and value in it.
pub fn breadth(selectors: &[ResourceSelector]) -> usize {
    let expression = |requirement: &LabelSelectorRequirement| 1 + requirement.values.len();
    let of_labels = |labels: &LabelSelector| {
        labels.match_labels.len() + labels.match_expressions.iter().map(expression).sum::<usize>()
    };
    selectors.iter().map(|selector| 1 + selector.label_selector.as_ref().map_or(0, of_labels)).sum()
}

/// The narrowest match of any of the selectors.
pub fn match_selectors(selectors: &[ResourceSelector], object: &ObjectRef) -> Option<ImplicitPriority> {
    selectors.iter().filter_map(|s| match_selector(s, object)).max()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(selector: serde_json::Value, expected: Option<ImplicitPriority>) {
        let pod = ObjectRef {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: "default".into(),
            name: "test".into(),
            labels: BTreeMap::from([("foo".into(), "bar".into())]),
        };
        let parsed: ResourceSelector = serde_json::from_value(selector.clone()).unwrap();
        assert_eq!(match_selector(&parsed, &pod), expected, "{selector}");
    }

    #[test]
    fn the_facts_table_and_its_neighbours() {
        use ImplicitPriority::{All, LabelSelector, Name};
        let no_match = json!({"matchLabels": {"foo": "no"}});
        check(json!({"apiVersion": "v1", "kind": "Pod", "name": "unmatched"}), None);
        check(
            json!({"apiVersion": "v1", "kind": "Pod", "name": "test", "labelSelector": no_match}),
            Some(Name),
        );
        check(json!({"apiVersion": "v1", "kind": "Pod", "labelSelector": no_match}), None);
        check(json!({"apiVersion": "v1", "kind": "Pod"}), Some(All));
        check(json!({"apiVersion": "v1", "kind": "Pod", "namespace": "other"}), None);
        check(json!({"apiVersion": "v2", "kind": "Pod"}), None);
        check(
            json!({"apiVersion": "v1", "kind": "Pod", "labelSelector": {"matchExpressions": [
                {"key": "foo", "operator": "In", "values": ["bar"]},
                {"key": "foo", "operator": "Exists"},
                {"key": "baz", "operator": "DoesNotExist"},
                {"key": "foo", "operator": "NotIn", "values": ["x"]}]}}),
            Some(LabelSelector),
        );
    }

    #[test]
    fn each_label_and_value_is_a_comparison() {
        let of = |selectors: serde_json::Value| {
            breadth(&serde_json::from_value::<Vec<ResourceSelector>>(selectors).unwrap())
        };
        assert_eq!(of(json!([])), 0);
        assert_eq!(of(json!([{"kind": "Pod"}, {"kind": "Pod", "name": "a"}])), 2);
        let labels = json!({"matchLabels": {"a": "b"}, "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["b", "c"]}, {"key": "a", "operator": "Exists"}]});
        assert_eq!(of(json!([{"kind": "Pod", "labelSelector": labels}, {"kind": "Pod"}])), 7);
    }
}
