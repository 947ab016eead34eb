//! Removing one object by the rules of its kind: preconditions, finalizers, grace, propagation.
//!
//! Absent on purpose: requests (see `delete`), and removing dependents (see `garbage`).

use fleet_apiserver_admission::call::Core;
use fleet_apiserver_ground::clock;
use fleet_apiserver_ground::store::{Obj, Refused, Table, Write};
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::crd;
use fleet_apiserver_schema::error::{ApiError, ApiResult};
use fleet_apiserver_schema::resource::Resource;
use serde_json::Value;
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
    /// `orphanDependents` was said to be false.
    pub cascades: bool,
}

/// A whole number of seconds in the options of a request.
pub fn seconds(options: &Value, key: &str) -> ApiResult<Option<i64>> {
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
            let why = format!(
                "the UID in the precondition ({}) does not match the UID in record ({uid}). The object might have been deleted and then recreated",
                o.uid
            );
            return Err(ApiError::conflict(&by_kind(r), name, &why));
        }
        if !o.version.is_empty() && o.version != old.rv.to_string() {
            let why = format!(
                "the ResourceVersion in the precondition ({}) does not match the ResourceVersion in record ({}). The object might have been modified",
                o.version, old.rv
            );
            return Err(ApiError::conflict(&by_kind(r), name, &why));
        }
        let write = match plan(core, r, &old, o) {
            Removal::Nothing => return Ok(Done::Pending(old)),
            Removal::Mark(value) => Write::Update { table: table.clone(), prev: old.clone(), value },
            Removal::Remove => Write::Delete { table: table.clone(), prev: old.clone(), value: None },
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

/// Preconditions are told under the kind's own name.
fn by_kind(r: &Resource) -> Resource {
    Resource { group: r.group.clone(), plural: r.kind.clone(), ..Resource::default() }
}

/// What a delete request does to an object.
enum Removal {
    Nothing,
    Mark(Value),
    Remove,
}

fn plan(core: &Core, r: &Resource, old: &Arc<Obj>, o: &Options) -> Removal {
    let deleting = old.deleting();
    let mut finalizers = old.list(&["metadata", "finalizers"]);
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
        let left = old.number(&["metadata", "deletionGracePeriodSeconds"]);
        if grace < left {
            if grace == 0 && finalizers.is_empty() {
                return Removal::Remove;
            }
            return Removal::Mark(marked(core, old, grace, finalizers));
        }
        if finalizers.len() != before && !namespace {
            if finalizers.is_empty() && left == 0 {
                return Removal::Remove;
            }
            return Removal::Mark(marked(core, old, left, finalizers));
        }
        return Removal::Nothing;
    }
    if namespace {
        let mut value = marked(core, old, 0, finalizers);
        tree::meta(&mut value).remove("deletionGracePeriodSeconds");
        tree::child(&mut value, "status").insert("phase".into(), "Terminating".into());
        return Removal::Mark(value);
    }
    if is_crd {
        let cleanup = "customresourcecleanup.apiextensions.k8s.io";
        if !has(&finalizers, cleanup) {
            finalizers.push(cleanup.into());
        }
        let mut value = marked(core, old, 0, finalizers);
        crd::condition(&mut value, "Terminating", "True", "InstanceDeletionPending", &core.clock.stamp());
        return Removal::Mark(value);
    }
    if grace == 0 && finalizers.is_empty() {
        return Removal::Remove;
    }
    Removal::Mark(marked(core, old, grace, finalizers))
}

fn orphans_by_default(r: &Resource) -> bool {
    r.is("batch", "jobs") || r.is("", "replicationcontrollers")
}

fn marked(core: &Core, old: &Obj, grace: i64, finalizers: Vec<Value>) -> Value {
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
        meta.insert("deletionTimestamp".into(), clock::stamp(when).into());
        meta.insert("deletionGracePeriodSeconds".into(), grace.into());
    }
    if fresh && generation > 0 {
        meta.insert("generation".into(), (generation + 1).into());
    }
    if finalizers.is_empty() {
        meta.remove("finalizers");
    } else {
        meta.insert("finalizers".into(), Value::Array(finalizers));
    }
    value
}
