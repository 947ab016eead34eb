//! Failure answers: every error a client can see is one Kubernetes `Status` body.
//!
//! Inputs: what went wrong, named by resource. Absent on purpose: logging and retries.

use crate::resource::Resource;
use bytes::Bytes;
pub use fleet_apiserver_cel::cause::Cause;
use fleet_apiserver_ground::published::Refused;
use http::{Response, StatusCode, header};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// A failed request, rendered as a `Status` object.
#[derive(Debug, Clone)]
pub struct ApiError(Box<Failure>);

#[derive(Debug, Clone, Default)]
struct Failure {
    code: u16,
    reason: &'static str,
    message: String,
    name: String,
    group: String,
    kind: String,
    uid: String,
    causes: Vec<Cause>,
    retry_after_s: u32,
    continue_token: String,
    details: bool,
    /// Of a webhook, instead of `reason` and the details above.
    given_reason: String,
    given_details: Option<Value>,
}

/// Shorthand used by every handler.
pub type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    fn of(code: u16, reason: &'static str, message: impl Into<String>) -> ApiError {
        ApiError(Box::new(Failure { code, reason, message: message.into(), ..Failure::default() }))
    }

    fn on(mut self, resource: &Resource, name: &str) -> ApiError {
        self.0.details = true;
        self.0.name = name.to_string();
        self.0.group = resource.group.clone();
        self.0.kind = resource.plural.clone();
        self
    }

    /// HTTP status code.
    pub fn code(&self) -> u16 {
        self.0.code
    }

    /// Status reason, empty when the real server sends none.
    pub fn reason(&self) -> &'static str {
        self.0.reason
    }

    /// Human message.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// 404 for an object.
    pub fn not_found(resource: &Resource, name: &str) -> ApiError {
        let message = format!("{} \"{name}\" not found", resource.qualified());
        ApiError::of(404, "NotFound", message).on(resource, name)
    }

    /// 404 for a path inside a served group.
    pub fn no_such_resource() -> ApiError {
        let mut e = ApiError::of(404, "NotFound", "the server could not find the requested resource");
        e.0.details = true;
        e
    }

    /// 409 for a second create.
    pub fn already_exists(resource: &Resource, name: &str) -> ApiError {
        let message = format!("{} \"{name}\" already exists", resource.qualified());
        ApiError::of(409, "AlreadyExists", message).on(resource, name)
    }

    /// 409 with the usual preamble.
    pub fn conflict(resource: &Resource, name: &str, why: &str) -> ApiError {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", resource.qualified());
        ApiError::of(409, "Conflict", message).on(resource, name)
    }

    /// 409 because the resourceVersion is not the current one.
    pub fn modified(resource: &Resource, name: &str) -> ApiError {
        ApiError::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 409 of server-side apply.
    pub fn apply_conflict(message: String, causes: Vec<Cause>) -> ApiError {
        let mut e = ApiError::of(409, "Conflict", message);
        e.0.causes = causes;
        e.0.details = true;
        e
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::of(400, "BadRequest", message)
    }

    /// 422 with its list of causes; `kind` is the Kind, not the plural.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: Vec<Cause>) -> ApiError {
        // Causes may say the same; the message says it once.
        let mut said = BTreeSet::new();
        let mut list: Vec<String> =
            causes
                .iter()
                .map(|c| {
                    if c.field.is_empty() { c.message.clone() } else { format!("{}: {}", c.field, c.message) }
                })
                .collect();
        list.retain(|text| said.insert(text.clone()));
        let text = if list.len() == 1 { list[0].clone() } else { format!("[{}]", list.join(", ")) };
        let qualified = if group.is_empty() { kind.to_string() } else { format!("{kind}.{group}") };
        let mut e = ApiError::of(422, "Invalid", format!("{qualified} \"{name}\" is invalid: {text}"));
        e.0.details = true;
        e.0.name = name.to_string();
        e.0.group = group.to_string();
        e.0.kind = kind.to_string();
        e.0.causes = causes;
        e
    }

    /// 422 with an empty details block, as for a failed JSON patch.
    pub fn unprocessable(message: impl Into<String>) -> ApiError {
        let mut e = ApiError::of(422, "Invalid", message);
        e.0.details = true;
        e
    }

    /// 403 on an object.
    pub fn forbidden(resource: &Resource, name: &str, why: &str) -> ApiError {
        let message = format!("{} \"{name}\" is forbidden: {why}", resource.qualified());
        ApiError::of(403, "Forbidden", message).on(resource, name)
    }

    /// 429: too many requests are under way.
    pub fn busy() -> ApiError {
        let message = "Too many requests, please try again later.";
        let mut e = ApiError::of(429, "TooManyRequests", message);
        e.0.retry_after_s = 1;
        e
    }

    /// 504: the time the client gave is over.
    pub fn timed_out() -> ApiError {
        ApiError::of(504, "Timeout", "Timeout: request did not complete within the allotted timeout")
    }

    /// A webhook's refusal, with the code and reason it gave.
    pub fn by_webhook(code: u16, reason: &str, message: String, details: Option<Value>) -> ApiError {
        let mut e = ApiError::of(code, "", message);
        e.0.given_reason = reason.to_string();
        e.0.given_details = details.filter(Value::is_object);
        e
    }

    /// A policy's refusal: 422 unless it names another reason.
    pub fn by_policy(resource: &Resource, name: &str, reason: &str, why: &str) -> ApiError {
        let message = format!("{} \"{name}\" is forbidden: {why}", resource.qualified());
        let (code, reason) = match reason {
            "Unauthorized" => (401, "Unauthorized"),
            "Forbidden" => (403, "Forbidden"),
            "RequestEntityTooLarge" => (413, "RequestEntityTooLarge"),
            _ => (422, "Invalid"),
        };
        let mut e = ApiError::of(code, reason, message).on(resource, name);
        e.0.causes.push(Cause::new("", "", why));
        e
    }

    /// 403: policies that change objects could not do so. The first one's reason and message are the answer's.
    pub fn by_mutations(resource: &Resource, name: &str, reason: &'static str, found: &[String]) -> ApiError {
        let first = found.first().cloned().unwrap_or_default();
        let mut e = ApiError::of(403, reason, first).on(resource, name);
        e.0.causes.extend(found.iter().map(|why| Cause::new("", "", why.as_str())));
        e
    }

    /// 403 by the authorizer, with its own full text.
    pub fn access_denied(group: &str, plural: &str, name: &str, message: String) -> ApiError {
        let mut e = ApiError::of(403, "Forbidden", message);
        e.0.details = true;
        e.0.group = group.to_string();
        e.0.kind = plural.to_string();
        e.0.name = name.to_string();
        e
    }

    /// 401.
    pub fn unauthorized() -> ApiError {
        ApiError::of(401, "Unauthorized", "Unauthorized")
    }

    /// 405.
    pub fn method_not_allowed() -> ApiError {
        let mut e = ApiError::of(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        );
        e.0.details = true;
        e
    }

    /// 405 of a kind for as long as something lasts.
    pub fn not_now(resource: &Resource, why: &str) -> ApiError {
        ApiError::of(405, "MethodNotAllowed", why).on(resource, "")
    }

    /// 406 listing what the server can answer.
    pub fn not_acceptable() -> ApiError {
        ApiError::of(
            406,
            "NotAcceptable",
            "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )
    }

    /// 415 listing what the server can read.
    pub fn unsupported_media(accepted: &str) -> ApiError {
        ApiError::of(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {accepted}"
            ),
        )
    }

    /// 415 of a patch of no known type.
    pub fn unknown_patch() -> ApiError {
        let mut e = ApiError::of(415, "UnsupportedMediaType", "415: Unsupported Media Type");
        e.0.details = true;
        e
    }

    /// 413.
    pub fn too_large(limit: usize) -> ApiError {
        ApiError::of(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {limit}"))
    }

    /// 413 of a JSON patch.
    pub fn too_many_operations(limit: usize, found: usize) -> ApiError {
        let why = format!("The allowed maximum operations in a JSON patch is {limit}, got {found}");
        ApiError::of(413, "RequestEntityTooLarge", format!("Request entity too large: {why}"))
    }

    /// 410, optionally with a token that continues inconsistently.
    pub fn expired(message: impl Into<String>, continue_token: String) -> ApiError {
        let mut e = ApiError::of(410, "Expired", message);
        e.0.continue_token = continue_token;
        e
    }

    /// 504 for a resourceVersion the server has not reached.
    pub fn future_version(want: u64, have: u64) -> ApiError {
        let mut e =
            ApiError::of(504, "Timeout", format!("Too large resource version: {want}, current: {have}"));
        e.0.details = true;
        e.0.retry_after_s = 1;
        e.0.causes.push(Cause::new("ResourceVersionTooLarge", "", "Too large resource version"));
        e
    }

    /// 429 with a cause.
    pub fn too_many_requests(message: impl Into<String>, cause: Cause) -> ApiError {
        let mut e = ApiError::of(429, "TooManyRequests", message);
        e.0.details = true;
        e.0.causes.push(cause);
        e
    }

    /// 500 with the reason of the real server (often none).
    pub fn internal(reason: &'static str, message: impl Into<String>) -> ApiError {
        ApiError::of(500, reason, message)
    }

    /// 503 while the server is going down.
    pub fn unavailable(message: impl Into<String>) -> ApiError {
        ApiError::of(503, "ServiceUnavailable", message)
    }

    /// Adds a cause.
    pub fn with_cause(mut self, cause: Cause) -> ApiError {
        self.0.details = true;
        self.0.causes.push(cause);
        self
    }

    /// The `Status` object.
    pub fn to_value(&self) -> Value {
        let f = &*self.0;
        let mut metadata = json!({});
        if !f.continue_token.is_empty() {
            metadata["continue"] = json!(f.continue_token);
        }
        let mut out = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure",
            "message": f.message, "code": f.code,
        });
        if !f.reason.is_empty() {
            out["reason"] = json!(f.reason);
        }
        if !f.given_reason.is_empty() {
            out["reason"] = json!(f.given_reason);
        }
        if let Some(details) = &f.given_details {
            out["details"] = details.clone();
        } else if f.details || f.retry_after_s > 0 {
            let mut details = json!({});
            for (key, value) in [("name", &f.name), ("group", &f.group), ("kind", &f.kind), ("uid", &f.uid)] {
                if !value.is_empty() {
                    details[key] = json!(value);
                }
            }
            if !f.causes.is_empty() {
                let causes: Vec<Value> = f.causes.iter().map(cause).collect();
                details["causes"] = Value::Array(causes);
            }
            if f.retry_after_s > 0 {
                details["retryAfterSeconds"] = json!(f.retry_after_s);
            }
            out["details"] = details;
        }
        out
    }

    /// The HTTP answer.
    pub fn response(&self) -> Response<axum::body::Body> {
        let body = Bytes::from(self.to_value().to_string());
        let mut response = Response::new(axum::body::Body::from(body));
        *response.status_mut() =
            StatusCode::from_u16(self.0.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
        if self.0.retry_after_s > 0 {
            headers.insert(header::RETRY_AFTER, http::HeaderValue::from(self.0.retry_after_s));
        }
        response
    }
}

impl From<Refused> for ApiError {
    fn from(refused: Refused) -> ApiError {
        match refused {
            Refused::Closed(why) => ApiError::unavailable(why),
            Refused::TooDeep(why) => ApiError::unprocessable(format!("{}: {why}", why.path)),
            Refused::NotStored(why) => ApiError::internal("InsufficientStorage", why),
            Refused::Exists(_) | Refused::Changed(_) | Refused::Barred => {
                ApiError::internal("InternalError", "lost a race")
            }
        }
    }
}

/// The success `Status` a delete or an action answers with.
pub fn success(resource: &Resource, name: &str, uid: &str) -> Value {
    let mut details = json!({"name": name, "kind": resource.plural});
    if !resource.group.is_empty() {
        details["group"] = json!(resource.group);
    }
    if !uid.is_empty() {
        details["uid"] = json!(uid);
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

/// A cause as the answer has it; fields without a value are left out.
fn cause(cause: &Cause) -> Value {
    let texts: [(&str, &str); 3] =
        [("reason", cause.reason), ("message", &cause.message), ("field", &cause.field)];
    texts
        .into_iter()
        .filter(|(_, text)| !text.is_empty())
        .map(|(key, text)| (key.to_owned(), text.into()))
        .collect::<Map<_, _>>()
        .into()
}
