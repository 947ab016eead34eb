//! Server-side apply: from a configuration to a new or changed object.
//!
//! Inputs: a resolved call and a decoded configuration. Absent on purpose: who owns which field (see `managed`).

use crate::verbs::body::check_namespace_of_body;
use crate::verbs::managed::{self, Writer};
use crate::verbs::versions;
use crate::verbs::write::{PATCH_ATTEMPTS, change, create_object, may_create};
use axum::body::Body;
use fleet_apiserver_admission::call::Call;
use fleet_apiserver_ground::tree;
use fleet_apiserver_kinds::scale;
use fleet_apiserver_ownership::typed;
use fleet_apiserver_schema::error::{ApiError, ApiResult};
use fleet_apiserver_schema::resource::Resource;
use fleet_apiserver_schema::{convert, decode, yaml};
use http::Response;
use serde_json::{Value, json};

/// What is applied is not of the kind and version of the URL.
fn wrong_type(version: &str, kind: &str) -> ApiError {
    let slash = if version.contains('/') { "" } else { "/" };
    ApiError::bad_request(format!("invalid object type: {slash}{version}, Kind={kind}"))
}

/// The part of an object that an applied Scale sets.
fn scaled_part(r: &Resource, name: &str, scale: &Value) -> ApiResult<Value> {
    let (kind, version) = (tree::text(scale, &["kind"]), tree::text(scale, &["apiVersion"]));
    if kind != "Scale" || version != "autoscaling/v1" {
        return Err(wrong_type(version, kind));
    }
    let mut part = json!({"apiVersion": r.api_version(), "kind": r.kind, "metadata": {"name": name}});
    if tree::at(scale, &["spec", "replicas"]).is_some() {
        part = scale::set(r, &part, scale)?;
    }
    Ok(part)
}

/// A configuration, ready to be merged.
struct Config {
    /// In the stored form.
    value: Value,
    /// The resourceVersion it insists on, or "".
    pinned: String,
    /// It belongs to another namespace or name than the URL says. Told only when nothing else is wrong with it.
    misplaced: Option<ApiError>,
}

/// The group, version and kind of a resource in one text.
fn shown_kind(r: &Resource) -> String {
    format!("{}/{}, Kind={}", r.group, r.version, r.kind)
}

/// A configuration is an object; nothing at all is one of no kind.
fn as_object(config: Value) -> ApiResult<Value> {
    let found = match &config {
        Value::Object(_) => return Ok(config),
        Value::Null => return Err(wrong_type("", "")),
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
    };
    Err(ApiError::bad_request(format!(
        "error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
    )))
}

/// What a manager says of its fields, checked.
fn read_config(call: &Call, config: Value) -> ApiResult<Config> {
    let r = call.resource();
    let scaling = call.subresource == "scale";
    let mut config = as_object(config)?;
    let (kind, version) = (tree::text(&config, &["kind"]), tree::text(&config, &["apiVersion"]));
    if scaling {
        config = scaled_part(r, &call.name, &config)?;
    } else if kind != r.kind || version != r.api_version() {
        return Err(wrong_type(version, kind));
    }
    // An empty list says something of them, too.
    if tree::at(&config, &["metadata", "managedFields"]).is_some_and(Value::is_array) {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    // As the configuration says them, and most leave out what the URL says.
    let who = format!(
        "{}/{}; {}",
        tree::meta_text(&config, "namespace"),
        tree::meta_text(&config, "name"),
        shown_kind(r)
    );
    let found = typed::problems(&r.schema, &config, !r.custom);
    if !found.is_empty() {
        let told = typed::told(&found);
        return Err(ApiError::internal("", format!("failed to create typed patch object ({who}): {told}")));
    }
    let pinned = tree::meta_text(&config, "resourceVersion").to_string();
    let mut report = decode::Report::default();
    if r.custom {
        decode::custom(&r.schema, &mut config, &mut report);
    } else {
        decode::builtin(&r.schema, &mut config, &mut report);
    }
    if let Some(what) = report.mismatched.first() {
        let kind = shown_kind(r);
        return Err(ApiError::internal(
            "",
            format!(
                "failed to convert new object ({who}) to proper version: unable to convert unstructured object to {kind}: {what}"
            ),
        ));
    }
    convert::to_stored(r, &mut config);
    let misplaced = check_namespace_of_body(call, &mut config).err().or_else(|| misnamed(call, &config));
    tree::meta(&mut config).insert("name".into(), call.name.as_str().into());
    for key in ["resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"] {
        tree::meta(&mut config).remove(key);
    }
    Ok(Config { value: config, pinned, misplaced })
}

/// A configuration may leave its name to the URL, but not have another one.
fn misnamed(call: &Call, config: &Value) -> Option<ApiError> {
    let name = tree::meta_text(config, "name");
    (!name.is_empty() && name != call.name).then(|| {
        ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.name
        ))
    })
}

/// A configuration in JSON or YAML, and what is told of keys that it has twice.
fn decode_config(call: &Call, body: &[u8]) -> ApiResult<(Value, Vec<String>)> {
    let told = call.params.get("fieldValidation") != "Ignore";
    match tree::parse(body) {
        // JSON is YAML, and judged as such.
        Ok((config, paths)) if paths.is_empty() => Ok((config, Vec::new())),
        Ok((config, _)) => Ok((config, if told { yaml::repeated(body) } else { Vec::new() })),
        Err(_) => Ok((yaml::parse(body)?, if told { yaml::repeated(body) } else { Vec::new() })),
    }
}

/// Keys that a configuration has twice are told when everything else of it could be applied.
fn check_repeated(call: &mut Call, repeated: &[String]) -> ApiResult<()> {
    let Some(first) = repeated.first() else { return Ok(()) };
    if call.params.get("fieldValidation") == "Strict" {
        let why = yaml::as_error(repeated);
        let why = format!("error strict decoding YAML: error converting YAML to JSON: {why}");
        return Err(ApiError::bad_request(why));
    }
    // Another attempt has told them.
    if !call.warnings.contains(first) {
        call.warnings.extend(repeated.iter().cloned());
    }
    Ok(())
}

/// PATCH by server-side apply: what a manager says of its fields becomes part of the object.
pub(super) async fn apply_patch(call: &mut Call, body: &[u8]) -> ApiResult<Response<Body>> {
    let (config, repeated) = decode_config(call, body)?;
    let uid = tree::meta_text(&config, "uid").to_string();
    let Config { value: config, pinned, misplaced } = read_config(call, config)?;
    let entry = call.entry.clone();
    let r = &*entry.resource;
    let manager = call.params.get("fieldManager").to_string();
    let force = call.params.flag("force");
    for _ in 0..PATCH_ATTEMPTS {
        let now = call.core.clock.stamp();
        let w = Writer {
            manager: &manager,
            api_version: &r.stored_as,
            subresource: &call.subresource,
            now: &now,
            has_status: r.status,
        };
        let Some(old) = call.core.store.read(&entry.table, &call.key(&call.name)).await? else {
            if !call.subresource.is_empty() {
                return Err(ApiError::not_found(r, &call.name));
            }
            let mut value = managed::apply(&r.schema, None, config.clone(), force, &w)?;
            check_repeated(call, &repeated)?;
            if !uid.is_empty() {
                let why = format!(
                    "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                );
                return Err(ApiError::conflict(r, &call.name, &why));
            }
            if let Some(e) = &misplaced {
                return Err(e.clone());
            }
            may_create(call)?;
            if r.custom {
                decode::defaults(&r.schema, &mut value);
            }
            match create_object(call, value, true).await {
                Err(e) if e.reason() == "AlreadyExists" => continue,
                other => return other,
            }
        };
        let live = versions::live(call, &old).await?;
        let mut new = managed::apply(&r.schema, Some(&live), config.clone(), force, &w)?;
        check_repeated(call, &repeated)?;
        if let Some(e) = &misplaced {
            return Err(e.clone());
        }
        // Conflicts are told before, as the version is looked at when the object is stored.
        if !pinned.is_empty() && pinned != old.rv.to_string() {
            return Err(ApiError::modified(r, &call.name));
        }
        if r.custom {
            decode::defaults(&r.schema, &mut new);
        }
        if let Some(response) = change(call, &old, live, new, true).await? {
            return Ok(response);
        }
    }
    Err(ApiError::modified(r, &call.name))
}
