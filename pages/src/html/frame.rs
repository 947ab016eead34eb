//! What stands around every page.

use maud::{DOCTYPE, Markup, html};

use super::parts::{STOP_FORM, form_key};
use crate::shown::Visitor;

const NAVIGATION: [(&str, &str); 8] = [
    ("/", "Home"),
    ("/queues", "Queues"),
    ("/jobs", "Jobs"),
    ("/clusters", "Clusters"),
    ("/virtual-clusters", "Virtual clusters"),
    ("/submit", "Submit"),
    ("/administration", "Administration"),
    ("/time", "Time"),
];

/// Of one page.
pub struct Frame<'f> {
    pub title: &'f str,
    /// Of the page in the navigation.
    pub path: &'f str,
    pub visitor: Option<&'f Visitor>,
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
                    @if let Some(visitor) = frame.visitor {
                        nav aria-label="Main" {
                            ul {
                                @for (path, name) in NAVIGATION {
                                    li { a href=(path) aria-current=[is_here(path, frame.path).then_some("page")] { (name) } }
                                }
                            }
                        }
                        form.user method="post" action="/sign-out" {
                            span { "Signed in as " b { (visitor.user) } }
                            (form_key(frame.visitor))
                            button { "Sign out" }
                        }
                    }
                }
                @if let Some(visitor) = frame.visitor {
                    input type="hidden" form=(STOP_FORM) name="form_key" value=(visitor.form_key);
                }
                main #main tabindex="-1" data-live=[frame.is_live.then_some("")] { (main) }
            }
        }
    }
}

/// Whether the page belongs to this entry of the navigation.
pub fn is_here(entry: &str, path: &str) -> bool {
    match entry {
        "/" => path == "/",
        entry => path.strip_prefix(entry).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
    }
}
