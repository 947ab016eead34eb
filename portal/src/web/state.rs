//! What every page works with.

use std::sync::Arc;

use axum::extract::State;
use http::{HeaderValue, header};
use kube::{Client, client::Body};

use super::session::Sessions;
use crate::{
    board::Board,
    server::{HUB_PATIENCE, Server},
};

/// How handlers get at it.
pub type Shared = State<Arc<Web>>;

/// Shared by all requests.
pub struct Web {
    pub board: Arc<Board>,
    pub sessions: Sessions,
    /// A way to the hub that carries no credential of its own.
    pub hub: Client,
    pub url: String,
    /// Where forms submit to unless they say otherwise.
    pub namespace: String,
}

impl Web {
    pub fn new(board: Arc<Board>, hub: Client, url: String, namespace: String) -> Self {
        Self { board, sessions: Sessions::default(), hub, url, namespace }
    }

    /// The hub, as whoever has this credential sees it.
    pub fn server_of(&self, credential: &HeaderValue) -> Server {
        let (hub, credential) = (self.hub.clone(), credential.clone());
        let service = tower::service_fn(move |mut request: http::Request<Body>| {
            let (hub, credential) = (hub.clone(), credential.clone());
            async move {
                request.headers_mut().insert(header::AUTHORIZATION, credential);
                hub.send(request).await
            }
        });
        Server {
            client: Client::new(service, "default"),
            name: "hub".to_owned(),
            url: self.url.clone(),
            patience: HUB_PATIENCE,
        }
    }
}
