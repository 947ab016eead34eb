//! What holds for every answer and every write, whichever page it is.

use axum::{
    extract::Request,
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};

/// Nothing but the portal's own files; nothing inline.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

const HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// Refuses writes that another site has sent, and marks every answer.
pub async fn guard(request: Request, next: Next) -> Response {
    let mut response = if is_allowed(&request) {
        next.run(request).await
    } else {
        (StatusCode::FORBIDDEN, "The request comes from another site; allowed: the portal's own pages.\n")
            .into_response()
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // What one user was shown is nobody else's; assets say otherwise themselves.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Whether it is a read, or a write of the portal's own pages.
pub fn is_allowed(request: &Request) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD) || is_own(request.headers())
}

/// Browsers say where a write comes from; what is no browser has no cookie to be misused.
fn is_own(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let site = text(HeaderName::from_static("sec-fetch-site"));
    if site.is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return false;
    }
    match text(header::ORIGIN) {
        None => true,
        Some(origin) => {
            let from = origin.split_once("://").map(|(_, host)| host);
            from.is_some() && from == text(header::HOST)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_come_from_own_pages() {
        let check = |pairs: &[(&'static str, &'static str)], expected: bool| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, HeaderValue::from_static(value));
            }
            assert_eq!(is_own(&headers), expected, "{pairs:?}");
        };
        let host = ("host", "127.0.0.1:9286");
        check(&[host], true);
        check(&[host, ("origin", "http://127.0.0.1:9286")], true);
        check(&[host, ("origin", "http://127.0.0.1:9287")], false);
        check(&[host, ("origin", "http://evil.example.com")], false);
        check(&[host, ("origin", "null")], false);
        check(&[("origin", "http://127.0.0.1:9286")], false);
        check(&[host, ("sec-fetch-site", "cross-site")], false);
        check(&[host, ("sec-fetch-site", "same-site")], false);
        check(&[host, ("sec-fetch-site", "same-origin"), ("origin", "http://127.0.0.1:9286")], true);
    }
}
