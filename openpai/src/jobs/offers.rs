//! What a hub's virtual clusters offer to a job that is submitted, and which jobs they can never run.
//!
//! Read from the CellConfiguration in force with the caller's own rights. If the caller may not read it or
//! there is none, every job is accepted here, as OpenPAI does when it cannot reach HiveD, and the controller
//! decides later. Not here: what is free now.

use std::collections::BTreeMap;

use fleet_api::cells::{AccessRules, read, status::amounts};
use fleet_cell_requests::CellRequestError;
use fleet_cells::{CellStatus, Cells, GroupRequest, OPPORTUNISTIC, Unreported, config::ConfigErrors};
use fleet_pai::{
    Code, Problem, Refusal,
    hived::{CellOffer, ClusterOffer, Offer, SkuUnit},
};
use fleet_policies::workload::WorkloadKind;
use serde_json::Value;

use super::{JobError, text};
use crate::{
    cells::{self, CellsError},
    server::{AskError, Server},
};

/// What can be requested; the default knows nothing and accepts every job.
#[derive(Clone, Debug, Default)]
pub struct Offers(Option<Known>);

#[derive(Clone, Debug)]
struct Known {
    /// With nothing in use and all nodes healthy.
    cells: Cells,
    access: AccessRules,
}

impl Offers {
    /// What the hub offers, as far as the caller may read it.
    ///
    /// # Errors
    /// The hub does not answer, or its configuration was written by another version of Fleet.
    pub async fn read(server: &Server) -> Result<Self, JobError> {
        let objects = match cells::configurations(server).await {
            Ok(objects) => objects,
            Err(CellsError::NotServed | CellsError::Ask(AskError::Refused { code: 403, .. })) => {
                return Ok(Self::default());
            }
            Err(CellsError::Ask(error)) => return Err(error.into()),
            Err(error) => return Err(JobError::Cells(error.to_string())),
        };
        let Some(view) = read::in_force(&objects) else { return Ok(Self::default()) };
        let config = view.config().and_then(|config| Cells::new(config, Unreported::Good));
        let cells = config.map_err(|errors: ConfigErrors| JobError::Cells(errors.to_string()))?;
        Ok(Self(Some(Known { cells, access: view.access.clone() })))
    }

    /// What a job of the virtual cluster may ask for.
    pub(super) fn of(&self, vc: &str) -> Offer {
        let Some(known) = &self.0 else { return Offer::default() };
        let config = known.cells.config();
        let sku_types = config.physical_cluster.sku_types.keys().map(|name| {
            let one = amounts(config, name);
            (name.clone(), SkuUnit { gpu: one.gpu, cpu: one.cpu, memory_mb: one.memory_mb })
        });
        Offer {
            sku_types: sku_types.collect(),
            cluster: known.cells.virtual_cells(vc).map(|cells| cluster(&cells)),
            clusters: Some(known.cells.virtual_clusters().map(str::to_owned).collect()),
        }
    }

    /// Refuses a job that its virtual cluster does not accept or that can never fit. As in OpenPAI, an
    /// opportunistic job is never refused for its size when it is submitted.
    ///
    /// # Errors
    /// The reason, in OpenPAI's form.
    pub(super) fn check(&mut self, job: &Value, id: &str) -> Result<(), Refusal> {
        let Some(known) = &mut self.0 else { return Ok(()) };
        let wrong = |error: CellRequestError| {
            Refusal::one(Code::InvalidProtocol, Problem::new(error.path, error.found, error.allowed))
        };
        let request = fleet_cell_requests::read(WorkloadKind::VolcanoJob, job).map_err(wrong)?;
        let Some(vc) = request.vc.as_deref() else { return Ok(()) };
        let namespace = text(&job["metadata"]["namespace"], "");
        if let Some(Err(told)) = known.access.get(vc).map(|rules| rules.admit(vc, namespace, request.class)) {
            return Err(forbidden(vc, &told));
        }
        if request.class <= OPPORTUNISTIC {
            return Ok(());
        }
        let config = known.cells.config().clone();
        for group in request.groups(id, vc, &config).map_err(wrong)? {
            let request: &GroupRequest = &group.request;
            if let Err(never) = known.cells.admit(request) {
                let allowed =
                    format!("what fits into the cells of virtual cluster {vc} while nothing else runs");
                let problem = Problem::new("taskRoles", never.to_string(), allowed);
                return Err(Refusal::one(Code::InvalidProtocol, problem));
            }
        }
        Ok(())
    }
}

/// The caller may not use the virtual cluster.
pub(super) fn forbidden(vc: &str, told: &str) -> Refusal {
    let allowed = "a virtual cluster that takes the job".to_owned();
    Refusal::one(
        Code::ForbiddenUser,
        Problem::new("defaults.virtualCluster", format!("{vc:?} ({told})"), allowed),
    )
}

fn cluster(cells: &[CellStatus]) -> ClusterOffer {
    let mut offer = ClusterOffer::default();
    for top in cells {
        let leaves = count(top, &top.leaf_cell_type, &mut offer.cells);
        *offer.leaf_cells.entry(top.leaf_cell_type.clone()).or_default() += leaves;
    }
    offer
}

/// Counts a cell and all below it; returns its leaves.
fn count(cell: &CellStatus, leaf_type: &str, cells: &mut BTreeMap<String, CellOffer>) -> i64 {
    let below: i64 = cell.cell_children.iter().map(|child| count(child, leaf_type, cells)).sum();
    let leaves = if cell.cell_children.is_empty() { 1 } else { below };
    let known = cells.entry(cell.cell_type.clone()).or_default();
    known.number += 1;
    known.leaves = leaves;
    leaf_type.clone_into(&mut known.leaf_type);
    leaves
}
