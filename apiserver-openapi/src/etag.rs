//! Documents that clients keep: answers with an ETag.

use axum::body::Body;
use fleet_apiserver_ground::digest;
use fleet_apiserver_schema::http_io;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};

/// A body with its ETag, or 304 when the client has it.
pub fn etagged(body: Vec<u8>, headers: &HeaderMap) -> Response<Body> {
    let tag = format!("\"{}\"", digest::hex(&digest::sha256(&body)).to_uppercase());
    let known = headers.get(header::IF_NONE_MATCH).and_then(|v| v.to_str().ok()) == Some(tag.as_str());
    let mut response = if known {
        let mut r = Response::new(Body::empty());
        *r.status_mut() = StatusCode::NOT_MODIFIED;
        r
    } else {
        http_io::json_response(StatusCode::OK, body.into())
    };
    if let Ok(value) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, value);
    }
    response
}
