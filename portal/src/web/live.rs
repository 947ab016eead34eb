//! Pages that change by themselves: server-sent events with the part of a page that changed.
//!
//! A viewer costs one task that waits for news of the board and makes the page again, at most once a second and only
//! when its browser has taken in what was sent before.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::State,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures::{Stream, stream};
use http::{HeaderMap, StatusCode, Uri};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    answer::{fragment, made},
    page::Page,
    pairs::Pairs,
    session::Session,
    shown::View,
    state::{Shared, Web},
};
use crate::server::AskError;

/// Between two changes of a page.
const PAUSE: Duration = Duration::from_secs(1);
/// What changes by the clock alone is made again so often.
const CLOCK: Duration = Duration::from_secs(15);
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// The server is about to end: streams end with it.
#[derive(Clone)]
pub struct Ends(pub CancellationToken);

pub async fn live(
    State(web): Shared,
    ends: Option<Extension<Ends>>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let Some(session) = web.sessions.of(&headers) else { return StatusCode::UNAUTHORIZED.into_response() };
    let pairs = Pairs::read(uri.query().unwrap_or(""));
    let wanted = pairs.get("page");
    let (path, query) = wanted.split_once('?').unwrap_or((wanted, ""));
    let Some(page) = Page::read(path, query).filter(Page::is_live) else {
        return (StatusCode::NOT_FOUND, "There is no such page.\n").into_response();
    };
    let stop = ends.map_or_else(CancellationToken::new, |Extension(Ends(stop))| stop);
    let news = web.board.news();
    let viewer = Viewer { web, session, page, news, stop, shown: String::new(), key: None, last: None };
    Sse::new(viewer.events()).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

struct Viewer {
    web: Arc<Web>,
    session: Arc<Session>,
    page: Page,
    news: watch::Receiver<u64>,
    stop: CancellationToken,
    /// What the browser has.
    shown: String,
    /// By what a job's page was made last.
    key: Option<String>,
    last: Option<Instant>,
}

impl Viewer {
    fn events(self) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(Some(self), |viewer| async move {
            let mut viewer = viewer?;
            match viewer.next().await {
                Some(Told::Page(text)) => Some((Ok(Event::default().event("page").data(text)), Some(viewer))),
                // The browser asks for the page again, and is asked to sign in.
                Some(Told::Over) => Some((Ok(Event::default().event("over").data("over")), None)),
                None => None,
            }
        })
    }

    async fn next(&mut self) -> Option<Told> {
        loop {
            if let Some(last) = self.last {
                let stop = self.stop.clone();
                let waited = stop.run_until_cancelled(async {
                    tokio::time::sleep_until(last + PAUSE).await;
                    let _ = tokio::time::timeout_at(last + CLOCK, self.news.changed()).await;
                });
                waited.await?;
            }
            if !self.web.sessions.has(&self.session) {
                return Some(Told::Over);
            }
            if self.is_same_job() {
                self.last = Some(Instant::now());
                continue;
            }
            self.news.mark_unchanged();
            self.last = Some(Instant::now());
            let view = match made(&self.web, &self.session, &self.page).await {
                Ok(view) => view,
                Err(AskError::Refused { code: 401, .. }) => {
                    self.web.sessions.end(&self.session);
                    return Some(Told::Over);
                }
                Err(error) => View::Missing(error.to_string()),
            };
            let text = fragment(&self.web, &self.session, &view).into_string();
            if text != self.shown {
                self.shown.clone_from(&text);
                return Some(Told::Page(text));
            }
        }
    }

    /// A job's page asks the hub; news of other jobs are no reason to.
    fn is_same_job(&mut self) -> bool {
        let Page::Job(name) = &self.page else { return false };
        let Some((api_version, kind)) = crate::kinds::of_resource(&name.resource) else { return false };
        let id = (name.namespace.clone(), fleet_api::names::binding_name(&api_version, &kind, &name.name));
        let known = self.web.board.known();
        let job = known.job(&id);
        // What it waits for changes with others.
        let of_others = job.filter(|job| job.state() == fleet_views::State::Waiting).map(|_| known.version());
        let key = format!("{job:?} {of_others:?} {:?}", self.web.board.hub());
        drop(known);
        // A job without a binding is known to the hub alone.
        let is_same = job_is_known(&key) && self.key.as_ref() == Some(&key);
        let is_due = self.last.is_none_or(|last| last.elapsed() >= CLOCK);
        self.key = Some(key);
        is_same && !is_due
    }
}

fn job_is_known(key: &str) -> bool {
    !key.starts_with("None")
}

enum Told {
    Page(String),
    Over,
}
