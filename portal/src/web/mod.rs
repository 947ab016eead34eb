//! Pages for people in a browser.
//!
//! A user signs in with a token of the hub. Pages are made from what the board follows for all, cut to what the hub
//! lets this user list; what one job's page shows beyond that, and every write, goes to the hub with the user's own
//! token. Pages hold no scripts and no styles of their own, and every form carries the session's key. Deliberately
//! absent: users and rights of the portal's own.

mod act;
mod admin;
mod answer;
mod api;
mod assets;
mod callers;
mod configuration;
mod drawings;
mod drawn;
mod guard;
mod live;
mod logs;
mod members;
mod metrics;
mod patch;
mod pods;
mod promises;
mod rights;
mod session;
mod state;
mod stopping;
mod submission;
mod submit;
mod time;
mod view;
mod watched;

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Request, State},
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http::{HeaderMap, StatusCode, Uri, header};

pub use api::openapi;
pub use metrics::PortalMetrics;
use state::Shared;
pub use state::Web;
pub use time::{Audience, recording};
use tower::ServiceExt;

use crate::time::Time;
use answer::{made, to_sign_in, trouble_page, whole};
use fleet_openpai::rest::{self, Portal};
use fleet_pages::{page::Page, pairs::Pairs, shown::View};

/// Largest form: a job file with its configuration.
const FORM_MAX: usize = 1024 * 1024;

/// How often the metrics of the portal's state are brought up to date.
const COUNT_EVERY: std::time::Duration = std::time::Duration::from_secs(1);

/// Pages, their API for programs under `/api/fleet`, OpenPAI's REST API under `/api/v2`, and HiveD's inspect API under `/v1/inspect`.
pub fn router(web: Arc<Web>) -> Router {
    let metrics = web.metrics.clone();
    let portal = Portal {
        hub: web.hub.clone(),
        url: web.url.clone(),
        namespace: web.namespace.clone(),
        users: web.users.clone(),
    };
    let pages = Router::new()
        .route("/sign-in", get(act::sign_in_page).post(act::sign_in))
        .route("/sign-out", post(act::sign_out))
        .route("/jobs/stop", post(act::stop))
        .route("/jobs/{namespace}/{resource}/{name}/logs/{pod}", get(logs::page))
        .route("/submit", get(submit::page).post(submit::post))
        .route("/virtual-clusters/configuration", get(configuration::page).post(configuration::post))
        .route("/administration", get(admin::page).post(admin::post))
        .route("/live", get(live::live))
        .route("/time", get(time::enter))
        .route("/assets/{name}", get(assets::asset))
        .fallback(get(show))
        .layer(DefaultBodyLimit::max(FORM_MAX))
        .layer(middleware::from_fn(guard::guard))
        .with_state(web.clone());
    let api = api::router(web);
    let rest = rest::router(portal);
    // By hand: a route would hand its own parameters on to those of the API.
    let either = tower::service_fn(move |request: Request| {
        let app = match request.uri().path() {
            path if api::is_below(path) => &api,
            path if is_api(path) => &rest,
            _ => &pages,
        };
        app.clone().oneshot(request)
    });
    Router::new().fallback_service(either).layer(middleware::from_fn_with_state(metrics, metrics::count))
}

/// Whether a path is OpenPAI's or HiveD's.
fn is_api(path: &str) -> bool {
    let below =
        |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    (below("/api/v2") && path.len() > "/api/v2/".len()) || below("/v1/inspect")
}

/// Serves pages and API until `until` is over; requests that are under way then are answered.
///
/// # Errors
/// The socket fails.
pub async fn serve(
    listener: tokio::net::TcpListener,
    web: Arc<Web>,
    until: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let stop = tokio_util::sync::CancellationToken::new();
    let ending = stop.clone();
    let until = async move {
        until.await;
        ending.cancel();
    };
    let counting = count_state(web.clone());
    let app = router(web).layer(axum::Extension(live::Ends(stop)));
    let app = app.into_make_service_with_connect_info::<std::net::SocketAddr>();
    let serving = axum::serve(listener, app).with_graceful_shutdown(until);
    tokio::select! {
        served = serving => served,
        never = counting => match never {},
    }
}

/// Serves the pages of a log and nothing else.
///
/// # Errors
/// The socket fails.
pub async fn serve_recording(
    listener: tokio::net::TcpListener,
    log: Arc<Time>,
    audience: Audience,
) -> std::io::Result<()> {
    axum::serve(listener, time::recording(log, audience)).await
}

/// Keeps in the metrics whether the hub answers and how many are signed in.
async fn count_state(web: Arc<Web>) -> std::convert::Infallible {
    loop {
        web.metrics.set_hub_up(web.board.hub() == crate::board::Hub::Up && web.board.is_listed());
        web.metrics.set_sessions(web.sessions.count());
        tokio::time::sleep(COUNT_EVERY).await;
    }
}

async fn show(State(web): Shared, headers: HeaderMap, uri: Uri) -> Response {
    let Some(session) = web.sessions.of(&headers) else { return to_sign_in(&uri) };
    if !Pairs::read(uri.query().unwrap_or("")).get("at").is_empty() {
        return time::show(&web, &session, &headers, &uri).await;
    }
    let wants_json = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| accept.starts_with("application/json"));
    let Some(page) = Page::read(uri.path(), uri.query().unwrap_or("")) else {
        let why = format!("There is no page {}.", uri.path());
        return whole(
            &web,
            &session,
            &Page::Home,
            uri.path(),
            &View::Missing(404, why),
            StatusCode::NOT_FOUND,
        );
    };
    match made(&web, &session, &page).await {
        Ok(view) => {
            let status =
                if matches!(view, View::Missing(..)) { StatusCode::NOT_FOUND } else { StatusCode::OK };
            match wants_json {
                true => (status, Json(view.json())).into_response(),
                false => whole(&web, &session, &page, uri.path(), &view, status),
            }
        }
        Err(trouble) => trouble_page(&web, &session, &uri, &trouble),
    }
}
