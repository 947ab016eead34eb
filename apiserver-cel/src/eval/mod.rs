//! Evaluates expressions.
//!
//! Inputs: a tree, and values for its names. The result is a value or what went wrong, in the words of the real
//! server. Each part that is looked at is a step, and steps are bounded. Absent on purpose: types, which are
//! checked when a definition or a policy is admitted.

mod convert;
mod format;
mod formats;
mod functions;
mod json;
mod library;
mod lists;
mod mark;
mod operators;
mod outcome;
mod re2;
mod texts;
mod time;
mod url;
mod value;

pub use convert::{parse_duration, parse_time};
pub use json::to_json;
pub use library::{Ask, AuthorizationAttributes, Question};
pub use mark::Mark;
pub use outcome::{Failure, Outcome};
pub use texts::compile as compile_pattern;
pub use value::{Identity, Key, List, Map, Value};

use crate::parse::{MAP_INSERT, qualified};
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr, SelectExpr,
    StructExpr, operators as op,
};
use outcome::failed;
use std::sync::Arc;

/// Most parts looked at in one evaluation.
const MAX_STEPS: u64 = 1_000_000;

/// Types that names stand for.
pub const TYPES: [&str; 17] = [
    "bool",
    "bytes",
    "double",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "type",
    "uint",
    "optional_type",
    "google.protobuf.Duration",
    "google.protobuf.Timestamp",
    "net.IP",
    "net.CIDR",
    "kubernetes.NamedFormat",
    "dyn",
];

/// Prefixes of functions of libraries.
pub const NAMESPACES: [&str; 8] =
    ["optional", "sets", "strings", "lists", "ip", "format", "cel", "jsonpatch"];

/// Names with their values; who answers `authorizer`.
pub struct Scope<'a> {
    names: Vec<(&'a str, Value)>,
    steps: u64,
}

impl<'a> Scope<'a> {
    /// A scope of these names.
    pub fn new(names: Vec<(&'a str, Value)>) -> Scope<'a> {
        Scope { names, steps: 0 }
    }

    /// Steps taken so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.names.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// The value of an expression.
    ///
    /// # Errors
    /// It has none.
    pub fn value(&mut self, e: &'a IdedExpr) -> Outcome {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return failed("operation cancelled: actual cost limit exceeded");
        }
        match &e.expr {
            Expr::Unspecified => failed("no expression"),
            Expr::Literal(literal) => Ok(constant(literal)),
            Expr::Ident(name) => match self.get(name) {
                Some(value) => Ok(value.clone()),
                None => type_named(name).ok_or_else(|| format!("no such attribute(s): {name}").into()),
            },
            Expr::Select(select) => self.select(e, select),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(map),
            Expr::Struct(made) => self.made(made),
            Expr::Comprehension(c) => self.comprehension(c),
        }
    }

    fn select(&mut self, e: &'a IdedExpr, select: &'a SelectExpr) -> Outcome {
        // A dotted name can be a variable's, or a type's.
        if let Some(name) = qualified(e) {
            if let Some(value) = self.get(&name) {
                return Ok(value.clone());
            }
            if name.split('.').next().is_some_and(|first| self.get(first).is_some()) {
                return operators::field(&self.value(&select.operand)?, &select.field);
            }
            return type_named(&name).ok_or_else(|| format!("no such attribute(s): {name}").into());
        }
        let operand = self.value(&select.operand)?;
        if select.test {
            return Ok(Value::Bool(operators::has(&operand, &select.field)));
        }
        operators::field(&operand, &select.field)
    }

    fn call(&mut self, call: &'a CallExpr) -> Outcome {
        if let (None, [a, rest @ ..]) = (&call.target, call.args.as_slice()) {
            match (call.func_name.as_str(), rest) {
                (op::LOGICAL_AND, [b]) => return self.either(a, b, false),
                (op::LOGICAL_OR, [b]) => return self.either(a, b, true),
                (op::CONDITIONAL, [yes, no]) => {
                    return match self.value(a)? {
                        Value::Bool(true) => self.value(yes),
                        Value::Bool(false) => self.value(no),
                        _ => Err(Failure::NoOverload),
                    };
                }
                (op::NOT_STRICTLY_FALSE, []) => {
                    return Ok(Value::Bool(!matches!(self.value(a), Ok(Value::Bool(false)))));
                }
                _ => {}
            }
        }
        let mut name = std::borrow::Cow::Borrowed(call.func_name.as_str());
        let mut values = Vec::with_capacity(call.args.len() + 1);
        if let Some(target) = &call.target {
            match &target.expr {
                Expr::Ident(space) if self.get(space).is_none() && NAMESPACES.contains(&space.as_str()) => {
                    name = format!("{space}.{name}").into();
                }
                _ => values.push(self.value(target)?),
            }
        }
        for arg in &call.args {
            values.push(self.value(arg)?);
        }
        functions::call(&name, &values, &mut self.steps)
    }

    /// `&&` and `||`: a side that decides alone hides what is wrong with the other.
    fn either(&mut self, a: &'a IdedExpr, b: &'a IdedExpr, decides: bool) -> Outcome {
        let left = self.value(a);
        if matches!(left, Ok(Value::Bool(found)) if found == decides) {
            return left;
        }
        let right = self.value(b);
        match (left, right) {
            (_, Ok(Value::Bool(found))) if found == decides => Ok(Value::Bool(decides)),
            (Ok(Value::Bool(_)), Ok(Value::Bool(found))) => Ok(Value::Bool(found)),
            (Err(why), _) | (_, Err(why)) => Err(why),
            _ => Err(Failure::NoOverload),
        }
    }

    fn list(&mut self, list: &'a ListExpr) -> Outcome {
        let mut items = Vec::with_capacity(list.elements.len());
        for (i, element) in list.elements.iter().enumerate() {
            let value = self.value(element)?;
            if !list.optional_indices.contains(&i) {
                items.push(value);
                continue;
            }
            match value {
                Value::Optional(found) => items.extend(found.map(|v| (*v).clone())),
                _ => return Err(Failure::NoOverload),
            }
        }
        Ok(Value::list(items))
    }

    fn map(&mut self, map: &'a MapExpr) -> Outcome {
        let mut made = Map::default();
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
            let key = self.value(&entry.key)?;
            let Some(key) = Key::of(&key) else {
                return failed(format!("unsupported key type: {}", key.kind()));
            };
            let value = match self.value(&entry.value)? {
                Value::Optional(None) if entry.optional => continue,
                Value::Optional(Some(found)) if entry.optional => (*found).clone(),
                value => value,
            };
            made.entries.insert(key, value);
        }
        Ok(Value::Map(Arc::new(made)))
    }

    /// An object of a named type.
    fn made(&mut self, made: &'a StructExpr) -> Outcome {
        if !crate::made::is_type(&made.type_name) {
            return failed(format!("unknown type: {}", made.type_name));
        }
        let mut map = Map { object: true, made: Some(made.type_name.as_str().into()), ..Map::default() };
        for entry in &made.entries {
            let EntryExpr::StructField(entry) = &entry.expr else { continue };
            let value = match self.value(&entry.value)? {
                Value::Optional(None) if entry.optional => continue,
                Value::Optional(Some(found)) if entry.optional => (*found).clone(),
                value => value,
            };
            map.entries.insert(Key::Text(entry.field.as_str().into()), value);
        }
        Ok(Value::Map(Arc::new(map)))
    }

    fn comprehension(&mut self, c: &'a ComprehensionExpr) -> Outcome {
        let range = self.value(&c.iter_range)?;
        let accu = self.value(&c.accu_init)?;
        let rounds: Vec<(Value, Option<Value>)> = match &range {
            Value::List(list) => {
                let numbered = |(i, item): (usize, &Value)| (Value::Int(i as i64), Some(item.clone()));
                match c.iter_var2 {
                    None => list.items.iter().map(|item| (item.clone(), None)).collect(),
                    Some(_) => list.items.iter().enumerate().map(numbered).collect(),
                }
            }
            Value::Map(map) if !map.object => {
                map.entries.iter().map(|(key, value)| (key.value(), Some(value.clone()))).collect()
            }
            _ => return failed(format!("got '{}', expected iterable type", range.kind())),
        };
        let depth = self.names.len();
        self.names.push((&c.accu_var, accu));
        let found = self.rounds(c, rounds, depth);
        self.names.truncate(depth);
        found
    }

    fn rounds(
        &mut self,
        c: &'a ComprehensionExpr,
        rounds: Vec<(Value, Option<Value>)>,
        depth: usize,
    ) -> Outcome {
        // What is gathered can itself be a mistake, which a later round may hide.
        let mut broken = None;
        for (first, second) in rounds {
            if broken.is_none() && matches!(self.value(&c.loop_cond)?, Value::Bool(false)) {
                break;
            }
            self.names.push((&c.iter_var, first));
            if let (Some(name), Some(value)) = (&c.iter_var2, second) {
                self.names.push((name, value));
            }
            let step = self.step(c, depth, broken.take());
            self.names.truncate(depth + 1);
            match step {
                Ok(value) => self.names[depth].1 = value,
                Err(why) if decides(c) => broken = Some(why),
                Err(why) => return Err(why),
            }
        }
        match broken {
            Some(why) => Err(why),
            None => self.value(&c.result),
        }
    }

    /// What one round makes of what was gathered before.
    fn step(&mut self, c: &'a ComprehensionExpr, depth: usize, broken: Option<Failure>) -> Outcome {
        if let (Expr::Call(call), Some(why)) = (&c.loop_step.expr, broken) {
            // Only a round that decides alone hides the mistake of another.
            let decides = call.func_name == op::LOGICAL_OR;
            return match self.value(&call.args[1]) {
                Ok(Value::Bool(found)) if found == decides => Ok(Value::Bool(decides)),
                _ => Err(why),
            };
        }
        let mut step = &c.loop_step;
        if let Expr::Call(call) = &step.expr
            && let (op::CONDITIONAL, [test, yes, no]) = (call.func_name.as_str(), call.args.as_slice())
        {
            step = match self.value(test)? {
                Value::Bool(true) => yes,
                Value::Bool(false) => no,
                _ => return Err(Failure::NoOverload),
            };
        }
        if let Expr::Call(call) = &step.expr
            && let [Expr::Ident(name), ..] = call.args.iter().map(|a| &a.expr).collect::<Vec<_>>().as_slice()
            && *name == c.accu_var
        {
            match (call.func_name.as_str(), call.args.as_slice()) {
                (op::ADD, [_, item]) if matches!(&item.expr, Expr::List(list) if list.elements.len() == 1) => {
                    let Expr::List(list) = &item.expr else { return Err(Failure::NoOverload) };
                    let item = self.value(&list.elements[0])?;
                    // What was gathered is moved, so that it grows in place.
                    let gathered = std::mem::replace(&mut self.names[depth].1, Value::Null);
                    let Value::List(mut gathered) = gathered else { return Err(Failure::NoOverload) };
                    Arc::make_mut(&mut gathered).items.push(item);
                    return Ok(Value::List(gathered));
                }
                (MAP_INSERT, [_, entries @ ..]) => return self.insert(depth, entries),
                _ => {}
            }
        }
        self.value(step)
    }

    /// Adds an entry, or the entries of a map, to the map that is gathered.
    fn insert(&mut self, depth: usize, entries: &'a [IdedExpr]) -> Outcome {
        let mut values = Vec::with_capacity(entries.len());
        for entry in entries {
            values.push(self.value(entry)?);
        }
        let entries: Vec<(Key, Value)> = match values.as_slice() {
            [key, value] => Key::of(key).map(|key| (key, value.clone())).into_iter().collect(),
            [Value::Map(map)] => map.entries.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
            _ => return Err(Failure::NoOverload),
        };
        let gathered = std::mem::replace(&mut self.names[depth].1, Value::Null);
        let Value::Map(mut gathered) = gathered else { return Err(Failure::NoOverload) };
        let map = Arc::make_mut(&mut gathered);
        for (key, value) in entries {
            if map.entries.contains_key(&key) {
                return failed(format!("insert failed: key {:?} already exists", key.value()));
            }
            map.entries.insert(key, value);
        }
        Ok(Value::Map(gathered))
    }
}

/// Whether a comprehension is `all` or `exists`, where one item can decide.
fn decides(c: &ComprehensionExpr) -> bool {
    let Expr::Call(step) = &c.loop_step.expr else { return false };
    matches!(step.func_name.as_str(), op::LOGICAL_AND | op::LOGICAL_OR)
        && matches!(&step.args[0].expr, Expr::Ident(name) if *name == c.accu_var)
}

fn type_named(name: &str) -> Option<Value> {
    TYPES.contains(&name).then(|| Value::Type(name.into()))
}

fn constant(literal: &LiteralValue) -> Value {
    match literal {
        LiteralValue::Boolean(b) => Value::Bool(*b.inner()),
        LiteralValue::Bytes(bytes) => Value::Bytes(bytes.inner().into()),
        LiteralValue::Double(n) => Value::Double(*n.inner()),
        LiteralValue::Int(n) => Value::Int(*n.inner()),
        LiteralValue::Null => Value::Null,
        LiteralValue::String(text) => Value::text(text.inner()),
        LiteralValue::UInt(n) => Value::Uint(*n.inner()),
    }
}
