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
    fleet_apiserver_cel::go_text::printed(value)
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
mod tests;
