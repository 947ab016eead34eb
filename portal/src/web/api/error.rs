//! Why a program gets no answer, as JSON.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, Method, StatusCode, Uri, header};
use schemars::JsonSchema;
use serde::Serialize;

use super::paths::PREFIX;
use crate::web::submission::Refusal;
use fleet_openpai::{cells::CellsError, server::AskError};

/// What went wrong, in words that name what was found and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub struct ApiError {
    /// The status of the answer.
    pub code: u16,
    /// The same in one word: BadRequest, Unauthorized, Forbidden, NotFound, MethodNotAllowed, Conflict, TooLarge, Invalid,
    /// BadGateway, Unavailable.
    pub reason: &'static str,
    pub message: String,
}

impl ApiError {
    pub fn new(code: u16, message: impl Into<String>) -> Self {
        let reason = match code {
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            405 => "MethodNotAllowed",
            409 => "Conflict",
            413 => "TooLarge",
            422 => "Invalid",
            400..=499 => "BadRequest",
            503 => "Unavailable",
            _ => "BadGateway",
        };
        Self { code, reason, message: message.into() }
    }

    pub fn parameter(name: &str, found: &str, allowed: &str) -> Self {
        Self::new(400, format!("{name}: found {found:?}; allowed: {allowed}"))
    }

    /// The hub does not let the user read this.
    pub fn forbidden(user: &str, what: &str) -> Self {
        Self::new(
            403,
            format!("found user {user}, whom the hub does not let {what}; allowed: a user with that right"),
        )
    }
}

impl From<AskError> for ApiError {
    fn from(error: AskError) -> Self {
        Self::new(error.status(), error.to_string())
    }
}

impl From<CellsError> for ApiError {
    fn from(error: CellsError) -> Self {
        match error {
            CellsError::Ask(error) => error.into(),
            CellsError::NotServed => Self::new(404, error.to_string()),
            other => Self::new(502, other.to_string()),
        }
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.code, refusal.message)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code).unwrap_or(StatusCode::BAD_GATEWAY);
        let mut response = (status, Json(&self)).into_response();
        let headers = response.headers_mut();
        match self.code {
            401 => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            503 => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
            }
            _ => {}
        }
        response
    }
}

pub async fn no_route(uri: Uri) -> ApiError {
    let allowed = format!("the paths of {PREFIX}/openapi.json");
    ApiError::new(404, format!("path: found {:?}; allowed: {allowed}", uri.path()))
}

pub async fn no_method(method: Method, uri: Uri) -> ApiError {
    let message =
        format!("method: found {method} of {}; allowed: what {PREFIX}/openapi.json says of it", uri.path());
    ApiError::new(405, message)
}
