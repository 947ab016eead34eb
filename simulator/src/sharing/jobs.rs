//! Rows as groups. What a job asks for is decided once, in its tenant's private cluster, and is the same in all
//! three ways of sharing.

use std::collections::BTreeMap;

use fleet_cells::{GroupRequest, Member, OPPORTUNISTIC, PodGroup, config::ClusterConfig};

use super::{private, replay::World};
use crate::traces::{Order, Row};

/// What jobs ask for; equal ones share it.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// In the virtual cluster, and for a shared cluster without one.
    pub promised: GroupRequest,
    pub anywhere: GroupRequest,
    pub leaves: i64,
}

#[derive(Clone, Debug)]
pub(super) struct Job {
    pub tenant: usize,
    pub shape: usize,
    pub submit_ms: i64,
    pub duration_ms: i64,
    /// The smallest is next; ties by submission.
    pub rank: i64,
}

pub(super) struct TenantSpec {
    pub name: String,
    pub promised_leaves: i64,
}

pub(super) struct Workload {
    pub tenants: Vec<TenantSpec>,
    pub shapes: Vec<Shape>,
    /// By time of submission.
    pub jobs: Vec<Job>,
    /// Whether a job that does not fit keeps later ones of its tenant waiting.
    pub head_blocks: bool,
    /// Rows of virtual clusters that the configuration does not have.
    pub unknown: usize,
    /// Rows that ask for no GPU.
    pub without_leaves: usize,
    /// Jobs that do not fit their private cluster even if it is empty; left out in all three ways.
    pub too_large: usize,
}

impl Workload {
    /// `alone` are the private clusters, in the order of the configuration's virtual clusters.
    pub fn new(rows: &[Row], config: &ClusterConfig, order: Order, alone: &mut [World]) -> Self {
        let names: Vec<&String> = config.virtual_clusters.keys().collect();
        let mut workload = Self {
            tenants: names
                .iter()
                .map(|name| TenantSpec {
                    name: (*name).clone(),
                    promised_leaves: private::promised_leaves(config, name),
                })
                .collect(),
            shapes: Vec::new(),
            jobs: Vec::new(),
            head_blocks: matches!(order, Order::Fifo | Order::Sjf),
            unknown: 0,
            without_leaves: 0,
            too_large: 0,
        };
        let within = Within::new(config);
        let mut known: BTreeMap<(usize, i64, i64), Option<usize>> = BTreeMap::new();
        for row in rows {
            let Some(tenant) = names.iter().position(|name| **name == row.vc) else {
                workload.unknown += 1;
                continue;
            };
            if row.gpus == 0 {
                workload.without_leaves += 1;
                continue;
            }
            let fewest = (row.gpus + within.node_leaves - 1) / within.node_leaves;
            let pods = row.instances.unwrap_or(fewest).clamp(1, row.gpus);
            let shape = *known.entry((tenant, pods, row.gpus)).or_insert_with(|| {
                let shape = within.shape(names[tenant], pods, row.gpus, &mut alone[tenant])?;
                workload.shapes.push(shape);
                Some(workload.shapes.len() - 1)
            });
            let Some(shape) = shape else {
                workload.too_large += 1;
                continue;
            };
            let rank = match order {
                Order::Fifo | Order::Fair => 0,
                Order::Priority => -row.priority,
                Order::Sjf => row.duration_ms,
            };
            let (submit_ms, duration_ms) = (row.submit_ms, row.duration_ms);
            workload.jobs.push(Job { tenant, shape, submit_ms, duration_ms, rank });
        }
        workload
    }
}

/// Types of cells with their leaf cells, smallest first.
struct Within {
    types: Vec<(i64, String)>,
    node_leaves: i64,
}

impl Within {
    fn new(config: &ClusterConfig) -> Self {
        let all = &config.physical_cluster.cell_types;
        let mut types: Vec<(i64, String)> =
            all.keys().map(|name| (private::leaves(all, name), name.clone())).collect();
        types.sort();
        let nodes = all.iter().filter(|(_, cell_type)| cell_type.is_node_level);
        let node_leaves = nodes.map(|(name, _)| private::leaves(all, name)).max().unwrap_or(1);
        Self { types, node_leaves }
    }

    /// Hard affinity: the job must lie within one cell of the smallest type that can hold it, if its virtual cluster
    /// was promised such a cell. None if the job never fits.
    fn shape(&self, vc: &str, pods: i64, gpus: i64, alone: &mut World) -> Option<Shape> {
        let (each, wide) = (gpus / pods, gpus % pods);
        let mut root = PodGroup::default();
        for (pod_number, leaf_cell_number) in [(wide, each + 1), (pods - wide, each)] {
            if pod_number > 0 {
                root.members.push(Member { pod_number, leaf_cell_number, cell_type: String::new() });
            }
        }
        let enough = self.types.iter().filter(|(leaves, _)| gpus > 1 && *leaves >= gpus);
        let levels = enough.map(|(_, name)| name.as_str()).chain([""]);
        for level in levels {
            let mut promised = GroupRequest::new("job", vc, 0, 1, 1);
            promised.affinity_group.root = PodGroup { within_one_cell: level.to_string(), ..root.clone() };
            if alone.admits(&promised) {
                let anywhere = GroupRequest { priority: OPPORTUNISTIC, ..promised.clone() };
                return Some(Shape { promised, anywhere, leaves: gpus });
            }
        }
        None
    }
}
