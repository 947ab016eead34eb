//! Administration: who may do what, and which clusters join. Everything is read and written with the user's own token;
//! what the hub does not let him do has no form.

mod deeds;
pub mod lists;
mod reading;

use axum::{extract::State, response::Response};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri};

use super::{
    act::{checked, forget_sight},
    answer::{page_response, see, to_sign_in, trouble_page},
    rights,
    session::Session,
    state::{Shared, Web},
};
use fleet_openpai::server::AskError;
use fleet_pages::administration::{AdminView, NewToken};
use fleet_pages::{
    form::Trouble,
    html::{Frame, admin as draw, frame},
    pairs::Pairs,
};

const PATH: &str = "/administration";

pub async fn page(State(web): Shared, headers: HeaderMap, uri: Uri) -> Response {
    let Some(session) = web.sessions.of(&headers) else { return to_sign_in(&uri) };
    let joining = Pairs::read(uri.query().unwrap_or("")).get("join").trim().to_owned();
    let shown = read(&web, &session).await.map(|mut view| {
        if !joining.is_empty() {
            match trouble_of(&joining) {
                Some(trouble) => view.troubles.push(trouble),
                None => view.joining = Some(joining),
            }
        }
        let status = if view.troubles.is_empty() { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
        drawn(&session, &view, status)
    });
    shown.unwrap_or_else(|error| trouble_page(&web, &session, &uri, &error))
}

pub async fn post(State(web): Shared, headers: HeaderMap, uri: Uri, body: Bytes) -> Response {
    let Some(session) = web.sessions.of(&headers) else { return to_sign_in(&uri) };
    let form = match checked(&session, &body) {
        Ok(form) => form,
        Err(refusal) => return *refusal,
    };
    let done = deeds::run(&web.server_of(&session.credential), &form).await;
    forget_sight(&session);
    let (status, token, troubles): (_, Option<NewToken>, Vec<Trouble>) = match done {
        Ok(None) => return see(PATH),
        Ok(token) => (StatusCode::OK, token, Vec::new()),
        Err(troubles) => (StatusCode::UNPROCESSABLE_ENTITY, None, troubles),
    };
    let shown = read(&web, &session).await;
    let shown = shown.map(|view| drawn(&session, &AdminView { token, troubles, ..view }, status));
    shown.unwrap_or_else(|error| trouble_page(&web, &session, &uri, &error))
}

async fn read(web: &Web, session: &Session) -> Result<AdminView, AskError> {
    let sight = rights::sight(web, session).await?;
    reading::read(web, session, &sight).await
}

fn drawn(session: &Session, view: &AdminView, status: StatusCode) -> Response {
    let of = Frame { title: "Administration", path: PATH, visitor: Some(&session.visitor), is_live: false };
    page_response(frame(&of, draw(view, &session.visitor)), status)
}

/// The name goes into a command, and becomes part of a namespace's.
fn trouble_of(cluster: &str) -> Option<Trouble> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let is_name = cluster.len() <= 57
        && cluster.chars().all(fits)
        && edge(cluster.chars().next())
        && edge(cluster.chars().last())
        && !matches!(cluster, "hub" | "system");
    let allowed = "1 to 57 lower-case letters, digits and -, and neither hub nor system";
    (!is_name).then(|| Trouble::new("join", format!("Cluster: found {cluster:?}; allowed: {allowed}")))
}

#[cfg(test)]
mod tests {
    use super::trouble_of;

    #[test]
    fn a_name_in_a_command_is_a_name() {
        assert!(trouble_of("east-1").is_none());
        for odd in ["", "-x", "x-", "East", "hub", "system", "a;rm -rf", "a b", "$(x)", &"x".repeat(58)] {
            assert!(trouble_of(odd).is_some_and(|trouble| trouble.message.contains("allowed")), "{odd}");
        }
    }
}
