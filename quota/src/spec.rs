//! The tree as its object writes it.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

/// One node of an ElasticQuotaTree's spec, field names as in Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    pub name: String,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub namespaces: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// Resource name to quantity text; what is guaranteed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "quantities")]
    pub min: BTreeMap<String, String>,
    /// Resource name to quantity text; the most that may be used.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "quantities")]
    pub max: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub children: Vec<NodeSpec>,
}

/// A quantity is text or a number in Kubernetes objects.
#[derive(Deserialize)]
#[serde(untagged)]
enum QuantityText {
    Text(String),
    Integer(i64),
    Decimal(f64),
}

fn quantities<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let raw = Option::<BTreeMap<String, QuantityText>>::deserialize(deserializer)?.unwrap_or_default();
    let text = |value| match value {
        QuantityText::Text(text) => text,
        QuantityText::Integer(number) => number.to_string(),
        QuantityText::Decimal(number) => number.to_string(),
    };
    Ok(raw.into_iter().map(|(name, value)| (name, text(value))).collect())
}

fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
