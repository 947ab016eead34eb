//! Whether the schema of a CRD is structural: every field has a type, and nothing is declared twice.
//!
//! Inputs: `openAPIV3Schema` of one version. Source: "Specifying a structural schema" of the Kubernetes
//! documentation. Absent on purpose: whether defaults fit their own schema.

use fleet_apiserver_cel::cause::Cause;
use fleet_apiserver_ground::tree;
use serde_json::{Value, json};

/// Causes collected at most.
const MAX_CAUSES: usize = 20;
/// What value validations below `allOf`, `anyOf`, `oneOf` and `not` may not say.
const ONLY_OUTSIDE: [&str; 6] = [
    "additionalProperties",
    "default",
    "description",
    "nullable",
    "title",
    "x-kubernetes-preserve-unknown-fields",
];

/// Adds what is wrong with a root schema.
pub fn check(schema: &Value, at: &str, causes: &mut Vec<Cause>) {
    let root = tree::text(schema, &["type"]);
    if root != "object" {
        let field = format!("{at}.type");
        match root {
            "" => causes.push(Cause::required(field, "must not be empty at the root")),
            _ => causes.push(Cause::invalid(field, &json!(root), "must be object at the root")),
        }
    }
    node(schema, at, causes);
}

fn flag(schema: &Value, key: &str) -> bool {
    schema.get(key) == Some(&Value::Bool(true))
}

fn node(schema: &Value, at: &str, causes: &mut Vec<Cause>) {
    if causes.len() >= MAX_CAUSES {
        return;
    }
    for key in ["$ref", "definitions", "dependencies", "patternProperties", "id"] {
        if schema.get(key).is_some_and(|v| !v.is_null()) {
            causes.push(Cause::forbidden(format!("{at}.{key}"), "must not be set"));
        }
    }
    if flag(schema, "uniqueItems") {
        causes.push(Cause::forbidden(
            format!("{at}.uniqueItems"),
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ));
    }
    let kind = tree::text(schema, &["type"]);
    let (mixed, open) =
        (flag(schema, "x-kubernetes-int-or-string"), flag(schema, "x-kubernetes-preserve-unknown-fields"));
    match kind {
        "" if !mixed && !open => {
            causes
                .push(Cause::required(format!("{at}.type"), "must not be empty for specified object fields"));
        }
        "" | "object" | "array" | "string" | "integer" | "number" | "boolean" => {}
        other => {
            let message = format!(
                "Unsupported value: {other:?}: supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\""
            );
            causes.push(Cause::new("FieldValueNotSupported", format!("{at}.type"), message));
        }
    }
    if mixed && !kind.is_empty() {
        causes.push(Cause::forbidden(
            format!("{at}.type"),
            "must be empty if x-kubernetes-int-or-string is true",
        ));
    }
    if kind == "array" && !schema.get("items").is_some_and(Value::is_object) {
        causes.push(Cause::required(format!("{at}.items"), "must be specified"));
    }
    let properties = schema.get("properties").and_then(Value::as_object).filter(|p| !p.is_empty());
    if schema.get("additionalProperties") == Some(&Value::Bool(false)) {
        let why = "additionalProperties cannot be set to false";
        causes.push(Cause::forbidden(format!("{at}.additionalProperties"), why));
    }
    map(schema, kind, at, causes);
    if properties.is_some() && schema.get("additionalProperties").is_some_and(|v| v != false) {
        let why = "must not be used together with properties";
        causes.push(Cause::forbidden(format!("{at}.additionalProperties"), why));
    }
    if let Some(text) = schema.get("pattern").and_then(Value::as_str)
        && let Err(why) = fleet_apiserver_cel::compile_pattern(text)
    {
        let why = format!("must be a valid regular expression, but isn't: {why}");
        causes.push(Cause::invalid(format!("{at}.pattern"), &json!(text), &why));
    }
    list(schema, kind, at, causes);
    for (name, child) in properties.into_iter().flatten() {
        node(child, &format!("{at}.properties[{name}]"), causes);
    }
    if let Some(items @ Value::Object(_)) = schema.get("items") {
        node(items, &format!("{at}.items"), causes);
    }
    if let Some(values @ Value::Object(_)) = schema.get("additionalProperties") {
        node(values, &format!("{at}.additionalProperties"), causes);
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for (i, child) in tree::list(schema, &[key]).iter().enumerate() {
            validation(child, mixed, &format!("{at}.{key}[{i}]"), causes);
        }
    }
    if let Some(child) = schema.get("not").filter(|v| v.is_object()) {
        validation(child, mixed, &format!("{at}.not"), causes);
    }
}

fn map(schema: &Value, kind: &str, at: &str, causes: &mut Vec<Cause>) {
    let map_type = tree::text(schema, &["x-kubernetes-map-type"]);
    if !map_type.is_empty() && kind != "object" {
        let why = "must be object if x-kubernetes-map-type is specified";
        causes.push(match kind {
            "" => Cause::required(format!("{at}.type"), why),
            _ => Cause::invalid(format!("{at}.type"), &json!(kind), why),
        });
    }
    if !matches!(map_type, "" | "atomic" | "granular") {
        let message = format!("Unsupported value: {map_type:?}: supported values: \"atomic\", \"granular\"");
        causes.push(Cause::new("FieldValueNotSupported", format!("{at}.x-kubernetes-map-type"), message));
    }
}

fn list(schema: &Value, kind: &str, at: &str, causes: &mut Vec<Cause>) {
    let list_type = tree::text(schema, &["x-kubernetes-list-type"]);
    let keys = tree::list(schema, &["x-kubernetes-list-map-keys"]);
    if !list_type.is_empty() && kind != "array" {
        let why = "must be array if x-kubernetes-list-type is specified";
        causes.push(Cause::invalid(format!("{at}.type"), &json!(kind), why));
    }
    if !matches!(list_type, "" | "atomic" | "set" | "map") {
        let message =
            format!("Unsupported value: {list_type:?}: supported values: \"atomic\", \"map\", \"set\"");
        causes.push(Cause::new("FieldValueNotSupported", format!("{at}.x-kubernetes-list-type"), message));
    }
    let items = schema.get("items").unwrap_or(&Value::Null);
    if !keys.is_empty() && list_type != "map" {
        let (field, why) = (
            format!("{at}.x-kubernetes-list-type"),
            "must be map if x-kubernetes-list-map-keys is non-empty",
        );
        causes.push(match list_type {
            "" => Cause::required(field, why),
            _ => Cause::invalid(field, &json!(list_type), why),
        });
    }
    if matches!(list_type, "map" | "set") && flag(items, "nullable") {
        let why = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        causes.push(Cause::forbidden(format!("{at}.items.nullable"), &why));
    }
    if list_type == "set" {
        let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let key = match tree::text(items, &["type"]) {
            "object" if tree::text(items, &["x-kubernetes-map-type"]) != "atomic" => "x-kubernetes-map-type",
            "array" if !matches!(tree::text(items, &["x-kubernetes-list-type"]), "" | "atomic") => {
                "x-kubernetes-list-type"
            }
            _ => return,
        };
        let found = items.get(key).cloned().unwrap_or_default();
        causes.push(Cause::invalid(format!("{at}.items.{key}"), &found, why));
    }
    if list_type != "map" {
        return;
    }
    if tree::text(items, &["type"]) != "object" {
        let why = "must be object if parent array's x-kubernetes-list-type is map";
        causes.push(Cause::invalid(format!("{at}.items.type"), &json!(tree::text(items, &["type"])), why));
    }
    if keys.is_empty() {
        let why = "must not be empty if x-kubernetes-list-type is map";
        causes.push(Cause::required(format!("{at}.x-kubernetes-list-map-keys"), why));
    }
    for (i, key) in keys.iter().enumerate() {
        let name = key.as_str().unwrap_or_default();
        if tree::at(schema, &["items", "properties", name]).is_none() {
            let why = "entries must all be names of item properties";
            causes.push(Cause::invalid(format!("{at}.x-kubernetes-list-map-keys[{i}]"), key, why));
            continue;
        }
        let (place, property) =
            (format!("{at}.items.properties[{name}]"), &schema["items"]["properties"][name]);
        if matches!(tree::text(property, &["type"]), "array" | "object") {
            let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            causes.push(Cause::invalid(format!("{place}.type"), &property["type"], why));
        }
        if keys[..i].contains(key) {
            let why = "must not contain duplicate entries";
            causes.push(Cause::invalid(format!("{at}.x-kubernetes-list-map-keys"), &json!(keys), why));
        }
        let required = tree::list(items, &["required"]).contains(key);
        if !required && property.get("default").is_none_or(Value::is_null) {
            let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            causes.push(Cause::required(format!("{place}.default"), why));
        }
        if flag(property, "nullable") {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            causes.push(Cause::forbidden(format!("{place}.nullable"), why));
        }
    }
}

/// A schema that may only judge values, not shape them.
fn validation(schema: &Value, mixed: bool, at: &str, causes: &mut Vec<Cause>) {
    if causes.len() >= MAX_CAUSES {
        return;
    }
    for key in ONLY_OUTSIDE {
        if schema.get(key).is_some_and(|v| !v.is_null() && v != false) {
            causes.push(Cause::forbidden(format!("{at}.{key}"), "must be undefined to be structural"));
        }
    }
    let kind = tree::text(schema, &["type"]);
    // The one exception spells out what an integer or a string is.
    let spelled_out = mixed && matches!(kind, "integer" | "string");
    if !kind.is_empty() && !spelled_out {
        causes.push(Cause::forbidden(format!("{at}.type"), "must be empty to be structural"));
    }
    for (name, child) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        validation(child, false, &format!("{at}.properties[{name}]"), causes);
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for (i, child) in tree::list(schema, &[key]).iter().enumerate() {
            validation(child, mixed, &format!("{at}.{key}[{i}]"), causes);
        }
    }
}
