//! Refusals as OpenPAI's clients expect them: a status, a code, a message.

use axum::{
    Json,
    http::{Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use serde_json::json;

use crate::jobs::JobError;

#[derive(Debug)]
pub struct RestError {
    pub status: u16,
    pub code: &'static str,
    pub message: String,
}

impl RestError {
    pub fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into() }
    }

    pub fn parameter(name: &str, found: &str, allowed: &str) -> Self {
        let message = format!("{name}: found {found:?}; allowed: {allowed}");
        Self::new(400, "InvalidParametersError", message)
    }

    /// Nobody is known by that credential.
    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(401, "UnauthorizedUserError", message)
    }
}

impl From<JobError> for RestError {
    fn from(error: JobError) -> Self {
        Self::new(error.status(), error.code(), error.to_string())
    }
}

impl IntoResponse for RestError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(json!({"code": self.code, "message": self.message}))).into_response()
    }
}

pub async fn no_route(uri: Uri) -> RestError {
    RestError::new(
        404,
        "NoApiError",
        format!("{}: found no such API; allowed: those under /api/v2", uri.path()),
    )
}

pub async fn no_method(method: Method, uri: Uri) -> RestError {
    RestError::new(405, "NoApiError", format!("{}: found {method}, which it does not take", uri.path()))
}
