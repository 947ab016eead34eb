//! Cells and use of each virtual cluster, as plain data for its status.

use std::collections::BTreeMap;

use fleet_cells::VcStatus;
use fleet_quota::JobId;

use super::pass::by_class;
use crate::{
    job::{Job, JobPhase},
    planner::Planner,
};

/// Jobs of a virtual cluster, by class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VcJobs {
    pub waiting: BTreeMap<i32, i64>,
    pub running: BTreeMap<i32, i64>,
    /// The first of the waiting jobs in the order in which they are considered, with their class.
    pub first: Vec<(JobId, i32)>,
}

/// Waiting jobs of a virtual cluster that are listed.
const LISTED: usize = 10;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VcUse {
    pub cells: VcStatus,
    pub jobs: VcJobs,
}

impl Planner {
    /// By virtual cluster. Its opportunistic jobs come after all others.
    fn first_in_line(&self) -> BTreeMap<String, Vec<(JobId, i32)>> {
        let mut lines: BTreeMap<String, Vec<(JobId, i32)>> = BTreeMap::new();
        for place in &self.cells.waiting {
            let asks = self.jobs.get(&place.4).and_then(|entry| entry.job.cells.as_ref());
            let Some(asks) = asks else { continue };
            let line = lines.entry(asks.vc.clone()).or_default();
            if line.len() < LISTED {
                line.push((place.4.clone(), asks.class));
            }
        }
        lines
    }

    /// Every virtual cluster, by name.
    pub fn vc_use(&self) -> BTreeMap<String, VcUse> {
        let Some(cells) = self.cells() else { return BTreeMap::new() };
        let names: Vec<String> = cells.virtual_clusters().map(str::to_owned).collect();
        let has_cells = |job: &Job| matches!(job.phase, JobPhase::Holds(_));
        // A job of which some pods run and others wait does both.
        let of = |vc: &str, runs: bool| {
            let of_vc = move |job: &&Job| job.cells.as_ref().is_some_and(|asks| asks.vc == vc);
            let stands = |job: &&Job| match runs {
                true => has_cells(job),
                false => !has_cells(job) || self.partly_waiting(&job.id).is_some(),
            };
            let jobs = self.jobs.values().map(|entry| &entry.job).filter(of_vc).filter(stands);
            by_class(jobs.filter_map(|job| Some(job.cells.as_ref()?.class)))
        };
        let mut first = self.first_in_line();
        names
            .into_iter()
            .filter_map(|vc| {
                let first = first.remove(&vc).unwrap_or_default();
                let jobs = VcJobs { waiting: of(&vc, false), running: of(&vc, true), first };
                Some((vc.clone(), VcUse { cells: cells.vc_status(&vc)?, jobs }))
            })
            .collect()
    }
}
