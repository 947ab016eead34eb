//! Refusals as OpenPAI's clients expect them: a status, a code, a message.

use axum::{
    Json,
    http::{Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use serde_json::json;

use crate::jobs::JobError;

/// Most bytes of a request's body.
pub const BODY_MAX: usize = 2 * 1024 * 1024;

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

/// Refusals of the server itself, such as a body that is too large or no text, in the same form.
pub async fn in_form(response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if !(status.is_client_error() || status.is_server_error()) || kind == Some("application/json") {
        return response;
    }
    let message = match status {
        StatusCode::PAYLOAD_TOO_LARGE => {
            let most = BODY_MAX / 1024;
            format!("the body: found more than {most} KiB; allowed: at most {most} KiB")
        }
        _ => {
            let body = axum::body::to_bytes(response.into_body(), BODY_MAX).await.unwrap_or_default();
            String::from_utf8_lossy(&body).into_owned()
        }
    };
    let code = if status.is_client_error() { "InvalidParametersError" } else { "UnknownError" };
    RestError::new(status.as_u16(), code, message).into_response()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_the_server_itself_refuses_has_the_form_too() {
        for (status, said, wanted) in [
            (
                StatusCode::PAYLOAD_TOO_LARGE,
                "length limit exceeded",
                "the body: found more than 2048 KiB; allowed: at most 2048 KiB",
            ),
            (StatusCode::BAD_REQUEST, "invalid UTF-8", "invalid UTF-8"),
        ] {
            let answer = in_form((status, said).into_response()).await;
            assert_eq!(answer.status(), status);
            let body = axum::body::to_bytes(answer.into_body(), BODY_MAX).await.expect("a body");
            let body: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
            assert_eq!(body, json!({"code": "InvalidParametersError", "message": wanted}));
        }
        let own = in_form(RestError::new(404, "NoJobError", "no").into_response()).await;
        let body = axum::body::to_bytes(own.into_body(), BODY_MAX).await.expect("a body");
        assert_eq!(body, r#"{"code":"NoJobError","message":"no"}"#);
    }
}
