//! What a job asks of the cells of a virtual cluster: read from its labels and annotations, or from HiveD's annotation
//! on its pod templates, and then put into the words of the room of cells.
//!
//! Pure. [`read`] looks at the job alone and refuses nonsense; [`CellRequest::groups`] needs the configuration, for how many
//! cells a pod takes. Deliberately absent: whether there is room.

mod fields;
mod hived;
mod plain;
#[cfg(test)]
mod tests;

use fleet_api::{
    cells::class::{CLASSES_TEXT, DEFAULT_CLASS, class_priority},
    names,
};
use fleet_cells::{AffinityGroup, config::ClusterConfig};
use fleet_policies::workload::{self, WorkloadKind};
use serde_json::Value;

pub use fields::CellRequestError;
use fields::{Role, check_name, name, path_of, quote, text, wrong};
use fleet_planner::CellGroupAsk;

/// What one job asks.
#[derive(Clone, Debug, PartialEq)]
pub struct CellRequest {
    /// What the job itself says; where it says nothing, its queue's leaf may.
    pub vc: Option<String>,
    pub class: i32,
    /// All groups start together.
    pub whole: bool,
    asks: Asks,
}

#[derive(Clone, Debug, PartialEq)]
enum Asks {
    /// The groups of HiveD's annotations, their names not unique yet.
    Hived(Vec<CellGroupAsk>),
    Plain(plain::Plain),
}

/// Reads what a job asks, should it have a virtual cluster.
///
/// # Errors
/// The first field that is nonsense, with what was found and what is allowed.
pub fn read(kind: WorkloadKind, job: &Value) -> Result<CellRequest, CellRequestError> {
    let vc = Some(name(job, names::VIRTUAL_CLUSTER_LABEL)?).filter(|vc| !vc.is_empty());
    let class = class(job)?;
    let roles = roles(kind, job);
    for role in &roles {
        check_name(&role.component.name, || format!("name of the component of {}", role.path))?;
    }
    let pods: i64 = roles.iter().map(|role| role.component.replicas.max(0)).fold(0, i64::saturating_add);
    if pods > i64::from(fleet_cells::MAX_PODS) {
        let allowed = format!("at most {} pods in a job with cells", fleet_cells::MAX_PODS);
        return Err(CellRequestError { path: "spec".to_owned(), found: pods.to_string(), allowed });
    }
    let is_gang = is_gang(kind, job, pods);
    if let Some(groups) = hived::groups(&roles)? {
        let (vc, class) = hived::agreed(vc, class, &groups)?;
        let whole = is_gang || groups.len() == 1;
        return Ok(CellRequest { vc: Some(vc), class, whole, asks: Asks::Hived(groups) });
    }
    let plain = plain::read(job, &roles, is_gang)?;
    let whole = plain.gang;
    Ok(CellRequest { vc, class: class.unwrap_or(DEFAULT_CLASS), whole, asks: Asks::Plain(plain) })
}

/// Whether a job says anything of cells: only then a mistake in it is one.
pub fn speaks_of_cells(kind: WorkloadKind, job: &Value) -> bool {
    let own = [
        names::VIRTUAL_CLUSTER_LABEL,
        names::PINNED_CELL_ANNOTATION,
        names::LEAF_CELL_TYPE_ANNOTATION,
        names::CELLS_PER_POD_ANNOTATION,
        names::WITHIN_ONE_CELL_ANNOTATION,
    ];
    own.iter().any(|name| text(job, name).is_some())
        || roles(kind, job).iter().any(|role| hived::annotation(role.template).is_some())
}

/// Whether the job names the virtual cluster in a way that the hub's admission policy `fleet-virtual-cluster-submitters` can
/// read: by its label, or by the plain words of HiveD's annotation.
pub fn names_for_admission(kind: WorkloadKind, job: &Value, vc: &str) -> bool {
    text(job, names::VIRTUAL_CLUSTER_LABEL).is_some_and(|named| named == vc)
        || roles(kind, job)
            .iter()
            .filter_map(|role| hived::annotation(role.template))
            .any(|text| hived::names_plainly(text, vc))
}

/// Whether a job asks that each of its pods start as it gets its cells, whatever its kind has as its minimum.
pub fn is_incremental(kind: WorkloadKind, job: &Value) -> bool {
    text(job, names::GANG_ALLOCATION_ANNOTATION) == Some("false")
        && read(kind, job).is_ok_and(|request| !request.whole)
}

/// Whether what a job says of cells can be read.
///
/// # Errors
/// The first field that is nonsense.
pub fn check(kind: WorkloadKind, job: &Value) -> Result<(), CellRequestError> {
    if !kind.is_job() || !speaks_of_cells(kind, job) {
        return Ok(());
    }
    read(kind, job).map(drop)
}

impl CellRequest {
    /// What it says itself of its rank and its size: its class, if that is not the one of a job that names none, and how many
    /// cells all its pods get. `None`: nothing; then what its pods request decides.
    pub fn named(&self) -> (Option<i32>, Option<i64>) {
        let cells = match &self.asks {
            Asks::Hived(groups) => Some(hived::cells(groups)),
            Asks::Plain(plain) => plain.named_cells(),
        };
        (Some(self.class).filter(|class| *class != DEFAULT_CLASS), cells)
    }

    /// The groups to place in a virtual cluster, with names that no other job has.
    ///
    /// # Errors
    /// The number of cells of a pod follows from nothing.
    pub fn groups(
        &self,
        job: &str,
        vc: &str,
        config: &ClusterConfig,
    ) -> Result<Vec<CellGroupAsk>, CellRequestError> {
        let mut groups = match &self.asks {
            Asks::Hived(groups) => groups.clone(),
            Asks::Plain(plain) => plain.groups(vc, self.class, config)?,
        };
        for group in &mut groups {
            let AffinityGroup { name, .. } = &mut group.request.affinity_group;
            *name = if name.is_empty() { job.to_owned() } else { format!("{job}/{name}") };
        }
        Ok(groups)
    }
}

fn class(job: &Value) -> Result<Option<i32>, CellRequestError> {
    let Some(found) = text(job, names::CLASS_LABEL) else { return Ok(None) };
    let class = class_priority(found).map(Some);
    class.ok_or_else(|| wrong(path_of(job, names::CLASS_LABEL), quote(found), CLASSES_TEXT))
}

/// A job whose replicas cannot be read has no roles: it is refused for that.
fn roles(kind: WorkloadKind, job: &Value) -> Vec<Role<'_>> {
    let components = workload::components(kind, job).unwrap_or_default();
    let templates = workload::pod_templates(kind, job);
    let pairs = components.into_iter().zip(templates);
    pairs.map(|(component, (path, template))| Role { component, path, template }).collect()
}

/// Volcano's jobs say how many pods must start together; the other kinds start whole.
fn is_gang(kind: WorkloadKind, job: &Value, pods: i64) -> bool {
    let least = job["spec"]["minAvailable"].as_i64().filter(|_| kind == WorkloadKind::VolcanoJob);
    least.is_none_or(|least| least <= 0 || least >= pods)
}
