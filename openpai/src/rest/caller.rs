//! Who calls: a bearer token of the hub, and a way to the hub that carries it.

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use axum::{
    extract::{ConnectInfo, FromRequestParts},
    http::{HeaderMap, HeaderValue, header, request::Parts},
};
use kube::{Client, client::Body};

use super::{error::RestError, state::Portal};
use crate::{
    jobs,
    server::{HUB_PATIENCE, Server},
    users,
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
    credential: HeaderValue,
}

/// Where a request comes from.
pub struct Address {
    /// The other end of the connection, if the process that serves it knows.
    peer: Option<IpAddr>,
    /// For whom the last proxy says that it asks. Without a proxy, whoever asks writes it.
    forwarded: Option<IpAddr>,
}

impl Address {
    pub fn of(&self, users: &users::Users) -> Option<IpAddr> {
        self.forwarded.filter(|_| users.is_behind_proxy()).or(self.peer)
    }
}

impl<S: Sync> FromRequestParts<S> for Address {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        let lines = parts.headers.get_all("x-forwarded-for").into_iter();
        let last = lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(',')).last();
        let forwarded = last.and_then(|last| last.trim().parse().ok());
        Ok(Self { peer: peer.map(|ConnectInfo(peer)| peer.ip()), forwarded })
    }
}

impl FromRequestParts<Arc<Portal>> for Caller {
    type Rejection = RestError;

    async fn from_request_parts(parts: &mut Parts, portal: &Arc<Portal>) -> Result<Self, RestError> {
        let value = bearer(&parts.headers).map_err(RestError::unauthorized)?;
        let server = Server {
            client: with_credential(portal.hub.clone(), value.clone()),
            name: "hub".to_owned(),
            url: portal.url.clone(),
            patience: HUB_PATIENCE,
        };
        Ok(Self { server, credential: value })
    }
}

impl Caller {
    /// The owner of what this caller submits.
    pub async fn user(&self) -> Result<String, RestError> {
        Ok(jobs::user_of(&self.server).await?)
    }

    /// The user that this caller is, if one that the portal keeps. It is the hub that says so.
    pub async fn pai_user(&self) -> Result<Option<String>, RestError> {
        let identity = jobs::identity(&self.server).await?;
        Ok(users::names::of_identity(&identity).map(str::to_owned))
    }

    /// The same, for what only users have.
    pub async fn need_pai_user(&self) -> Result<String, RestError> {
        let identity = jobs::identity(&self.server).await?;
        let user = users::names::of_identity(&identity).map(str::to_owned);
        user.ok_or_else(|| {
            let told = format!("found {identity}, which has no password here; allowed: users of POST /users");
            RestError::new(403, "ForbiddenUserError", told)
        })
    }

    /// The token as it was sent.
    pub fn token(&self) -> &str {
        let text = self.credential.to_str().unwrap_or_default();
        text.strip_prefix("Bearer ").unwrap_or_default()
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
