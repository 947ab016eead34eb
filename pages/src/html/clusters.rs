//! Member clusters and their nodes.

use std::collections::BTreeMap;

use fleet_views::{ClusterRow, Heat, HeatCell};
use maud::{Markup, html};

use super::parts::{ago, bars, job_link, reason};

/// Nodes drawn with a number and a title each; more are drawn as plain squares.
const MOST_NAMED: usize = 128;
const PER_ROW: usize = 32;
/// More domains than this are not drawn each by itself.
const MOST_DOMAINS: usize = 64;
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
                " from all free to none free" span.unusable {} "takes no pods" span.of-cells {} "for cells of virtual clusters"
                span.tainted {} "has taints" }
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
            @if !row.heat.cells.is_empty() { (heat(&row.heat, &row.name)) }
            (moving(row, now_s))
            @if !row.jobs.is_empty() {
                details id={ "jobs-" (row.name) } {
                    summary { "Running here: " (row.jobs.len() + row.more_jobs) }
                    ul { @for job in &row.jobs { li { (job_link(job)) " " (job.requests) ", for " (ago(job.since_s, now_s)) } }
                        @if row.more_jobs > 0 { li { a href=(crate::pairs::link("/jobs", &[("cluster", &row.name), ("state", "Running")])) { (row.more_jobs) " more" } } }
                    }
                }
            }
        }
    }
}

fn moving(row: &ClusterRow, now_s: i64) -> Markup {
    html! {
        @if !row.moving.is_empty() {
            h3 { "Moving away: " (row.moving.len() + row.more_moving) }
            div.scroll { table {
                thead { tr { th scope="col" { "Job" } th scope="col" { "Why" } th scope="col" { "Where it is" } th scope="col" { "Since" } } }
                tbody { @for one in &row.moving { tr {
                    th scope="row" { (job_link(&one.job)) }
                    td { (reason(&one.why, "")) }
                    td { (one.state) }
                    td { (ago(one.since_s, now_s)) }
                } } }
            } }
            @if row.more_moving > 0 { p.quiet { (row.more_moving) " more are not listed." } }
        }
    }
}

/// Domain by domain; all together where the cluster says none, or too many.
fn heat(heat: &Heat, name: &str) -> Markup {
    let domains: Vec<&[HeatCell]> = heat.cells.chunk_by(|a, b| a.domain == b.domain).collect();
    let draw = if heat.cells.len() <= MOST_NAMED { named } else { plain };
    html! {
        @if domains.len() > MOST_DOMAINS || domains.len() == 1 {
            (draw(&heat.cells, &format!("Nodes of {name} by free GPUs")))
        } @else {
            div.domains { @for cells in domains {
                @let domain = cells.first().map_or("", |cell| cell.domain.as_str());
                @let domain = if domain.is_empty() { "other nodes" } else { domain };
                figure {
                    figcaption { (domain) ", " (cells.iter().map(|cell| cell.nodes).sum::<i64>()) " nodes" }
                    (draw(cells, &format!("Nodes of {name}, {domain}, by free GPUs")))
                }
            } }
        }
        @if heat.nodes_per_cell > 1 { p.quiet { "A square stands for up to " (heat.nodes_per_cell) " nodes that are alike." } }
    }
}

/// How a node is drawn.
fn class(cell: &HeatCell) -> String {
    let shade = if cell.is_unusable { "unusable".to_owned() } else { format!("shade-{}", cell.shade) };
    let tainted = if cell.is_tainted { " tainted" } else { "" };
    let of_cells = if cell.is_of_cells { " of-cells" } else { "" };
    format!("{shade}{tainted}{of_cells}")
}

/// Each node with its free GPUs, and who is on it.
fn named(cells: &[HeatCell], label: &str) -> Markup {
    let (columns, rows) = (PER_ROW.min(cells.len()), cells.len().div_ceil(PER_ROW));
    html! {
        svg.heat.named role="img" aria-label=(label) width=(columns * 30) height=(rows * 30)
            viewBox={ "0 0 " (columns * 30) " " (rows * 30) } {
            @for (index, cell) in cells.iter().enumerate() {
                @let (x, y) = (index % PER_ROW * 30, index / PER_ROW * 30);
                g {
                    title { (cell.text) }
                    rect class=(class(cell)) x=(x + 2) y=(y + 2) width="26" height="26" rx="4" {}
                    @if cell.is_unusable { text class="on-unusable" x=(x + 15) y=(y + 19) text-anchor="middle" { "×" } }
                    @else { text class={ "on-" (cell.shade) } x=(x + 15) y=(y + 19) text-anchor="middle" { (cell.gpus_free) } }
                }
            }
        }
    }
}

/// Squares alone: one path for all that look the same.
fn plain(cells: &[HeatCell], label: &str) -> Markup {
    let (columns, rows) = (PER_LONG_ROW.min(cells.len()), cells.len().div_ceil(PER_LONG_ROW));
    let mut paths: BTreeMap<String, String> = BTreeMap::new();
    for (index, cell) in cells.iter().enumerate() {
        let (x, y) = (index % PER_LONG_ROW * 12, index / PER_LONG_ROW * 12);
        paths.entry(class(cell)).or_default().push_str(&format!("M{x} {y}h10v10h-10z"));
    }
    html! {
        svg.heat role="img" aria-label=(label) width=(columns * 12) viewBox={ "0 0 " (columns * 12) " " (rows * 12) } {
            @for (class, d) in &paths { path class=(class) d=(d) {} }
        }
    }
}
