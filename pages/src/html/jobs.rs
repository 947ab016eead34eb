//! The list of jobs.

use fleet_views::{JobPage, JobQuery, JobRow, Sort, State};
use maud::{Markup, html};

use super::parts::{STOP_FORM, ago, duration, job_link, queue_name, reason, state_badge};
use crate::page::{JobName, jobs_link};

/// Whether rows can be chosen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    Offered,
    Absent,
}

pub fn jobs(query: &JobQuery, view: &JobPage, now_s: i64) -> Markup {
    let here = jobs_link(query, query.sort, query.ascending, "");
    let form = html! {
        form id=(STOP_FORM) method="post" action="/jobs/stop" {
            input type="hidden" name="back" value=(here);
            (table(query, &view.rows, now_s, Choice::Offered))
            div.actions { button.danger { "Stop the chosen jobs" } }
        }
    };
    page(query, view, form)
}

/// The list without anything to do.
pub fn recorded(query: &JobQuery, view: &JobPage, now_s: i64) -> Markup {
    page(query, view, table(query, &view.rows, now_s, Choice::Absent))
}

fn page(query: &JobQuery, view: &JobPage, list: Markup) -> Markup {
    let here = jobs_link(query, query.sort, query.ascending, "");
    html! {
        h1 { "Jobs" }
        (filters(query, view))
        p { b { (view.total) } @if view.total == 1 { " job" } @else { " jobs" }
            @if query.after.is_some() { " · " a href=(here) { "back to the first" } } }
        @if view.rows.is_empty() { p.quiet { "No job fits." } }
        @else { (list) }
        @if let Some(next) = &view.next {
            p.pages { a rel="next" href=(jobs_link(query, query.sort, query.ascending, next)) { "Next page" } }
        }
    }
}

fn filters(query: &JobQuery, view: &JobPage) -> Markup {
    let text = |name: &str, label: &str, value: &str| {
        let id = format!("filter-{name}");
        html! { div { label for=(id) { (label) } input id=(id) name=(name) value=(value); } }
    };
    let priority = query.priority.map(|priority| priority.to_string()).unwrap_or_default();
    html! {
        form.filters method="get" action="/jobs" role="search" {
            div { label for="filter-text" { "Search" } input #filter-text type="search" name="text" value=(query.text) placeholder="name, namespace, kind"; }
            div { label for="filter-state" { "State" } select #filter-state name="state" {
                option value="" { "any" }
                @for state in State::ALL { option value=(state.as_str()) selected[query.state == Some(state)] { (state.as_str()) } }
            } }
            div { label for="filter-namespace" { "Namespace" }
                input #filter-namespace name="namespace" value=(query.namespace) list="namespaces";
                datalist #namespaces { @for name in view.namespaces.iter().take(200) { option value=(name) {} } } }
            (text("user", "User", &query.user))
            (text("queue", "Queue", &query.queue))
            (text("vc", "Virtual cluster", &query.virtual_cluster))
            (text("cluster", "Cluster", &query.cluster))
            (text("kind", "Kind", &query.kind))
            (text("reason", "Reason", &query.reason))
            (text("priority", "Priority", &priority))
            div { button { "Filter" } }
        }
    }
}

fn column(query: &JobQuery, sort: Sort, label: &str) -> Markup {
    let is_here = query.sort == sort;
    // Names are read from A, numbers from the largest; a second click turns it round.
    let ascending = if is_here { !query.ascending } else { sort == Sort::Name };
    let order = if query.ascending { "ascending" } else { "descending" };
    html! {
        th scope="col" aria-sort=[is_here.then_some(order)] {
            a href=(jobs_link(query, sort, ascending, "")) { (label) @if is_here { @if query.ascending { " ↑" } @else { " ↓" } } }
        }
    }
}

fn table(query: &JobQuery, rows: &[JobRow], now_s: i64, choice: Choice) -> Markup {
    html! {
        div.scroll { table.jobs {
            thead { tr {
                @if choice == Choice::Offered { th scope="col" { span.hidden { "Choose" } } }
                (column(query, Sort::Name, "Job"))
                th scope="col" { "Kind" }
                th scope="col" { "State" }
                th scope="col" { "Queue" }
                th scope="col" { "Cluster" }
                (column(query, Sort::Priority, "Priority"))
                (column(query, Sort::Gpus, "GPUs"))
                (column(query, Sort::Runs, "Ended runs"))
                (column(query, Sort::Created, "Age"))
                (column(query, Sort::Since, "In this state"))
                th scope="col" { "Reason" }
            } }
            tbody { @for row in rows { (line(row, now_s, choice)) } }
        } }
    }
}

fn line(row: &JobRow, now_s: i64, choice: Choice) -> Markup {
    let name = JobName::new(&row.namespace, &row.resource, &row.name).text();
    html! {
        tr id={ "job-" (name) } {
            @if choice == Choice::Offered { td { @if !row.state.is_final() {
                input type="checkbox" name="job" value=(name) aria-label={ "Choose " (row.namespace) "/" (row.name) };
            } } }
            th scope="row" { (job_link(row)) }
            td { (row.kind) }
            td { (state_badge(row.state)) }
            td { (queue_name(&row.queue)) }
            td { @if row.clusters.is_empty() { "-" } @else { (row.clusters.join(", ")) } }
            td.number { (row.priority) }
            td.number { (row.gpus) }
            td.number { (row.runs) }
            td { (ago(row.created_s, now_s)) }
            td { @if let Some(ended) = row.ended_s { (ago(ended, now_s)) span.quiet { " (took " (duration(ended - row.created_s)) ")" } }
                @else { (ago(row.since_s, now_s)) } }
            td { (reason(&row.reason, &row.message)) }
        }
    }
}
