//! Deleting: preconditions, finalizers, grace, propagation, collections, evictions.
//!
//! Inputs: a resolved call and DeleteOptions. Absent on purpose: removing dependents (see `garbage`).

use crate::admission::budgets;
use crate::admission::core::{Call, Core};
use crate::admission::{self, Operation};
use crate::ground::store::{Obj, Range, Refused, Table, Write};
use crate::ground::tree;
use crate::schema::error::{ApiError, ApiResult, Cause, success};
use crate::schema::http_io;
use crate::schema::registry::Resource;
use crate::verbs::read::{self, Filter};
use crate::verbs::{action, body, crd};
use axum::body::Body;
use http::{Response, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;

/// Further attempts of a delete that a full disk refused together with other writes.
const FULL_DISK_ATTEMPTS: usize = 3;

/// What a delete asks for.
#[derive(Debug, Default, Clone)]
pub struct Options {
    /// Seconds, when given.
    pub grace: Option<i64>,
    /// `Background`, `Foreground` or `Orphan`, or "" for the kind's default.
    pub propagation: String,
    /// Must be the object's uid.
    pub uid: String,
    /// Must be the object's resourceVersion.
    pub version: String,
    /// Nothing is removed.
    pub dry_run: bool,
}

fn options(call: &Call, sent: &[u8]) -> ApiResult<Options> {
    let p = &call.params;
    let mut o = Options {
        grace: p.number("gracePeriodSeconds")?,
        propagation: p.get("propagationPolicy").to_string(),
        dry_run: call.dry_run(),
        ..Options::default()
    };
    let mut orphan = match p.get("orphanDependents") {
        "" => None,
        v => Some(v == "true"),
    };
    if !sent.is_empty() {
        let (v, _) = body::decode_body(call, sent)?;
        if !v.is_object() && !v.is_null() {
            return Err(ApiError::bad_request("the body is not a DeleteOptions object"));
        }
        let kind = tree::text(&v, &["kind"]);
        if !matches!(kind, "" | "DeleteOptions") {
            return Err(ApiError::bad_request(format!(
                "decoded object cannot be converted to DeleteOptions: the body is a {kind}"
            )));
        }
        o.grace = seconds(&v, "gracePeriodSeconds")?.or(o.grace);
        let text = |path: &[&str]| tree::text(&v, path).to_string();
        if !text(&["propagationPolicy"]).is_empty() {
            o.propagation = text(&["propagationPolicy"]);
        }
        o.uid = text(&["preconditions", "uid"]);
        o.version = text(&["preconditions", "resourceVersion"]);
        o.dry_run |= !tree::list(&v, &["dryRun"]).is_empty();
        orphan = orphan.or(v.get("orphanDependents").and_then(Value::as_bool));
    }
    let mut causes = Vec::new();
    if let Some(orphan) = orphan {
        if o.propagation.is_empty() {
            o.propagation = if orphan { "Orphan" } else { "Background" }.into();
        } else {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            causes.push(Cause::invalid("propagationPolicy", &json!(o.propagation), why));
        }
    }
    if !matches!(o.propagation.as_str(), "" | "Background" | "Foreground" | "Orphan") {
        let message = format!(
            "Unsupported value: {:?}: supported values: \"Foreground\", \"Background\", \"Orphan\"",
            o.propagation
        );
        causes.push(Cause::new("FieldValueNotSupported", "propagationPolicy", message));
    }
    if p.all("dryRun").any(|v| v != "All") {
        let message = format!("Unsupported value: {:?}: supported values: \"All\"", p.get("dryRun"));
        causes.push(Cause::new("FieldValueNotSupported", "dryRun", message));
    }
    if causes.is_empty() { Ok(o) } else { Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", causes)) }
}

/// A whole number of seconds in the options of a request.
fn seconds(options: &Value, key: &str) -> ApiResult<Option<i64>> {
    match options.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(found) => found.as_i64().map(Some).ok_or_else(|| {
            let why = "cannot be handled as a DeleteOptions: json: cannot unmarshal";
            ApiError::bad_request(format!(
                "DeleteOptions in version \"v1\" {why} {found} into Go struct field DeleteOptions.{key} of type int64"
            ))
        }),
    }
}

/// What a delete led to.
pub enum Done {
    /// The object is still there, with a deletionTimestamp.
    Pending(Arc<Obj>),
    /// The object was deleted; this was its last state.
    Gone(Arc<Obj>),
}

/// Deletes one object, by the rules of its kind.
pub async fn delete_object(
    core: &Arc<Core>,
    r: &Resource,
    table: &Arc<Table>,
    key: &str,
    o: &Options,
) -> ApiResult<Done> {
    let name = key.rsplit('/').next().unwrap_or(key);
    let mut attempts = FULL_DISK_ATTEMPTS;
    loop {
        let Some(old) = core.store.read(table, key).await? else { return Err(ApiError::not_found(r, name)) };
        let uid = old.meta_text("uid");
        if !o.uid.is_empty() && o.uid != uid {
            let why =
                format!("Precondition failed: UID in precondition: {}, UID in object meta: {uid}", o.uid);
            return Err(ApiError::conflict(r, name, &why));
        }
        if !o.version.is_empty() && o.version != old.rv.to_string() {
            let why = format!(
                "Precondition failed: ResourceVersion in precondition: {}, ResourceVersion in object meta: {}",
                o.version, old.rv
            );
            return Err(ApiError::conflict(r, name, &why));
        }
        let write = match plan(core, r, &old, o) {
            Plan::Nothing => return Ok(Done::Pending(old)),
            Plan::Mark(value) => Write::Update { table: table.clone(), prev: old.clone(), value },
            Plan::Remove => Write::Delete { table: table.clone(), prev: old.clone(), value: None },
        };
        if o.dry_run {
            return Ok(match write {
                Write::Update { value, .. } => Done::Pending(Arc::new(core.store.draft(key, old.rv, &value))),
                _ => Done::Gone(old),
            });
        }
        let removes = matches!(write, Write::Delete { .. });
        match core.store.commit(vec![write]) {
            Ok(objs) => {
                let obj = objs[0].clone();
                match core.store.wait(obj.rv).await {
                    // Written together with what the disk had no room for. By itself it may use the reserve.
                    Err(Refused::NotStored(_)) if attempts > 0 => attempts -= 1,
                    Err(e) => return Err(e.into()),
                    Ok(()) => return Ok(if removes { Done::Gone(obj) } else { Done::Pending(obj) }),
                }
            }
            Err(Refused::Changed(_)) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

enum Plan {
    Nothing,
    Mark(Value),
    Remove,
}

fn plan(core: &Core, r: &Resource, old: &Arc<Obj>, o: &Options) -> Plan {
    let meta = &old.at(&["metadata"]).unwrap_or_default();
    let deleting = meta.get("deletionTimestamp").is_some();
    let mut finalizers: Vec<Value> = tree::list(meta, &["finalizers"]).to_vec();
    let before = finalizers.len();
    let has = |list: &[Value], f: &str| list.iter().any(|x| x == f);
    let (foreground, orphan) = ("foregroundDeletion", "orphan");
    match o.propagation.as_str() {
        "Foreground" if !has(&finalizers, foreground) => {
            finalizers.retain(|f| f != orphan);
            finalizers.push(foreground.into());
        }
        "Orphan" if !has(&finalizers, orphan) => {
            finalizers.retain(|f| f != foreground);
            finalizers.push(orphan.into());
        }
        "Background" => finalizers.retain(|f| f != orphan && f != foreground),
        "" if orphans_by_default(r) && !deleting && !has(&finalizers, orphan) => {
            finalizers.push(orphan.into())
        }
        _ => {}
    }
    let mut grace = 0;
    if r.is("", "pods") {
        let bound = !old.text(&["spec", "nodeName"]).is_empty();
        let finished = matches!(old.text(&["status", "phase"]).as_str(), "Succeeded" | "Failed");
        if bound && !finished {
            let own = old.at(&["spec", "terminationGracePeriodSeconds"]).and_then(|v| v.as_i64());
            // Negative ones count as one second, as in the real server.
            grace = o.grace.or(own).map_or(30, |g| if g < 0 { 1 } else { g });
        }
    }
    let namespace = r.is("", "namespaces");
    let is_crd = r.is("apiextensions.k8s.io", "customresourcedefinitions");
    if deleting {
        let left = tree::number(meta, &["deletionGracePeriodSeconds"]);
        if grace < left {
            if grace == 0 && finalizers.is_empty() {
                return Plan::Remove;
            }
            return Plan::Mark(marked(core, r, old, grace, finalizers));
        }
        if finalizers.len() != before && !namespace {
            if finalizers.is_empty() && left == 0 {
                return Plan::Remove;
            }
            return Plan::Mark(marked(core, r, old, left, finalizers));
        }
        return Plan::Nothing;
    }
    if namespace {
        let mut value = marked(core, r, old, 0, finalizers);
        tree::meta(&mut value).remove("deletionGracePeriodSeconds");
        tree::child(&mut value, "status").insert("phase".into(), "Terminating".into());
        return Plan::Mark(value);
    }
    if is_crd {
        let cleanup = "customresourcecleanup.apiextensions.k8s.io";
        if !has(&finalizers, cleanup) {
            finalizers.push(cleanup.into());
        }
        let mut value = marked(core, r, old, 0, finalizers);
        crd::condition(&mut value, "Terminating", "True", "InstanceDeletionPending", &core.clock.stamp());
        return Plan::Mark(value);
    }
    if grace == 0 && finalizers.is_empty() {
        return Plan::Remove;
    }
    Plan::Mark(marked(core, r, old, grace, finalizers))
}

fn orphans_by_default(r: &Resource) -> bool {
    r.is("batch", "jobs") || r.is("", "replicationcontrollers")
}

fn marked(core: &Core, r: &Resource, old: &Obj, grace: i64, finalizers: Vec<Value>) -> Value {
    let mut value = old.full();
    let when = core
        .clock
        .now()
        .saturating_add(jiff::SignedDuration::from_secs(grace))
        .unwrap_or(jiff::Timestamp::MAX);
    let fresh = !old.deleting();
    let generation = old.number(&["metadata", "generation"]);
    let meta = tree::meta(&mut value);
    if fresh || grace < old.number(&["metadata", "deletionGracePeriodSeconds"]) {
        meta.insert("deletionTimestamp".into(), crate::stamp(when).into());
        meta.insert("deletionGracePeriodSeconds".into(), grace.into());
    }
    if fresh && (r.generation || r.custom) {
        meta.insert("generation".into(), (generation + 1).into());
    }
    if finalizers.is_empty() {
        meta.remove("finalizers");
    } else {
        meta.insert("finalizers".into(), Value::Array(finalizers));
    }
    value
}

/// Asks webhooks and policies whether an object may go.
async fn admit(call: &mut Call, name: &str) -> ApiResult<()> {
    if call.core.admission.is_idle() {
        return Ok(());
    }
    let found = call.core.store.read(&call.entry.table, &call.key(name)).await?;
    let old = found.ok_or_else(|| ApiError::not_found(call.resource(), name))?.full();
    admission::mutate(call, Operation::Delete, name, Some(&old), None).await?;
    admission::validate(call, Operation::Delete, name, Some(&old), None).await
}

/// DELETE of one object.
pub async fn delete(call: &mut Call, body: &[u8]) -> ApiResult<Response<Body>> {
    if !call.subresource.is_empty() {
        return Err(ApiError::method_not_allowed());
    }
    let o = options(call, body)?;
    let entry = call.entry.clone();
    let r = &*entry.resource;
    if r.is("", "namespaces") && crate::verbs::namespaces::PERMANENT.contains(&call.name.as_str()) {
        return Err(ApiError::forbidden(r, &call.name, "this namespace may not be deleted"));
    }
    let name = call.name.clone();
    admit(call, &name).await?;
    let done = delete_object(&call.core, r, &entry.table, &call.key(&name), &o).await?;
    if r.is("apiextensions.k8s.io", "customresourcedefinitions") && !o.dry_run {
        crd::finish_delete(&call.core, &call.name).await?;
    }
    match done {
        Done::Pending(obj) => read::object_response(call, StatusCode::OK, &obj),
        Done::Gone(obj) if r.is("", "pods") => read::object_response(call, StatusCode::OK, &obj),
        Done::Gone(obj) => {
            let status = success(r, &call.name, &obj.meta_text("uid"));
            Ok(http_io::value_response(StatusCode::OK, &status))
        }
    }
}

/// DELETE of a collection.
pub async fn collection(call: &mut Call, body: &[u8]) -> ApiResult<Response<Body>> {
    let o = options(call, body)?;
    let entry = call.entry.clone();
    let r = &*entry.resource;
    let filter = Filter::of(call)?;
    let range = Range { prefix: &filter.prefix, ..Range::default() };
    let page = call.core.store.page(&entry.table, range).await?;
    let mut items = Vec::new();
    for obj in page.map(|p| p.items).unwrap_or_default() {
        if !filter.covers(&obj.key) || !filter.selects(&obj) {
            continue;
        }
        if r.is("", "namespaces") && crate::verbs::namespaces::PERMANENT.contains(&&*obj.key) {
            continue;
        }
        // The collection of all namespaces is deleted from each in turn.
        if let Some((namespace, _)) = obj.key.split_once('/') {
            call.namespace = namespace.to_string();
        }
        let name = obj.meta_text("name").to_string();
        match admit(call, &name).await {
            Err(e) if e.code() == 404 => continue,
            other => other?,
        }
        match delete_object(&call.core, r, &entry.table, &obj.key, &o).await {
            Ok(Done::Pending(obj) | Done::Gone(obj)) => items.push(obj),
            Err(e) if e.code() == 404 => {}
            Err(e) => return Err(e),
        }
    }
    let meta = json!({"resourceVersion": call.core.store.durable().to_string()});
    Ok(http_io::json_response(StatusCode::OK, read::list_bytes(r, &meta, &items)))
}

/// POST of an Eviction: a delete that asks the disruption budgets first.
pub async fn evict(call: &mut Call, sent: &[u8]) -> ApiResult<Response<Body>> {
    let (eviction, _) = body::decode_body(call, sent)?;
    let pod = read::current(call).await?;
    let o = Options {
        grace: seconds(eviction.get("deleteOptions").unwrap_or(&Value::Null), "gracePeriodSeconds")?,
        uid: tree::text(&eviction, &["deleteOptions", "preconditions", "uid"]).to_string(),
        dry_run: call.dry_run() || !tree::list(&eviction, &["deleteOptions", "dryRun"]).is_empty(),
        ..Options::default()
    };
    let wanted = tree::at(&eviction, &["deleteOptions", "preconditions", "uid"]).and_then(Value::as_str);
    if let Some(wanted) = wanted.filter(|w| *w != pod.meta_text("uid")) {
        let uid = pod.meta_text("uid");
        let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}");
        return Err(ApiError::conflict(call.resource(), &call.name, &why));
    }
    budgets::take(&call.core, &call.namespace, &pod, o.dry_run).await?;
    let entry = call.entry.clone();
    delete_object(&call.core, &entry.resource, &entry.table, &call.key(&call.name), &o).await?;
    Ok(action::bound(call, &pod))
}
