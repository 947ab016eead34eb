//! The three older patch types: JSON patch, JSON merge patch and strategic merge patch.
//!
//! Inputs: the current object and a patch document. Absent on purpose: server-side apply (see `managed`).

use crate::error::{ApiError, ApiResult};
use crate::schema::Schema;
use fleet_apiserver_ground::{nesting, tree};
use serde_json::{Map, Value};

/// Operations allowed in one JSON patch, as the real server has it.
const MAX_OPERATIONS: usize = 10_000;
/// Bytes that the copies of one JSON patch may add: a few operations could double an object again and again.
const MAX_COPIED: usize = crate::http_io::MAX_BODY;

/// Characters of a path in a message.
const PATH_SHOWN: usize = 160;

/// Why a JSON patch did not apply.
pub enum Rejected {
    /// A test did not hold.
    Test,
    /// Anything else, as it is told.
    Other(ApiError),
}

/// Applies an RFC 6902 patch.
pub fn json_patch(target: &mut Value, patch: Value) -> ApiResult<()> {
    try_json_patch(target, patch).map_err(|rejected| match rejected {
        Rejected::Test => unprocessable(),
        Rejected::Other(why) => why,
    })
}

fn unprocessable() -> ApiError {
    ApiError::unprocessable("the server rejected our request due to an error in our request")
}

/// Applies an RFC 6902 patch, and tells a test that does not hold from other failures. What has failed is half done.
///
/// # Errors
/// It does not apply.
pub fn try_json_patch(target: &mut Value, patch: Value) -> Result<(), Rejected> {
    if !patch.is_array() {
        let found = json_type(&patch);
        return Err(Rejected::Other(ApiError::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {found} into Go value of type []handlers.jsonPatchOp"
        ))));
    }
    let patch: json_patch::Patch =
        serde_json::from_value(patch).map_err(|_| Rejected::Other(unprocessable()))?;
    if patch.0.len() > MAX_OPERATIONS {
        return Err(Rejected::Other(ApiError::too_large(MAX_OPERATIONS)));
    }
    let mut copied = 0;
    // Without undo, which can panic: the target is the caller's copy, which is dropped after a failure.
    for operation in &patch.0 {
        if let json_patch::PatchOperation::Copy(copy) = operation {
            copied += copy.from.resolve(target).map_or(0, |v| v.to_string().len());
            if copied > MAX_COPIED {
                return Err(Rejected::Other(ApiError::too_large(MAX_COPIED)));
            }
        }
        let Some(operation) = &meant(target, operation) else { continue };
        deepen(target, operation).map_err(Rejected::Other)?;
        let done = json_patch::patch_unsafe(target, std::slice::from_ref(operation));
        done.map_err(|_| match operation {
            json_patch::PatchOperation::Test(_) => Rejected::Test,
            _ => Rejected::Other(unprocessable()),
        })?;
    }
    Ok(())
}

/// An operation as a real server's library reads it: a replacement adds what is not there to an object, a negative
/// place counts from the end of a list, and what is not there passes a test for null (`None`: nothing is left to do).
fn meant(target: &Value, operation: &json_patch::PatchOperation) -> Option<json_patch::PatchOperation> {
    use json_patch::PatchOperation::{Add, Copy, Move, Remove, Replace, Test};
    let mut operation = operation.clone();
    match &mut operation {
        Add(add) => add.path = placed(target, &add.path, 1),
        Replace(replace) => {
            replace.path = placed(target, &replace.path, 0);
            let above = replace.path.parent().and_then(|above| above.resolve(target).ok());
            if above.is_some_and(Value::is_object) && replace.path.resolve(target).is_err() {
                let (path, value) = (std::mem::take(&mut replace.path), replace.value.take());
                return Some(Add(json_patch::AddOperation { path, value }));
            }
        }
        Remove(remove) => remove.path = placed(target, &remove.path, 0),
        Copy(copy) => {
            copy.from = placed(target, &copy.from, 0);
            copy.path = placed(target, &copy.path, 1);
        }
        Move(moved) => {
            moved.from = placed(target, &moved.from, 0);
            moved.path = placed(target, &moved.path, 1);
        }
        Test(test) => {
            test.path = placed(target, &test.path, 0);
            let above = test.path.parent().and_then(|above| above.resolve(target).ok());
            if test.value.is_null()
                && above.is_some_and(Value::is_object)
                && test.path.resolve(target).is_err()
            {
                return None;
            }
        }
    }
    Some(operation)
}

/// A path without negative places; `more`: how many places the last list has beyond its items.
fn placed(target: &Value, path: &jsonptr::Pointer, more: usize) -> jsonptr::PointerBuf {
    let count = path.tokens().count();
    let mut at = Some(target);
    let mut out = jsonptr::PointerBuf::new();
    for (i, token) in path.tokens().enumerate() {
        let text = token.decoded();
        let list = at.and_then(Value::as_array).map(Vec::len);
        let back = text.strip_prefix('-').and_then(|digits| digits.parse::<usize>().ok());
        let place = match (list, back) {
            (Some(length), Some(back)) => {
                let places = if i + 1 == count { length + more } else { length };
                places.checked_sub(back).map(|place| place.to_string())
            }
            _ => None,
        };
        let key = place.unwrap_or_else(|| text.into_owned());
        at = at.and_then(|at| match at {
            Value::Array(items) => key.parse::<usize>().ok().and_then(|i| items.get(i)),
            other => other.get(&key),
        });
        out.push_back(key.as_str());
    }
    out
}

/// Fails for an operation that would nest the target more deeply than is stored. Each operation is checked: many
/// together could build a value that no stack can walk through.
fn deepen(target: &Value, operation: &json_patch::PatchOperation) -> ApiResult<()> {
    use json_patch::PatchOperation::{Add, Copy, Move, Remove, Replace, Test};
    let (path, value) = match operation {
        Add(add) => (&add.path, Some(&add.value)),
        Replace(replace) => (&replace.path, Some(&replace.value)),
        Copy(copy) => (&copy.path, copy.from.resolve(target).ok()),
        Move(moved) => (&moved.path, moved.from.resolve(target).ok()),
        Remove(_) | Test(_) => return Ok(()),
    };
    let (above, allowed) = (path.tokens().count(), nesting::MAX + nesting::OWN);
    let Some(value) = value.filter(|v| above > allowed || !nesting::fits(v, allowed - above)) else {
        return Ok(());
    };
    let found = above + nesting::levels(value);
    let shown: String = path.as_str().chars().take(PATH_SHOWN).collect();
    let why = format!("{shown}: found {found} levels of nested objects and lists; allowed: {}", nesting::MAX);
    Err(ApiError::unprocessable(why))
}

/// Fails for a merge patch that is no object.
pub fn check_object(patch: &Value, strategic: bool) -> ApiResult<()> {
    if patch.is_object() {
        return Ok(());
    }
    let start = if strategic { "" } else { "error decoding patch: " };
    let found = json_type(patch);
    Err(ApiError::bad_request(format!(
        "{start}json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
    )))
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A value as Go prints it.
pub fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(list) => format!("[{}]", list.iter().map(go_text).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let sorted: std::collections::BTreeMap<_, _> = map.iter().collect();
            let entries: Vec<String> = sorted.iter().map(|(k, v)| format!("{k}:{}", go_text(v))).collect();
            format!("map[{}]", entries.join(" "))
        }
        other => other.to_string(),
    }
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
    if let Some(other) = patch.get("$patch").map(|v| v.as_str().unwrap_or_default())
        && !matches!(other, "replace" | "delete" | "merge")
    {
        let why = format!("unknown patch type: {other} in map: {}", go_text(&Value::Object(patch.clone())));
        return Err(ApiError::internal("", why));
    }
    match patch.remove("$patch").as_ref().and_then(Value::as_str) {
        Some("replace") => {
            *target = Value::Object(patch);
            return Ok(());
        }
        Some("delete") => {
            *target = Value::Object(Map::new());
            return Ok(());
        }
        _ => {}
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
            // A field that no schema knows.
            map.insert(key, v);
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
    fn json_patches_are_read_as_kubernetes_reads_them() {
        let patched = |operations: Value| {
            let mut target = json!({"m": {"a": 1}, "l": [1, 2, 3]});
            json_patch(&mut target, operations).ok().map(|()| target)
        };
        for (operation, want) in [
            (
                json!({"op": "replace", "path": "/m/b", "value": 2}),
                Some(json!({"m": {"a": 1, "b": 2}, "l": [1, 2, 3]})),
            ),
            (
                json!({"op": "replace", "path": "/n", "value": 2}),
                Some(json!({"m": {"a": 1}, "l": [1, 2, 3], "n": 2})),
            ),
            (json!({"op": "replace", "path": "/n/b", "value": 2}), None),
            (json!({"op": "replace", "path": "/l/3", "value": 2}), None),
            (json!({"op": "replace", "path": "/l/-", "value": 2}), None),
            (
                json!({"op": "replace", "path": "/l/-1", "value": 9}),
                Some(json!({"m": {"a": 1}, "l": [1, 2, 9]})),
            ),
            (
                json!({"op": "add", "path": "/l/-1", "value": 4}),
                Some(json!({"m": {"a": 1}, "l": [1, 2, 3, 4]})),
            ),
            (
                json!({"op": "add", "path": "/l/-4", "value": 0}),
                Some(json!({"m": {"a": 1}, "l": [0, 1, 2, 3]})),
            ),
            (json!({"op": "add", "path": "/l/-5", "value": 0}), None),
            (json!({"op": "remove", "path": "/l/-3"}), Some(json!({"m": {"a": 1}, "l": [2, 3]}))),
            (json!({"op": "remove", "path": "/m/b"}), None),
            (
                json!({"op": "copy", "from": "/l/-1", "path": "/m/b"}),
                Some(json!({"m": {"a": 1, "b": 3}, "l": [1, 2, 3]})),
            ),
            (
                json!({"op": "test", "path": "/m/b", "value": null}),
                Some(json!({"m": {"a": 1}, "l": [1, 2, 3]})),
            ),
            (json!({"op": "test", "path": "/m/b", "value": 1}), None),
        ] {
            assert_eq!(patched(json!([operation])), want, "{operation}");
        }
    }

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
    fn json_patches_build_nothing_deep() {
        let deep = |levels: usize| (0..levels).fold(json!(1), |v, _| json!({"a": v}));
        let mut v = json!({"spec": {"x": 1}, "keep": deep(60)});
        let before = nesting::levels(&v);
        let steps: Vec<Value> = (0..60)
            .map(|n| json!({"op": "replace", "path": format!("/spec/x{}", "/a".repeat(n * 100)), "value": deep(100)}))
            .collect();
        let e = json_patch(&mut v, steps.into()).unwrap_err();
        assert_eq!(e.code(), 422);
        assert!(e.message().starts_with("/spec/x/a/a/a"), "{}", e.message());
        assert!(
            e.message().ends_with("found 202 levels of nested objects and lists; allowed: 100"),
            "{}",
            e.message()
        );
        for op in ["copy", "move"] {
            let mut v = json!({"spec": {"x": deep(60)}, "keep": deep(60)});
            let path = format!("/spec/x{}", "/a".repeat(60));
            let e = json_patch(&mut v, json!([{"op": op, "from": "/keep", "path": path}])).unwrap_err();
            assert_eq!((e.code(), nesting::levels(&v)), (422, 62), "{op}");
        }
        let mut v = json!({"spec": {"x": 1}});
        json_patch(&mut v, json!([{"op": "add", "path": "/spec/x", "value": deep(97)}])).unwrap();
        assert!(before < nesting::levels(&v));
    }

    #[test]
    fn json_patch_test_failure() {
        let mut v = json!({"a": 1});
        let e = json_patch(&mut v, json!([{"op": "test", "path": "/a", "value": 2}])).unwrap_err();
        assert_eq!(e.code(), 422);
    }
}
