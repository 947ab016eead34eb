//! Expressions over a write: match conditions and policies.
//!
//! Inputs: expressions of registrations and JSON values as their variables. Absent on purpose: the cost budget
//! of the real server (an expression that is too long is refused instead).

mod authorizer;

pub use authorizer::{Ask, Asked};

use kube_cel::KubeCelExt;
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, Program, Value as Cel};
use serde_json::Value;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Longest expression. The real server has a cost budget instead, which long expressions exceed.
const MAX_LENGTH: usize = 10_000;
/// Deepest nesting of brackets: the parser recurses.
const MAX_DEPTH: usize = 100;

/// Fails for what the parser should not see.
pub fn bounded(text: &str) -> Result<(), String> {
    if text.len() > MAX_LENGTH {
        return Err(format!("found {} bytes; allowed are {MAX_LENGTH}", text.len()));
    }
    let mut depth = 0_usize;
    for c in text.chars() {
        match c {
            '(' | '[' | '{' | '!' | '-' | '?' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(format!("is nested too deeply; allowed is {MAX_DEPTH}"));
        }
    }
    Ok(())
}

/// A parsed expression.
pub struct Expression {
    /// As written.
    pub text: String,
    program: Program,
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Expression {
    /// Parses an expression.
    pub fn compile(text: &str) -> Result<Expression, String> {
        bounded(text)?;
        let program = Program::compile(text).map_err(|e| format!("compilation failed: {e}"))?;
        Ok(Expression { text: text.to_string(), program })
    }

    /// The value of the expression.
    pub fn value(&self, variables: &Variables) -> Result<Cel, String> {
        let mut context = Context::default().with_all();
        for (name, value) in &variables.0 {
            context.add_variable_from_value(*name, value.clone());
        }
        if let Some(ask) = &variables.1 {
            authorizer::install(&mut context, ask);
        }
        self.program.execute(&context).map_err(|e| e.to_string())
    }

    /// The value, which has to be a boolean.
    pub fn holds(&self, variables: &Variables) -> Result<bool, String> {
        match self.value(variables)? {
            Cel::Bool(b) => Ok(b),
            other => Err(format!("found {:?}; allowed is a boolean", other.type_of())),
        }
    }
}

/// Named values that expressions can use.
#[derive(Default)]
pub struct Variables(Vec<(&'static str, Cel)>, Option<Ask>);

impl Variables {
    /// Adds `authorizer`, which asks here.
    pub fn authorize(&mut self, ask: Ask) {
        self.set("authorizer", authorizer::start());
        self.1 = Some(ask);
    }

    /// Adds a JSON value.
    pub fn put(&mut self, name: &'static str, value: &Value) {
        self.set(name, from_json(value));
    }

    /// Adds or replaces values computed before.
    pub fn put_map(&mut self, name: &'static str, values: &[(String, Cel)]) {
        let map: HashMap<Key, Cel> =
            values.iter().map(|(k, v)| (Key::String(Arc::new(k.clone())), v.clone())).collect();
        self.set(name, Cel::Map(Map { map: Arc::new(map) }));
    }

    fn set(&mut self, name: &'static str, value: Cel) {
        self.0.retain(|(known, _)| *known != name);
        self.0.push((name, value));
    }
}

fn from_json(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(b) => Cel::Bool(*b),
        Value::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(n), _) => Cel::Int(n),
            (None, Some(n)) => Cel::UInt(n),
            (None, None) => Cel::Float(n.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(s) => Cel::String(Arc::new(s.clone())),
        Value::Array(list) => Cel::List(Arc::new(list.iter().map(from_json).collect())),
        Value::Object(map) => {
            let map = map.iter().map(|(k, v)| (Key::String(Arc::new(k.clone())), from_json(v))).collect();
            Cel::Map(Map { map: Arc::new(map) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn expressions_see_their_variables() {
        let mut variables = Variables::default();
        variables.put("object", &json!({"spec": {"replicas": 3}, "metadata": {"labels": {"a": "b"}}}));
        let holds = |text: &str| Expression::compile(text).and_then(|e| e.holds(&variables));
        assert_eq!(holds("object.spec.replicas <= 5"), Ok(true));
        assert_eq!(holds("has(object.spec.paused)"), Ok(false));
        assert_eq!(holds("object.metadata.labels['a'] == 'b'"), Ok(true));
        assert_eq!(holds("object.metadata.labels.all(k, k.matches('^[a-z]$'))"), Ok(true));
        assert!(holds("object.spec.zzz == 1").is_err());
        assert!(holds("object.spec.replicas").is_err(), "not a boolean");
        assert!(holds("object.spec.").is_err());
        assert!(holds(&"(".repeat(20_000)).is_err());
        assert!(holds(&"(".repeat(5_000)).is_err());
    }
}
