//! What each virtual cluster has and who uses it, as plain data for its status.

use std::collections::BTreeMap;

use fleet_cells::VcStatus;

use super::pass::by_class;
use crate::{
    job::{Job, Stand},
    planner::Planner,
};

/// Jobs of a virtual cluster, by class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VcJobs {
    pub waiting: BTreeMap<i32, i64>,
    pub running: BTreeMap<i32, i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VcUse {
    pub cells: VcStatus,
    pub jobs: VcJobs,
}

impl Planner {
    /// Every virtual cluster, by name.
    pub fn vc_use(&self) -> BTreeMap<String, VcUse> {
        let Some(cells) = self.cells() else { return BTreeMap::new() };
        let names: Vec<String> = cells.virtual_clusters().map(str::to_owned).collect();
        let of = |vc: &str, runs: bool| {
            let of_vc = move |job: &&Job| job.cells.as_ref().is_some_and(|asks| asks.vc == vc);
            let stands = move |job: &&Job| matches!(job.stand, Stand::Holds(_)) == runs;
            let jobs = self.jobs.values().map(|entry| &entry.job).filter(of_vc).filter(stands);
            by_class(jobs.filter_map(|job| Some(job.cells.as_ref()?.class)))
        };
        names
            .into_iter()
            .filter_map(|vc| {
                let jobs = VcJobs { waiting: of(&vc, false), running: of(&vc, true) };
                Some((vc.clone(), VcUse { cells: cells.vc_status(&vc)?, jobs }))
            })
            .collect()
    }
}
