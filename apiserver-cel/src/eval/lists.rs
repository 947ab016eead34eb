//! Functions of lists.

use super::mark::Index;
use super::operators;
use super::outcome::{Failure, Outcome, failed};
use super::value::{List, Value};
use crate::parse::SORT_BY;
use std::cmp::Ordering;
use std::sync::Arc;

/// Longest list that is made from nothing.
const MAX_RANGE: i64 = 100_000;

pub fn call(name: &str, values: &[Value]) -> Option<Outcome> {
    if let ("lists.range", [Value::Int(n)]) = (name, values) {
        return Some(range(*n));
    }
    let [Value::List(list), args @ ..] = values else { return None };
    let items = &list.items;
    let made = |items: Vec<Value>| Some(Ok(Value::list(items)));
    match (name, args) {
        ("isSorted", []) => Some(sorted(items)),
        ("sum", []) => Some(sum(items)),
        ("min", []) => Some(extreme(items, "min", Ordering::is_lt)),
        ("max", []) => Some(extreme(items, "max", Ordering::is_gt)),
        ("indexOf", [item]) => Some(Ok(place(items.iter().position(|i| i == item)))),
        ("lastIndexOf", [item]) => Some(Ok(place(items.iter().rposition(|i| i == item)))),
        ("join", rest) => match rest {
            [] => Some(join(items, "")),
            [Value::Text(separator)] => Some(join(items, separator)),
            _ => None,
        },
        ("slice", [Value::Int(from), Value::Int(to)]) => Some(slice(items, *from, *to)),
        ("flatten", []) => made(flatten(list, 1)),
        ("flatten", [Value::Int(depth)]) => match u32::try_from(*depth) {
            Ok(depth) => made(flatten(list, depth)),
            Err(_) => Some(failed("level must be non-negative")),
        },
        ("sort", []) => Some(sort(items, items)),
        (SORT_BY, [Value::List(keys)]) => Some(sort(items, &keys.items)),
        ("distinct", []) => {
            let mut seen = Index::default();
            made(items.iter().filter(|item| seen.add(item)).cloned().collect())
        }
        ("reverse", []) => made(items.iter().rev().cloned().collect()),
        ("first", []) => Some(Ok(Value::Optional(items.first().cloned().map(Arc::new)))),
        ("last", []) => Some(Ok(Value::Optional(items.last().cloned().map(Arc::new)))),
        _ => None,
    }
}

fn place(at: Option<usize>) -> Value {
    Value::Int(at.map_or(-1, |i| i as i64))
}

fn range(n: i64) -> Outcome {
    if n > MAX_RANGE {
        return failed(format!("lists.range: found {n}; allowed: {MAX_RANGE}"));
    }
    Ok(Value::list((0..n).map(Value::Int).collect()))
}

fn order(a: &Value, b: &Value) -> Result<Ordering, Failure> {
    a.order(b).ok_or(Failure::NoOverload)
}

fn sorted(items: &[Value]) -> Outcome {
    for pair in items.windows(2) {
        if order(&pair[0], &pair[1])?.is_gt() {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

fn sum(items: &[Value]) -> Outcome {
    // The declared type says what an empty list sums up to; a number equals any other that is zero.
    let Some((first, rest)) = items.split_first() else { return Ok(Value::Int(0)) };
    rest.iter().try_fold(first.clone(), |sum, item| operators::add(&sum, item))
}

fn extreme(items: &[Value], name: &str, better: fn(Ordering) -> bool) -> Outcome {
    let Some((first, rest)) = items.split_first() else {
        return failed(format!("{name} called on empty list"));
    };
    let mut best = first;
    for item in rest {
        if better(order(item, best)?) {
            best = item;
        }
    }
    Ok(best.clone())
}

fn join(items: &[Value], separator: &str) -> Outcome {
    let mut texts = Vec::with_capacity(items.len());
    for item in items {
        let Value::Text(text) = item else { return Err(Failure::NoOverload) };
        texts.push(&**text);
    }
    Ok(Value::text(texts.join(separator)))
}

fn slice(items: &[Value], from: i64, to: i64) -> Outcome {
    if from < 0 || to < 0 {
        return failed(format!("cannot slice({from}, {to}), negative indexes not supported"));
    }
    if from > to {
        return failed(format!(
            "cannot slice({from}, {to}), start index must be less than or equal to end index"
        ));
    }
    match items.get(from as usize..to as usize) {
        Some(part) => Ok(Value::list(part.to_vec())),
        None => failed(format!("cannot slice({from}, {to}), list is length {}", items.len())),
    }
}

fn flatten(list: &List, depth: u32) -> Vec<Value> {
    let mut out = Vec::new();
    for item in &list.items {
        match item {
            Value::List(inner) if depth > 0 => out.extend(flatten(inner, depth - 1)),
            other => out.push(other.clone()),
        }
    }
    out
}

fn sort(items: &[Value], keys: &[Value]) -> Outcome {
    if items.len() != keys.len() {
        return Err(Failure::NoOverload);
    }
    let mut broken = None;
    let mut places: Vec<usize> = (0..items.len()).collect();
    places.sort_by(|a, b| {
        order(&keys[*a], &keys[*b]).unwrap_or_else(|why| {
            broken = Some(why);
            Ordering::Equal
        })
    });
    match broken {
        Some(why) => Err(why),
        None => Ok(Value::list(places.into_iter().map(|i| items[i].clone()).collect())),
    }
}
