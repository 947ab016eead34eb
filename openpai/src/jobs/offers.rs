//! What a hub's virtual clusters offer to a job that is submitted, and which jobs they can never run.
//!
//! Read from the CellConfiguration in force with the caller's own rights. If the caller may not read it or
//! there is none, every job is accepted here, as OpenPAI does when it cannot reach HiveD, and the controller
//! decides later. Not here: what is free now.

use std::collections::BTreeMap;

use fleet_api::cells::{AccessRules, read, status::amounts};
use fleet_cell_requests::CellRequestError;
use fleet_cells::{
    CellStatus, Cells, GroupRequest, Member, OPPORTUNISTIC, PodGroup, Refusal as Never, Unreported,
    config::ConfigErrors,
};
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

    /// Refuses a job that its virtual cluster does not accept or that can never fit. As in OpenPAI, an opportunistic
    /// job may be of any size; but each pod of it must fit into some node.
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
        let config = known.cells.config().clone();
        for group in request.groups(id, vc, &config).map_err(wrong)? {
            let request: &GroupRequest = &group.request;
            let admitted = match known.cells.admit(request) {
                // Its pods may have to wait for more cells than there are; each of them must have a chance.
                Err(Never::NeverFits(_)) if request.priority <= OPPORTUNISTIC => {
                    let mut alone = pods_alone(request).into_iter();
                    alone.try_for_each(|pod| known.cells.admit(&pod))
                }
                admitted => admitted,
            };
            if let Err(never) = admitted {
                let cells = match request.priority {
                    OPPORTUNISTIC => "the cells of the fleet".to_owned(),
                    _ => format!("the cells of virtual cluster {vc}"),
                };
                let allowed = format!("what fits into {cells} while nothing else runs");
                let problem = Problem::new("taskRoles", never.to_string(), allowed);
                return Err(Refusal::one(Code::InvalidProtocol, problem));
            }
        }
        Ok(())
    }
}

/// One pod of each kind of a group, as a group of its own.
fn pods_alone(request: &GroupRequest) -> Vec<GroupRequest> {
    let mut found = Vec::new();
    let mut open = vec![&request.affinity_group.root];
    while let Some(group) = open.pop() {
        for member in &group.members {
            let mut one = request.clone();
            one.affinity_group.root = PodGroup {
                within_one_cell: group.within_one_cell.clone(),
                members: vec![Member { pod_number: 1, ..member.clone() }],
                child_groups: Vec::new(),
            };
            found.push(one);
        }
        open.extend(&group.child_groups);
    }
    found
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cells::file,
        jobs::{Who, native_objects},
    };

    fn refusal_message(gpus: i64, instances: i64, role: &str) -> String {
        let config = file::read(include_str!("../../../cells/testdata/two-virtual-clusters.yaml"))
            .expect("a file")
            .config;
        let cells = Cells::new(config, Unreported::Good).expect("valid");
        let offers = Offers(Some(Known { cells, access: AccessRules::default() }));
        let text = format!(
            "protocolVersion: 2\nname: a\ntype: job\nprerequisites: [{{name: i, type: dockerimage, uri: x}}]\n\
             taskRoles:\n  w:\n    instances: {instances}\n    dockerImage: i\n    \
             resourcePerInstance: {{cpu: 1, memoryMB: 10, gpu: {gpus}}}\n    commands: [b]\n\
             defaults: {{virtualCluster: vc1}}\n\
             extras: {{hivedScheduler: {{jobPriorityClass: oppo, taskRoles: {{w: {role}}}}}}}\n"
        );
        let who = Who { user: "bob", namespace: "default" };
        native_objects(&text, who, &offers, 0).map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn an_opportunistic_job_with_a_pod_that_no_cells_can_ever_hold_is_refused() {
        assert_eq!(
            (refusal_message(1, 1, "{}"), refusal_message(1, 3, "{}")),
            (String::new(), String::new())
        );
        let large = refusal_message(2, 1, "{}");
        assert!(large.contains("can never run") && large.contains("the cells of the fleet"), "{large}");
        let unknown = refusal_message(1, 1, "{withinOne: XX}");
        assert!(unknown.contains("XX"), "{unknown}");
    }
}
