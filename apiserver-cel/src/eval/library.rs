//! Values of Kubernetes' libraries, which `kube-cel` computes: quantities, addresses and versions. And
//! `authorizer`: what the caller, or an account, may do.
//!
//! Absent on purpose: who answers an authorizer's questions.

use super::outcome::{Failure, Outcome, failed};
use super::value::{Key, Value};
use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr};
use kube_cel::cel::objects::{Key as CelKey, Opaque, OptionalValue};
use kube_cel::cel::{Context, ExecutionError, Value as Cel};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

thread_local! {
    static FUNCTIONS: Context<'static> = Context::default().with_all();
}

/// Functions that the libraries have.
const KNOWN: [&str; 32] = [
    "quantity",
    "isQuantity",
    "isInteger",
    "asInteger",
    "asApproximateFloat",
    "sign",
    "add",
    "sub",
    "isGreaterThan",
    "isLessThan",
    "compareTo",
    "ip",
    "isIP",
    "ip.isCanonical",
    "family",
    "isLoopback",
    "isUnspecified",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isGlobalUnicast",
    "cidr",
    "isCIDR",
    "containsIP",
    "containsCIDR",
    "prefixLength",
    "masked",
    "string",
    "semver",
    "isSemver",
    "major",
    "minor",
    "patch",
];

/// Where the libraries call a function, the names of its target and its arguments.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

pub fn call(name: &str, values: &[Value]) -> Option<Outcome> {
    if let [Value::Library(target), args @ ..] = values {
        let any: &dyn Opaque = &**target;
        if let Some(question) = any.downcast_ref::<Question>() {
            return question.call(name, args);
        }
        if let Some(answer) = any.downcast_ref::<Answer>() {
            return answer.call(name);
        }
    }
    match (name, values) {
        ("isQuantity", [Value::Text(text)]) if strange_quantity(text) => return Some(Ok(Value::Bool(false))),
        ("quantity", [Value::Text(text)]) if strange_quantity(text) => {
            return Some(failed(
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ));
        }
        ("isCIDR", [Value::Text(text)]) if zero_padded(text) => return Some(Ok(Value::Bool(false))),
        ("cidr", [Value::Text(text)]) | ("containsCIDR", [_, Value::Text(text)]) if zero_padded(text) => {
            let why = "network address parse error during conversion from string";
            return Some(failed(format!("{why}: netip.ParsePrefix({text:?}): bad bits after slash")));
        }
        // A whole number that does not fit is none.
        ("isInteger", [value]) => {
            return Some(Ok(Value::Bool(ask("asInteger", std::slice::from_ref(value), true).is_ok())));
        }
        // What follows a plus sign says nothing about a version.
        ("semver", [Value::Text(text), rest @ ..]) if text.contains('+') => {
            let valid = call("isSemver", values)?;
            let plain = Value::text(text.split('+').next().unwrap_or_default());
            let given: Vec<Value> = std::iter::once(plain).chain(rest.iter().cloned()).collect();
            return match valid {
                Ok(Value::Bool(true)) => call(name, &given),
                _ => Some(ask(name, values, false)),
            };
        }
        _ => {}
    }
    if !KNOWN.contains(&name) || values.len() > NAMES.len() {
        return None;
    }
    let method = matches!(values, [Value::Library(_), ..]) && !name.contains('.');
    Some(ask(name, values, method))
}

/// Whether a text has what no quantity has, such as a space.
fn strange_quantity(text: &str) -> bool {
    text.contains(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c))
}

/// Whether the length of a prefix has a zero before it.
fn zero_padded(text: &str) -> bool {
    text.split_once('/').is_some_and(|(_, bits)| bits.len() > 1 && bits.starts_with('0'))
}

/// Lets the libraries call a function.
fn ask(name: &str, values: &[Value], method: bool) -> Outcome {
    let mut given = Vec::with_capacity(values.len());
    for value in values {
        given.push(to_cel(value).ok_or(Failure::NoOverload)?);
    }
    let ident = |name: &&str| IdedExpr { id: 0, expr: Expr::Ident((*name).to_string()) };
    let mut args: Vec<IdedExpr> = NAMES[..values.len()].iter().map(ident).collect();
    let (space, func_name) = name.split_once('.').map_or((None, name), |(space, name)| (Some(space), name));
    let target = match space {
        Some(space) => Some(ident(&space)),
        None => method.then(|| args.remove(0)),
    };
    let call = CallExpr { func_name: func_name.to_string(), target: target.map(Box::new), args };
    let expression = IdedExpr { id: 0, expr: Expr::Call(call) };
    FUNCTIONS.with(|functions| {
        let mut scope = functions.new_inner_scope();
        for (name, value) in NAMES.iter().zip(given) {
            scope.add_variable_from_value(*name, value);
        }
        let found = Cel::resolve(&expression, &scope).map_err(|why| match why {
            ExecutionError::FunctionError { message, .. } => Failure::Other(message),
            ExecutionError::UnexpectedType { .. } => Failure::NoOverload,
            other => Failure::Other(other.to_string()),
        })?;
        from_cel(&found).ok_or(Failure::NoOverload)
    })
}

fn to_cel(value: &Value) -> Option<Cel> {
    Some(match value {
        Value::Bool(b) => Cel::Bool(*b),
        Value::Int(n) => Cel::Int(*n),
        Value::Uint(n) => Cel::UInt(*n),
        Value::Double(n) => Cel::Float(*n),
        Value::Text(text) => Cel::String(Arc::new(text.to_string())),
        Value::Library(value) => Cel::Opaque(value.clone()),
        _ => return None,
    })
}

fn from_cel(value: &Cel) -> Option<Value> {
    Some(match value {
        Cel::Null => Value::Null,
        Cel::Bool(b) => Value::Bool(*b),
        Cel::Int(n) => Value::Int(*n),
        Cel::UInt(n) => Value::Uint(*n),
        Cel::Float(n) => Value::Double(*n),
        Cel::String(text) => Value::text(text.as_str()),
        Cel::Bytes(bytes) => Value::Bytes(bytes.as_slice().into()),
        Cel::List(items) => Value::list(items.iter().map(from_cel).collect::<Option<_>>()?),
        Cel::Map(map) => {
            let entry = |(key, value): (&CelKey, &Cel)| {
                let key = match key {
                    CelKey::String(text) => Key::Text(text.as_str().into()),
                    CelKey::Int(n) => Key::Int(*n),
                    CelKey::Uint(n) => Key::Uint(*n),
                    CelKey::Bool(b) => Key::Bool(*b),
                };
                Some((key, from_cel(value)?))
            };
            Value::map(map.map.iter().map(entry).collect::<Option<Vec<_>>>()?)
        }
        Cel::Opaque(value) => match value.downcast_ref::<OptionalValue>() {
            Some(optional) => Value::Optional(
                optional.value().map(from_cel).map_or(Some(None), |v| v.map(|v| Some(Arc::new(v))))?,
            ),
            None => Value::Library(value.clone()),
        },
        _ => return None,
    })
}

/// What is asked: by field of a question, such as `verb` or `resource`; `user` only for an account.
pub type AuthorizationAttributes = BTreeMap<String, String>;

/// Who answers: the reason, if it is allowed.
pub type Ask = Arc<dyn Fn(&AuthorizationAttributes) -> Option<String> + Send + Sync>;

/// A question that its methods fill step by step; `check` asks it.
#[derive(Clone)]
pub struct Question {
    asked: AuthorizationAttributes,
    ask: Ask,
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.asked.fmt(f)
    }
}

impl PartialEq for Question {
    fn eq(&self, other: &Question) -> bool {
        self.asked == other.asked
    }
}

impl Eq for Question {}

impl Opaque for Question {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.authorization.Authorizer"
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Answer {
    reason: Option<String>,
}

impl Opaque for Answer {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.authorization.Decision"
    }
}

impl Question {
    /// `authorizer`: it asks nothing yet.
    pub fn start(ask: Ask) -> Value {
        Value::Library(Arc::new(Question { asked: AuthorizationAttributes::new(), ask }))
    }

    /// Asks about these fields.
    pub fn about(ask: Ask, asked: AuthorizationAttributes) -> Value {
        Value::Library(Arc::new(Question { asked, ask }))
    }

    fn with(&self, more: impl IntoIterator<Item = (&'static str, String)>) -> Value {
        let mut asked = self.asked.clone();
        asked.extend(more.into_iter().map(|(key, value)| (key.to_string(), value)));
        Value::Library(Arc::new(Question { asked, ask: self.ask.clone() }))
    }

    fn call(&self, name: &str, args: &[Value]) -> Option<Outcome> {
        const FIELDS: [&str; 8] = [
            "path",
            "group",
            "resource",
            "subresource",
            "namespace",
            "name",
            "fieldSelector",
            "labelSelector",
        ];
        Some(Ok(match (name, args) {
            ("check", [Value::Text(verb)]) => {
                let mut asked = self.asked.clone();
                asked.insert("verb".into(), verb.to_string());
                Value::Library(Arc::new(Answer { reason: (self.ask)(&asked) }))
            }
            ("serviceAccount", [Value::Text(namespace), Value::Text(account)]) => {
                let user = format!("system:serviceaccount:{namespace}:{account}");
                self.with([("user", user), ("account", namespace.to_string())])
            }
            (name, [Value::Text(value)]) => {
                let field = FIELDS.into_iter().find(|field| *field == name)?;
                self.with([(field, value.to_string())])
            }
            _ => return None,
        }))
    }
}

impl Answer {
    fn call(&self, name: &str) -> Option<Outcome> {
        Some(Ok(match name {
            "allowed" => Value::Bool(self.reason.is_some()),
            "errored" => Value::Bool(false),
            "reason" => Value::text(self.reason.as_deref().unwrap_or_default()),
            "error" => Value::text(""),
            _ => return None,
        }))
    }
}
