//! What holds for a custom resource beyond its single values: objects embedded in it say what they are, and items of lists are
//! told apart.
//!
//! Inputs: an object, and for a change the one before. Absent on purpose: single values (see `validate`).

use crate::names;
use crate::schema::{ListKind, Schema};
use crate::validate::{self, NameRule};
use fleet_apiserver_cel::cause::Cause;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// What is looked at at each place: its schema, its value and its path.
type Visit = fn(&Schema, &Value, &str, &mut Vec<Cause>);

/// Adds what is wrong. Lists that had items twice before may keep them, as the real server judges objects as a whole.
pub fn check(schema: &Schema, value: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    walk(schema, value, &mut String::new(), embedded, causes);
    let mut before = Vec::new();
    if let Some(old) = old {
        walk(schema, old, &mut String::new(), apart, &mut before);
    }
    if before.is_empty() {
        walk(schema, value, &mut String::new(), apart, causes);
    }
}

fn walk(schema: &Schema, value: &Value, path: &mut String, visit: Visit, causes: &mut Vec<Cause>) {
    let node = schema.get();
    if !node.keyed {
        return;
    }
    visit(node, value, path, causes);
    let length = path.len();
    match value {
        Value::Object(map) => {
            for (key, below) in map {
                // What every object has is checked with its metadata.
                let common = length == 0 && matches!(key.as_str(), "apiVersion" | "kind" | "metadata");
                let Some(field) = node.field(key).filter(|_| !common) else { continue };
                if node.additional.is_some() {
                    path.push_str(&format!("[{key}]"));
                } else {
                    path.push_str(if length == 0 { "" } else { "." });
                    path.push_str(key);
                }
                walk(field, below, path, visit, causes);
                path.truncate(length);
            }
        }
        Value::Array(list) => {
            let Some(items) = node.items.as_deref() else { return };
            for (i, item) in list.iter().enumerate() {
                path.push_str(&format!("[{i}]"));
                walk(items, item, path, visit, causes);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// An object within an object says what it is.
fn embedded(node: &Schema, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let Value::Object(map) = value else { return };
    if !node.embedded {
        return;
    }
    for key in ["apiVersion", "kind"] {
        let Some(found) = map.get(key) else {
            causes.push(Cause::required(format!("{path}.{key}"), ""));
            continue;
        };
        let why = match found {
            Value::String(text) if text.is_empty() => Some("must not be empty".to_string()),
            Value::String(text) if key == "apiVersion" => {
                (text.matches('/').count() > 1).then(|| format!("unexpected GroupVersion string: {text}"))
            }
            Value::String(text) => {
                let whys = names::label_1035(&text.to_lowercase()).join(",");
                (!whys.is_empty()).then(|| format!("may have mixed case, but should otherwise match: {whys}"))
            }
            _ => Some("must be a string".to_string()),
        };
        causes.extend(why.map(|why| Cause::invalid(format!("{path}.{key}"), found, &why)));
    }
    let Some(metadata) = map.get("metadata").filter(|metadata| !metadata.is_null()) else { return };
    let Value::Object(fields) = metadata else {
        causes.push(Cause::invalid(format!("{path}.metadata"), metadata, "must be an object"));
        return;
    };
    if let Some(Value::String(name)) = fields.get("name").filter(|name| *name != "")
        && let Some(why) = validate::name(NameRule::Path, name)
    {
        causes.push(Cause::invalid(format!("{path}.metadata.name"), &Value::from(name.as_str()), &why));
    }
    validate::labels(fields.get("labels"), &format!("{path}.metadata.labels"), causes);
}

/// Items of sets, and of lists with keys, are there once. A third one is not told again.
fn apart(node: &Schema, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let Value::Array(list) = value else { return };
    let identities: Vec<Value> = match &node.list {
        ListKind::Atomic => return,
        ListKind::Set => list.clone(),
        ListKind::Map(keys) => {
            if let Some(at) = list.iter().position(|item| !item.is_null() && !item.is_object()) {
                let why = "must be an object for an array of list-type map";
                causes.push(Cause::invalid(format!("{path}[{at}]"), &list[at], why));
                return;
            }
            list.iter().map(|item| keys_of(keys, item)).collect()
        }
    };
    let mut seen = HashMap::<String, usize>::new();
    for (i, identity) in identities.iter().enumerate() {
        let times = seen.entry(identity.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            let message = format!("Duplicate value: {identity}");
            causes.push(Cause::new("FieldValueDuplicate", format!("{path}[{i}]"), message));
        }
    }
}

/// The keys of an item that it has.
fn keys_of(keys: &[Box<str>], item: &Value) -> Value {
    let found = keys.iter().filter_map(|key| Some((key.to_string(), item.get(&**key)?.clone())));
    Value::Object(found.collect::<Map<String, Value>>())
}

#[cfg(test)]
mod tests;
