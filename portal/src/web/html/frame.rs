//! What stands around every page.

use maud::{DOCTYPE, Markup, html};

use super::parts::form_key;
use crate::web::session::Session;

const NAVIGATION: [(&str, &str); 6] = [
    ("/", "Home"),
    ("/queues", "Queues"),
    ("/jobs", "Jobs"),
    ("/clusters", "Clusters"),
    ("/virtual-clusters", "Virtual clusters"),
    ("/submit", "Submit"),
];

/// Of one page.
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
