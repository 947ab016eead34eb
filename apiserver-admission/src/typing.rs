//! What a policy's status says of the types of its expressions.
//!
//! Inputs: a ValidatingAdmissionPolicy and the schemas of the kinds it names. Looked at are fields of `object` and
//! `oldObject`, and their comparison with a literal. Absent on purpose: all other types, and kinds behind wildcards.

use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::base::Base;
use fleet_apiserver_schema::{Schema, Type};
use serde_json::{Value, json};

/// Kinds that are looked at, at most.
const MOST_KINDS: usize = 10;

/// The status of a policy for its spec.
pub fn status(base: &Base, policy: &Value) -> Value {
    let generation = tree::number(policy, &["metadata", "generation"]);
    let warnings = warnings(base, policy);
    let checked = if warnings.is_empty() { json!({}) } else { json!({"expressionWarnings": warnings}) };
    json!({"observedGeneration": generation, "typeChecking": checked})
}

fn warnings(base: &Base, policy: &Value) -> Vec<Value> {
    let kinds = kinds(base, policy);
    let mut out = Vec::new();
    let mut look = |map: &Value, key: &str, at: String| {
        let text = tree::text(map, &[key]);
        let found: Vec<String> = kinds
            .iter()
            .filter_map(|(name, schema)| Some(format!("{name}: {}", wrong(text, schema)?)))
            .collect();
        if !found.is_empty() {
            out.push(json!({"fieldRef": format!("{at}.{key}"), "warning": found.join("\n")}));
        }
    };
    for (i, check) in tree::list(policy, &["spec", "validations"]).iter().enumerate() {
        look(check, "expression", format!("spec.validations[{i}]"));
        look(check, "messageExpression", format!("spec.validations[{i}]"));
    }
    out
}

/// The kinds that a policy names, each as messages show it.
fn kinds(base: &Base, policy: &Value) -> Vec<(String, std::sync::Arc<Schema>)> {
    let registry = base.registry.load();
    let mut out = Vec::new();
    for rule in tree::list(policy, &["spec", "matchConstraints", "resourceRules"]) {
        let texts = |key: &str| tree::list(rule, &[key]).iter().filter_map(Value::as_str);
        for group in texts("apiGroups") {
            for version in texts("apiVersions") {
                let of = if group.is_empty() { version.to_string() } else { format!("{group}/{version}") };
                let found = texts("resources").filter_map(|plural| registry.find(&of, plural));
                out.extend(
                    found.map(|e| (format!("{of}, Kind={}", e.resource.kind), e.resource.schema.clone())),
                );
            }
        }
    }
    out.truncate(MOST_KINDS);
    out
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// What is wrong with an expression over objects of a schema.
fn wrong(text: &str, schema: &Schema) -> Option<String> {
    for root in ["object.", "oldObject."] {
        for (start, _) in text.match_indices(root) {
            let before = text[..start].chars().next_back();
            if before.is_some_and(|c| is_word(c) || matches!(c, '.' | '"' | '\'')) {
                continue;
            }
            if let Some((at, why)) = field(text, start + root.len(), schema) {
                // As compilers show it: the line, and the place in it.
                let column = text[..at].chars().count();
                return Some(format!(
                    "ERROR: <input>:1:{column}: {why}\n | {text}\n | {}^",
                    ".".repeat(column)
                ));
            }
        }
    }
    None
}

/// Follows the names that begin at a place; where one is not a field, or is compared with what it cannot be, and why.
fn field(text: &str, mut at: usize, schema: &Schema) -> Option<(usize, String)> {
    let mut node = schema.get();
    loop {
        let rest = &text[at..];
        let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        // A call is none of a field, and of the inside of some nothing is known.
        if name.is_empty() || after.starts_with('(') || node.is_opaque() || node.preserve {
            return None;
        }
        let Some(found) = node.field(name) else {
            return Some((at.saturating_sub(1), format!("undefined field '{name}'")));
        };
        node = found.get();
        match after.strip_prefix('.') {
            Some(_) => at += end + 1,
            None => return comparison(after, node.ty).map(|why| (at + end, why)),
        }
    }
}

/// Why a value of a type cannot be compared with the literal that follows.
fn comparison(after: &str, ty: Type) -> Option<String> {
    let after = after.trim_start();
    let operators = ["==", "!=", "<=", ">=", "<", ">"];
    let operator = operators.iter().find(|o| after.starts_with(**o))?;
    let literal = after[operator.len()..].trim_start();
    let other = match literal.chars().next()? {
        '\'' | '"' => "string",
        c if c.is_ascii_digit() => "int",
        _ => return None,
    };
    let own = match ty {
        Type::Integer => "int",
        Type::String => "string",
        Type::Boolean => "bool",
        _ => return None,
    };
    (own != other)
        .then(|| format!("found no matching overload for '_{operator}_' applied to '({own}, {other})'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_comparisons_are_looked_at() {
        let schema = Schema::compile(&json!({"type": "object", "properties": {"spec": {"type": "object",
            "properties": {"n": {"type": "integer"}, "free": {"type": "object",
                "x-kubernetes-preserve-unknown-fields": true}}}}}));
        assert!(wrong("object.spec.nn > 1", &schema).is_some_and(|w| w.contains("undefined field 'nn'")));
        assert!(wrong("object.spec.n > '1'", &schema).is_some_and(|w| w.contains("'(int, string)'")));
        for good in
            ["object.spec.n > 1", "object.spec.free.x == 'a'", "'object.nope' == 'a'", "params.object.x"]
        {
            assert_eq!(wrong(good, &schema), None, "{good}");
        }
    }
}
