//! What the process answers over HTTP: `/metrics` and `/healthz` to everybody, `/view` to whom the hub lets read it.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Json, Router,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::{
    callers::{Callers, Refusal},
    metrics::Metrics,
    options::Options,
    views::Views,
};

/// Media type of the text that Prometheus reads.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// It names the jobs of all namespaces.
const VIEW: &str = "/view";

/// Serves metrics and the newest snapshot of a controller with these options until `shutdown` is cancelled. The hub is
/// asked who may read the snapshot.
///
/// # Errors
/// The address cannot be listened on.
pub async fn serve(
    options: &Options,
    hub: Client,
    address: SocketAddr,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind(address).await?;
    serve_on(options, hub, listener, shutdown).await
}

/// As [`serve`], on a socket that is there.
///
/// # Errors
/// The socket is broken.
pub async fn serve_on(
    options: &Options,
    hub: Client,
    listener: tokio::net::TcpListener,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    let router = router(options.metrics.clone(), options.views.clone(), Callers::new(hub));
    axum::serve(listener, router).with_graceful_shutdown(shutdown.cancelled_owned()).await
}

fn router(metrics: Metrics, views: Views, callers: Callers) -> Router {
    let text = move || async move { ([(header::CONTENT_TYPE, OPEN_METRICS)], metrics.text()) };
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
