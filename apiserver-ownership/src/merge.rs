//! Merging a configuration into an object, field by field.
//!
//! Inputs: values and their schema. Absent on purpose: who owns which field.

use crate::fieldset::{self, Shape};
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::{ListKind, Schema};
use serde_json::{Map, Value};
use std::collections::{HashSet, hash_map::Entry};

/// Merges a configuration into a value, as server-side apply does: its fields win, lists with keys are joined.
pub fn merge(schema: Option<&Schema>, live: &mut Value, config: Value) {
    match (fieldset::shape(schema, &config), config) {
        (Shape::Fields, Value::Object(map)) => {
            if !live.is_object() || matches!(fieldset::shape(schema, live), Shape::Leaf) {
                *live = Value::Object(Map::new());
            }
            let target = tree::object(live);
            for (key, v) in map {
                if v.is_null() {
                    continue;
                }
                let slot = target.entry(key.clone()).or_insert(Value::Null);
                merge(schema.and_then(|s| s.field(&key)), slot, v);
            }
        }
        (Shape::Items(keys, items), Value::Array(list)) => {
            let Value::Array(target) = live else {
                let mut fresh = Vec::new();
                for item in list {
                    let mut v = Value::Null;
                    merge(items, &mut v, item);
                    fresh.push(v);
                }
                *live = Value::Array(fresh);
                return;
            };
            let mut index = fieldset::index(keys, items, target);
            for item in list {
                match index.entry(fieldset::item_key(keys, items, &item)) {
                    Entry::Occupied(at) => merge(items, &mut target[*at.get()], item),
                    Entry::Vacant(at) => {
                        at.insert(target.len());
                        target.push(item);
                    }
                }
            }
        }
        (Shape::Values, Value::Array(list)) => {
            let Value::Array(target) = live else {
                *live = Value::Array(list);
                return;
            };
            let mut known: HashSet<String> = target.iter().map(Value::to_string).collect();
            target.extend(list.into_iter().filter(|item| known.insert(item.to_string())));
        }
        // An empty map or list leaves what others put there.
        (Shape::Leaf, Value::Object(m)) if m.is_empty() && live.is_object() && !atomic(schema) => {}
        (Shape::Leaf, Value::Array(l))
            if l.is_empty() && matches!(fieldset::shape(schema, live), Shape::Items(..) | Shape::Values) => {}
        (_, other) => *live = other,
    }
}

fn atomic(schema: Option<&Schema>) -> bool {
    schema.is_some_and(|s| s.get().atomic_map)
}

/// The places of a configuration where it could only replace a whole map or list, whatever else is in it.
pub fn atomics(schema: &Schema, config: &Value, path: &mut String, out: &mut Vec<String>) {
    let node = schema.get();
    let length = path.len();
    match config {
        Value::Object(map) if !node.is_opaque() => {
            if node.atomic_map {
                out.push(path.clone());
            }
            for (key, value) in map {
                let Some(field) = schema.field(key) else { continue };
                path.push('.');
                path.push_str(key);
                atomics(field, value, path, out);
                path.truncate(length);
            }
        }
        Value::Array(list) if !node.preserve => {
            if matches!(schema.list_kind(), ListKind::Atomic) {
                out.push(path.clone());
            }
            for (i, value) in list.iter().enumerate() {
                let Some(items) = node.items.as_deref() else { continue };
                path.push_str(&format!("[{i}]"));
                atomics(items, value, path, out);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_atomic_is_named() {
        let schema = Schema::builtin("api.apps.v1.Deployment");
        let found = |config: Value| {
            let mut out = Vec::new();
            atomics(&schema, &config, &mut String::new(), &mut out);
            out
        };
        let env =
            json!({"spec": {"template": {"spec": {"containers": [{"name": "a", "env": [{"name": "x"}]}]}}}});
        assert!(found(env).is_empty(), "lists with keys are joined");
        assert_eq!(found(json!({"spec": {"selector": {"matchLabels": {"a": "b"}}}})), [".spec.selector"]);
        let args = json!({"spec": {"template": {"spec": {"containers": [{"name": "a", "args": ["x"]}]}}}});
        assert_eq!(found(args), [".spec.template.spec.containers[0].args"]);
    }
}
