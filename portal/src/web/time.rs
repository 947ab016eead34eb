//! Pages of a recording: any page of the portal at the instant that its address names.
//!
//! What they show is made from the log alone; the hub is asked only what its user may see. Deliberately absent: forms
//! that write, and what a log does not hold, such as pods, events and YAML.

use std::{collections::BTreeSet, sync::Arc};

use axum::{
    Json, Router,
    extract::{Request, State},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use fleet_views::{Known, QueueRow, Sight};
use http::{HeaderMap, StatusCode, Uri, header};

use super::{
    answer::{page_response, see, to_sign_in, trouble_page},
    assets, guard, rights,
    session::Session,
    state::{Shared, Web},
};
use crate::time::{Moment, Time};
use fleet_pages::{
    html::{
        Frame, frame,
        time::{self as drawn, Recorded},
    },
    page::{JobName, Page},
    pairs::Pairs,
    shown::{JobView, View},
};

/// Waiting jobs of a queue on one page.
const LINE: usize = 200;
/// Nodes of a cluster on one page.
const NODES: usize = 200;

/// Who may see a recording, for which nobody signs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Who is on this machine, and knows it by its address: the page of another site, whose name has come to stand for
    /// this address, reads nothing.
    Machine,
    Anybody,
}

/// The pages of a log and nothing else: no hub, nobody to sign in, nothing to do.
pub fn recording(time: Arc<Time>, audience: Audience) -> Router {
    let pages = Router::new()
        .route("/assets/{name}", get(assets::asset))
        .fallback(get(only))
        .layer(middleware::from_fn(guard::guard))
        .with_state(time);
    match audience {
        Audience::Anybody => pages,
        Audience::Machine => pages.layer(middleware::from_fn(by_address)),
    }
}

async fn by_address(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).map(|host| host.to_str().unwrap_or("?"));
    if host.is_none_or(is_address) {
        return next.run(request).await;
    }
    let allowed = "Host: allowed: the address of this machine, such as 127.0.0.1 or localhost.\n";
    (StatusCode::MISDIRECTED_REQUEST, allowed).into_response()
}

/// Whether a host is named in a way that no other site can have.
fn is_address(host: &str) -> bool {
    let Ok(authority) = host.parse::<http::uri::Authority>() else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.ends_with(".localhost") || name.parse::<std::net::IpAddr>().is_ok()
}

async fn only(State(time): State<Arc<Time>>, headers: HeaderMap, uri: Uri) -> Response {
    let nobody = Looker { sight: &Sight::all(), user: "", has_now: false };
    answer(&time, &nobody, &headers, &uri).await
}

/// The way from a fleet that runs into its log.
pub async fn enter(State(web): Shared, headers: HeaderMap, uri: Uri) -> Response {
    let Some(session) = web.sessions.of(&headers) else { return to_sign_in(&uri) };
    let found = match &web.time {
        Some(time) => looked(time, None).await,
        None => Err(None),
    };
    match found {
        Ok(moment) => see(&format!("/?at={}", moment.around.at_ms)),
        Err(why) => nothing(&session, why.as_deref()),
    }
}

fn nothing(session: &Session, why: Option<&str>) -> Response {
    let of = Frame { title: "Time", path: "/time", visitor: Some(&session.visitor), is_live: false };
    page_response(frame(&of, drawn::none(why)), StatusCode::NOT_FOUND)
}

/// A page at an instant, to who is signed in.
pub async fn show(web: &Web, session: &Session, headers: &HeaderMap, uri: &Uri) -> Response {
    let Some(time) = &web.time else { return nothing(session, None) };
    let reader = time.clone();
    let read = tokio::task::spawn_blocking(move || reader.namespaces()).await;
    // A user may list jobs of a namespace that has none any more.
    let namespaces: BTreeSet<String> = read.unwrap_or_default().into_iter().collect();
    match rights::sight_with(web, session, namespaces).await {
        Ok(sight) => {
            let looker = Looker { sight: &sight, user: &session.label(), has_now: true };
            answer(time, &looker, headers, uri).await
        }
        Err(trouble) => trouble_page(web, session, uri, &trouble),
    }
}

/// Else why there is nothing to see, where that is known.
async fn looked(time: &Arc<Time>, at_ms: Option<i64>) -> Result<Moment, Option<String>> {
    let time = time.clone();
    let found = tokio::task::spawn_blocking(move || time.moment(at_ms).ok_or_else(|| time.trouble())).await;
    found.unwrap_or_else(|error| Err(Some(error.to_string())))
}

/// Who looks at a recording.
struct Looker<'l> {
    sight: &'l Sight,
    /// Name as labels of jobs have it; empty: nobody's.
    user: &'l str,
    /// Whether there is a fleet that runs to go back to.
    has_now: bool,
}

async fn answer(time: &Arc<Time>, looker: &Looker<'_>, headers: &HeaderMap, uri: &Uri) -> Response {
    let Looker { sight, user, has_now } = *looker;
    let query = Pairs::read(uri.query().unwrap_or(""));
    let asked = query.get("at");
    let at_ms = asked.parse::<f64>().ok().filter(|at| at.is_finite()).map(|at| at.round() as i64);
    let mut moment = match looked(time, at_ms).await {
        Ok(moment) => moment,
        Err(why) => {
            let why = why.unwrap_or_else(|| "Nothing has been recorded yet.".to_owned());
            return (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response();
        }
    };
    if !asked.is_empty() && at_ms.is_none() {
        let (begin, end) = (moment.around.begin_ms, moment.around.end_ms);
        let asked: String = asked.chars().take(40).collect();
        moment.notices.insert(
            0,
            format!("at: found {asked:?}; allowed: milliseconds from {begin} to {end}. The end is shown."),
        );
    }
    let page = Page::read(uri.path(), uri.query().unwrap_or(""));
    let title = page.as_ref().map_or_else(|| "Not here".to_owned(), Page::title);
    let view = match &page {
        Some(page) => view(&moment.known, sight, user, page, moment.around.at_ms.div_euclid(1000)),
        None => View::Missing(404, format!("There is no page {}.", uri.path())),
    };
    let status = if matches!(view, View::Missing(..)) { StatusCode::NOT_FOUND } else { StatusCode::OK };
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    if accept.is_some_and(|accept| accept.starts_with("application/json")) {
        return (status, Json(view.json())).into_response();
    }
    // What happened at an instant may be about jobs that this user may not see.
    if *sight != Sight::all() {
        let of = moment.around.number;
        moment.around.stories = vec![format!("{of} events of all users up to here")];
        moment.around.more = 0;
    }
    let log = time.name();
    let recorded = Recorded {
        title: &title,
        path: uri.path(),
        query: &query,
        log: &log,
        around: &moment.around,
        clock: moment.clock,
        notices: &moment.notices,
        has_now,
    };
    page_response(drawn::recorded(&recorded, &view), status)
}

/// What a page shows of what was known then.
fn view(known: &Known, sight: &Sight, user: &str, page: &Page, now_s: i64) -> View {
    match page {
        Page::Home => View::Home(fleet_views::home(known, sight, user, now_s)),
        Page::Queues => View::Queues(fleet_views::queues(known, sight)),
        Page::Queue { path, after } => {
            let after = Some(after.as_str()).filter(|after| !after.is_empty());
            match fleet_views::queue(known, sight, path, after, LINE) {
                Some(view) => View::Queue(Box::new(view)),
                None => View::Missing(404, format!("There was no queue {path} that you may see.")),
            }
        }
        Page::Jobs(query) => View::Jobs(query.clone(), fleet_views::jobs(known, sight, query)),
        Page::Clusters => View::Clusters(fleet_views::cluster_pages(known, sight)),
        Page::Cluster { name, before } => {
            match fleet_views::cluster_page(known, sight, name, *before, NODES) {
                Some(view) => View::Cluster(Box::new(view)),
                None => View::Missing(404, format!("There was no cluster {name} that you may see.")),
            }
        }
        Page::Job(name) => job(known, sight, name, now_s),
        Page::VirtualClusters => View::VirtualClusters(super::promises::recorded(known, sight)),
        Page::Submit(_) => View::Missing(404, "A recording does not have this page.".to_owned()),
    }
}

fn job(known: &Known, sight: &Sight, name: &JobName, now_s: i64) -> View {
    let found = crate::kinds::named(known, name).filter(|job| sight.jobs.has(job.namespace()));
    let Some(job) = found else {
        let (namespace, name) = (&name.namespace, &name.name);
        return View::Missing(
            404,
            format!("There was no job {namespace}/{name} of this kind then, or you may not see it."),
        );
    };
    let row = fleet_views::job_row(known, sight, job);
    let (preempted, more_preempted) = fleet_views::preempted_for(known, sight, job);
    let leaf = row.queue.as_str();
    let above = |queue: &QueueRow| {
        leaf.strip_prefix(queue.path.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let mut view = JobView {
        name: name.clone(),
        position: known.position(&job.id),
        preemptible: job.unit.as_ref().map(|unit| unit.preemptible),
        timeline: Some(fleet_views::timeline(known, sight, job, now_s)),
        preempted,
        more_preempted,
        ..JobView::default()
    };
    if !leaf.is_empty() && !row.state.is_final() {
        view.quota = fleet_views::queues(known, sight).rows.into_iter().filter(above).collect();
    }
    view.row = Some(row);
    View::Job(Box::new(view))
}

#[cfg(test)]
mod tests {
    use super::is_address;

    #[test]
    fn a_name_of_another_site_is_no_address() {
        for own in
            ["127.0.0.1", "127.0.0.1:9286", "[::1]:9286", "localhost", "localhost:80", "fleet.localhost:80"]
        {
            assert!(is_address(own), "{own}");
        }
        for other in
            ["evil.example.com", "127.0.0.1.example.com:9286", "localhost.example.com", "", "?", "a b"]
        {
            assert!(!is_address(other), "{other}");
        }
    }
}
