//! What every page works with.

use std::sync::Arc;

use axum::extract::State;
use http::{HeaderValue, header};
use kube::{Client, client::Body};

use super::{callers::Callers, metrics::PortalMetrics, session::Sessions, watched::Drawn};
use crate::{board::Board, time::Time};
use fleet_openpai::{
    server::{HUB_PATIENCE, Server},
    users::Users,
};

/// How handlers get at it.
pub type Shared = State<Arc<Web>>;

/// Shared by all requests.
pub struct Web {
    pub board: Arc<Board>,
    pub sessions: Sessions,
    pub callers: Callers,
    /// A way to the hub that carries no credential of its own.
    pub hub: Client,
    pub url: String,
    /// Where forms submit to unless they say otherwise.
    pub namespace: String,
    pub metrics: PortalMetrics,
    pub drawn: Drawn,
    /// The run log of this fleet, where one is kept.
    pub time: Option<Arc<Time>>,
    /// Where the portal's own account reads members for users who may see pods of a namespace.
    pub members: Option<Client>,
    /// Users with passwords, of OpenPAI's REST API, if this process keeps them.
    pub users: Option<Arc<Users>>,
}

impl Web {
    pub fn new(board: Arc<Board>, hub: Client, url: String, namespace: String) -> Self {
        let (sessions, metrics, drawn) = (Sessions::default(), PortalMetrics::default(), Drawn::default());
        let callers = Callers::default();
        Self {
            board,
            sessions,
            callers,
            hub,
            url,
            namespace,
            metrics,
            drawn,
            time: None,
            members: None,
            users: None,
        }
    }

    /// With these counts, which somebody serves.
    #[must_use]
    pub fn counting(self, metrics: PortalMetrics) -> Self {
        Self { metrics, ..self }
    }

    /// With the run log that somebody keeps of the same fleet.
    #[must_use]
    pub fn recorded_by(self, time: Arc<Time>) -> Self {
        Self { time: Some(time), ..self }
    }

    /// With the portal's own way to the hub, which may read the Secrets of members.
    #[must_use]
    pub fn reading_members(self, own: Client) -> Self {
        Self { members: Some(own), ..self }
    }

    /// With users that are kept with this credential, which has rights in their namespace.
    #[must_use]
    pub fn keeping_users(self, own: Client, is_behind_proxy: bool) -> Self {
        let own =
            Server { client: own, name: "hub".to_owned(), url: self.url.clone(), patience: HUB_PATIENCE };
        let users = Users::new(own, self.namespace.clone()).behind_proxy(is_behind_proxy);
        Self { users: Some(Arc::new(users)), ..self }
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
