//! The one form in which a typed server keeps and shows an object of a built-in kind.
//!
//! Inputs: a decoded object and the presence codes of its fields (see `data/go_fields.py`). Zero values of optional
//! fields are left out, nulls too; structs and required fields are always there; quantities are written one way.
//! Absent on purpose: defaults, and custom resources, which have no types.

use crate::presence::{Presence, Zero};
use crate::schema::{Schema, Type};
use fleet_apiserver_ground::quantity;
use serde_json::{Map, Value};

/// Removes what a typed decoder does not see: nulls, and zero values of fields that are left out when zero.
pub fn strip(value: &mut Value) {
    if let Some(schema) = schema_of(value) {
        walk(&schema, value, false);
    }
}

/// Brings a whole object with its defaults into the form it is stored and shown in.
pub fn complete(value: &mut Value) {
    if let Some(schema) = schema_of(value) {
        walk(&schema, value, true);
    }
}

/// The same as [`strip`], where only these fields of the object may have changed.
pub fn strip_fields(value: &mut Value, changed: &[&str]) {
    fields(value, changed, false);
}

/// The same as [`complete`], where only these fields of the object may have changed.
pub fn complete_fields(value: &mut Value, changed: &[&str]) {
    fields(value, changed, true);
}

fn fields(value: &mut Value, changed: &[&str], whole: bool) {
    let Some(schema) = schema_of(value) else { return };
    let Value::Object(map) = value else { return };
    let mut part = Map::new();
    for field in changed {
        part.extend(map.remove_entry(*field));
    }
    let node = schema.get();
    keep(node, &mut part, whole);
    if whole {
        let always = node.always.iter().filter(|(field, _)| changed.contains(&&**field));
        add(node, &mut part, always);
    }
    map.append(&mut part);
}

/// What a new object is compared with to tell what its creator wrote.
pub fn empty(value: &Value) -> Value {
    let mut out = Value::Object(Map::new());
    for key in ["apiVersion", "kind"] {
        if let Some(v) = value.get(key) {
            out[key] = v.clone();
        }
    }
    complete(&mut out);
    out
}

fn schema_of(value: &Value) -> Option<Schema> {
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("apiVersion").rsplit_once('/').unwrap_or(("", text("apiVersion")));
    let schema = Schema::builtin(&crate::builtins::definition(group, version, text("kind")));
    (!schema.get().presence.is_empty()).then_some(schema)
}

/// True for what says as much as nothing: null, and values that are empty or zero.
pub fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(s) => s.is_empty(),
        Value::Array(l) => l.is_empty(),
        Value::Object(m) => m.is_empty(),
    }
}

fn walk(schema: &Schema, value: &mut Value, whole: bool) {
    let node = schema.get();
    match value {
        Value::Object(map) if !node.is_opaque() => object(node, map, whole),
        Value::Array(list) => {
            if let Some(items) = &node.items {
                list.iter_mut().for_each(|item| walk(items, item, whole));
            }
        }
        Value::String(_) | Value::Number(_) if node.ty == Type::Quantity => {
            if !quantity::is_canonical(value)
                && let Some(text) = quantity::canonical(value)
            {
                *value = text.into();
            }
        }
        _ => {}
    }
}

fn object(node: &Schema, map: &mut Map<String, Value>, whole: bool) {
    keep(node, map, whole);
    if whole {
        add(node, map, node.always.iter());
    }
}

/// What stays of the fields of an object.
fn keep(node: &Schema, map: &mut Map<String, Value>, whole: bool) {
    let typed = node.additional.is_none();
    map.retain(|key, v| {
        let (schema, presence) = node.field_and_presence(key);
        if let Some(schema) = schema {
            walk(schema, v, whole);
        }
        match presence {
            Some(Presence::Optional | Presence::Always(Zero::List)) => !is_zero(v),
            Some(Presence::OptionalStruct) => v.as_object().is_some_and(|m| !m.is_empty()),
            _ => !typed || !v.is_null(),
        }
    });
}

/// The fields that are there even if they say nothing.
fn add<'s>(
    node: &Schema,
    map: &mut Map<String, Value>,
    always: impl Iterator<Item = &'s (Box<str>, Presence)>,
) {
    for (key, presence) in always {
        if map.contains_key(&**key) {
            continue;
        }
        match presence {
            Presence::Struct => {
                let mut inner = Value::Object(Map::new());
                if let Some(schema) = node.field(key) {
                    walk(schema, &mut inner, true);
                }
                map.insert(key.to_string(), inner);
            }
            Presence::Always(zero) => {
                map.insert(key.to_string(), zero.value());
            }
            Presence::Optional | Presence::OptionalStruct => {}
        }
    }
}

#[cfg(test)]
mod tests;
