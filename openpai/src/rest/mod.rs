//! OpenPAI's REST API, version 2, for the tools that speak it.
//!
//! The caller's own token goes to the hub with every request, so that the hub's RBAC decides. Error codes and
//! messages have OpenPAI's form.

mod caller;
mod cells;
mod error;
mod inspect;
mod jobs;
mod query;
mod state;

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::DefaultBodyLimit,
    middleware::map_response,
    routing::{get, put},
};
use serde_json::json;

pub use caller::bearer;
pub use error::RestError;
pub use state::Portal;

/// All routes, under `/api/v2`.
pub fn router(portal: Portal) -> Router {
    let jobs = Router::new()
        .route("/jobs", get(jobs::list).post(jobs::submit))
        .route("/jobs/{id}", get(jobs::detail))
        .route("/jobs/{id}/attempts/{attempt}", get(jobs::attempt))
        .route("/jobs/{id}/job-attempts", get(jobs::attempts))
        .route("/jobs/{id}/job-attempts/healthz", get(jobs::attempts_health))
        .route("/jobs/{id}/config", get(jobs::config))
        .route("/jobs/{id}/events", get(jobs::events))
        .route("/jobs/{id}/executionType", put(jobs::execute))
        .route("/jobs/{id}/tag", put(jobs::add_tag).delete(jobs::remove_tag))
        .route("/virtual-clusters", get(cells::virtual_clusters))
        .route("/virtual-clusters/{vc}", get(cells::virtual_cluster))
        .route("/cluster/sku-types", get(cells::sku_types))
        .route("/info", get(info))
        .fallback(error::no_route)
        .method_not_allowed_fallback(error::no_method);
    Router::new()
        .nest("/api/v2", jobs)
        .nest("/v1/inspect", inspect())
        .route("/v1/inspect/", get(inspect::paths))
        .fallback(error::no_route)
        .layer(DefaultBodyLimit::max(error::BODY_MAX))
        .layer(map_response(error::in_form))
        .with_state(Arc::new(portal))
}

/// HiveD's inspect API at HiveD's paths: with and without a trailing slash, because clients use both.
fn inspect() -> Router<Arc<Portal>> {
    Router::new()
        .route("/", get(inspect::paths))
        .route("/affinitygroups", get(inspect::groups))
        .route("/affinitygroups/", get(inspect::groups))
        .route("/affinitygroups/{*name}", get(inspect::group))
        .route("/clusterstatus", get(inspect::cluster))
        .route("/clusterstatus/", get(inspect::cluster))
        .route("/clusterstatus/physicalcluster", get(inspect::physical))
        .route("/clusterstatus/virtualclusters", get(inspect::virtual_clusters))
        .route("/clusterstatus/virtualclusters/", get(inspect::virtual_clusters))
        .route("/clusterstatus/virtualclusters/{vc}", get(inspect::virtual_cluster))
        .fallback(error::no_route)
        .method_not_allowed_fallback(error::no_method)
}

async fn info() -> Json<serde_json::Value> {
    Json(json!({
        "name": "Fleet",
        "version": env!("CARGO_PKG_VERSION"),
        "launcherType": "k8s",
        "authnMethod": "token",
    }))
}

/// Serves the API until `until` completes; then requests in progress are still answered.
///
/// # Errors
/// The socket fails.
pub async fn serve(
    listener: tokio::net::TcpListener,
    portal: Portal,
    until: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    axum::serve(listener, router(portal)).with_graceful_shutdown(until).await
}
