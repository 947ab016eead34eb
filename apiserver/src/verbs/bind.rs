//! POST of a Binding: a pod gets its node.
//!
//! Inputs: a resolved call and a body. Absent on purpose: which node is right; that is the scheduler's.

use crate::verbs::body::decode_body;
use crate::verbs::read;
use axum::body::Body;
use fleet_apiserver_admission::call::Call;
use fleet_apiserver_admission::{self as admission, Operation};
use fleet_apiserver_ground::store::{Obj, Refused, Write};
use fleet_apiserver_ground::tree;
use fleet_apiserver_kinds::pods;
use fleet_apiserver_schema::error::{ApiError, ApiResult, success};
use fleet_apiserver_schema::http_io;
use fleet_apiserver_schema::resource::Resource;
use http::{Response, StatusCode};
use serde_json::{Value, json};

/// The object of an action names the pod of the URL.
pub fn check_named(call: &Call, sent: &Value, kind: &str) -> ApiResult<()> {
    let namespace = tree::meta_text(sent, "namespace");
    if !namespace.is_empty() && namespace != call.namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if tree::meta_text(sent, "name") != call.name {
        return Err(ApiError::bad_request(format!("name in URL does not match name in {kind} object")));
    }
    Ok(())
}

/// The conflict of an action that means another object than the one that is there.
pub fn stale(call: &Call, what: &str, wanted: &str, found: &str) -> ApiError {
    let r = call.resource();
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{}/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}",
        r.plural,
        call.key(&call.name)
    );
    ApiError::conflict(r, &call.name, &why)
}

/// The node that a Binding names.
fn target(call: &Call, binding: &Value) -> ApiResult<String> {
    check_named(call, binding, "Binding")?;
    let node = tree::text(binding, &["target", "name"]).to_string();
    let kind = tree::text(binding, &["target", "kind"]);
    let mut wrong = Vec::new();
    if !matches!(kind, "" | "Node") {
        wrong.push(format!(
            "target.kind: Unsupported value: {kind:?}: supported values: \"Node\", \"<empty>\""
        ));
    }
    if node.is_empty() {
        wrong.push("target.name: Required value".to_string());
    }
    // A real server says so in plain words only, and as a failure of its own.
    match wrong.as_slice() {
        [] => Ok(node),
        [one] => Err(ApiError::internal("", one.as_str())),
        all => Err(ApiError::internal("", format!("[{}]", all.join(", ")))),
    }
}

/// Lets webhooks change what is to be done to a pod. They see it in its own kind, and in the namespace of the pod.
pub async fn mutate(call: &mut Call, sent: &mut Value, api_version: &str, kind: &str) -> ApiResult<()> {
    if call.core.admission.is_idle() || !sent.is_object() {
        return Ok(());
    }
    let map = tree::object(sent);
    map.insert("apiVersion".into(), api_version.into());
    map.insert("kind".into(), kind.into());
    let meta = tree::meta(sent);
    if meta.get("namespace").and_then(Value::as_str).unwrap_or_default().is_empty() {
        meta.insert("namespace".into(), call.namespace.as_str().into());
    }
    let name = call.name.clone();
    admission::mutate(call, Operation::Create, &name, None, Some(sent)).await?;
    Ok(())
}

/// Asks webhooks and policies about what is to be done to a pod.
pub async fn validate(call: &mut Call, sent: &Value) -> ApiResult<()> {
    if call.core.admission.is_idle() {
        return Ok(());
    }
    let name = call.name.clone();
    admission::validate(call, Operation::Create, &name, None, Some(sent)).await
}

/// Binds the pod of the call.
pub async fn bind(call: &mut Call, body: &[u8]) -> ApiResult<Response<Body>> {
    let (mut binding, _) = decode_body(call, body)?;
    mutate(call, &mut binding, "v1", "Binding").await?;
    let node = target(call, &binding)?;
    validate(call, &binding).await?;
    let wanted = tree::meta_text(&binding, "uid").to_string();
    let version = tree::meta_text(&binding, "resourceVersion").to_string();
    loop {
        let old = read::current(call).await?;
        let uid = old.meta_text("uid");
        if !wanted.is_empty() && wanted != uid {
            return Err(stale(call, "UID", &wanted, &uid));
        }
        if !version.is_empty() && version != old.rv.to_string() {
            return Err(stale(call, "ResourceVersion", &version, &old.rv.to_string()));
        }
        let assigned = old.text(&["spec", "nodeName"]);
        let conflict = |why: String| {
            let mut pods = Resource { plural: "pods/binding".into(), ..Resource::default() };
            pods.group.clear();
            ApiError::conflict(&pods, &call.name, &why)
        };
        if old.deleting() {
            return Err(conflict(format!(
                "pod {} is being deleted, cannot be assigned to a host",
                call.name
            )));
        }
        if !assigned.is_empty() {
            return Err(conflict(format!("pod {} is already assigned to node \"{assigned}\"", call.name)));
        }
        if !old.list(&["spec", "schedulingGates"]).is_empty() {
            return Err(conflict(format!("pod {} has non-empty .spec.schedulingGates", call.name)));
        }
        let mut new = old.full();
        tree::child(&mut new, "spec").insert("nodeName".into(), node.as_str().into());
        // What the binding says of itself becomes the pod's.
        for key in ["annotations", "labels"] {
            if let Some(Value::Object(extra)) =
                tree::at(&binding, &["metadata", key]).filter(|m| **m != json!({}))
            {
                let known = tree::object(tree::meta(&mut new).entry(key).or_insert_with(|| json!({})));
                known.extend(extra.clone());
            }
        }
        if tree::text(&binding, &["target", "kind"]) == "Node" {
            pods::place(&call.core, &node, &mut new);
        }
        // No node is kept free for a pod that has one.
        tree::child(&mut new, "status").remove("nominatedNodeName");
        set_condition(&mut new, json!({"type": "PodScheduled", "status": "True"}), &call.core.clock.stamp());
        if call.dry_run() {
            return Ok(bound(call, &old));
        }
        let write = Write::Update { table: call.entry.table.clone(), prev: old.clone(), value: new };
        match call.core.store.commit(vec![write]) {
            Ok(objs) => {
                call.core.store.wait(objs[0].rv).await?;
                return Ok(bound(call, &objs[0]));
            }
            Err(Refused::Changed(_)) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Sets a condition of a pod, in the place where it is. Its time is that of the last change of its status.
pub fn set_condition(pod: &mut Value, mut condition: Value, now: &str) {
    let conditions = tree::child(pod, "status").entry("conditions").or_insert_with(|| json!([]));
    let Value::Array(list) = conditions else { return };
    let field = |c: &Value, key: &str| tree::text(c, &[key]).to_string();
    let place = list.iter().position(|c| field(c, "type") == field(&condition, "type"));
    let known = place.and_then(|i| list.get(i)).filter(|c| field(c, "status") == field(&condition, "status"));
    let since = known.map(|c| field(c, "lastTransitionTime")).filter(|time| !time.is_empty());
    let fields = tree::object(&mut condition);
    fields.insert("lastProbeTime".into(), Value::Null);
    fields.insert("lastTransitionTime".into(), since.unwrap_or_else(|| now.to_string()).into());
    match place {
        Some(i) => list[i] = condition,
        None => list.push(condition),
    }
}

/// The answer of an action that worked.
pub fn bound(call: &Call, obj: &Obj) -> Response<Body> {
    let mut status = success(call.resource(), &call.name, &obj.meta_text("uid"));
    if let Value::Object(map) = &mut status {
        map.insert("code".into(), 201.into());
        map.remove("details");
    }
    http_io::value_response(StatusCode::CREATED, &status)
}
