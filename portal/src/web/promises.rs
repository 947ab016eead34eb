//! Virtual clusters: for pages from what the board follows, for programs as they may read them of the hub.

use std::collections::{BTreeMap, BTreeSet};

use fleet_hub_core::facts;
use fleet_views::{Known, Namespaces, Sight, virtual_cluster};
use jiff::Timestamp;

use crate::board::Board;
use fleet_openpai::{
    cells::{self, CellsError, Picture, Standing, tree},
    server::Server,
};
use fleet_pages::{
    page::JobName,
    shown::{OwnCells, VirtualClustersView},
};

const NONE: &str = "There are no virtual clusters: no CellConfiguration is in force.";
const HIDDEN: &str = "Virtual clusters are not shown: the hub does not let you list VirtualClusters.";
/// Cells drawn on one page.
const MOST_CELLS: usize = 1_000;
/// Of one virtual cluster.
const MOST_OWN_CELLS: usize = 200;

/// For a page, from what is known, as far as its viewer may see it.
pub fn view(board: &Board, sight: &Sight, now: Timestamp) -> VirtualClustersView {
    let mut view = VirtualClustersView::default();
    if !sight.virtual_clusters {
        view.absent = HIDDEN.to_owned();
        return view;
    }
    view.rows = fleet_views::virtual_clusters(&board.known(), sight);
    if view.rows.is_empty() {
        view.absent = NONE.to_owned();
        return view;
    }
    // A cell says whose job is on it, whatever its namespace.
    if sight.jobs != Namespaces::All || !sight.clusters || !sight.cells {
        view.tree_absent =
            "The cells are not shown: the hub does not let you list CellConfigurations, Clusters, and \
                            ResourceBindings of all namespaces."
                .to_owned();
        return view;
    }
    add_cells(&mut view, board.cells().picture(now));
    view.links = links(board, &view);
    view
}

/// The pages of the jobs that are on cells.
fn links(board: &Board, view: &VirtualClustersView) -> BTreeMap<String, String> {
    let known = board.known();
    let rows = view.tree.iter().chain(view.cells.iter().flat_map(|own| &own.rows));
    let names: BTreeSet<&String> = rows.flat_map(|row| &row.jobs).map(|occupant| &occupant.job).collect();
    let link = |text: &String| {
        let (namespace, name) = text.split_once('/')?;
        let job = known.named(namespace, name)?;
        Some((text.clone(), JobName::new(namespace, &job.binding.resource, name).link()))
    };
    names.into_iter().filter_map(link).collect()
}

/// The same at an instant of a log, which does not say who is on which cell.
pub fn recorded(known: &Known, sight: &Sight) -> VirtualClustersView {
    let rows = fleet_views::virtual_clusters(known, sight);
    let absent = match (sight.virtual_clusters, rows.is_empty()) {
        (false, _) => HIDDEN,
        (true, true) => "The log names no virtual clusters at this time.",
        (true, false) => "",
    };
    VirtualClustersView {
        rows,
        absent: absent.to_owned(),
        tree_absent: "A log does not say who is on which cell.".to_owned(),
        ..VirtualClustersView::default()
    }
}

/// # Errors
/// The hub does not let the user list virtual clusters, or does not answer.
pub async fn read(server: &Server, now: Timestamp) -> Result<VirtualClustersView, CellsError> {
    let mut view = VirtualClustersView::default();
    let found = cells::virtual_clusters(server).await?;
    if found.is_empty() {
        view.absent = NONE.to_owned();
        return Ok(view);
    }
    view.rows = found.into_iter().map(|object| virtual_cluster(&facts::virtual_cluster(&object))).collect();
    add_cells(&mut view, Standing::read(server).await.and_then(|standing| standing.picture(now)));
    Ok(view)
}

fn add_cells(view: &mut VirtualClustersView, picture: Result<Option<Picture>, CellsError>) {
    match picture {
        Ok(Some(picture)) => {
            view.tree = tree::physical(&picture, tree::Detail::Folded);
            view.more = view.tree.len().saturating_sub(MOST_CELLS);
            view.tree.truncate(MOST_CELLS);
            view.cells = view.rows.iter().filter_map(|row| own_cells(&picture, &row.name)).collect();
        }
        Ok(None) => {}
        Err(error) => view.tree_absent = format!("The cells are not shown: {error}"),
    }
}

/// The promises of a virtual cluster, and what its opportunistic jobs borrow.
fn own_cells(picture: &Picture, name: &str) -> Option<OwnCells> {
    let mut rows = tree::of_virtual_cluster(picture, name, tree::Detail::Folded)?;
    let more = rows.len().saturating_sub(MOST_OWN_CELLS);
    rows.truncate(MOST_OWN_CELLS);
    Some(OwnCells { name: name.to_owned(), rows, more })
}
