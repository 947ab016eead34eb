//! The three older patch types: JSON patch, JSON merge patch and strategic merge patch.
//!
//! Inputs: the current object and a patch document. Absent on purpose: server-side apply (see `managed`).

use crate::Schema;
use crate::error::{ApiError, ApiResult};
use fleet_apiserver_ground::tree;
use serde_json::{Map, Value};

/// Operations allowed in one JSON patch, as the real server has it.
const MAX_OPERATIONS: usize = 10_000;
/// Bytes that the copies of one JSON patch may add: a few operations could double an object again and again.
const MAX_COPIED: usize = crate::http_io::MAX_BODY;

/// Applies an RFC 6902 patch.
pub fn json_patch(target: &mut Value, patch: Value) -> ApiResult<()> {
    let patch: json_patch::Patch = serde_json::from_value(patch)
        .map_err(|e| ApiError::bad_request(format!("error decoding patch: {e}")))?;
    if patch.0.len() > MAX_OPERATIONS {
        return Err(ApiError::too_large(MAX_OPERATIONS));
    }
    let mut copied = 0;
    // Without undo, which can panic: the target is the caller's copy, which is dropped after a failure.
    for operation in &patch.0 {
        if let json_patch::PatchOperation::Copy(copy) = operation {
            copied += copy.from.resolve(target).map_or(0, |v| v.to_string().len());
            if copied > MAX_COPIED {
                return Err(ApiError::too_large(MAX_COPIED));
            }
        }
        json_patch::patch_unsafe(target, std::slice::from_ref(operation)).map_err(|_| {
            ApiError::unprocessable("the server rejected our request due to an error in our request")
        })?;
    }
    Ok(())
}

/// Applies an RFC 7386 patch.
pub fn merge_patch(target: &mut Value, patch: Value) {
    match patch {
        Value::Object(map) => {
            let target = tree::object(target);
            for (key, v) in map {
                if v.is_null() {
                    target.remove(&key);
                } else {
                    merge_patch(target.entry(key).or_insert(Value::Null), v);
                }
            }
        }
        other => *target = other,
    }
}

/// Applies a strategic merge patch.
pub fn strategic(schema: Option<&Schema>, target: &mut Value, patch: Value) -> ApiResult<()> {
    let Value::Object(mut patch) = patch else {
        *target = patch;
        return Ok(());
    };
    match patch.remove("$patch").as_ref().and_then(Value::as_str) {
        Some("replace") => {
            *target = Value::Object(patch);
            return Ok(());
        }
        Some("delete") => {
            *target = Value::Object(Map::new());
            return Ok(());
        }
        Some("merge") | None => {}
        Some(other) => return Err(ApiError::bad_request(format!("unknown patch directive: {other}"))),
    }
    let map = tree::object(target);
    if let Some(Value::Array(keep)) = patch.remove("$retainKeys") {
        map.retain(|k, _| keep.iter().any(|x| x.as_str() == Some(k)));
    }
    let mut orders = Vec::new();
    let directives: Vec<String> = patch.keys().filter(|k| k.starts_with('$')).cloned().collect();
    for key in directives {
        let Some(v) = patch.remove(&key) else { continue };
        if let Some(field) = key.strip_prefix("$deleteFromPrimitiveList/") {
            if let (Some(Value::Array(list)), Value::Array(gone)) = (map.get_mut(field), &v) {
                list.retain(|x| !gone.contains(x));
            }
        } else if let Some(field) = key.strip_prefix("$setElementOrder/") {
            orders.push((field.to_string(), v));
        } else {
            return Err(ApiError::bad_request(format!("unknown patch directive: {key}")));
        }
    }
    for (key, v) in patch {
        let field = schema.and_then(|s| s.field(&key));
        match v {
            Value::Null => {
                map.remove(&key);
            }
            Value::Object(_) => {
                let slot = map.entry(key).or_insert_with(|| Value::Object(Map::new()));
                if !slot.is_object() || field.is_some_and(|f| f.replace) {
                    *slot = Value::Object(Map::new());
                }
                strategic(field, slot, v)?;
            }
            Value::Array(items) => {
                let slot = map.entry(key).or_insert_with(|| Value::Array(Vec::new()));
                list(field, slot, items)?;
            }
            scalar => {
                map.insert(key, scalar);
            }
        }
    }
    for (field, order) in orders {
        let key = schema.and_then(|s| s.field(&field)).and_then(|f| f.merge_key.as_deref());
        if let (Some(Value::Array(items)), Value::Array(order)) = (map.get_mut(&field), order) {
            reorder(items, &order, key);
        }
    }
    Ok(())
}

fn list(field: Option<&Schema>, slot: &mut Value, items: Vec<Value>) -> ApiResult<()> {
    let merges = field.is_some_and(|f| f.merge);
    let item_schema = field.and_then(|f| f.get().items.as_deref());
    let directive = |v: &Value| v.get("$patch").and_then(Value::as_str).map(str::to_string);
    if !merges || !slot.is_array() || items.iter().any(|v| directive(v).as_deref() == Some("replace")) {
        let mut fresh = Vec::new();
        for v in items {
            match directive(&v).as_deref() {
                // The element that only says "replace" is not an item.
                Some("replace") if v.as_object().is_some_and(|m| m.len() == 1) => {}
                Some("delete") => {}
                _ if v.is_object() => {
                    let mut out = Value::Object(Map::new());
                    strategic(item_schema, &mut out, v)?;
                    fresh.push(out);
                }
                _ => fresh.push(v),
            }
        }
        *slot = Value::Array(fresh);
        return Ok(());
    }
    let Value::Array(target) = slot else { return Ok(()) };
    let Some(key) = field.and_then(|f| f.merge_key.as_deref()) else {
        for v in items {
            if !target.contains(&v) {
                target.push(v);
            }
        }
        return Ok(());
    };
    for v in items {
        let Some(id) = v.get(key).cloned() else {
            return Err(ApiError::bad_request(format!(
                "map: {v} does not contain declared merge key: {key}"
            )));
        };
        if directive(&v).as_deref() == Some("delete") {
            target.retain(|x| x.get(key) != Some(&id));
            continue;
        }
        match target.iter_mut().find(|x| x.get(key) == Some(&id)) {
            Some(x) => strategic(item_schema, x, v)?,
            None => {
                let mut out = Value::Object(Map::new());
                strategic(item_schema, &mut out, v)?;
                target.push(out);
            }
        }
    }
    Ok(())
}

/// Items named in `order` come in that order; others follow in the order they had.
fn reorder(items: &mut [Value], order: &[Value], key: Option<&str>) {
    let place = |v: &Value| {
        let same = |o: &Value| match key {
            Some(k) => o.get(k).is_some() && o.get(k) == v.get(k),
            None => o == v,
        };
        order.iter().position(same).unwrap_or(usize::MAX)
    };
    items.sort_by_key(place);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn containers_merge_by_name() {
        let schema = Schema::builtin("api.core.v1.Pod");
        let mut pod =
            json!({"spec": {"containers": [{"name": "a", "image": "1", "tty": true}, {"name": "b"}]}});
        let patch = json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
            "containers": [{"name": "a", "image": "2", "tty": null}, {"name": "c", "image": "3"},
                {"name": "b", "$patch": "delete"}]}});
        strategic(Some(&schema), &mut pod, patch).unwrap();
        let want =
            json!({"spec": {"containers": [{"name": "a", "image": "2"}, {"name": "c", "image": "3"}]}});
        assert_eq!(pod, want);
    }

    #[test]
    fn json_patch_test_failure() {
        let mut v = json!({"a": 1});
        let e = json_patch(&mut v, json!([{"op": "test", "path": "/a", "value": 2}])).unwrap_err();
        assert_eq!(e.code(), 422);
    }
}
