//! Views as HTML. Every text goes through maud, which escapes it; no style and no script stands inside a page.

mod admin;
mod clusters;
mod configuration;
mod frame;
mod home;
mod job;
mod jobs;
mod parts;
mod queues;
mod sign_in;
mod submit;
pub mod time;
mod virtual_clusters;

use jiff::Timestamp;
use maud::{Markup, html};

pub use admin::admin;
pub use configuration::configuration;
pub use frame::{Frame, frame};
use parts::{BY_SCRIPT, ago};
pub use sign_in::sign_in;

use crate::shown::{Hub, View, Visitor};

/// The part of a page that changes.
pub fn fragment(
    view: &View,
    visitor: Option<&Visitor>,
    hub: &Hub,
    is_listed: bool,
    now: Timestamp,
) -> Markup {
    // What all viewers share changes only where the fleet does: their browsers write the ages.
    let now_s = if visitor.is_some() { now.as_second() } else { BY_SCRIPT };
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
            View::Jobs(query, view) => (jobs::jobs(query, view, now_s)),
            View::Job(view) => (job::job(view, now_s)),
            View::Clusters(view) => (clusters::clusters(view, now_s)),
            View::Cluster(view) => (clusters::alone(view, now_s)),
            View::VirtualClusters(view) => (virtual_clusters::virtual_clusters(view)),
            View::Submit(view) => (submit::submit(view, visitor)),
            View::Missing(_, why) => { h1 { "Not here" } p { (why) } p { a href="/" { "Home" } } },
        }
    }
}
