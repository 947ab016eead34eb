//! Pages for people in a browser.
//!
//! A user signs in with a token of the hub. Pages are made from what the board follows for all, cut to what the hub
//! lets this user list; what one job's page shows beyond that, and every write, goes to the hub with the user's own
//! token. Pages hold no scripts and no styles of their own, and every form carries the session's key. Deliberately
//! absent: users and rights of the portal's own.

mod act;
mod answer;
mod assets;
mod form;
mod guard;
mod html;
mod live;
mod page;
mod pairs;
mod pods;
mod promises;
mod rights;
mod session;
mod shown;
mod state;
mod submit;
mod view;

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, State},
    middleware,
    response::{IntoResponse, Response},
    routing::{any_service, get, post},
};
use http::{HeaderMap, StatusCode, Uri, header};

use state::Shared;
pub use state::Web;

use crate::rest::{self, Portal};
use answer::{made, to_sign_in, trouble_page, whole};
use page::Page;
use shown::View;

/// Largest form: a job file with its configuration.
const FORM_MAX: usize = 1024 * 1024;

/// Pages, OpenPAI's REST API under `/api/v2`, and HiveD's inspect API under `/v1/inspect`.
pub fn router(web: Arc<Web>) -> Router {
    let portal = Portal { hub: web.hub.clone(), url: web.url.clone(), namespace: web.namespace.clone() };
    let pages = Router::new()
        .route("/sign-in", get(act::sign_in_page).post(act::sign_in))
        .route("/sign-out", post(act::sign_out))
        .route("/jobs/stop", post(act::stop))
        .route("/submit", get(submit::page).post(submit::post))
        .route("/live", get(live::live))
        .route("/assets/{name}", get(assets::asset))
        .fallback(get(show))
        .layer(DefaultBodyLimit::max(FORM_MAX))
        .layer(middleware::from_fn(guard::guard))
        .with_state(web);
    let rest = rest::router(portal);
    let paths = ["/api/v2/{*rest}", "/v1/inspect", "/v1/inspect/", "/v1/inspect/{*rest}"];
    let all = paths.into_iter().fold(Router::new(), |all, path| all.route(path, any_service(rest.clone())));
    all.fallback_service(pages)
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
    let app = router(web).layer(axum::Extension(live::Ends(stop)));
    axum::serve(listener, app).with_graceful_shutdown(until).await
}

async fn show(State(web): Shared, headers: HeaderMap, uri: Uri) -> Response {
    let Some(session) = web.sessions.of(&headers) else { return to_sign_in(&uri) };
    let wants_json = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| accept.starts_with("application/json"));
    let Some(page) = Page::read(uri.path(), uri.query().unwrap_or("")) else {
        let why = format!("There is no page {}.", uri.path());
        return whole(&web, &session, &Page::Home, uri.path(), &View::Missing(why), StatusCode::NOT_FOUND);
    };
    match made(&web, &session, &page).await {
        Ok(view) => {
            let status =
                if matches!(view, View::Missing(_)) { StatusCode::NOT_FOUND } else { StatusCode::OK };
            match wants_json {
                true => (status, Json(view.json())).into_response(),
                false => whole(&web, &session, &page, uri.path(), &view, status),
            }
        }
        Err(trouble) => trouble_page(&web, &session, &uri, &trouble),
    }
}
