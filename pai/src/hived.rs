//! A job's request for cells of its virtual cluster: leaf cells per task, affinity groups, and the scheduling spec
//! that HiveD reads from pods. Requests that can never be satisfied are refused before any object is made.

mod spec;

use std::collections::BTreeMap;

use crate::{Problem, Protocol, Refusal, TaskRole, fields::Sink, names};

pub use spec::{AffinityGroup, CellsPerPod, Member, PodGroup, PodGroupMember, PodSpec, SpecV1, SpecV2};

/// The resources of one leaf cell of a type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SkuUnit {
    pub gpu: i64,
    pub cpu: i64,
    pub memory_mb: i64,
}

/// What a job can request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Types of leaf cells of the whole fleet.
    pub sku_types: BTreeMap<String, SkuUnit>,
    /// The job's virtual cluster; `None` if it is not known, and then no request is too large.
    pub cluster: Option<ClusterOffer>,
    /// The virtual clusters; `None` if they are not known.
    pub clusters: Option<Vec<String>>,
}

/// Cells of one virtual cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterOffer {
    /// Guaranteed leaf cells, by type.
    pub leaf_cells: BTreeMap<String, i64>,
    /// Cells of every level: their number, and the leaf cells of each.
    pub cells: BTreeMap<String, CellOffer>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellOffer {
    pub number: i64,
    pub leaf_type: String,
    pub leaves: i64,
}

/// The request of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// In the order of roles. `None`: no cells are known, and the role requests no GPU.
    pub roles: Vec<RoleRequest>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleRequest {
    pub role: String,
    /// Cells per task: leaf cells, or in the second form cells of `skuType`.
    pub cells: i64,
    pub spec: Option<PodSpec>,
}

/// Maps a job to cells.
///
/// # Errors
/// Requests that can never be satisfied, with what exists.
pub fn request(protocol: &Protocol, user: &str, offer: &Offer) -> Result<Request, Refusal> {
    let mut sink = Sink::default();
    cluster(protocol, offer, &mut sink);
    let cells: Vec<i64> =
        protocol.task_roles.iter().map(|role| cells(protocol, role, offer, &mut sink)).collect();
    within_one(protocol, offer, &mut sink);
    affinity_groups(protocol, &mut sink);
    if sink.is_empty() {
        quota(protocol, &cells, offer, &mut sink);
    }
    Refusal::unless_empty(sink)?;
    let id = names::id(user, &protocol.name);
    let specs = spec::specs(protocol, &id, &cells)?;
    let roles = protocol.task_roles.iter().zip(cells).zip(specs).map(|((role, cells), spec)| RoleRequest {
        role: role.name.clone(),
        cells,
        spec: (cells > 0).then_some(spec),
    });
    Ok(Request { roles: roles.collect() })
}

fn cluster(protocol: &Protocol, offer: &Offer, sink: &mut Sink) {
    if let Some(known) = &offer.clusters
        && !known.contains(&protocol.virtual_cluster)
    {
        let found = format!("{:?}", protocol.virtual_cluster);
        sink.push(Problem::new("defaults.virtualCluster", found, format!("one of {}", known.join(", "))));
    }
}

fn list<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<&str> = names.map(String::as_str).collect();
    if names.is_empty() { "none: there are no cells".to_owned() } else { names.join(", ") }
}

/// Cells of one task of the role.
fn cells(protocol: &Protocol, role: &TaskRole, offer: &Offer, sink: &mut Sink) -> i64 {
    let path = format!("extras.hivedScheduler.taskRoles.{}.skuType", role.name);
    let hived = protocol.hived_role(&role.name);
    let unit = match &hived.sku_type {
        Some(sku) => match unit_of(protocol, sku, offer) {
            Ok(unit) => unit,
            Err(allowed) => {
                let problem = Problem::new(path, format!("{sku:?}"), allowed);
                sink.push(problem.at(hived.line));
                return 0;
            }
        },
        None => smallest_unit(protocol, offer),
    };
    if let Some(number) = hived.sku_num.filter(|_| protocol.extras.hived.is_v2) {
        return number;
    }
    let wanted = &role.resources;
    let Some(unit) = unit else {
        // The resources of a cell are not known.
        return wanted.gpu;
    };
    let mut most = 0;
    let parts = [
        ("gpu", wanted.gpu, unit.gpu),
        ("cpu", wanted.cpu, unit.cpu),
        ("memoryMB", wanted.memory_mb, unit.memory_mb),
    ];
    for (name, wanted, unit) in parts.into_iter().filter(|(_, wanted, _)| *wanted > 0) {
        if unit <= 0 {
            let path = format!("taskRoles.{}.resourcePerInstance.{name}", role.name);
            let allowed = format!("0: the SKUs of the job have no {name}");
            sink.push(Problem::new(path, wanted.to_string(), allowed).at(role.line));
            continue;
        }
        most = most.max(wanted.div_ceil_of(unit));
    }
    if most == 0 && sink.is_empty() {
        let path = format!("taskRoles.{}.resourcePerInstance", role.name);
        let allowed = "a task that asks for gpu, cpu or memoryMB: it takes at least one cell";
        sink.push(Problem::new(path, "nothing but zeros", allowed).at(role.line));
    }
    most
}

trait DivCeil {
    fn div_ceil_of(self, unit: Self) -> Self;
}

impl DivCeil for i64 {
    /// Of numbers that are not negative.
    fn div_ceil_of(self, unit: Self) -> Self {
        self / unit + Self::from(self % unit != 0)
    }
}

/// The resources of one cell of a named type, or which types are allowed.
fn unit_of(protocol: &Protocol, sku: &str, offer: &Offer) -> Result<Option<SkuUnit>, String> {
    if offer.sku_types.is_empty() {
        return Ok(None);
    }
    let opportunistic = protocol.extras.hived.class.is_opportunistic();
    let in_cluster = offer.cluster.as_ref().filter(|_| !opportunistic);
    let unit = match offer.sku_types.get(sku) {
        Some(unit) => Some((*unit, sku.to_owned())),
        // The second form may name cells above the leaves.
        None if protocol.extras.hived.is_v2 => offer.cluster.as_ref().and_then(|cluster| {
            let cell = cluster.cells.get(sku)?;
            let unit = offer.sku_types.get(&cell.leaf_type)?;
            let of = |amount: i64| amount.saturating_mul(cell.leaves);
            let unit = SkuUnit { gpu: of(unit.gpu), cpu: of(unit.cpu), memory_mb: of(unit.memory_mb) };
            Some((unit, cell.leaf_type.clone()))
        }),
        None => None,
    };
    let Some((unit, leaf)) = unit else { return Err(list(offer.sku_types.keys())) };
    match in_cluster.filter(|cluster| !cluster.leaf_cells.contains_key(&leaf)) {
        Some(cluster) => Err(format!(
            "in virtual cluster {}: {}",
            protocol.virtual_cluster,
            list(cluster.leaf_cells.keys())
        )),
        None => Ok(Some(unit)),
    }
}

/// The minimum of each resource over the cell types of the job: that many cells are enough, whichever type it gets.
fn smallest_unit(protocol: &Protocol, offer: &Offer) -> Option<SkuUnit> {
    let opportunistic = protocol.extras.hived.class.is_opportunistic();
    let in_cluster = offer.cluster.as_ref().filter(|_| !opportunistic);
    let units: Vec<&SkuUnit> = offer
        .sku_types
        .iter()
        .filter(|(name, _)| in_cluster.is_none_or(|cluster| cluster.leaf_cells.contains_key(*name)))
        .map(|(_, unit)| unit)
        .collect();
    Some(SkuUnit {
        gpu: units.iter().map(|unit| unit.gpu).min()?,
        cpu: units.iter().map(|unit| unit.cpu).min()?,
        memory_mb: units.iter().map(|unit| unit.memory_mb).min()?,
    })
}

/// Types of cells for whole roles or groups must be types of the virtual cluster.
fn within_one(protocol: &Protocol, offer: &Offer, sink: &mut Sink) {
    let hived = &protocol.extras.hived;
    let Some(cluster) = offer.cluster.as_ref().filter(|_| !hived.class.is_opportunistic()) else { return };
    let of_roles = hived
        .roles
        .iter()
        .map(|(name, role)| (format!("extras.hivedScheduler.taskRoles.{name}.withinOne"), &role.within_one));
    let of_groups = hived.groups.iter().enumerate().map(|(i, group)| {
        (format!("extras.hivedScheduler.taskRoleGroups[{i}].withinOne"), &group.within_one)
    });
    for (path, cell) in of_roles.chain(of_groups) {
        if let Some(cell) = cell.as_ref().filter(|cell| !cluster.cells.contains_key(*cell)) {
            let allowed =
                format!("in virtual cluster {}: {}", protocol.virtual_cluster, list(cluster.cells.keys()));
            sink.push(Problem::new(path, format!("{cell:?}"), allowed));
        }
    }
}

/// Roles of one group must request the same type of cells.
fn affinity_groups(protocol: &Protocol, sink: &mut Sink) {
    let roles = &protocol.extras.hived.roles;
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, role) in roles {
        let Some(group) = &role.affinity_group else { continue };
        let first = seen.entry(group).or_insert(name);
        let other = &roles[*first];
        if (&other.sku_type, &other.pinned_cell_id) != (&role.sku_type, &role.pinned_cell_id) {
            let found =
                format!("affinity group {group:?} with skuType or pinnedCellId other than in {first}");
            let path = format!("extras.hivedScheduler.taskRoles.{name}");
            sink.push(Problem::new(path, found, "one skuType or pinnedCellId in a group").at(role.line));
        }
    }
}

/// Tasks that start together must not exceed the virtual cluster. Opportunistic jobs use idle cells anywhere;
/// incremental ones start task by task, so one task must fit.
fn quota(protocol: &Protocol, cells: &[i64], offer: &Offer, sink: &mut Sink) {
    let Some(cluster) = offer.cluster.as_ref().filter(|_| !protocol.extras.hived.class.is_opportunistic())
    else {
        return;
    };
    let in_all: i64 = cluster.leaf_cells.values().sum();
    let mut asked: BTreeMap<Option<String>, i64> = BTreeMap::new();
    for (role, cells) in protocol.task_roles.iter().zip(cells) {
        let sku = protocol.hived_role(&role.name).sku_type;
        let (leaves, kind) = match sku.as_ref().and_then(|sku| cluster.cells.get(sku)) {
            Some(cell) if protocol.extras.hived.is_v2 => (cell.leaves.max(1), Some(cell.leaf_type.clone())),
            _ => (1, sku),
        };
        let per_task = cells.saturating_mul(leaves);
        let most = kind.as_ref().map_or(in_all, |kind| cluster.leaf_cells.get(kind).copied().unwrap_or(0));
        if per_task > most {
            too_much(
                &format!("taskRoles.{}", role.name),
                per_task,
                "per task",
                most,
                kind.as_ref(),
                protocol,
                sink,
            );
        }
        *asked.entry(kind).or_insert(0) += per_task.saturating_mul(role.instances);
    }
    if !protocol.extras.gang_allocation || !sink.is_empty() {
        return;
    }
    for (kind, number) in asked.iter().filter_map(|(kind, number)| Some((kind.as_ref()?, *number))) {
        let most = cluster.leaf_cells.get(kind).copied().unwrap_or(0);
        if number > most {
            too_much("taskRoles", number, "that start together", most, Some(kind), protocol, sink);
        }
    }
    let total: i64 = asked.values().sum();
    if total > in_all && sink.is_empty() {
        too_much("taskRoles", total, "that start together", in_all, None, protocol, sink);
    }
}

fn too_much(
    path: &str,
    found: i64,
    what: &str,
    most: i64,
    kind: Option<&String>,
    protocol: &Protocol,
    sink: &mut Sink,
) {
    let kind = kind.map_or_else(String::new, |kind| format!(" of type {kind}"));
    let allowed =
        format!("at most {most} SKUs{kind}, all that virtual cluster {} has", protocol.virtual_cluster);
    sink.push(Problem::new(path, format!("{found} SKUs {what}"), allowed));
}
