//! Small parts that pages share.

use std::collections::BTreeMap;

use fleet_views::{Bar, JobRow, PreemptionRow, State, age};
use jiff::Timestamp;
use maud::{Markup, html};

use crate::{
    page::{JobName, queue_link},
    shown::Visitor,
};

/// The form of pages that change by themselves: its key stands beside the changing part, which is the same for all users.
pub const STOP_FORM: &str = "stop-form";

/// Shows that a form is the portal's own.
pub fn form_key(visitor: Option<&Visitor>) -> Markup {
    html! { @if let Some(visitor) = visitor { input type="hidden" name="form_key" value=(visitor.form_key); } }
}

/// Instead of the time: the script writes how long ago it was.
pub const BY_SCRIPT: i64 = i64::MIN;

/// The time since then; the script keeps it true.
pub fn ago(then_s: i64, now_s: i64) -> Markup {
    let full = Timestamp::from_second(then_s).map(|time| time.to_string()).unwrap_or_default();
    html! { time datetime=(full) title=(full) data-since=(then_s) {
        @if now_s != BY_SCRIPT { (age::human((now_s - then_s).max(0))) }
    } }
}

/// An instant to come, by the clock.
pub fn instant(at_s: i64) -> Markup {
    let at = Timestamp::from_second(at_s).unwrap_or_default();
    html! { time datetime=(at) { (at.strftime("%Y-%m-%d %H:%M:%S UTC")) } }
}

pub fn duration(seconds: i64) -> String {
    age::human(seconds.max(0))
}

pub fn state_badge(state: State) -> Markup {
    let class = format!("badge {}", state.as_str().to_lowercase());
    html! { span class=(class) { (state.as_str()) } }
}

pub fn job_link(row: &JobRow) -> Markup {
    let name = JobName::new(&row.namespace, &row.resource, &row.name);
    html! { a href=(name.link()) { (row.namespace) "/" wbr; (row.name) } }
}

/// Whose name stands in a table of preemptions: that of one is known where it stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Other {
    Victim,
    Both,
}

/// Who made room, for whom, and what it cost.
pub fn preemptions(rows: &[PreemptionRow], other: Other, now_s: i64) -> Markup {
    let name = |job: &Option<(String, String, String)>| {
        html! { @match job {
            Some((namespace, name, resource)) if resource.is_empty() => { (namespace) "/" wbr; (name) },
            Some((namespace, name, resource)) => {
                a href=(JobName::new(namespace, resource, name).link()) { (namespace) "/" wbr; (name) }
            },
            None => span.quiet { "a job of a namespace that you may not list" },
        } }
    };
    html! {
        div.scroll { table {
            thead { tr { th scope="col" { "Job that made room" } @if other == Other::Both { th scope="col" { "For" } }
                th scope="col" { "Cluster" } th scope="col" { "By" } th scope="col" { "Lost" } th scope="col" { "When" } } }
            tbody { @for row in rows { tr {
                th scope="row" { (name(&row.victim)) }
                @if other == Other::Both { td { (name(&row.taker)) } }
                td { (row.cluster) }
                td { (row.rule) }
                td { @if row.lost.is_empty() { "-" } @else { (row.lost) } }
                td { (ago(row.at_s, now_s)) " ago" }
            } } }
        } }
    }
}

/// A reason with the sentence of this case; [`meanings`] says what it means.
pub fn reason(reason: &str, message: &str) -> Markup {
    html! {
        @if !reason.is_empty() { span.reason { (reason) } " " }
        @if !message.is_empty() { span.message { (message) } }
    }
}

/// What a reason means in general; nothing of one that is not Fleet's.
pub fn meaning(reason: &str) -> Option<&'static str> {
    fleet_policies::reason::Reason::from_text(reason).map(fleet_policies::reason::Reason::describe)
}

/// What the reasons of a page mean, below their table.
pub fn meanings<'r>(reasons: impl Iterator<Item = &'r str>) -> Markup {
    let known: BTreeMap<&str, &str> = reasons.filter_map(|reason| Some((reason, meaning(reason)?))).collect();
    html! { @if !known.is_empty() {
        details.meanings #meanings { summary { "What these reasons mean" }
            dl { @for (reason, meaning) in known { dt.reason { (reason) } dd { (meaning) } } } }
    } }
}

pub fn queue_name(path: &str) -> Markup {
    html! { @if path.is_empty() { "-" } @else { a href=(queue_link(path)) { (path) } } }
}

pub fn bar(bar: &Bar) -> Markup {
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

pub fn bars(all: &[Bar]) -> Markup {
    html! { div.bars { @for one in all { (bar(one)) } @if all.is_empty() { span.quiet { "nothing bounded, nothing used" } } } }
}
