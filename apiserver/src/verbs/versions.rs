//! Custom resources whose versions a webhook converts: what is read, written and watched comes in the version that was
//! asked for, and is stored in the version that the definition says.
//!
//! Inputs: resolved calls, and answers with objects in the version they are stored in. Absent on purpose: how the
//! webhook is called (see `conversion`), and a scale whose paths differ between versions.

use crate::verbs::read;
use axum::body::Body;
use bytes::Bytes;
use fleet_apiserver_admission::call::Call;
use fleet_apiserver_ground::store::Obj;
use fleet_apiserver_ground::tree;
use fleet_apiserver_printers as printers;
use fleet_apiserver_schema::error::{ApiError, ApiResult};
use fleet_apiserver_schema::http_io::{self, Form};
use fleet_apiserver_schema::registry::ServedResource;
use fleet_apiserver_schema::resource::Resource;
use futures::StreamExt;
use http::{Response, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;

/// True for a resource whose versions a webhook converts.
pub fn differ(r: &Resource) -> bool {
    r.webhook.is_some()
}

/// A stored object in the version of the request.
pub async fn live(call: &Call, stored: &Obj) -> ApiResult<Value> {
    let mut value = stored.full();
    let r = call.resource();
    if differ(r) {
        call.core.conversions.convert(&call.core, r, &r.api_version(), vec![&mut value]).await?;
    }
    Ok(value)
}

/// An object in the version it is stored in.
pub async fn to_store(call: &Call, mut value: Value) -> ApiResult<Value> {
    let r = call.resource();
    if differ(r) {
        let registry = call.core.registry.load_full();
        let stored = registry.find(&r.stored_as, &r.plural).map_or(&call.entry, |stored| stored);
        let r = &stored.resource;
        call.core.conversions.convert(&call.core, r, &r.stored_as, vec![&mut value]).await?;
    }
    Ok(value)
}

/// An answer with its objects in the version and the form of the request.
pub async fn present(call: &Call, form: Form, response: Response<Body>) -> ApiResult<Response<Body>> {
    let status = response.status();
    if !status.is_success() {
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let bytes =
        axum::body::to_bytes(body, usize::MAX).await.map_err(|e| ApiError::internal("", e.to_string()))?;
    let r = call.resource();
    let mut value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let kind = tree::text(&value, &["kind"]).to_string();
    let wanted = r.api_version();
    if kind == r.list_kind {
        let items = value.get_mut("items").and_then(Value::as_array_mut);
        let items: Vec<&mut Value> = items.into_iter().flatten().collect();
        call.core.conversions.convert(&call.core, r, &wanted, items).await?;
        return list(call, form, value);
    }
    if kind == r.kind {
        call.core.conversions.convert(&call.core, r, &wanted, vec![&mut value]).await?;
        return one(call, form, status, value);
    }
    Ok(Response::from_parts(parts, Body::from(bytes)))
}

fn one(call: &Call, form: Form, status: StatusCode, value: Value) -> ApiResult<Response<Body>> {
    match form {
        Form::Table => {
            let include = printers::Include::parse(call.params.get("includeObject"))?;
            let rows = vec![printers::row(call.resource(), &value, include, call.core.clock.now())];
            let meta = json!({"resourceVersion": tree::meta_text(&value, "resourceVersion")});
            Ok(http_io::value_response(status, &printers::table(call.resource(), rows, true, meta)))
        }
        Form::Partial => Ok(http_io::value_response(status, &printers::partial(&value))),
        Form::PartialList => Err(ApiError::not_acceptable()),
        Form::Yaml => read::yaml(status, &value),
        _ => Ok(http_io::value_response(status, &value)),
    }
}

fn list(call: &Call, form: Form, value: Value) -> ApiResult<Response<Body>> {
    let r = call.resource();
    let meta = value.get("metadata").cloned().unwrap_or_default();
    let items = || tree::list(&value, &["items"]).iter();
    match form {
        Form::Table => {
            let include = printers::Include::parse(call.params.get("includeObject"))?;
            let now = call.core.clock.now();
            let rows = items().map(|item| printers::row(r, item, include, now)).collect();
            Ok(http_io::value_response(StatusCode::OK, &printers::table(r, rows, true, meta)))
        }
        Form::PartialList => {
            let items: Vec<Value> = items().map(printers::partial).collect();
            let list = json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": meta,
                "items": items});
            Ok(http_io::value_response(StatusCode::OK, &list))
        }
        Form::Partial => Err(ApiError::not_acceptable()),
        Form::Yaml => read::yaml(StatusCode::OK, &value),
        _ => Ok(http_io::value_response(StatusCode::OK, &value)),
    }
}

/// A watch whose events have their objects in the version and the form of the request.
pub fn follow(call: Call, form: Form, response: Response<Body>) -> Response<Body> {
    let (parts, body) = response.into_parts();
    let watch = Arc::new(Watch { call, form });
    let stream = body.into_data_stream().then(move |frame| {
        let watch = watch.clone();
        async move {
            let Ok(frame) = frame else { return Ok::<Bytes, std::convert::Infallible>(Bytes::new()) };
            let mut out = Vec::with_capacity(frame.len());
            // A frame has whole events, one in each line.
            for line in frame.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                out.extend_from_slice(watch.event(line).await.to_string().as_bytes());
                out.push(b'\n');
            }
            Ok(out.into())
        }
    });
    Response::from_parts(parts, Body::from_stream(stream))
}

struct Watch {
    call: Call,
    form: Form,
}

impl Watch {
    async fn event(&self, line: &[u8]) -> Value {
        let mut event: Value = serde_json::from_slice(line).unwrap_or_default();
        let Some(object) = event.get_mut("object") else { return event };
        let r = self.call.resource();
        if tree::text(object, &["kind"]) != r.kind {
            return event;
        }
        let bookmark = object.get("spec").is_none() && tree::meta_text(object, "uid").is_empty();
        let wanted = r.api_version();
        if bookmark {
            tree::object(object).insert("apiVersion".into(), wanted.into());
        } else if let Err(why) =
            self.call.core.conversions.convert(&self.call.core, r, &wanted, vec![object]).await
        {
            return json!({"type": "ERROR", "object": why.to_value()});
        }
        match self.form {
            Form::Partial if bookmark => {
                object["kind"] = json!("PartialObjectMetadata");
                object["apiVersion"] = json!("meta.k8s.io/v1");
            }
            Form::Partial => *object = printers::partial(object),
            Form::Table => {
                let include = printers::Include::parse(self.call.params.get("includeObject"));
                let meta = json!({"resourceVersion": tree::meta_text(object, "resourceVersion")});
                let row = match include {
                    Ok(include) if !bookmark => printers::row(r, object, include, self.call.core.clock.now()),
                    _ => json!({"cells": [], "object": object}),
                };
                *object = printers::table(r, vec![row], true, meta);
            }
            _ => {}
        }
        event
    }
}

/// The call for the objects as they are stored, which are shown afterwards in the form of the request.
pub fn plain(call: &mut Call) -> Form {
    std::mem::replace(&mut call.form, Form::Json)
}

/// A copy of a call for what outlives it.
pub fn copy(call: &Call) -> Call {
    Call {
        core: call.core.clone(),
        entry: ServedResource { resource: call.entry.resource.clone(), table: call.entry.table.clone() },
        namespace: call.namespace.clone(),
        name: call.name.clone(),
        subresource: call.subresource.clone(),
        params: call.params.clone(),
        form: call.form,
        user: call.user.clone(),
        headers: call.headers.clone(),
        warnings: Vec::new(),
    }
}
