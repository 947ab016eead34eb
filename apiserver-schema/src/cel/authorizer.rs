//! `authorizer` in expressions: what the caller, or an account, may do.
//!
//! A question is a map that its methods fill step by step; `check` asks it. Absent on purpose: who answers.

use super::Cel;
use kube_cel::cel::extractors::{Arguments, This};
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, ExecutionError, ResolveResult};
use std::collections::HashMap;
use std::sync::Arc;

/// What is asked: by field of a question, such as `verb` or `resource`; `user` only for an account.
pub type Asked = HashMap<String, String>;

/// Who answers: the reason, if it is allowed.
pub type Ask = Arc<dyn Fn(&Asked) -> Option<String> + Send + Sync>;

/// Marks the maps that are questions.
const MARK: &str = "kubernetes.authorization";

fn text(value: &Cel) -> Option<String> {
    match value {
        Cel::String(text) => Some(text.to_string()),
        _ => None,
    }
}

fn map(fields: impl IntoIterator<Item = (String, Cel)>) -> Cel {
    let map = fields.into_iter().map(|(key, value)| (Key::String(Arc::new(key)), value)).collect();
    Cel::Map(Map { map: Arc::new(map) })
}

/// A question that asks nothing yet.
pub fn start() -> Cel {
    map([(MARK.to_string(), Cel::Null)])
}

fn fields(function: &str, value: &Cel) -> Result<HashMap<String, Cel>, ExecutionError> {
    let Cel::Map(found) = value else {
        return Err(ExecutionError::function_error(function, "no such overload"));
    };
    let fields: HashMap<String, Cel> = found
        .map
        .iter()
        .filter_map(|(key, value)| match key {
            Key::String(key) => Some((key.to_string(), value.clone())),
            _ => None,
        })
        .collect();
    if fields.contains_key(MARK) {
        Ok(fields)
    } else {
        Err(ExecutionError::function_error(function, "no such overload"))
    }
}

fn with(function: &str, this: &Cel, more: &[(&str, Option<String>)]) -> ResolveResult {
    let mut fields = fields(function, this)?;
    for (key, value) in more {
        let Some(value) = value else {
            return Err(ExecutionError::function_error(function, "no such overload"));
        };
        fields.insert((*key).to_string(), Cel::String(Arc::new(value.clone())));
    }
    Ok(map(fields))
}

/// Makes the methods known.
pub fn install(context: &mut Context<'_>, ask: &Ask) {
    for key in ["path", "group", "resource", "subresource", "namespace", "name"] {
        context.add_function(key, move |This(this): This<Cel>, Arguments(args): Arguments| {
            with(key, &this, &[(key, args.first().and_then(text))])
        });
    }
    context.add_function("serviceAccount", |This(this): This<Cel>, Arguments(args): Arguments| {
        let part = |i: usize| args.get(i).and_then(text);
        let user = part(0).zip(part(1)).map(|(ns, name)| format!("system:serviceaccount:{ns}:{name}"));
        with("serviceAccount", &this, &[("user", user), ("account", part(0))])
    });
    let ask = ask.clone();
    context.add_function("check", move |This(this): This<Cel>, Arguments(args): Arguments| {
        let Cel::Map(_) = with("check", &this, &[("verb", args.first().and_then(text))])? else {
            return Ok(Cel::Null);
        };
        let mut asked: Asked =
            fields("check", &this)?.iter().filter_map(|(k, v)| Some((k.clone(), text(v)?))).collect();
        asked.insert("verb".into(), args.first().and_then(text).unwrap_or_default());
        let reason = ask(&asked);
        let allowed = Cel::Bool(reason.is_some());
        let reason = Cel::String(Arc::new(reason.unwrap_or_default()));
        Ok(map([(MARK.to_string(), Cel::Null), ("allowed".into(), allowed), ("reason".into(), reason)]))
    });
    let answer = |key: &'static str, none: Cel| {
        move |This(this): This<Cel>| -> ResolveResult {
            Ok(fields(key, &this)?.get(key).cloned().unwrap_or_else(|| none.clone()))
        }
    };
    context.add_function("allowed", answer("allowed", Cel::Bool(false)));
    context.add_function("reason", answer("reason", Cel::String(Arc::default())));
    context.add_function("errored", answer("errored", Cel::Bool(false)));
    context.add_function("error", answer("error", Cel::String(Arc::default())));
}
