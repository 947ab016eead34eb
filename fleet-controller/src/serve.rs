//! What the process answers over HTTP: `/metrics`, `/healthz`, and `/view`.

use std::{net::SocketAddr, sync::Arc};

use axum::{Json, Router, http::header, routing::get};
use tokio_util::sync::CancellationToken;

use crate::{metrics::Metrics, options::Options, views::Views};

/// Media type of the text that Prometheus reads.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves metrics and the newest snapshot of a controller with these options until `shutdown` is cancelled.
///
/// # Errors
/// The address cannot be listened on.
pub async fn serve(
    options: &Options,
    address: SocketAddr,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind(address).await?;
    let router = router(options.metrics.clone(), options.views.clone());
    axum::serve(listener, router).with_graceful_shutdown(shutdown.cancelled_owned()).await
}

fn router(metrics: Metrics, views: Views) -> Router {
    let text = move || async move { ([(header::CONTENT_TYPE, OPEN_METRICS)], metrics.text()) };
    let view = move || async move { Json(Arc::unwrap_or_clone(views.latest())) };
    Router::new()
        .route("/metrics", get(text))
        .route("/view", get(view))
        .route("/healthz", get(|| async { "ok" }))
}
