//! Member clusters and their nodes.

use fleet_views::{ClusterRow, Heat};
use maud::{Markup, html};

use super::parts::{ago, bars, duration, job_link};

/// Nodes drawn with a number and a title each; more are drawn as plain squares.
const MOST_NAMED: usize = 128;
const PER_ROW: usize = 32;
/// Squares of a large cluster in one row.
const PER_LONG_ROW: usize = 60;

pub fn clusters(rows: &[ClusterRow], now_s: i64) -> Markup {
    html! {
        h1 { "Clusters" }
        @if rows.is_empty() {
            p.quiet { "No clusters to show: none has joined, or the hub does not let you list them." }
        } @else {
            p.legend { "Each square is a node; the number is its free GPUs. "
                @for shade in 0..=4 { span class={ "shade-" (shade) } {} }
                " from all free to none free; a dashed edge: the node has taints" }
        }
        @for row in rows { (cluster(row, now_s)) }
    }
}

fn cluster(row: &ClusterRow, now_s: i64) -> Markup {
    html! {
        section.cluster #(row.name) {
            h2 { (row.name) " " span class=(if row.is_well { "badge succeeded" } else { "badge failed" }) { (row.state) } }
            @if !row.sentence.is_empty() { p { (row.sentence) } }
            p.quiet {
                (row.nodes_ready) " of " (row.nodes) " nodes ready"
                @if !row.version.is_empty() { " · Kubernetes " (row.version) }
                @if !row.region.is_empty() { " · " (row.region) }
                @if let Some(renewed) = row.lease_renewed_s { " · lease renewed " (ago(renewed, now_s)) " ago" }
            }
            @if !row.taints.is_empty() {
                p { "Taints: " @for taint in &row.taints { code { (taint.key) @if !taint.value.is_empty() { "=" (taint.value) } ":" (taint.effect) } " " } }
            }
            (bars(&row.bars))
            (heat(&row.heat, &row.name))
            @if !row.jobs.is_empty() {
                details id={ "jobs-" (row.name) } {
                    summary { "Running here: " (row.jobs.len() + row.more_jobs) }
                    ul { @for job in &row.jobs { li { (job_link(job)) " " (job.requests) ", for " (duration(now_s - job.since_s)) } }
                        @if row.more_jobs > 0 { li { a href=(crate::web::pairs::link("/jobs", &[("cluster", &row.name), ("state", "Running")])) { (row.more_jobs) " more" } } }
                    }
                }
            }
        }
    }
}

fn heat(heat: &Heat, name: &str) -> Markup {
    let label = format!("Nodes of {name} by free GPUs");
    if heat.cells.len() <= MOST_NAMED {
        let rows = heat.cells.len().div_ceil(PER_ROW);
        return html! {
            @if !heat.cells.is_empty() {
                svg.heat.named role="img" aria-label=(label) width=(PER_ROW.min(heat.cells.len()) * 30) height=(rows * 30)
                    viewBox={ "0 0 " (PER_ROW.min(heat.cells.len()) * 30) " " (rows * 30) } {
                    @for (index, cell) in heat.cells.iter().enumerate() {
                        @let (x, y) = (index % PER_ROW * 30, index / PER_ROW * 30);
                        g {
                            title { (cell.text) }
                            rect class={ "shade-" (cell.shade) @if cell.is_tainted { " tainted" } } x=(x + 1) y=(y + 1) width="27" height="27" rx="4" {}
                            text class={ "on-" (cell.shade) } x=(x + 14) y=(y + 19) text-anchor="middle" { (cell.gpus_free) }
                        }
                    }
                }
            }
        };
    }
    let rows = heat.cells.len().div_ceil(PER_LONG_ROW);
    let square =
        |index: usize| format!("M{} {}h10v10h-10z", index % PER_LONG_ROW * 12, index / PER_LONG_ROW * 12);
    let path = |shade: i64, is_tainted: bool| {
        let of = heat
            .cells
            .iter()
            .enumerate()
            .filter(|(_, cell)| cell.shade == shade && cell.is_tainted == is_tainted);
        of.map(|(index, _)| square(index)).collect::<String>()
    };
    html! {
        svg.heat role="img" aria-label=(label) viewBox={ "0 0 " (PER_LONG_ROW * 12) " " (rows * 12) } {
            @for shade in 0..=4 { @for is_tainted in [false, true] {
                @let d = path(shade, is_tainted);
                @if !d.is_empty() { path class={ "shade-" (shade) @if is_tainted { " tainted" } } d=(d) {} }
            } }
        }
        @if heat.nodes_per_cell > 1 { p.quiet { "A square stands for up to " (heat.nodes_per_cell) " nodes that are alike." } }
    }
}
