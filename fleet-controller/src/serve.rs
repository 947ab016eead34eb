//! HTTP server of the process: `/metrics` and `/healthz` for everybody, `/view` for authorized callers.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Json, Router,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use fleet_metrics::{Exposed, Exposition, Process};
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::{
    callers::{Callers, Refusal},
    options::Options,
    views::Views,
};

/// Authorized callers only: it names the jobs of all namespaces.
const VIEW: &str = "/view";

/// Serves metrics and the newest snapshot of a controller with these options until `shutdown` is cancelled.
/// The hub authorizes readers of the snapshot.
///
/// # Errors
/// It cannot listen on the address.
pub async fn serve(
    options: &Options,
    hub: Client,
    address: SocketAddr,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind(address).await?;
    serve_on(options, hub, listener, shutdown).await
}

/// Like [`serve`], on an existing socket.
///
/// # Errors
/// The socket is broken.
pub async fn serve_on(
    options: &Options,
    hub: Client,
    listener: tokio::net::TcpListener,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    let process = Process::new("fleet-controller", env!("CARGO_PKG_VERSION"));
    let parts: [Arc<dyn Exposed>; 2] = [Arc::new(process), Arc::new(options.metrics.clone())];
    let router = router(Exposition::new(parts), options.views.clone(), Callers::new(hub));
    axum::serve(listener, router).with_graceful_shutdown(shutdown.cancelled_owned()).await
}

fn router(metrics: Exposition, views: Views, callers: Callers) -> Router {
    let text = move || async move { fleet_metrics::answer(&metrics) };
    let view = move |headers: HeaderMap| async move {
        match callers.may_get(&headers, VIEW).await {
            Ok(()) => Json(Arc::unwrap_or_clone(views.latest())).into_response(),
            Err(refusal) => refusal.into_response(),
        }
    };
    Router::new()
        .route("/metrics", get(text))
        .route(VIEW, get(view))
        .route("/healthz", get(|| async { "ok" }))
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, format!("{}\n", self.message)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = header::HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
