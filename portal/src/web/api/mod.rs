//! The API for programs: the views of the pages as JSON, and what their forms do, under `/api/fleet/v1`.
//!
//! Callers show a token of the hub with each request, or the cookie of a session, and see and do what the hub lets them.
//! The table of routes makes both the router and the OpenAPI document. Deliberately absent: rights, views and writes of
//! its own.

mod caller;
mod error;
mod given;
mod openapi;
mod paths;
mod reads;
mod table;
mod writes;

use std::sync::Arc;

use axum::{
    Router,
    extract::{DefaultBodyLimit, Request},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use http::{HeaderValue, header};

use super::{guard, state::Web};
use error::ApiError;
pub use openapi::document as openapi;
use paths::PREFIX;

/// Largest body: a job file with its configuration.
const BODY_MAX: usize = 1024 * 1024;

pub fn router(web: Arc<Web>) -> Router {
    let mut router = Router::new();
    for route in &table::ROUTES {
        // Paths of queues have slashes in them.
        let path = format!("{PREFIX}{}", route.path.replace("{path}", "{*path}"));
        router = router.route(&path, (route.handler)());
    }
    router
        .fallback(error::no_route)
        .method_not_allowed_fallback(error::no_method)
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(middleware::from_fn(own))
        .with_state(web)
}

/// Whether a path is this API's.
pub fn is_below(path: &str) -> bool {
    path.strip_prefix("/api/fleet").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Refuses writes that another site has sent, and marks every answer.
async fn own(request: Request, next: Next) -> Response {
    let mut response = if guard::is_allowed(&request) {
        next.run(request).await
    } else {
        let message =
            "origin: found another site's; allowed: the portal's own pages, and programs that send none";
        ApiError::new(403, message).into_response()
    };
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
