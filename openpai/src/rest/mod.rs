//! OpenPAI's REST API, version 2, for the tools that speak it.
//!
//! The caller's own token goes to the hub with every request, so that the hub's RBAC decides. Error codes and
//! messages have OpenPAI's form.

mod authn;
mod caller;
mod cells;
mod error;
mod inspect;
mod jobs;
mod looks;
mod query;
mod sent;
mod state;
mod tasks;
mod tokens;
mod users;

use std::sync::Arc;

use axum::{
    Extension, Json, Router,
    extract::{DefaultBodyLimit, State},
    middleware::map_response,
    routing::{delete, get, post, put},
};
use serde_json::json;

pub use caller::bearer;
pub use error::RestError;
pub use state::Portal;

/// Attempts of one task, within one attempt of its job.
const TASK_ATTEMPTS: &str = "/jobs/{id}/attempts/{attempt}/taskRoles/{role}/taskIndex/{index}/attempts";

/// All routes, under `/api/v2`.
pub fn router(portal: Portal) -> Router {
    let jobs = Router::new()
        .route("/jobs", get(jobs::list).post(jobs::submit))
        .route("/jobs/{id}", get(jobs::detail))
        .route("/jobs/{id}/attempts/{attempt}", get(jobs::attempt))
        .route(TASK_ATTEMPTS, get(tasks::attempts))
        .route(&format!("{TASK_ATTEMPTS}/{{number}}/logs"), get(tasks::logs))
        .route(&format!("{TASK_ATTEMPTS}/{{number}}/logs/{{container}}"), get(tasks::log))
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
        .merge(of_users())
        .fallback(error::no_route)
        .method_not_allowed_fallback(error::no_method);
    Router::new()
        .nest("/api/v2", jobs)
        .nest("/v1/inspect", inspect())
        .route("/v1/inspect/", get(inspect::paths))
        .fallback(error::no_route)
        .layer(DefaultBodyLimit::max(error::BODY_MAX))
        .layer(Extension(looks::Looks::default()))
        .layer(map_response(error::in_form))
        .with_state(Arc::new(portal))
}

/// Users, their passwords and their tokens.
fn of_users() -> Router<Arc<Portal>> {
    Router::new()
        .route("/users", get(users::list).post(users::create).put(users::update))
        .route("/users/me", put(users::update_own))
        .route("/users/{user}", get(users::detail).delete(users::delete))
        .route("/users/{user}/{field}", put(users::update_field))
        .route("/authn/info", get(authn::info))
        .route("/authn/basic/login", post(authn::login))
        .route("/authn/basic/logout", delete(authn::logout))
        .route("/tokens", get(tokens::list))
        .route("/tokens/application", post(tokens::create))
        .route("/tokens/{token}", delete(tokens::revoke))
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

async fn info(State(portal): state::Shared) -> Json<serde_json::Value> {
    Json(json!({
        "name": "Fleet",
        "version": env!("CARGO_PKG_VERSION"),
        "launcherType": "k8s",
        "authnMethod": if portal.users.is_some() { "basic" } else { "token" },
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
    let app = router(portal).into_make_service_with_connect_info::<std::net::SocketAddr>();
    axum::serve(listener, app).with_graceful_shutdown(until).await
}
