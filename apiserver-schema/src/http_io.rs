//! Parses requests and writes answers: query parameters, media types, bodies.
//!
//! Inputs: HTTP parts. Absent on purpose: what the request means.

use crate::error::{ApiError, ApiResult};
use crate::validate::quoted;
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use percent_encoding::percent_decode_str;
use serde_json::Value;
use std::time::Duration;

/// Request bodies above this are refused.
pub const MAX_BODY: usize = 3 * 1024 * 1024;

/// Time a client has to send a body.
const BODY_WITHIN: Duration = Duration::from_secs(60);
/// The longest pause of a client within a body: a body that is not being sent would block a place for nothing.
pub const BODY_PAUSE: Duration = Duration::from_secs(10);

/// Decoded query parameters, in order.
#[derive(Debug, Default, Clone)]
pub struct Params(Vec<(String, String)>);

impl Params {
    /// Splits and decodes a query string.
    pub fn parse(query: Option<&str>) -> Params {
        let decode = |s: &str| percent_decode_str(&s.replace('+', " ")).decode_utf8_lossy().into_owned();
        let query = query.unwrap_or_default();
        Params(
            query
                .split('&')
                .filter(|p| !p.is_empty())
                .map(|p| {
                    let (k, v) = p.split_once('=').unwrap_or((p, ""));
                    (decode(k), decode(v))
                })
                .collect(),
        )
    }

    /// A parameter, or "".
    pub fn get(&self, key: &str) -> &str {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str()).unwrap_or_default()
    }

    /// Sets a parameter, whatever it was.
    pub fn put(&mut self, key: &str, value: &str) {
        self.0.retain(|(k, _)| k != key);
        self.0.push((key.to_string(), value.to_string()));
    }

    /// True when the parameter is given.
    pub fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(k, _)| k == key)
    }

    /// A boolean parameter.
    pub fn flag(&self, key: &str) -> bool {
        // Whatever is not said to be false is true.
        self.has(key) && !matches!(self.get(key).to_ascii_lowercase().as_str(), "false" | "0")
    }

    /// A whole number; None if absent.
    ///
    /// # Errors
    /// 400 with the message of the real server.
    pub fn number(&self, key: &str) -> ApiResult<Option<i64>> {
        match self.get(key) {
            "" => Ok(None),
            text => {
                text.parse().map(Some).map_err(|e| ApiError::bad_request(unreadable("ParseInt", text, &e)))
            }
        }
    }

    /// A resourceVersion; 0 if absent.
    ///
    /// # Errors
    /// 400 with the message of the real server.
    pub fn version(&self, key: &str) -> ApiResult<u64> {
        match self.get(key) {
            "" => Ok(0),
            text => text.parse().map_err(|e| {
                // A failure of its own in a real server, which reads it late.
                let why = unreadable("ParseUint", text, &e);
                ApiError::internal("", format!("{key}: Invalid value: {}: {why}", quoted(text)))
            }),
        }
    }

    /// All values of a parameter.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str())
    }
}

/// As Go says it of a number it cannot read.
fn unreadable(function: &str, text: &str, e: &std::num::ParseIntError) -> String {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    let why = match e.kind() {
        PosOverflow | NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    format!("strconv.{function}: parsing {}: {why}", quoted(text))
}

/// Media type of protobuf in the envelope of Kubernetes.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The form of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The object itself.
    Json,
    /// The object itself as YAML.
    Yaml,
    /// `meta.k8s.io/v1` Table.
    Table,
    /// `PartialObjectMetadata`.
    Partial,
    /// `PartialObjectMetadataList`.
    PartialList,
    /// The object itself as protobuf.
    Protobuf,
    /// `apidiscovery.k8s.io` v2.
    DiscoveryV2,
    /// `apidiscovery.k8s.io` v2beta1.
    DiscoveryV2Beta1,
}

/// The first acceptable form of an Accept header.
pub fn negotiate(headers: &HeaderMap) -> ApiResult<Form> {
    let Some(accept) = headers.get(header::ACCEPT) else { return Ok(Form::Json) };
    let text = accept.to_str().unwrap_or_default();
    if text.is_empty() || text == "*/*" || text == "application/json" {
        return Ok(Form::Json);
    }
    let mut packed = false;
    for range in text.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let (mut kind, mut group, mut version) = ("", "", "");
        for p in parts {
            match p.split_once('=') {
                Some(("as", v)) => kind = v,
                Some(("g", v)) => group = v,
                Some(("v", v)) => version = v,
                _ => {}
            }
        }
        let json = matches!(media, "application/json" | "*/*" | "application/*");
        match (json, kind) {
            (true, "") => return Ok(Form::Json),
            (true, "Table") if group == "meta.k8s.io" && matches!(version, "v1" | "v1beta1") => {
                return Ok(Form::Table);
            }
            (true, "PartialObjectMetadata") if matches!(version, "v1" | "v1beta1") => {
                return Ok(Form::Partial);
            }
            (true, "PartialObjectMetadataList") if matches!(version, "v1" | "v1beta1") => {
                return Ok(Form::PartialList);
            }
            (true, "APIGroupDiscoveryList") if version == "v2" => return Ok(Form::DiscoveryV2),
            (true, "APIGroupDiscoveryList") if version == "v2beta1" => return Ok(Form::DiscoveryV2Beta1),
            (false, "") if media == "application/yaml" => return Ok(Form::Yaml),
            (false, "") if media == PROTOBUF => packed = true,
            _ => {}
        }
    }
    // Only for who takes nothing else: JSON is what is stored and written without a detour.
    if packed { Ok(Form::Protobuf) } else { Err(ApiError::not_acceptable()) }
}

/// An answer with a JSON body.
pub fn json_response(status: StatusCode, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An answer with a JSON value.
pub fn value_response(status: StatusCode, value: &Value) -> Response<Body> {
    json_response(status, serde_json::to_vec(value).unwrap_or_default().into())
}

/// An answer with plain text.
pub fn text_response(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::from(text.into()));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

/// Adds one `Warning` header for each text.
pub fn add_warnings(response: &mut Response<Body>, warnings: &[String]) {
    for text in warnings {
        let clean: String =
            text.replace('\\', "\\\\").replace('"', "\\\"").chars().filter(|c| !c.is_control()).collect();
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{clean}\"")) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

/// Reads a whole body, up to the limit.
pub async fn read_body(body: Body) -> ApiResult<Bytes> {
    let whole = read_frames(body);
    tokio::time::timeout(BODY_WITHIN, whole).await.unwrap_or_else(|_| Err(ApiError::timed_out()))
}

async fn read_frames(body: Body) -> ApiResult<Bytes> {
    use http_body_util::{BodyExt, LengthLimitError, Limited};
    let mut body = Limited::new(body, MAX_BODY);
    // Most bodies come in one piece, which is handed on as it is.
    let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
    loop {
        let next = tokio::time::timeout(BODY_PAUSE, body.frame()).await.map_err(|_| ApiError::timed_out())?;
        match next {
            None if rest.is_empty() => return Ok(first),
            None => return Ok(rest.freeze()),
            Some(Ok(frame)) => {
                let Ok(data) = frame.into_data() else { continue };
                if first.is_empty() && rest.is_empty() {
                    first = data;
                    continue;
                }
                if rest.is_empty() {
                    rest.extend_from_slice(&first);
                }
                rest.extend_from_slice(&data);
            }
            Some(Err(e)) if e.downcast_ref::<LengthLimitError>().is_some() => {
                return Err(ApiError::too_large(MAX_BODY));
            }
            Some(Err(e)) => return Err(ApiError::bad_request(format!("the body could not be read: {e}"))),
        }
    }
}

/// The media type of the body, without parameters.
pub fn content_type(headers: &HeaderMap) -> &str {
    let text = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim()
}
