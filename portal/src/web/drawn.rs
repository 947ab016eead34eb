//! Draws pages that somebody looks at: each by one task for all who see the same.
//!
//! The task draws when the board has news, at most once a [`PAUSE`], and while a viewer waits for it. It wakes the
//! viewers when the page has changed and every [`CLOCK`], so that a viewer has no timer of its own and costs the
//! sending alone. It ends with its last viewer.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use fleet_openpai::server::AskError;
use fleet_views::{Namespaces, Sight, State};
use jiff::Timestamp;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    answer::fragment,
    drawings::Drawing,
    session::Session,
    state::Web,
    view,
    watched::{Demand, Key, Sender, Shown, Watched},
};
use fleet_pages::{page::Page, shown::View};

/// Between two changes of a page.
pub const PAUSE: Duration = Duration::from_secs(1);
/// What changes by the clock alone is made again so often. Proxies close a connection that is silent for longer.
pub const CLOCK: Duration = Duration::from_secs(15);

/// The page as this session's user may see it, drawn until its last viewer has gone or `stop`.
pub fn watch_page(
    web: &Arc<Web>,
    session: &Arc<Session>,
    page: &Page,
    sight: &Arc<Sight>,
    stop: &CancellationToken,
) -> Arc<Watched> {
    let asks_hub = matches!(page, Page::Job(_));
    let credential = asks_hub.then(|| session.credential.as_bytes().to_vec());
    let user = matches!(page, Page::Home).then(|| session.label());
    let key = Key { page: format!("{page:?}"), sight: sight.clone(), user, credential };
    let (watched, sender) = web.drawn.page(key);
    let Some(Sender { shown, demand }) = sender else { return watched };
    let task = Task {
        news: web.board.news(),
        web: web.clone(),
        session: session.clone(),
        page: page.clone(),
        sight: sight.clone(),
        demand,
        namespaces: BTreeSet::new(),
        before: None,
    };
    let stop = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = shown.closed() => {}
            () = task.run(&shown) => {}
        }
    });
    watched
}

/// Draws one page.
struct Task {
    web: Arc<Web>,
    /// Of the first viewer; all have its credential where the hub is asked.
    session: Arc<Session>,
    page: Page,
    sight: Arc<Sight>,
    demand: Arc<Demand>,
    news: watch::Receiver<u64>,
    /// Those with jobs or a queue. Who may list one that comes is for the viewer to ask.
    namespaces: BTreeSet<String>,
    before: Option<Arc<Drawing>>,
}

impl Task {
    async fn run(mut self, sender: &watch::Sender<Shown>) {
        loop {
            self.demand.is_there().await;
            let at = Instant::now();
            // Before the view is made: what comes meanwhile is news.
            self.news.borrow_and_update();
            let of = self.of_job();
            let text = match self.draw().await {
                Ok(text) => text,
                Err(_) => {
                    sender.send_replace(Shown::Over);
                    return;
                }
            };
            self.web.metrics.drew();
            if let Some(drawing) = self.web.drawn.numbers.next(self.before.as_deref(), text) {
                self.before = Some(drawing.clone());
                sender.send_replace(Shown::Drawing(drawing));
            } else if self.has_new_namespaces() {
                sender.send_modify(|_| {});
            }
            if self.until_due(at, of).await == Due::ByClock {
                sender.send_modify(|_| {});
            }
        }
    }

    /// # Errors
    /// The hub does not know the user any more.
    async fn draw(&self) -> Result<String, AskError> {
        let (web, session, page) = (&self.web, &self.session, &self.page);
        let view = match view::view(web, session, &self.sight, page, Timestamp::now()).await {
            Ok(view) => view,
            Err(error @ AskError::Refused { code: 401, .. }) => return Err(error),
            Err(error) => View::Missing(error.status(), error.to_string()),
        };
        Ok(fragment(web, None, &view).into_string())
    }

    /// Until what was drawn then has to be drawn again.
    async fn until_due(&mut self, at: Instant, of: Option<String>) -> Due {
        let mut looked = at;
        loop {
            tokio::time::sleep_until(looked + PAUSE).await;
            // The board lives as long as this task.
            if tokio::time::timeout_at(at + CLOCK, self.news.changed()).await.is_err() {
                return Due::ByClock;
            }
            looked = Instant::now();
            if of.is_none() || of != self.of_job() {
                return Due::ByNews;
            }
        }
    }

    fn has_new_namespaces(&mut self) -> bool {
        if self.sight.jobs == Namespaces::All {
            return false;
        }
        let known = self.web.board.known();
        let is_new = known.namespaces().any(|name| !self.namespaces.contains(name));
        if is_new {
            self.namespaces = known.namespaces().cloned().collect();
        }
        is_new
    }

    /// What the board knows of a job whose page this is: news of other jobs are no reason to ask the hub again. None:
    /// of another page, or of a job that the hub alone knows.
    fn of_job(&self) -> Option<String> {
        let Page::Job(name) = &self.page else { return None };
        let (api_version, kind) = crate::kinds::of_resource(&name.resource)?;
        let id = (name.namespace.clone(), fleet_api::names::binding_name(&api_version, &kind, &name.name));
        let known = self.web.board.known();
        let job = known.job(&id)?;
        // What it waits for changes with others.
        let of_others = (job.state() == State::Waiting).then(|| known.version());
        Some(format!("{job:?} {of_others:?} {:?}", self.web.board.hub()))
    }
}

/// Why a page is drawn again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    ByNews,
    ByClock,
}
