//! One job: what and where it is, its life, why it waits, and what may be done with it.

use fleet_views::{Span, SpanKind, Timeline};
use maud::{Markup, html};

use super::parts::{STOP_FORM, ago, bars, duration, queue_name, reason, state_badge};
use crate::{
    page::{JobName, log_link, queue_link},
    pairs::{encode, link},
    shown::{EventRow, JobView, PodRow},
};

pub fn job(view: &JobView, now_s: i64) -> Markup {
    html! { (told(view, now_s)) (actions(view)) }
}

/// The job without anything to do.
pub fn told(view: &JobView, now_s: i64) -> Markup {
    let name = &view.name;
    html! {
        nav.crumbs aria-label="Above" { a href="/jobs" { "Jobs" } }
        h1 { (name.namespace) "/" (name.name) " " @if let Some(row) = &view.row { (state_badge(row.state)) } }
        @for notice in &view.notices { p.banner { (notice) } }
        @if let Some(row) = &view.row {
            @if !row.reason.is_empty() || !row.message.is_empty() { p.why #why { (reason(&row.reason, &row.message)) } }
            dl.facts {
                div { dt { "Kind" } dd { (row.kind) } }
                div { dt { "Requests" } dd { (row.requests) ", " (row.pods) @if row.pods == 1 { " pod" } @else { " pods" } } }
                div { dt { "Queue" } dd { (queue_name(&row.queue))
                    @if let Some((place, of)) = view.position { ", place " b { (place) } " of " (of) } } }
                @if !row.user.is_empty() { div { dt { "User" } dd { a href=(link("/jobs", &[("user", &row.user)])) { (row.user) } } } }
                @if !row.virtual_cluster.is_empty() {
                    div { dt { "Virtual cluster" } dd { a href=(link("/jobs", &[("vc", &row.virtual_cluster)])) { (row.virtual_cluster) } } }
                }
                div { dt { "Cluster" } dd { @if row.clusters.is_empty() { "none yet" }
                    @for (index, cluster) in row.clusters.iter().enumerate() {
                        @if index > 0 { ", " } a href={ "/clusters#" (cluster) } { (cluster) } } } }
                div { dt { "Priority" } dd { (row.priority) @if view.preemptible == Some(false) { ", not preempted" } } }
                div { dt { "Age" } dd { (ago(row.created_s, now_s)) } }
                div { dt { "In this state" } dd { (ago(row.ended_s.unwrap_or(row.since_s), now_s)) } }
            }
        } @else {
            p.why #why { (reason(&view.said.0, &view.said.1)) }
        }
        @if let Some(line) = &view.timeline { (life(line)) }
        @if !view.verdicts.is_empty() {
            section { h2 { "Cluster by cluster" }
                div.scroll { table {
                    thead { tr { th scope="col" { "Cluster" } th scope="col" { "Fits" } th scope="col" { "Why" } } }
                    tbody { @for verdict in &view.verdicts { tr {
                        th scope="row" { (verdict.cluster) }
                        td { @if verdict.here { "here" } @else if verdict.fits { "yes" } @else { "no" } }
                        td { (verdict.sentence) }
                    } } }
                } }
            }
        }
        @if !view.quota.is_empty() {
            section { h2 { "Its queue, and those above" }
                @for row in &view.quota { div.line { div.name { a href=(queue_link(&row.path)) { (row.path) }
                    span.quiet { (row.waiting) " waiting, " (row.running) " running" } } (bars(&row.bars)) } }
            }
        }
        (pods(&view.name, &view.pods, &view.pods_absent, now_s))
        (events(&view.events, now_s))
        @if !view.yaml.is_empty() {
            details #yaml { summary { "YAML" } pre tabindex="0" { code { (view.yaml) } } }
        }
    }
}

fn actions(view: &JobView) -> Markup {
    let name = &view.name;
    html! {
        div.actions {
            @if view.can_stop {
                form.inline id=(STOP_FORM) method="post" action="/jobs/stop" {
                    input type="hidden" name="job" value=(name.text());
                    input type="hidden" name="back" value=(name.link());
                    button.danger #stop { "Stop this job" }
                }
            }
            a.button href={ "/submit?clone=" (encode(&name.text())) } { "Clone to the form" }
        }
    }
}

fn life(line: &Timeline) -> Markup {
    html! {
        section { h2 { "Its life" }
            p.legend { span.waiting {} "waiting " span.starting {} "starting " span.running {} "running" }
            div.scroll { table.gantt {
                thead { tr { th scope="col" { "What" } th scope="col" { "When" } th scope="col" { "For" } th scope="col" { "Then" } } }
                tbody { @for span in &line.spans { tr {
                    th scope="row" { (what(span)) }
                    td.when {
                        svg viewBox="0 0 1000 16" preserveAspectRatio="none" role="img"
                            aria-label={ "from second " (span.from_s - line.from_s) " to second " (span.to_s - line.from_s) } {
                            rect.track width="1000" height="16" {}
                            // A span too short to see is drawn all the same.
                            rect class=(class(span.kind)) x=(span.from.min(994)) width=(span.length.max(6)) height="16" {}
                        }
                    }
                    td { (duration(span.to_s - span.from_s)) @if span.is_open { " so far" } }
                    td { (reason(&span.reason, &span.message)) }
                } } }
            } }
        }
    }
}

fn what(span: &Span) -> String {
    match span.kind {
        SpanKind::Waiting => "waiting".to_owned(),
        SpanKind::Starting => format!("run {} starting in {}", span.epoch, span.cluster),
        SpanKind::Running => format!("run {} in {}", span.epoch, span.cluster),
    }
}

fn class(kind: SpanKind) -> &'static str {
    match kind {
        SpanKind::Waiting => "waiting",
        SpanKind::Starting => "starting",
        SpanKind::Running => "running",
    }
}

fn pods(job: &JobName, rows: &[PodRow], absent: &str, now_s: i64) -> Markup {
    html! {
        @if !rows.is_empty() || !absent.is_empty() {
            section { h2 { "Pods" }
                @if !absent.is_empty() { p.quiet { (absent) } }
                @if !rows.is_empty() { div.scroll { table {
                    thead { tr { th scope="col" { "Pod" } th scope="col" { "Node" } th scope="col" { "GPUs" } th scope="col" { "State" } th scope="col" { "Exit" }
                        th scope="col" { "Restarts" } th scope="col" { "Age" } th scope="col" { "Log" } } }
                    tbody { @for pod in rows { tr {
                        th scope="row" { (pod.name) }
                        td { @if pod.node.is_empty() { "-" } @else { (pod.node) } }
                        td { (pod.gpus) @if !pod.gpu_numbers.is_empty() { span.quiet { " (" (pod.gpu_numbers) ")" } } }
                        td { (pod.state) }
                        td { (pod.exit) }
                        td.number { (pod.restarts) }
                        td { @if let Some(created) = pod.created_s { (ago(created, now_s)) } }
                        td { a href=(log_link(job, &pod.name)) aria-label={ "Log of " (pod.name) } { "Log" } }
                    } } }
                } } }
            }
        }
    }
}

fn events(rows: &[EventRow], now_s: i64) -> Markup {
    html! {
        @if !rows.is_empty() {
            section { h2 { "Events" }
                div.scroll { table {
                    thead { tr { th scope="col" { "When" } th scope="col" { "Type" } th scope="col" { "Reason" } th scope="col" { "Message" } th scope="col" { "Times" } } }
                    tbody { @for event in rows { tr {
                        td { @if let Some(last) = event.last_s { (ago(last, now_s)) } }
                        td { (event.kind) }
                        td { (event.reason) }
                        td { (event.message) }
                        td.number { (event.count) }
                    } } }
                } }
            }
        }
    }
}
