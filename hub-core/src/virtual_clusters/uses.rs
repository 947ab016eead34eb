//! What virtual clusters have and use, as plain data: the planner tells it, the VirtualClusters' statuses say it.

use std::collections::{BTreeMap, BTreeSet};

use fleet_api::cells::status::JobCounts;
use fleet_cells::{NodeName, VcStatus};

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
        None
    }
}
