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

#[cfg(test)]
mod tests {
    use fleet_hub_core::planner::View;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    /// Status line and body.
    async fn get(address: SocketAddr, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(address).await.expect("served");
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("an answer");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        (head.lines().next().unwrap_or_default().to_string(), body.to_string())
    }

    #[tokio::test]
    async fn the_newest_view_is_served_beside_the_metrics() {
        let views = Views::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let router = router(Metrics::default(), views.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        let view = |body: &str| serde_json::from_str::<View>(body).expect("a view");
        assert_eq!(view(&get(address, "/view").await.1), View::default(), "before the first plan");
        for sequence in [1, 2] {
            views.publish(View { sequence, at_ms: 1_000, ..View::default() });
            let (status, body) = get(address, "/view").await;
            assert_eq!((status.as_str(), view(&body).sequence), ("HTTP/1.1 200 OK", sequence), "{body}");
        }
        assert!(get(address, "/metrics").await.1.contains("# EOF"));
        assert_eq!(get(address, "/healthz").await.1, "ok");
        server.abort();
    }
}
