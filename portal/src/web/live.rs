//! Pages that change by themselves: server-sent events with the part of a page that changed.
//!
//! A viewer costs one stream that waits for the page's task and sends what was made for all who see the same, and only
//! when its browser has taken in what was sent before. Whenever it is woken it asks whether its user may still see it.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Extension,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use fleet_views::Sight;
use futures::{Stream, stream};
use http::{HeaderMap, StatusCode, Uri, header};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    drawings::Drawing,
    drawn::watch_page,
    metrics::Viewing,
    rights,
    session::{Followed, Session},
    state::{Shared, Web},
    watched::{Shown, Watched},
};
use fleet_openpai::server::AskError;
use fleet_pages::{page::Page, pairs::Pairs};

/// After an answer of the hub that was none.
const TRY_AGAIN: Duration = Duration::from_secs(3);
/// Viewers at a time; each has a connection and at most two frames.
const MOST_VIEWERS: i64 = 4_000;

/// The browser asks for the page again, and is asked to sign in.
const OVER: Bytes = Bytes::from_static(b"event: over\ndata: over\n\n");
const STILL_THERE: Bytes = Bytes::from_static(b":\n\n");

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
    if web.metrics.viewers() >= MOST_VIEWERS {
        let why = format!("{MOST_VIEWERS} pages are kept up to date already; this one is not.\n");
        return (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "60")], why).into_response();
    }
    let Some(followed) = session.follow() else {
        let why =
            "As many pages as one user may have open are kept up to date for you already; this one is not.\n";
        return (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "60")], why).into_response();
    };
    let stop = ends.map_or_else(CancellationToken::new, |Extension(Ends(stop))| stop);
    let viewing = web.metrics.viewer();
    let viewer = Viewer {
        web,
        session,
        page,
        stop,
        _viewing: viewing,
        _followed: followed,
        watching: None,
        has: None,
    };
    let content_type = [(header::CONTENT_TYPE, "text/event-stream")];
    (content_type, Body::from_stream(viewer.frames())).into_response()
}

struct Viewer {
    web: Arc<Web>,
    session: Arc<Session>,
    page: Page,
    stop: CancellationToken,
    _viewing: Viewing,
    _followed: Followed,
    watching: Option<Watching>,
    /// What the browser has.
    has: Option<Arc<Drawing>>,
}

/// The page, as a user with these rights sees it.
struct Watching {
    sight: Arc<Sight>,
    watched: Arc<Watched>,
    shown: watch::Receiver<Shown>,
}

impl Viewer {
    fn frames(self) -> impl Stream<Item = Result<Bytes, Infallible>> {
        let session = self.session.clone();
        // One for the whole stream: it has a timer, which would be set anew with each frame.
        let ended = Box::pin(async move { session.ended().await });
        stream::unfold(Some((self, ended)), |state| async move {
            let (mut viewer, mut ended) = state?;
            let frame = tokio::select! {
                biased;
                () = &mut ended => Some(OVER),
                frame = viewer.next() => frame,
            }?;
            let goes_on = frame != OVER;
            Some((Ok(frame), goes_on.then_some((viewer, ended))))
        })
    }

    async fn next(&mut self) -> Option<Bytes> {
        let mut is_woken = false;
        loop {
            if let Some(watching) = &mut self.watching {
                let _waits = watching.watched.wait();
                // Else the portal ends; or the page could not be drawn, and the browser comes again.
                watching.shown.changed().await.ok()?;
                is_woken = true;
            }
            // After each wait, before anything is shown.
            let sight = match self.sight().await? {
                Ok(sight) => sight,
                Err(over) => return Some(over),
            };
            let watching = self.watching.take().filter(|watching| watching.sight == sight);
            let watching = watching.unwrap_or_else(|| self.watch(sight));
            let watching = self.watching.insert(watching);
            let shown = watching.shown.borrow_and_update().clone();
            match shown {
                Shown::Over => return Some(self.over()),
                Shown::Drawing(drawing) => {
                    if let Some(frame) = drawing.frame(self.has.as_deref()) {
                        self.has = Some(drawing);
                        self.web.metrics.sent();
                        return Some(frame);
                    }
                }
                Shown::Nothing => {}
            }
            if is_woken {
                return Some(STILL_THERE);
            }
        }
    }

    /// What the user may see now, or the last frame; `None` if the portal ends.
    async fn sight(&self) -> Option<Result<Arc<Sight>, Bytes>> {
        loop {
            if !self.session.goes_on() {
                return Some(Err(OVER));
            }
            match rights::sight(&self.web, &self.session).await {
                Ok(sight) => return Some(Ok(sight)),
                Err(AskError::Refused { code: 401, .. }) => return Some(Err(self.over())),
                // The page says by itself what the board knows of it: what was shown stays.
                Err(_) => self.stop.run_until_cancelled(tokio::time::sleep(TRY_AGAIN)).await?,
            }
        }
    }

    fn watch(&self, sight: Arc<Sight>) -> Watching {
        let watched = watch_page(&self.web, &self.session, &self.page, &sight, &self.stop);
        let shown = watched.shown();
        Watching { sight, watched, shown }
    }

    fn over(&self) -> Bytes {
        self.web.sessions.end(&self.session);
        OVER
    }
}
