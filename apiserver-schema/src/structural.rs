//! Whether the schema of a CRD is structural: every field has a type, and nothing is declared twice.
//!
//! Inputs: `openAPIV3Schema` of one version. Source: `ValidateStructural` of Kubernetes 1.36, whose causes are sorted by their
//! texts. Absent on purpose: what no schema may say (see `schema_rules`), and whether defaults fit (see `schema_defaults`).

use fleet_apiserver_cel::cause::Cause;
use fleet_apiserver_ground::tree;
use serde_json::{Value, json};

/// Causes collected at most.
const MAX_CAUSES: usize = 100;
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
/// What a structural schema cannot even be read with, and what of it counts as there.
const UNREADABLE: [&str; 7] =
    ["id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions"];

/// Where a schema stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    Item,
    Field,
}

/// Adds what is wrong with a root schema that can be read.
pub fn check(schema: &Value, at: &str, causes: &mut Vec<Cause>) {
    let mut found = Vec::new();
    node(schema, Place::Root, at, &mut found);
    complete(schema, schema, at, at, &mut found);
    found.sort_by_cached_key(|cause| format!("{}: {}", cause.field, cause.message));
    causes.extend(found);
}

/// Why a schema cannot be read as a structural one at all, or None.
pub fn unreadable(schema: &Value) -> Option<String> {
    let map = schema.as_object()?;
    for key in UNREADABLE {
        let found = map.get(key).filter(|found| match found {
            Value::Object(map) => key == "additionalItems" || !map.is_empty(),
            other => !is_bare(other) || key == "additionalItems" && !other.is_null(),
        });
        if found.is_some() {
            return Some(format!("OpenAPIV3Schema '{}' is not supported", key.replace("$schema", "schema")));
        }
    }
    if map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        return Some(
            "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined".into(),
        );
    }
    map.iter().find_map(|(key, below)| match (key.as_str(), below) {
        ("items", Value::Array(list)) if !list.is_empty() => {
            Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_string())
        }
        ("allOf" | "anyOf" | "oneOf", Value::Array(list)) => list.iter().find_map(unreadable),
        ("properties", Value::Object(map)) => map.values().find_map(unreadable),
        ("items" | "additionalProperties" | "not", below) => unreadable(below),
        _ => None,
    })
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

fn node(schema: &Value, place: Place, at: &str, causes: &mut Vec<Cause>) {
    if causes.len() >= MAX_CAUSES {
        return;
    }
    if tree::text(schema, &["type"]) == "array" && !schema.get("items").is_some_and(Value::is_object) {
        causes.push(Cause::required(format!("{at}.items"), "must be specified"));
    }
    if let Some(items @ Value::Object(_)) = schema.get("items") {
        node(items, Place::Item, &format!("{at}.items"), causes);
    }
    for (name, child) in properties(schema) {
        node(child, Place::Field, &format!("{at}.properties[{name}]"), causes);
    }
    if let Some(additional) = schema.get("additionalProperties").filter(|v| !v.is_null()) {
        let at = format!("{at}.additionalProperties");
        if place == Place::Root {
            causes.push(Cause::forbidden(&at, "must not be used at the root"));
        }
        if additional.is_object() {
            node(additional, Place::Field, &at, causes);
        }
    }
    if flag(schema, "x-kubernetes-int-or-string") {
        for key in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
            if flag(schema, key) {
                let why = "must be false if x-kubernetes-int-or-string is true";
                causes.push(Cause::invalid(format!("{at}.{key}"), &json!(true), why));
            }
        }
    }
    validations(schema, (spells_out(schema), true), at, causes);
    typed(schema, place, at, causes);
    described(schema, place, at, causes);
}

/// Adds what is wrong with the type of a schema.
fn typed(schema: &Value, place: Place, at: &str, causes: &mut Vec<Cause>) {
    let at_type = format!("{at}.type");
    let open = ["x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"];
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    let kind = tree::text(schema, &["type"]);
    let must = "must be object if x-kubernetes-embedded-resource is true";
    match kind {
        "" if embedded => causes.push(Cause::required(&at_type, must)),
        _ if embedded && kind != "object" => causes.push(Cause::invalid(&at_type, &json!(kind), must)),
        "" if !open.iter().any(|key| flag(schema, key)) => {
            let why = match place {
                Place::Root => "must not be empty at the root",
                Place::Item => "must not be empty for specified array items",
                Place::Field => "must not be empty for specified object fields",
            };
            causes.push(Cause::required(&at_type, why));
        }
        _ => {}
    }
    if embedded && schema.get("additionalProperties").is_some_and(|v| !v.is_null()) {
        let why = "must not be used if x-kubernetes-embedded-resource is set";
        causes.push(Cause::forbidden(format!("{at}.additionalProperties"), why));
    }
    if place == Place::Root && !matches!(kind, "" | "object") {
        causes.push(Cause::invalid(&at_type, &json!(kind), "must be object at the root"));
    }
}

/// What objects say of themselves is only restricted so far, at the root and in embedded objects.
fn described(schema: &Value, place: Place, at: &str, causes: &mut Vec<Cause>) {
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    if !embedded && place != Place::Root {
        return;
    }
    for (key, kind) in [("kind", "string"), ("apiVersion", "string"), ("metadata", "object")] {
        let Some(declared) = tree::at(schema, &["properties", key]) else { continue };
        let found = tree::text(declared, &["type"]);
        let at = format!("{at}.properties[{key}]");
        if found != kind {
            causes.push(Cause::invalid(
                format!("{at}.type"),
                &json!(found),
                if key == "metadata" { "must be object" } else { "must be string" },
            ));
        }
        if key == "metadata" && place == Place::Root && !names_only(declared) {
            let why = "must not specify anything other than name and generateName, but metadata is implicitly specified";
            causes.push(Cause::forbidden(at, why));
        }
    }
    let open = flag(schema, "x-kubernetes-preserve-unknown-fields");
    if embedded && !open && properties(schema).next().is_none() {
        let why = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        causes.push(Cause::required(format!("{at}.properties"), why));
    }
}

/// True for metadata of which no more is said than its name.
fn names_only(metadata: &Value) -> bool {
    metadata.as_object().into_iter().flatten().all(|(key, said)| match key.as_str() {
        "type" | "default" => true,
        "properties" => {
            properties(metadata).all(|(name, _)| matches!(name.as_str(), "name" | "generateName"))
        }
        _ => is_bare(said),
    })
}

/// Looks through what a schema says by `anyOf` and its like. `spelled_out`: its `anyOf` is the exception, and the `anyOf` of its
/// first `allOf` may be.
fn validations(schema: &Value, spelled_out: (bool, bool), at: &str, causes: &mut Vec<Cause>) {
    let first = format!("{at}.allOf[0]");
    for (child, path) in junctions(schema, at) {
        if spelled_out.0 && path.get(at.len()..).is_some_and(|key| key.starts_with(".anyOf")) {
            continue;
        }
        validation(child, spelled_out.1 && path == first && spells_out(child), &path, causes);
    }
    if let Some(text) = schema.get("pattern").and_then(Value::as_str)
        && let Err(why) = fleet_apiserver_cel::compile_pattern(text)
    {
        let why = format!("must be a valid regular expression, but isn't: {why}");
        causes.push(Cause::invalid(format!("{at}.pattern"), &json!(text), &why));
    }
}

/// A schema that may only judge values, not shape them.
fn validation(schema: &Value, spelled_out: bool, at: &str, causes: &mut Vec<Cause>) {
    if causes.len() >= MAX_CAUSES {
        return;
    }
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
    validations(schema, (spelled_out, false), at, causes);
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
