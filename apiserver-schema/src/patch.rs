//! The three older patch types: JSON patch, JSON merge patch and strategic merge patch.
//!
//! Inputs: the current object and a patch document. Absent on purpose: server-side apply (see `managed`).

use crate::error::{ApiError, ApiResult};
use crate::schema::Schema;
use fleet_apiserver_ground::{nesting, tree};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// Operations allowed in one JSON patch, as the real server has it.
const MAX_OPERATIONS: usize = 10_000;
/// What the operations of a JSON patch may visit together; a tenth of a second.
const MAX_VISITED: usize = 20_000_000;
/// Items of a list that make room as fast as one value is visited.
const ITEMS_A_VISIT: usize = 16;
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
    let count = patch.as_array().map_or(0, Vec::len);
    if count > MAX_OPERATIONS {
        return Err(Rejected::Other(ApiError::too_many_operations(MAX_OPERATIONS, count)));
    }
    let patch: json_patch::Patch =
        serde_json::from_value(patch).map_err(|_| Rejected::Other(unprocessable()))?;
    let (mut copied, mut visited) = (0, 0_usize);
    // Without undo, which can panic: the target is the caller's copy, which is dropped after a failure.
    for operation in &patch.0 {
        if let json_patch::PatchOperation::Copy(copy) = operation {
            copied += copy.from.resolve(target).map_or(0, |v| v.to_string().len());
            if copied > MAX_COPIED {
                return Err(Rejected::Other(ApiError::too_large(MAX_COPIED)));
            }
        }
        let Some(operation) = &meant(target, operation) else { continue };
        visited = visited.saturating_add(visits(target, operation));
        if visited > MAX_VISITED {
            return Err(Rejected::Other(ApiError::unprocessable(format!(
                "the operations of the patch: found more than {MAX_VISITED} values to visit; allowed: {MAX_VISITED}"
            ))));
        }
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

/// What an operation costs: the values that are moved as one, and the items that make room in a list.
fn visits(target: &Value, operation: &json_patch::PatchOperation) -> usize {
    use json_patch::PatchOperation::{Add, Copy, Move, Remove, Replace, Test};
    let beside = |path: &jsonptr::Pointer| {
        let above = path.parent().and_then(|above| above.resolve(target).ok());
        above.and_then(Value::as_array).map_or(0, Vec::len) / ITEMS_A_VISIT
    };
    let within = |path: &jsonptr::Pointer| path.resolve(target).map_or(0, nesting::values);
    match operation {
        Add(add) => nesting::values(&add.value) + beside(&add.path),
        Replace(replace) => nesting::values(&replace.value),
        Remove(remove) => beside(&remove.path),
        Copy(copy) => within(&copy.from) + beside(&copy.path),
        Move(moved) => within(&moved.from) + beside(&moved.from) + beside(&moved.path),
        Test(test) => nesting::values(&test.value),
    }
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

/// The type of a value in the words of a JSON decoder.
pub fn json_type(value: &Value) -> &'static str {
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
        let keep: HashSet<&str> = keep.iter().filter_map(Value::as_str).collect();
        map.retain(|k, _| keep.contains(k.as_str()));
    }
    let mut orders = Vec::new();
    let directives: Vec<String> = patch.keys().filter(|k| k.starts_with('$')).cloned().collect();
    for key in directives {
        let Some(v) = patch.remove(&key) else { continue };
        if let Some(field) = key.strip_prefix("$deleteFromPrimitiveList/") {
            if let (Some(Value::Array(list)), Value::Array(gone)) = (map.get_mut(field), &v) {
                let gone: HashSet<String> = gone.iter().map(Value::to_string).collect();
                list.retain(|x| !gone.contains(&x.to_string()));
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
    // Lists of a patch may be long: items are found by their text, and none is compared with all others.
    let Some(key) = field.and_then(|f| f.merge_key.as_deref()) else {
        let mut known: HashSet<String> = target.iter().map(Value::to_string).collect();
        target.extend(items.into_iter().filter(|v| known.insert(v.to_string())));
        return Ok(());
    };
    let mut slots: Vec<Option<Value>> = std::mem::take(target).into_iter().map(Some).collect();
    let mut places: HashMap<String, Vec<usize>> = HashMap::new();
    for (at, known) in slots.iter().enumerate() {
        if let Some(id) = known.as_ref().and_then(|known| known.get(key)) {
            places.entry(id.to_string()).or_default().push(at);
        }
    }
    for v in items {
        let Some(id) = v.get(key).map(Value::to_string) else {
            return Err(ApiError::bad_request(format!(
                "map: {v} does not contain declared merge key: {key}"
            )));
        };
        if directive(&v).as_deref() == Some("delete") {
            places.remove(&id).into_iter().flatten().for_each(|at| slots[at] = None);
            continue;
        }
        let known = places.get(&id).and_then(|places| places.first());
        match known.and_then(|at| slots[*at].as_mut()) {
            Some(known) => strategic(item_schema, known, v)?,
            None => {
                let mut out = Value::Object(Map::new());
                strategic(item_schema, &mut out, v)?;
                places.entry(id).or_default().push(slots.len());
                slots.push(Some(out));
            }
        }
    }
    *target = slots.into_iter().flatten().collect();
    Ok(())
}

/// Items named in `order` come in that order; others follow in the order they had.
fn reorder(items: &mut [Value], order: &[Value], key: Option<&str>) {
    let name = |v: &Value| match key {
        Some(k) => v.get(k).map(Value::to_string),
        None => Some(v.to_string()),
    };
    let mut places: HashMap<String, usize> = HashMap::new();
    for (at, named) in order.iter().enumerate().filter_map(|(at, o)| Some((at, name(o)?))) {
        places.entry(named).or_insert(at);
    }
    items.sort_by_cached_key(|v| name(v).and_then(|named| places.get(&named).copied()).unwrap_or(usize::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn long_lists_of_a_patch_cost_what_they_are_long() {
        let numbers: Vec<Value> = (0..60_000).map(|n| json!(format!("f{n}"))).collect();
        let mut items: Vec<Value> = numbers.iter().rev().cloned().collect();
        let began = std::time::Instant::now();
        reorder(&mut items, &numbers, None);
        assert_eq!(items, numbers);
        let named: Vec<Value> = numbers.iter().map(|name| json!({"name": name})).collect();
        let mut items: Vec<Value> = named.iter().rev().cloned().collect();
        reorder(&mut items, &named[..3], Some("name"));
        assert_eq!(items[..4], [named[0].clone(), named[1].clone(), named[2].clone(), named[59_999].clone()]);
        // A list that is compared with a list takes minutes.
        assert!(began.elapsed().as_secs() < 30);
    }

    #[test]
    fn operations_visit_no_more_than_is_allowed() {
        let mut target = json!({"a": vec![0; 100_000]});
        let moves: Vec<Value> = (0..2_000)
            .map(|n| match n % 2 {
                0 => json!({"op": "move", "from": "/a", "path": "/b"}),
                _ => json!({"op": "move", "from": "/b", "path": "/a"}),
            })
            .collect();
        let Err(Rejected::Other(why)) = try_json_patch(&mut target, json!(moves)) else {
            panic!("it applies")
        };
        assert!(why.message().contains("allowed: 20000000"), "{}", why.message());
        let mut target = json!({"l": vec![0; 1_000]});
        let removes: Vec<Value> = (0..1_000).map(|_| json!({"op": "remove", "path": "/l/0"})).collect();
        assert!(try_json_patch(&mut target, json!(removes)).is_ok());
        assert_eq!(target, json!({"l": []}));
    }

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
