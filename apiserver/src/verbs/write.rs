//! Creating and changing objects: the order of stages every write goes through.
//!
//! Inputs: a resolved call and a body. Absent on purpose: deletes (see `delete`), server-side apply (see `apply`), and the stages
//! themselves (see `body`, `settle`, `admission`).

use crate::verbs::body::{
    AFTER_ADMISSION, check_named, check_namespace_of_body, check_options, created_by_update, decode_body,
    duplicates, normalize, take_unchanged, undecodable, unite_owners, updated_blindly,
};
use crate::verbs::managed::{self, Writer};
use crate::verbs::settle::{self, Outcome, check_object, compose, finish, keeps_status_on_create};
use crate::verbs::{addresses, api_services, apply, crd, namespaces, read, versions};
use axum::body::Body;
use fleet_apiserver_admission::access::{accounts, rbac};
use fleet_apiserver_admission::call::{Call, Core};
use fleet_apiserver_admission::resource_quota;
use fleet_apiserver_admission::{self as admission, Operation};
use fleet_apiserver_ground::ids::{Ids, generated};
use fleet_apiserver_ground::store::{Obj, Refused, Write};
use fleet_apiserver_ground::tree;
use fleet_apiserver_kinds as kinds;
use fleet_apiserver_kinds::{pods, scale, services};
use fleet_apiserver_schema::error::{ApiError, ApiResult, Cause};
use fleet_apiserver_schema::http_io;
use fleet_apiserver_schema::resource::Resource;
use fleet_apiserver_schema::{convert, crd as definitions, patch as patches};
use http::{Response, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;

/// Attempts of a patch that lost a race. The real server makes 5; in process, races are closer together.
pub(super) const PATCH_ATTEMPTS: usize = 16;
/// Attempts of a generated name.
const NAME_ATTEMPTS: usize = 8;
/// Attempts of a create that lost a race for its quota.
const QUOTA_ATTEMPTS: usize = 64;

async fn check_namespace_open(call: &Call, name: &str) -> ApiResult<()> {
    if call.namespace.is_empty() {
        return Ok(());
    }
    let core = &call.core;
    let Some(ns) = core.namespaces.get(&call.namespace) else {
        return Err(ApiError::not_found(
            fleet_apiserver_schema::builtins::find("", "namespaces"),
            &call.namespace,
        ));
    };
    if ns.deleting() {
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

/// True when the namespace of a call takes new objects, if it has one.
fn namespace_is_open(call: &Call) -> bool {
    call.namespace.is_empty() || call.core.namespaces.get(&call.namespace).is_some_and(|ns| !ns.deleting())
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
    create_object(call, value, false).await
}

/// Sets what the server owns of a new object, whatever the client sent.
fn own(ids: &Ids, r: &Resource, value: &mut Value, now: &str) {
    let meta = tree::meta(value);
    for key in
        ["resourceVersion", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"]
    {
        meta.remove(key);
    }
    meta.insert("uid".into(), ids.uuid().to_string().into());
    meta.insert("creationTimestamp".into(), now.into());
    if r.generation || r.custom {
        meta.insert("generation".into(), 1.into());
    }
    if r.status && !keeps_status_on_create(r) {
        tree::object(value).remove("status");
    }
}

/// Records what the caller wrote, from `old` (nothing, for a new object) to `new`.
fn track(call: &Call, old: Option<&Value>, new: &mut Value, now: &str) {
    let r = call.resource();
    let skipped = match old {
        None => call.core.untracked.contains(call.manager()),
        Some(_) => !managed::is_tracked(&call.core.untracked, new),
    };
    if skipped {
        return;
    }
    let w = Writer {
        manager: call.manager(),
        api_version: &r.stored_as,
        subresource: "",
        now,
        has_status: r.status,
    };
    managed::track_update(&r.schema, old, new, &w);
}

/// Records what the caller wrote of a new object. Who creates an object owns its defaults too. Returns whether the
/// object has them now.
fn track_new(call: &Call, value: &mut Value, now: &str) -> bool {
    managed::inherit(&Value::Null, value, "");
    let owns = !call.resource().custom && !call.core.untracked.contains(call.manager());
    if owns {
        kinds::of_fields(call.resource(), value);
        if call.resource().is("apps", "daemonsets") {
            kinds::template_generation(None, value);
        }
    }
    track(call, None, value, now);
    owns
}

/// Defaults of a new object that no schema knows; `has_some`: it has had those of its fields.
fn complete_new(core: &Core, r: &Resource, value: &mut Value, has_some: bool) -> ApiResult<()> {
    if r.custom {
        return Ok(());
    }
    if r.is("", "pods") {
        pods::admit(core, value)?;
    }
    let form: fn(&Resource, &mut Value) = if has_some { kinds::apply_again } else { kinds::apply };
    form(r, value);
    if r.is("", "namespaces") {
        kinds::new_namespace(value);
    } else if r.is("", "pods") {
        pods::gate(value);
    }
    if r.is("apps", "daemonsets") {
        kinds::template_generation(None, value);
    }
    if r.is("batch", "jobs") {
        let uid = tree::meta_text(value, "uid").to_string();
        kinds::new_job(value, &uid);
    }
    Ok(())
}

/// Makes a tree that did not come by a request ready to be stored as a new object.
pub fn prepare(core: &Core, r: &Resource, value: &mut Value) -> ApiResult<()> {
    let map = tree::object(value);
    map.insert("kind".into(), r.kind.as_str().into());
    map.insert("apiVersion".into(), r.api_version().into());
    convert::to_stored(r, value);
    own(&core.ids, r, value, &core.clock.stamp());
    complete_new(core, r, value, false)?;
    check_object(r, None, value, "", Vec::new())
}

/// Lets webhooks change an object; what they change belongs to the caller. Returns whether they did.
async fn mutate(
    call: &mut Call,
    operation: Operation,
    old: Option<&Value>,
    value: &mut Value,
) -> ApiResult<bool> {
    if !call.core.admission.mutates() {
        return Ok(false);
    }
    let before = value.clone();
    let name = tree::meta_text(value, "name").to_string();
    let changed = admission::mutate(call, operation, &name, old, Some(value)).await?;
    if changed {
        let entry = call.entry.clone();
        // What is unknown in it was added by who changed it, and is dropped.
        admission::form::renormalize(&call.core, &entry.resource, value);
        track(call, Some(&before), value, &call.core.clock.stamp());
    }
    Ok(changed)
}

/// Nothing new is made of a kind whose definition is being deleted.
fn check_definition_stays(r: &Resource) -> ApiResult<()> {
    if !r.terminating {
        return Ok(());
    }
    Err(ApiError::not_now(r, "create not allowed while custom resource definition is terminating"))
}

/// Takes a new object through all stages before it is stored.
async fn admit_new(call: &mut Call, r: &Resource, value: &mut Value, has_defaults: bool) -> ApiResult<()> {
    complete_new(&call.core, r, value, has_defaults)?;
    admission::plugins::create(call, value)?;
    if r.is("", "services") {
        services::settle(&call.core, None, value)?;
    }
    mutate(call, Operation::Create, None, value).await?;
    unite_owners(call, value, AFTER_ADMISSION);
    if r.is("apiextensions.k8s.io", "customresourcedefinitions") {
        definitions::admit(None, value, &crd::all(&call.core), &call.core.clock.stamp())?;
    }
    rbac::check_write(&call.core, &call.core.auth, &call.user, r, None, value)?;
    // The account is looked up by a plugin that also mutates, so before validation.
    if r.is("", "pods") {
        pods::check_account(&call.core, &call.namespace, value)?;
    }
    check_object(r, None, value, "", admission::devices::unauthorized(call, None, value))?;
    if r.is("scheduling.k8s.io", "priorityclasses") {
        pods::admit_class(&call.core, value)?;
    }
    if !r.custom {
        call.warnings.extend(kinds::warnings::of(r, None, value, ""));
    }
    admission::plugins::check_new(call, value)?;
    admission::pod_security::check(call, None, value)?;
    admission::pod_security::check_namespace(call, None, value).await?;
    if settle::is_policy(r) {
        let status = admission::typing::status(&call.core, value);
        tree::object(value).insert("status".into(), status);
    }
    if r.is("apiregistration.k8s.io", "apiservices") {
        let status = api_services::status(&call.core, value);
        tree::object(value).insert("status".into(), status);
    }
    if r.is("", "secrets") {
        accounts::fill_secret(&call.core, &call.core.auth.signer, value);
    }
    let name = tree::meta_text(value, "name").to_string();
    admission::validate(call, Operation::Create, &name, None, Some(value)).await?;
    *value = versions::to_store(call, std::mem::take(value)).await?;
    Ok(())
}

/// Gives an object a name that starts with its generateName.
fn name_it(call: &Call, value: &mut Value, base: &str) {
    tree::meta(value).insert("name".into(), generated(&call.core.ids, base).into());
}

/// Stores a new object; `applied`: it came by server-side apply, which has set its managedFields.
pub(super) async fn create_object(
    call: &mut Call,
    mut value: Value,
    applied: bool,
) -> ApiResult<Response<Body>> {
    let entry = call.entry.clone();
    let r = &*entry.resource;
    check_namespace_of_body(call, &mut value)?;
    check_definition_stays(r)?;
    check_namespace_open(call, tree::meta_text(&value, "name")).await?;
    let base = tree::meta_text(&value, "generateName").to_string();
    let generate = tree::meta_text(&value, "name").is_empty() && !base.is_empty();
    let now = call.core.clock.stamp();
    // Defaults hide that it came without labels.
    let takes_labels = kinds::takes_labels(r, &value);
    own(&call.core.ids, r, &mut value, &now);
    let mut has_defaults = false;
    if !applied {
        unite_owners(call, &mut value, "");
        has_defaults = track_new(call, &mut value, &now);
    }
    if generate {
        name_it(call, &mut value, &base);
    }
    admit_new(call, r, &mut value, has_defaults).await?;
    if takes_labels {
        kinds::take_labels(&mut value);
    }
    let is_crd = r.is("apiextensions.k8s.io", "customresourcedefinitions");
    for attempt in 0.. {
        if attempt > 0 && generate {
            let before = tree::meta_text(&value, "name").to_string();
            name_it(call, &mut value, &base);
            kinds::renamed(r, &mut value, &before);
            complete_new(&call.core, r, &mut value, false)?;
        }
        let name = tree::meta_text(&value, "name").to_string();
        let charges = resource_quota::charge(&call.core, &call.core.quotas, r, &call.namespace, &value)?;
        if call.dry_run() {
            return answer_dry_run(call, &name, value);
        }
        // Only a generated name or a quota may need another attempt.
        let again = generate || !charges.is_empty();
        let stored = if again { value.clone() } else { std::mem::take(&mut value) };
        let mut writes = writes_of_new(call, &name, stored);
        writes.extend(charges);
        let guard = if is_crd { Some(call.core.crd_lock.lock().await) } else { None };
        // The namespace is looked at again under the lock: it may just have begun to go away.
        match call.core.store.commit_if(writes, || namespace_is_open(call)) {
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
            // Somebody else was charged meanwhile.
            Err(Refused::Changed(_)) if attempt < QUOTA_ATTEMPTS => {}
            // Another place than the first: a companion of a namespace is left from an earlier life, and the namespace
            // is still going away.
            Err(Refused::Exists(_)) => return Err(ApiError::already_exists(r, &name)),
            Err(Refused::Barred) => {
                check_namespace_open(call, &name).await?;
                // It came back in the meantime; a generated name is tried again, another one by the client.
                if !generate {
                    return Err(ApiError::unavailable("the namespace was replaced during the request"));
                }
            }
            Err(e) => return Err(e.into()),
        }
    }
    Err(ApiError::internal("InternalError", "no free name was found"))
}

fn answer_dry_run(call: &Call, name: &str, mut value: Value) -> ApiResult<Response<Body>> {
    let entry = call.entry.clone();
    if entry.table.get(&call.key(name)).is_some() {
        return Err(ApiError::already_exists(&entry.resource, name));
    }
    convert::to_served(&entry.resource, &mut value);
    read::value_in_form(call, StatusCode::CREATED, value)
}

/// The object, and what comes with it.
fn writes_of_new(call: &Call, name: &str, value: Value) -> Vec<Write> {
    let (table, key) = (call.entry.table.clone(), call.key(name));
    let mut writes = vec![Write::Create { table, key, value }];
    if call.resource().is("", "namespaces") {
        writes.extend(namespaces::companions(&call.core, name));
    } else if call.resource().is("", "services") {
        writes.extend(addresses::of_new(&call.core, &writes));
    }
    writes
}

/// Takes a changed object through all stages and commits it. Ok(None): another writer was faster.
pub(super) async fn change(
    call: &mut Call,
    old: &Arc<Obj>,
    mut live: Value,
    new: Value,
    applied: bool,
) -> ApiResult<Option<Response<Body>>> {
    let mut new = compose(call, old, &live, new, applied)?;
    let name = call.name.clone();
    // A webhook that is interested in scaling sees the Scale, and may refuse it only.
    if call.subresource != "scale" {
        let changed = mutate(call, Operation::Update, Some(&live), &mut new).await?;
        settle::after_webhooks(call, changed, &live, &mut new);
        unite_owners(call, &mut new, AFTER_ADMISSION);
    }
    let outcome = finish(call, old, &mut live, new, applied)?;
    if !call.resource().custom {
        let now = outcome.value(&live);
        let said = kinds::warnings::of(call.resource(), Some(&live), now, &call.subresource);
        call.warnings.extend(said);
    }
    admission::plugins::check_change(call, &live, outcome.value(&live))?;
    admission::pod_security::check_namespace(call, Some(&live), outcome.value(&live)).await?;
    admission::pod_security::check(call, Some(&live), outcome.value(&live))?;
    admission::validate(call, Operation::Update, &name, Some(&live), Some(outcome.value(&live))).await?;
    let charges = match &outcome {
        Outcome::Write(new) => resource_quota::charge_change(
            &call.core,
            &call.core.quotas,
            call.resource(),
            &call.namespace,
            &live,
            new,
        )?,
        _ => Vec::new(),
    };
    store(call, old, outcome, charges).await
}

/// Commits an outcome. Ok(None) means another writer was faster.
async fn store(
    call: &Call,
    old: &Arc<Obj>,
    outcome: Outcome,
    charges: Vec<Write>,
) -> ApiResult<Option<Response<Body>>> {
    let entry = &call.entry;
    if call.dry_run() {
        let value = match outcome {
            Outcome::Same(obj) => obj.full(),
            Outcome::Write(v) | Outcome::Delete(v) => v,
        };
        return respond_value(call, value).map(Some);
    }
    let is_crd = call.resource().is("apiextensions.k8s.io", "customresourcedefinitions");
    let outcome = match outcome {
        Outcome::Write(value) => Outcome::Write(versions::to_store(call, value).await?),
        other => other,
    };
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
    let mut writes = vec![write];
    writes.extend(charges);
    match call.core.store.commit(writes) {
        Ok(objs) => {
            call.core.store.wait(objs.last().map_or(0, |obj| obj.rv)).await?;
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
        return Ok(http_io::value_response(StatusCode::OK, &scale::of(call.resource(), &obj.value())?));
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

/// Who makes an object by another verb needs the right to create it too.
pub(super) fn may_create(call: &Call) -> ApiResult<()> {
    let r = call.resource();
    let q = rbac::Question {
        verb: "create".into(),
        group: r.group.clone(),
        resource: r.plural.clone(),
        namespace: call.namespace.clone(),
        name: call.name.clone(),
        ..rbac::Question::default()
    };
    call.core.auth.allow(&call.core, &call.user, &q)
}

/// PUT.
pub async fn update(call: &mut Call, body: &[u8]) -> ApiResult<Response<Body>> {
    check_options(call, "UpdateOptions", false)?;
    let (mut sent, duplicates) = decode_body(call, body)?;
    let scaling = call.subresource == "scale";
    if !scaling {
        normalize(call, &mut sent, &duplicates)?;
        check_namespace_of_body(call, &mut sent)?;
        unite_owners(call, &mut sent, "");
    }
    let kind = tree::text(&sent, &["kind"]);
    if scaling && !matches!(kind, "" | "Scale") {
        let found = tree::text(&sent, &["apiVersion"]);
        return Err(ApiError::bad_request(format!(
            "no kind {kind:?} is registered for version {found:?}; a Scale is needed here"
        )));
    }
    check_named(call, &sent)?;
    let version = tree::meta_text(&sent, "resourceVersion").to_string();
    loop {
        let old = match read::current(call).await {
            Err(e)
                if e.code() == 404
                    && created_by_update(call.resource())
                    && call.subresource.is_empty()
                    && version.is_empty() =>
            {
                may_create(call)?;
                return create_object(call, sent, false).await;
            }
            other => other?,
        };
        if version.is_empty() && !scaling && !updated_blindly(call.resource()) {
            let cause =
                Cause::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
            let r = call.resource();
            return Err(ApiError::invalid(&r.group, &r.plural, &call.name, vec![cause]));
        }
        if version.parse::<u64>().is_err() && !version.is_empty() {
            let why = format!("strconv.ParseUint: parsing {version:?}: invalid syntax");
            return Err(ApiError::internal("", why));
        }
        if !version.is_empty() && version != old.rv.to_string() {
            return Err(ApiError::modified(call.resource(), &call.name));
        }
        let live = versions::live(call, &old).await?;
        let new = if scaling { scale::set(call.resource(), &live, &sent)? } else { sent.clone() };
        if let Some(response) = change(call, &old, live, new, false).await? {
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
    let apply = kind == "application/apply-patch+yaml";
    check_options(call, "PatchOptions", apply)?;
    let custom = call.resource().custom;
    let known = match kind.as_str() {
        "application/json-patch+json" | "application/merge-patch+json" => true,
        "application/strategic-merge-patch+json" => !custom,
        _ => apply,
    };
    if !known {
        return Err(if custom {
            let list =
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
            ApiError::unsupported_media(list)
        } else {
            ApiError::unknown_patch()
        });
    }
    if apply {
        return apply::apply_patch(call, body).await;
    }
    let parse = || match tree::parse(body) {
        Ok((document, paths)) => Ok((document, duplicates(paths))),
        Err(e) => Err(ApiError::bad_request(format!("error decoding patch: {e}"))),
    };
    let (document, duplicates) = parse()?;
    let mut parsed = Some(document);
    for _ in 0..PATCH_ATTEMPTS {
        // Each attempt uses the document up; more than one is rare.
        let document = match parsed.take() {
            Some(document) => document,
            None => parse()?.0,
        };
        let old = read::current(call).await?;
        let mut live = versions::live(call, &old).await?;
        let scaling = call.subresource == "scale";
        let json_patch = kind == "application/json-patch+json";
        let mut new = match (scaling, json_patch) {
            (true, _) => scale::to_patch(call.resource(), &live)?,
            // Only a JSON patch can test or change single entries of managedFields.
            (false, true) => live.clone(),
            (false, false) => managed::without(&mut live, |bare| bare.clone()),
        };
        convert::to_served(call.resource(), &mut new);
        if !json_patch {
            patches::check_object(&document, kind == "application/strategic-merge-patch+json")?;
        }
        match kind.as_str() {
            "application/json-patch+json" => patches::json_patch(&mut new, document)?,
            "application/merge-patch+json" => patches::merge_patch(&mut new, document),
            _ => patches::strategic(Some(&call.entry.resource.schema), &mut new, document)?,
        }
        if tree::meta_text(&new, "resourceVersion") != old.rv.to_string() {
            let pinned = tree::meta_text(&new, "resourceVersion");
            if !pinned.is_empty() {
                return Err(ApiError::modified(call.resource(), &call.name));
            }
        }
        if scaling {
            new = scale::set(call.resource(), &live, &new)?;
        } else {
            call.warnings.clear();
            let same = take_unchanged(call.resource(), &live, &mut new);
            if let Err(e) = normalize(call, &mut new, &duplicates) {
                return Err(undecodable(call, e, &old, parse()?.0));
            }
            tree::object(&mut new).extend(same);
            check_namespace_of_body(call, &mut new)?;
        }
        if let Some(response) = change(call, &old, live, new, false).await? {
            return Ok(response);
        }
    }
    Err(ApiError::modified(call.resource(), &call.name))
}
