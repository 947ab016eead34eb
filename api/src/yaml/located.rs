//! A document in which every value has its line in the file, for error messages.

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;

/// A value and its line; lines count from 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Located {
    pub line: u64,
    pub node: Node,
}

/// What a value is. Maps keep the order of the file.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Located>),
    Map(Vec<(String, Located)>),
}

impl Located {
    /// The same as JSON, without lines.
    pub fn to_json(&self) -> Value {
        match &self.node {
            Node::Null => Value::Null,
            Node::Bool(value) => Value::Bool(*value),
            Node::Number(value) => Value::Number(value.clone()),
            Node::Text(value) => Value::String(value.clone()),
            Node::List(items) => Value::Array(items.iter().map(Self::to_json).collect()),
            Node::Map(entries) => Value::Object(
                entries.iter().map(|(key, value)| (key.clone(), value.to_json())).collect::<Map<_, _>>(),
            ),
        }
    }
}

impl<'de> Deserialize<'de> for Located {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Node>::deserialize(deserializer)?;
        Ok(Self { line: spanned.referenced.line(), node: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        // JSON has no infinities; as strings they are refused wherever a number is required.
        Ok(Number::from_f64(value).map_or_else(|| Node::Text(value.to_string()), Node::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Node, E> {
        Ok(Node::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_the_file() {
        let text = "# head\na: 1\nlist:\n  - x: y\n  - {z: 2}\n";
        let read = crate::yaml::read_located(text).expect("reads");
        let Node::Map(entries) = &read.node else { panic!("{read:?}") };
        assert_eq!(entries[0].1.line, 2);
        let Node::List(items) = &entries[1].1.node else { panic!("{read:?}") };
        assert_eq!(items.iter().map(|item| item.line).collect::<Vec<_>>(), vec![4, 5]);
        assert_eq!(read.to_json(), serde_json::json!({"a": 1, "list": [{"x": "y"}, {"z": 2}]}));
    }

    #[test]
    fn what_is_no_yaml_has_a_line_and_one_sentence() {
        for (text, line) in [("a: 1\nb: [\n", 3), ("a: 1\na: 2\n", 2), ("a: 1\n---\nb: 2\n", 2)] {
            let (found, message) = crate::yaml::read_located(text).expect_err(text);
            assert!(!message.contains('\n'), "{message}");
            assert!(found.abs_diff(line) <= 1, "{text:?}: line {found}, {message}");
        }
    }
}
