//! Checks the types of an expression.
//!
//! Inputs: a parsed expression, and the types of its variables. What cannot be known before is dynamic.

use super::decl::Kind;
use super::signatures::{Resolved, known, resolve};
use super::types::{Type, binary, unary};
use crate::eval::{NAMESPACES, TYPES};
use crate::made;
use crate::parse::{MAP_INSERT, Parsed, qualified};
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, MapExpr, SelectExpr, StructExpr,
    operators as op,
};
use std::collections::HashMap;

/// A mistake, and the part it is at.
type TypeResult = Result<Type, (u64, String)>;

/// The types of one expression's parts.
pub struct Checker {
    /// By id.
    pub types: HashMap<u64, Type>,
    scope: Vec<(String, Type)>,
    /// Literals whose parts are of several types.
    mixed: Vec<(u64, String)>,
    objects: Objects,
}

/// Which objects an expression may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objects {
    /// None.
    None,
    /// `JSONPatch`, and parts of the object that is changed: `Object`, `Object.spec`, ...
    Patches,
    /// None; but values can be named by `cel.bind`, as where devices are selected.
    Bound,
}

/// Checks an expression; the result is its type, and the types of all its parts.
///
/// # Errors
/// The first mistake, with its place.
pub fn check(
    parsed: &Parsed,
    variables: &[(&str, Type)],
    objects: Objects,
) -> Result<(Type, Checker), String> {
    let scope = variables.iter().map(|(name, t)| (name.to_string(), t.clone())).collect();
    let mut checker = Checker { types: HashMap::new(), scope, mixed: Vec::new(), objects };
    let found = checker.visit(&parsed.root);
    let found = found.and_then(|found| match checker.mixed.first() {
        None => Ok(found),
        Some(mistake) => Err(mistake.clone()),
    });
    match found.and_then(|found| super::literals::check(&parsed.root, &checker.types).map(|()| found)) {
        Ok(found) => Ok((found, checker)),
        Err((id, why)) => Err(parsed.show(id, &why)),
    }
}

fn no_overload(function: &str, target: Option<&Type>, args: &[Type]) -> String {
    let args: Vec<String> = args.iter().map(ToString::to_string).collect();
    let args = args.join(", ");
    match target {
        Some(target) => format!("found no matching overload for '{function}' applied to '{target}.({args})'"),
        None => format!("found no matching overload for '{function}' applied to '({args})'"),
    }
}

fn no_range(of: &str) -> String {
    format!("expression of type '{of}' cannot be range of a comprehension (must be list, map, or dynamic)")
}

/// A value that is read from another one: of a device, an attribute, which is no list.
fn is_part(e: &IdedExpr) -> bool {
    match &e.expr {
        Expr::Select(_) => true,
        Expr::Call(call) => call.func_name == op::INDEX,
        _ => false,
    }
}

fn undeclared(name: &str) -> String {
    format!("undeclared reference to '{name}' (in container '')")
}

impl Checker {
    fn visit(&mut self, e: &IdedExpr) -> TypeResult {
        let found = match &e.expr {
            Expr::Unspecified => Type::Dyn,
            Expr::Literal(literal) => match literal {
                LiteralValue::Boolean(_) => Type::Bool,
                LiteralValue::Bytes(_) => Type::Bytes,
                LiteralValue::Double(_) => Type::Double,
                LiteralValue::Int(_) => Type::Int,
                LiteralValue::Null => Type::Null,
                LiteralValue::String(_) => Type::String,
                LiteralValue::UInt(_) => Type::Uint,
            },
            Expr::Ident(name) => self.named(name).ok_or_else(|| (e.id, undeclared(name)))?,
            Expr::Select(select) => self.select(e, select)?,
            Expr::Call(call) => self.call(e, call)?,
            Expr::List(list) => {
                let mut of = Type::Free;
                for (i, item) in list.elements.iter().enumerate() {
                    let mut next = self.visit(item)?;
                    if list.optional_indices.contains(&i) {
                        next = inside(item, next)?;
                    }
                    of = self.alike(of, next, item);
                }
                Type::list(of)
            }
            Expr::Map(map) => self.map(map)?,
            Expr::Struct(made) if made.type_name.starts_with("google.protobuf.") => {
                return Err((e.id, format!("this server has no literals of '{}'", made.type_name)));
            }
            Expr::Struct(made) => self.object(e, made)?,
            Expr::Comprehension(c) => self.comprehension(c)?,
        };
        self.types.insert(e.id, found.clone());
        Ok(found)
    }

    /// The type of the items of a literal: one for all.
    fn alike(&mut self, known: Type, next: Type, item: &IdedExpr) -> Type {
        if !known.same(&next) {
            self.mixed.push((item.id, format!("expected type '{known}' but found '{next}'")));
        }
        known.join(&next).unwrap_or(Type::Dyn)
    }

    /// An object that the expression makes.
    fn object(&mut self, e: &IdedExpr, object: &StructExpr) -> TypeResult {
        let name = object.type_name.as_str();
        if self.objects != Objects::Patches || !made::is_type(name) {
            return Err((e.id, undeclared(name)));
        }
        for entry in &object.entries {
            let EntryExpr::StructField(entry) = &entry.expr else { continue };
            let mut given = self.visit(&entry.value)?;
            if entry.optional {
                given = inside(&entry.value, given)?;
            }
            let Some(wanted) = made_field(name, &entry.field) else {
                return Err((e.id, format!("undefined field '{}'", entry.field)));
            };
            if !given.is(&wanted) {
                let why = format!(
                    "expected type of field '{}' is '{wanted}' but provided type is '{given}'",
                    entry.field
                );
                return Err((entry.value.id, why));
            }
        }
        Ok(Type::Made(name.into()))
    }

    fn variable(&self, name: &str) -> Option<Type> {
        self.scope.iter().rev().find(|(known, _)| known == name).map(|(_, t)| t.clone())
    }

    fn named(&self, name: &str) -> Option<Type> {
        self.variable(name).or_else(|| TYPES.contains(&name).then(|| Type::Meta(Box::new(Type::named(name)))))
    }

    fn map(&mut self, map: &MapExpr) -> TypeResult {
        let (mut keys, mut values) = (Type::Free, Type::Free);
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
            let (key, mut value) = (self.visit(&entry.key)?, self.visit(&entry.value)?);
            if entry.optional {
                value = inside(&entry.value, value)?;
            }
            // None of these can be a key, and with two parts that have parts types would double with each map in another one.
            let has_parts = matches!(key, Type::List(_) | Type::Map(..) | Type::Optional(_) | Type::Meta(_));
            let key = if has_parts { Type::Dyn } else { key };
            keys = self.alike(keys, key, &entry.key);
            values = self.alike(values, value, &entry.value);
        }
        Ok(Type::Map(Box::new(keys), Box::new(values)))
    }

    fn select(&mut self, e: &IdedExpr, select: &SelectExpr) -> TypeResult {
        // A dotted name can be a type's, or a variable's.
        if !select.test
            && let Some(name) = qualified(e)
            && let Some(found) = self.named(&name)
        {
            return Ok(found);
        }
        let operand = self.visit(&select.operand)?;
        let found = field(&operand, &select.field).map_err(|why| (e.id, why))?;
        Ok(if select.test { Type::Bool } else { found })
    }

    fn comprehension(&mut self, c: &ComprehensionExpr) -> TypeResult {
        let range = self.visit(&c.iter_range)?;
        let (key, value) = match range {
            Type::List(items) => (None, *items),
            Type::Map(key, value) => (Some(*key), *value),
            Type::Dyn if self.objects == Objects::Bound && is_part(&c.iter_range) => {
                return Err((c.iter_range.id, no_range("any")));
            }
            Type::Dyn | Type::Free => (None, Type::Dyn),
            other => return Err((c.iter_range.id, no_range(&other.to_string()))),
        };
        let open = |t: Type| if matches!(t, Type::Free) { Type::Dyn } else { t };
        let (key, value) = (key.map(open), open(value));
        let accu = self.visit(&c.accu_init)?;
        let depth = self.scope.len();
        self.scope.push((c.accu_var.clone(), accu));
        match &c.iter_var2 {
            Some(second) => {
                let first = key.unwrap_or(if matches!(value, Type::Dyn) { Type::Dyn } else { Type::Int });
                self.scope.push((c.iter_var.clone(), first));
                self.scope.push((second.clone(), value));
            }
            None => self.scope.push((c.iter_var.clone(), key.unwrap_or(value))),
        }
        self.visit(&c.loop_cond)?;
        let step = self.visit(&c.loop_step)?;
        self.scope.truncate(depth);
        // What is gathered has the type of a step.
        self.scope.push((c.accu_var.clone(), step));
        let found = self.visit(&c.result);
        self.scope.truncate(depth);
        found
    }

    /// A value under a name of its own: `cel.bind(name, value, expression)`.
    fn bound(&mut self, call: &CallExpr) -> Option<TypeResult> {
        let space = call.target.as_ref().map(|target| &target.expr);
        let ([variable, value, result], true) = (call.args.as_slice(), self.objects == Objects::Bound) else {
            return None;
        };
        let (Expr::Ident(name), Some(Expr::Ident(space))) = (&variable.expr, space) else { return None };
        if space != "cel" || call.func_name != "bind" {
            return None;
        }
        let value = match self.visit(value) {
            Ok(value) => value,
            Err(mistake) => return Some(Err(mistake)),
        };
        self.scope.push((name.clone(), value));
        let found = self.visit(result);
        self.scope.pop();
        Some(found)
    }

    fn call(&mut self, e: &IdedExpr, call: &CallExpr) -> TypeResult {
        let name = call.func_name.as_str();
        if let Some(found) = self.bound(call) {
            return found;
        }
        if let Some(target) = &call.target {
            if let Some(space) = self.space(target) {
                let full = format!("{space}.{name}");
                if self.objects == Objects::Patches && full == made::ESCAPE {
                    let args = self.visit_all(&call.args)?;
                    return match args.as_slice() {
                        [text] if text.is(&Type::String) => Ok(Type::String),
                        _ => Err((e.id, no_overload(&full, None, &args))),
                    };
                }
                if !known(&full) {
                    // As the real server sees it: a name that stands for nothing.
                    return Err((target.id, undeclared(space)));
                }
                let args = self.visit_all(&call.args)?;
                return match resolve(&full, false, &args) {
                    Resolved::Gives(found) => Ok(found),
                    Resolved::NoOverload => Err((e.id, no_overload(&full, None, &args))),
                    Resolved::Unknown => Err((target.id, undeclared(space))),
                };
            }
            let target = self.visit(target)?;
            let mixed = self.mixed.len();
            let args = self.visit_all(&call.args)?;
            if name == "format" {
                // It takes values of any types.
                self.mixed.truncate(mixed);
            }
            let given: Vec<Type> = std::iter::once(target.clone()).chain(args.iter().cloned()).collect();
            return match resolve(name, true, &given) {
                Resolved::Gives(found) => Ok(found),
                Resolved::NoOverload => Err((e.id, no_overload(name, Some(&target), &args))),
                Resolved::Unknown => Err((e.id, undeclared(name))),
            };
        }
        if name == op::OPT_SELECT {
            return self.optional_select(e, call);
        }
        let args = self.visit_all(&call.args)?;
        self.global(e, name, &args, &call.args)
    }

    /// The prefix of a library, if the target is no value.
    fn space<'a>(&self, target: &'a IdedExpr) -> Option<&'a str> {
        match &target.expr {
            Expr::Ident(name) if self.variable(name).is_none() && NAMESPACES.contains(&name.as_str()) => {
                Some(name)
            }
            _ => None,
        }
    }

    fn global(&mut self, e: &IdedExpr, name: &str, args: &[Type], parts: &[IdedExpr]) -> TypeResult {
        let wrong = || (e.id, no_overload(name, None, args));
        match (name, args) {
            (op::CONDITIONAL, [test, yes, no]) => {
                if test.is(&Type::Bool) {
                    yes.general(no).ok_or_else(wrong)
                } else {
                    Err(wrong())
                }
            }
            (op::LOGICAL_AND | op::LOGICAL_OR, [..]) => {
                match args.iter().zip(parts).find(|(t, _)| !t.is(&Type::Bool)) {
                    None => Ok(Type::Bool),
                    Some((found, part)) => {
                        Err((part.id, format!("expected type 'bool' but found '{found}'")))
                    }
                }
            }
            (MAP_INSERT, [Type::Map(keys, values), key, value]) => {
                let keys = keys.join(key).ok_or_else(wrong)?;
                Ok(Type::Map(Box::new(keys), Box::new(values.join(value).ok_or_else(wrong)?)))
            }
            (MAP_INSERT, [map, entries]) => map.join(entries).ok_or_else(wrong),
            (_, [a, b]) if is_operator(name) => binary(name, a, b).ok_or_else(wrong),
            (_, [a]) if is_operator(name) => unary(name, a).ok_or_else(wrong),
            _ => match resolve(name, false, args) {
                Resolved::Gives(found) => Ok(found),
                Resolved::NoOverload => Err(wrong()),
                Resolved::Unknown => Err((e.id, undeclared(name))),
            },
        }
    }

    fn optional_select(&mut self, e: &IdedExpr, call: &CallExpr) -> TypeResult {
        let [operand, name] = call.args.as_slice() else { return Ok(Type::Dyn) };
        let operand = self.visit(operand)?;
        self.visit(name)?;
        let Expr::Literal(LiteralValue::String(name)) = &name.expr else { return Ok(Type::Dyn) };
        let inner = match operand {
            Type::Optional(inner) => *inner,
            plain => plain,
        };
        let found = field(&inner, name.inner()).map_err(|why| (e.id, why))?;
        Ok(Type::Optional(Box::new(found)))
    }

    fn visit_all(&mut self, args: &[IdedExpr]) -> Result<Vec<Type>, (u64, String)> {
        args.iter().map(|arg| self.visit(arg)).collect()
    }
}

fn is_operator(name: &str) -> bool {
    name.contains('_') || name.starts_with('@')
}

/// What an optional holds, as an item of a literal.
fn inside(item: &IdedExpr, found: Type) -> TypeResult {
    match found {
        Type::Optional(inner) => Ok(*inner),
        Type::Dyn => Ok(Type::Dyn),
        other => Err((item.id, format!("expected type 'optional_type({other})' but found '{other}'"))),
    }
}

/// The type of a field.
fn field(operand: &Type, name: &str) -> Result<Type, String> {
    match operand {
        Type::Object(decl) => match &decl.kind {
            Kind::Object(fields) => {
                let bare = fields.get(name);
                // A word of the language is also known without its underscores.
                let found = bare.or_else(|| fields.get(&format!("__{name}__")));
                found.map(Type::of).ok_or_else(|| format!("undefined field '{name}'"))
            }
            _ => Ok(Type::Dyn),
        },
        Type::Map(_, value) => Ok((**value).clone()),
        Type::Optional(inner) => Ok(match field(inner, name)? {
            Type::Optional(inner) => Type::Optional(inner),
            found => Type::Optional(Box::new(found)),
        }),
        Type::Dyn | Type::Free => Ok(Type::Dyn),
        Type::Made(of) => made_field(of, name).ok_or_else(|| format!("undefined field '{name}'")),
        other => Err(format!("type '{other}' does not support field selection")),
    }
}

/// The type of a field of an object that an expression makes. Those of a part of an object are not declared.
fn made_field(of: &str, name: &str) -> Option<Type> {
    match (of, name) {
        (made::PATCH, "op" | "path" | "from") => Some(Type::String),
        (made::PATCH, "value") => Some(Type::Dyn),
        (made::PATCH, _) => None,
        _ => Some(Type::Dyn),
    }
}
