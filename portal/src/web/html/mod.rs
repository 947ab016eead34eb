//! Views as HTML. Every text goes through maud, which escapes it; no style and no script stands inside a page.

mod clusters;
mod frame;
mod home;
mod job;
mod jobs;
mod parts;
mod queues;
mod sign_in;
mod submit;
mod virtual_clusters;

use jiff::Timestamp;
use maud::{Markup, html};

pub use frame::{Frame, frame};
use parts::ago;
pub use sign_in::sign_in;

use super::{session::Session, shown::View};
use crate::board::Hub;

/// The part of a page that changes.
pub fn fragment(view: &View, session: &Session, hub: &Hub, is_listed: bool, now: Timestamp) -> Markup {
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
            View::VirtualClusters(view) => (virtual_clusters::virtual_clusters(view)),
            View::Submit(view) => (submit::submit(view, session)),
            View::Missing(why) => { h1 { "Not here" } p { (why) } p { a href="/" { "Home" } } },
        }
    }
}
