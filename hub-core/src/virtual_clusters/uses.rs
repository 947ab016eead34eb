//! What virtual clusters have and use, as plain data: the planner tells it, the VirtualClusters' statuses say it.

use std::collections::{BTreeMap, BTreeSet};

use fleet_api::cells::status::JobCounts;
use fleet_cells::{NodeName, VcStatus};

use fleet_planner::VcJobs;

use crate::schedule::Scheduler;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// By name.
    pub virtual_clusters: BTreeMap<String, VcUse>,
    /// Nodes of the configuration on which nothing new is placed.
    pub bad_nodes: BTreeSet<NodeName>,
}

/// What one virtual cluster has and who is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VcUse {
    /// `Cells::vc_status` of it: promised cells and leaf cells, used, bad, borrowed out and in.
    pub cells: VcStatus,
    /// Its jobs by the number of their class.
    pub jobs: BTreeMap<i32, JobCounts>,
}

impl Scheduler {
    /// What each virtual cluster of the configuration in force has; none while the planner gives no cells. Then the
    /// statuses say what is promised and that nobody uses it.
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
                .map(|(name, used)| (name, VcUse { jobs: jobs(&used.jobs), cells: used.cells }))
                .collect(),
            bad_nodes: cells.nodes().filter(|node| !cells.is_good(node)).cloned().collect(),
        })
    }
}
