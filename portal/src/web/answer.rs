//! Whole answers: pages, and where the browser goes next.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, Uri, header};
use jiff::Timestamp;
use maud::{Markup, html};

use super::{rights, session::Session, state::Web, view};
use fleet_openpai::server::AskError;
use fleet_pages::{
    html as pages,
    html::{Frame, frame},
    page::Page,
    pairs::link,
    shown::View,
};

/// What a page shows to the user of a session.
pub async fn made(web: &Web, session: &Session, page: &Page) -> Result<View, AskError> {
    let sight = rights::sight(web, session).await?;
    view::view(web, session, &sight, page, Timestamp::now()).await
}

/// The hub no longer knows the token, or does not answer and has never said what this user may see.
pub fn trouble_page(web: &Web, session: &Session, uri: &Uri, trouble: &AskError) -> Response {
    if matches!(trouble, AskError::Refused { code: 401, .. }) {
        web.sessions.end(session);
        return to_sign_in(uri);
    }
    let main = html! {
        h1 { "The hub does not answer" }
        p.banner role="alert" { (trouble) }
        p { "Nothing can be shown until it does. " a href=(uri) { "Try again" } }
    };
    let frame_of = Frame {
        title: "The hub does not answer",
        path: uri.path(),
        visitor: Some(&session.visitor),
        is_live: false,
    };
    let mut response = page_response(frame(&frame_of, main), StatusCode::SERVICE_UNAVAILABLE);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

pub fn whole(
    web: &Web,
    session: &Session,
    page: &Page,
    path: &str,
    view: &View,
    status: StatusCode,
) -> Response {
    let main = fragment(web, Some(session), view);
    let title = page.title();
    let is_live = page.is_live() && status == StatusCode::OK;
    page_response(
        frame(&Frame { title: &title, path, visitor: Some(&session.visitor), is_live }, main),
        status,
    )
}

/// Without a session: as it is sent to all who see the same. Forms that are sent so have the key beside them in the page.
pub fn fragment(web: &Web, session: Option<&Session>, view: &View) -> Markup {
    let (hub, is_listed) = (web.board.hub(), web.board.is_listed());
    pages::fragment(view, session.map(|session| &session.visitor), &hub, is_listed, Timestamp::now())
}

pub fn page_response(markup: Markup, status: StatusCode) -> Response {
    let content_type = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
    (status, content_type, markup.into_string()).into_response()
}

/// After signing in the browser goes on to where it was.
pub fn to_sign_in(uri: &Uri) -> Response {
    let back = uri.path_and_query().map_or("/", |path| path.as_str());
    see(&link("/sign-in", &[("back", if back == "/" { "" } else { back })]))
}

/// Sends the browser to another page with GET.
pub fn see(path: &str) -> Response {
    (StatusCode::SEE_OTHER, [(header::LOCATION, path.to_owned())]).into_response()
}

/// A page of this portal, and no other site's.
pub fn own_path(text: &str) -> &str {
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
