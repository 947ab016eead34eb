//! `/metrics` and `/healthz` on a port of their own.

use axum::{Router, http::header, response::IntoResponse, routing::get};
use tokio::net::TcpListener;

use crate::{Exposition, OPEN_METRICS};

/// The answer to a scrape.
pub fn answer(exposition: &Exposition) -> impl IntoResponse + use<> {
    ([(header::CONTENT_TYPE, OPEN_METRICS)], exposition.text())
}

/// Serves until `until` is over.
///
/// # Errors
/// The socket is broken.
pub async fn serve(
    listener: TcpListener,
    exposition: Exposition,
    until: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/metrics", get(move || async move { answer(&exposition) }))
        .route("/healthz", get(|| async { "ok" }));
    axum::serve(listener, router).with_graceful_shutdown(until).await
}
