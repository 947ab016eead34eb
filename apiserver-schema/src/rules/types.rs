//! Types of expressions: which operations a rule may use on the declared values.
//!
//! Inputs: a parsed expression and the declared type of `self`. Functions of the Kubernetes libraries are known by
//! name and result. If a result depends on too much, its type is dynamic, so that no valid rule is refused.

use super::decl::{Decl, Kind};
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr, operators as op,
};
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

/// The type of an expression.
#[derive(Debug, Clone)]
pub enum Type {
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    /// A type as a value.
    Meta,
    List(Box<Type>),
    Map(Box<Type>, Box<Type>),
    Object(Rc<Decl>),
    /// A value of a library, such as a quantity.
    Opaque(&'static str),
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Type::List(inner) => return write!(f, "list({inner})"),
            Type::Map(key, value) => return write!(f, "map({key}, {value})"),
            Type::Dyn => "dyn",
            Type::Null => "null",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::Duration => "google.protobuf.Duration",
            Type::Timestamp => "google.protobuf.Timestamp",
            Type::Meta => "type",
            Type::Object(_) => "object",
            Type::Opaque(name) => name,
        };
        f.write_str(name)
    }
}

impl Type {
    /// The type of a declared value.
    pub fn of(decl: &Rc<Decl>) -> Type {
        match &decl.kind {
            Kind::Dyn => Type::Dyn,
            Kind::Bool => Type::Bool,
            Kind::Int => Type::Int,
            Kind::Double => Type::Double,
            Kind::String => Type::String,
            Kind::Bytes => Type::Bytes,
            Kind::Duration => Type::Duration,
            Kind::Timestamp => Type::Timestamp,
            Kind::List(items) => Type::List(Box::new(Type::of(items))),
            Kind::Map(values) => Type::Map(Box::new(Type::String), Box::new(Type::of(values))),
            Kind::Object(_) => Type::Object(decl.clone()),
        }
    }

    fn list(inner: Type) -> Type {
        Type::List(Box::new(inner))
    }

    /// One type for both, if there is one.
    fn join(&self, other: &Type) -> Option<Type> {
        use Type::{Dyn, List, Map, Null, Object, Opaque};
        Some(match (self, other) {
            (Dyn, t) | (t, Dyn) => t.clone(),
            (List(a), List(b)) => Type::list(a.join(b)?),
            (Map(a, x), Map(b, y)) => Map(Box::new(a.join(b)?), Box::new(x.join(y)?)),
            (Object(a), Object(b)) => return Rc::ptr_eq(a, b).then(|| self.clone()),
            (Opaque(a), Opaque(b)) => return (a == b).then(|| self.clone()),
            (Null, t @ (Object(_) | Opaque(_) | Type::Duration | Type::Timestamp))
            | (t @ (Object(_) | Opaque(_) | Type::Duration | Type::Timestamp), Null) => t.clone(),
            (a, b) => return (std::mem::discriminant(a) == std::mem::discriminant(b)).then(|| a.clone()),
        })
    }

    fn is(&self, want: &Type) -> bool {
        self.join(want).is_some()
    }

    fn number(&self) -> bool {
        matches!(self, Type::Int | Type::Uint | Type::Double | Type::Dyn)
    }
}

/// Names that stand for types.
const TYPE_NAMES: [&str; 12] = [
    "bool",
    "bytes",
    "double",
    "duration",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "timestamp",
    "type",
    "uint",
];
/// Prefixes of library functions.
const NAMESPACES: [&str; 8] = ["ip", "format", "math", "sets", "optional", "cel", "base64", "strings"];

/// The name of the type of `authorizer` and of what its methods return.
pub const AUTHORIZER: &str = "kubernetes.authorization.Authorizer";

type Found = Result<Type, String>;

/// The types of one expression's parts.
pub struct Checker {
    /// By id.
    pub types: HashMap<u64, Type>,
    scope: Vec<(String, Type)>,
}

/// Checks an expression; the result is its type, and the types of all its parts.
pub fn check(expression: &IdedExpr, variables: &[(&str, Type)]) -> Result<(Type, Checker), String> {
    let scope = variables.iter().map(|(name, t)| (name.to_string(), t.clone())).collect();
    let mut checker = Checker { types: HashMap::new(), scope };
    let found = checker.visit(expression)?;
    Ok((found, checker))
}

fn no_overload(function: &str, args: &[&Type]) -> String {
    let args: Vec<String> = args.iter().map(ToString::to_string).collect();
    format!("found no matching overload for '{function}' applied to '({})'", args.join(", "))
}

fn no_method(function: &str, target: &Type, args: &[Type]) -> String {
    let args: Vec<String> = args.iter().map(ToString::to_string).collect();
    format!("found no matching overload for '{function}' applied to '{target}.({})'", args.join(", "))
}

impl Checker {
    fn visit(&mut self, e: &IdedExpr) -> Found {
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
            Expr::Ident(name) => self.ident(name)?,
            Expr::Select(select) => self.select(select)?,
            Expr::Call(call) => self.call(call)?,
            Expr::List(list) => {
                let mut of = Type::Dyn;
                for item in &list.elements {
                    let next = self.visit(item)?;
                    of = of.join(&next).ok_or_else(|| format!("expected type '{of}' but found '{next}'"))?;
                }
                Type::list(of)
            }
            Expr::Map(map) => {
                let (mut keys, mut values) = (Type::Dyn, Type::Dyn);
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
                    let (key, value) = (self.visit(&entry.key)?, self.visit(&entry.value)?);
                    keys =
                        keys.join(&key).ok_or_else(|| format!("expected type '{keys}' but found '{key}'"))?;
                    values = values
                        .join(&value)
                        .ok_or_else(|| format!("expected type '{values}' but found '{value}'"))?;
                }
                Type::Map(Box::new(keys), Box::new(values))
            }
            Expr::Struct(_) => Type::Dyn,
            Expr::Comprehension(c) => self.comprehension(c)?,
        };
        self.types.insert(e.id, found.clone());
        Ok(found)
    }

    fn variable(&self, name: &str) -> Option<Type> {
        self.scope.iter().rev().find(|(known, _)| known == name).map(|(_, t)| t.clone())
    }

    fn ident(&self, name: &str) -> Found {
        if let Some(found) = self.variable(name) {
            return Ok(found);
        }
        if TYPE_NAMES.contains(&name) {
            return Ok(Type::Meta);
        }
        Err(format!("undeclared reference to '{name}' (in container '')"))
    }

    fn select(&mut self, select: &SelectExpr) -> Found {
        let operand = self.visit(&select.operand)?;
        let found = match &operand {
            Type::Object(decl) => match &decl.kind {
                Kind::Object(fields) => {
                    let bare = fields.get(&select.field);
                    // A word of the language is also known without its underscores.
                    let field = bare.or_else(|| fields.get(&format!("__{}__", select.field)));
                    Type::of(field.ok_or_else(|| format!("undefined field '{}'", select.field))?)
                }
                _ => Type::Dyn,
            },
            Type::Map(_, value) => (**value).clone(),
            Type::Dyn | Type::Opaque(_) => Type::Dyn,
            other => return Err(format!("type '{other}' does not support field selection")),
        };
        Ok(if select.test { Type::Bool } else { found })
    }

    fn comprehension(&mut self, c: &ComprehensionExpr) -> Found {
        let range = self.visit(&c.iter_range)?;
        let (key, value) = match range {
            Type::List(items) => (None, *items),
            Type::Map(key, value) => (Some(*key), *value),
            Type::Dyn => (None, Type::Dyn),
            other => {
                return Err(format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                ));
            }
        };
        let accu = self.visit(&c.accu_init)?;
        let depth = self.scope.len();
        self.scope.push((c.accu_var.clone(), accu));
        match &c.iter_var2 {
            Some(second) => {
                self.scope.push((c.iter_var.clone(), key.unwrap_or(Type::Int)));
                self.scope.push((second.clone(), value));
            }
            None => self.scope.push((c.iter_var.clone(), key.unwrap_or(value))),
        }
        self.visit(&c.loop_cond)?;
        let step = self.visit(&c.loop_step)?;
        self.scope.truncate(depth);
        // What is gathered has the type of a step.
        self.scope.push((c.accu_var.clone(), step));
        let found = self.visit(&c.result)?;
        self.scope.truncate(depth);
        Ok(found)
    }

    fn call(&mut self, call: &CallExpr) -> Found {
        let name = call.func_name.as_str();
        if let Some(target) = &call.target {
            let space = match &target.expr {
                Expr::Ident(space) if self.variable(space).is_none() => Some(space.as_str()),
                _ => None,
            };
            if let Some(space) = space.filter(|s| NAMESPACES.contains(s)) {
                return self.namespaced(space, name, &call.args);
            }
            let target = self.visit(target)?;
            // Macros over two variables bind names of their own.
            if call.args.len() > 2
                && matches!(name, "all" | "exists" | "existsOne" | "transformList" | "transformMap")
            {
                return Ok(if name.starts_with("transform") { Type::Dyn } else { Type::Bool });
            }
            let args = self.visit_all(&call.args)?;
            return method(name, &target, &args);
        }
        let args = self.visit_all(&call.args)?;
        match args.as_slice() {
            [a, b] if name.contains('_') || name == op::IN => binary(name, a, b),
            args => function(name, args),
        }
    }

    fn visit_all(&mut self, args: &[IdedExpr]) -> Result<Vec<Type>, String> {
        args.iter().map(|arg| self.visit(arg)).collect()
    }

    fn namespaced(&mut self, space: &str, name: &str, args: &[IdedExpr]) -> Found {
        if space == "cel" && name == "bind" && args.len() == 3 {
            let bound = self.visit(&args[1])?;
            let Expr::Ident(variable) = &args[0].expr else { return Ok(Type::Dyn) };
            self.scope.push((variable.clone(), bound));
            let found = self.visit(&args[2]);
            self.scope.pop();
            return found;
        }
        self.visit_all(args)?;
        Ok(match (space, name) {
            ("ip", _) | ("sets", _) => Type::Bool,
            ("format", _) => Type::Dyn,
            ("base64", "encode") => Type::String,
            ("base64", _) => Type::Bytes,
            _ => Type::Dyn,
        })
    }
}

fn binary(name: &str, a: &Type, b: &Type) -> Found {
    use Type::{Bool, Bytes, Duration, Dyn, List, Map, String, Timestamp};
    let wrong = || Err(no_overload(name, &[a, b]));
    let either = |t: &Type| a.is(t) && b.is(t);
    match name {
        op::LOGICAL_AND | op::LOGICAL_OR => {
            if either(&Bool) {
                Ok(Bool)
            } else {
                wrong()
            }
        }
        op::EQUALS | op::NOT_EQUALS => {
            if a.join(b).is_some() {
                Ok(Bool)
            } else {
                wrong()
            }
        }
        op::LESS | op::LESS_EQUALS | op::GREATER | op::GREATER_EQUALS => {
            let ordered = [Bool, String, Bytes, Duration, Timestamp].iter().any(either);
            if ordered || (a.number() && b.number()) { Ok(Bool) } else { wrong() }
        }
        op::ADD => match (a, b) {
            (List(_), List(_)) | (Timestamp, Duration) => {
                a.join(b).or(Some(a.clone())).map_or_else(wrong, Ok)
            }
            (Duration, Timestamp) => Ok(Timestamp),
            (Dyn, _) | (_, Dyn) => Ok(a.join(b).unwrap_or(Dyn)),
            (String, String) | (Bytes, Bytes) | (Duration, Duration) => Ok(a.clone()),
            _ if a.number() && either(a) => Ok(a.clone()),
            _ => wrong(),
        },
        op::SUBSTRACT => match (a, b) {
            (Timestamp, Timestamp) => Ok(Duration),
            (Timestamp, Duration) => Ok(Timestamp),
            (Duration, Duration) => Ok(Duration),
            (Dyn, _) | (_, Dyn) => Ok(Dyn),
            _ if a.number() && either(a) => Ok(a.clone()),
            _ => wrong(),
        },
        op::MULTIPLY | op::DIVIDE | op::MODULO => {
            let whole = name != op::MODULO || !matches!(a.join(b), Some(Type::Double));
            if a.number() && b.number() && whole { a.join(b).map_or_else(wrong, Ok) } else { wrong() }
        }
        op::IN => match b {
            List(items) if a.is(items) => Ok(Bool),
            Map(key, _) if a.is(key) => Ok(Bool),
            Dyn => Ok(Bool),
            _ => wrong(),
        },
        op::INDEX | op::OPT_INDEX => match a {
            List(items) if b.is(&Type::Int) => Ok((**items).clone()),
            Map(key, value) if b.is(key) => Ok((**value).clone()),
            Dyn => Ok(Dyn),
            _ => wrong(),
        },
        op::OPT_SELECT => Ok(Dyn),
        _ => function(name, &[a.clone(), b.clone()]),
    }
}

fn function(name: &str, args: &[Type]) -> Found {
    let all: Vec<&Type> = args.iter().collect();
    let wrong = || Err(no_overload(name, &all));
    Ok(match (name, args) {
        (op::CONDITIONAL, [test, yes, no]) => {
            if !test.is(&Type::Bool) {
                return wrong();
            }
            return yes.join(no).map_or_else(wrong, Ok);
        }
        (op::LOGICAL_NOT, [a]) => {
            if a.is(&Type::Bool) {
                Type::Bool
            } else {
                return wrong();
            }
        }
        (op::NEGATE, [a]) => {
            if a.number() {
                a.clone()
            } else {
                return wrong();
            }
        }
        (op::NOT_STRICTLY_FALSE, _) => Type::Bool,
        ("size", [a]) => return sized(name, a, || no_overload(name, &all)),
        ("int", [_]) => Type::Int,
        ("uint", [_]) => Type::Uint,
        ("double", [_]) => Type::Double,
        ("string", [_]) => Type::String,
        ("bytes", [_]) => Type::Bytes,
        ("bool", [_]) | ("isURL" | "isIP" | "isCIDR" | "isQuantity" | "isSemver", _) => Type::Bool,
        ("duration", [_]) => Type::Duration,
        ("timestamp", [_]) => Type::Timestamp,
        ("type", [_]) => Type::Meta,
        ("dyn", [_]) => Type::Dyn,
        ("quantity", _) => Type::Opaque("kubernetes.Quantity"),
        ("url", _) => Type::Opaque("kubernetes.URL"),
        ("ip", _) => Type::Opaque("net.IP"),
        ("cidr", _) => Type::Opaque("net.CIDR"),
        ("semver", _) => Type::Opaque("kubernetes.Semver"),
        ("matches" | "contains" | "startsWith" | "endsWith", [a, rest @ ..]) => return method(name, a, rest),
        _ => {
            let known = [
                "size",
                "int",
                "uint",
                "double",
                "string",
                "bytes",
                "bool",
                "duration",
                "timestamp",
                "type",
                "dyn",
            ];
            if known.contains(&name) {
                return wrong();
            }
            return Err(format!("undeclared reference to '{name}' (in container '')"));
        }
    })
}

fn sized(_: &str, of: &Type, wrong: impl Fn() -> String) -> Found {
    match of {
        Type::String | Type::Bytes | Type::List(_) | Type::Map(..) | Type::Dyn => Ok(Type::Int),
        _ => Err(wrong()),
    }
}

/// Methods of texts.
const OF_STRINGS: [&str; 17] = [
    "charAt",
    "contains",
    "endsWith",
    "find",
    "findAll",
    "format",
    "lowerAscii",
    "matches",
    "replace",
    "split",
    "startsWith",
    "substring",
    "trim",
    "upperAscii",
    "quote",
    "reverse",
    "join",
];
/// Methods whose result the libraries give by name.
const WHOLE: [&str; 16] = [
    "compareTo",
    "asInteger",
    "sign",
    "prefixLength",
    "family",
    "major",
    "minor",
    "patch",
    "getFullYear",
    "getMonth",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getHours",
    "getMinutes",
];
const YES_NO: [&str; 18] = [
    "isGreaterThan",
    "isLessThan",
    "isInteger",
    "containsIP",
    "containsCIDR",
    "isUnspecified",
    "isLoopback",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isGlobalUnicast",
    "hasValue",
    "isSorted",
    "allowed",
    "errored",
    "isMasked",
    "isURL",
    "isCanonical",
    "equals",
];
const TEXTS: [&str; 7] =
    ["getScheme", "getHost", "getHostname", "getPort", "getEscapedPath", "reason", "error"];
const DYNAMIC: [&str; 14] = [
    "getQuery",
    "value",
    "orValue",
    "or",
    "optMap",
    "optFlatMap",
    "add",
    "sub",
    "masked",
    "ip",
    "validate",
    "flatten",
    "sort",
    "distinct",
];

fn method(name: &str, target: &Type, args: &[Type]) -> Found {
    let wrong = || Err(no_method(name, target, args));
    if let Type::Opaque(AUTHORIZER) = target {
        return match name {
            "path" | "group" | "resource" | "subresource" | "namespace" | "name" | "serviceAccount"
            | "check" | "fieldSelector" | "labelSelector" => Ok(target.clone()),
            "allowed" | "errored" => Ok(Type::Bool),
            "reason" | "error" => Ok(Type::String),
            _ => wrong(),
        };
    }
    if name == "size" && args.is_empty() {
        return sized(name, target, || no_method(name, target, args));
    }
    match name {
        "sum" | "min" | "max" | "isSorted" | "indexOf" | "lastIndexOf" => {
            let items = match target {
                Type::List(items) => (**items).clone(),
                Type::Dyn => Type::Dyn,
                Type::String if name.ends_with("ndexOf") => Type::String,
                _ => return wrong(),
            };
            return Ok(match name {
                "isSorted" => Type::Bool,
                "indexOf" | "lastIndexOf" => Type::Int,
                _ => items,
            });
        }
        "join" => return if target.is(&Type::list(Type::String)) { Ok(Type::String) } else { wrong() },
        _ => {}
    }
    if OF_STRINGS.contains(&name) {
        let asks_text =
            matches!(name, "contains" | "endsWith" | "startsWith" | "matches" | "find" | "findAll");
        if !target.is(&Type::String) || (asks_text && !args.first().is_some_and(|a| a.is(&Type::String))) {
            return wrong();
        }
        return Ok(match name {
            "contains" | "endsWith" | "startsWith" | "matches" => Type::Bool,
            "findAll" | "split" => Type::list(Type::String),
            _ => Type::String,
        });
    }
    match name {
        "getSeconds" | "getMilliseconds" => Ok(Type::Int),
        "asApproximateFloat" => Ok(Type::Double),
        _ if WHOLE.contains(&name) => Ok(Type::Int),
        _ if YES_NO.contains(&name) => Ok(Type::Bool),
        _ if TEXTS.contains(&name) => Ok(Type::String),
        _ if DYNAMIC.contains(&name) => Ok(match (name, target) {
            ("add" | "sub", Type::Opaque(_)) => target.clone(),
            _ => Type::Dyn,
        }),
        _ => Err(format!("undeclared reference to '{name}' (in container '')")),
    }
}
