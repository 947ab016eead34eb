//! DELETE: its options, of one object and of a collection.
//!
//! Inputs: a resolved call and DeleteOptions. Absent on purpose: the rules of kinds (see `removal`).

use crate::verbs::read::{self, Filter};
use crate::verbs::removal::{Done, Options, delete_object, seconds};
use crate::verbs::{body, crd, namespaces, versions};
use axum::body::Body;
use fleet_apiserver_admission::access::node;
use fleet_apiserver_admission::call::Call;
use fleet_apiserver_admission::{self as admission, Operation};
use fleet_apiserver_ground::store::Range;
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::error::{ApiError, ApiResult, Cause, success};
use fleet_apiserver_schema::http_io;
use fleet_apiserver_schema::resource::Resource;
use http::{Response, StatusCode};
use serde_json::{Value, json};

/// What a body says; the parameters of the URL are not read then.
fn sent_options(call: &Call, sent: &[u8], causes: &mut Vec<Cause>) -> ApiResult<(Options, Option<bool>)> {
    let (v, _) = body::decode_body(call, sent)?;
    if !v.is_object() && !v.is_null() {
        return Err(ApiError::bad_request("the body is not a DeleteOptions object"));
    }
    let kind = tree::text(&v, &["kind"]);
    if !matches!(kind, "" | "DeleteOptions") {
        let version = tree::text(&v, &["apiVersion"]);
        return Err(ApiError::bad_request(format!(
            "no kind {kind:?} is registered for version {version:?} in scheme \"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27\""
        )));
    }
    let text = |path: &[&str]| tree::text(&v, path).to_string();
    let dry_run: Vec<&str> =
        tree::list(&v, &["dryRun"]).iter().map(|v| v.as_str().unwrap_or_default()).collect();
    causes.extend(body::unknown_dry_run(&dry_run));
    let o = Options {
        grace: seconds(&v, "gracePeriodSeconds")?,
        propagation: text(&["propagationPolicy"]),
        uid: text(&["preconditions", "uid"]),
        version: text(&["preconditions", "resourceVersion"]),
        dry_run: !dry_run.is_empty(),
        ..Options::default()
    };
    Ok((o, v.get("orphanDependents").and_then(Value::as_bool)))
}

fn options(call: &Call, sent: &[u8]) -> ApiResult<Options> {
    let p = &call.params;
    let mut causes = Vec::new();
    let (mut o, orphan) = if sent.is_empty() {
        causes.extend(body::dry_run_cause(call));
        let o = Options {
            grace: p.number("gracePeriodSeconds")?,
            propagation: p.get("propagationPolicy").to_string(),
            dry_run: call.dry_run(),
            ..Options::default()
        };
        let orphan = p.get("orphanDependents");
        (o, (!orphan.is_empty()).then_some(orphan == "true"))
    } else {
        sent_options(call, sent, &mut causes)?
    };
    o.cascades = orphan == Some(false);
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
            "Unsupported value: {:?}: supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
            o.propagation
        );
        causes.push(Cause::new("FieldValueNotSupported", "propagationPolicy", message));
    }
    if causes.is_empty() { Ok(o) } else { Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", causes)) }
}

/// Webhooks are told the options of a body as those of the URL.
fn tell(call: &mut Call, o: &Options) {
    if o.dry_run {
        call.params.put("dryRun", "All");
    }
    if let Some(seconds) = o.grace {
        call.params.put("gracePeriodSeconds", &seconds.to_string());
    }
    if !o.propagation.is_empty() {
        call.params.put("propagationPolicy", &o.propagation);
    }
}

/// Asks webhooks and policies whether an object may go.
async fn admit(call: &mut Call, name: &str) -> ApiResult<()> {
    if node::name_of(&call.user).is_some()
        && let Some(old) = call.core.store.read(&call.entry.table, &call.key(name)).await?
    {
        admission::nodes::restrict(call, name, Some(&old.value()), None)?;
    }
    if call.core.admission.is_idle() {
        return Ok(());
    }
    let found = call.core.store.read(&call.entry.table, &call.key(name)).await?;
    let found = found.ok_or_else(|| ApiError::not_found(call.resource(), name))?;
    let old = versions::live(call, &found).await?;
    admission::mutate(call, Operation::Delete, name, Some(&old), None).await?;
    admission::validate(call, Operation::Delete, name, Some(&old), None).await
}

/// Kinds that answer with the object that is gone, and not with a status.
fn shows_what_is_gone(r: &Resource) -> bool {
    match (r.group.as_str(), r.plural.as_str()) {
        ("", kind) => matches!(
            kind,
            "persistentvolumeclaims"
                | "persistentvolumes"
                | "pods"
                | "podtemplates"
                | "resourcequotas"
                | "serviceaccounts"
                | "services"
        ),
        ("storage.k8s.io" | "resource.k8s.io", _) => !r.custom,
        _ => false,
    }
}

/// DELETE of one object.
pub async fn delete(call: &mut Call, body: &[u8]) -> ApiResult<Response<Body>> {
    if !call.subresource.is_empty() {
        return Err(ApiError::method_not_allowed());
    }
    let o = options(call, body)?;
    tell(call, &o);
    let entry = call.entry.clone();
    let r = &*entry.resource;
    if r.is("", "namespaces") && namespaces::PERMANENT.contains(&call.name.as_str()) {
        return Err(ApiError::forbidden(r, &call.name, "this namespace may not be deleted"));
    }
    let name = call.name.clone();
    admit(call, &name).await?;
    if r.is("batch", "jobs") && o.propagation.is_empty() {
        let text = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove \
            them or set propagationPolicy=Orphan to suppress this warning";
        call.warnings.push(text.into());
    }
    let done = delete_object(&call.core, r, &entry.table, &call.key(&name), &o).await?;
    if r.is("apiextensions.k8s.io", "customresourcedefinitions") && !o.dry_run {
        crd::finish_delete(&call.core, &call.name).await?;
    }
    match done {
        Done::Pending(obj) => {
            // Of all that stay for a while, only these are told apart.
            let status = if o.cascades { StatusCode::ACCEPTED } else { StatusCode::OK };
            read::object_response(call, status, &obj)
        }
        Done::Gone(obj) if r.is("", "pods") && !obj.deleting() => {
            // Shown as marked, though it was never stored so.
            let generation = obj.number(&["metadata", "generation"]) + 1;
            let mut value = obj.full();
            let meta = tree::meta(&mut value);
            meta.insert("deletionTimestamp".into(), call.core.clock.stamp().into());
            meta.insert("deletionGracePeriodSeconds".into(), 0.into());
            meta.insert("generation".into(), generation.into());
            read::value_in_form(call, StatusCode::OK, value)
        }
        Done::Gone(obj) if shows_what_is_gone(r) => read::object_response(call, StatusCode::OK, &obj),
        Done::Gone(obj) => {
            let status = success(r, &call.name, &obj.meta_text("uid"));
            Ok(http_io::value_response(StatusCode::OK, &status))
        }
    }
}

/// DELETE of a collection.
pub async fn collection(call: &mut Call, body: &[u8]) -> ApiResult<Response<Body>> {
    let o = options(call, body)?;
    tell(call, &o);
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
        if r.is("", "namespaces") && namespaces::PERMANENT.contains(&&*obj.key) {
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
