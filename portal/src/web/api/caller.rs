//! Who calls: by a bearer token of the hub, or by the session of a browser that is signed in.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use fleet_views::Sight;
use http::{HeaderMap, HeaderName, Method, header, request::Parts};

use super::error::ApiError;
use crate::web::{
    act::user_of,
    rights,
    session::{Session, is_same},
    state::Web,
};
use fleet_openpai::{rest, server::AskError};

/// Has the session's key in writes by a browser: another site can neither read it nor send this header.
pub const KEY_HEADER: HeaderName = HeaderName::from_static("x-fleet-form-key");

pub struct Caller {
    pub session: Arc<Session>,
    /// What the hub lets the caller see.
    pub sight: Arc<Sight>,
    pub by: By,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Token,
    Cookie,
}

impl FromRequestParts<Arc<Web>> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, web: &Arc<Web>) -> Result<Self, ApiError> {
        let (session, by) = if parts.headers.contains_key(header::AUTHORIZATION) {
            (by_token(web, &parts.headers).await?, By::Token)
        } else {
            (by_cookie(web, parts)?, By::Cookie)
        };
        match rights::sight(web, &session).await {
            Ok(sight) => Ok(Self { session, sight, by }),
            Err(error) => {
                if matches!(error, AskError::Refused { code: 401, .. }) {
                    web.callers.end(&session);
                    web.sessions.end(&session);
                }
                Err(error.into())
            }
        }
    }
}

async fn by_token(web: &Web, headers: &HeaderMap) -> Result<Arc<Session>, ApiError> {
    let credential = rest::bearer(headers).map_err(|why| ApiError::new(401, why))?;
    if let Some(session) = web.callers.of(&credential) {
        return Ok(session);
    }
    match user_of(web, &credential).await {
        Ok(user) => Ok(web.callers.begin(user, credential)),
        // One whom the hub lets do nothing is nobody to it.
        Err(AskError::Refused { code: 401 | 403, .. }) => {
            let why = "credential: found a token that the hub does not know; allowed: a token of the hub";
            Err(ApiError::new(401, why))
        }
        Err(error) => Err(error.into()),
    }
}

fn by_cookie(web: &Web, parts: &Parts) -> Result<Arc<Session>, ApiError> {
    let nobody = || {
        let why = "credential: found none; allowed: Authorization: Bearer TOKEN with a token of the hub, or the cookie of a \
                   session of the portal";
        ApiError::new(401, why)
    };
    let session = web.sessions.of(&parts.headers).ok_or_else(nobody)?;
    let is_read = matches!(parts.method, Method::GET | Method::HEAD);
    let key = parts.headers.get(KEY_HEADER).and_then(|key| key.to_str().ok()).unwrap_or_default();
    if is_read || is_same(key, &session.visitor.form_key) {
        return Ok(session);
    }
    let allowed = "for a write with a session's cookie the formKey of GET /api/fleet/v1";
    let message = format!("header {KEY_HEADER}: found another one than this session's; allowed: {allowed}");
    Err(ApiError::new(403, message))
}
