//! Member clusters and their nodes: a map to look at, and below it the same in words.

use std::collections::BTreeMap;

use fleet_views::{ClusterPage, ClusterRow, Heat, HeatCell, NodePage, NodeRow};
use maud::{Markup, html};

use super::parts::{ago, bars, job_link, reason};
use crate::page::{JobName, cluster_link};

/// Nodes drawn with a number and a title each; more are drawn as plain squares.
const MOST_NAMED: usize = 128;
const PER_ROW: usize = 32;
/// More domains than this are not drawn each by itself.
const MOST_DOMAINS: usize = 64;
/// Squares of a large cluster in one row.
const PER_LONG_ROW: usize = 60;

pub fn clusters(pages: &[ClusterPage], now_s: i64) -> Markup {
    html! {
        h1 { "Clusters" }
        @if pages.is_empty() {
            p.quiet { "No clusters to show: none has joined, or the hub does not let you list them." }
        } @else { (legend()) }
        @for page in pages {
            (cluster(&page.row, now_s, html! {
                @if page.table.total > 0 {
                    details id={ "nodes-" (page.row.name) } {
                        summary { "Nodes: " (page.row.nodes) }
                        (table(&page.table))
                        @if page.table.rows.len() < page.table.total {
                            p { a href=(cluster_link(&page.row.name, 0)) { "All nodes of " (page.row.name) } }
                        }
                    }
                }
            }))
        }
    }
}

/// One cluster, and page by page all of its nodes.
pub fn alone(page: &ClusterPage, now_s: i64) -> Markup {
    let NodePage { rows, before, previous, total } = &page.table;
    let after = before + rows.len();
    html! {
        nav.crumbs aria-label="Pages above" { a href="/clusters" { "Clusters" } }
        h1 { "Cluster " (page.row.name) }
        (legend())
        (cluster(&page.row, now_s, html! {}))
        h2 #nodes { "Nodes" }
        @if rows.is_empty() { p.quiet { "No nodes to show." } } @else {
            p.quiet { "Rows " (before + 1) " to " (after) " of " (total) "." }
            (table(&page.table))
        }
        @if previous.is_some() || after < *total {
            p.pages {
                @if let Some(previous) = previous { a rel="prev" href=(cluster_link(&page.row.name, *previous)) { "Nodes before" } " " }
                @if after < *total { a rel="next" href=(cluster_link(&page.row.name, after)) { "Next nodes" } }
            }
        }
    }
}

fn cluster(row: &ClusterRow, now_s: i64, nodes: Markup) -> Markup {
    html! {
        section.cluster #(row.name) {
            h2 { a href=(cluster_link(&row.name, 0)) { (row.name) } " " span class=(if row.is_well { "badge succeeded" } else { "badge failed" }) { (row.state) } }
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
            (nodes)
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

/// Nodes in words.
fn table(page: &NodePage) -> Markup {
    let has_domains = page.rows.iter().any(|row| !row.domain.is_empty());
    html! {
        div.scroll { table.nodes {
            thead { tr { th scope="col" { "Node" } @if has_domains { th scope="col" { "Group" } } th scope="col" { "Free GPUs" } th scope="col" { "State" }
                th scope="col" { "Jobs" } } }
            tbody { @for row in &page.rows { tr {
                th scope="row" { (node_name(row)) }
                @if has_domains { td { (if row.domain.is_empty() { "-" } else { row.domain.as_str() }) } }
                td { @if row.gpus == 0 { "no GPUs" } @else { (row.gpus_free) " of " (row.gpus) } }
                td { (node_state(row)) }
                td { (node_jobs(row)) }
            } } }
        } }
    }
}

fn node_name(row: &NodeRow) -> Markup {
    html! {
        @if row.name.is_empty() { (row.nodes) @if row.nodes == 1 { " node" } @else { " nodes, each" } } @else { (row.name) }
    }
}

fn node_state(row: &NodeRow) -> Markup {
    html! {
        @match row.state.as_str() {
            "ready" => "ready",
            "reserved" => span.badge.waiting { "reserved" },
            "cordoned" => span.badge { "cordoned" },
            other => span.badge.failed { (other) },
        }
        @if row.is_of_cells { div.quiet { "for cells of virtual clusters" } }
        @if !row.taints.is_empty() { div.quiet { "tainted " (row.taints.join(", ")) } }
    }
}

fn node_jobs(row: &NodeRow) -> Markup {
    html! {
        @for job in &row.jobs { div {
            @if job.is_reserved { "reserved for " }
            a href=(JobName::new(&job.namespace, &job.resource, &job.name).link()) { (job.namespace) "/" wbr; (job.name) }
        } }
        @if row.others > 0 { div.quiet { (row.others) " other " @if row.others == 1 { "job" } @else { "jobs" } } }
        @if row.jobs.is_empty() && row.others == 0 { "-" }
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

/// How a node is drawn. All that look the same are one path of each part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct NodeStyle {
    shade: i64,
    is_unready: bool,
    is_cordoned: bool,
    is_reserved: bool,
    is_tainted: bool,
    is_of_cells: bool,
}

impl NodeStyle {
    fn of(cell: &HeatCell) -> Self {
        Self {
            shade: cell.shade,
            is_unready: cell.is_unusable && !cell.is_cordoned,
            is_cordoned: cell.is_cordoned,
            is_reserved: cell.is_reserved,
            is_tainted: cell.is_tainted,
            is_of_cells: cell.is_of_cells,
        }
    }

    fn class(self) -> String {
        let fill = match self {
            Self { is_unready: true, .. } => "unready".to_owned(),
            Self { is_cordoned: true, .. } => "cordoned".to_owned(),
            Self { shade, .. } => format!("shade-{shade}"),
        };
        if self.is_of_cells { format!("{fill} of-cells") } else { fill }
    }

    /// What stands on a square of this size: a cross or a bar over all of it, triangles in two corners.
    fn marks(self, x: usize, y: usize, size: usize) -> Vec<(&'static str, String)> {
        let (third, corner) = (size * 3 / 10, size / 2);
        let (far, wide) = (size - third, size - 2 * third);
        let mut marks = Vec::new();
        if self.is_unready {
            let (left, top, right) = (x + third, y + third, x + far);
            marks.push(("cross", format!("M{left} {top}l{wide} {wide}M{right} {top}l-{wide} {wide}")));
        }
        if self.is_cordoned {
            marks.push(("cross still", format!("M{} {}h{wide}", x + third, y + size / 2)));
        }
        if self.is_reserved {
            marks.push(("reserved", format!("M{x} {y}h{corner}l-{corner} {corner}z")));
        }
        if self.is_tainted {
            marks.push(("tainted", format!("M{} {}h-{corner}l{corner} -{corner}z", x + size, y + size)));
        }
        marks
    }
}

/// The squares of the maps, with what each means.
fn legend() -> Markup {
    let plain = NodeStyle::default();
    let keys = [
        (NodeStyle { is_reserved: true, ..plain }, "reserved for a job that has not started"),
        (NodeStyle { is_of_cells: true, ..plain }, "for cells of virtual clusters"),
        (NodeStyle { is_tainted: true, ..plain }, "has taints"),
        (NodeStyle { is_cordoned: true, ..plain }, "cordoned"),
        (NodeStyle { is_unready: true, ..plain }, "not ready"),
    ];
    let key = |style: NodeStyle| {
        html! {
            svg.key width="18" height="18" viewBox="0 0 18 18" aria-hidden="true" {
                rect class=(style.class()) x="1" y="1" width="16" height="16" rx="3" {}
                @for (class, d) in style.marks(1, 1, 16) { path class=(class) d=(d) {} }
            }
        }
    };
    html! {
        p.legend { "Each square is a node; the number is its free GPUs. "
            @for shade in 0..=4 { (key(NodeStyle { shade, ..plain })) }
            " from all free to none free"
            @for (style, means) in keys { span.pair { (key(style)) (means) } }
        }
    }
}

/// Each node with its free GPUs, and who is on it.
fn named(cells: &[HeatCell], label: &str) -> Markup {
    let (columns, rows) = (PER_ROW.min(cells.len()), cells.len().div_ceil(PER_ROW));
    html! {
        svg.heat.named role="img" aria-label=(label) width=(columns * 30) height=(rows * 30)
            viewBox={ "0 0 " (columns * 30) " " (rows * 30) } {
            @for (index, cell) in cells.iter().enumerate() {
                @let (x, y) = (index % PER_ROW * 30, index / PER_ROW * 30);
                @let style = NodeStyle::of(cell);
                g {
                    title { (cell.text) }
                    rect class=(style.class()) x=(x + 2) y=(y + 2) width="26" height="26" rx="4" {}
                    @for (class, d) in style.marks(x + 2, y + 2, 26) { path class=(class) d=(d) {} }
                    @if !cell.is_unusable { text class={ "on-" (cell.shade) } x=(x + 15) y=(y + 20) text-anchor="middle" { (cell.gpus_free) } }
                }
            }
        }
    }
}

/// Squares alone: one path for all that look the same, and above them one of each mark.
fn plain(cells: &[HeatCell], label: &str) -> Markup {
    let (columns, rows) = (PER_LONG_ROW.min(cells.len()), cells.len().div_ceil(PER_LONG_ROW));
    let (mut squares, mut marks) = (BTreeMap::<NodeStyle, String>::new(), BTreeMap::<&str, String>::new());
    for (index, cell) in cells.iter().enumerate() {
        let (x, y) = (index % PER_LONG_ROW * 12, index / PER_LONG_ROW * 12);
        let style = NodeStyle::of(cell);
        squares.entry(style).or_default().push_str(&format!("M{x} {y}h10v10h-10z"));
        for (class, d) in style.marks(x, y, 10) {
            marks.entry(class).or_default().push_str(&d);
        }
    }
    html! {
        svg.heat role="img" aria-label=(label) width=(columns * 12) viewBox={ "0 0 " (columns * 12) " " (rows * 12) } {
            @for (style, d) in &squares { path class=(style.class()) d=(d) {} }
            @for (class, d) in &marks { path class=(class) d=(d) {} }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes that differ in what they take look different, in a small map, in a large one and in the legend.
    #[test]
    fn what_a_node_is_has_a_mark_of_its_own() {
        let cell = |change: fn(&mut HeatCell)| {
            let mut cell = HeatCell { nodes: 1, gpus: 8, gpus_free: 8, ..HeatCell::default() };
            change(&mut cell);
            cell
        };
        let cells = [
            cell(|_| {}),
            cell(|cell| cell.is_reserved = true),
            cell(|cell| cell.is_tainted = true),
            cell(|cell| cell.is_of_cells = true),
            cell(|cell| cell.is_unusable = true),
            cell(|cell| (cell.is_unusable, cell.is_cordoned) = (true, true)),
        ];
        let styles: std::collections::BTreeSet<String> = cells
            .iter()
            .map(|cell| format!("{} {:?}", NodeStyle::of(cell).class(), NodeStyle::of(cell).marks(0, 0, 10)))
            .collect();
        assert_eq!(styles.len(), cells.len());
        for drawn in [named(&cells, "nodes"), plain(&cells, "nodes"), legend()] {
            let drawn = drawn.into_string();
            for class in [
                "\"reserved\"",
                "\"tainted\"",
                "of-cells\"",
                "\"unready\"",
                "\"cordoned\"",
                "\"cross\"",
                "\"cross still\"",
            ] {
                assert_eq!(drawn.matches(class).count(), 1, "{class} in {drawn}");
            }
        }
    }
}
