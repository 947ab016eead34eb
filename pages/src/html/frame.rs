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

pub fn head(title: &str, styles: &[&str], script: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (title) }
            @for style in styles { link rel="stylesheet" href=(style); }
            link rel="icon" href="/assets/icon.svg" type="image/svg+xml";
            script src=(script) defer {}
        }
    }
}

/// `pages`: paths and names; `here` is the path of the page that is shown.
pub fn navigation(pages: &[(&str, &str)], here: &str) -> Markup {
    html! {
        nav aria-label="Main" {
            ul {
                @for (path, name) in pages {
                    li { a href=(path) aria-current=[is_here(path, here).then_some("page")] { (name) } }
                }
            }
        }
    }
}

pub fn frame(frame: &Frame<'_>, main: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(&format!("{} · Fleet", frame.title), &["/assets/style.css"], "/assets/live.js"))
            body {
                a.skip href="#main" { "Skip to content" }
                header {
                    a.brand href="/" { "Fleet" }
                    @if let Some(visitor) = frame.visitor {
                        (navigation(&NAVIGATION, frame.path))
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
fn is_here(entry: &str, path: &str) -> bool {
    match entry {
        "/" => path == "/",
        entry => path.strip_prefix(entry).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
    }
}
