//! Pages of a recording: the same as of a fleet that runs, with a way through time and without anything to do.
//!
//! Links of these pages keep the instant. They are rewritten in the finished text: pages know nothing of time.

use fleet_views::log::{Around, Clock};
use jiff::Timestamp;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{
    clusters,
    frame::{head, navigation},
    home, job, jobs, queues, virtual_clusters,
};
use crate::{pairs::Pairs, shown::View};

const NAVIGATION: [(&str, &str); 5] = [
    ("/", "Home"),
    ("/queues", "Queues"),
    ("/jobs", "Jobs"),
    ("/clusters", "Clusters"),
    ("/virtual-clusters", "Virtual clusters"),
];

/// Of one page of a recording.
pub struct Recorded<'r> {
    pub title: &'r str,
    pub path: &'r str,
    /// What the page was asked for besides the instant.
    pub query: &'r Pairs,
    /// Name of the log.
    pub log: &'r str,
    pub around: &'r Around,
    pub clock: Clock,
    /// What the reader must know of the log.
    pub notices: &'r [String],
    /// Whether there is a fleet that runs to go back to.
    pub has_now: bool,
}

pub fn recorded(page: &Recorded<'_>, view: &View) -> Markup {
    let at = page.around.at_ms;
    let title = format!("{} · recording · Fleet", page.title);
    let nav = navigation(&NAVIGATION, page.path);
    let main = html! {
        @for notice in page.notices { p.banner { (notice) } }
        (part(view, at.div_euclid(1000)))
    };
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(&title, &["/assets/style.css", "/assets/time.css"], "/assets/time.js"))
            body {
                a.skip href="#main" { "Skip to content" }
                header {
                    (at_instant(html! { a.brand href="/" { "Fleet" } (nav) }, at, page.clock))
                    @if page.has_now { a.button.now href=(page.path) { "Back to now" } }
                }
                (bar(page))
                main #main tabindex="-1" { (at_instant(main, at, page.clock)) }
            }
        }
    }
}

fn part(view: &View, now_s: i64) -> Markup {
    match view {
        View::Home(view) => home::recorded(view, now_s),
        View::Queues(view) => queues::queues(view),
        View::Queue(view) => queues::queue(view, now_s),
        View::Jobs(query, view) => jobs::recorded(query, view, now_s),
        View::Job(view) => job::shown(view, now_s),
        View::Clusters(view) => clusters::clusters(view, now_s),
        View::Cluster(view) => clusters::alone(view, now_s),
        View::Missing(_, why) => html! { h1 { "Not here" } p { (why) } p { a href="/" { "Home" } } },
        View::VirtualClusters(view) => virtual_clusters::virtual_clusters(view),
        View::Submit(_) => {
            html! { h1 { "Not here" } p { "A recording does not have this page." } }
        }
    }
}

/// The slider, and what happened at the instant.
fn bar(page: &Recorded<'_>) -> Markup {
    let (around, clock) = (page.around, page.clock);
    let text = |at_ms: i64| clock_text(clock, at_ms);
    let others = page.query.0.iter().filter(|(name, _)| name != "at");
    let step = |at_ms: Option<i64>, id: &str, label: &str| {
        let href = at_ms.map(|at_ms| with_at(&address(page), at_ms));
        html! {
            @match href {
                Some(href) => a.button id=(id) href=(href) { (label) },
                // A link without an address is none; it keeps its place, and its focus.
                None => a.button id=(id) role="link" aria-disabled="true" tabindex="0" { (label) },
            }
        }
    };
    html! {
        section.time #time aria-label="Time" {
            p { b { "Recording" } " of " (page.log) ", from " (text(around.begin_ms)) " to " (text(around.end_ms))
                ". Nothing here can be changed." }
            form #time-form method="get" action=(page.path) {
                @for (name, value) in others { input type="hidden" name=(name) value=(value); }
                label for="at" { "Instant " output #instant for="at" { (text(around.at_ms)) } }
                input #at type="range" name="at" min=(around.begin_ms) max=(around.end_ms.max(around.begin_ms + 1)) step="any"
                    value=(around.at_ms) aria-valuetext=(text(around.at_ms)) data-clock=(clock_name(clock));
                div.steps {
                    button #go { "Go" }
                    (step(Some(around.begin_ms).filter(|at| *at < around.at_ms), "begin", "Begin"))
                    (step(around.earlier_ms, "earlier", "Earlier event"))
                    (step(around.later_ms, "later", "Later event"))
                    (step(Some(around.end_ms).filter(|at| *at > around.at_ms), "end", "End"))
                }
            }
            div.story #story role="status" {
                p { "Event " (around.number) " of " (around.of) ", at " (text(around.last_ms)) ":" }
                ul { @for story in &around.stories { li { (story) } }
                    @if around.more > 0 { li { (around.more) " more at the same time" } } }
            }
        }
    }
}

/// An instant for people: a date, or the time since the start of a simulated run.
pub fn clock_text(clock: Clock, at_ms: i64) -> String {
    match clock {
        Clock::Unix => {
            let at = Timestamp::from_millisecond(at_ms).unwrap_or_default();
            at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
        }
        Clock::Virtual => {
            let (seconds, ms) = (at_ms / 1000, at_ms % 1000);
            let text = format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
            if ms == 0 { text } else { format!("{text}.{ms:03}") }
        }
    }
}

const fn clock_name(clock: Clock) -> &'static str {
    match clock {
        Clock::Virtual => "virtual",
        Clock::Unix => "unix",
    }
}

/// Of this page, without an instant.
fn address(page: &Recorded<'_>) -> String {
    let others = page.query.0.iter().filter(|(name, _)| name != "at");
    let others: Vec<(&str, &str)> = others.map(|(name, value)| (name.as_str(), value.as_str())).collect();
    crate::pairs::link(page.path, &others)
}

fn with_at(address: &str, at_ms: i64) -> String {
    let (rest, anchor) = address.split_once('#').map_or((address, ""), |(rest, anchor)| (rest, anchor));
    let mark = if rest.contains('?') { '&' } else { '?' };
    let anchor = if anchor.is_empty() { String::new() } else { format!("#{anchor}") };
    format!("{rest}{mark}at={at_ms}{anchor}")
}

/// The same page part with links that keep the instant, and without dates where the clock has none. Texts and attributes
/// are escaped: every `<` begins a tag.
fn at_instant(markup: Markup, at_ms: i64, clock: Clock) -> Markup {
    const LINK: &str = " href=\"/";
    let text = markup.into_string();
    let mut pieces = text.split('<');
    let mut out = pieces.next().unwrap_or("").to_owned();
    for piece in pieces {
        let (tag, rest) = piece.split_once('>').unwrap_or((piece, ""));
        out.push('<');
        match tag.split(' ').next() {
            Some("a") if tag.contains(LINK) => {
                let (before, link) = tag.split_once(LINK).unwrap_or((tag, ""));
                let (address, after) = link.split_once('"').unwrap_or((link, ""));
                let address = with_at(&format!("/{address}"), at_ms).replace("&at=", "&amp;at=");
                out.push_str(&format!("{before} href=\"{address}\"{after}>"));
            }
            Some("form") if tag.contains("method=\"get\"") => {
                out.push_str(&format!("{tag}><input type=\"hidden\" name=\"at\" value=\"{at_ms}\">"));
            }
            Some("time") if clock == Clock::Virtual => out.push_str("time>"),
            _ => {
                out.push_str(tag);
                out.push('>');
            }
        }
        out.push_str(rest);
    }
    PreEscaped(out)
}

/// What the portal says that has no log.
pub fn none(why: Option<&str>) -> Markup {
    html! {
        h1 { "Time" }
        @match why {
            Some(why) => p.banner { (why) },
            None => p { "No run log is kept of this fleet, so there is no way back in time." },
        }
        p.quiet { "A controller keeps one with " code { "--run-log FILE" } ", and the portal shows it with " code { "--run-log FILE" } "." }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_keep_the_instant_and_texts_stay() {
        let check = |markup: Markup, clock: Clock, expected: &str| {
            assert_eq!(at_instant(markup, 1_500, clock).into_string(), expected);
        };
        check(html! { a href="/" { "Home" } }, Clock::Unix, r#"<a href="/?at=1500">Home</a>"#);
        check(
            html! { a href="/jobs?state=Running&queue=a" { "x" } a href="/clusters#east" { "y" } },
            Clock::Unix,
            r##"<a href="/jobs?state=Running&amp;queue=a&amp;at=1500">x</a><a href="/clusters?at=1500#east">y</a>"##,
        );
        // What looks like a link in a text is a text.
        check(
            html! { p title="href=\"/evil" { "href=\"/jobs\"" } a href="#main" { "z" } },
            Clock::Unix,
            r##"<p title="href=&quot;/evil">href=&quot;/jobs&quot;</p><a href="#main">z</a>"##,
        );
        check(
            html! { form.filters method="get" action="/jobs" role="search" { button { "Filter" } } },
            Clock::Unix,
            r#"<form class="filters" method="get" action="/jobs" role="search"><input type="hidden" name="at" value="1500"><button>Filter</button></form>"#,
        );
        let time = || html! { time datetime="1970-01-01T00:00:12Z" title="t" data-since="12" { "3s" } };
        check(time(), Clock::Virtual, "<time>3s</time>");
        check(time(), Clock::Unix, &time().into_string());
    }

    #[test]
    fn instants_are_dates_or_times_since_the_start() {
        assert_eq!(clock_text(Clock::Unix, 1_795_420_012_345), "2026-11-23 07:46:52 UTC");
        assert_eq!(clock_text(Clock::Virtual, 3_723_000), "1:02:03");
        assert_eq!(clock_text(Clock::Virtual, 1_500), "0:00:01.500");
    }
}
