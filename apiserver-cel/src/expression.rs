//! Expressions over a write: match conditions and policies.
//!
//! Inputs: expressions of registrations and JSON values as their variables. Absent on purpose: the cost budget
//! of the real server (an evaluation is bounded in steps instead).

use crate::eval::{Ask, AuthorizationAttributes, Failure, Key, Question, Scope, Value as Cel, to_json};
use crate::made;
use crate::parse::{Parsed, parse};
use serde_json::Value;
use std::fmt;

/// A parsed expression.
pub struct Expression {
    /// As written.
    pub text: String,
    parsed: Parsed,
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Expression {
    /// Parses an expression.
    ///
    /// # Errors
    /// It is none.
    pub fn compile(text: &str) -> Result<Expression, String> {
        let parsed = parse(text).map_err(|e| format!("compilation failed: {e}"))?;
        Ok(Expression { text: text.to_string(), parsed })
    }

    /// The value of the expression.
    ///
    /// # Errors
    /// It has none.
    pub fn value(&self, variables: &Variables) -> Result<Cel, String> {
        Scope::new(variables.0.clone()).value(&self.parsed.root).map_err(|why: Failure| why.to_string())
    }

    /// The value, which has to be a boolean.
    ///
    /// # Errors
    /// There is none, or it is something else.
    pub fn holds(&self, variables: &Variables) -> Result<bool, String> {
        match self.value(variables)? {
            Cel::Bool(b) => Ok(b),
            other => Err(format!("found {}; allowed: a boolean", other.kind())),
        }
    }
}

/// What an expression changes, as it is applied: an `Object`.
///
/// # Errors
/// It is none, or cannot be written as JSON.
pub fn applied(value: &Cel) -> Result<Value, String> {
    match value {
        Cel::Map(map) if map.made.as_deref() == Some(made::OBJECT) => to_json(value),
        other => Err(format!("unsupported return type from ApplyConfiguration expression: {}", other.kind())),
    }
}

/// The JSON patch that an expression makes.
///
/// # Errors
/// It is none, or an operation cannot be written as JSON.
pub fn patch(value: &Cel) -> Result<Value, String> {
    let wrong = "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch";
    let Cel::List(list) = value else { return Err(wrong.into()) };
    let mut out = Vec::new();
    for item in &list.items {
        let Cel::Map(map) = item else { return Err(wrong.into()) };
        if map.made.as_deref() != Some(made::PATCH) {
            return Err(wrong.into());
        }
        let text = |field: &str| match map.entries.get(&Key::Text(field.into())) {
            Some(Cel::Text(text)) => text.to_string(),
            _ => String::new(),
        };
        let mut operation = serde_json::Map::new();
        operation.insert("op".into(), text("op").into());
        operation.insert("path".into(), text("path").into());
        if !text("from").is_empty() {
            operation.insert("from".into(), text("from").into());
        }
        if let Some(value) = map.entries.get(&Key::Text("value".into())) {
            operation.insert("value".into(), to_json(value)?);
        }
        out.push(Value::Object(operation));
    }
    Ok(Value::Array(out))
}

/// Named values that expressions can use.
#[derive(Default)]
pub struct Variables(Vec<(&'static str, Cel)>);

impl Variables {
    /// Adds `authorizer`, which asks here, and `authorizer.requestResource`, which asks about `request`.
    pub fn authorize(&mut self, ask: Ask, request: AuthorizationAttributes) {
        self.set("authorizer", Question::start(ask.clone()));
        self.set("authorizer.requestResource", Question::about(ask, request));
    }

    /// Adds a JSON value.
    pub fn put(&mut self, name: &'static str, value: &Value) {
        self.set(name, Cel::from_json(value));
    }

    /// Adds or replaces values computed before.
    pub fn put_map(&mut self, name: &'static str, values: &[(String, Cel)]) {
        let entries = values.iter().map(|(k, v)| (Key::Text(k.as_str().into()), v.clone()));
        self.set(name, Cel::map(entries));
    }

    fn set(&mut self, name: &'static str, value: Cel) {
        self.0.retain(|(known, _)| *known != name);
        self.0.push((name, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    #[test]
    fn expressions_see_their_variables() {
        let mut variables = Variables::default();
        variables.put("object", &json!({"spec": {"replicas": 3}, "metadata": {"labels": {"a": "b"}}}));
        let holds = |text: &str| Expression::compile(text).and_then(|e| e.holds(&variables));
        assert_eq!(holds("object.spec.replicas <= 5"), Ok(true));
        assert_eq!(holds("has(object.spec.paused)"), Ok(false));
        assert_eq!(holds("object.metadata.labels['a'] == 'b'"), Ok(true));
        assert_eq!(holds("object.metadata.labels.all(k, k.matches('^[a-z]$'))"), Ok(true));
        assert_eq!(
            holds("object.?spec.?paused.orValue(false) || object.metadata.labels.all(k, v, v == 'b')"),
            Ok(true)
        );
        assert!(holds("object.spec.zzz == 1").is_err());
        assert!(holds("object.spec.replicas").is_err(), "not a boolean");
        assert!(holds("object.spec.").is_err());
        assert!(holds(&"(".repeat(20_000)).is_err());
        assert!(holds(&"(".repeat(5_000)).is_err());
        assert!(holds(&format!("1{} > 0", " + 1".repeat(5_000))).is_err(), "too deep");
        assert_eq!(holds(&format!("true{}", " && true".repeat(2_000))), Ok(true), "long, but not deep");
    }

    #[test]
    fn an_evaluation_ends() {
        let list = format!("[{}]", ["1"; 200].join(","));
        let text = format!("{list}.all(a, {list}.all(b, {list}.all(c, {list}.all(d, true))))");
        let why = Expression::compile(&text).unwrap().holds(&Variables::default()).unwrap_err();
        assert_eq!(why, "operation cancelled: actual cost limit exceeded");
    }

    #[test]
    fn expressions_make_patches() {
        let mut variables = Variables::default();
        variables.put("object", &json!({"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 3}}));
        let value = |text: &str| Expression::compile(text).and_then(|e| e.value(&variables));
        let apply = |text: &str| value(text).and_then(|v| applied(&v));
        assert_eq!(
            apply(
                "Object{metadata: Object.metadata{labels: {'x': object.metadata.labels.a}}, spec: Object.spec{replicas: object.spec.replicas + 1}}"
            ),
            Ok(json!({"metadata": {"labels": {"x": "b"}}, "spec": {"replicas": 4}}))
        );
        assert_eq!(apply("Object{?spec: optional.none()}"), Ok(json!({})));
        assert_eq!(
            apply("Object{spec: Object.spec{template: Object.spec.wrong{}}}"),
            Err("type mismatch: unexpected type name \"Object.spec.wrong\", expected \"Object.spec.template\", which matches field name path from root Object type".into())
        );
        assert_eq!(apply("Object{spec: [Object.spec{a: 1.0}]}"), Ok(json!({"spec": [{"a": 1}]})));
        assert!(apply("{'a': 1}").is_err());
        let operations = |text: &str| value(text).and_then(|v| patch(&v));
        assert_eq!(
            operations(
                "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b'), value: 'c'}, JSONPatch{op: 'move', from: '/x', path: '/y'}]"
            ),
            Ok(
                json!([{"op": "add", "path": "/metadata/labels/a~1b", "value": "c"}, {"op": "move", "from": "/x", "path": "/y"}])
            )
        );
        assert_eq!(
            operations(
                "object.metadata.labels.map(k, JSONPatch{op: 'remove', path: '/metadata/labels/' + k})"
            ),
            Ok(json!([{"op": "remove", "path": "/metadata/labels/a"}]))
        );
        assert!(operations("[1]").is_err());
        let holds = |text: &str| Expression::compile(text).and_then(|e| e.holds(&variables));
        assert_eq!(holds("has(JSONPatch{op: 'x'}.op) && !has(JSONPatch{}.op)"), Ok(true));
        assert_eq!(holds("JSONPatch{op: 'x', value: 1} == JSONPatch{op: 'x', value: 1}"), Ok(true));
        assert_eq!(holds("JSONPatch{} == Object{}"), Ok(false));
        assert!(holds("Thing{} == Thing{}").is_err());
    }

    #[test]
    fn the_authorizer_is_asked() {
        let mut variables = Variables::default();
        let ask: Ask = Arc::new(|asked: &AuthorizationAttributes| {
            (asked["verb"] == "get").then(|| format!("{asked:?}"))
        });
        variables
            .authorize(ask, AuthorizationAttributes::from([("resource".to_string(), "pods".to_string())]));
        let holds = |text: &str| Expression::compile(text).and_then(|e| e.holds(&variables));
        assert_eq!(
            holds("authorizer.group('apps').resource('deployments').check('get').allowed()"),
            Ok(true)
        );
        assert_eq!(holds("authorizer.path('/healthz').check('post').allowed()"), Ok(false));
        assert_eq!(holds("authorizer.requestResource.check('get').reason().contains('pods')"), Ok(true));
        assert_eq!(
            holds(
                "authorizer.serviceAccount('a', 'b').group('').resource('x').check('get').reason().contains('system:serviceaccount:a:b')"
            ),
            Ok(true)
        );
    }
}
