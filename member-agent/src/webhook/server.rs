//! HTTPS server for reviews. The registration contains its certificate, so nothing must be renewed.

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use axum::{Json, Router, extract::State, routing::post};
use axum_server::{Handle, tls_rustls::RustlsConfig};
use kube::Client;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    PATH, certificate,
    queues::Queues,
    review::{self, Review},
};
use crate::options::{Reach, Webhook};

/// Timeout of answers in flight when the agent stops.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

pub(super) struct Server {
    listener: TcpListener,
    address: SocketAddr,
    tls: RustlsConfig,
    certificate_pem: String,
}

impl Server {
    /// # Errors
    /// It cannot listen on the address.
    pub async fn bind(webhook: &Webhook, member: &Client) -> anyhow::Result<Self> {
        let at = webhook.listen;
        let listener = TcpListener::bind(at).with_context(|| {
            format!("webhook: cannot listen on {at}; allowed: an address of this machine with a free port")
        })?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let drawn = match &webhook.reach {
            // Only this process has the address.
            Reach::Listener => certificate::generate(address.ip().to_string())?,
            Reach::Service { namespace, name } => {
                certificate::shared(member, &format!("{name}.{namespace}.svc")).await?
            }
        };
        let mut config =
            rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()?
                .with_no_client_auth()
                .with_single_cert(vec![drawn.certificate()?], drawn.key()?)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let tls = RustlsConfig::from_config(Arc::new(config));
        Ok(Self { listener, address, tls, certificate_pem: drawn.certificate_pem })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// Answers until `shutdown` is cancelled.
    pub async fn run(self, queues: Arc<Queues>, shutdown: CancellationToken) -> anyhow::Result<()> {
        let app = Router::new().route(PATH, post(answer)).with_state(queues);
        let handle = Handle::new();
        let stop = handle.clone();
        tokio::spawn(async move {
            shutdown.cancelled().await;
            stop.graceful_shutdown(Some(LAST_ANSWERS));
        });
        let server = axum_server::from_tcp_rustls(self.listener, self.tls)?.handle(handle);
        server.serve(app.into_make_service()).await.context("webhook: the listener ended")
    }
}

async fn answer(State(queues): State<Arc<Queues>>, Json(review): Json<Review>) -> Json<Value> {
    Json(review::answer(review, &queues).await)
}
