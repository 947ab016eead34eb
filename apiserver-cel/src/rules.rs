//! `x-kubernetes-validations`: CEL rules of a CRD.
//!
//! The expressions are parsed and checked once per CRD (`admit`), and evaluated when an object is written.

mod admit;
mod check;
mod cost;
mod decl;
mod known;
mod literals;
mod shape;
mod signatures;
mod types;

pub use admit::problems;
pub use known::{Known, Unfit, Wanted, device_problem};
pub use signatures::SIGNATURES;

use crate::cause::Cause;
use crate::eval::{Failure, Identity, Key, Mark, Scope, Value as Cel};
use crate::go_text;
use serde_json::Value;
use shape::{Kind, Node, Rule};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The key under which a schema carries rules.
const KEY: &str = "x-kubernetes-validations";
/// Steps that all rules of one object may take.
const MAX_STEPS: u64 = 10_000_000;
/// Bytes of places after which no more broken rules are told: the object is refused as it is.
const MAX_TOLD: usize = 1 << 20;
/// Longest message of a `messageExpression`.
const MAX_MESSAGE: usize = 5 * 1024;

/// Parsed rules of one version of a definition.
pub struct Rules(Node);

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rules")
    }
}

/// A value under judgement.
struct Judged<'a> {
    value: &'a Value,
    /// What stood there before, if that can be told.
    old: Option<&'a Value>,
    /// Neither it nor what it is part of has changed: a rule it breaks was broken before.
    unchanged: bool,
}

struct Judge {
    causes: Vec<Cause>,
    steps: u64,
    /// Bytes of the places of all causes.
    told: usize,
}

/// Where a value stands; written for what is told of it alone, since keys of maps may be long.
enum At<'a> {
    Root,
    Field(&'a At<'a>, &'a str),
    Item(&'a At<'a>, usize),
    Key(&'a At<'a>, &'a str),
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::Root => Ok(()),
            At::Field(At::Root, name) => f.write_str(name),
            At::Field(above, name) => write!(f, "{above}.{name}"),
            At::Item(above, index) => write!(f, "{above}[{index}]"),
            At::Key(above, key) => write!(f, "{above}[{key}]"),
        }
    }
}

impl Rules {
    /// Parses the rules of a schema; `None` where it has none.
    pub fn compile(openapi: &Value) -> Option<Rules> {
        has_rules(openapi).then(|| Rules(Node::compile(openapi)))
    }

    /// The rules that an object breaks. On an update, what has not changed is not judged again.
    pub fn broken(&self, value: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut judge = Judge { causes: Vec::new(), steps: 0, told: 0 };
        judge.node(&self.0, &At::Root, &Judged { value, old, unchanged: old == Some(value) });
        judge.causes
    }
}

impl Judge {
    fn node(&mut self, node: &Node, at: &At<'_>, judged: &Judged<'_>) {
        if !node.judges() || judged.value.is_null() {
            return;
        }
        self.own(node, at, judged);
        match (&node.kind, judged.value) {
            (Kind::List(inner, identity), Value::Array(items)) => {
                let before = match identity {
                    Identity::Keys(keys) => Some(Before::of(inner, keys, judged.old)),
                    _ => None,
                };
                for (i, item) in items.iter().enumerate() {
                    let old = before.as_ref().and_then(|before| before.counterpart(item));
                    self.node(inner, &At::Item(at, i), &judged.part(item, old));
                }
            }
            (Kind::Map(inner), Value::Object(map)) => {
                for (key, value) in map {
                    let old = judged.old.and_then(|old| old.get(key));
                    self.node(inner, &At::Key(at, key), &judged.part(value, old));
                }
            }
            (Kind::Object(fields), Value::Object(map)) => {
                for field in fields {
                    let Some(value) = map.get(&field.name) else { continue };
                    let old = judged.old.and_then(|old| old.get(&field.name));
                    self.node(&field.node, &At::Field(at, &field.name), &judged.part(value, old));
                }
            }
            _ => {}
        }
    }

    /// Judges by the rules of one place.
    fn own(&mut self, node: &Node, at: &At<'_>, judged: &Judged<'_>) {
        if node.rules.is_empty() || self.told > MAX_TOLD {
            return;
        }
        let value = node.value(judged.value);
        let old = judged.old.filter(|old| !old.is_null()).map(|old| node.value(old));
        for rule in &node.rules {
            if self.steps > MAX_STEPS {
                let why = "validation failed due to running out of cost budget, no further validation rules will be run";
                self.tell(Cause::invalid(at.to_string(), judged.value, why));
                return;
            }
            let old = match (&old, rule.optional_old) {
                (Some(old), false) => Some(old.clone()),
                (old, true) => Some(Cel::Optional(old.clone().map(Arc::new))),
                (None, false) if rule.transition => continue,
                (None, false) => None,
            };
            let mut names = vec![("self", value.clone())];
            names.extend(old.map(|old| ("oldSelf", old)));
            let mut scope = Scope::new(names);
            let found = scope.value(&rule.rule.root);
            if found == Ok(Cel::Bool(true)) || (!rule.transition && judged.unchanged) {
                self.steps += scope.steps();
                continue;
            }
            let at = at.to_string();
            let cause = match found {
                Ok(Cel::Bool(false)) => rule.broken(node, &at, judged.value, &mut scope),
                Ok(_) => rule.failed(node, &at, &Failure::NoOverload),
                Err(why) => rule.failed(node, &at, &why),
            };
            self.steps += scope.steps();
            self.tell(cause);
        }
    }

    fn tell(&mut self, cause: Cause) {
        self.told = self.told.saturating_add(cause.field.len());
        self.causes.push(cause);
    }
}

impl Judged<'_> {
    fn part<'a>(&self, value: &'a Value, old: Option<&'a Value>) -> Judged<'a> {
        // What cannot be found in the state before has changed if the whole has.
        Judged { value, old, unchanged: old.map_or(self.unchanged, |old| old == value) }
    }
}

impl Rule {
    fn broken<'a>(&'a self, node: &Node, at: &str, value: &Value, scope: &mut Scope<'a>) -> Cause {
        let computed = self.message_expression.as_ref().and_then(|e| match scope.value(&e.root) {
            Ok(Cel::Text(text)) => Some(text.trim().to_string()),
            _ => None,
        });
        let computed = computed.filter(|m| !m.is_empty() && !m.contains('\n') && m.len() <= MAX_MESSAGE);
        let message = computed.unwrap_or_else(|| match self.message.as_str() {
            "" => format!("failed rule: {}", self.text),
            given => given.to_string(),
        });
        let at = place(node, at, &self.field_path);
        // A part that is no single value is not shown.
        let shown = match value {
            Value::Object(_) | Value::Array(_) => String::new(),
            single => format!("{}: ", go_text::shown(single)),
        };
        match self.reason.as_str() {
            "FieldValueRequired" => Cause::required(at, &message),
            "FieldValueForbidden" => Cause::forbidden(at, &message),
            "FieldValueDuplicate" => {
                Cause::new("FieldValueDuplicate", at, format!("Duplicate value: {shown}{message}"))
            }
            _ => Cause::new("FieldValueInvalid", at, format!("Invalid value: {shown}{message}")),
        }
    }

    /// A rule that cannot be judged.
    fn failed(&self, node: &Node, at: &str, why: &Failure) -> Cause {
        let name = if self.message.is_empty() { &self.text } else { &self.message };
        Cause::new("FieldValueInvalid", at, format!("Invalid value: {:?}: {}", node.named, why.message(name)))
    }
}

/// The items of a list as it was before, by the keys that tell them apart.
struct Before<'a> {
    inner: &'a Node,
    keys: &'a [String],
    items: BTreeMap<Mark, Vec<(ItemKey, &'a Value)>>,
}

/// What the fields that are the key hold.
type ItemKey = Vec<Option<Cel>>;

impl<'a> Before<'a> {
    fn of(inner: &'a Node, keys: &'a [String], old: Option<&'a Value>) -> Before<'a> {
        let mut before = Before { inner, keys, items: BTreeMap::new() };
        for item in old.and_then(Value::as_array).into_iter().flatten() {
            if let Some(key) = before.key_of(item) {
                before.items.entry(mark_of(&key)).or_default().push((key, item));
            }
        }
        before
    }

    fn key_of(&self, item: &Value) -> Option<ItemKey> {
        let Cel::Map(map) = self.inner.value(item) else { return None };
        let part = |key: &String| map.entries.get(&Key::Text(key.as_str().into())).cloned();
        Some(self.keys.iter().map(part).collect())
    }

    /// The first item with the same keys.
    fn counterpart(&self, item: &Value) -> Option<&'a Value> {
        let wanted = self.key_of(item)?;
        let alike = self.items.get(&mark_of(&wanted))?;
        alike.iter().find(|(key, _)| *key == wanted).map(|(_, known)| *known)
    }
}

fn mark_of(key: &[Option<Cel>]) -> Mark {
    Mark::of_parts(key.iter().map(Option::as_ref))
}

fn below(at: &str, name: &str) -> String {
    if at.is_empty() { name.to_string() } else { format!("{at}.{name}") }
}

/// The place that a `fieldPath` names, such as `.a['b.c']`.
fn place(node: &Node, at: &str, field_path: &str) -> String {
    let (mut at, mut node, mut rest) = (at.to_string(), Some(node), field_path);
    while !rest.is_empty() {
        let name;
        (name, rest) = match rest.strip_prefix("['").and_then(|inner| inner.split_once("']")) {
            Some(found) => found,
            None => {
                let plain = rest.strip_prefix('.').unwrap_or(rest);
                plain.split_at(plain.find(['.', '[']).unwrap_or(plain.len()))
            }
        };
        if name.is_empty() {
            break;
        }
        match node.map(|node| &node.kind) {
            Some(Kind::Map(inner)) => {
                at = format!("{at}[{name}]");
                node = Some(inner);
            }
            Some(Kind::Object(fields)) => {
                at = below(&at, name);
                node = fields.iter().find(|field| field.name == name).map(|field| &field.node);
            }
            _ => at = below(&at, name),
        }
    }
    at
}

fn has_rules(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => map.contains_key(KEY) || map.values().any(has_rules),
        Value::Array(items) => items.iter().any(has_rules),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
