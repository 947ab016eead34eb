//! The compiled form of a schema with rules: how its values look to expressions, and which rules are where.

use super::KEY;
use super::decl::escaped;
use crate::eval::{Identity, List, Value, parse_duration, parse_time};
use crate::parse::{Parsed, parse};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fleet_apiserver_ground::tree;
use serde_json::Value as Json;
use std::sync::Arc;

/// Nesting that is followed.
const MAX_DEPTH: usize = 100;

/// One place in a schema.
pub struct Node {
    pub kind: Kind,
    /// The declared type, as the real server names it.
    pub named: String,
    pub rules: Vec<Rule>,
}

/// What a value is for expressions.
pub enum Kind {
    /// Known by the value alone.
    Plain,
    Double,
    Text,
    Bytes,
    Duration,
    Time,
    Date,
    List(Box<Node>, Identity),
    Map(Box<Node>),
    Object(Vec<Field>),
    /// Expressions cannot see it.
    Hidden,
}

/// A field of an object.
pub struct Field {
    pub name: String,
    /// The name in expressions.
    seen: Option<String>,
    pub node: Node,
}

/// A compiled rule.
pub struct Rule {
    pub text: String,
    pub rule: Parsed,
    pub message: String,
    pub message_expression: Option<Parsed>,
    pub reason: String,
    pub field_path: String,
    /// It compares with the state before.
    pub transition: bool,
    pub optional_old: bool,
}

fn flag(schema: &Json, key: &str) -> bool {
    schema.get(key) == Some(&Json::Bool(true))
}

impl Node {
    /// Compiles a schema whose rules were found sound.
    pub fn compile(schema: &Json) -> Node {
        Node::at(schema, true, 0)
    }

    fn at(schema: &Json, root: bool, depth: usize) -> Node {
        let kind = if depth > MAX_DEPTH { Kind::Hidden } else { kind(schema, root, depth) };
        let rules = tree::list(schema, &[KEY]).iter().filter_map(Rule::compile).collect();
        Node { kind, named: tree::text(schema, &["type"]).to_string(), rules }
    }

    /// Whether a rule is here or below.
    pub fn judges(&self) -> bool {
        !self.rules.is_empty()
            || match &self.kind {
                Kind::List(inner, _) | Kind::Map(inner) => inner.judges(),
                Kind::Object(fields) => fields.iter().any(|field| field.node.judges()),
                _ => false,
            }
    }

    /// A value as expressions see it.
    pub fn value(&self, json: &Json) -> Value {
        match (&self.kind, json) {
            (Kind::Double, Json::Number(n)) => Value::Double(n.as_f64().unwrap_or(f64::NAN)),
            (Kind::Bytes, Json::String(text)) => match STANDARD.decode(text) {
                Ok(bytes) => Value::Bytes(bytes.into()),
                Err(_) => Value::text(text),
            },
            (Kind::Duration, Json::String(text)) => {
                parse_duration(text).map_or_else(|| Value::text(text), Value::Duration)
            }
            (Kind::Time, Json::String(text)) => time(text, text),
            (Kind::Date, Json::String(text)) => time(text, &format!("{text}T00:00:00Z")),
            (Kind::List(items, identity), Json::Array(list)) => {
                let items = list.iter().map(|item| items.value(item)).collect();
                Value::List(Arc::new(List { items, identity: identity.clone() }))
            }
            (Kind::Map(values), Json::Object(map)) => Value::map(
                map.iter().map(|(k, v)| (crate::eval::Key::Text(k.as_str().into()), values.value(v))),
            ),
            (Kind::Object(fields), Json::Object(map)) => Value::object(fields.iter().filter_map(|field| {
                // A null is as good as nothing.
                let value = map.get(&field.name).filter(|v| !v.is_null())?;
                let seen = field.seen.clone().filter(|_| !matches!(field.node.kind, Kind::Hidden))?;
                Some((seen, field.node.value(value)))
            })),
            (_, json) => Value::from_json(json),
        }
    }
}

fn time(text: &str, full: &str) -> Value {
    parse_time(full).map_or_else(|| Value::text(text), |(time, offset)| Value::Time(time, offset))
}

fn kind(schema: &Json, root: bool, depth: usize) -> Kind {
    let inner = |child: &Json| Node::at(child, flag(child, "x-kubernetes-embedded-resource"), depth + 1);
    if flag(schema, "x-kubernetes-int-or-string") {
        return Kind::Plain;
    }
    match tree::text(schema, &["type"]) {
        "array" => {
            let Some(items) = schema.get("items") else { return Kind::Hidden };
            let identity = match tree::text(schema, &["x-kubernetes-list-type"]) {
                "set" => Identity::Set,
                "map" => {
                    let keys = tree::list(schema, &["x-kubernetes-list-map-keys"]).iter();
                    // Items are compared as expressions see them.
                    Identity::Keys(Arc::new(keys.filter_map(|k| escaped(k.as_str()?)).collect()))
                }
                _ => Identity::Place,
            };
            Kind::List(Box::new(inner(items)), identity)
        }
        "object" => match schema.get("additionalProperties") {
            Some(values @ Json::Object(_)) => Kind::Map(Box::new(inner(values))),
            _ => Kind::Object(fields(schema, root, inner)),
        },
        "string" => match tree::text(schema, &["format"]) {
            "byte" => Kind::Bytes,
            "duration" => Kind::Duration,
            "date" => Kind::Date,
            "date-time" => Kind::Time,
            _ => Kind::Text,
        },
        "number" => Kind::Double,
        "boolean" | "integer" => Kind::Plain,
        _ => Kind::Hidden,
    }
}

fn fields(schema: &Json, root: bool, inner: impl Fn(&Json) -> Node) -> Vec<Field> {
    let declared = schema.get("properties").and_then(Json::as_object).into_iter().flatten();
    let mut fields: Vec<Field> = declared
        .map(|(name, child)| Field { name: name.clone(), seen: escaped(name), node: inner(child) })
        .collect();
    if root {
        // There whatever the schema says.
        let text = |name: &str| Field {
            name: name.to_string(),
            seen: Some(name.to_string()),
            node: Node { kind: Kind::Text, named: "string".into(), rules: Vec::new() },
        };
        let meta = Kind::Object(vec![text("name"), text("generateName")]);
        let meta = Node { kind: meta, named: "object".into(), rules: Vec::new() };
        fields.retain(|field| !["apiVersion", "kind", "metadata"].contains(&field.name.as_str()));
        fields.extend([text("apiVersion"), text("kind")]);
        fields.push(Field { name: "metadata".into(), seen: Some("metadata".into()), node: meta });
    }
    fields
}

impl Rule {
    fn compile(rule: &Json) -> Option<Rule> {
        let text = |key: &str| tree::text(rule, &[key]).to_string();
        let written = text("rule");
        let parsed = parse(&written).ok()?;
        Some(Rule {
            transition: parsed.reads("oldSelf"),
            rule: parsed,
            text: written.trim().to_string(),
            message: text("message").trim().to_string(),
            message_expression: parse(&text("messageExpression")).ok(),
            reason: text("reason"),
            field_path: text("fieldPath"),
            optional_old: flag(rule, "optionalOldSelf"),
        })
    }
}
