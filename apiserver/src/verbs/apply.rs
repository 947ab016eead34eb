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
use fleet_apiserver_schema::error::{ApiError, ApiResult};
use fleet_apiserver_schema::resource::Resource;
use fleet_apiserver_schema::{convert, decode, fieldset};
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

/// What a manager says of its fields, checked and in the stored form; and the resourceVersion it insists on, or "".
fn read_config(call: &Call, mut config: Value) -> ApiResult<(Value, String)> {
    let r = call.resource();
    let scaling = call.subresource == "scale";
    let (kind, version) = (tree::text(&config, &["kind"]), tree::text(&config, &["apiVersion"]));
    if scaling {
        config = scaled_part(r, &call.name, &config)?;
    } else if kind != r.kind || version != r.api_version() {
        return Err(wrong_type(version, kind));
    }
    if !tree::list(&config, &["metadata", "managedFields"]).is_empty() {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    let name = tree::meta_text(&config, "name");
    if !name.is_empty() && name != call.name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.name
        )));
    }
    let name_sent = name.to_string();
    let pinned = tree::meta_text(&config, "resourceVersion").to_string();
    let mut report = decode::Report::default();
    if r.custom {
        decode::custom(&r.schema, &mut config, &mut report);
    } else {
        decode::builtin(&r.schema, &mut config, &mut report);
    }
    // As the configuration says them, and most leave out what the URL says.
    let sent = (tree::meta_text(&config, "namespace").to_string(), name_sent);
    let typed = |what: &str| {
        format!(
            "failed to create typed patch object ({}/{}; {}, Kind={}): {what}",
            sent.0,
            sent.1,
            r.api_version(),
            r.kind
        )
    };
    if let Some(field) = report.unknown.first() {
        let message = typed(&format!(".{field}: field not declared in schema"));
        return Err(if call.params.get("fieldValidation") == "Strict" {
            ApiError::bad_request(message)
        } else {
            ApiError::internal("", message)
        });
    }
    if let Some(what) = report.mismatched.first() {
        return Err(ApiError::bad_request(typed(what)));
    }
    let mut found = Vec::new();
    check_items(Some(&r.schema), &config, "", &mut found);
    if let Some(what) = found.first() {
        return Err(ApiError::internal("", typed(what)));
    }
    convert::to_stored(r, &mut config);
    tree::meta(&mut config).insert("name".into(), call.name.as_str().into());
    for key in ["resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"] {
        tree::meta(&mut config).remove(key);
    }
    check_namespace_of_body(call, &mut config)?;
    Ok((config, pinned))
}

/// PATCH by server-side apply: what a manager says of its fields becomes part of the object.
pub(super) async fn apply_patch(call: &mut Call, config: Value) -> ApiResult<Response<Body>> {
    let uid = tree::meta_text(&config, "uid").to_string();
    let (config, pinned) = read_config(call, config)?;
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
            may_create(call)?;
            if !uid.is_empty() {
                let why = format!(
                    "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                );
                return Err(ApiError::conflict(r, &call.name, &why));
            }
            let mut value = managed::apply(&r.schema, None, config.clone(), force, &w)?;
            if r.custom {
                decode::defaults(&r.schema, &mut value);
            }
            match create_object(call, value, true).await {
                Err(e) if e.reason() == "AlreadyExists" => continue,
                other => return other,
            }
        };
        if !pinned.is_empty() && pinned != old.rv.to_string() {
            return Err(ApiError::modified(r, &call.name));
        }
        let live = versions::live(call, &old).await?;
        let mut new = managed::apply(&r.schema, Some(&live), config.clone(), force, &w)?;
        if r.custom {
            decode::defaults(&r.schema, &mut new);
        }
        if let Some(response) = change(call, &old, live, new, true).await? {
            return Ok(response);
        }
    }
    Err(ApiError::modified(r, &call.name))
}

/// What is wrong with the items of lists that are told apart by keys: one twice.
fn check_items(
    schema: Option<&fleet_apiserver_schema::Schema>,
    value: &Value,
    path: &str,
    out: &mut Vec<String>,
) {
    use fleet_apiserver_schema::fieldset::{Shape, item_key, shape};
    match (shape(schema, value), value) {
        (Shape::Fields, Value::Object(map)) => {
            for (k, v) in map {
                check_items(schema.and_then(|s| s.field(k)), v, &format!("{path}.{k}"), out);
            }
        }
        (Shape::Items(keys, items), Value::Array(list)) => {
            let mut seen = std::collections::BTreeSet::new();
            for v in list {
                let key = item_key(keys, items, v);
                if !seen.insert(key.clone()) {
                    out.push(format!("{path}: duplicate entries for key {}", fieldset::shown(&key)));
                }
                check_items(items, v, path, out);
            }
        }
        _ => {}
    }
}
