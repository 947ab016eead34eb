//! Types of expressions, and what operators make of them.

use super::decl::{Decl, Kind};
use kube_cel::cel::common::ast::operators as op;
use std::fmt;
use std::sync::Arc;

/// The type of an expression.
#[derive(Debug, Clone)]
pub enum Type {
    /// Known when it is evaluated.
    Dyn,
    /// Not known yet, such as the items of an empty list.
    Free,
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
    Meta(Box<Type>),
    List(Box<Type>),
    Map(Box<Type>, Box<Type>),
    Optional(Box<Type>),
    Object(Arc<Decl>),
    /// An object that an expression makes, by the name of its type, such as `Object.spec`.
    Made(Arc<str>),
    /// A value of a library, such as a quantity.
    Opaque(&'static str),
}

/// Types of libraries: the name in signatures, and the full name.
const LIBRARIES: [(&str, &str); 11] = [
    ("Quantity", "kubernetes.Quantity"),
    ("URL", "kubernetes.URL"),
    ("IP", "net.IP"),
    ("CIDR", "net.CIDR"),
    ("Semver", "kubernetes.Semver"),
    ("NamedFormat", "kubernetes.NamedFormat"),
    ("Authorizer", "kubernetes.authorization.Authorizer"),
    ("PathCheck", "kubernetes.authorization.PathCheck"),
    ("GroupCheck", "kubernetes.authorization.GroupCheck"),
    ("ResourceCheck", "kubernetes.authorization.ResourceCheck"),
    ("Decision", "kubernetes.authorization.Decision"),
];

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Type::List(inner) => return write!(f, "list({inner})"),
            Type::Map(key, value) => return write!(f, "map({key}, {value})"),
            Type::Optional(inner) => return write!(f, "optional_type({inner})"),
            Type::Meta(inner) => return write!(f, "type({inner})"),
            Type::Dyn => "dyn",
            Type::Free => "_",
            Type::Null => "null",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::Duration => "duration",
            Type::Timestamp => "timestamp",
            Type::Object(_) => "object",
            Type::Made(name) => name,
            Type::Opaque(name) => name,
        };
        f.write_str(name)
    }
}

impl Type {
    /// The type of a declared value.
    pub fn of(decl: &Arc<Decl>) -> Type {
        match &decl.kind {
            Kind::Dyn => Type::Dyn,
            Kind::Bool => Type::Bool,
            Kind::Int => Type::Int,
            Kind::Double => Type::Double,
            Kind::String => Type::String,
            Kind::Bytes => Type::Bytes,
            Kind::Duration => Type::Duration,
            Kind::Timestamp => Type::Timestamp,
            Kind::List(items) => Type::list(Type::of(items)),
            Kind::Map(values) => Type::Map(Box::new(Type::String), Box::new(Type::of(values))),
            Kind::Object(_) => Type::Object(decl.clone()),
            Kind::Of(found) => found.clone(),
        }
    }

    /// A type by its name in signatures.
    pub fn named(name: &str) -> Type {
        match name {
            "null" | "null_type" => Type::Null,
            "bool" => Type::Bool,
            "int" => Type::Int,
            "uint" => Type::Uint,
            "double" => Type::Double,
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "duration" | "google.protobuf.Duration" => Type::Duration,
            "timestamp" | "google.protobuf.Timestamp" => Type::Timestamp,
            "list" => Type::list(Type::Dyn),
            "map" => Type::Map(Box::new(Type::Dyn), Box::new(Type::Dyn)),
            "optional_type" => Type::Optional(Box::new(Type::Dyn)),
            "type" => Type::Meta(Box::new(Type::Dyn)),
            name => {
                let known = LIBRARIES.iter().find(|(short, full)| *short == name || *full == name);
                known.map_or(Type::Dyn, |(_, full)| Type::Opaque(full))
            }
        }
    }

    /// A list of one type.
    pub fn list(inner: Type) -> Type {
        Type::List(Box::new(inner))
    }

    /// One type for both, if there is one.
    pub fn join(&self, other: &Type) -> Option<Type> {
        use Type::{Dyn, Free, List, Map, Meta, Null, Object, Opaque, Optional};
        Some(match (self, other) {
            (Free, t) | (t, Free) | (Dyn, t) | (t, Dyn) => t.clone(),
            (List(a), List(b)) => Type::list(a.join(b)?),
            (Map(a, x), Map(b, y)) => Map(Box::new(a.join(b)?), Box::new(x.join(y)?)),
            (Optional(a), Optional(b)) => Optional(Box::new(a.join(b)?)),
            // Types as values are compared whatever they are.
            (Meta(a), Meta(b)) => Meta(Box::new(a.join(b).unwrap_or(Dyn))),
            (Object(a), Object(b)) => return Arc::ptr_eq(a, b).then(|| self.clone()),
            (Type::Made(a), Type::Made(b)) => return (a == b).then(|| self.clone()),
            (Opaque(a), Opaque(b)) => return (a == b).then(|| self.clone()),
            (Null, t @ (Object(_) | Opaque(_) | Type::Duration | Type::Timestamp))
            | (t @ (Object(_) | Opaque(_) | Type::Duration | Type::Timestamp), Null) => t.clone(),
            (a, b) => return (std::mem::discriminant(a) == std::mem::discriminant(b)).then(|| a.clone()),
        })
    }

    /// The more general of both, if they are one type: what is only known later makes both so.
    pub fn general(&self, other: &Type) -> Option<Type> {
        use Type::{Dyn, Free, List, Map, Optional};
        Some(match (self, other) {
            (Free, t) | (t, Free) => t.clone(),
            (Dyn, _) | (_, Dyn) => Dyn,
            (List(a), List(b)) => Type::list(a.general(b)?),
            (Map(a, x), Map(b, y)) => Map(Box::new(a.general(b)?), Box::new(x.general(y)?)),
            (Optional(a), Optional(b)) => Optional(Box::new(a.general(b)?)),
            (a, b) => return a.join(b),
        })
    }

    /// Whether both are one type, as the items of a literal list have to be.
    pub fn same(&self, other: &Type) -> bool {
        use Type::{Dyn, Free, List, Map, Meta, Object, Opaque, Optional};
        match (self, other) {
            (Free, _) | (_, Free) | (Dyn, Dyn) => true,
            (List(a), List(b)) | (Optional(a), Optional(b)) | (Meta(a), Meta(b)) => a.same(b),
            (Map(a, x), Map(b, y)) => a.same(b) && x.same(y),
            (Object(a), Object(b)) => Arc::ptr_eq(a, b),
            (Type::Made(a), Type::Made(b)) => a == b,
            (Opaque(a), Opaque(b)) => a == b,
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        }
    }

    /// Whether it can be taken for another.
    pub fn is(&self, want: &Type) -> bool {
        self.join(want).is_some()
    }

    fn number(&self) -> bool {
        matches!(self, Type::Int | Type::Uint | Type::Double | Type::Dyn | Type::Free)
    }
}

/// What an operator with two sides makes of their types; `None`: it takes others.
pub fn binary(name: &str, a: &Type, b: &Type) -> Option<Type> {
    use Type::{Bool, Bytes, Duration, Dyn, Free, List, Map, Optional, String, Timestamp};
    let either = |t: &Type| a.is(t) && b.is(t);
    match name {
        op::EQUALS | op::NOT_EQUALS => a.join(b).map(|_| Bool),
        op::LESS | op::LESS_EQUALS | op::GREATER | op::GREATER_EQUALS => {
            let ordered = [Bool, String, Bytes, Duration, Timestamp].iter().any(either);
            (ordered || (a.number() && b.number())).then_some(Bool)
        }
        op::ADD => match (a, b) {
            (Timestamp, Duration) | (Duration, Timestamp) => Some(Timestamp),
            (Dyn | Free, t) | (t, Dyn | Free) => addable(t).then(|| known(t)),
            (List(_), List(_)) => a.general(b),
            (String, String) | (Bytes, Bytes) | (Duration, Duration) => Some(a.clone()),
            _ => (a.number() && either(a)).then(|| a.clone()),
        },
        op::SUBSTRACT => match (a, b) {
            (Timestamp, Timestamp) | (Duration, Duration) => Some(Duration),
            (Timestamp, Duration) => Some(Timestamp),
            (Timestamp, Dyn) | (Dyn, Timestamp | Duration) => Some(Dyn),
            (Duration, Dyn) => Some(Duration),
            _ => (a.number() && b.number() && a.is(b)).then(|| a.join(b).unwrap_or(Dyn)),
        },
        op::MULTIPLY | op::DIVIDE | op::MODULO => {
            let whole = name != op::MODULO || !matches!(a.join(b), Some(Type::Double));
            (a.number() && b.number() && whole).then(|| a.join(b)).flatten()
        }
        op::IN => match b {
            List(items) => a.is(items).then_some(Bool),
            Map(key, _) => a.is(key).then_some(Bool),
            Dyn | Free => Some(Bool),
            _ => None,
        },
        op::INDEX | op::OPT_INDEX => {
            let optional = name == op::OPT_INDEX;
            let found = match a {
                List(items) if b.is(&Type::Int) => (**items).clone(),
                Map(key, value) if b.is(key) => (**value).clone(),
                Dyn | Free => Dyn,
                Optional(inner) => {
                    let inner = match binary(op::INDEX, inner, b)? {
                        Optional(inner) => *inner,
                        inner => inner,
                    };
                    return Some(Optional(Box::new(inner)));
                }
                _ => return None,
            };
            Some(if optional { Optional(Box::new(found)) } else { found })
        }
        _ => None,
    }
}

fn addable(t: &Type) -> bool {
    t.number() || matches!(t, Type::String | Type::Bytes | Type::List(_) | Type::Duration | Type::Timestamp)
}

fn known(t: &Type) -> Type {
    match t {
        // A duration and a time make a time.
        Type::Free | Type::Duration | Type::Timestamp => Type::Dyn,
        t => t.clone(),
    }
}

/// What an operator with one side makes of its type.
pub fn unary(name: &str, a: &Type) -> Option<Type> {
    match name {
        op::LOGICAL_NOT => a.is(&Type::Bool).then_some(Type::Bool),
        op::NEGATE => (a.number() && !matches!(a, Type::Uint)).then(|| a.clone()),
        op::NOT_STRICTLY_FALSE => Some(Type::Bool),
        _ => None,
    }
}
