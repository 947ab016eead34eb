//! Validation of CustomResourceDefinitions except their schemas: names, versions, columns, subresources, what may
//! change.
//!
//! Inputs: a new or changed CRD. Source: the validation of Kubernetes 1.36. Absent on purpose: whether the schema
//! is structural (see `structural`), and rules (see `rules`).

use crate::client_config;
use crate::field::{At, Causes};
use crate::jsonpath::JsonPath;
use crate::schema::Schema;
pub use crate::validate::label_problem;
use crate::validate::{self, NameRule};
use fleet_apiserver_cel::cause::Cause;
use serde_json::{Value, json};

const MOST_SELECTABLE: usize = 8;
const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] =
    ["int32", "int64", "float", "double", "byte", "date", "date-time", "password"];

/// Adds what is wrong with a definition.
pub fn check(old: Option<&Value>, crd: &Value, causes: &mut Vec<Cause>) {
    let found = Causes::default();
    {
        let root = At::root(crd, &found);
        let spec = root.at("spec");
        let group = spec.at("group");
        if !group.text().is_empty() {
            group.name(NameRule::Subdomain);
            if !group.text().contains('.') {
                group.invalid("should be a domain with at least one dot");
            }
        }
        names(&spec.at("names"));
        if spec.at("preserveUnknownFields").is_true() {
            spec.at("preserveUnknownFields").invalid(
                "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
            );
        }
        conversion(&spec.at("conversion"));
        let versions = spec.at("versions");
        for version in versions.items() {
            one_version(&version);
        }
        if let Some(old) = old {
            let before = At::root(old, &found);
            changed(&root, &before);
        }
    }
    causes.extend(found.into_inner());
}

/// A label, if one is there.
fn label(at: &At) {
    if let Some(why) = label_problem(at.text()).filter(|_| !at.text().is_empty()) {
        at.invalid(why);
    }
}

fn names(names: &At) {
    for field in ["plural", "singular"] {
        label(&names.at(field));
    }
    for list in ["shortNames", "categories"] {
        names.at(list).items().for_each(|name| label(&name));
    }
    for field in ["kind", "listKind"] {
        let name = names.at(field);
        if let Some(why) = label_problem(&name.text().to_lowercase()).filter(|_| !name.text().is_empty()) {
            name.invalid(&format!("may have mixed case, but should otherwise match: {why}"));
        }
    }
    let (kind, list) = (names.at("kind"), names.at("listKind"));
    if !kind.text().is_empty() && kind.text() == list.text() {
        list.invalid("kind and listKind may not be the same");
    }
}

fn conversion(at: &At) {
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

fn one_version(version: &At) {
    let name = version.at("name");
    if let Some(why) = label_problem(name.text()) {
        name.note(Cause::invalid(name.path(), &json!(name.text()), why));
    }
    let warning = version.at("deprecationWarning");
    if warning.is_set() && !version.at("deprecated").is_true() {
        warning.invalid("can only be set for deprecated versions");
    }
    for column in version.at("additionalPrinterColumns").items() {
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
        if path.need() && !path.text().starts_with('.') {
            path.invalid("must be a simple json path starting with .");
        } else if JsonPath::new(path.text()).is_none() {
            path.invalid("is not a JSONPath this server supports");
        }
    }
    let fields = version.at("selectableFields");
    if fields.len() > MOST_SELECTABLE {
        fields.too_many(MOST_SELECTABLE);
    }
    fields.unique("jsonPath");
    for field in fields.items() {
        let path = field.at("jsonPath");
        if path.need() {
            selectable(&path, version.at("schema.openAPIV3Schema").value());
        }
    }
    let scale = version.at("subresources.scale");
    if scale.is_set() {
        scale_paths(&scale);
    }
    let schema = version.at("schema.openAPIV3Schema");
    for key in ["apiVersion", "kind"] {
        let declared = schema.at("properties");
        let declared = declared.key(key);
        if declared.is_set() && declared.at("type").text() != "string" {
            declared.at("type").invalid("must be string");
        }
    }
    let metadata = schema.at("properties");
    let metadata = metadata.key("metadata");
    if let Some(map) = metadata.value().as_object() {
        let named = map.get("properties").and_then(Value::as_object).into_iter().flatten();
        let other = named.map(|(k, _)| k.as_str()).any(|k| !matches!(k, "name" | "generateName"));
        if other || map.keys().any(|k| !matches!(k.as_str(), "type" | "properties" | "description")) {
            metadata.forbidden(
                "must not specify anything other than name and generateName, but metadata is implicitly specified",
            );
        }
    }
    if schema.is_set() {
        node(&schema, 0);
    }
}

/// A field by which objects are selected is a single value of the schema.
fn selectable(path: &At, schema: &Value) {
    let Some(rest) = path.text().strip_prefix('.') else {
        path.invalid("is an invalid path: expected '.' at the start");
        return;
    };
    let names: Vec<&str> = rest.split('.').collect();
    if names.first() == Some(&"metadata") {
        path.invalid("must not point to fields in metadata");
        return;
    }
    let Some(found) = names.iter().try_fold(schema, |at, name| at.get("properties")?.get(*name)) else {
        path.invalid("is an invalid path: does not refer to a valid field");
        return;
    };
    let kind = found.get("type").and_then(Value::as_str).unwrap_or_default();
    if !matches!(kind, "string" | "boolean" | "integer") {
        path.invalid(
            "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.",
        );
    }
}

fn scale_paths(scale: &At) {
    let under = |at: &At, start: &[&str], why: &str| {
        if !start.iter().any(|s| at.text().starts_with(s)) {
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

/// Nesting looked at; deeper schemas are refused elsewhere.
const DEEPEST: usize = 64;

/// A default must fit its schema, and an embedded object must have the form of one.
fn node(at: &At, depth: usize) {
    if depth > DEEPEST {
        return;
    }
    let default = at.at("default");
    if default.is_set() {
        let mut wrong = Vec::new();
        let mut bare = at.value().clone();
        fleet_apiserver_ground::tree::object(&mut bare).remove("default");
        validate::schema(&Schema::compile(&bare), default.value(), "", &mut wrong);
        if wrong.is_empty() {
            let mut pruned = default.value().clone();
            crate::decode::prune(&Schema::compile(&bare), &mut pruned);
            if pruned != *default.value() {
                default.invalid("must not have unknown fields");
            }
            let rules = fleet_apiserver_cel::rules::Rules::compile(&bare);
            wrong = rules.map(|rules| rules.broken(default.value(), None)).unwrap_or_default();
        }
        for cause in wrong {
            let inner = if cause.field.is_empty() {
                default.path()
            } else {
                format!("{}.{}", default.path(), cause.field)
            };
            default.note(Cause::new(cause.reason, inner, cause.message));
        }
    }
    let open = at.at("x-kubernetes-preserve-unknown-fields");
    if *open.value() == json!(false) {
        open.invalid("must be true or undefined");
    }
    if at.at("x-kubernetes-embedded-resource").is_true() {
        let kind = at.at("type");
        if kind.text() != "object" {
            kind.invalid("must be object if x-kubernetes-embedded-resource is true");
        }
        if !at.at("properties").is_set() && !open.is_true() {
            at.at("properties").required("must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields");
        }
    }
    let properties = at.at("properties");
    properties.entries().for_each(|(_, child)| node(&child, depth + 1));
    for below in ["items", "additionalProperties"] {
        let below = at.at(below);
        if below.value().is_object() {
            node(&below, depth + 1);
        }
    }
}

fn changed(new: &At, old: &At) {
    for field in ["spec.group", "spec.names.plural", "spec.scope", "spec.names.kind"] {
        let (now, before) = (new.at(field), old.at(field));
        if !before.text().is_empty() && now.text() != before.text() {
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
