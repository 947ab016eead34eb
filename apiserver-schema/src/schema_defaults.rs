//! Whether the defaults in a schema of a CRD fit that schema.
//!
//! Inputs: a structural schema. Source: `ValidateDefaults` of Kubernetes 1.36, which does not look below
//! `additionalProperties`. Absent on purpose: where there can be no default at all (see `schema_rules`).

use crate::decode;
use crate::schema::Schema;
use crate::validate;
use fleet_apiserver_cel::cause::Cause;
use fleet_apiserver_cel::rules::Rules;
use fleet_apiserver_ground::tree;
use serde_json::Value;

/// Causes collected at most.
const MAX_CAUSES: usize = 100;

/// Adds what is wrong with the defaults of a schema and of what is in it.
pub fn check(schema: &Value, at: &str, causes: &mut Vec<Cause>) {
    if causes.len() >= MAX_CAUSES {
        return;
    }
    if let Some(default) = schema.get("default").filter(|default| !default.is_null()) {
        fits(schema, default, &format!("{at}.default"), causes);
    }
    if let Some(items @ Value::Object(_)) = schema.get("items") {
        check(items, &format!("{at}.items"), causes);
    }
    for (name, child) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        check(child, &format!("{at}.properties[{name}]"), causes);
    }
}

fn fits(schema: &Value, default: &Value, at: &str, causes: &mut Vec<Cause>) {
    let mut bare = schema.clone();
    tree::object(&mut bare).remove("default");
    let compiled = Schema::compile(&bare);
    let mut pruned = default.clone();
    decode::prune(&compiled, &mut pruned);
    if pruned != *default {
        causes.push(Cause::invalid(at, default, "must not have unknown fields"));
    }
    let mut wrong = Vec::new();
    validate::schema(&compiled, default, "", &mut wrong);
    if wrong.is_empty() {
        wrong = Rules::compile(&bare).map(|rules| rules.broken(default, None)).unwrap_or_default();
    }
    causes.extend(wrong.into_iter().map(|cause| {
        let field = match cause.field.as_str() {
            "" | "<nil>" => at.to_string(),
            below => format!("{at}.{below}"),
        };
        Cause { field, ..cause }
    }));
}
