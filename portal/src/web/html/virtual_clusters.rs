//! Virtual clusters: what each is promised and uses, and who is on which cell.

use maud::{Markup, html};

use super::parts::bar;
use crate::web::shown::VirtualClustersView;

/// Deeper levels are not moved further in.
const MOST_DEPTH: usize = 6;

pub fn virtual_clusters(view: &VirtualClustersView) -> Markup {
    html! {
        h1 { "Virtual clusters" }
        @if !view.absent.is_empty() { p.quiet { (view.absent) } }
        @if !view.rows.is_empty() {
            div.scroll { table.queues {
                thead { tr { th scope="col" { "Virtual cluster" } th scope="col" { "Leaf cells used, of those promised" } th scope="col" { "GPUs" }
                    th scope="col" { "Lent" } th scope="col" { "Borrowed" } th scope="col" { "Bad" } th scope="col" { "Waiting" } th scope="col" { "Running" } } }
                tbody { @for row in &view.rows { tr {
                    th scope="row" { (row.name) }
                    td { div.bars { (bar(&row.bar)) } }
                    td { (row.gpu) }
                    td.number { (row.lent) }
                    td.number { (row.borrowed) }
                    td.number { (row.bad) }
                    td.number { (row.waiting) }
                    td.number { (row.running) }
                } } }
            } }
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
                    td { @if row.healthiness == "Healthy" { "good" } @else { span.badge.failed { (row.healthiness) } } }
                    td { @for occupant in &row.jobs { div { (occupant.job) " " span.quiet { (occupant.class) " of " (occupant.virtual_cluster) } } } }
                } } }
            } }
            @if view.more > 0 { p.quiet { (view.more) " more cells are not drawn; " code { "fleet vc" } " shows all." } }
        }
        @if !view.tree_absent.is_empty() { p.quiet { (view.tree_absent) } }
    }
}
