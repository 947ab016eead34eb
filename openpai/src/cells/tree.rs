//! The cell tree as rows: which job uses which cell. A cell whose parts are all in the same state is one row.

use fleet_api::cells::class::class_name;
use fleet_cells::CellStatus;
use schemars::JsonSchema;
use serde::Serialize;

use super::Picture;

/// A cell and its place in the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "CellRow")]
pub struct Row {
    pub depth: usize,
    pub cell_type: String,
    /// Last part of the address: of a node the node name, of a leaf the device number. At the top the whole
    /// address.
    pub name: String,
    pub address: String,
    pub leaves: usize,
    pub used: usize,
    /// Healthy or Bad.
    pub healthiness: String,
    /// The virtual clusters to which the cell is guaranteed; more than one if its parts differ.
    pub virtual_clusters: Vec<String>,
    /// Address of the same cell in the other view: virtual for physical cells, physical for virtual ones.
    pub stands_for: String,
    pub jobs: Vec<Occupant>,
}

/// A job that uses a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Occupant {
    pub job: String,
    pub group: String,
    pub virtual_cluster: String,
    /// The class it asked for; oppo if it has no guaranteed cells.
    pub class: String,
}

/// How much of the tree is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Hides the parts of a cell that are all in the same state.
    Folded,
    Every,
}

/// The trees of the physical cluster.
pub fn physical(picture: &Picture, detail: Detail) -> Vec<Row> {
    rows(picture, &picture.cells.physical_cells(), detail)
}

/// The guaranteed cells of a virtual cluster, followed by those that its opportunistic jobs borrow; none if
/// the virtual cluster is unknown.
pub fn of_virtual_cluster(picture: &Picture, vc: &str, detail: Detail) -> Option<Vec<Row>> {
    Some(rows(picture, &picture.cells.virtual_cells(vc)?, detail))
}

fn rows(picture: &Picture, tops: &[CellStatus], detail: Detail) -> Vec<Row> {
    let mut rows = Vec::new();
    for top in tops {
        add(picture, top, 0, "", detail, &mut rows);
    }
    rows
}

fn add(picture: &Picture, cell: &CellStatus, depth: usize, owner: &str, detail: Detail, rows: &mut Vec<Row>) {
    let mut row = Row {
        depth,
        cell_type: cell.cell_type.clone(),
        name: if depth == 0 { cell.cell_address.clone() } else { last(&cell.cell_address).to_string() },
        address: cell.cell_address.clone(),
        healthiness: cell.cell_healthiness.to_string(),
        stands_for: if cell.virtual_cell.is_empty() { &cell.physical_cell } else { &cell.virtual_cell }
            .clone(),
        ..Row::default()
    };
    let owner = if cell.vc.is_empty() { owner } else { &cell.vc };
    count(picture, cell, owner, &mut row);
    row.virtual_clusters.sort();
    row.virtual_clusters.dedup();
    row.jobs.sort();
    row.jobs.dedup();
    let is_folded = detail == Detail::Folded && is_uniform(cell, &row);
    rows.push(row);
    if !is_folded {
        cell.cell_children.iter().for_each(|child| add(picture, child, depth + 1, owner, detail, rows));
    }
}

/// Everything below is free or used by the same job, and everything is healthy or everything is bad.
fn is_uniform(cell: &CellStatus, row: &Row) -> bool {
    let same_use = row.used == 0 || (row.used == row.leaves && row.jobs.len() == 1);
    same_use
        && row.virtual_clusters.len() <= 1
        && same_promise(cell, &cell.vc)
        && same_health(cell, cell.cell_healthiness)
}

fn same_promise(cell: &CellStatus, vc: &str) -> bool {
    cell.vc == vc && cell.cell_children.iter().all(|child| same_promise(child, vc))
}

fn same_health(cell: &CellStatus, health: &str) -> bool {
    cell.cell_healthiness == health && cell.cell_children.iter().all(|child| same_health(child, health))
}

fn count(picture: &Picture, cell: &CellStatus, owner: &str, row: &mut Row) {
    let owner = if cell.vc.is_empty() { owner } else { &cell.vc };
    if !cell.cell_children.is_empty() {
        return cell.cell_children.iter().for_each(|child| count(picture, child, owner, row));
    }
    row.leaves += 1;
    if !owner.is_empty() {
        row.virtual_clusters.push(owner.to_string());
    }
    if cell.cell_state != "Free" {
        row.used += 1;
    }
    for group in [&cell.group, &cell.reserved_by].into_iter().filter(|group| !group.is_empty()) {
        let (vc, priority) = picture.asked(group).unwrap_or_default();
        row.jobs.push(Occupant {
            job: picture.job(group),
            group: group.clone(),
            virtual_cluster: vc.to_owned(),
            class: class_name(if cell.cell_priority < 0 { -1 } else { priority }),
        });
    }
}

fn last(address: &str) -> &str {
    address.rsplit('/').next().unwrap_or(address)
}
