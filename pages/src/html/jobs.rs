//! The list of jobs.

use fleet_views::{JobPage, JobQuery, JobRow, Sort, State};
use maud::{Markup, html};

use super::parts::{STOP_FORM, ago, duration, job_link, meanings, queue_name, reason, state_badge};
use crate::{
    page::{JobName, jobs_link},
    pairs::link,
};

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
            // Above the rows, and at the top of the window while they are looked through.
            div.actions.bar-above { button.danger { "Stop the chosen jobs" } }
            (table(query, &view.rows, now_s, Choice::Offered))
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
        @else { (list) (meanings(view.rows.iter().map(|row| row.reason.as_str()))) }
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
                th scope="col" { "State" }
                th scope="col" { "User" }
                th scope="col" { "Queue" }
                th scope="col" { "Virtual cluster" }
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

/// A value that leads to all jobs with it.
fn filtered(name: &str, value: &str) -> Markup {
    html! { @if value.is_empty() { "-" } @else { a href=(link("/jobs", &[(name, value)])) { (value) } } }
}

fn line(row: &JobRow, now_s: i64, choice: Choice) -> Markup {
    let name = JobName::new(&row.namespace, &row.resource, &row.name).text();
    html! {
        tr id={ "job-" (name) } {
            @if choice == Choice::Offered { td { @if !row.state.is_final() {
                input type="checkbox" name="job" value=(name) aria-label={ "Choose " (row.namespace) "/" (row.name) };
            } } }
            th scope="row" { (job_link(row)) div.quiet { (row.kind) } }
            td { (state_badge(row.state)) }
            td { (filtered("user", &row.user)) }
            td { (queue_name(&row.queue)) }
            td { (filtered("vc", &row.virtual_cluster)) }
            td { @if row.clusters.is_empty() { "-" } @else { (row.clusters.join(", ")) } }
            td.number { (row.priority) }
            td.number { (row.gpus) }
            td.number { (row.runs) }
            td { (ago(row.created_s, now_s)) }
            td { @if let Some(ended) = row.ended_s { (ago(ended, now_s)) div.quiet { "took " (duration(ended - row.created_s)) } }
                @else { (ago(row.since_s, now_s)) } }
            td { (reason(&row.reason, &row.message)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use fleet_views::{BindingFacts, Known, Said, Sight};

    use super::*;

    #[test]
    fn a_list_says_whose_jobs_they_are_and_can_stop_them_from_above() {
        let mut known = Known::default();
        let message = "Insufficient quota(nvidia.com/gpu) in parent quota root: request 16, max 96, used 93";
        let said =
            |reason: &str| Some(Said { reason: reason.to_owned(), message: message.to_owned(), since_s: 1 });
        for (name, reason) in [("one", "InsufficientQuotaInParent"), ("two", "OfItsOwn")] {
            let facts = BindingFacts {
                name: name.to_owned(),
                user: "alice".to_owned(),
                virtual_cluster: "vision".to_owned(),
                unscheduled: said(reason),
                ..BindingFacts::default()
            };
            known.set_binding(("a".to_owned(), name.to_owned()), Some(facts));
        }
        let query = JobQuery { limit: 10, ..JobQuery::default() };
        let page = jobs(&query, &fleet_views::jobs(&known, &Sight::all(), &query), 9).into_string();
        for says in [
            "<a href=\"/jobs?user=alice\">alice</a>",
            "<a href=\"/jobs?vc=vision\">vision</a>",
            "request 16, max 96, used 93",
        ] {
            assert_eq!(page.matches(says).count(), 2, "{says} in {page}");
        }
        assert!(page.find("Stop the chosen jobs") < page.find("<table"), "{page}");
        // What a reason means is text; of one that is not Fleet's nothing is known.
        let meanings = page.split("What these reasons mean").nth(1).expect("meanings");
        assert!(meanings.contains("<dt class=\"reason\">InsufficientQuotaInParent</dt>"), "{meanings}");
        assert!(!meanings.contains("OfItsOwn") && !page.contains("title=\"Insuff"), "{meanings}");
    }
}
