//! From a changed object to what is stored: what the endpoint may change, generation, ownership, validation.
//!
//! Inputs: the live object and the new one. Absent on purpose: decoding, admission, and the commit.

use crate::verbs::bind::stale;
use crate::verbs::crd;
use crate::verbs::managed::{self, Writer};
use crate::verbs::resized;
use fleet_apiserver_admission::access::rbac;
use fleet_apiserver_admission::call::Call;
use fleet_apiserver_admission::{self as admission, typing};
use fleet_apiserver_ground::nesting;
use fleet_apiserver_ground::store::Obj;
use fleet_apiserver_ground::tree;
use fleet_apiserver_kinds as kinds;
use fleet_apiserver_kinds::{devices, pods, services};
use fleet_apiserver_schema::crd as definitions;
use fleet_apiserver_schema::custom;
use fleet_apiserver_schema::error::{ApiError, ApiResult, Cause};
use fleet_apiserver_schema::http_io;
use fleet_apiserver_schema::resource::Resource;
use fleet_apiserver_schema::validate::{self, NameRule};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

fn name_rule(r: &Resource, old: Option<&Value>) -> NameRule {
    match (r.group.as_str(), r.plural.as_str()) {
        ("rbac.authorization.k8s.io" | "certificates.k8s.io" | "apiregistration.k8s.io" | "policy", _) => {
            NameRule::Path
        }
        ("", "events") | ("events.k8s.io", _) => NameRule::Path,
        // Checked with its kind: an address may have colons.
        ("networking.k8s.io", "ipaddresses") => NameRule::Path,
        ("", "namespaces" | "services") => NameRule::Label,
        // Those of before may have dots.
        ("apps", "statefulsets") if old.is_none() => NameRule::Label,
        _ => NameRule::Subdomain,
    }
}

/// Kinds whose status the client may set at once, as in the real server.
pub fn keeps_status_on_create(r: &Resource) -> bool {
    r.is("", "nodes")
}

/// Objects that are nested more deeply than the store takes are refused before anything walks through them.
fn check_nesting(r: &Resource, old: Option<&Value>, value: &Value) -> ApiResult<()> {
    nesting::check_change(old, value).map_err(|e| {
        let cause = Cause::new("FieldValueInvalid", &e.path, format!("Invalid value: {e}"));
        ApiError::invalid(&r.group, &r.kind, tree::meta_text(value, "name"), vec![cause])
    })
}

/// Validates a new or changed object; all causes at once, after those that are known by now.
pub fn check_object(
    r: &Resource,
    old: Option<&Value>,
    value: &Value,
    subresource: &str,
    mut causes: Vec<Cause>,
) -> ApiResult<()> {
    check_nesting(r, old, value)?;
    validate::metadata(name_rule(r, old), value, &mut causes);
    if r.custom {
        custom::check(r, old, value, subresource, &mut causes);
    } else {
        kinds::check_finalizers(value, &mut causes);
        kinds::check(r, old, value, subresource, &mut causes);
    }
    if causes.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(&r.group, &r.kind, tree::meta_text(value, "name"), causes))
}

/// Policies whose expressions have types.
pub fn is_policy(r: &Resource) -> bool {
    r.is("admissionregistration.k8s.io", "validatingadmissionpolicies")
}

/// What a change leads to.
#[derive(Debug)]
pub enum Outcome {
    /// Nothing changed.
    Same(Arc<Obj>),
    /// A new version.
    Write(Value),
    /// The last finalizer went away.
    Delete(Value),
}

impl Outcome {
    /// The object after the change; `live` is the one before it.
    pub fn value<'a>(&'a self, live: &'a Value) -> &'a Value {
        match self {
            Outcome::Same(_) => live,
            Outcome::Write(value) | Outcome::Delete(value) => value,
        }
    }
}

const SERVER_FIELDS: [&str; 6] =
    ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"];

/// Restores the fields of an object, except some. Equal ones are not copied.
fn restore(new: &mut Value, live: &Value, kept: &[&str]) {
    let map = tree::object(new);
    let empty = Map::new();
    let live = live.as_object().unwrap_or(&empty);
    map.retain(|key, _| kept.contains(&key.as_str()) || live.contains_key(key));
    for (key, value) in live.iter().filter(|(key, _)| !kept.contains(&key.as_str())) {
        if map.get(key) != Some(value) {
            map.insert(key.clone(), value.clone());
        }
    }
}

/// What is sent is the object of the URL, and not a later one of its name.
fn same_object(call: &Call, live: &Value, new: &Value) -> ApiResult<()> {
    let r = call.resource();
    let name = call.name.as_str();
    let found = tree::meta_text(new, "name");
    if !found.is_empty() && found != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({found}) does not match the name on the URL ({name})"
        )));
    }
    let sent_uid = tree::meta_text(new, "uid");
    let uid = tree::meta_text(live, "uid");
    if !sent_uid.is_empty() && sent_uid != uid {
        if http_io::content_type(&call.headers).contains("patch") {
            let cause = Cause::invalid("metadata.uid", &json!(sent_uid), "field is immutable");
            return Err(ApiError::invalid(&r.group, &r.kind, name, vec![cause]));
        }
        return Err(stale(call, "UID", sent_uid, uid));
    }
    Ok(())
}

/// No change marks an object as deleted. A mark that is there stays, whatever is said of it, but not its grace.
fn check_unmarked(call: &Call, old: Option<&Value>, new: &Value) -> ApiResult<()> {
    let r = call.resource();
    if !(call.subresource.is_empty() || (call.subresource == "status" && !r.custom)) {
        return Ok(());
    }
    let mut causes = Vec::new();
    for key in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        let before = old.and_then(|meta| meta.get(key));
        let Some(sent) = tree::at(new, &["metadata", key]).filter(|sent| !sent.is_null()) else { continue };
        if before != Some(sent) && (before.is_none() || key != "deletionTimestamp") {
            causes.push(Cause::invalid(format!("metadata.{key}"), sent, "field is immutable"));
        }
    }
    if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid(&r.group, &r.kind, &call.name, causes)) }
}

/// The fields of the metadata of a built-in kind that a write of the status leaves as they are.
fn lasting_metadata(r: &Resource) -> &'static [&'static str] {
    match (r.group.as_str(), r.plural.as_str()) {
        ("", "pods") => &["ownerReferences"],
        ("apps", "deployments") => &["labels"],
        ("admissionregistration.k8s.io" | "apiregistration.k8s.io" | "flowcontrol.apiserver.k8s.io", _)
        | ("networking.k8s.io", "servicecidrs")
        | ("resource.k8s.io", "resourceclaims")
        | ("storage.k8s.io", "volumeattachments") => {
            &["labels", "annotations", "finalizers", "ownerReferences"]
        }
        _ => &[],
    }
}

/// Only the status is the client's, and of a built-in kind most of the metadata.
fn status_part(call: &Call, live: &Value, new: &mut Value) {
    let r = call.resource();
    let entries = r.custom.then(|| tree::meta(new).remove("managedFields"));
    restore(new, live, if r.custom { &["status"] } else { &["status", "metadata"] });
    let meta = tree::meta(new);
    match entries {
        Some(entries) => tree::put(meta, "managedFields", entries),
        None => {
            for field in lasting_metadata(r) {
                tree::put(meta, field, tree::at(live, &["metadata", *field]).cloned());
            }
        }
    }
    if r.is("", "persistentvolumes") {
        phase_time(live, new, &call.core.clock.stamp());
    } else if r.is("", "pods") {
        pods::keep_status(live, new);
    } else if r.is(devices::GROUP, "resourceclaims") {
        devices::drop_freed(live, new);
    } else if r.is("certificates.k8s.io", "certificatesigningrequests") {
        kinds::signing::keep_decisions(live, new);
        kinds::signing::stamp(live, new, &call.core.clock.stamp());
    }
}

/// A webhook that sees a write of the status changes nothing but status and metadata.
pub fn after_webhooks(call: &Call, changed: bool, live: &Value, new: &mut Value) {
    if changed && call.subresource == "status" {
        restore(new, live, &["status", "metadata"]);
    }
}

/// The time of a volume's phase: that of its change, unless the client names another one.
fn phase_time(live: &Value, new: &mut Value, now: &str) {
    const TIME: &str = "lastPhaseTransitionTime";
    let phase = |v: &Value| tree::at(v, &["status", "phase"]).cloned();
    let time = |v: &Value| tree::at(v, &["status", TIME]).filter(|time| !time.is_null()).cloned();
    let (before, given) = (time(live), time(new));
    let moved = phase(live) != phase(new);
    let time = match given {
        None if !moved => before,
        given if moved && (given.is_none() || given == before) => Some(now.into()),
        given => given,
    };
    tree::put(tree::child(new, "status"), TIME, time);
}

/// Combines the part of an object that the endpoint may change with the rest of the live object.
pub fn compose(call: &Call, old: &Obj, live: &Value, mut new: Value, applied: bool) -> ApiResult<Value> {
    let r = call.resource();
    same_object(call, live, &new)?;
    let old_meta = tree::at(live, &["metadata"]);
    check_unmarked(call, old_meta, &new)?;
    {
        let meta = tree::meta(&mut new);
        meta.insert("name".into(), call.name.as_str().into());
        for key in SERVER_FIELDS {
            tree::put(meta, key, old_meta.and_then(|m| m.get(key)).cloned());
        }
        meta.insert("resourceVersion".into(), old.rv.to_string().into());
    }
    if !applied {
        managed::inherit(live, &mut new, &call.subresource);
    }
    let old_part = |key: &str| live.get(key).cloned();
    match call.subresource.as_str() {
        "status" => status_part(call, live, &mut new),
        "finalize" => {
            let finalizers = tree::at(&new, &["spec", "finalizers"]).cloned().unwrap_or_else(|| json!([]));
            new = live.clone();
            tree::child(&mut new, "spec").insert("finalizers".into(), finalizers);
        }
        "approval" => {
            // An approver says so in the conditions; the certificate is the signer's.
            let conditions = tree::at(&new, &["status", "conditions"]).cloned();
            let entries = tree::at(&new, &["metadata", "managedFields"]).cloned();
            new = live.clone();
            tree::put(tree::meta(&mut new), "managedFields", entries);
            tree::put(tree::child(&mut new, "status"), "conditions", conditions);
            kinds::signing::stamp(live, &mut new, &call.core.clock.stamp());
        }
        "resize" | "ephemeralcontainers" if r.is("", "pods") => {
            // Nothing else of the pod is this endpoint's.
            let entries = tree::at(&new, &["metadata", "managedFields"]).cloned();
            new = pods::through(&call.subresource, live, &new);
            tree::put(tree::meta(&mut new), "managedFields", entries);
        }
        _ => {
            if r.status {
                tree::put(tree::object(&mut new), "status", old_part("status"));
            }
            // What a certificate is asked for stays what its approver has seen.
            if r.is("", "namespaces") || r.is("certificates.k8s.io", "certificatesigningrequests") {
                tree::put(tree::object(&mut new), "spec", old_part("spec"));
            }
        }
    }
    if r.is("", "pods") && call.subresource.is_empty() {
        pods::admit_change(live, &mut new);
    }
    if r.is(devices::GROUP, "resourceslices") {
        devices::stamp(&mut new, &call.core.clock.stamp());
    }
    match call.subresource.as_str() {
        _ if r.custom => {}
        "status" => kinds::apply_status(r, &mut new),
        _ => kinds::apply(r, &mut new),
    }
    if r.is("apps", "daemonsets") {
        kinds::template_generation(Some(live), &mut new);
    }
    if r.is("", "services") && call.subresource.is_empty() {
        services::settle(&call.core, Some(live), &mut new)?;
    }
    Ok(new)
}

/// True when a change is one of what the object asks for, which its generation counts.
fn counts(r: &Resource, live: &Value, new: &Value, subresource: &str) -> bool {
    let labels = |v: &Value| tree::at(v, &["metadata", "labels"]).cloned();
    let notes = |v: &Value| tree::at(v, &["metadata", "annotations"]).cloned();
    match (r.group.as_str(), r.plural.as_str()) {
        ("scheduling.k8s.io", "priorityclasses") => false,
        // A new one has no number.
        ("storage.k8s.io", "csidrivers") => live.get("spec") != new.get("spec"),
        // Its ReplicaSets have its annotations.
        ("apps", "deployments") => {
            differs(r, live, new) || (subresource != "status" && notes(live) != notes(new))
        }
        ("discovery.k8s.io", "endpointslices") => differs(r, live, new) || labels(live) != labels(new),
        _ => (r.custom || r.generation) && differs(r, live, new),
    }
}

fn differs(r: &Resource, live: &Value, new: &Value) -> bool {
    // Custom resources without /status count every field.
    let counted = |key: &str| match key {
        "metadata" | "apiVersion" | "kind" => false,
        "status" => r.custom && !r.status,
        _ => true,
    };
    let empty = Map::new();
    let (a, b) = (live.as_object().unwrap_or(&empty), new.as_object().unwrap_or(&empty));
    a.iter().any(|(k, v)| counted(k) && b.get(k) != Some(v))
        || b.keys().any(|k| counted(k) && !a.contains_key(k))
}

/// Applies the rules of an update to what was composed: generation, ownership, validation.
pub fn finish(
    call: &Call,
    old: &Arc<Obj>,
    live: &mut Value,
    mut new: Value,
    applied: bool,
) -> ApiResult<Outcome> {
    let r = call.resource();
    let name = call.name.as_str();
    if r.is("apiextensions.k8s.io", "customresourcedefinitions") && call.subresource.is_empty() {
        definitions::admit(Some(&*live), &mut new, &crd::all(&call.core), &call.core.clock.stamp())?;
    }
    if counts(r, live, &new, &call.subresource) {
        let generation = tree::number(live, &["metadata", "generation"]) + 1;
        tree::meta(&mut new).insert("generation".into(), generation.into());
        if is_policy(r) {
            let status = typing::status(&call.core, &new);
            tree::object(&mut new).insert("status".into(), status);
        }
    }
    if !applied && managed::is_tracked(&call.core.untracked, &new) {
        let now = call.core.clock.stamp();
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
        managed::without(live, |bare| managed::track_update(&r.schema, Some(bare), &mut new, &w));
    }
    let live = &*live;
    if managed::same_but_times(&new, live) {
        return Ok(Outcome::Same(old.clone()));
    }
    let deleting = tree::at(live, &["metadata", "deletionTimestamp"]).is_some();
    if deleting {
        let before = tree::list(live, &["metadata", "finalizers"]);
        let after = tree::list(&new, &["metadata", "finalizers"]);
        let added: BTreeSet<String> =
            after.iter().filter(|f| !before.contains(f)).map(Value::to_string).collect();
        if !added.is_empty() {
            let added = Vec::from_iter(added).join(", ");
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{added}}}"
            );
            return Err(ApiError::invalid(
                &r.group,
                &r.kind,
                name,
                vec![Cause::forbidden("metadata.finalizers", &why)],
            ));
        }
    }
    rbac::check_write(&call.core, &call.core.auth, &call.user, r, Some(live), &new)?;
    let refused = admission::devices::unauthorized(call, Some(live), &new);
    check_object(r, Some(live), &new, &call.subresource, refused)?;
    if r.is("", "pods") && call.subresource == "resize" {
        resized::check(call, live, &new)?;
    }
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
