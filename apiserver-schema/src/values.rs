//! Values of custom resources against their schema, one by one.
//!
//! Inputs: a pruned value with defaults, and for a change the value before. Texts, order and reasons of causes: those of the
//! validator of Kubernetes 1.36, which judges all that is said of a value even where its type is wrong. Absent on
//! purpose: lists and embedded objects as a whole (see `keyed`), and CEL rules.

use crate::formats;
use crate::names;
use crate::schema::{ListKind, Rules, Schema, Type};
use fleet_apiserver_cel::cause::Cause;
use fleet_apiserver_cel::go_text;
use serde_json::Value;
use std::collections::HashMap;
use std::fmt;

/// Causes collected at most.
const MAX_CAUSES: usize = 50;
/// Bytes of a path that the causes of alternatives tell.
const LONGEST_BELOW: usize = 1024;
/// Checks that a text and a truth value without rules pass.
const PLAIN: (usize, usize) = (7, 6);

/// Where a value stands. It becomes a text only for a cause, because a body can have many values below one long name.
#[derive(Clone, Copy)]
pub enum Path<'p> {
    /// A place by its text; empty for the whole object.
    Whole(&'p str),
    /// A field of a map.
    Field(&'p Path<'p>, &'p str),
    /// An item of a list.
    Item(&'p Path<'p>, usize),
}

impl Path<'_> {
    fn is_root(&self) -> bool {
        matches!(self, Path::Whole(""))
    }

    /// Bytes of the text, about.
    fn length(&self) -> usize {
        match self {
            Path::Whole(text) => text.len(),
            Path::Field(parent, name) => parent.length() + 1 + name.len(),
            Path::Item(parent, _) => parent.length() + 3,
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Whole(text) => f.write_str(text),
            Path::Field(Path::Whole(""), name) => f.write_str(name),
            Path::Field(parent, name) => write!(f, "{parent}.{name}"),
            Path::Item(parent, i) => write!(f, "{parent}[{i}]"),
        }
    }
}

/// Judges a value and what is in it; what equals its counterpart in the value before is not judged again. Returns how many
/// checks it passed, by which alternatives are compared.
pub fn judge(
    schema: &Schema,
    value: &Value,
    old: Option<&Value>,
    path: &Path<'_>,
    causes: &mut Vec<Cause>,
) -> usize {
    if old == Some(value) || causes.len() >= MAX_CAUSES {
        return 0;
    }
    let node = schema.get();
    let format = format_of(node);
    let mut passed = 0;
    if node.ty != Type::Any || format.is_some() {
        let wrong = mistyped(node, format, value, path);
        passed += usize::from(wrong.is_none());
        causes.extend(wrong);
    }
    let rules = node.rules.as_deref();
    if value.is_null() {
        causes.extend(rules.and_then(|rules| not_listed(rules, value, path)));
        return passed;
    }
    // One for each kind of check that is made, and one for the whole.
    passed += 4 + usize::from(node.ty != Type::Any || format.is_some());
    if let Some(rules) = rules {
        passed += junctions(rules, value, old, path, causes);
    }
    match value {
        Value::String(text) => {
            passed += 1 + usize::from(format.is_some());
            if let Some(rules) = rules {
                causes.extend(text_problem(rules, text, path));
            }
            causes.extend(format.filter(|format| !has_format(format, text)).map(|format| {
                let why = format!("{path} in body must be of type {format}: {}", go_text::quoted(text));
                mistaken(path, value, &why)
            }));
        }
        Value::Number(_) => {
            passed += 2;
            number(node, format, value, path, causes);
        }
        Value::Array(list) => passed += 2 + items(node, list, old, path, causes),
        _ => {}
    }
    if let Some(rules) = rules {
        size(rules, value, path, causes);
        causes.extend(not_listed(rules, value, path));
    }
    if let Value::Object(map) = value {
        passed += 1;
        for name in node.required.iter().filter(|name| !map.contains_key(&***name)) {
            causes.push(Cause::required(Path::Field(path, name).to_string(), ""));
        }
        for (key, value) in map {
            let before = old.and_then(|old| old.get(key));
            if path.is_root() && matches!(key.as_str(), "metadata" | "apiVersion" | "kind") {
                if let Some(naming) = node.naming.as_ref().filter(|_| key == "metadata") {
                    passed += judge(naming, value, before, &Path::Whole(key), causes);
                }
                continue;
            }
            if let Some(field) = node.field(key) {
                passed += field_of(field, value, before, path, key, causes);
            }
        }
    }
    passed
}

/// The format of a schema, if it is one that its type can have.
fn format_of(node: &Schema) -> Option<&str> {
    let format = node.rules.as_ref()?.format.as_deref()?;
    let fits = match node.ty {
        Type::Integer => matches!(format, "int32" | "int64"),
        Type::Number => matches!(format, "float" | "double"),
        Type::String | Type::Any | Type::IntOrString => formats::is_known(format),
        _ => false,
    };
    fits.then_some(format)
}

/// A value of another type than its schema says.
fn mistyped(node: &Schema, format: Option<&str>, value: &Value, path: &Path<'_>) -> Option<Cause> {
    if value.is_null() && (node.nullable || node.ty == Type::Any) {
        return None;
    }
    let want = match (node.ty, value) {
        (Type::Object, v) if !v.is_object() => "object",
        (Type::Array, v) if !v.is_array() => "array",
        (Type::String, v) if !v.is_string() => "string",
        (Type::Integer, v) if !is_integer(v) => "integer",
        (Type::Number, v) if !v.is_number() => "number",
        (Type::Boolean, v) if !v.is_boolean() => "boolean",
        (Type::IntOrString, v) if !(v.is_string() || v.is_i64() || v.is_u64()) => "integer,string",
        _ => return None,
    };
    let (want, found) = match (value, format) {
        (Value::Null, _) => (want, "null"),
        (Value::String(_), _) => (want, "string"),
        (Value::Array(_), _) => (want, "array"),
        // What is neither a text nor a list is told by its format, where one is wanted.
        (Value::Number(n), Some(format)) => (format, if n.is_i64() { "int64" } else { "float64" }),
        (_, Some(format)) => (format, ""),
        (Value::Bool(_), None) => (want, "boolean"),
        (Value::Number(n), None) => (want, if n.is_i64() { "integer" } else { "number" }),
        (Value::Object(_), None) => (want, "object"),
    };
    let why = format!("{path} in body must be of type {want}: \"{found}\"");
    Some(mistaken(path, &Value::String(found.into()), &why))
}

fn mistaken(path: &Path<'_>, value: &Value, why: &str) -> Cause {
    Cause { reason: "FieldValueTypeInvalid", ..Cause::invalid(path.to_string(), value, why) }
}

/// Within 64 bits. What has more is read as a float, of which the whole ones count as integers up to 2^53.
fn is_integer(value: &Value) -> bool {
    value.is_i64() || (!value.is_u64() && value.as_f64().is_some_and(is_whole))
}

/// A whole number up to 2^53, but for what gets lost in a division.
fn is_whole(f: f64) -> bool {
    const MOST: f64 = 9_007_199_254_740_991.0;
    const LOST: f64 = 1e-9;
    let below = f.trunc();
    let near = || below != 0.0 && (f - below).abs() / (f.abs() + below.abs()) < LOST;
    f.abs() <= MOST && (f == below || near())
}

/// A value that is none of those listed. Null is never among them.
fn not_listed(rules: &Rules, value: &Value, path: &Path<'_>) -> Option<Cause> {
    let list = &rules.enumeration;
    if list.is_empty() || (!value.is_null() && list.contains(value)) {
        return None;
    }
    let allowed = |one: &Value| match one {
        Value::String(text) => go_text::quoted(text),
        other => go_text::quoted(&other.to_string()),
    };
    let allowed: Vec<String> = list.iter().map(allowed).collect();
    let message =
        format!("Unsupported value: {}: supported values: {}", go_text::shown(value), allowed.join(", "));
    Some(Cause::new("FieldValueNotSupported", path.to_string(), message))
}

/// A cause of a combination as a whole, or of a number's range, has no place of its own.
fn whole(why: &str) -> Cause {
    Cause::invalid("<nil>", &Value::String(String::new()), why)
}

/// Judges by `anyOf`, `oneOf`, `allOf` and `not`. Of alternatives that all fail, the causes of the one are told that passes
/// most checks.
fn junctions(
    rules: &Rules,
    value: &Value,
    old: Option<&Value>,
    path: &Path<'_>,
    causes: &mut Vec<Cause>,
) -> usize {
    let place = || go_text::quoted(&path.to_string());
    // Alternatives have causes even where another one fits, so a body can have very many of them.
    let below = if path.length() > LONGEST_BELOW { &Path::Whole("…") } else { path };
    let one = |s: &Schema| {
        let mut inner = Vec::new();
        let passed = judge(s, value, old, below, &mut inner);
        (inner, passed)
    };
    let best = |found: Vec<(Vec<Cause>, usize)>| {
        found.into_iter().reduce(|best, next| if next.1 > best.1 { next } else { best }).unwrap_or_default()
    };
    let mut passed = 0;
    let mut tried = Vec::new();
    for alternative in &rules.any_of {
        let found = one(alternative);
        if found.0.is_empty() {
            passed += found.1;
            tried.clear();
            break;
        }
        tried.push(found);
    }
    if !tried.is_empty() {
        causes.push(whole(&format!("{} must validate at least one schema (anyOf)", place())));
        let (inner, count) = best(tried);
        causes.extend(inner);
        passed += count;
    }
    let (good, bad): (Vec<_>, Vec<_>) = rules.one_of.iter().map(one).partition(|(inner, _)| inner.is_empty());
    let must = "must validate one and only one schema (oneOf).";
    match (good.as_slice(), bad.is_empty()) {
        ([], true) => {}
        ([], false) => {
            causes.push(whole(&format!("{} {must} Found none valid", place())));
            let (inner, count) = best(bad);
            causes.extend(inner);
            passed += count;
        }
        ([(_, count)], _) => passed += count,
        (several, _) => {
            causes.push(whole(&format!("{} {must} Found {} valid alternatives", place(), several.len())));
        }
    }
    let mut valid = 0;
    for (inner, count) in rules.all_of.iter().map(one) {
        valid += usize::from(inner.is_empty());
        causes.extend(inner);
        passed += count;
    }
    if valid < rules.all_of.len() {
        let none = if valid == 0 { ". None validated" } else { "" };
        causes.push(whole(&format!("{} must validate all the schemas (allOf){none}", place())));
    }
    if let Some(not) = &rules.not {
        let mut inner = Vec::new();
        // Here what has not changed counts too.
        judge(not, value, None, below, &mut inner);
        if inner.is_empty() {
            causes.push(whole(&format!("{} must not validate the schema (not)", place())));
        }
    }
    passed
}

/// The first thing that is wrong with a text: its length, then its pattern.
fn text_problem(rules: &Rules, text: &str, path: &Path<'_>) -> Option<Cause> {
    let invalid = |why: String| {
        Some(Cause::invalid(path.to_string(), &Value::from(text), &format!("{path} in body {why}")))
    };
    let n = text.chars().count() as u64;
    if let Some(most) = rules.length.1.filter(|most| n > *most) {
        let bytes = if most == 1 { "byte" } else { "bytes" };
        let why = format!("Too long: may not be more than {most} {bytes}");
        return Some(Cause::new("FieldValueTooLong", path.to_string(), why));
    }
    if let Some(least) = rules.length.0.filter(|least| n < *least) {
        return invalid(format!("should be at least {least} chars long"));
    }
    let pattern = rules.pattern.as_ref().filter(|pattern| !pattern.is_match(text))?;
    invalid(format!("should match '{}'", pattern.text()))
}

fn has_format(format: &str, text: &str) -> bool {
    match format {
        "k8s-short-name" => names::label(text).is_empty(),
        "k8s-long-name" => names::subdomain(text).is_empty(),
        _ => formats::fits(format, text),
    }
}

/// A number that its type and format cannot hold: `what` is the value itself or a bound of it.
fn out_of_range(node: &Schema, format: Option<&str>, f: f64, what: &str, path: &Path<'_>) -> Option<Cause> {
    // All floats from here to there are whole numbers that fit.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    let (fits, ty) = match (node.ty, format) {
        (Type::Integer, Some("int32")) => {
            (f.fract() == 0.0 && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&f), "integer")
        }
        (Type::Integer, _) => (f.fract() == 0.0 && (-LIMIT..LIMIT).contains(&f), "integer"),
        (Type::Number, Some("float")) => ((f as f32).is_finite(), "number"),
        _ => return None,
    };
    let format =
        format.map_or_else(|| "(default format)".to_string(), |format| format!("with format {format}"));
    (!fits).then(|| whole(&format!("{what} value must be of type {ty} {format} in {path}")))
}

fn number(node: &Schema, format: Option<&str>, value: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let Some(f) = value.as_f64() else { return };
    // Within 64 bits it is exact.
    let exact = value.as_i64();
    if exact.is_none_or(|n| format == Some("int32") && i32::try_from(n).is_err()) {
        causes.extend(out_of_range(node, format, f, "Checked", path));
    }
    let Some(rules) = node.rules.as_deref() else { return };
    let invalid = |why: String| Cause::invalid(path.to_string(), value, &format!("{path} in body {why}"));
    if let Some(factor) = rules.multiple_of {
        let odd = out_of_range(node, format, factor, "MultipleOf", path);
        let whole_numbers = exact.filter(|_| odd.is_none()).map(|n| (n, factor as i64));
        causes.extend(odd);
        let (positive, fits, told) = match whole_numbers {
            Some((n, factor)) => (factor > 0, factor > 0 && n % factor == 0, factor.to_string()),
            None => {
                let times = if factor < 1.0 { 1.0 / factor * f } else { f / factor };
                (factor > 0.0, is_whole(times), go_text::float(factor))
            }
        };
        if !positive {
            let why = format!("factor MultipleOf declared for {path} must be positive: {told}");
            causes.push(Cause::invalid(path.to_string(), value, &why));
        } else if !fits {
            causes.push(invalid(format!("should be a multiple of {told}")));
        }
    }
    let mut bound = |bound: Option<(f64, bool)>, side: &str, beyond: fn(f64, f64) -> bool, word: &str| {
        let Some((limit, exclusive)) = bound else { return };
        let odd = out_of_range(node, format, limit, side, path);
        let exact = exact.filter(|_| odd.is_none()).map(|n| (n, limit as i64));
        causes.extend(odd);
        let (wrong, equal, told) = match exact {
            Some((n, limit)) => {
                let order = n.cmp(&limit) as i8;
                (beyond(f64::from(order), 0.0), n == limit, limit.to_string())
            }
            None => (beyond(f, limit), f == limit, go_text::float(limit)),
        };
        if wrong || (exclusive && equal) {
            let or_equal = if exclusive { "" } else { "or equal to " };
            causes.push(invalid(format!("should be {word} than {or_equal}{told}")));
        }
    };
    bound(rules.minimum, "Minimum boundary", |n, limit| n < limit, "greater");
    bound(rules.maximum, "Maximum boundary", |n, limit| n > limit, "less");
}

/// How many items or properties there may be.
fn size(rules: &Rules, value: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let (n, bounds, of) = match value {
        Value::Array(list) => (list.len() as u64, rules.items, "items"),
        Value::Object(map) => (map.len() as u64, rules.properties, "properties"),
        _ => return,
    };
    if let Some(least) = bounds.0.filter(|least| n < *least) {
        let why = format!("{path} in body should have at least {least} {of}");
        causes.push(Cause::invalid(path.to_string(), &Value::from(n), &why));
    }
    if let Some(most) = bounds.1.filter(|most| n > *most) {
        let items = if most == 1 { "item" } else { "items" };
        let message = format!("Too many: {n}: must have at most {most} {items}");
        causes.push(Cause::new("FieldValueTooMany", path.to_string(), message));
    }
}

fn items(
    node: &Schema,
    list: &[Value],
    old: Option<&Value>,
    path: &Path<'_>,
    causes: &mut Vec<Cause>,
) -> usize {
    let Some(items) = &node.items else { return 0 };
    let before = Before::of(node.list_kind(), old);
    let mut passed = 0;
    for (i, v) in list.iter().enumerate() {
        let before = before.counterpart(node.list_kind(), v);
        passed += judge(items, v, before, &Path::Item(path, i), causes);
    }
    passed
}

/// The items of a list before, by their keys. Items of other lists have no identity over a change.
struct Before<'a>(HashMap<String, &'a Value>);

impl<'a> Before<'a> {
    fn of(kind: &ListKind, old: Option<&'a Value>) -> Self {
        let mut known = HashMap::new();
        if let ListKind::Map(keys) = kind {
            for item in old.and_then(Value::as_array).into_iter().flatten() {
                known.entry(identity(keys, item)).or_insert(item);
            }
        }
        Self(known)
    }

    fn counterpart(&self, kind: &ListKind, item: &Value) -> Option<&'a Value> {
        match kind {
            // Most lists are new or have no keys.
            ListKind::Map(keys) if !self.0.is_empty() => self.0.get(&identity(keys, item)).copied(),
            _ => None,
        }
    }
}

/// What tells an item from the others of its list.
fn identity(keys: &[Box<str>], item: &Value) -> String {
    keys.iter().map(|k| item.get(&**k).map(Value::to_string).unwrap_or_default() + "\0").collect()
}

fn field_of(
    field: &Schema,
    v: &Value,
    old: Option<&Value>,
    path: &Path<'_>,
    key: &str,
    causes: &mut Vec<Cause>,
) -> usize {
    let node = field.get();
    // Most values are scalars without rules.
    match (node.ty, v) {
        (Type::String, Value::String(_)) if node.rules.is_none() => PLAIN.0,
        (Type::Boolean, Value::Bool(_)) if node.rules.is_none() => PLAIN.1,
        _ => judge(field, v, old, &Path::Field(path, key), causes),
    }
}

#[cfg(test)]
mod tests;
