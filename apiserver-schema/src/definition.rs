//! Validation of CustomResourceDefinitions except their schemas: names, versions, columns, subresources, what may
//! change.
//!
//! Inputs: a new or changed CRD. Source: the validation of Kubernetes 1.36, with its order. Absent on purpose: what is wrong
//! with a schema (see `compiled`), and with metadata.

use crate::field::{At, Causes};
use crate::{client_config, compiled, names};
use fleet_apiserver_cel::cause::Cause;
use fleet_apiserver_cel::go_text;
use fleet_apiserver_ground::tree;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap, HashSet};

const MOST_SELECTABLE: usize = 8;
const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] =
    ["int32", "int64", "float", "double", "byte", "date", "date-time", "password"];

/// What versions have in common is told once, at a place of its own: the field of a version, and that place.
const SHARED: [(&str, &str); 4] = [
    ("schema", "validation"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

/// Adds what is wrong with the spec of a definition, and with its stored versions. Names that are not given were filled in.
pub fn check(old: Option<&Value>, crd: &Value, causes: &mut Vec<Cause>) {
    let found = Causes::default();
    let root = At::root(crd, &found);
    let spec = root.at("spec");
    of_group(&spec.at("group"));
    spec.at("scope").need_one_of(&["Cluster", "Namespaced"]);
    let versions = spec.at("versions");
    for version in versions.items() {
        let schema = version.at("schema.openAPIV3Schema");
        if !schema.is_set() {
            schema.required("");
        }
    }
    let preserve = spec.at("preserveUnknownFields");
    if preserve.is_true() && has_default(versions.value()) {
        preserve.invalid("must be false in order to use defaults in the schema");
    }
    let (of_one, of_all) = of_versions(old, crd);
    found.borrow_mut().extend(of_one);
    marked(&versions);
    let names = spec.at("names");
    for field in ["plural", "singular", "kind", "listKind"] {
        names.at(field).need();
    }
    of_names(&names);
    found.borrow_mut().extend(of_all);
    let strategy = spec.at("conversion.strategy");
    if preserve.is_true() && strategy.text() != "None" {
        strategy.invalid("must be None if spec.preserveUnknownFields is true");
    }
    conversion(&spec.at("conversion"), old.is_some_and(checks_bundle));
    if let Some(old) = old {
        changed(&root, &At::root(old, &found));
    }
    causes.extend(found.take());
}

/// Adds what is wrong with a field that new definitions cannot have.
pub fn check_preserving(old: Option<&Value>, crd: &Value, causes: &mut Vec<Cause>) {
    const FIELD: &str = "spec.preserveUnknownFields";
    let is_set = |crd: &Value| tree::at(crd, &["spec", "preserveUnknownFields"]) == Some(&Value::Bool(true));
    if is_set(crd) && !old.is_some_and(is_set) {
        let why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        causes.push(Cause::invalid(FIELD, &json!(true), why));
    }
}

fn of_group(group: &At) {
    if group.text().is_empty() {
        return group.required("");
    }
    let whys = names::subdomain(group.text());
    if !whys.is_empty() {
        group.invalid(&whys.join(","));
    } else if !group.text().contains('.') {
        group.invalid("should be a domain with at least one dot");
    }
}

fn has_default(value: &Value) -> bool {
    match value {
        Value::Object(map) => {
            map.get("default").is_some_and(|default| !default.is_null()) || map.values().any(has_default)
        }
        Value::Array(list) => list.iter().any(has_default),
        _ => false,
    }
}

/// One version is stored, and each has a name of its own; the first one's is that of the whole.
fn marked(versions: &At) {
    let names: BTreeSet<&str> = versions.items().map(|v| v.at("name").text()).collect();
    if names.len() != versions.len() {
        versions.invalid("must contain unique version names");
    }
    if versions.items().filter(|v| v.at("storage").is_true()).count() != 1 {
        versions.invalid("must have exactly one version marked as storage version");
    }
    if let Some(first) = versions.items().next().map(|v| v.at("name").text()).filter(|name| !name.is_empty())
    {
        let whys = names::label_1035(first);
        if !whys.is_empty() {
            versions.note(Cause::invalid("spec.version", &json!(first), &whys.join(",")));
        }
    }
}

/// What is wrong with single versions, and with what all of them have in common.
fn of_versions(old: Option<&Value>, crd: &Value) -> (Vec<Cause>, Vec<Cause>) {
    let found = Causes::default();
    let root = At::root(crd, &found);
    let versions = root.at("spec.versions");
    let list = tree::list(crd, &["spec", "versions"]);
    let same = SHARED.map(|(key, _)| {
        let first = list.first().and_then(|v| v.get(key));
        first.is_some() && list.iter().all(|v| v.get(key) == first)
    });
    let has_status = |v: &At| v.at("subresources.status").is_set();
    let any_status = versions.items().any(|v| has_status(&v));
    let before = old.map(|old| tree::list(old, &["spec", "versions"])).unwrap_or_default();
    let before: HashMap<&str, &Value> = before.iter().map(|v| (tree::text(v, &["name"]), v)).collect();
    for version in versions.items() {
        let status = if same[0] { any_status } else { has_status(&version) };
        one_version(before.get(version.at("name").text()).copied(), &version, status);
    }
    let (mut of_one, mut of_all) = (Vec::new(), SHARED.map(|_| Vec::new()));
    let mut told = HashSet::new();
    for mut cause in found.take() {
        let rest = cause.field.strip_prefix("spec.versions[").and_then(|rest| rest.split_once("]."));
        let place = SHARED.iter().zip(same).zip(&mut of_all).find_map(|((shared, same), list)| {
            let below = rest?.1.strip_prefix(shared.0).filter(|_| same)?;
            Some((format!("spec.{}{below}", shared.1), list))
        });
        match place {
            None => of_one.push(cause),
            Some((field, list)) => {
                cause.field = field;
                if told.insert(format!("{} {}", cause.field, cause.message)) {
                    list.push(cause);
                }
            }
        }
    }
    (of_one, of_all.into_iter().flatten().collect())
}

/// A label, with all that is wrong with it in one text.
fn label(at: &At) {
    let whys = names::label_1035(at.text());
    if !whys.is_empty() {
        at.note(Cause::invalid(at.path(), &json!(at.text()), &whys.join(",")));
    }
}

fn of_names(names: &At) {
    for field in ["plural", "singular"] {
        if !names.at(field).text().is_empty() {
            label(&names.at(field));
        }
    }
    for field in ["kind", "listKind"] {
        let name = names.at(field);
        let whys = names::label_1035(&name.text().to_lowercase());
        if !name.text().is_empty() && !whys.is_empty() {
            name.invalid(&format!("may have mixed case, but should otherwise match: {}", whys.join(",")));
        }
    }
    names.at("shortNames").items().for_each(|name| label(&name));
    let (kind, list) = (names.at("kind"), names.at("listKind"));
    if !kind.text().is_empty() && kind.text() == list.text() {
        list.invalid("kind and listKind may not be the same");
    }
    names.at("categories").items().for_each(|name| label(&name));
}

fn is_established(crd: &Value) -> bool {
    let is = |c: &Value| tree::text(c, &["type"]) == "Established" && tree::text(c, &["status"]) == "True";
    tree::list(crd, &["status", "conditions"]).iter().any(is)
}

/// The certificates by which the webhook of a definition is trusted.
pub fn bundle(crd: &Value) -> &str {
    tree::text(crd, &["spec", "conversion", "webhook", "clientConfig", "caBundle"])
}

/// Where a definition is served, certificates that are none do not take the place of others.
fn checks_bundle(old: &Value) -> bool {
    is_established(old) && client_config::bundle_problem(bundle(old)).is_none()
}

/// `strict`: certificates have to be some.
fn conversion(at: &At, strict: bool) {
    if !at.is_set() {
        return;
    }
    let strategy = at.at("strategy");
    strategy.need_one_of(&["None", "Webhook"]);
    // Causes name the fields of the internal type, which has no level between.
    let hook = at.value().get("webhook");
    let part = |field: &'static str| hook.and_then(|hook| hook.get(field));
    let config = at.beside("webhookClientConfig", part("clientConfig"));
    let versions = at.beside("conversionReviewVersions", part("conversionReviewVersions"));
    if strategy.text() == "Webhook" {
        if config.is_set() {
            client_config::check(&config);
            let bundle = config.at("caBundle");
            if let Some(why) = client_config::bundle_problem(bundle.text()).filter(|_| strict) {
                bundle.invalid(&why);
            }
        } else {
            config.required("required when strategy is set to Webhook");
        }
        client_config::review_versions(&versions, "");
    } else {
        const UNUSED: &str = "should not be set when strategy is not set to Webhook";
        if config.is_set() {
            config.forbidden(UNUSED);
        }
        if !versions.is_empty() {
            versions.forbidden(UNUSED);
        }
    }
}

/// Checks one version; `before` is the one of its name that is stored: the schema that was accepted once stays accepted.
fn one_version(before: Option<&Value>, version: &At, status: bool) {
    label(&version.at("name"));
    deprecation(version);
    let schema = version.at("schema.openAPIV3Schema");
    if schema.is_set() {
        if status {
            root_of_status(&schema);
        }
        if schema.at("nullable").is_true() {
            schema.at("nullable").forbidden("nullable cannot be true at the root");
        }
        if before.is_none_or(|before| before.get("schema") != version.value().get("schema")) {
            for cause in compiled::check(schema.value(), &schema.path()) {
                schema.note(cause);
            }
        }
    }
    let scale = version.at("subresources.scale");
    if scale.is_set() {
        scale_paths(&scale);
    }
    version.at("additionalPrinterColumns").items().for_each(|column| of_column(&column));
    selectables(before, version, schema.value());
}

fn deprecation(version: &At) {
    const LONGEST: usize = 256;
    let warning = version.at("deprecationWarning");
    if !warning.is_set() {
        return;
    }
    if !version.at("deprecated").is_true() {
        return warning.invalid("can only be set for deprecated versions");
    }
    let text = warning.text();
    if text.len() > LONGEST {
        warning.invalid("must be <= 256 characters long");
    }
    if text.is_empty() {
        warning.invalid("must not be an empty string");
    }
    if let Some((at, _)) = text.char_indices().find(|(_, c)| !go_text::is_printed(*c)) {
        warning.invalid(&format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {at}"
        ));
    }
}

/// What the root of a schema says must also hold for the status alone, which is judged by its part of the schema.
fn root_of_status(schema: &At) {
    const BEFORE_TYPE: [&str; 3] = ["id", "$schema", "$ref"];
    const OTHERS: [&str; 18] = [
        "nullable",
        "default",
        "maxProperties",
        "minProperties",
        "enum",
        "allOf",
        "oneOf",
        "anyOf",
        "not",
        "additionalProperties",
        "patternProperties",
        "dependencies",
        "additionalItems",
        "definitions",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
    ];
    const ALLOWED: &str = "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations] fields are allowed at the root of the schema if the status subresource is enabled";
    let said = |key: &&str| {
        let found = schema.value().get(*key).unwrap_or(&Value::Null);
        !matches!(found, Value::Null | Value::Bool(false)) && *found != json!("") && *found != json!([])
    };
    let kind = schema.at("type");
    if BEFORE_TYPE.iter().any(said) {
        schema.invalid(ALLOWED);
    } else if !matches!(kind.text(), "" | "object") {
        kind.invalid(
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled",
        );
    } else if OTHERS.iter().any(said) {
        schema.invalid(ALLOWED);
    }
}

fn of_column(column: &At) {
    column.at("name").need();
    let (kind, format) = (column.at("type"), column.at("format"));
    if kind.text().is_empty() {
        kind.required("must be one of boolean,date,integer,number,string");
    } else if !COLUMN_TYPES.contains(&kind.text()) {
        kind.invalid("must be one of boolean,date,integer,number,string");
    }
    if !format.text().is_empty() && !COLUMN_FORMATS.contains(&format.text()) {
        format.invalid("must be one of byte,date,date-time,double,float,int32,int64,password");
    }
    let path = column.beside("JSONPath", column.value().get("jsonPath"));
    if path.need() {
        simple_path(&path);
    }
}

/// True for a path that begins at the object; says so otherwise.
fn simple_path(path: &At) -> bool {
    let fits = path.text().starts_with('.');
    if !fits {
        path.invalid("must be a simple json path starting with .");
    }
    fits
}

/// Fields by which objects are selected.
fn selectables(before: Option<&Value>, version: &At, schema: &Value) {
    let fields = version.at("selectableFields");
    let mut seen = BTreeSet::new();
    for field in fields.items() {
        let path = field.at("jsonPath");
        if !path.need() {
            continue;
        }
        let kind = match selected(path.text(), schema) {
            Ok(kind) => kind,
            Err(why) => {
                path.invalid(&format!("is an invalid path: {why}"));
                continue;
            }
        };
        if path.text().split('.').nth(1) == Some("metadata") {
            path.invalid("must not point to fields in metadata");
        }
        if !matches!(kind, "string" | "boolean" | "integer") {
            path.invalid(
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.",
            );
        }
        if !seen.insert(path.text()) {
            path.duplicate();
        }
    }
    let known = before.and_then(|before| before.get("selectableFields"));
    if seen.len() > MOST_SELECTABLE && known != Some(fields.value()) {
        let message = format!("Too many: {}: must have at most {MOST_SELECTABLE} items", seen.len());
        fields.note(Cause::new("FieldValueTooMany", fields.path(), message));
    }
}

/// The type of the field that a path names, such as `.spec.color`.
fn selected<'s>(path: &str, schema: &'s Value) -> Result<&'s str, String> {
    const NO_FIELD: &str = "does not refer to a valid field";
    let (mut at, mut rest) = (schema, path);
    while !rest.is_empty() {
        if rest.starts_with('[') {
            return Err("array notation is not allowed".into());
        }
        let delimiters = ['.', '[', ']'];
        let Some(after) = rest.strip_prefix('.') else {
            let end = rest.find(delimiters).unwrap_or(rest.len()).max(1);
            return Err(format!("expected [ or . but got: {}", rest.get(..end).unwrap_or(rest)));
        };
        if after.is_empty() {
            return Err("unexpected end of JSON path".into());
        }
        let end = after.find(delimiters).unwrap_or(after.len()).max(1);
        let (name, below) = after.split_at(end);
        let properties = at.get("properties").and_then(Value::as_object).filter(|map| !map.is_empty());
        at = match properties {
            Some(map) => map.get(name).ok_or(NO_FIELD)?,
            None => at.get("additionalProperties").filter(|v| v.is_object()).ok_or(NO_FIELD)?,
        };
        rest = below;
    }
    Ok(tree::text(at, &["type"]))
}

fn scale_paths(scale: &At) {
    let under = |at: &At, start: &[&str], why: &str| {
        if simple_path(at) && !start.iter().any(|s| at.text().starts_with(s)) {
            at.invalid(why);
        }
    };
    let (spec, status, selector) =
        (scale.at("specReplicasPath"), scale.at("statusReplicasPath"), scale.at("labelSelectorPath"));
    if spec.need() {
        under(&spec, &[".spec."], "should be a json path under .spec");
    }
    if status.need() {
        under(&status, &[".status."], "should be a json path under .status");
    }
    if !selector.text().is_empty() {
        under(&selector, &[".status.", ".spec."], "should be a json path under either .spec or .status");
    }
}

fn changed(new: &At, old: &At) {
    let fixed: &[&str] = if is_established(old.value()) {
        &["spec.scope", "spec.names.kind", "spec.group", "spec.names.plural"]
    } else {
        &["spec.group", "spec.names.plural"]
    };
    for field in fixed {
        let (now, before) = (new.at(field), old.at(field));
        if now.text() != before.text() {
            now.invalid("field is immutable");
        }
    }
    let versions = new.at("spec.versions");
    for (i, stored) in old.at("status.storedVersions").items().enumerate() {
        let name = stored.text();
        if !versions.items().any(|v| v.at("name").text() == name) {
            let why = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            new.note(Cause::invalid(format!("status.storedVersions[{i}]"), &json!(name), &why));
        }
    }
}
