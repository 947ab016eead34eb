//! The declarations that a schema gives to expressions: fields, elements, and the largest size of each value.
//!
//! Inputs: an `openAPIV3Schema`. Sizes are bounded by the schema (`maxItems`, `maxProperties`, `maxLength`), or
//! else by the largest request. Source: the documentation of "Validation rules" in Kubernetes, "Resource use by
//! validation functions". Absent on purpose: values.

use super::types::Type;
use fleet_apiserver_ground::tree;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of the largest request.
const REQUEST: u64 = 3 << 20;
/// What is longest of a date with time, or of a duration, with its quotes.
const TIME: u64 = 32;
/// A date with its quotes.
const DATE: u64 = 12;
/// Nesting that is followed.
const MAX_DEPTH: usize = 100;

/// A declared type.
#[derive(Debug, Clone)]
pub struct Decl {
    /// What it is.
    pub kind: Kind,
    /// Most characters, bytes, items or entries; 0 for what has none.
    pub most: u64,
    /// Fewest bytes of it as JSON.
    pub least_bytes: u64,
}

/// Kinds of declared types.
#[derive(Debug, Clone)]
pub enum Kind {
    Dyn,
    Bool,
    Int,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Arc<Decl>),
    /// The keys are texts of any length.
    Map(Arc<Decl>),
    /// Fields by the names that expressions use.
    Object(BTreeMap<String, Arc<Decl>>),
    /// What no schema tells: a value of a library, or one that an expression computes.
    Of(Type),
}

/// A declared type that is no part of a request.
pub fn known(kind: Kind, most: u64) -> Arc<Decl> {
    Arc::new(Decl { kind, most, least_bytes: 0 })
}

fn make(kind: Kind, most: u64, least_bytes: u64) -> Option<Arc<Decl>> {
    Some(Arc::new(Decl { kind, most, least_bytes }))
}

fn flag(schema: &Value, key: &str) -> bool {
    schema.get(key) == Some(&Value::Bool(true))
}

fn count(schema: &Value, key: &str) -> Option<u64> {
    schema.get(key).and_then(Value::as_i64).map(|n| u64::try_from(n).unwrap_or(0))
}

/// Declares a schema; `None` if expressions cannot see it. `root`: the whole object, or an embedded one.
pub fn declare(schema: &Value, root: bool) -> Option<Arc<Decl>> {
    at_depth(schema, root, 0)
}

fn at_depth(schema: &Value, root: bool, depth: usize) -> Option<Arc<Decl>> {
    if depth > MAX_DEPTH {
        return None;
    }
    let inner = |child: &Value| at_depth(child, flag(child, "x-kubernetes-embedded-resource"), depth + 1);
    if flag(schema, "x-kubernetes-int-or-string") {
        return make(Kind::Dyn, count(schema, "maxLength").map_or(REQUEST - 2, |n| n.saturating_mul(4)), 1);
    }
    match tree::text(schema, &["type"]) {
        "array" => {
            let items = inner(schema.get("items")?)?;
            let fit = (REQUEST - 2) / (items.least_bytes + 1);
            make(Kind::List(items), count(schema, "maxItems").unwrap_or(fit), 2)
        }
        "object" => {
            if let Some(values @ Value::Object(_)) = schema.get("additionalProperties") {
                let values = inner(values)?;
                let fit = (REQUEST - 2) / (values.least_bytes + 6);
                return make(Kind::Map(values), count(schema, "maxProperties").unwrap_or(fit), 2);
            }
            object(schema, root, inner)
        }
        "string" => string(schema),
        "boolean" => make(Kind::Bool, 0, 4),
        "number" => make(Kind::Double, 0, 1),
        "integer" => make(Kind::Int, 0, 1),
        _ => None,
    }
}

fn object(schema: &Value, root: bool, inner: impl Fn(&Value) -> Option<Arc<Decl>>) -> Option<Arc<Decl>> {
    let required: Vec<&str> = tree::list(schema, &["required"]).iter().filter_map(Value::as_str).collect();
    let mut fields = BTreeMap::new();
    let mut least = 2;
    for (name, child) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let Some(declared) = inner(child) else { continue };
        if required.contains(&name.as_str()) && child.get("default").is_none_or(Value::is_null) {
            least += name.len() as u64 + declared.least_bytes + 4;
        }
        if let Some(name) = escaped(name) {
            fields.insert(name, declared);
        }
    }
    if root {
        // There whatever the schema says.
        let text = || make(Kind::String, REQUEST - 2, 2);
        for name in ["kind", "apiVersion"] {
            fields.extend(text().map(|t| (name.to_string(), t)));
        }
        let meta: BTreeMap<String, Arc<Decl>> =
            ["name", "generateName"].iter().filter_map(|n| Some((n.to_string(), text()?))).collect();
        fields.extend(make(Kind::Object(meta), 0, 2).map(|m| ("metadata".to_string(), m)));
    }
    make(Kind::Object(fields), 0, least)
}

fn string(schema: &Value) -> Option<Arc<Decl>> {
    let given = count(schema, "maxLength");
    match tree::text(schema, &["format"]) {
        "byte" => make(Kind::Bytes, given.unwrap_or(REQUEST - 2), 2),
        "duration" => make(Kind::Duration, TIME, 3),
        "date" => make(Kind::Timestamp, DATE, DATE),
        "date-time" => make(Kind::Timestamp, TIME, 21),
        _ => {
            // A character can take four bytes.
            let most = given.map(|n| n.saturating_mul(4)).unwrap_or_else(|| {
                let words = tree::list(schema, &["enum"]).iter().filter_map(Value::as_str);
                words.map(|w| w.len() as u64).max().unwrap_or(REQUEST - 2)
            });
            make(Kind::String, most, 2)
        }
    }
}

/// How often a rule can be judged below a list or map without a bound.
pub fn most_occurrences(decl: &Decl) -> u64 {
    REQUEST / (decl.least_bytes + 1)
}

/// Reserved words of the language; as field names they are escaped with underscores.
const RESERVED: [&str; 20] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
];

/// The name by which expressions know a field; `None` where there is none.
pub fn escaped(name: &str) -> Option<String> {
    if RESERVED.contains(&name) || name == "while" {
        return Some(format!("__{name}__"));
    }
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/');
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(legal) {
        return None;
    }
    let text = name.replace("__", "__underscores__");
    Some(text.replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sizes_follow_the_bounds_or_the_largest_request() {
        let most = |schema: Value| declare(&schema, false).unwrap().most;
        assert_eq!(most(json!({"type": "string", "maxLength": 10})), 40);
        assert_eq!(most(json!({"type": "string", "enum": ["a", "long"]})), 4);
        assert_eq!(most(json!({"type": "string"})), 3_145_726);
        assert_eq!(most(json!({"type": "array", "items": {"type": "integer"}})), 1_572_863);
        let least =
            json!({"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}});
        assert_eq!(most(json!({"type": "array", "items": least})), 3_145_726 / 13);
        assert_eq!(
            most(json!({"type": "object", "additionalProperties": {"type": "string"}})),
            3_145_726 / 8
        );
        assert_eq!(escaped("namespace").unwrap(), "__namespace__");
        assert_eq!(escaped("a-b.c/d__e").unwrap(), "a__dash__b__dot__c__slash__d__underscores__e");
        assert_eq!(escaped("1a"), None);
    }
}
