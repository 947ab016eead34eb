//! What every answer has beside what was asked for: headers of the audit and of priority and fairness, and the form
//! that people read.
//!
//! Inputs: answers. The server limits requests by rules of its own (see `shares`); the headers name the objects that a
//! real server would judge by.

use axum::body::Body;
use fleet_apiserver_admission::access::user::{MASTERS, User};
use fleet_apiserver_admission::call::Core;
use http::{HeaderValue, Response, header};
use serde_json::Value;

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

/// The same answer with line breaks and indents, if it is JSON.
pub async fn indented(response: Response<Body>) -> Response<Body> {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("application/json") {
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
