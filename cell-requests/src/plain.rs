//! What a job asks by its own labels and annotations.

use fleet_api::names;
use fleet_cells::{GroupRequest, Member, config::ClusterConfig};
use fleet_resources::{ResourceName, Resources, quantity};
use serde_json::Value;

use super::fields::{CellRequestError, Role, name, path_of, quote, request, text, wrong};
use fleet_planner::CellGroupAsk;

/// Resources that count as devices where no SKU says what a cell holds.
const DEVICES: [&str; 2] = ["nvidia.com/gpu", "amd.com/gpu"];

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plain {
    pin: String,
    leaf_type: String,
    within: String,
    lazy: bool,
    pub gang: bool,
    /// A gang keeps the cells of ended pods until all have ended.
    release_together: bool,
    roles: Vec<PlainRole>,
}

#[derive(Clone, Debug, PartialEq)]
struct PlainRole {
    component: String,
    replicas: i64,
    /// What the job says; else it follows from the requests.
    cells: Option<i64>,
    requests: Resources,
}

impl PlainRole {
    /// Devices that one pod requests.
    fn devices(&self) -> i64 {
        fleet_resources::sum(DEVICES.iter().map(|name| self.requests.get(name)))
    }
}

pub(super) fn read(job: &Value, roles: &[Role<'_>], is_gang: bool) -> Result<Plain, CellRequestError> {
    let cells = match text(job, names::CELLS_PER_POD_ANNOTATION) {
        None => None,
        Some(found) => {
            let number = found.parse().ok().filter(|number: &i64| *number > 0);
            let at = || path_of(job, names::CELLS_PER_POD_ANNOTATION);
            Some(number.ok_or_else(|| wrong(at(), quote(found), "a number from 1"))?)
        }
    };
    let (pin, leaf_type) =
        (name(job, names::PINNED_CELL_ANNOTATION)?, name(job, names::LEAF_CELL_TYPE_ANNOTATION)?);
    if !pin.is_empty() && !leaf_type.is_empty() {
        let allowed = format!("nothing beside {}", names::PINNED_CELL_ANNOTATION);
        return Err(wrong(path_of(job, names::LEAF_CELL_TYPE_ANNOTATION), quote(&leaf_type), allowed));
    }
    let within = name(job, names::WITHIN_ONE_CELL_ANNOTATION)?;
    let gang = truth(job, names::GANG_ALLOCATION_ANNOTATION)?.unwrap_or(is_gang);
    if !gang && !within.is_empty() {
        let allowed = "nothing where pods start one by one: each is then placed by itself";
        return Err(wrong(path_of(job, names::WITHIN_ONE_CELL_ANNOTATION), quote(&within), allowed));
    }
    let release = truth(job, names::GANG_RELEASE_ANNOTATION)?;
    if !gang && release == Some(true) {
        let allowed = "false where pods start one by one: each gives back its own cells";
        return Err(wrong(path_of(job, names::GANG_RELEASE_ANNOTATION), quote("true"), allowed));
    }
    let roles = roles.iter().filter(|role| role.component.replicas > 0).map(|role| PlainRole {
        component: role.component.name.clone(),
        replicas: role.component.replicas,
        cells,
        requests: role.component.requests.clone(),
    });
    let lazy = truth(job, names::LAZY_PREEMPTION_ANNOTATION)?.unwrap_or(false);
    let release_together = release.unwrap_or(true);
    Ok(Plain { pin, leaf_type, within, lazy, gang, release_together, roles: roles.collect() })
}

fn truth(job: &Value, name: &str) -> Result<Option<bool>, CellRequestError> {
    match text(job, name) {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(other) => Err(wrong(path_of(job, name), quote(other), "true or false")),
    }
}

impl Plain {
    /// Cells of all pods, as the job says; `None` if they follow from its requests.
    pub(super) fn named_cells(&self) -> Option<i64> {
        let named = self.roles.iter().filter_map(|role| Some(role.cells?.saturating_mul(role.replicas)));
        named.reduce(i64::saturating_add)
    }

    pub(super) fn groups(
        &self,
        vc: &str,
        class: i32,
        config: &ClusterConfig,
    ) -> Result<Vec<CellGroupAsk>, CellRequestError> {
        let base = GroupRequest {
            pinned_cell_id: self.pin.clone(),
            leaf_cell_type: self.leaf_type.clone(),
            lazy_preemption_enable: self.lazy,
            gang_release_enable: self.release_together,
            ..request(vc, class)
        };
        let mut whole = CellGroupAsk { request: base.clone(), pods: Vec::new() };
        whole.request.affinity_group.root.within_one_cell.clone_from(&self.within);
        let mut single = Vec::new();
        // A component without devices beside others that have some, such as the launcher of an MPIJob, takes no cell.
        let has_devices = self.roles.iter().any(|role| role.devices() > 0);
        for role in self.roles.iter().filter(|role| !has_devices || role.devices() > 0) {
            let cells = match role.cells {
                Some(cells) => cells,
                None => self.cells_of(role, vc, class, config)?,
            };
            let member = |pods| Member { pod_number: pods, leaf_cell_number: cells, ..Member::default() };
            if self.gang {
                whole.request.affinity_group.root.members.push(member(role.replicas));
                whole.pods.extend((0..role.replicas).map(|index| (role.component.clone(), index)));
                continue;
            }
            for index in 0..role.replicas {
                let mut request = base.clone();
                request.affinity_group.name = format!("{}-{index}", role.component);
                request.affinity_group.root.members.push(member(1));
                single.push(CellGroupAsk { request, pods: vec![(role.component.clone(), index)] });
            }
        }
        Ok(if self.gang { vec![whole] } else { single })
    }

    /// So many cells as hold what a pod asks for, whichever type of leaf it gets.
    fn cells_of(
        &self,
        role: &PlainRole,
        vc: &str,
        class: i32,
        config: &ClusterConfig,
    ) -> Result<i64, CellRequestError> {
        let types = leaf_types(config, vc, class, &self.leaf_type);
        let skus: Vec<_> =
            types.iter().filter_map(|name| config.physical_cluster.sku_types.get(name)).collect();
        let devices = role.devices();
        let path = || format!("component {}: requests", role.component);
        let nothing = |found: &str| {
            let allowed = format!("a request for devices, or {}", names::CELLS_PER_POD_ANNOTATION);
            wrong(path(), found.to_owned(), allowed)
        };
        if skus.is_empty() {
            return if devices > 0 { Ok(devices) } else { Err(nothing("no devices")) };
        }
        let memory = |text: &Option<String>| {
            text.as_ref().and_then(|text| quantity::parse(ResourceName::MEMORY, text).ok()).unwrap_or(0)
        };
        let smallest = |of: &dyn Fn(&fleet_cells::config::SkuType) -> i64| {
            skus.iter().map(|sku| of(sku)).min().unwrap_or(0)
        };
        let parts = [
            ("devices", devices, smallest(&|sku| sku.gpu.unwrap_or(0))),
            ("cpu", role.requests.get("cpu"), smallest(&|sku| sku.cpu.unwrap_or(0).saturating_mul(1000))),
            ("memory", role.requests.get("memory"), smallest(&|sku| memory(&sku.memory))),
        ];
        let mut most = 0;
        for (name, asked, unit) in parts.into_iter().filter(|(_, asked, _)| *asked > 0) {
            if unit <= 0 {
                // A SKU that says nothing of a resource does not limit it, but for devices.
                if name == "devices" {
                    return Err(wrong(path(), format!("{asked} devices"), "none: the cells have none"));
                }
                continue;
            }
            most = most.max(asked / unit + i64::from(asked % unit != 0));
        }
        if most > 0 { Ok(most) } else { Err(nothing("nothing")) }
    }
}

/// Types of leaves that a job of the VC may get: the one it names, those of the VC, or all for opportunistic jobs.
fn leaf_types(config: &ClusterConfig, vc: &str, class: i32, named: &str) -> Vec<String> {
    if !named.is_empty() {
        return vec![named.to_owned()];
    }
    let types = &config.physical_cluster.cell_types;
    let leaf = |start: &str| {
        // A type that leads back to itself was refused when the configuration was read.
        let mut at = start;
        for _ in 0..types.len() {
            match types.get(at) {
                Some(cell_type) => at = &cell_type.child_cell_type,
                None => break,
            }
        }
        at.to_owned()
    };
    let chains: Vec<String> = match config.virtual_clusters.get(vc).filter(|_| class >= 0) {
        Some(vc) => {
            let promised = vc.virtual_cells.iter();
            let chain = |cell: &fleet_cells::config::VirtualCell| {
                leaf(cell.cell_type.split('.').next().unwrap_or_default())
            };
            promised.map(chain).collect()
        }
        None => config.physical_cluster.physical_cells.iter().map(|cell| leaf(&cell.cell_type)).collect(),
    };
    let mut chains = chains;
    chains.sort();
    chains.dedup();
    chains
}
