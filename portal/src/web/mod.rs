//! Pages for people in a browser.
//!
//! A user signs in with a token of the hub. Pages are made from what the board follows for all, cut to what the hub
//! lets this user list; what one job's page shows beyond that, and every write, goes to the hub with the user's own
//! token. Pages hold no scripts and no styles of their own, and every form carries the session's key. Deliberately
//! absent: users and rights of the portal's own.

mod act;
mod assets;
mod form;
mod guard;
mod html;
mod live;
mod page;
mod pairs;
mod pods;
mod rights;
mod session;
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
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use jiff::Timestamp;
use maud::{Markup, html};

pub use state::Web;

use crate::{
    rest::{self, Portal},
    server::AskError,
};
use html::{Frame, frame};
use page::Page;
use session::Session;
use view::View;

/// Largest form: a job file with its configuration.
const FORM_MAX: usize = 1024 * 1024;

type Shared = State<Arc<Web>>;

/// Pages, and OpenPAI's REST API under `/api/v2`.
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
    Router::new().route("/api/v2/{*rest}", any_service(rest::router(portal))).fallback_service(pages)
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

/// What a page shows to the user of a session.
async fn made(web: &Web, session: &Session, page: &Page) -> Result<View, AskError> {
    let sight = rights::sight(web, session).await?;
    view::view(web, session, &sight, page, Timestamp::now()).await
}

/// The hub no longer knows the token, or does not answer and has never said what this user may see.
fn trouble_page(web: &Web, session: &Session, uri: &Uri, trouble: &AskError) -> Response {
    if matches!(trouble, AskError::Refused { code: 401, .. }) {
        web.sessions.end(session);
        return to_sign_in(uri);
    }
    let main = html! {
        h1 { "The hub does not answer" }
        p.banner role="alert" { (trouble) }
        p { "Nothing can be shown until it does. " a href=(uri) { "Try again" } }
    };
    let frame_of =
        Frame { title: "The hub does not answer", path: uri.path(), session: Some(session), is_live: false };
    let mut response = page_response(frame(&frame_of, main), StatusCode::SERVICE_UNAVAILABLE);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

fn whole(web: &Web, session: &Session, page: &Page, path: &str, view: &View, status: StatusCode) -> Response {
    let main = fragment(web, session, page, view);
    let title = page.title();
    let is_live = page.is_live() && status == StatusCode::OK;
    page_response(frame(&Frame { title: &title, path, session: Some(session), is_live }, main), status)
}

fn fragment(web: &Web, session: &Session, page: &Page, view: &View) -> Markup {
    let (hub, is_listed) = (web.board.hub(), web.board.is_listed());
    html::fragment(view, page, session, &hub, is_listed, Timestamp::now())
}

fn page_response(markup: Markup, status: StatusCode) -> Response {
    let content_type = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
    (status, content_type, markup.into_string()).into_response()
}

/// After signing in the browser goes on to where it was.
fn to_sign_in(uri: &Uri) -> Response {
    let back = uri.path_and_query().map_or("/", |path| path.as_str());
    see(&pairs::link("/sign-in", &[("back", if back == "/" { "" } else { back })]))
}

/// Sends the browser to another page with GET.
fn see(path: &str) -> Response {
    (StatusCode::SEE_OTHER, [(header::LOCATION, path.to_owned())]).into_response()
}

/// A page of this portal, and no other site's.
fn own_path(text: &str) -> &str {
    let is_own = text.starts_with('/')
        && !text.starts_with("//")
        && !text.contains('\\')
        && !text.chars().any(char::is_control);
    if is_own { text } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::own_path;

    #[test]
    fn nobody_is_sent_to_another_site() {
        for other in
            ["//evil.example.com", "https://evil.example.com", "/\\evil.example.com", "", "jobs", "/a\nb"]
        {
            assert_eq!(own_path(other), "/", "{other:?}");
        }
        assert_eq!(own_path("/jobs?a=b"), "/jobs?a=b");
    }
}
