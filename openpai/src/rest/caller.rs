//! Who calls: a bearer token of the hub, and a way to the hub that carries it.

use std::sync::Arc;

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, HeaderValue, header, request::Parts},
};
use kube::{Client, client::Body};

use super::{error::RestError, state::Portal};
use crate::{
    jobs,
    server::{HUB_PATIENCE, Server},
};

/// The credential of a request, as it is sent on to the hub.
///
/// # Errors
/// What was found instead of a bearer token.
pub fn bearer(headers: &HeaderMap) -> Result<HeaderValue, String> {
    let given = headers.get(header::AUTHORIZATION);
    let text = given.ok_or_else(|| format!("found no credential; {ALLOWED}"))?.to_str().unwrap_or_default();
    let token = text.strip_prefix("Bearer ").or_else(|| text.strip_prefix("bearer ")).map(str::trim);
    let wrong = || format!("found a credential of another kind; {ALLOWED}");
    let token = token.filter(|token| !token.is_empty()).ok_or_else(wrong)?;
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| wrong())?;
    value.set_sensitive(true);
    Ok(value)
}

const ALLOWED: &str = "allowed: Authorization: Bearer TOKEN, with a token of the hub";

/// A caller that has shown a token. Whether it is good is the hub's to say, at the first request.
pub struct Caller {
    /// The hub, as this caller sees it.
    pub server: Server,
}

impl FromRequestParts<Arc<Portal>> for Caller {
    type Rejection = RestError;

    async fn from_request_parts(parts: &mut Parts, portal: &Arc<Portal>) -> Result<Self, RestError> {
        let value = bearer(&parts.headers).map_err(RestError::unauthorized)?;
        let server = Server {
            client: with_credential(portal.hub.clone(), value),
            name: "hub".to_owned(),
            url: portal.url.clone(),
            patience: HUB_PATIENCE,
        };
        Ok(Self { server })
    }
}

impl Caller {
    /// The owner of what this caller submits.
    pub async fn user(&self) -> Result<String, RestError> {
        Ok(jobs::user_of(&self.server).await?)
    }
}

/// The same way to the hub, with a credential on every request.
fn with_credential(hub: Client, value: HeaderValue) -> Client {
    let service = tower::service_fn(move |mut request: http::Request<Body>| {
        let (hub, value) = (hub.clone(), value.clone());
        async move {
            request.headers_mut().insert(header::AUTHORIZATION, value);
            hub.send(request).await
        }
    });
    Client::new(service, "default")
}
