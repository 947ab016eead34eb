//! The quota tree, and the line of one queue.

use fleet_views::{ClaimRow, QueuePage, QueueRow, Queues, WaitingRow};
use maud::{Markup, html};

use super::parts::{Other, ago, bars, instant, preemptions, queue_name, reason};
use crate::{
    page::{JobName, queue_link},
    pairs::link,
};

/// Deeper levels are not moved further in.
const MOST_DEPTH: usize = 6;

pub fn queues(view: &Queues) -> Markup {
    html! {
        h1 { "Queues" }
        @for problem in &view.problems { p.error { (problem) } }
        @if !view.absent.is_empty() { p.quiet { (view.absent) } }
        @if !view.left_out.is_empty() { p.quiet { (view.left_out) } }
        @if !view.rows.is_empty() {
            (legend())
            (table(&view.rows))
        }
    }
}

fn legend() -> Markup {
    html! {
        p.legend {
            span.own {} "used of its guarantee (min) "
            span.borrowed {} "borrowed "
            span.lent {} "lent to siblings "
            span.mark {} "end of the guarantee"
        }
    }
}

fn table(rows: &[QueueRow]) -> Markup {
    html! {
        div.scroll { table.queues {
            thead { tr { th scope="col" { "Queue" } th scope="col" { "Used, of max" } th scope="col" { "Borrowing" }
                th scope="col" { "Waiting" } th scope="col" { "Running" } } }
            tbody { @for row in rows {
                tr {
                    th scope="row" class={ "depth-" (row.depth.min(MOST_DEPTH)) } {
                        a href=(queue_link(&row.path)) { (row.name) }
                        @if !row.namespaces.is_empty() { div.quiet { "of " (row.namespaces.join(", ")) } }
                    }
                    td { (bars(&row.bars)) @if !row.unqueued.is_empty() { div.quiet { "beside the queue: " (row.unqueued) } } }
                    td { (borrowing(row)) }
                    td.number { (row.waiting) }
                    td.number { (row.running) }
                }
            } }
        } }
    }
}

fn borrowing(row: &QueueRow) -> Markup {
    let part = |amounts: Vec<String>, word: &str| {
        if amounts.is_empty() { String::new() } else { format!("{} {word}", amounts.join(" ")) }
    };
    let of = |pick: fn(&fleet_views::Bar) -> &String| {
        row.bars
            .iter()
            .filter(|bar| !pick(bar).is_empty())
            .map(|bar| format!("{} {}", pick(bar), bar.label))
            .collect()
    };
    let borrowed = part(of(|bar| &bar.borrowed), "borrowed");
    let lent = part(of(|bar| &bar.lent), "lent");
    html! {
        @if !borrowed.is_empty() { div { (borrowed) } }
        @if !lent.is_empty() { div { (lent) } }
        @if !row.lending.is_empty() { div.quiet { (row.lending) } }
    }
}

pub fn queue(view: &QueuePage, now_s: i64) -> Markup {
    let row = &view.row;
    html! {
        nav.crumbs aria-label="Queues above" {
            a href="/queues" { "Queues" }
            @for (name, path) in &view.above { " / " a href=(queue_link(path)) { (name) } }
        }
        h1 { "Queue " (row.path) }
        p { b { (row.waiting) } " waiting, " b { (row.running) } " running. "
            a href=(link("/jobs", &[("queue", &row.path)])) { "All its jobs" } }
        (bars(&row.bars))
        @if !row.lending.is_empty() { p { (row.lending) } }
        @if !view.below.is_empty() { h2 { "Below it" } (table(&view.below)) }
        @if !view.claims.is_empty() { (claims(&view.claims, now_s)) }
        @if !view.preemptions.is_empty() {
            section #made-room { h2 { "Last preemptions here" } (preemptions(&view.preemptions, Other::Both, now_s)) }
        }
        h2 { "Who waits, in order" }
        @if view.waiting.is_empty() { p.quiet { "Nobody waits here." } }
        @else {
            @if !view.reasons.is_empty() {
                ul.reasons aria-label="Why the jobs of this page wait" {
                    @for (name, meaning, count) in &view.reasons { li { b { (count) } " " span.reason { (name) } " " (meaning) } }
                }
            }
            (line(view, now_s))
        }
        @if let Some(next) = &view.next {
            p.pages { a rel="next" href=(link(&queue_link(&row.path), &[("after", next)])) { "Next in line" } }
        }
    }
}

fn claims(rows: &[ClaimRow], now_s: i64) -> Markup {
    html! {
        h2 #claims { "Claims" }
        p.quiet { "Others have passed these jobs for too long: capacity is reserved for each, and nobody else gets it." }
        div.scroll { table {
            thead { tr { th scope="col" { "Job" } th scope="col" { "Queue" } th scope="col" { "Waits for" } th scope="col" { "Since" }
                th scope="col" { "Expected start" } th scope="col" { "Given up at the latest" } } }
            tbody { @for row in rows { tr {
                th scope="row" { (job_or_hidden(row.job.as_ref())) }
                td { (queue_name(&row.queue)) }
                td { (row.requests) @if !row.cluster.is_empty() { " in " (row.cluster) } }
                td { (ago(row.since_s, now_s)) }
                td { @match row.start_s { Some(start) => (instant(start)), None => "not known" } }
                td { @if let Some(until) = row.until_s { (instant(until)) } }
            } } }
        } }
    }
}

fn job_or_hidden(job: Option<&(String, String, String)>) -> Markup {
    html! { @match job {
        Some((namespace, name, resource)) => {
            a href=(JobName::new(namespace, resource, name).link()) { (namespace) "/" wbr; (name) }
        }
        None => span.quiet { "not yours to see" },
    } }
}

fn line(view: &QueuePage, now_s: i64) -> Markup {
    html! {
        div.scroll { table {
            thead { tr { th scope="col" { "Place" } th scope="col" { "Job" } th scope="col" { "Priority" } th scope="col" { "Waits" }
                th scope="col" { "Requests" } th scope="col" { "Why" } } }
            tbody { @for (index, row) in view.waiting.iter().enumerate() {
                @let before = index.checked_sub(1).and_then(|before| view.waiting.get(before));
                tr {
                    td.number { (row.position) }
                    th scope="row" { (job_or_hidden(row.job.as_ref())) }
                    td.number { (row.priority) }
                    td { (ago(row.since_s, now_s)) }
                    td { (row.requests) }
                    td { (why(row, before)) }
                }
            } }
        } }
    }
}

/// A sentence that is that of the row above is not said again.
fn why(row: &WaitingRow, before: Option<&WaitingRow>) -> Markup {
    let is_same = |before: &WaitingRow| before.reason == row.reason && before.message == row.message;
    match before.filter(|before| row.job.is_some() && is_same(before)) {
        Some(_) => html! { (reason(&row.reason, "")) span.quiet { "as above" } },
        None => reason(&row.reason, &row.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_said_once_in_a_row_of_equal_ones() {
        let row = |name: &str, message: &str| WaitingRow {
            position: 1,
            priority: 0,
            since_s: 0,
            job: (!name.is_empty()).then(|| ("a".to_owned(), name.to_owned(), "jobs.batch".to_owned())),
            reason: "NoClusterFits".to_owned(),
            message: message.to_owned(),
            requests: String::new(),
        };
        let says = |row: &WaitingRow, before: Option<&WaitingRow>| why(row, before).into_string();
        let (one, same, other) = (row("one", "none fits"), row("two", "none fits"), row("three", "1 fits"));
        assert!(says(&one, None).contains("none fits") && says(&other, Some(&same)).contains("1 fits"));
        let again = says(&same, Some(&one));
        assert!(
            again.contains("as above") && again.contains("NoClusterFits") && !again.contains("none fits")
        );
        // Of jobs of others nothing is compared.
        let hidden = row("", "a job of a namespace that you may not list");
        assert!(says(&hidden, Some(&hidden)).contains("may not list"));
    }
}
