//! Creating and changing objects: the order of stages every write goes through.
//!
//! Inputs: a resolved call and a body. Absent on purpose: deletes (see `delete`), and webhooks, which are not run.

use crate::error::{ApiError, ApiResult, Cause};
use crate::http_io::{self};
use crate::managed::{self, Writer};
use crate::registry::Resource;
use crate::server::Call;
use crate::store::{Obj, Refused, Write};
use crate::validate::{self, NameRule};
use crate::{Ids, convert, crd, decode, defaults, namespaces, patch as patches, protobuf, read, scale, tree};
use axum::body::Body;
use http::{Response, StatusCode};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Attempts of a patch that lost a race. The real server makes 5; in process races are closer together.
const PATCH_ATTEMPTS: usize = 16;
/// Attempts of a generated name.
const NAME_ATTEMPTS: usize = 8;

/// Checks the options every write takes.
pub fn check_options(call: &Call, kind: &str, apply: bool) -> ApiResult<()> {
    let p = &call.params;
    let mut causes = Vec::new();
    if p.all("dryRun").any(|v| v != "All") {
        let message = format!("Unsupported value: {:?}: supported values: \"All\"", p.get("dryRun"));
        causes.push(Cause::new("FieldValueNotSupported", "dryRun", message));
    }
    if !matches!(p.get("fieldValidation"), "" | "Ignore" | "Warn" | "Strict") {
        let message = format!(
            "Unsupported value: {:?}: supported values: \"Ignore\", \"Strict\", \"Warn\"",
            p.get("fieldValidation")
        );
        causes.push(Cause::new("FieldValueNotSupported", "fieldValidation", message));
    }
    if apply && p.get("fieldManager").is_empty() {
        causes.push(Cause::required("fieldManager", "is required for apply patch"));
    }
    if kind == "PatchOptions" && !apply && p.has("force") {
        causes.push(Cause::forbidden("force", "may not be specified for non-apply patch"));
    }
    if p.get("fieldManager").len() > 128 {
        causes.push(Cause::new(
            "FieldValueTooLong",
            "fieldManager",
            "Too long: may not be more than 128 bytes",
        ));
    }
    if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid("meta.k8s.io", kind, "", causes)) }
}

/// Decodes a body of any accepted type into JSON; also returns duplicate keys.
pub fn decode_body(call: &Call, body: &[u8]) -> ApiResult<(Value, Vec<String>)> {
    match http_io::content_type(&call.headers) {
        "application/vnd.kubernetes.protobuf" => Ok((protobuf::decode(body)?, Vec::new())),
        "application/yaml" => Ok((http_io::parse_yaml(body)?, Vec::new())),
        "" | "application/json" | "*/*" => parse_json(body),
        _ => Err(ApiError::unsupported_media(
            "application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )),
    }
}

fn parse_json(body: &[u8]) -> ApiResult<(Value, Vec<String>)> {
    tree::parse(body).map_err(|e| {
        ApiError::bad_request(format!(
            "error decoding the body: the object provided is unrecognized or invalid: {e}"
        ))
    })
}

/// Brings a decoded body to the stored form: kind and version, unknown fields, pruning, schema defaults.
fn normalize(call: &mut Call, value: &mut Value, duplicates: &[String]) -> ApiResult<()> {
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
    if (!kind.is_empty() && kind != r.kind) || (!version.is_empty() && version != r.api_version()) {
        let (group, found) = version.rsplit_once('/').unwrap_or(("", version));
        return Err(ApiError::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: the body is {group}/{found}, Kind={kind}, expected {}, Kind={}",
            kind,
            found,
            r.kind,
            r.api_version(),
            r.kind
        )));
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
            "{} in version \"{}\" cannot be handled as a {}: json: {first}",
            r.kind, r.version, r.kind
        )));
    }
    let mut problems: Vec<String> = report.unknown.iter().map(|p| format!("unknown field \"{p}\"")).collect();
    problems.extend(duplicates.iter().map(|p| format!("duplicate field \"{p}\"")));
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
    convert::to_stored(r, value);
    if r.custom {
        decode::defaults(&r.schema, value);
    }
    Ok(())
}

fn name_rule(r: &Resource) -> NameRule {
    match (r.group.as_str(), r.plural.as_str()) {
        ("rbac.authorization.k8s.io", _) | ("", "events") | ("events.k8s.io", _) => NameRule::Path,
        ("", "namespaces" | "services") => NameRule::Label,
        _ => NameRule::Subdomain,
    }
}

fn generated(ids: &Ids, base: &str) -> String {
    // The alphabet has no vowels, so that no words come out.
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let random = ids.uuid();
    let mut out: String = base.chars().take(58).collect();
    for b in random.as_bytes().iter().take(5) {
        out.push(char::from(ALPHABET[usize::from(*b) % ALPHABET.len()]));
    }
    out
}

fn check_namespace_of_body(call: &Call, value: &mut Value) -> ApiResult<()> {
    let r = call.resource();
    let found = tree::meta_text(value, "namespace");
    if r.namespaced {
        if found.is_empty() {
            tree::meta(value).insert("namespace".into(), call.namespace.as_str().into());
        } else if found != call.namespace {
            return Err(ApiError::bad_request(format!(
                "the namespace of the provided object does not match the namespace sent on the request ({found} is not {})",
                call.namespace
            )));
        }
    } else if !found.is_empty() {
        tree::meta(value).remove("namespace");
    }
    Ok(())
}

async fn check_namespace_open(call: &Call, name: &str) -> ApiResult<()> {
    if call.namespace.is_empty() {
        return Ok(());
    }
    let core = &call.core;
    let Some(ns) = core.namespaces.get(&call.namespace) else {
        return Err(ApiError::not_found(crate::builtins::find("", "namespaces"), &call.namespace));
    };
    if tree::at(&ns.value, &["metadata", "deletionTimestamp"]).is_some() {
        let why = format!(
            "unable to create new content in namespace {} because it is being terminated",
            call.namespace
        );
        let cause = Cause::new(
            "NamespaceTerminating",
            "metadata.namespace",
            format!("namespace {} is being terminated", call.namespace),
        );
        return Err(ApiError::forbidden(call.resource(), name, &why).with_cause(cause));
    }
    Ok(())
}

/// POST of a new object.
pub async fn create(call: &mut Call, body: &[u8]) -> ApiResult<Response<Body>> {
    check_options(call, "CreateOptions", false)?;
    if call.resource().namespaced && call.namespace.is_empty() {
        return Err(ApiError::method_not_allowed());
    }
    let (mut value, duplicates) = decode_body(call, body)?;
    if !tree::meta_text(&value, "resourceVersion").is_empty() {
        return Err(ApiError::internal("", "resourceVersion should not be set on objects to be created"));
    }
    normalize(call, &mut value, &duplicates)?;
    create_object(call, value, None).await
}

/// Stores a new object; `applied` carries the apply manager when it came by server-side apply.
async fn create_object(call: &mut Call, mut value: Value, applied: Option<()>) -> ApiResult<Response<Body>> {
    let entry = call.entry.clone();
    let r = &*entry.resource;
    check_namespace_of_body(call, &mut value)?;
    if r.terminating {
        let why =
            format!("create not allowed while custom resource definition is terminating: {}", r.qualified());
        return Err(ApiError::forbidden(r, tree::meta_text(&value, "name"), &why));
    }
    let base = tree::meta_text(&value, "generateName").to_string();
    let generate = tree::meta_text(&value, "name").is_empty() && !base.is_empty();
    let now = call.core.clock.stamp();
    {
        let meta = tree::meta(&mut value);
        meta.remove("resourceVersion");
        meta.remove("selfLink");
        meta.remove("deletionTimestamp");
        meta.remove("deletionGracePeriodSeconds");
        meta.remove("generation");
        meta.insert("uid".into(), call.core.ids.uuid().to_string().into());
        meta.insert("creationTimestamp".into(), now.as_str().into());
        if r.generation || r.custom {
            meta.insert("generation".into(), 1.into());
        }
    }
    if r.status && !keeps_status_on_create(r) {
        tree::object(&mut value).remove("status");
    }
    if applied.is_none() {
        tree::meta(&mut value).remove("managedFields");
        let who = call.manager().to_string();
        let w = Writer {
            manager: &who,
            api_version: &r.stored_as,
            subresource: "",
            now: &now,
            has_status: r.status,
        };
        managed::track_update(&r.schema, None, &mut value, &w);
    }
    for attempt in 0.. {
        if generate {
            tree::meta(&mut value).insert("name".into(), generated(&call.core.ids, &base).into());
        }
        let name = tree::meta_text(&value, "name").to_string();
        if attempt == 0 {
            if !r.custom {
                defaults::apply(r, &mut value);
                if r.is("", "pods") {
                    defaults::admit_pod(&mut value);
                }
                if r.is("batch", "jobs") {
                    let uid = tree::meta_text(&value, "uid").to_string();
                    defaults::new_job(&mut value, &uid);
                }
            }
            if r.is("apiextensions.k8s.io", "customresourcedefinitions") {
                crd::admit(None, &mut value, &call.core)?;
            }
            check_object(r, None, &value)?;
            check_namespace_open(call, &name).await?;
        }
        if call.dry_run() {
            if entry.table.get(&call.key(&name)).is_some() {
                return Err(ApiError::already_exists(r, &name));
            }
            convert::to_served(r, &mut value);
            return read::value_in_form(call, StatusCode::CREATED, value);
        }
        // Only a generated name may need another attempt.
        let stored = if generate { value.clone() } else { std::mem::take(&mut value) };
        let mut writes =
            vec![Write::Create { table: entry.table.clone(), key: call.key(&name), value: stored }];
        if r.is("", "namespaces") {
            writes.extend(namespaces::companions(&call.core, &name));
        }
        let is_crd = r.is("apiextensions.k8s.io", "customresourcedefinitions");
        let guard = if is_crd { Some(call.core.crd_lock.lock().await) } else { None };
        match call.core.store.commit(writes) {
            Ok(objs) => {
                if let Some(last) = objs.last() {
                    call.core.store.wait(last.rv).await?;
                }
                if is_crd {
                    crd::refresh(&call.core);
                }
                drop(guard);
                return read::object_response(call, StatusCode::CREATED, &objs[0]);
            }
            Err(Refused::Exists(0)) if generate && attempt < NAME_ATTEMPTS => {}
            Err(Refused::Exists(0)) => return Err(ApiError::already_exists(r, &name)),
            // A companion of a namespace is left from an earlier life: the namespace is still going away.
            Err(Refused::Exists(_)) => return Err(ApiError::already_exists(r, &name)),
            Err(e) => return Err(e.into()),
        }
    }
    Err(ApiError::internal("InternalError", "no free name was found"))
}

/// Kinds whose status the client may set at once, as in the real server.
fn keeps_status_on_create(r: &Resource) -> bool {
    matches!((r.group.as_str(), r.plural.as_str()), ("", "nodes" | "namespaces" | "persistentvolumes"))
}

fn check_object(r: &Resource, old: Option<&Value>, value: &Value) -> ApiResult<()> {
    let mut causes = Vec::new();
    validate::metadata(name_rule(r), value, &mut causes);
    if r.custom {
        let before = causes.len();
        validate::schema(&r.schema, value, "", &mut causes);
        // Unchanged invalid parts of an existing object are tolerated.
        if let Some(old) = old.filter(|_| causes.len() > before) {
            let mut known = Vec::new();
            validate::schema(&r.schema, old, "", &mut known);
            causes.retain(|c| !known.contains(c));
        }
        // Rules are judged on objects of the right shape only.
        if let Some(rules) = r.rules.as_ref().filter(|_| causes.is_empty()) {
            causes.extend(rules.broken(value, old));
        }
    } else {
        defaults::check(r, old, value, &mut causes);
    }
    if causes.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(&r.group, &r.kind, tree::meta_text(value, "name"), causes))
}

/// What a change leads to.
enum Outcome {
    /// Nothing changed.
    Same(Arc<Obj>),
    /// A new version.
    Write(Value),
    /// The last finalizer went away.
    Delete(Value),
}

const SERVER_FIELDS: [&str; 6] =
    ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"];

/// Applies the rules of an update: what the endpoint may change, generation, ownership, validation.
fn settle(call: &Call, old: &Arc<Obj>, mut new: Value, applied: bool) -> ApiResult<Outcome> {
    let r = call.resource();
    let live = old.full();
    let name = call.name.as_str();
    let found = tree::meta_text(&new, "name");
    if !found.is_empty() && found != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({found}) does not match the name on the URL ({name})"
        )));
    }
    let sent_uid = tree::meta_text(&new, "uid");
    let uid = tree::meta_text(&old.value, "uid");
    if !sent_uid.is_empty() && sent_uid != uid {
        return Err(ApiError::conflict(
            r,
            name,
            &format!("Precondition failed: UID in precondition: {sent_uid}, UID in object meta: {uid}"),
        ));
    }
    let old_meta = tree::at(&old.value, &["metadata"]);
    {
        let meta = tree::meta(&mut new);
        meta.insert("name".into(), name.into());
        for key in SERVER_FIELDS {
            tree::put(meta, key, old_meta.and_then(|m| m.get(key)).cloned());
        }
        meta.insert("resourceVersion".into(), old.rv.to_string().into());
    }
    if !applied {
        managed::inherit(&live, &mut new);
    }
    let old_part = |key: &str| old.value.get(key).cloned();
    match call.subresource.as_str() {
        "status" => {
            let status = tree::object(&mut new).remove("status");
            if r.custom {
                let entries = tree::meta(&mut new).remove("managedFields");
                new = old.value.clone();
                tree::put(tree::meta(&mut new), "managedFields", entries);
            } else {
                let meta = tree::object(&mut new).remove("metadata");
                new = old.value.clone();
                tree::put(tree::object(&mut new), "metadata", meta);
                tree::put(
                    tree::meta(&mut new),
                    "ownerReferences",
                    old_meta.and_then(|m| m.get("ownerReferences")).cloned(),
                );
            }
            tree::put(tree::object(&mut new), "status", status);
        }
        "finalize" => {
            let finalizers = tree::at(&new, &["spec", "finalizers"]).cloned().unwrap_or_else(|| json!([]));
            new = live.clone();
            tree::child(&mut new, "spec").insert("finalizers".into(), finalizers);
        }
        _ => {
            if r.status {
                tree::put(tree::object(&mut new), "status", old_part("status"));
            }
            if r.is("", "namespaces") {
                tree::put(tree::object(&mut new), "spec", old_part("spec"));
            }
        }
    }
    if !r.custom {
        defaults::apply(r, &mut new);
    }
    if r.is("apiextensions.k8s.io", "customresourcedefinitions") && call.subresource.is_empty() {
        crd::admit(Some(&old.value), &mut new, &call.core)?;
    }
    if r.custom || r.generation {
        let same = |key: &String| matches!(key.as_str(), "metadata" | "status" | "apiVersion" | "kind");
        let empty = Map::new();
        let (a, b) = (old.value.as_object().unwrap_or(&empty), new.as_object().unwrap_or(&empty));
        // Custom resources without /status count every field.
        let status_counts = r.custom && !r.status;
        let differs =
            a.iter().any(|(k, v)| (!same(k) || (status_counts && k == "status")) && b.get(k) != Some(v))
                || b.keys().any(|k| (!same(k) || (status_counts && k == "status")) && !a.contains_key(k));
        if differs {
            let generation = tree::number(&old.value, &["metadata", "generation"]) + 1;
            tree::meta(&mut new).insert("generation".into(), generation.into());
        }
    }
    let now = call.core.clock.stamp();
    if !applied {
        let manager = call.manager().to_string();
        let subresource = if matches!(call.subresource.as_str(), "scale" | "status") {
            call.subresource.as_str()
        } else {
            ""
        };
        let w = Writer {
            manager: &manager,
            api_version: &r.stored_as,
            subresource,
            now: &now,
            has_status: r.status,
        };
        managed::track_update(&r.schema, Some(&old.value), &mut new, &w);
    }
    if new == live {
        return Ok(Outcome::Same(old.clone()));
    }
    let deleting = tree::at(&old.value, &["metadata", "deletionTimestamp"]).is_some();
    if deleting {
        let before = tree::list(&old.value, &["metadata", "finalizers"]);
        let after = tree::list(&new, &["metadata", "finalizers"]);
        if let Some(added) = after.iter().find(|f| !before.contains(f)) {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers {added}"
            );
            return Err(ApiError::invalid(
                &r.group,
                &r.kind,
                name,
                vec![Cause::forbidden("metadata.finalizers", &why)],
            ));
        }
    }
    check_object(r, Some(&old.value), &new)?;
    let finished = if r.is("", "namespaces") {
        tree::list(&new, &["spec", "finalizers"]).is_empty()
    } else {
        tree::number(&new, &["metadata", "deletionGracePeriodSeconds"]) == 0
    };
    if deleting && finished && tree::list(&new, &["metadata", "finalizers"]).is_empty() {
        return Ok(Outcome::Delete(new));
    }
    Ok(Outcome::Write(new))
}

/// Commits an outcome. Ok(None) means another writer was faster.
async fn store(call: &Call, old: &Arc<Obj>, outcome: Outcome) -> ApiResult<Option<Response<Body>>> {
    let entry = &call.entry;
    if call.dry_run() {
        let value = match outcome {
            Outcome::Same(obj) => obj.full(),
            Outcome::Write(v) | Outcome::Delete(v) => v,
        };
        return respond_value(call, value).map(Some);
    }
    let is_crd = call.resource().is("apiextensions.k8s.io", "customresourcedefinitions");
    let write = match outcome {
        Outcome::Same(obj) => {
            call.core.store.wait(obj.rv).await?;
            return respond(call, &obj).map(Some);
        }
        Outcome::Write(value) => Write::Update { table: entry.table.clone(), prev: old.clone(), value },
        Outcome::Delete(value) => {
            Write::Delete { table: entry.table.clone(), prev: old.clone(), value: Some(value) }
        }
    };
    let guard = if is_crd { Some(call.core.crd_lock.lock().await) } else { None };
    match call.core.store.commit(vec![write]) {
        Ok(objs) => {
            call.core.store.wait(objs[0].rv).await?;
            if is_crd {
                crd::refresh(&call.core);
            }
            drop(guard);
            respond(call, &objs[0]).map(Some)
        }
        Err(Refused::Changed(_)) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn respond(call: &Call, obj: &Arc<Obj>) -> ApiResult<Response<Body>> {
    if call.subresource == "scale" {
        return Ok(http_io::value_response(StatusCode::OK, &scale::of(call.resource(), &obj.value)?));
    }
    read::object_response(call, StatusCode::OK, obj)
}

fn respond_value(call: &Call, mut value: Value) -> ApiResult<Response<Body>> {
    if call.subresource == "scale" {
        return Ok(http_io::value_response(StatusCode::OK, &scale::of(call.resource(), &value)?));
    }
    convert::to_served(call.resource(), &mut value);
    read::value_in_form(call, StatusCode::OK, value)
}

/// PUT.
pub async fn update(call: &mut Call, body: &[u8]) -> ApiResult<Response<Body>> {
    check_options(call, "UpdateOptions", false)?;
    let (mut sent, duplicates) = decode_body(call, body)?;
    let scaling = call.subresource == "scale";
    if !scaling {
        normalize(call, &mut sent, &duplicates)?;
        check_namespace_of_body(call, &mut sent)?;
        if tree::meta_text(&sent, "name").is_empty() {
            return Err(ApiError::bad_request(format!(
                "the name of the object (\"\" based on URL) was undeterminable: name must be provided: {}",
                call.name
            )));
        }
    }
    let version = tree::meta_text(&sent, "resourceVersion").to_string();
    if version.is_empty() && call.resource().custom && !scaling {
        let cause = Cause::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
        let r = call.resource();
        return Err(ApiError::invalid(&r.group, &r.kind, &call.name, vec![cause]));
    }
    loop {
        let old = match read::current(call).await {
            Err(e)
                if e.code() == 404
                    && call.resource().is("coordination.k8s.io", "leases")
                    && version.is_empty() =>
            {
                return create_object(call, sent, None).await;
            }
            other => other?,
        };
        if !version.is_empty() && version != old.rv.to_string() {
            return Err(ApiError::modified(call.resource(), &call.name));
        }
        let new = if scaling { scale::set(call.resource(), &old.full(), &sent)? } else { sent.clone() };
        let outcome = settle(call, &old, new, false)?;
        if let Some(response) = store(call, &old, outcome).await? {
            return Ok(response);
        }
        if !version.is_empty() {
            return Err(ApiError::modified(call.resource(), &call.name));
        }
    }
}

/// PATCH of any type.
pub async fn patch(call: &mut Call, body: &[u8]) -> ApiResult<Response<Body>> {
    let kind = http_io::content_type(&call.headers).to_string();
    let apply = matches!(kind.as_str(), "application/apply-patch+yaml" | "application/apply-patch+json");
    check_options(call, "PatchOptions", apply)?;
    let custom = call.resource().custom;
    let known = match kind.as_str() {
        "application/json-patch+json" | "application/merge-patch+json" => true,
        "application/strategic-merge-patch+json" => !custom,
        _ => apply,
    };
    if !known {
        let list = if custom {
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        } else {
            "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, \
             application/apply-patch+yaml"
        };
        return Err(ApiError::unsupported_media(list));
    }
    let (document, duplicates) = match tree::parse(body) {
        Ok(found) => found,
        Err(_) if apply => (http_io::parse_yaml(body)?, Vec::new()),
        Err(e) => return Err(ApiError::bad_request(format!("error decoding patch: {e}"))),
    };
    if apply {
        return apply_patch(call, document).await;
    }
    for _ in 0..PATCH_ATTEMPTS {
        let old = read::current(call).await?;
        let scaling = call.subresource == "scale";
        let json_patch = kind == "application/json-patch+json";
        let mut new = match (scaling, json_patch) {
            (true, _) => scale::of(call.resource(), &old.value)?,
            // Only a JSON patch can test or change single entries of managedFields.
            (false, true) => old.full(),
            (false, false) => old.value.clone(),
        };
        convert::to_served(call.resource(), &mut new);
        match kind.as_str() {
            "application/json-patch+json" => patches::json_patch(&mut new, document.clone())?,
            "application/merge-patch+json" => patches::merge_patch(&mut new, document.clone()),
            _ => patches::strategic(Some(&call.entry.resource.schema), &mut new, document.clone())?,
        }
        if tree::meta_text(&new, "resourceVersion") != old.rv.to_string() {
            let pinned = tree::meta_text(&new, "resourceVersion");
            if !pinned.is_empty() {
                return Err(ApiError::modified(call.resource(), &call.name));
            }
        }
        if scaling {
            new = scale::set(call.resource(), &old.full(), &new)?;
        } else {
            call.warnings.clear();
            normalize(call, &mut new, &duplicates)?;
        }
        let outcome = settle(call, &old, new, false)?;
        if let Some(response) = store(call, &old, outcome).await? {
            return Ok(response);
        }
    }
    Err(ApiError::modified(call.resource(), &call.name))
}

async fn apply_patch(call: &mut Call, mut config: Value) -> ApiResult<Response<Body>> {
    let entry = call.entry.clone();
    let r = &*entry.resource;
    if call.subresource == "scale" {
        return Err(ApiError::unsupported_media("application/json-patch+json, application/merge-patch+json"));
    }
    let (kind, version) = (tree::text(&config, &["kind"]), tree::text(&config, &["apiVersion"]));
    if kind != r.kind || version != r.api_version() {
        return Err(ApiError::bad_request(format!(
            "invalid object type: {version}, Kind={kind}: the request is for {}, Kind={}",
            r.api_version(),
            r.kind
        )));
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
    let pinned = tree::meta_text(&config, "resourceVersion").to_string();
    let mut report = decode::Report::default();
    if r.custom {
        decode::custom(&r.schema, &mut config, &mut report);
    } else {
        decode::builtin(&r.schema, &mut config, &mut report);
    }
    if let Some(field) = report.unknown.first() {
        let message = format!(
            "failed to create typed patch object ({}/{}; {}, Kind={}): .{field}: field not declared in schema",
            call.namespace,
            call.name,
            r.api_version(),
            r.kind
        );
        return Err(if call.params.get("fieldValidation") == "Strict" {
            ApiError::bad_request(message)
        } else {
            ApiError::internal("", message)
        });
    }
    if let Some(what) = report.mismatched.first() {
        return Err(ApiError::internal("", format!("failed to create typed patch object: {what}")));
    }
    let mut causes = Vec::new();
    duplicates_in_lists(Some(&r.schema), &config, "", &mut causes);
    if let Some(what) = causes.first() {
        return Err(ApiError::internal("", format!("failed to create typed patch object: {what}")));
    }
    convert::to_stored(r, &mut config);
    tree::meta(&mut config).insert("name".into(), call.name.as_str().into());
    for key in ["resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"] {
        tree::meta(&mut config).remove(key);
    }
    check_namespace_of_body(call, &mut config)?;
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
            if r.custom {
                decode::defaults(&r.schema, &mut value);
            }
            match create_object(call, value, Some(())).await {
                Err(e) if e.reason() == "AlreadyExists" => continue,
                other => return other,
            }
        };
        if !pinned.is_empty() && pinned != old.rv.to_string() {
            return Err(ApiError::modified(r, &call.name));
        }
        let mut new = managed::apply(&r.schema, Some(&old.full()), config.clone(), force, &w)?;
        if r.custom {
            decode::defaults(&r.schema, &mut new);
        }
        let outcome = settle(call, &old, new, true)?;
        if let Some(response) = store(call, &old, outcome).await? {
            return Ok(response);
        }
    }
    Err(ApiError::modified(r, &call.name))
}

fn duplicates_in_lists(
    schema: Option<&crate::schema::Schema>,
    value: &Value,
    path: &str,
    out: &mut Vec<String>,
) {
    use crate::fieldset::{Shape, item_key, shape};
    match (shape(schema, value), value) {
        (Shape::Fields, Value::Object(map)) => {
            for (k, v) in map {
                duplicates_in_lists(schema.and_then(|s| s.field(k)), v, &format!("{path}.{k}"), out);
            }
        }
        (Shape::Items(keys, items), Value::Array(list)) => {
            let mut seen = std::collections::BTreeSet::new();
            for v in list {
                let key = item_key(keys, items, v);
                if !seen.insert(key.clone()) {
                    out.push(format!("{path}: duplicate entries for key {key}"));
                }
                duplicates_in_lists(items, v, path, out);
            }
        }
        _ => {}
    }
}
