//! `x-kubernetes-validations`: CEL rules of a CRD.
//!
//! The expressions are parsed and checked once per CRD (`admit`), and evaluated when an object is written.

use std::fmt;

mod admit;
mod cost;
mod decl;
mod types;

pub use admit::{Wanted, problem, problems};

use kube_cel::{CompiledSchema, Validator, compile_schema};
use serde_json::Value;

use crate::cause::Cause;

/// The key under which a schema carries rules.
const KEY: &str = "x-kubernetes-validations";

/// Parsed rules of one version of a definition.
pub struct Rules(CompiledSchema);

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rules")
    }
}

impl Rules {
    /// Parses the rules of a schema; `None` where it has none.
    pub fn compile(openapi: &Value) -> Option<Rules> {
        has_rules(openapi).then(|| Rules(compile_schema(openapi)))
    }

    /// The rules that an object breaks. On an update, what was broken before is tolerated.
    pub fn broken(&self, value: &Value, old: Option<&Value>) -> Vec<Cause> {
        let found = self.judge(value, old);
        if found.is_empty() {
            return found;
        }
        let known = old.map(|old| self.judge(old, Some(old))).unwrap_or_default();
        found.into_iter().filter(|cause| !known.contains(cause)).collect()
    }

    fn judge(&self, value: &Value, old: Option<&Value>) -> Vec<Cause> {
        let Err(errors) = Validator::new().validate_compiled(&self.0, value, old) else { return Vec::new() };
        let causes = errors.into_vec().into_iter().map(|error| {
            let reason = match error.reason.as_deref() {
                Some("FieldValueRequired") => "FieldValueRequired",
                Some("FieldValueForbidden") => "FieldValueForbidden",
                Some("FieldValueDuplicate") => "FieldValueDuplicate",
                _ => "FieldValueInvalid",
            };
            let shown = match reason {
                "FieldValueRequired" => format!("Required value: {}", error.message),
                "FieldValueForbidden" => format!("Forbidden: {}", error.message),
                "FieldValueDuplicate" => format!("Duplicate value: {}", error.message),
                _ => format!("Invalid value: \"{}\": {}", kind_at(value, &error.field_path), error.message),
            };
            Cause::new(reason, error.field_path, shown)
        });
        causes.collect()
    }
}

/// The type of what a rule is about, as the real server shows it in place of the value.
fn kind_at(value: &Value, path: &str) -> &'static str {
    let mut keys = path.split(['.', '[', ']']).filter(|key| !key.is_empty());
    let found = keys.try_fold(value, |at, key| {
        at.get(key.trim_matches('"')).or_else(|| at.get(key.parse::<usize>().ok()?))
    });
    match found {
        Some(Value::String(_)) => "string",
        Some(Value::Bool(_)) => "boolean",
        Some(Value::Array(_)) => "array",
        Some(Value::Number(n)) if n.is_f64() => "number",
        Some(Value::Number(_)) => "integer",
        Some(Value::Null | Value::Object(_)) | None => "object",
    }
}

fn has_rules(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => map.contains_key(KEY) || map.values().any(has_rules),
        Value::Array(items) => items.iter().any(has_rules),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(rule: &str) -> Value {
        json!({"type": "object", "properties": {"spec": {"type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": rule, "message": "found a and b; allowed: one"}]}}})
    }

    #[test]
    fn a_broken_rule_names_its_field_and_message() {
        let rules = Rules::compile(&schema("!(has(self.a) && has(self.b))")).expect("has rules");
        assert!(rules.broken(&json!({"spec": {"a": 1}}), None).is_empty());
        let causes = rules.broken(&json!({"spec": {"a": 1, "b": 2}}), None);
        assert_eq!(causes.len(), 1);
        assert_eq!(causes[0].field, "spec");
        assert_eq!(causes[0].message, "Invalid value: \"object\": found a and b; allowed: one");
        let old = json!({"spec": {"a": 1, "b": 2}});
        assert!(rules.broken(&json!({"spec": {"a": 3, "b": 2}}), Some(&old)).is_empty(), "broken before");
    }

    #[test]
    fn a_rule_that_does_not_parse_is_told() {
        assert_eq!(problems(&schema("!(has(self.a)"), "s").len(), 1);
        assert!(problems(&schema("has(self.a)"), "s").is_empty());
        assert!(Rules::compile(&json!({"type": "object"})).is_none());
    }
}
