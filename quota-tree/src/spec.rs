//! The tree as its object writes it, and the values of its attributes.

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

fn texts(raw: BTreeMap<String, QuantityText>) -> BTreeMap<String, String> {
    let text = |value| match value {
        QuantityText::Text(text) => text,
        QuantityText::Integer(number) => number.to_string(),
        QuantityText::Decimal(number) => number.to_string(),
    };
    raw.into_iter().map(|(name, value)| (name, text(value))).collect()
}

fn quantities<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    Ok(texts(Option::deserialize(deserializer)?.unwrap_or_default()))
}

/// The value of an attribute that holds quantities: a JSON object, as in `{"cpu": "1", "nvidia.com/gpu": 2}`.
pub(crate) fn quantities_in(text: &str) -> Option<BTreeMap<String, String>> {
    serde_json::from_str(text).ok().map(texts)
}

/// The value of an attribute that holds a duration, such as `1h30m`.
pub(crate) fn duration_ms(text: &str) -> Option<i64> {
    fleet_resources::duration_us(text).map(|us| us / 1_000)
}

fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
