//! Cells and use of virtual clusters, as plain data: the planner provides it for the VirtualClusters' statuses.

use std::collections::{BTreeMap, BTreeSet};

use fleet_api::cells::status::JobCounts;
use fleet_cells::{NodeName, VcStatus};

use fleet_planner::VcJobs;
use fleet_quota::JobId;

use crate::schedule::Scheduler;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// By name.
    pub virtual_clusters: BTreeMap<String, VcUse>,
    /// Nodes of the configuration that get nothing new.
    pub bad_nodes: BTreeSet<NodeName>,
}

/// Cells and jobs of one virtual cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VcUse {
    /// Its `Cells::vc_status`: promised cells and leaf cells, used, bad, borrowed out and in.
    pub cells: VcStatus,
    /// Its jobs by class number.
    pub jobs: BTreeMap<i32, JobCounts>,
    /// The first of its waiting jobs, with their class.
    pub first: Vec<(JobId, i32)>,
}

impl Scheduler {
    /// Use of each virtual cluster of the configuration in force; `None` while the planner allocates no
    /// cells. The statuses then report the promises as unused.
    pub fn virtual_cluster_uses(&self) -> Option<Uses> {
        let cells = self.planner().cells()?;
        let jobs = |jobs: &VcJobs| {
            let mut counts: BTreeMap<i32, JobCounts> = BTreeMap::new();
            jobs.waiting.iter().for_each(|(class, count)| counts.entry(*class).or_default().waiting = *count);
            jobs.running.iter().for_each(|(class, count)| counts.entry(*class).or_default().running = *count);
            counts
        };
        let uses = self.planner().vc_use().into_iter();
        Some(Uses {
            virtual_clusters: uses
                .map(|(name, used)| {
                    (name, VcUse { jobs: jobs(&used.jobs), first: used.jobs.first, cells: used.cells })
                })
                .collect(),
            bad_nodes: cells.nodes().filter(|node| !cells.is_good(node)).cloned().collect(),
        })
    }
}
