//! A document whose maps keep the order of the file, and whose values may have line numbers.

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Map, Number, Value};

/// A value and its line: 1 for the first, 0 if unknown.
#[derive(Clone, Debug, PartialEq)]
pub struct Doc {
    pub line: u64,
    pub node: Node,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Doc>),
    Map(Vec<(String, Doc)>),
}

impl Doc {
    pub fn from_json(value: &Value) -> Self {
        let node = match value {
            Value::Null => Node::Null,
            Value::Bool(value) => Node::Bool(*value),
            Value::Number(number) => Node::Number(number.clone()),
            Value::String(text) => Node::Text(text.clone()),
            Value::Array(items) => Node::List(items.iter().map(Self::from_json).collect()),
            Value::Object(entries) => Node::Map(
                entries.iter().map(|(name, value)| (name.clone(), Self::from_json(value))).collect(),
            ),
        };
        Self { line: 0, node }
    }

    pub fn to_json(&self) -> Value {
        match &self.node {
            Node::Null => Value::Null,
            Node::Bool(value) => Value::Bool(*value),
            Node::Number(number) => Value::Number(number.clone()),
            Node::Text(text) => Value::String(text.clone()),
            Node::List(items) => Value::Array(items.iter().map(Self::to_json).collect()),
            Node::Map(entries) => Value::Object(
                entries.iter().map(|(name, value)| (name.clone(), value.to_json())).collect::<Map<_, _>>(),
            ),
        }
    }

    /// The entry of a map.
    pub fn get(&self, name: &str) -> Option<&Self> {
        match &self.node {
            Node::Map(entries) => entries.iter().find(|(found, _)| found == name).map(|(_, value)| value),
            _ => None,
        }
    }

    /// The item of a list.
    pub fn at(&self, index: usize) -> Option<&Self> {
        match &self.node {
            Node::List(items) => items.get(index),
            _ => None,
        }
    }
}

/// In the order of the file.
impl Serialize for Doc {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.node {
            Node::Null => serializer.serialize_unit(),
            Node::Bool(value) => serializer.serialize_bool(*value),
            Node::Number(number) => number.serialize(serializer),
            Node::Text(text) => serializer.serialize_str(text),
            Node::List(items) => serializer.collect_seq(items),
            Node::Map(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (name, value) in entries {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }
    }
}
