//! What every answer has beside what was asked for: headers of the audit and of priority and fairness, and the form
//! that people read.
//!
//! Inputs: answers. The server limits requests by rules of its own (see `shares`); the headers name the objects that a
//! real server would judge by.

use axum::body::Body;
use flate2::Compression;
use flate2::write::GzEncoder;
use fleet_apiserver_admission::access::user::{MASTERS, User};
use fleet_apiserver_admission::call::Core;
use fleet_apiserver_openapi::objects;
use fleet_apiserver_schema::error::{ApiError, ApiResult};
use fleet_apiserver_schema::http_io;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::Value;
use std::io::Write;

/// The schema and the level of a caller.
pub struct Flow {
    schema: Option<HeaderValue>,
    level: Option<HeaderValue>,
}

impl Flow {
    /// Looks the objects up, if they are there.
    pub fn of(core: &Core, user: &User) -> Flow {
        let within = |group: &str| user.groups.iter().any(|g| g == group);
        let (schema, level) = if within(MASTERS) {
            ("exempt", "exempt")
        } else if within("system:nodes") {
            ("system-nodes", "system")
        } else if within("system:serviceaccounts:kube-system") {
            ("kube-system-service-accounts", "workload-high")
        } else if within("system:serviceaccounts") {
            ("service-accounts", "workload-low")
        } else {
            ("global-default", "global-default")
        };
        let uid = |plural: &str, name: &str| {
            let found = core.store.table(&format!("flowcontrol.apiserver.k8s.io/{plural}")).get(name)?;
            HeaderValue::from_str(&found.meta_text("uid")).ok()
        };
        Flow { schema: uid("flowschemas", schema), level: uid("prioritylevelconfigurations", level) }
    }

    /// Names them in an answer.
    pub fn mark(self, mut response: Response<Body>) -> Response<Body> {
        let headers = response.headers_mut();
        if let (Some(schema), Some(level)) = (self.schema, self.level) {
            headers.insert("x-kubernetes-pf-flowschema-uid", schema);
            headers.insert("x-kubernetes-pf-prioritylevel-uid", level);
        }
        response
    }
}

/// Gives an answer its number, and says that nobody keeps it.
pub fn complete(response: &mut Response<Body>) {
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&uuid::Uuid::new_v4().to_string()) {
        headers.insert("audit-id", id);
    }
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    }
}

/// An answer whose type no browser may guess.
pub fn unsniffed(mut response: Response<Body>) -> Response<Body> {
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

/// The same answer with line breaks and indents, if it is JSON and there as a whole.
pub async fn indented(response: Response<Body>) -> Response<Body> {
    let headers = response.headers();
    let kind = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let whole = http_body::Body::size_hint(response.body()).exact().is_some();
    if !kind.starts_with("application/json") || !whole || headers.contains_key(header::CONTENT_ENCODING) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(bytes) = axum::body::to_bytes(body, usize::MAX).await else {
        return Response::from_parts(parts, Body::empty());
    };
    let value: Option<Value> = serde_json::from_slice(&bytes).ok();
    let pretty = value.and_then(|value| serde_json::to_vec_pretty(&value).ok());
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, pretty.map_or_else(|| Body::from(bytes), Body::from))
}

/// Answers from this size on are packed for who can unpack them, as a real server does.
const PACKED_FROM: u64 = 128 * 1024;

/// True for a client that can unpack an answer.
pub fn takes_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|v| v.to_str().ok()).unwrap_or_default();
    accepted.split(',').any(|coding| coding.split(';').next().unwrap_or_default().trim() == "gzip")
}

/// The same answer packed, if it is large and there as a whole.
pub async fn packed(response: Response<Body>) -> Response<Body> {
    let size = http_body::Body::size_hint(response.body()).exact();
    let plain = !response.headers().contains_key(header::CONTENT_ENCODING);
    if response.status() != StatusCode::OK || !plain || size.is_none_or(|size| size < PACKED_FROM) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(bytes) = axum::body::to_bytes(body, usize::MAX).await else {
        return Response::from_parts(parts, Body::empty());
    };
    let work = {
        let bytes = bytes.clone();
        // The fastest level: the network is faster than a better one.
        move || {
            let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 8), Compression::fast());
            encoder.write_all(&bytes).and_then(|()| encoder.finish()).ok()
        }
    };
    let Ok(Some(small)) = tokio::task::spawn_blocking(work).await else {
        return Response::from_parts(parts, Body::from(bytes));
    };
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    Response::from_parts(parts, Body::from(small))
}

/// The same answer as protobuf.
///
/// # Errors
/// 406 for what has no message, such as a custom resource.
pub async fn as_protobuf(response: Response<Body>) -> ApiResult<Response<Body>> {
    let (mut parts, body) = response.into_parts();
    let bytes =
        axum::body::to_bytes(body, usize::MAX).await.map_err(|e| ApiError::internal("", e.to_string()))?;
    let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let encoded = objects::encode(&value).ok_or_else(ApiError::not_acceptable)?;
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(http_io::PROTOBUF));
    Ok(Response::from_parts(parts, Body::from(encoded)))
}
