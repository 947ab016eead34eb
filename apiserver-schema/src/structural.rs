//! Whether the schema of a CRD is structural: every field has a type, and nothing is declared twice.
//!
//! Inputs: `openAPIV3Schema` of one version. Source: "Specifying a structural schema" of the Kubernetes
//! documentation. Absent on purpose: whether defaults fit their own schema.

use fleet_apiserver_cel::cause::Cause;
use fleet_apiserver_ground::tree;
use serde_json::{Value, json};

/// Causes collected at most.
const MAX_CAUSES: usize = 20;
/// What value validations below `allOf`, `anyOf`, `oneOf` and `not` may not say, and what they are to be.
const ONLY_OUTSIDE: [(&str, &str); 12] = [
    ("additionalProperties", "undefined"),
    ("default", "undefined"),
    ("description", "empty"),
    ("nullable", "false"),
    ("title", "empty"),
    ("x-kubernetes-embedded-resource", "false"),
    ("x-kubernetes-int-or-string", "false"),
    ("x-kubernetes-list-map-keys", "empty"),
    ("x-kubernetes-list-type", "undefined"),
    ("x-kubernetes-map-type", "undefined"),
    ("x-kubernetes-preserve-unknown-fields", "false"),
    ("x-kubernetes-validations", "empty"),
];
const UNSUPPORTED: [&str; 6] =
    ["$ref", "additionalItems", "definitions", "dependencies", "patternProperties", "id"];

/// Where a schema stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    Item,
    Field,
}

/// Adds what is wrong with a root schema.
pub fn check(schema: &Value, at: &str, causes: &mut Vec<Cause>) {
    if flag(schema, "nullable") {
        causes.push(Cause::forbidden(format!("{at}.nullable"), "nullable cannot be true at the root"));
    }
    node(schema, Place::Root, at, causes);
    complete(schema, schema, at, at, causes);
}

fn flag(schema: &Value, key: &str) -> bool {
    schema.get(key) == Some(&Value::Bool(true))
}

/// True for what says as much as nothing.
fn is_bare(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

/// The value validations of a schema, each with its path.
fn junctions<'a>(schema: &'a Value, at: &str) -> Vec<(&'a Value, String)> {
    let mut found = Vec::new();
    for key in ["anyOf", "allOf", "oneOf"] {
        let list = tree::list(schema, &[key]).iter().enumerate();
        found.extend(list.map(|(i, child)| (child, format!("{at}.{key}[{i}]"))));
    }
    found.extend(schema.get("not").filter(|v| v.is_object()).map(|child| (child, format!("{at}.not"))));
    found
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

/// `anyOf` that spells out what an integer or a string is, and does nothing else.
fn spells_out(schema: &Value) -> bool {
    let is = |child: &Value, kind: &str| {
        child.as_object().is_some_and(|map| map.len() == 1) && tree::text(child, &["type"]) == kind
    };
    matches!(tree::list(schema, &["anyOf"]), [one, two] if is(one, "integer") && is(two, "string"))
}

/// Adds what no schema may say.
fn unsupported(schema: &Value, at: &str, causes: &mut Vec<Cause>) {
    for key in UNSUPPORTED {
        if schema.get(key).is_some_and(|v| !v.is_null()) {
            causes.push(Cause::forbidden(format!("{at}.{key}"), &format!("{key} is not supported")));
        }
    }
    if flag(schema, "uniqueItems") {
        causes.push(Cause::forbidden(
            format!("{at}.uniqueItems"),
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ));
    }
    if let Some(text) = schema.get("pattern").and_then(Value::as_str)
        && let Err(why) = fleet_apiserver_cel::compile_pattern(text)
    {
        let why = format!("must be a valid regular expression, but isn't: {why}");
        causes.push(Cause::invalid(format!("{at}.pattern"), &json!(text), &why));
    }
}

/// Adds what is wrong with the type of a schema.
fn typed(schema: &Value, place: Place, at: &str, causes: &mut Vec<Cause>) {
    let at = format!("{at}.type");
    let (mixed, open) =
        (flag(schema, "x-kubernetes-int-or-string"), flag(schema, "x-kubernetes-preserve-unknown-fields"));
    let kind = tree::text(schema, &["type"]);
    match kind {
        // An embedded resource is judged where its other fields are.
        "" if mixed || open || flag(schema, "x-kubernetes-embedded-resource") => {}
        "" => {
            let why = match place {
                Place::Root => "must not be empty at the root",
                Place::Item => "must not be empty for specified array items",
                Place::Field => "must not be empty for specified object fields",
            };
            causes.push(Cause::required(&at, why));
        }
        "object" | "array" | "string" | "integer" | "number" | "boolean" => {}
        other => {
            let message = format!(
                "Unsupported value: {other:?}: supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\""
            );
            causes.push(Cause::new("FieldValueNotSupported", &at, message));
        }
    }
    if place == Place::Root && !matches!(kind, "" | "object") {
        causes.push(Cause::invalid(&at, &json!(kind), "must be object at the root"));
    }
    if mixed && !kind.is_empty() {
        causes.push(Cause::forbidden(&at, "must be empty if x-kubernetes-int-or-string is true"));
    }
}

/// Adds what is wrong with the fields that a schema does not name.
fn additional(schema: &Value, place: Place, at: &str, causes: &mut Vec<Cause>) {
    let Some(additional) = schema.get("additionalProperties").filter(|v| !v.is_null()) else { return };
    let at = format!("{at}.additionalProperties");
    if *additional == false {
        causes.push(Cause::forbidden(&at, "additionalProperties cannot be set to false"));
    }
    if *additional != true && properties(schema).next().is_some() {
        causes.push(Cause::forbidden(&at, "additionalProperties and properties are mutual exclusive"));
    }
    if place == Place::Root {
        causes.push(Cause::forbidden(&at, "must not be used at the root"));
    }
    if flag(schema, "x-kubernetes-embedded-resource") {
        causes.push(Cause::forbidden(&at, "must not be used if x-kubernetes-embedded-resource is set"));
    }
    if additional.is_object() {
        node(additional, Place::Field, &at, causes);
    }
}

fn node(schema: &Value, place: Place, at: &str, causes: &mut Vec<Cause>) {
    if causes.len() >= MAX_CAUSES {
        return;
    }
    unsupported(schema, at, causes);
    typed(schema, place, at, causes);
    if flag(schema, "x-kubernetes-int-or-string") {
        for key in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
            if flag(schema, key) {
                let why = "must be false if x-kubernetes-int-or-string is true";
                causes.push(Cause::invalid(format!("{at}.{key}"), &json!(true), why));
            }
        }
    }
    let kind = tree::text(schema, &["type"]);
    if kind == "array" && !schema.get("items").is_some_and(Value::is_object) {
        causes.push(Cause::required(format!("{at}.items"), "must be specified"));
    }
    map(schema, kind, at, causes);
    list(schema, kind, at, causes);
    for (name, child) in properties(schema) {
        node(child, Place::Field, &format!("{at}.properties[{name}]"), causes);
    }
    if let Some(items @ Value::Object(_)) = schema.get("items") {
        node(items, Place::Item, &format!("{at}.items"), causes);
    }
    additional(schema, place, at, causes);
    validations(schema, spells_out(schema), at, causes);
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

/// Looks through what a schema says by `anyOf` and its like; `spelled_out`: its `anyOf` is the exception.
fn validations(schema: &Value, spelled_out: bool, at: &str, causes: &mut Vec<Cause>) {
    let first = format!("{at}.allOf[0]");
    for (child, path) in junctions(schema, at) {
        if spelled_out && path[at.len()..].starts_with(".anyOf") {
            continue;
        }
        validation(child, path == first && spells_out(child), &path, causes);
    }
}

/// A schema that may only judge values, not shape them.
fn validation(schema: &Value, spelled_out: bool, at: &str, causes: &mut Vec<Cause>) {
    if causes.len() >= MAX_CAUSES {
        return;
    }
    unsupported(schema, at, causes);
    for (key, wanted) in ONLY_OUTSIDE {
        if schema.get(key).is_some_and(|v| !is_bare(v) || (key == "default" && !v.is_null())) {
            let why = format!("must be {wanted} to be structural");
            causes.push(Cause::forbidden(format!("{at}.{key}"), &why));
        }
    }
    if !tree::text(schema, &["type"]).is_empty() {
        causes.push(Cause::forbidden(format!("{at}.type"), "must be empty to be structural"));
    }
    for (name, child) in properties(schema) {
        let path = format!("{at}.properties[{name}]");
        if name == "metadata" {
            causes.push(Cause::forbidden(&path, "must not be specified in a nested context"));
        }
        validation(child, false, &path, causes);
    }
    if let Some(items @ Value::Object(_)) = schema.get("items") {
        validation(items, false, &format!("{at}.items"), causes);
    }
    validations(schema, spelled_out, at, causes);
}

/// What value validations of the root, at `said`, say of a field needs that field in the schema, at `at`. As in the
/// real server, those of fields are not asked.
fn complete(validation: &Value, schema: &Value, at: &str, said: &str, causes: &mut Vec<Cause>) {
    for (child, said) in junctions(validation, said) {
        declared(child, Some(schema), at, &said, causes);
    }
}

fn declared(validation: &Value, schema: Option<&Value>, at: &str, said: &str, causes: &mut Vec<Cause>) {
    if causes.len() >= MAX_CAUSES {
        return;
    }
    let Some(schema) = schema.filter(|schema| schema.is_object()) else {
        causes.push(Cause::required(at, &format!("because it is defined in {said}")));
        return;
    };
    complete(validation, schema, at, said, causes);
    if let Some(items @ Value::Object(_)) = validation.get("items") {
        declared(items, schema.get("items"), &format!("{at}.items"), &format!("{said}.items"), causes);
    }
    for (name, property) in properties(validation) {
        let field = format!("properties[{name}]");
        let found = tree::at(schema, &["properties", name]);
        declared(property, found, &format!("{at}.{field}"), &format!("{said}.{field}"), causes);
    }
}
