//! Virtual clusters, as their viewer may read them of the hub.

use fleet_views::bar;
use jiff::Timestamp;

use super::shown::{VirtualClusterRow, VirtualClustersView};
use crate::{
    cells::{self, CellsError, Standing, tree},
    server::{AskError, Server},
};

/// Cells drawn on one page.
const MOST_CELLS: usize = 1_000;

/// # Errors
/// The hub does not know the user any more.
pub async fn view(server: &Server, now: Timestamp) -> Result<VirtualClustersView, AskError> {
    let mut view = VirtualClustersView::default();
    match cells::virtual_clusters(server).await {
        Ok(found) if found.is_empty() => {
            view.absent = "There are no virtual clusters: no CellConfiguration is in force.".to_owned();
            return Ok(view);
        }
        Ok(found) => view.rows = found.into_iter().map(row).collect(),
        Err(CellsError::Ask(error @ AskError::Refused { code: 401, .. })) => return Err(error),
        Err(error) => {
            view.absent = format!("Virtual clusters are not shown: {error}");
            return Ok(view);
        }
    }
    match Standing::read(server).await.and_then(|standing| standing.picture(now)) {
        Ok(Some(picture)) => {
            view.tree = tree::physical(&picture, tree::Detail::Folded);
            view.more = view.tree.len().saturating_sub(MOST_CELLS);
            view.tree.truncate(MOST_CELLS);
        }
        Ok(None) => {}
        Err(error) => view.tree_absent = format!("The cells are not shown: {error}"),
    }
    Ok(view)
}

fn row(object: fleet_api::VirtualCluster) -> VirtualClusterRow {
    let status = object.status.unwrap_or_default();
    let used = status.used + status.borrowed_in;
    VirtualClusterRow {
        bar: bar("cells", used, Some(status.guaranteed), Some(status.guaranteed), status.borrowed_out),
        name: object.spec.name,
        gpu: status.gpu.unwrap_or_default(),
        lent: status.borrowed_out,
        borrowed: status.borrowed_in,
        bad: status.bad,
        waiting: status.waiting,
        running: status.running,
    }
}
