//! The fleet at a glance.

use fleet_views::{ClusterRow, Home, JobRow, QueueRow, VirtualClusterRow};
use maud::{Markup, html};

use super::parts::{Other, ago, bar, bars, job_link, meanings, preemptions, queue_name, reason, state_badge};
use crate::{page::queue_link, pairs::link};

pub fn home(view: &Home, now_s: i64) -> Markup {
    page(view, now_s, html! { " " a href="/submit" { "Submit one" } "." })
}

/// The same without anything to do.
pub fn recorded(view: &Home, now_s: i64) -> Markup {
    page(view, now_s, html! {})
}

/// `next` follows where there are no jobs.
fn page(view: &Home, now_s: i64, next: Markup) -> Markup {
    html! {
        h1 { "Fleet" }
        ul.tiles aria-label="Jobs by state" {
            @for (state, count) in &view.counts {
                li { a href=(link("/jobs", &[("state", state.as_str())])) {
                    b { (count) } (state_badge(*state))
                } }
            }
        }
        @if !view.own.is_empty() {
            section aria-labelledby="own-title" {
                h2 #own-title { "Your jobs" }
                (recent(&view.own, now_s, html! {}))
            }
        }
        div.columns {
            div.stack {
                section aria-labelledby="queues-title" {
                    h2 #queues-title { a href="/queues" { "Queues" } }
                    @if view.queues.is_empty() { p.quiet { "No queues to show." } }
                    @let (own, others) = view.queues.split_at(view.own_queues.min(view.queues.len()));
                    @if !own.is_empty() && !others.is_empty() { h3 { "Yours" } }
                    @for row in own { (queue(row)) }
                    @if !own.is_empty() && !others.is_empty() { h3 { "All others" } }
                    @for row in others { (queue(row)) }
                    @if view.more_queues > 0 { p { a href="/queues" { (view.more_queues) " more queues" } } }
                }
                @if !view.virtual_clusters.is_empty() {
                    section aria-labelledby="virtual-clusters-title" {
                        h2 #virtual-clusters-title { a href="/virtual-clusters" { "Virtual clusters" } }
                        @for row in &view.virtual_clusters { (virtual_cluster(row)) }
                        @if view.more_virtual_clusters > 0 {
                            p { a href="/virtual-clusters" { (view.more_virtual_clusters) " more virtual clusters" } }
                        }
                    }
                }
            }
            section aria-labelledby="clusters-title" {
                h2 #clusters-title { a href="/clusters" { "Clusters" } }
                @if view.clusters.is_empty() { p.quiet { "No clusters to show: none has joined, or you may not list them." } }
                @for row in &view.clusters { (cluster(row)) }
                @if !view.nodes_by_free.is_empty() { (histogram(&view.nodes_by_free)) }
            }
        }
        @if !view.strange.is_empty() {
            section aria-labelledby="strange-title" {
                h2 #strange-title { "Look at these" }
                div.scroll { table {
                    thead { tr { th scope="col" { "Job" } th scope="col" { "State" } th scope="col" { "Why" } th scope="col" { "Reason" } } }
                    tbody { @for one in &view.strange { tr {
                        th scope="row" { (job_link(&one.job)) }
                        td { (state_badge(one.job.state)) }
                        td { (one.why) }
                        td { (reason(&one.job.reason, &one.job.message)) }
                    } } }
                } }
                (meanings(view.strange.iter().map(|one| one.job.reason.as_str())))
            }
        }
        @if !view.preemptions.is_empty() {
            section aria-labelledby="made-room-title" {
                h2 #made-room-title { "Last preemptions" }
                (preemptions(&view.preemptions, Other::Both, now_s))
            }
        }
        section aria-labelledby="recent-title" {
            h2 #recent-title { a href="/jobs" { "Newest jobs" } }
            (recent(&view.recent, now_s, next))
        }
    }
}

fn queue(row: &QueueRow) -> Markup {
    html! {
        div.line {
            div.name { a href=(queue_link(&row.path)) { (row.path) }
                span.quiet { (row.waiting) " waiting, " (row.running) " running" } }
            (bars(&row.bars))
        }
    }
}

fn virtual_cluster(row: &VirtualClusterRow) -> Markup {
    html! {
        div.line {
            div.name { b { (row.name) }
                @if !row.allocation.is_empty() { span.quiet { (row.allocation) " in use" } }
                span.quiet { (row.waiting) " waiting, " (row.running) " running" }
                @if row.borrowed > 0 { span.quiet { (row.borrowed) " borrowed" } }
                @if row.bad > 0 { span.badge.failed { (row.bad) " bad" } } }
            div.bars { (bar(&row.bar)) }
        }
    }
}

fn cluster(row: &ClusterRow) -> Markup {
    html! {
        div.line {
            div.name { a href={ "/clusters#" (row.name) } { (row.name) }
                span class=(if row.is_well { "badge succeeded" } else { "badge failed" }) { (row.state) }
                span.quiet { (row.nodes_ready) " of " (row.nodes) " nodes ready" } }
            (bars(&row.bars))
        }
    }
}

/// Nodes by number of free GPUs.
pub fn histogram(counts: &[(i64, i64)]) -> Markup {
    let most = counts.iter().map(|(_, nodes)| *nodes).max().unwrap_or(1).max(1);
    html! {
        table.histogram {
            caption { "Nodes by free GPUs" }
            thead { tr { th scope="col" { "Free" } th scope="col" { "Nodes" } } }
            tbody { @for (free, nodes) in counts { tr {
                th scope="row" { (free) }
                td { div {
                    svg viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true" {
                        rect.own width=(nodes * 1000 / most) height="10" {}
                    }
                    span { (nodes) }
                } }
            } } }
        }
    }
}

fn recent(rows: &[JobRow], now_s: i64, next: Markup) -> Markup {
    html! {
        @if rows.is_empty() { p.quiet { "No jobs to show." (next) } }
        @else {
            div.scroll { table {
                thead { tr { th scope="col" { "Job" } th scope="col" { "State" } th scope="col" { "Queue" } th scope="col" { "Cluster" }
                    th scope="col" { "Requests" } th scope="col" { "Since" } } }
                tbody { @for row in rows { tr {
                    th scope="row" { (job_link(row)) }
                    td { (state_badge(row.state)) }
                    td { (queue_name(&row.queue)) }
                    td { @if row.clusters.is_empty() { "-" } @else { (row.clusters.join(", ")) } }
                    td { (row.requests) }
                    td { (ago(row.since_s, now_s)) }
                } } }
            } }
        }
    }
}
