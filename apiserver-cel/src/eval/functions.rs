//! Functions by name: those of the language, and which room has the others.

use super::mark::Index;
use super::outcome::{Failure, Outcome, failed};
use super::value::{List, Value};
use super::{convert, format, formats, library, lists, operators, texts, time, url};
use std::sync::Arc;

/// Calls a function: `values` are its target, if it has one, and its arguments.
///
/// # Errors
/// There is none for such values, or it fails.
pub fn call(name: &str, values: &[Value], steps: &mut u64) -> Outcome {
    *steps += values.iter().map(reading).sum::<u64>();
    if let [a, b] = values
        && let Some(found) = operators::binary(name, a, b)
    {
        return found;
    }
    if let [a] = values
        && let Some(found) = operators::unary(name, a)
    {
        return found;
    }
    for room in
        [convert::call, texts::call, lists::call, time::call, url::call, own, formats::call, library::call]
    {
        if let Some(found) = room(name, values) {
            return found;
        }
    }
    Err(Failure::NoOverload)
}

/// Steps that a function needs to look at a value.
fn reading(value: &Value) -> u64 {
    let size = match value {
        Value::Text(text) => text.len() / 10,
        Value::Bytes(bytes) => bytes.len() / 10,
        Value::List(list) => list.items.len(),
        _ => 0,
    };
    size as u64
}

fn own(name: &str, values: &[Value]) -> Option<Outcome> {
    Some(match (name, values) {
        ("size", [value]) => size(value),
        ("type", [value]) => Ok(Value::Type(value.kind().into())),
        ("dyn", [value]) => Ok(value.clone()),
        ("format", [Value::Text(pattern), Value::List(args)]) => format::format(pattern, &args.items),
        ("optional.of", [value]) => Ok(Value::Optional(Some(Arc::new(value.clone())))),
        ("optional.none", []) => Ok(Value::Optional(None)),
        ("optional.ofNonZeroValue", [value]) => {
            Ok(Value::Optional((!value.zero()).then(|| Arc::new(value.clone()))))
        }
        ("hasValue", [Value::Optional(value)]) => Ok(Value::Bool(value.is_some())),
        ("value", [Value::Optional(value)]) => match value {
            Some(value) => Ok((**value).clone()),
            None => failed("optional.none() dereference"),
        },
        ("or", [first @ Value::Optional(value), other @ Value::Optional(_)]) => {
            Ok(if value.is_some() { first } else { other }.clone())
        }
        ("orValue", [Value::Optional(value), other]) => {
            Ok(value.as_ref().map_or_else(|| other.clone(), |value| (**value).clone()))
        }
        ("optional.unwrap" | "unwrapOpt", [Value::List(list)]) => unwrap(list),
        ("sets.contains", [Value::List(a), Value::List(b)]) => Ok(Value::Bool(covers(a, b))),
        ("sets.equivalent", [Value::List(a), Value::List(b)]) => {
            Ok(Value::Bool(covers(a, b) && covers(b, a)))
        }
        ("sets.intersects", [Value::List(a), Value::List(b)]) => {
            let known = Index::of(&b.items);
            Ok(Value::Bool(a.items.iter().any(|item| known.has(item))))
        }
        ("jsonpatch.escapeKey", [Value::Text(key)]) => {
            Ok(Value::text(key.replace('~', "~0").replace('/', "~1")))
        }
        _ => return None,
    })
}

fn size(value: &Value) -> Outcome {
    let size = match value {
        Value::Text(text) => text.chars().count(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(list) => list.items.len(),
        Value::Map(map) => map.entries.len(),
        _ => return Err(Failure::NoOverload),
    };
    Ok(Value::Int(size as i64))
}

fn unwrap(list: &List) -> Outcome {
    let mut items = Vec::new();
    for item in &list.items {
        match item {
            Value::Optional(value) => items.extend(value.as_deref().cloned()),
            _ => return Err(Failure::NoOverload),
        }
    }
    Ok(Value::list(items))
}

fn covers(all: &List, some: &List) -> bool {
    let known = Index::of(&all.items);
    some.items.iter().all(|item| known.has(item))
}
