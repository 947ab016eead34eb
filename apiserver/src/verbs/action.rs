//! POST to a subresource of an object: bind a pod, evict it, ask for a token.
//!
//! Inputs: a resolved call and a body. Absent on purpose: what leads to a container (see `connect`).

use crate::verbs::{bind, evict, token};
use axum::body::Body;
use fleet_apiserver_admission::call::Call;
use fleet_apiserver_schema::error::{ApiError, ApiResult};
use http::Response;

/// POST to a subresource: bind, evict, ask for a token.
pub async fn action(call: &mut Call, body: &[u8]) -> ApiResult<Response<Body>> {
    match call.subresource.as_str() {
        "binding" => bind::bind(call, body).await,
        "eviction" => evict::evict(call, body).await,
        "token" => token::token_request(call, body).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}
