//! Signing in and out, and stopping jobs: writes, each with the user's own token.

use std::sync::PoisonError;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use maud::html;
use serde_json::{Value, json};

use super::{
    answer::{own_path, page_response, see},
    session::{self, Session, form_cookie, is_same, new_form_cookie, secret},
    state::{Shared, Web},
    stopping::{AT_ONCE, MOST_STOPPED, stop_one},
};
use fleet_openpai::server::AskError;
use fleet_pages::{
    html::{Frame, frame, sign_in as sign_in_html},
    pairs::Pairs,
};

/// The form's pairs, if it is one of this session's own.
pub fn checked(session: &Session, body: &Bytes) -> Result<Pairs, Box<Response>> {
    let pairs = Pairs::read(&String::from_utf8_lossy(body));
    if is_same(pairs.get("form_key"), &session.visitor.form_key) {
        return Ok(pairs);
    }
    let why = "form_key: found another one than this session's; allowed: a form of the portal's own pages\n";
    Err(Box::new((StatusCode::FORBIDDEN, why).into_response()))
}

pub async fn sign_in_page(State(web): Shared, headers: HeaderMap, uri: Uri) -> Response {
    let pairs = Pairs::read(uri.query().unwrap_or(""));
    let back = own_path(pairs.get("back"));
    if web.sessions.of(&headers).is_some() {
        return see(back);
    }
    ask_to_sign_in(&headers, back, None, StatusCode::OK)
}

fn ask_to_sign_in(headers: &HeaderMap, back: &str, trouble: Option<&str>, status: StatusCode) -> Response {
    let key = secret();
    let mut response = page_response(sign_in_html(&key, back, trouble), status);
    set_cookie(&mut response, &new_form_cookie(headers, &key));
    response
}

fn set_cookie(response: &mut Response, cookie: &str) {
    if let Ok(value) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(header::SET_COOKIE, value);
    }
}

pub async fn sign_in(State(web): Shared, headers: HeaderMap, body: Bytes) -> Response {
    let pairs = Pairs::read(&String::from_utf8_lossy(&body));
    let back = own_path(pairs.get("back"));
    let refuse = |why: &str, status| ask_to_sign_in(&headers, back, Some(why), status);
    if !form_cookie(&headers).is_some_and(|key| is_same(key, pairs.get("form_key"))) {
        return refuse("The form was too old; here is a new one.", StatusCode::FORBIDDEN);
    }
    let token = pairs.get("token").trim();
    let is_plain = !token.is_empty() && token.chars().all(|c| c.is_ascii_graphic());
    let credential = HeaderValue::from_str(&format!("Bearer {token}")).ok().filter(|_| is_plain);
    let Some(mut credential) = credential else {
        return refuse(
            "Token: found none, or one with spaces in it; allowed: a token of the hub.",
            StatusCode::UNAUTHORIZED,
        );
    };
    credential.set_sensitive(true);
    match user_of(&web, &credential).await {
        Ok(user) => {
            let Ok(session) = web.sessions.begin(user, credential) else {
                let why = "Too many are signed in now. Try again when somebody has signed out.";
                return refuse(why, StatusCode::SERVICE_UNAVAILABLE);
            };
            let mut response = see(back);
            set_cookie(&mut response, &session::session_cookie(&headers, &session));
            response
        }
        Err(AskError::Refused { code: 401 | 403, .. }) => {
            refuse("The hub does not know this token.", StatusCode::UNAUTHORIZED)
        }
        Err(error) => refuse(&error.to_string(), StatusCode::SERVICE_UNAVAILABLE),
    }
}

/// Whose credential it is, as the hub says.
///
/// # Errors
/// The hub knows nobody by it, or does not answer.
pub async fn user_of(web: &Web, credential: &HeaderValue) -> Result<String, AskError> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let server = web.server_of(credential);
    let answer: Value = server.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await?;
    let user = answer["status"]["userInfo"]["username"].as_str().unwrap_or_default();
    match user {
        // An API server that lets anybody in knows nobody by his token.
        "" | "system:anonymous" => {
            Err(AskError::Refused { code: 401, message: "the hub does not know this token".to_owned() })
        }
        user => Ok(user.to_owned()),
    }
}

pub async fn sign_out(State(web): Shared, headers: HeaderMap, body: Bytes) -> Response {
    let Some(session) = web.sessions.of(&headers) else { return see("/sign-in") };
    if let Err(refusal) = checked(&session, &body) {
        return *refusal;
    }
    web.sessions.end(&session);
    let mut response = see("/sign-in");
    set_cookie(&mut response, &session::no_session_cookie(&headers));
    response
}

/// Stops each job that the form names.
pub async fn stop(State(web): Shared, headers: HeaderMap, body: Bytes) -> Response {
    let Some(session) = web.sessions.of(&headers) else { return see("/sign-in") };
    let pairs = match checked(&session, &body) {
        Ok(pairs) => pairs,
        Err(refusal) => return *refusal,
    };
    let (web, session) = (&web, &session);
    let named: Vec<String> = pairs.all("job").take(MOST_STOPPED).map(str::to_owned).collect();
    let asked = stream::iter(named).map(|name| async move {
        stop_one(web, session, &name).await.map_err(|error| format!("{name}: {error}"))
    });
    let answers: Vec<Result<(), String>> = asked.buffered(AT_ONCE).collect().await;
    forget_sight(session);
    let troubles: Vec<String> = answers.into_iter().filter_map(Result::err).collect();
    let back = own_path(pairs.get("back"));
    if troubles.is_empty() {
        return see(back);
    }
    let main = html! {
        h1 { "Not everything was stopped" }
        ul.error { @for trouble in &troubles { li { (trouble) } } }
        p { a href=(back) { "Back" } }
    };
    let of = Frame {
        title: "Not everything was stopped",
        path: "/jobs",
        visitor: Some(&session.visitor),
        is_live: false,
    };
    page_response(frame(&of, main), StatusCode::CONFLICT)
}

/// A first job in a namespace shows that the user may list it.
pub fn forget_sight(session: &Session) {
    *session.rights.seen.lock().unwrap_or_else(PoisonError::into_inner) = None;
}
