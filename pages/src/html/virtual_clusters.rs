//! Virtual clusters: what each is promised and uses, and who is on which cell.

use fleet_openpai::cells::tree::Row;
use maud::{Markup, html};

use super::parts::bar;
use crate::shown::{OwnCells, VirtualClustersView};

/// Deeper levels are not moved further in.
const MOST_DEPTH: usize = 6;

pub fn virtual_clusters(view: &VirtualClustersView) -> Markup {
    html! {
        h1 { "Virtual clusters" }
        @if !view.absent.is_empty() { p.quiet { (view.absent) } }
        @if view.tree_absent.is_empty() {
            p { a href="/virtual-clusters/configuration" { "Change the configuration" } ", after a look at what that would change" }
        }
        @if !view.rows.is_empty() {
            // A column of which nothing is promised to anybody is left out.
            @let has_cpus = view.rows.iter().any(|row| is_something(&row.cpu));
            @let has_memory = view.rows.iter().any(|row| is_something(&row.memory));
            div.scroll { table.queues {
                thead { tr { th scope="col" { "Virtual cluster" } th scope="col" { "Leaf cells used, of those promised" } th scope="col" { "In use" } th scope="col" { "GPUs" }
                    @if has_cpus { th scope="col" { "CPUs" } } @if has_memory { th scope="col" { "Memory" } }
                    th scope="col" { "Lent" } th scope="col" { "Borrowed" } th scope="col" { "Bad" } th scope="col" { "Waiting" } th scope="col" { "Running" } } }
                tbody { @for row in &view.rows { tr {
                    th scope="row" { (row.name) }
                    td { div.bars { (bar(&row.bar)) } }
                    td { (or_dash(&row.allocation)) }
                    td { (amount(&row.gpu)) }
                    @if has_cpus { td { (amount(&row.cpu)) } }
                    @if has_memory { td { (amount(&row.memory)) } }
                    td.number { (row.lent) }
                    td.number { (row.borrowed) }
                    td.number { (row.bad) }
                    td.number { (row.waiting) }
                    td.number { (row.running) }
                } } }
            } }
        }
        @if !view.cells.is_empty() {
            h2 { "What each is promised" }
            p.quiet { "A promise has a cell as soon as one of its jobs uses it. A bad one stands on a bad node. A doomed one is not in use, and no good cells are left that could stand for it. Borrowed cells are one line for each job." }
            @for own in &view.cells { (own_cells(own, view)) }
        }
        @if !view.tree.is_empty() {
            h2 { "Who is on which cell" }
            p.quiet { "A cell that is all the same inside is one line." }
            div.scroll { table {
                thead { tr { th scope="col" { "Cell" } th scope="col" { "Type" } th scope="col" { "Promised to" } th scope="col" { "Leaves used" }
                    th scope="col" { "Health" } th scope="col" { "Jobs" } } }
                tbody { @for row in &view.tree { tr {
                    th scope="row" class={ "depth-" (row.depth.min(MOST_DEPTH)) } { (row.name) }
                    td { (row.cell_type) }
                    td { (row.virtual_clusters.join(", ")) }
                    td { (row.used) "/" (row.leaves) }
                    td { (health(row.healthiness.as_str(), false)) }
                    td { (occupants(row, view)) }
                } } }
            } }
            @if view.more > 0 { p.quiet { (view.more) " more cells are not drawn; " code { "fleet vc" } " shows all." } }
        }
        @if !view.tree_absent.is_empty() { p.quiet { (view.tree_absent) } }
    }
}

/// Ending of the name of a cell that is no promise: an opportunistic job borrows it.
const BORROWED: &str = "-opp";

/// A promise with its parts, or all that one job borrows.
enum Line<'v> {
    Promise(&'v Row),
    Borrowed(Vec<&'v Row>),
}

/// The cells that a job borrows are one line: they may be many, and say the same.
fn lines(rows: &[Row]) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for row in rows {
        let is_borrowed = row.depth == 0 && row.name.ends_with(BORROWED);
        match lines.last_mut() {
            Some(Line::Borrowed(all))
                if is_borrowed
                    && all.iter().all(|one| one.jobs == row.jobs && one.cell_type == row.cell_type) =>
            {
                all.push(row);
            }
            _ if is_borrowed => lines.push(Line::Borrowed(vec![row])),
            _ => lines.push(Line::Promise(row)),
        }
    }
    lines
}

/// Unused promises that are bad have no cell: nothing good is left for them.
fn is_doomed(row: &Row) -> bool {
    row.healthiness != "Healthy" && row.used == 0 && row.jobs.is_empty()
}

fn own_cells(own: &OwnCells, view: &VirtualClustersView) -> Markup {
    let promises = || own.rows.iter().filter(|row| row.depth == 0 && row.healthiness != "Healthy");
    let doomed = promises().filter(|row| is_doomed(row)).count();
    let bad = promises().count() - doomed;
    html! {
        details id={ "cells-" (own.name) } {
            summary { (own.name) @if bad > 0 { " " span.badge.failed { (bad) " with bad cells" } }
                @if doomed > 0 { " " span.badge.waiting { (doomed) " doomed" } } }
            div.scroll { table {
                thead { tr { th scope="col" { "Promise" } th scope="col" { "Type" } th scope="col" { "Stands on" } th scope="col" { "Leaves used" }
                    th scope="col" { "Health" } th scope="col" { "Jobs" } } }
                tbody { @for line in lines(&own.rows) { @match line {
                    Line::Promise(row) => (promise(row, view)),
                    Line::Borrowed(rows) => (borrowed(&rows, view)),
                } } }
            } }
            @if own.more > 0 { p.quiet { (own.more) " more cells are not drawn; " code { "fleet vc cells --vc " (own.name) } " shows all." } }
        }
    }
}

fn promise(row: &Row, view: &VirtualClustersView) -> Markup {
    html! { tr {
        th scope="row" class={ "depth-" (row.depth.min(MOST_DEPTH)) } { (row.name) }
        td { (row.cell_type) }
        td { (or_dash(&row.stands_for)) }
        td { (row.used) "/" (row.leaves) }
        td { (health(&row.healthiness, is_doomed(row))) }
        td { (occupants(row, view)) }
    } }
}

fn borrowed(rows: &[&Row], view: &VirtualClustersView) -> Markup {
    /// Addresses in one line.
    const MOST: usize = 4;
    let names: Vec<&str> = rows.iter().map(|row| row.stands_for.as_str()).take(MOST).collect();
    let (used, leaves): (usize, usize) =
        rows.iter().fold((0, 0), |(used, leaves), row| (used + row.used, leaves + row.leaves));
    let worst = rows.iter().find(|row| row.healthiness != "Healthy").or(rows.first());
    html! { @if let Some(row) = worst { tr {
        th scope="row" { "borrowed" }
        td { (rows.len()) " × " (row.cell_type) }
        td { (names.join(", ")) @if rows.len() > MOST { ", and " (rows.len() - MOST) " more" } }
        td { (used) "/" (leaves) }
        td { (health(&row.healthiness, false)) }
        td { (occupants(row, view)) }
    } } }
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

/// Nothing is promised of what a configuration does not name.
fn is_something(amount: &str) -> bool {
    !matches!(amount, "" | "-") && !amount.ends_with("/0") && !amount.ends_with("/0Gi")
}

/// `4/8`, used of promised.
fn amount(text: &str) -> &str {
    if is_something(text) { text } else { "-" }
}

fn health(healthiness: &str, is_doomed: bool) -> Markup {
    html! { @match healthiness {
        "Healthy" => "good",
        _ if is_doomed => span.badge.waiting { "doomed" },
        other => span.badge.failed { (other) },
    } }
}

fn occupants(row: &Row, view: &VirtualClustersView) -> Markup {
    html! { @for occupant in &row.jobs { div {
        @match view.links.get(&occupant.job) { Some(link) => a href=(link) { (occupant.job) }, None => (occupant.job) }
        " " span.quiet { (occupant.class) " of " (occupant.virtual_cluster) }
    } } }
}

#[cfg(test)]
mod tests {
    use fleet_openpai::cells::tree::Occupant;

    use super::*;

    fn row(name: &str, health: &str, job: Option<&str>) -> Row {
        let occupant = |job: &str| Occupant { job: job.into(), class: "oppo".into(), ..Occupant::default() };
        Row {
            name: name.into(),
            cell_type: "GPU".into(),
            stands_for: name.trim_end_matches(BORROWED).into(),
            healthiness: health.into(),
            leaves: 1,
            used: usize::from(job.is_some()),
            jobs: job.map(occupant).into_iter().collect(),
            ..Row::default()
        }
    }

    #[test]
    fn what_a_job_borrows_is_one_line_and_doomed_is_not_bad() {
        let rows = vec![
            row("vc/0", "Bad", Some("a/one")),
            row("vc/1", "Bad", None),
            row("n/4-opp", "Healthy", Some("a/sweep")),
            row("n/5-opp", "Healthy", Some("a/sweep")),
            row("n/6-opp", "Healthy", Some("b/other")),
        ];
        let view = VirtualClustersView {
            links: [("a/sweep".to_owned(), "/jobs/a/jobs.batch/sweep".to_owned())].into(),
            ..VirtualClustersView::default()
        };
        let own = OwnCells { name: "vc".into(), rows, more: 0 };
        let page = own_cells(&own, &view).into_string();
        assert_eq!(page.matches("<tr>").count(), 1 + 4, "{page}");
        for says in [
            "1 with bad cells",
            "1 doomed",
            "2 × GPU",
            "n/4, n/5",
            "<a href=\"/jobs/a/jobs.batch/sweep\">a/sweep</a>",
        ] {
            assert!(page.contains(says), "{says} in {page}");
        }
        assert_eq!(page.matches("badge waiting\">doomed").count(), 1, "{page}");
    }

    #[test]
    fn nothing_of_nothing_is_a_dash() {
        for (text, expected) in
            [("0/0", "-"), ("0Gi/0Gi", "-"), ("", "-"), ("-", "-"), ("0/8", "0/8"), ("4/10", "4/10")]
        {
            assert_eq!(amount(text), expected);
        }
        // The first part of a node is no amount.
        assert_eq!((or_dash("rack-1/node-9/0"), or_dash("")), ("rack-1/node-9/0", "-"));
    }

    #[test]
    fn what_nobody_is_promised_has_no_column() {
        let facts = |cpu: &str| fleet_views::VirtualClusterFacts {
            name: "a".into(),
            gpu: "4/8".into(),
            cpu: cpu.into(),
            memory: "0Gi/0Gi".into(),
            ..Default::default()
        };
        let page = |cpus: [&str; 2]| {
            let rows = cpus.map(|cpu| fleet_views::virtual_cluster(&facts(cpu))).to_vec();
            virtual_clusters(&VirtualClustersView { rows, ..Default::default() }).into_string()
        };
        let without = page(["0/0", "0/0"]);
        assert!(!without.contains("CPUs") && !without.contains("Memory"), "{without}");
        let with = page(["0/0", "2/4"]);
        assert!(
            with.contains("CPUs") && with.contains("<td>-</td>") && with.contains("<td>2/4</td>"),
            "{with}"
        );
    }
}
