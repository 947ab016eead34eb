//! JSONPath as printer columns use it, as far as the real server evaluates it for a column.
//!
//! Inputs: paths such as `.status.conditions[?(@.type=="Ready")].status` or `.items[-1:].name`, and objects. What a path cannot be
//! followed through has no value, and neither has a comparison of different types. Absent on purpose: `range`, and text
//! around a path, which no column shows.

mod parser;

use serde_json::Value;
use std::borrow::Cow;
use std::cmp::Ordering;

/// Values that a path may lead to at a time; what has more has none.
const MOST_FOUND: usize = 100_000;

/// One part of a path.
#[derive(Debug, Clone, PartialEq)]
enum Node {
    Field(String),
    Wildcard,
    /// All values below, at any depth.
    Recursive,
    Array(Range),
    Union(Vec<Vec<Node>>),
    Filter(Box<Filter>),
    /// A text, number or truth value.
    Literal(Value),
    /// A word without a meaning here.
    Word,
}

/// Items of a list.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Range {
    start: Option<i64>,
    end: Option<i64>,
    step: Option<i64>,
    /// The end follows from a single index.
    single: bool,
}

/// Which items of a list are meant: those for which the left side has a value, or that compare to the right.
#[derive(Debug, Clone, PartialEq)]
struct Filter {
    left: Vec<Node>,
    compared: Option<(String, Vec<Node>)>,
}

/// The path cannot be followed in this object.
struct Lost;

type Found<'v> = Vec<Cow<'v, Value>>;

/// A compiled path.
#[derive(Debug, Clone, Default)]
pub struct JsonPath(Vec<Node>);

impl JsonPath {
    /// Compiles a path without braces; None if it is none.
    pub fn new(text: &str) -> Option<JsonPath> {
        parser::parse(text).map(JsonPath)
    }

    /// The first value that the path leads to.
    pub fn first<'v>(&self, value: &'v Value) -> Option<Cow<'v, Value>> {
        let found = follow(&self.0, vec![Cow::Borrowed(value)]).ok()?;
        found.into_iter().next()
    }
}

fn follow<'v>(nodes: &[Node], start: Found<'v>) -> Result<Found<'v>, Lost> {
    nodes.iter().try_fold(start, |found, node| {
        let next = step(node, found)?;
        if next.len() > MOST_FOUND { Err(Lost) } else { Ok(next) }
    })
}

fn step<'v>(node: &Node, found: Found<'v>) -> Result<Found<'v>, Lost> {
    let mut next = Vec::new();
    match node {
        Node::Word => return Err(Lost),
        Node::Literal(value) => next.push(Cow::Owned(value.clone())),
        Node::Recursive => {
            for value in found {
                below(value, &mut next)?;
            }
        }
        Node::Union(paths) => {
            for path in paths {
                next.extend(follow(path, found.clone())?);
            }
        }
        Node::Field(name) => next.extend(found.into_iter().filter_map(|value| field(value, name))),
        Node::Wildcard => next.extend(found.into_iter().flat_map(children)),
        Node::Array(range) => {
            for value in found.into_iter().filter(|value| !value.is_null()) {
                next.extend(range.items(children_of_list(value)?)?);
            }
        }
        Node::Filter(filter) => {
            for value in found {
                for item in children_of_list(value)? {
                    if filter.takes(&item)? {
                        next.push(item);
                    }
                }
            }
        }
    }
    Ok(next)
}

fn field<'v>(value: Cow<'v, Value>, name: &str) -> Option<Cow<'v, Value>> {
    match value {
        Cow::Borrowed(value) => value.as_object()?.get(name).map(Cow::Borrowed),
        Cow::Owned(mut value) => value.as_object_mut()?.remove(name).map(Cow::Owned),
    }
}

fn children(value: Cow<'_, Value>) -> Found<'_> {
    match value {
        Cow::Borrowed(Value::Object(map)) => map.values().map(Cow::Borrowed).collect(),
        Cow::Borrowed(Value::Array(list)) => list.iter().map(Cow::Borrowed).collect(),
        Cow::Owned(Value::Object(map)) => map.into_iter().map(|(_, value)| Cow::Owned(value)).collect(),
        Cow::Owned(Value::Array(list)) => list.into_iter().map(Cow::Owned).collect(),
        _ => Vec::new(),
    }
}

fn children_of_list(value: Cow<'_, Value>) -> Result<Found<'_>, Lost> {
    if value.is_array() { Ok(children(value)) } else { Err(Lost) }
}

/// Adds a value that has something in it, and all such values below.
fn below<'v>(value: Cow<'v, Value>, all: &mut Found<'v>) -> Result<(), Lost> {
    let has_parts = match &*value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => false,
    };
    if !has_parts {
        return Ok(());
    }
    if all.len() >= MOST_FOUND {
        return Err(Lost);
    }
    all.push(value.clone());
    children(value).into_iter().try_for_each(|child| below(child, all))
}

impl Range {
    fn items<'v>(self, list: Found<'v>) -> Result<Found<'v>, Lost> {
        let length = i64::try_from(list.len()).map_err(|_| Lost)?;
        let start = self.start.unwrap_or(0);
        let start = if start < 0 { start + length } else { start };
        let end = match self.end {
            None => length,
            Some(end) if end < 0 || (end == 0 && self.single) => end + length,
            Some(end) => end,
        };
        if start == end {
            return Ok(Vec::new());
        }
        if !(0..length).contains(&start) || end > length || start > end {
            return Err(Lost);
        }
        let step = usize::try_from(self.step.unwrap_or(1)).map_err(|_| Lost)?;
        if step == 0 {
            return Err(Lost);
        }
        // Both are within the list.
        let (start, end) = (start as usize, end as usize);
        Ok(list.into_iter().take(end).skip(start).step_by(step).collect())
    }
}

impl Filter {
    fn takes(&self, item: &Value) -> Result<bool, Lost> {
        let side = |nodes: &[Node]| {
            let found = follow(nodes, vec![Cow::Borrowed(item)])?;
            let mut found = found.into_iter();
            match (found.next(), found.next()) {
                (first, None) => Ok(first),
                _ => Err(Lost),
            }
        };
        let Some((operator, right)) = &self.compared else {
            return Ok(follow(&self.left, vec![Cow::Borrowed(item)]).map_or(true, |found| !found.is_empty()));
        };
        let (Some(left), Some(right)) = (side(&self.left)?, side(right)?) else { return Ok(false) };
        compare(&left, operator, &right)
    }
}

/// Values of one type are compared; truth values only for equality.
fn compare(left: &Value, operator: &str, right: &Value) -> Result<bool, Lost> {
    let order = match (left, right) {
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) if matches!(operator, "==" | "!=") => Some(a.cmp(b)),
        (Value::Number(a), Value::Number(b)) if a.is_i64() && b.is_i64() => Some(a.as_i64().cmp(&b.as_i64())),
        (Value::Number(a), Value::Number(b)) if !a.is_i64() && !b.is_i64() => {
            a.as_f64().zip(b.as_f64()).and_then(|(a, b)| a.partial_cmp(&b))
        }
        _ => None,
    };
    let order = order.ok_or(Lost)?;
    match operator {
        "==" => Ok(order == Ordering::Equal),
        "!=" => Ok(order != Ordering::Equal),
        "<" => Ok(order == Ordering::Less),
        "<=" => Ok(order != Ordering::Greater),
        ">" => Ok(order == Ordering::Greater),
        ">=" => Ok(order != Ordering::Less),
        _ => Err(Lost),
    }
}

#[cfg(test)]
mod tests;
