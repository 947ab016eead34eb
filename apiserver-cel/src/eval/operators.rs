//! Operators: arithmetic, comparisons, and access to what is inside a value.

use super::outcome::{Failure, Outcome, failed};
use super::value::{Key, Value};
use jiff::SignedDuration;
use jiff::civil::DateTime;
use kube_cel::cel::common::ast::operators as op;
use std::cmp::Ordering;
use std::sync::Arc;

/// The years that a time can be in.
const YEARS: std::ops::RangeInclusive<i16> = 1..=9999;

fn overflow<T>() -> Result<T, Failure> {
    failed("integer overflow")
}

fn whole(n: Option<i64>) -> Outcome {
    n.map_or_else(overflow, |n| Ok(Value::Int(n)))
}

fn natural(n: Option<u64>) -> Outcome {
    n.map_or_else(|| failed("unsigned integer overflow"), |n| Ok(Value::Uint(n)))
}

fn span(d: Option<SignedDuration>) -> Outcome {
    d.map_or_else(|| failed("duration overflow"), |d| Ok(Value::Duration(d)))
}

fn moment(time: Result<DateTime, jiff::Error>, offset: i32) -> Outcome {
    match time {
        Ok(time) if YEARS.contains(&time.year()) => Ok(Value::Time(time, offset)),
        _ => failed("timestamp overflow"),
    }
}

/// An operator with two sides; `None`: there is none of this name.
pub fn binary(name: &str, a: &Value, b: &Value) -> Option<Outcome> {
    Some(match name {
        op::EQUALS => Ok(Value::Bool(a == b)),
        op::NOT_EQUALS => Ok(Value::Bool(a != b)),
        op::LESS => compare(a, b, Ordering::is_lt),
        op::LESS_EQUALS => compare(a, b, Ordering::is_le),
        op::GREATER => compare(a, b, Ordering::is_gt),
        op::GREATER_EQUALS => compare(a, b, Ordering::is_ge),
        op::ADD => add(a, b),
        op::SUBSTRACT => subtract(a, b),
        op::MULTIPLY => match (a, b) {
            (Value::Int(a), Value::Int(b)) => whole(a.checked_mul(*b)),
            (Value::Uint(a), Value::Uint(b)) => natural(a.checked_mul(*b)),
            (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a * b)),
            _ => Err(Failure::NoOverload),
        },
        op::DIVIDE => match (a, b) {
            (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => failed("division by zero"),
            (Value::Int(a), Value::Int(b)) => whole(a.checked_div(*b)),
            (Value::Uint(a), Value::Uint(b)) => natural(a.checked_div(*b)),
            (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a / b)),
            _ => Err(Failure::NoOverload),
        },
        op::MODULO => match (a, b) {
            (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => failed("modulus by zero"),
            (Value::Int(a), Value::Int(b)) => whole(a.checked_rem(*b)),
            (Value::Uint(a), Value::Uint(b)) => natural(a.checked_rem(*b)),
            _ => Err(Failure::NoOverload),
        },
        op::IN => within(a, b),
        op::INDEX => index(a, b),
        op::OPT_INDEX | op::OPT_SELECT => optional(a, b),
        _ => return None,
    })
}

fn compare(a: &Value, b: &Value, holds: fn(Ordering) -> bool) -> Outcome {
    let nan = |v: &Value| matches!(v, Value::Double(n) if n.is_nan());
    match a.order(b) {
        Some(order) => Ok(Value::Bool(holds(order))),
        None if nan(a) || nan(b) => failed("NaN values cannot be ordered"),
        None => Err(Failure::NoOverload),
    }
}

pub fn add(a: &Value, b: &Value) -> Outcome {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => whole(a.checked_add(*b)),
        (Value::Uint(a), Value::Uint(b)) => natural(a.checked_add(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        (Value::Text(a), Value::Text(b)) => Ok(Value::text(format!("{a}{b}"))),
        (Value::Bytes(a), Value::Bytes(b)) => Ok(Value::Bytes([&**a, &**b].concat().into())),
        (Value::List(a), Value::List(b)) => Ok(Value::List(Arc::new(a.joined(b)))),
        (Value::Duration(a), Value::Duration(b)) => span(a.checked_add(*b)),
        (Value::Time(time, offset), Value::Duration(d)) | (Value::Duration(d), Value::Time(time, offset)) => {
            moment(time.checked_add(*d), *offset)
        }
        _ => Err(Failure::NoOverload),
    }
}

fn subtract(a: &Value, b: &Value) -> Outcome {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => whole(a.checked_sub(*b)),
        (Value::Uint(a), Value::Uint(b)) => natural(a.checked_sub(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a - b)),
        (Value::Duration(a), Value::Duration(b)) => span(a.checked_sub(*b)),
        (Value::Time(time, offset), Value::Duration(d)) => moment(time.checked_sub(*d), *offset),
        (Value::Time(a, _), Value::Time(b, _)) => Ok(Value::Duration(a.duration_since(*b))),
        _ => Err(Failure::NoOverload),
    }
}

/// An operator with one side.
pub fn unary(name: &str, a: &Value) -> Option<Outcome> {
    Some(match (name, a) {
        (op::LOGICAL_NOT, Value::Bool(b)) => Ok(Value::Bool(!b)),
        (op::NEGATE, Value::Int(n)) => whole(n.checked_neg()),
        (op::NEGATE, Value::Double(n)) => Ok(Value::Double(-n)),
        (op::LOGICAL_NOT | op::NEGATE, _) => Err(Failure::NoOverload),
        _ => return None,
    })
}

fn within(a: &Value, b: &Value) -> Outcome {
    match b {
        Value::List(list) => Ok(Value::Bool(list.items.contains(a))),
        Value::Map(map) => Ok(Value::Bool(Key::of(a).is_some_and(|key| map.entries.contains_key(&key)))),
        _ => Err(Failure::NoOverload),
    }
}

/// The place in a list that a number names.
fn place(index: &Value) -> Result<i64, Failure> {
    match index {
        Value::Int(n) => Ok(*n),
        Value::Uint(n) => i64::try_from(*n).map_or_else(|_| failed("unsigned integer overflow"), Ok),
        Value::Double(n) if n.fract() == 0.0 && n.abs() < 1e15 => Ok(*n as i64),
        Value::Double(n) => failed(format!("unsupported index value {n} in list")),
        other => failed(format!("unsupported index type '{}' in list", other.kind())),
    }
}

fn get(a: &Value, index: &Value) -> Result<Option<Value>, Failure> {
    match a {
        Value::List(list) => {
            let place = usize::try_from(place(index)?).ok();
            Ok(place.and_then(|i| list.items.get(i)).cloned())
        }
        Value::Map(map) => Ok(Key::of(index).and_then(|key| map.entries.get(&key)).cloned()),
        _ => failed(format!("no such key: {}", shown(index))),
    }
}

fn shown(index: &Value) -> String {
    match index {
        Value::Text(text) => text.to_string(),
        other => format!("{other:?}"),
    }
}

fn index(a: &Value, index: &Value) -> Outcome {
    if let Value::Optional(_) = a {
        return optional(a, index);
    }
    match (get(a, index)?, a) {
        (Some(found), _) => Ok(found),
        (None, Value::List(_)) => failed(format!("index out of bounds: {}", place(index)?)),
        (None, _) => failed(format!("no such key: {}", shown(index))),
    }
}

/// `a[?b]` and `a.?b`.
fn optional(a: &Value, index: &Value) -> Outcome {
    let inner = match a {
        Value::Optional(None) => return Ok(Value::Optional(None)),
        Value::Optional(Some(inner)) => inner,
        plain => plain,
    };
    Ok(Value::Optional(get(inner, index)?.map(Arc::new)))
}

/// `a.name`.
pub fn field(a: &Value, name: &str) -> Outcome {
    let key = Key::Text(name.into());
    match a {
        Value::Map(map) => match map.entries.get(&key).or_else(|| known_otherwise(map, name)) {
            Some(value) => Ok(value.clone()),
            None => failed(format!("no such key: {name}")),
        },
        Value::Optional(_) => optional(a, &Value::text(name)),
        _ => failed(format!("no such key: {name}")),
    }
}

/// A word of the language is also known as a field without its underscores.
fn known_otherwise<'a>(map: &'a super::Map, name: &str) -> Option<&'a Value> {
    map.object.then(|| map.entries.get(&Key::Text(format!("__{name}__").into()))).flatten()
}

/// `has(a.name)`.
pub fn has(a: &Value, name: &str) -> bool {
    match a {
        Value::Map(map) => {
            map.entries.contains_key(&Key::Text(name.into())) || known_otherwise(map, name).is_some()
        }
        Value::Optional(Some(inner)) => has(inner, name),
        _ => false,
    }
}
