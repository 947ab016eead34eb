//! What no schema of a CRD may say, structural or not: unsupported keywords, types, lists told apart by keys.
//!
//! Inputs: `openAPIV3Schema` of one version. Source: `ValidateCustomResourceDefinitionOpenAPISchema` of Kubernetes 1.36, even
//! where it shows another value than the wrong one. Absent on purpose: rules in CEL.

use fleet_apiserver_cel::cause::Cause;
use fleet_apiserver_cel::go_text;
use fleet_apiserver_ground::tree;
use serde_json::{Value, json};
use std::collections::HashSet;

/// Causes collected at most.
const MAX_CAUSES: usize = 100;
const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
/// Keywords that are refused wherever something is said by them.
const UNSUPPORTED: [&str; 6] =
    ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];
const META: [&str; 3] = ["metadata", "kind", "apiVersion"];

/// What is known of the place of a schema.
#[derive(Clone, Copy, Default)]
struct Place {
    root: bool,
    /// It describes what all objects say of themselves.
    in_meta: bool,
    /// Why there can be no default.
    no_default: Option<&'static str>,
}

/// Adds what is wrong with a root schema.
pub fn check(schema: &Value, at: &str, causes: &mut Vec<Cause>) {
    node(schema, Place { root: true, ..Place::default() }, at, causes);
}

fn flag(schema: &Value, key: &str) -> bool {
    schema.get(key) == Some(&Value::Bool(true))
}

fn unsupported(field: String, found: &str, allowed: &[&str]) -> Cause {
    let allowed: Vec<String> = allowed.iter().map(|one| go_text::quoted(one)).collect();
    let found = go_text::quoted(found);
    let message = format!("Unsupported value: {found}: supported values: {}", allowed.join(", "));
    Cause::new("FieldValueNotSupported", field, message)
}

fn node(schema: &Value, place: Place, at: &str, causes: &mut Vec<Cause>) {
    if causes.len() >= MAX_CAUSES || !schema.is_object() {
        return;
    }
    own(schema, place, at, causes);
    if flag(schema, "uniqueItems") {
        let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        causes.push(Cause::forbidden(format!("{at}.uniqueItems"), why));
    }
    let additional = schema.get("additionalProperties").filter(|v| !v.is_null());
    let properties = schema.get("properties").and_then(Value::as_object);
    if let Some(additional) = additional {
        let at = format!("{at}.additionalProperties");
        if *additional != true && properties.is_some_and(|map| !map.is_empty()) {
            causes.push(Cause::forbidden(&at, "additionalProperties and properties are mutual exclusive"));
        }
        let meta = place.in_meta.then_some("inside additionalProperties applying to object metadata");
        node(additional, Place { root: false, no_default: meta.or(place.no_default), ..place }, &at, causes);
    }
    let described = place.root || flag(schema, "x-kubernetes-embedded-resource");
    for (name, child) in properties.into_iter().flatten() {
        let mut below = Place { root: false, ..place };
        if described && let Some(key) = META.iter().position(|key| *key == name) {
            below.in_meta = true;
            if place.root {
                const NO_DEFAULT: [&str; 3] =
                    ["in top-level metadata", "in top-level kind", "in top-level apiVersion"];
                below.no_default = NO_DEFAULT.get(key).copied();
            }
        }
        node(child, below, &format!("{at}.properties[{name}]"), causes);
    }
    let below = Place { root: false, ..place };
    for key in ["not", "items"] {
        if let Some(child) = schema.get(key) {
            node(child, below, &format!("{at}.{key}"), causes);
        }
    }
    for key in ["allOf", "oneOf", "anyOf", "items"] {
        for (i, child) in tree::list(schema, &[key]).iter().enumerate() {
            node(child, below, &format!("{at}.{key}[{i}]"), causes);
        }
    }
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let field = format!("{at}.x-kubernetes-preserve-unknown-fields");
        causes.push(Cause::invalid(field, &json!(false), "must be true or undefined"));
    }
    map(schema, at, causes);
    list(schema, at, causes);
    keys(schema, at, causes);
}

/// Keywords of one schema alone.
fn own(schema: &Value, place: Place, at: &str, causes: &mut Vec<Cause>) {
    let kind = tree::text(schema, &["type"]);
    if !kind.is_empty() && !TYPES.contains(&kind) {
        causes.push(unsupported(format!("{at}.type"), kind, &TYPES));
    }
    if schema.get("default").is_some_and(|v| !v.is_null())
        && let Some(reason) = place.no_default
    {
        causes.push(Cause::forbidden(format!("{at}.default"), &format!("must not be set {reason}")));
    }
    for key in UNSUPPORTED {
        let is_there = |found: &Value| match found {
            Value::Null => false,
            Value::Object(map) => !map.is_empty() || matches!(key, "additionalItems" | "dependencies"),
            Value::String(text) => !text.is_empty() || key == "$ref",
            _ => true,
        };
        if schema.get(key).is_some_and(is_there) {
            causes.push(Cause::forbidden(format!("{at}.{key}"), &format!("{key} is not supported")));
        }
    }
    if kind == "null" {
        let why = "type cannot be set to null, use nullable as an alternative";
        causes.push(Cause::forbidden(format!("{at}.type"), why));
    }
    if !tree::list(schema, &["items"]).is_empty() {
        let why = "items must be a schema object and not an array";
        causes.push(Cause::forbidden(format!("{at}.items"), why));
    }
    if place.in_meta && flag(schema, "x-kubernetes-embedded-resource") {
        let field = format!("{at}.x-kubernetes-embedded-resource");
        causes.push(Cause::forbidden(field, "must not be used inside of resource meta"));
    }
}

/// A type that an extension needs.
fn needs(kind: &str, why: &str, at: &str) -> Cause {
    let field = format!("{at}.type");
    if kind.is_empty() { Cause::required(field, why) } else { Cause::invalid(field, &json!(kind), why) }
}

fn map(schema: &Value, at: &str, causes: &mut Vec<Cause>) {
    let Some(map_type) = schema.get("x-kubernetes-map-type").and_then(Value::as_str) else { return };
    let kind = tree::text(schema, &["type"]);
    if kind != "object" {
        causes.push(needs(kind, "must be object if x-kubernetes-map-type is specified", at));
    }
    if !matches!(map_type, "atomic" | "granular") {
        let field = format!("{at}.x-kubernetes-map-type");
        causes.push(unsupported(field, map_type, &["atomic", "granular"]));
    }
}

fn list(schema: &Value, at: &str, causes: &mut Vec<Cause>) {
    let given = schema.get("x-kubernetes-list-type").and_then(Value::as_str);
    let field = format!("{at}.x-kubernetes-list-type");
    let kind = tree::text(schema, &["type"]);
    let items = schema.get("items").filter(|items| items.is_object());
    if given.is_some() && kind != "array" {
        causes.push(needs(kind, "must be array if x-kubernetes-list-type is specified", at));
    } else if let (Some("set"), Some(items)) = (given, items) {
        let list_type = items.get("x-kubernetes-list-type").unwrap_or(&Value::Null);
        let key = match tree::text(items, &["type"]) {
            "object" if tree::text(items, &["x-kubernetes-map-type"]) != "atomic" => {
                Some("x-kubernetes-map-type")
            }
            "array" if !list_type.is_null() && *list_type != "atomic" => Some("x-kubernetes-list-type"),
            _ => None,
        };
        if let Some(key) = key {
            let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
            causes.push(Cause::invalid(format!("{at}.items.{key}"), list_type, why));
        }
    }
    if let Some(other) = given.filter(|given| !matches!(*given, "atomic" | "set" | "map")) {
        causes.push(unsupported(field.clone(), other, &["atomic", "set", "map"]));
    }
    if tree::list(schema, &["x-kubernetes-list-map-keys"]).is_empty() || given == Some("map") {
        return;
    }
    let why = "must be map if x-kubernetes-list-map-keys is non-empty";
    causes.push(match given {
        None => Cause::required(field, why),
        Some(given) => Cause::invalid(field, &json!(given), why),
    });
}

/// The items of a list that are told apart.
fn keys(schema: &Value, at: &str, causes: &mut Vec<Cause>) {
    let list_type = tree::text(schema, &["x-kubernetes-list-type"]);
    let keys = tree::list(schema, &["x-kubernetes-list-map-keys"]);
    let field = format!("{at}.x-kubernetes-list-map-keys");
    let items = schema.get("items").filter(|items| !items.is_null());
    if list_type == "map" {
        if keys.is_empty() {
            let why = "must not be empty if x-kubernetes-list-type is map";
            causes.push(Cause::required(&field, why));
        }
        match items {
            None => {
                let why = "must have a schema if x-kubernetes-list-type is map";
                causes.push(Cause::required(format!("{at}.items"), why));
            }
            Some(list @ Value::Array(_)) => {
                let why = "must only have a single schema if x-kubernetes-list-type is map";
                causes.push(Cause::invalid(format!("{at}.items"), list, why));
            }
            Some(items) if tree::text(items, &["type"]) != "object" => {
                let why = "must be object if parent array's x-kubernetes-list-type is map";
                let kind = json!(tree::text(items, &["type"]));
                causes.push(Cause::invalid(format!("{at}.items.type"), &kind, why));
            }
            Some(items) => named(items, keys, at, causes),
        }
    }
    let Some(items) = items.filter(|items| items.is_object() && matches!(list_type, "map" | "set")) else {
        return;
    };
    if flag(items, "nullable") {
        let why = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        causes.push(Cause::forbidden(format!("{at}.items.nullable"), &why));
    }
    if list_type == "set" {
        return;
    }
    let required: HashSet<&str> = tree::list(items, &["required"]).iter().filter_map(Value::as_str).collect();
    for name in keys.iter().filter_map(Value::as_str) {
        let Some(property) = tree::at(items, &["properties", name]) else { continue };
        let place = format!("{at}.items.properties[{name}]");
        if !required.contains(name) && property.get("default").is_none_or(Value::is_null) {
            let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            causes.push(Cause::required(format!("{place}.default"), why));
        }
        if flag(property, "nullable") {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            causes.push(Cause::forbidden(format!("{place}.nullable"), why));
        }
    }
}

/// Keys are names of scalar properties of the items.
fn named(items: &Value, keys: &[Value], at: &str, causes: &mut Vec<Cause>) {
    let all = Value::Array(keys.to_vec());
    let field = format!("{at}.x-kubernetes-list-map-keys");
    let mut seen = HashSet::new();
    for name in keys.iter().filter_map(Value::as_str) {
        if causes.len() >= MAX_CAUSES {
            return;
        }
        match tree::at(items, &["properties", name]) {
            None => {
                causes.push(Cause::invalid(&field, &all, "entries must all be names of item properties"));
            }
            Some(property) if matches!(tree::text(property, &["type"]), "array" | "object") => {
                let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                let place = format!("{at}.items.properties[{name}].type");
                causes.push(Cause::invalid(place, &json!("object"), why));
            }
            Some(_) => {}
        }
        if !seen.insert(name) {
            causes.push(Cause::invalid(&field, &all, "must not contain duplicate entries"));
        }
    }
}

#[cfg(test)]
mod tests;
