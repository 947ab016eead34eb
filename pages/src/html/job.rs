//! One job: what and where it is, its life, why it waits, and what may be done with it.

use fleet_policies::reason::Reason;
use fleet_views::{Span, SpanKind, Timeline};
use maud::{Markup, html};

use super::parts::{
    Other, STOP_FORM, ago, bars, duration, meaning, meanings, preemptions, queue_name, reason, state_badge,
};
use crate::{
    page::{JobName, log_link, queue_link},
    pairs::{encode, link},
    shown::{EventRow, JobView, PodRow},
};

pub fn job(view: &JobView, now_s: i64) -> Markup {
    html! { (shown(view, now_s)) (actions(view)) }
}

/// The job without anything to do.
pub fn shown(view: &JobView, now_s: i64) -> Markup {
    let name = &view.name;
    html! {
        nav.crumbs aria-label="Above" { a href="/jobs" { "Jobs" } }
        h1 { (name.namespace) "/" (name.name) " " @if let Some(row) = &view.row { (state_badge(row.state)) } }
        @for notice in &view.notices { p.banner { (notice) } }
        @if let Some(row) = &view.row {
            @if !row.reason.is_empty() || !row.message.is_empty() { (why(&row.reason, &row.message)) }
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
            (why(&view.said.0, &view.said.1))
        }
        @if let Some(line) = &view.timeline { (life(line, view)) }
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
        (pods(view, now_s))
        @if !view.preempted.is_empty() {
            section #made-room { h2 { "Preempted for it" }
                (preemptions(&view.preempted, Other::Victim, now_s))
                @if view.more_preempted > 0 { p.quiet { (view.more_preempted) " more are not listed." } }
            }
        }
        (events(view, now_s))
        (meanings(reasons(view)))
        @if !view.yaml.is_empty() {
            details #yaml { summary { "YAML" } pre tabindex="0" { code { (view.yaml) } } }
        }
    }
}

/// That of its state, and those of its runs.
fn reasons(view: &JobView) -> impl Iterator<Item = &str> {
    let own = view.row.as_ref().map_or(&view.said.0, |row| &row.reason);
    let spans = view.timeline.iter().flat_map(|line| &line.spans).map(|span| &span.reason);
    std::iter::once(own).chain(spans).map(String::as_str)
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

/// Why it waits or how it ended; of a reason without a sentence of its own, what it means.
fn why(name: &str, message: &str) -> Markup {
    let message = if message.is_empty() { meaning(name).unwrap_or_default() } else { message };
    html! { p.why #why { (reason(name, message)) } }
}

/// What followed on a span, unless the banner above says it.
fn then(span: &Span, view: &JobView) -> Option<Markup> {
    let is_above = view.row.as_ref().is_some_and(|row| row.message == span.message);
    let message = if is_above { "" } else { span.message.as_str() };
    let is_silent = span.reason.is_empty() && message.is_empty();
    (!span.is_open && !is_silent).then(|| reason(&span.reason, message))
}

fn life(line: &Timeline, view: &JobView) -> Markup {
    let has_then = line.spans.iter().any(|span| then(span, view).is_some());
    html! {
        section { h2 { "Its life" }
            p.legend { span.waiting {} "waiting " span.starting {} "starting " span.running {} "running" }
            div.scroll { table.gantt {
                thead { tr { th scope="col" { "What" } th scope="col" { "When" } th scope="col" { "For" }
                    @if has_then { th scope="col" { "Then" } } } }
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
                    @if has_then { td { @if let Some(then) = then(span, view) { (then) } @else { "-" } } }
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

fn pods(view: &JobView, now_s: i64) -> Markup {
    html! {
        @if !view.pods.is_empty() || !view.pods_absent.is_empty() {
            section #pods { h2 { "Pods" }
                @if !view.pods_absent.is_empty() { p.quiet { (view.pods_absent) } }
                @if !view.pods.is_empty() { div.scroll { table {
                    thead { tr { th scope="col" { "Pod" } th scope="col" { "Node" } th scope="col" { "GPUs" } th scope="col" { "State" } th scope="col" { "Exit" }
                        th scope="col" { "Restarts" } th scope="col" { "Age" } th scope="col" { "Log" } } }
                    tbody { @for pod in &view.pods { (pod_line(&view.name, pod, now_s)) } }
                } } }
                @if view.more_pods > 0 { p.quiet { (view.more_pods) " more are not listed; those that failed are above." } }
            }
        }
    }
}

fn pod_line(job: &JobName, pod: &PodRow, now_s: i64) -> Markup {
    html! { tr {
        th scope="row" { (pod.name) }
        td { @if pod.node.is_empty() { "-" } @else { (pod.node) } }
        td { (pod.gpus) @if !pod.gpu_numbers.is_empty() { span.quiet { " (" (pod.gpu_numbers) ")" } } }
        td { @if pod.has_failed { span.badge.failed { (pod.state) } } @else { (pod.state) } }
        td { @if pod.exit.is_empty() { "-" } @else { (pod.exit) } }
        td.number { (pod.restarts) }
        td { @if let Some(created) = pod.created_s { (ago(created, now_s)) } }
        td { a href=(log_link(job, &pod.name)) aria-label={ "Log of " (pod.name) } { "Log" } }
    } }
}

fn events(view: &JobView, now_s: i64) -> Markup {
    let said = view.row.as_ref().map_or("", |row| row.message.as_str());
    html! {
        @if !view.events.is_empty() {
            section { h2 { "Events" }
                div.scroll { table {
                    thead { tr { th scope="col" { "When" } th scope="col" { "Type" } th scope="col" { "Reason" } th scope="col" { "Message" } th scope="col" { "Times" } } }
                    tbody { @for event in &view.events { tr {
                        td { @if let Some(last) = event.last_s { (ago(last, now_s)) } }
                        td { (event.kind) }
                        td { (event.reason) }
                        td { (event_message(event, said, !view.verdicts.is_empty())) }
                        td.number { (event.count) }
                    } } }
                } }
            }
        }
    }
}

/// The message of an event: without what stands above it on the page, and places in words.
fn event_message(event: &EventRow, said: &str, sees_clusters: bool) -> String {
    let message = without_clusters(&event.message).filter(|_| sees_clusters).unwrap_or(&event.message);
    match message.split_once(said).filter(|_| !said.is_empty()) {
        Some((before, "")) => format!("{before}as above"),
        _ => in_words(message),
    }
}

/// `NoClusterFits: 0 of 3 clusters can hold the whole job now: east: ..` without what each cluster lacked then: the table
/// on the page has what they lack now.
fn without_clusters(message: &str) -> Option<&str> {
    let sentence = message.strip_prefix(Reason::NoClusterFits.as_str())?.strip_prefix(": ")?;
    let (_, lacked) = sentence.split_once(": ")?;
    message.strip_suffix(lacked)?.strip_suffix(": ")
}

/// `Result: {east:0,[{master 1} {worker 5}]}` and `{east:2, west:1}`, as kube-queue writes where a job goes, in words.
fn in_words(message: &str) -> String {
    let read = || {
        let (before, result) = message.split_once("Result: {")?;
        let result = result.strip_suffix('}')?;
        let words = match result.split_once(",[{") {
            Some((place, roles)) => {
                let cluster = place.split(':').next().unwrap_or_default();
                let roles = roles.strip_suffix("}]")?.split("} {");
                let pods: Option<Vec<String>> = roles.map(|role| counted(role, ' ')).collect();
                format!("In {cluster}: {}", pods?.join(", "))
            }
            None => {
                let clusters: Option<Vec<String>> =
                    result.split(", ").map(|target| counted(target, ':')).collect();
                format!("Replicas by cluster: {}", clusters?.join(", "))
            }
        };
        Some(format!("{before}{words}."))
    };
    read().unwrap_or_else(|| message.to_owned())
}

/// `worker 5` or `east:2` as `5 worker`, `2 east`.
fn counted(text: &str, between: char) -> Option<String> {
    let (name, count) = text.split_once(between)?;
    let is_one = !name.is_empty() && count.parse::<u64>().is_ok();
    is_one.then(|| format!("{count} {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_job_goes_is_said_in_words() {
        let check = |result: &str, expected: &str| {
            let message = format!("Binding has been scheduled successfully. {result}");
            assert_eq!(in_words(&message), format!("Binding has been scheduled successfully. {expected}"));
        };
        check("Result: {east:0,[{master 1} {worker 5}]}", "In east: 1 master, 5 worker.");
        check("Result: {east:0,[{worker 5}]}", "In east: 5 worker.");
        check("Result: {east:2, west:1}", "Replicas by cluster: 2 east, 1 west.");
        // What has another form stays as it was written.
        for other in ["Result: {east}", "Result: {}", "Result: {east:0,[{worker many}]}", "All is well."] {
            check(other, other);
        }
    }

    #[test]
    fn what_stands_above_is_not_said_again() {
        let event = |message: &str| EventRow {
            last_s: None,
            kind: "Warning".to_owned(),
            reason: "ScheduleBindingFailed".to_owned(),
            message: message.to_owned(),
            count: 1,
        };
        let said = "0 of 3 clusters can hold the whole job now";
        assert_eq!(
            event_message(&event(&format!("NoClusterFits: {said}")), said, true),
            "NoClusterFits: as above"
        );
        // What each cluster lacked then is not beside what it lacks now.
        let longer = format!("NoClusterFits: {said}: east: 1 of 2 fit; west: not ready");
        assert_eq!(event_message(&event(&longer), said, true), "NoClusterFits: as above");
        assert_eq!(event_message(&event(&longer), said, false), longer);
        let before = longer.replace("of 3", "of 2");
        assert_eq!(
            event_message(&event(&before), said, true),
            "NoClusterFits: 0 of 2 clusters can hold the whole job now"
        );
        assert_eq!(event_message(&event("Other: a: b"), "", true), "Other: a: b");
    }
}
