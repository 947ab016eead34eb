//! The body of a write: options, decoding, unknown fields, names and namespaces.
//!
//! Inputs: a resolved call and bytes. Absent on purpose: what the write changes (see `write`, `settle`).

use crate::verbs::foreign;
use fleet_apiserver_admission::call::Call;
use fleet_apiserver_admission::form;
use fleet_apiserver_ground::store::Obj;
use fleet_apiserver_ground::tree;
use fleet_apiserver_kinds::registration;
use fleet_apiserver_openapi::objects;
use fleet_apiserver_schema::error::{ApiError, ApiResult, Cause};
use fleet_apiserver_schema::http_io;
use fleet_apiserver_schema::resource::Resource;
use fleet_apiserver_schema::validate::{self, quoted};
use fleet_apiserver_schema::{convert, decode, patch, syntax, yaml};
use serde_json::{Map, Value};
use std::collections::HashSet;

/// Where a request that was not looked through before has owners that are named twice.
pub const AFTER_ADMISSION: &str = " after mutating admission happens";

/// Checks the options that every write has.
pub fn check_options(call: &Call, kind: &str, apply: bool) -> ApiResult<()> {
    let p = &call.params;
    let mut causes = Vec::new();
    let manager = p.get("fieldManager");
    if apply && manager.is_empty() {
        causes.push(Cause::required("fieldManager", "is required for apply patch"));
    }
    if kind == "PatchOptions" && !apply && p.has("force") {
        causes.push(Cause::forbidden("force", "may not be specified for non-apply patch"));
    }
    causes.extend(validate::field_manager(manager, "fieldManager"));
    causes.extend(dry_run_cause(call));
    if !matches!(p.get("fieldValidation"), "" | "Ignore" | "Warn" | "Strict") {
        let message = format!(
            "Unsupported value: {}: supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
            quoted(p.get("fieldValidation"))
        );
        causes.push(Cause::new("FieldValueNotSupported", "fieldValidation", message));
    }
    if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid("meta.k8s.io", kind, "", causes)) }
}

/// What is wrong with the parameter `dryRun`.
pub fn dry_run_cause(call: &Call) -> Option<Cause> {
    let found: Vec<&str> = call.params.all("dryRun").collect();
    unknown_dry_run(&found)
}

/// What is wrong with the values of `dryRun`.
pub fn unknown_dry_run(found: &[&str]) -> Option<Cause> {
    if found.iter().all(|v| *v == "All") {
        return None;
    }
    let message = format!("Unsupported value: {}: supported values: \"All\"", serde_json::json!(found));
    Some(Cause::new("FieldValueNotSupported", "dryRun", message))
}

/// What is told of duplicate keys, by their paths.
pub fn duplicates(paths: Vec<String>) -> Vec<String> {
    paths.into_iter().map(|path| format!("{DUPLICATE}{path}\"")).collect()
}

/// How a text of a duplicate key in JSON begins; those of YAML have lines.
const DUPLICATE: &str = "duplicate field \"";

/// Decodes a body of any accepted type into JSON; also returns what is told of duplicate keys.
pub fn decode_body(call: &Call, body: &[u8]) -> ApiResult<(Value, Vec<String>)> {
    let (value, duplicates) = match http_io::content_type(&call.headers) {
        "application/vnd.kubernetes.protobuf" => return Ok((objects::decode(body)?, Vec::new())),
        "application/yaml" => {
            let value = yaml::parse(body).map_err(|e| {
                unrecognized(call, &format!("error converting YAML to JSON: {}", e.message()), body)
            })?;
            (value, yaml::repeated(body))
        }
        "" | "application/json" | "*/*" => {
            let (value, paths) = tree::parse(body).map_err(|e| {
                let why = syntax::problem(body).unwrap_or_else(|| e.to_string());
                unrecognized(call, &format!("couldn't get version/kind; json parse error: {why}"), body)
            })?;
            (value, self::duplicates(paths))
        }
        _ => {
            return Err(ApiError::unsupported_media(
                "application/json, application/yaml, application/vnd.kubernetes.protobuf",
            ));
        }
    };
    match unidentified(&value) {
        Some(why) => Err(unrecognized(call, &why, body)),
        // Nothing at all is an object without fields.
        None if value.is_null() => Ok((Value::Object(Map::new()), duplicates)),
        None => Ok((value, duplicates)),
    }
}

/// A body that does not tell what it is.
fn unrecognized(call: &Call, why: &str, body: &[u8]) -> ApiError {
    let kind = match call.subresource.as_str() {
        "scale" => "Scale",
        "binding" => "Binding",
        "eviction" => "Eviction",
        "token" => "TokenRequest",
        _ => call.resource().kind.as_str(),
    };
    let start = syntax::summary(body);
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {why} ({start})"
    ))
}

/// Why the kind and version of a body cannot be read.
fn unidentified(value: &Value) -> Option<String> {
    let start = "couldn't get version/kind; json parse error: json: cannot unmarshal";
    if !value.is_object() && !value.is_null() {
        let into = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
        return Some(format!("{start} {} into Go value of type {into}", patch::json_type(value)));
    }
    for key in ["apiVersion", "kind"] {
        let found = &value[key];
        if !found.is_string() && !found.is_null() {
            return Some(format!(
                "{start} {} into Go struct field .{key} of type string",
                patch::json_type(found)
            ));
        }
    }
    let version = tree::text(value, &["apiVersion"]);
    (version.matches('/').count() > 1).then(|| format!("unexpected GroupVersion string: {version}"))
}

/// Converts a decoded body to the stored form: kind and version, unknown fields, pruning, schema defaults.
pub fn normalize(call: &mut Call, value: &mut Value, duplicates: &[String]) -> ApiResult<()> {
    let entry = call.entry.clone();
    let r = &*entry.resource;
    if !value.is_object() {
        return Err(ApiError::bad_request(format!("the body is not an object: expected a {}", r.kind)));
    }
    let (kind, version) = (tree::text(value, &["kind"]), tree::text(value, &["apiVersion"]));
    if kind.is_empty() && r.custom {
        return Err(ApiError::bad_request(format!(
            "Object 'Kind' is missing in '{}'",
            value.to_string().chars().take(200).collect::<String>()
        )));
    }
    let wrong = (!kind.is_empty() && kind != r.kind, !version.is_empty() && version != r.api_version());
    if wrong != (false, false) && r.custom {
        return Err(another_kind(call, wrong, value));
    }
    if wrong != (false, false) {
        return Err(foreign::refused(r, kind, version));
    }
    let map = tree::object(value);
    map.insert("kind".into(), r.kind.as_str().into());
    map.insert("apiVersion".into(), r.api_version().into());
    let mut report = decode::Report::default();
    if r.custom {
        decode::custom(&r.schema, value, &mut report);
    } else {
        decode::builtin(&r.schema, value, &mut report);
    }
    if let Some(first) = report.mismatched.first() {
        return Err(ApiError::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: {first}",
            r.kind, r.version, r.kind
        )));
    }
    let strict = call.params.get("fieldValidation") == "Strict";
    let mut problems = told_twice(duplicates, &report.unknown, r.custom, strict);
    problems.extend(report.unknown.iter().map(|p| format!("unknown field \"{p}\"")));
    match call.params.get("fieldValidation") {
        "Strict" if !problems.is_empty() => {
            return Err(ApiError::bad_request(format!(
                "{} in version \"{}\" cannot be handled as a {}: strict decoding error: {}",
                r.kind,
                r.version,
                r.kind,
                problems.join(", ")
            )));
        }
        "Ignore" => {}
        _ => call.warnings.extend(problems),
    }
    form::complete(&call.core, r, value);
    Ok(())
}

/// What is told of duplicate keys: a typed decoder does not look into fields that it does not know, and a strict one of YAML
/// tells all of them at once.
fn told_twice(duplicates: &[String], unknown: &[String], custom: bool, strict: bool) -> Vec<String> {
    let is_unknown = |text: &str| {
        let path = text.strip_prefix(DUPLICATE).unwrap_or_default();
        unknown.iter().any(|field| {
            path.strip_prefix(field.as_str()).is_some_and(|rest| rest.starts_with(['"', '.', '[']))
        })
    };
    let told = duplicates.iter().filter(|text| custom || !is_unknown(text)).cloned();
    let (fields, lines): (Vec<String>, Vec<String>) = told.partition(|text| text.starts_with(DUPLICATE));
    match lines.is_empty() {
        true => fields,
        false if strict => vec![yaml::as_error(&lines)],
        false => lines,
    }
}

/// A custom resource that says it is another one: `wrong` in its kind, and in its version.
fn another_kind(call: &Call, wrong: (bool, bool), value: &Value) -> ApiError {
    let r = call.resource();
    let wanted = r.api_version();
    if wrong.1 && !http_io::content_type(&call.headers).contains("patch") {
        let found = tree::text(value, &["apiVersion"]);
        return ApiError::bad_request(format!(
            "the API version in the data ({found}) does not match the expected API version ({wanted})"
        ));
    }
    let cause =
        |field: &str, wanted: &str| Cause::invalid(field, &value[field], &format!("must be {wanted}"));
    let causes = [(wrong.0, "kind", &r.kind), (wrong.1, "apiVersion", &wanted)];
    let causes =
        causes.iter().filter(|(is_wrong, ..)| *is_wrong).map(|(_, field, wanted)| cause(field, wanted));
    ApiError::invalid(&r.group, &r.kind, tree::meta_text(value, "name"), causes.collect())
}

/// The namespace of the body is that of the URL, or is not given.
pub fn check_namespace_of_body(call: &Call, value: &mut Value) -> ApiResult<()> {
    let r = call.resource();
    let found = tree::meta_text(value, "namespace");
    if r.namespaced {
        if found.is_empty() {
            tree::meta(value).insert("namespace".into(), call.namespace.as_str().into());
        } else if found != call.namespace {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
    } else if !found.is_empty() {
        tree::meta(value).remove("namespace");
    }
    Ok(())
}

/// Drops references to owners that are there already; `found` says where in a request they were found.
pub fn unite_owners(call: &mut Call, value: &mut Value, found: &str) {
    let Some(Value::Array(owners)) = tree::meta(value).get_mut("ownerReferences") else { return };
    if owners.len() < 2 {
        return;
    }
    let mut seen = HashSet::new();
    let mut twice = Vec::new();
    owners.retain(|owner| {
        let first = seen.insert(owner.clone());
        if !first {
            twice.push(tree::text(owner, &["uid"]).to_string());
        }
        first
    });
    if !twice.is_empty() {
        call.warnings.push(format!(
            ".metadata.ownerReferences contains duplicate entries{found}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            twice.join(", ")
        ));
    }
}

/// The body of a PUT names the object of its URL.
pub fn check_named(call: &Call, sent: &Value) -> ApiResult<()> {
    let found = tree::meta_text(sent, "name");
    if found.is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            call.name
        )));
    }
    if found != call.name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({found}) does not match the name on the URL ({})",
            call.name
        )));
    }
    Ok(())
}

/// What a patch led to cannot be decoded: told with the patched object, or of a strategic merge with the patch.
pub fn undecodable(call: &Call, e: ApiError, old: &Obj, document: Value) -> ApiError {
    let why = e.message().split_once(" cannot be handled as a ").and_then(|(_, rest)| rest.split_once(": "));
    let Some((_, why)) = why else { return e };
    let shown = match http_io::content_type(&call.headers) {
        "application/strategic-merge-patch+json" => patch::go_text(&document),
        kind => {
            let mut new = old.full();
            convert::to_served(call.resource(), &mut new);
            if kind == "application/json-patch+json" {
                // It worked a moment ago.
                let _ = patch::json_patch(&mut new, document);
            } else {
                patch::merge_patch(&mut new, document);
            }
            new.to_string()
        }
    };
    let cause = Cause::new("FieldValueInvalid", "patch", format!("Invalid value: {shown:?}: {why}"));
    ApiError::invalid("", "", "", vec![cause])
}

/// Kinds that a PUT makes where there is none.
pub fn created_by_update(r: &Resource) -> bool {
    let kinds = (r.group.as_str(), r.plural.as_str());
    !r.custom
        && matches!(
            kinds,
            ("coordination.k8s.io", "leases")
                | ("", "services" | "endpoints" | "events" | "limitranges")
                | ("rbac.authorization.k8s.io", _)
                | ("node.k8s.io", "runtimeclasses")
        )
}

/// Kinds that may be updated by who does not say which version of the object was seen.
pub fn updated_blindly(r: &Resource) -> bool {
    let kinds = (r.group.as_str(), r.plural.as_str());
    !r.custom
        && !matches!(
            kinds,
            ("apiextensions.k8s.io" | "apiregistration.k8s.io", _)
                | (registration::GROUP, _)
                | ("coordination.k8s.io", "leases")
                | ("policy", "poddisruptionbudgets")
                | ("node.k8s.io", "runtimeclasses")
                | (
                    "storage.k8s.io",
                    "csidrivers" | "csinodes" | "csistoragecapacities" | "volumeattachments"
                )
        )
}

/// Removes what a patch left unchanged, because it was decoded before. Custom resources stay complete, because
/// defaults of their schemas depend on missing fields.
pub fn take_unchanged(r: &Resource, live: &Value, new: &mut Value) -> Map<String, Value> {
    let mut same = Map::new();
    if r.custom || r.converts() {
        return same;
    }
    for key in ["spec", "status", "data"] {
        let Some(map) = new.as_object_mut() else { break };
        if map.get(key).is_some_and(|v| v.is_object() && live.get(key) == Some(v)) {
            same.extend(map.remove_entry(key));
        }
    }
    same
}
