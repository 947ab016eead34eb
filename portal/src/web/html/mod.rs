//! Views as HTML. Every text goes through maud, which escapes it; no style and no script stands inside a page.

mod clusters;
mod home;
mod job;
mod jobs;
mod queues;
mod sign_in;
mod submit;

use fleet_views::{Bar, JobRow, State, age};
use jiff::Timestamp;
use maud::{DOCTYPE, Markup, html};

pub use sign_in::sign_in;

use super::{
    page::{JobName, Page, queue_link},
    session::Session,
    view::View,
};
use crate::board::Hub;

const NAVIGATION: [(&str, &str); 5] = [
    ("/", "Home"),
    ("/queues", "Queues"),
    ("/jobs", "Jobs"),
    ("/clusters", "Clusters"),
    ("/submit", "Submit"),
];

/// What stands around every page.
pub struct Frame<'f> {
    pub title: &'f str,
    /// Of the page in the navigation.
    pub path: &'f str,
    pub session: Option<&'f Session>,
    pub is_live: bool,
}

pub fn frame(frame: &Frame<'_>, main: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (frame.title) " · Fleet" }
                link rel="stylesheet" href="/assets/style.css";
                link rel="icon" href="/assets/icon.svg" type="image/svg+xml";
                script src="/assets/live.js" defer {}
            }
            body {
                a.skip href="#main" { "Skip to content" }
                header {
                    a.brand href="/" { "Fleet" }
                    @if let Some(session) = frame.session {
                        nav aria-label="Main" {
                            ul {
                                @for (path, name) in NAVIGATION {
                                    li { a href=(path) aria-current=[is_here(path, frame.path).then_some("page")] { (name) } }
                                }
                            }
                        }
                        form.user method="post" action="/sign-out" {
                            span { "Signed in as " b { (session.user) } }
                            (form_key(session))
                            button { "Sign out" }
                        }
                    }
                }
                main #main tabindex="-1" data-live=[frame.is_live.then_some("")] { (main) }
            }
        }
    }
}

fn is_here(entry: &str, path: &str) -> bool {
    match entry {
        "/" => path == "/",
        entry => path.strip_prefix(entry).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
    }
}

/// Shows that a form is the portal's own.
fn form_key(session: &Session) -> Markup {
    html! { input type="hidden" name="form_key" value=(session.form_key); }
}

/// The part of a page that changes.
pub fn fragment(
    view: &View,
    page: &Page,
    session: &Session,
    hub: &Hub,
    is_listed: bool,
    now: Timestamp,
) -> Markup {
    let now_s = now.as_second();
    html! {
        div #hub-state role="status" {
            @match hub {
                Hub::Away { since, why } => p.banner {
                    "The hub has not answered for " (ago(since.as_second(), now_s)) " (" (why) "). What you see is what was known then; it goes on by itself when the hub is back."
                },
                Hub::Up if !is_listed => p.banner { "The portal has not heard of everything yet." },
                Hub::Up => {},
            }
        }
        @match view {
            View::Home(view) => (home::home(view, now_s)),
            View::Queues(view) => (queues::queues(view)),
            View::Queue(view) => (queues::queue(view, now_s)),
            View::Jobs(query, view) => (jobs::jobs(query, view, session, now_s)),
            View::Job(view) => (job::job(view, session, now_s)),
            View::Clusters(view) => (clusters::clusters(view, now_s)),
            View::Submit(view) => (submit::submit(view, session)),
            View::Missing(why) => { h1 { "Not here" } p { (why) } p { a href="/" { "Home" } } },
        }
    }
}

/// The time since then; the script keeps it true.
fn ago(then_s: i64, now_s: i64) -> Markup {
    let full = Timestamp::from_second(then_s).map(|time| time.to_string()).unwrap_or_default();
    html! { time datetime=(full) title=(full) data-since=(then_s) { (age::human((now_s - then_s).max(0))) } }
}

fn duration(seconds: i64) -> String {
    age::human(seconds.max(0))
}

fn state_badge(state: State) -> Markup {
    let class = format!("badge {}", state.as_str().to_lowercase());
    html! { span class=(class) { (state.as_str()) } }
}

fn job_link(row: &JobRow) -> Markup {
    let name = JobName::new(&row.namespace, &row.resource, &row.name);
    html! { a href=(name.link()) { (row.namespace) "/" wbr; (row.name) } }
}

/// A reason with its meaning and the sentence of this case.
fn reason(reason: &str, message: &str) -> Markup {
    let meaning = fleet_policies::reason::Reason::from_text(reason).map(|reason| reason.describe());
    html! {
        @if !reason.is_empty() { span.reason title=[meaning] { (reason) } " " }
        @if !message.is_empty() { span.message { (message) } }
    }
}

fn queue_name(path: &str) -> Markup {
    html! { @if path.is_empty() { "-" } @else { a href=(queue_link(path)) { (path) } } }
}

fn bar(bar: &Bar) -> Markup {
    let amount = if bar.max == "unlimited" { bar.used.clone() } else { format!("{}/{}", bar.used, bar.max) };
    html! {
        div.bar {
            span.what { (bar.label) }
            svg viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-label=(bar.text) {
                title { (bar.text) }
                rect.track width="1000" height="10" {}
                @if bar.lent_length > 0 {
                    rect.lent x=((bar.min_mark - bar.lent_length).max(0)) width=(bar.lent_length) height="10" {}
                }
                rect.own width=(bar.own_length) height="10" {}
                @if bar.borrowed_length > 0 { rect.borrowed x=(bar.own_length) width=(bar.borrowed_length) height="10" {} }
                @if bar.min_mark > 0 && bar.min_mark < 1000 { rect.mark x=(bar.min_mark - 2) width="4" height="10" {} }
            }
            span.amount { (amount) }
        }
    }
}

fn bars(all: &[Bar]) -> Markup {
    html! { div.bars { @for one in all { (bar(one)) } @if all.is_empty() { span.quiet { "nothing bounded, nothing used" } } } }
}
