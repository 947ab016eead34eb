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
            div.scroll { table.queues {
                thead { tr { th scope="col" { "Virtual cluster" } th scope="col" { "Leaf cells used, of those promised" } th scope="col" { "In use" } th scope="col" { "GPUs" } th scope="col" { "CPUs" } th scope="col" { "Memory" }
                    th scope="col" { "Lent" } th scope="col" { "Borrowed" } th scope="col" { "Bad" } th scope="col" { "Waiting" } th scope="col" { "Running" } } }
                tbody { @for row in &view.rows { tr {
                    th scope="row" { (row.name) }
                    td { div.bars { (bar(&row.bar)) } }
                    td { (or_dash(&row.allocation)) }
                    td { (or_dash(&row.gpu)) }
                    td { (or_dash(&row.cpu)) }
                    td { (or_dash(&row.memory)) }
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
            p.quiet { "A promise has a cell as soon as one of its jobs uses it. A bad one stands on a bad node, or there are no good cells left that could stand for it." }
            @for own in &view.cells { (own_cells(own)) }
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
                    td { (health(row)) }
                    td { (occupants(row)) }
                } } }
            } }
            @if view.more > 0 { p.quiet { (view.more) " more cells are not drawn; " code { "fleet vc" } " shows all." } }
        }
        @if !view.tree_absent.is_empty() { p.quiet { (view.tree_absent) } }
    }
}

fn own_cells(own: &OwnCells) -> Markup {
    let bad = own.rows.iter().filter(|row| row.depth == 0 && row.healthiness != "Healthy").count();
    html! {
        details id={ "cells-" (own.name) } {
            summary { (own.name) @if bad > 0 { " " span.badge.failed { (bad) " with bad cells" } } }
            div.scroll { table {
                thead { tr { th scope="col" { "Promise" } th scope="col" { "Type" } th scope="col" { "Stands on" } th scope="col" { "Leaves used" }
                    th scope="col" { "Health" } th scope="col" { "Jobs" } } }
                tbody { @for row in &own.rows { tr {
                    th scope="row" class={ "depth-" (row.depth.min(MOST_DEPTH)) } { (row.name) }
                    td { (row.cell_type) }
                    td { (or_dash(&row.stands_for)) }
                    td { (row.used) "/" (row.leaves) }
                    td { (health(row)) }
                    td { (occupants(row)) }
                } } }
            } }
            @if own.more > 0 { p.quiet { (own.more) " more cells are not drawn; " code { "fleet vc cells --vc " (own.name) } " shows all." } }
        }
    }
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

fn health(row: &Row) -> Markup {
    html! { @if row.healthiness == "Healthy" { "good" } @else { span.badge.failed { (row.healthiness) } } }
}

fn occupants(row: &Row) -> Markup {
    html! { @for occupant in &row.jobs { div { (occupant.job) " " span.quiet { (occupant.class) " of " (occupant.virtual_cluster) } } } }
}
