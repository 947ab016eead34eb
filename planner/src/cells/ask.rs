//! Requests of jobs to virtual clusters, and members' reports on cell nodes, as plain data.

use std::{collections::BTreeSet, sync::Arc};

use fleet_api::cell_places::CellGroup;
use fleet_cells::GroupRequest;

use crate::job::Held;

/// Request of a job to a virtual cluster; created once and shared.
#[derive(Clone, Debug, PartialEq)]
pub struct CellJob {
    pub vc: String,
    /// -1 is opportunistic, 0 to 1000 guaranteed.
    pub class: i32,
    /// All groups start together; otherwise each starts when it gets its cells.
    pub whole: bool,
    pub groups: Vec<CellGroupAsk>,
}

/// Pods that get their cells as a group.
#[derive(Clone, Debug, PartialEq)]
pub struct CellGroupAsk {
    pub request: GroupRequest,
    /// Component and index of each pod, by its number in the group.
    pub pods: Vec<(String, i64)>,
}

impl CellGroupAsk {
    /// Its request without its name: equal ones get equal answers.
    pub(crate) fn plain(&self) -> String {
        let mut request = self.request.clone();
        request.affinity_group.name.clear();
        serde_json::to_string(&request).unwrap_or_default()
    }
}

/// A member's report on the nodes that are cells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellNodes {
    pub good: BTreeSet<String>,
    /// Nodes that it does not have.
    pub unknown: BTreeSet<String>,
}

/// Shared, so that copying a job is cheap.
pub type SharedCellJob = Arc<CellJob>;

/// The request of a job that holds cells. A run keeps the virtual cluster and class that it was admitted
/// with: an edit applies from the next run on. If the virtual cluster no longer admits the run (`is_admitted`), the run gets
/// no further cells; those of pods that end come free as before.
pub fn as_admitted(asked: Option<Arc<CellJob>>, held: &Held, is_admitted: bool) -> Option<Arc<CellJob>> {
    let Some(first) = held.cells.first() else { return asked };
    let is_same = |job: &Arc<CellJob>| (&job.vc, job.class) == (&first.virtual_cluster, first.priority);
    if is_admitted && asked.as_ref().is_some_and(is_same) {
        return asked;
    }
    let ask = |group: &CellGroup| {
        let pods = group.places.iter().map(|place| (place.component.clone(), place.index)).collect();
        let request: GroupRequest = serde_json::from_value(group.request.clone()).ok()?;
        Some(CellGroupAsk { request, pods })
    };
    let mut groups: Vec<CellGroupAsk> = held.cells.iter().filter_map(ask).collect();
    let one_by_one = asked.filter(|asked| !asked.whole);
    let whole = groups.len() == 1 && one_by_one.is_none();
    if let Some(asked) = one_by_one.filter(|_| is_admitted) {
        let further = further(&asked, &groups);
        groups.extend(further);
    }
    let (vc, class) = (first.virtual_cluster.clone(), first.priority);
    Some(Arc::new(CellJob { vc, class, whole, groups }))
}

/// The groups of a run that wait for their cells, or have had them: requested as those that it has were.
fn further(asked: &CellJob, has: &[CellGroupAsk]) -> Vec<CellGroupAsk> {
    let Some(like) = has.first() else { return Vec::new() };
    let known: BTreeSet<&(String, i64)> = has.iter().flat_map(|group| &group.pods).collect();
    let others = asked.groups.iter().filter(|ask| !ask.pods.iter().any(|pod| known.contains(pod)));
    let as_admitted = |ask: &CellGroupAsk| {
        let affinity_group = ask.request.affinity_group.clone();
        CellGroupAsk {
            request: GroupRequest { affinity_group, ..like.request.clone() },
            pods: ask.pods.clone(),
        }
    };
    others.map(as_admitted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each pod looked for in all groups takes minutes.
    #[test]
    fn groups_that_a_run_still_lacks_are_found_without_a_search() {
        const PODS: i64 = 100_000;
        let group = |index: i64| CellGroupAsk {
            request: GroupRequest::new(&format!("default/large/train-{index}"), "vc", 0, 1, 1),
            pods: vec![("train".to_owned(), index)],
        };
        let groups = (0..PODS).map(group).collect();
        let asked = CellJob { vc: "vc".to_owned(), class: 0, whole: false, groups };
        let has: Vec<CellGroupAsk> = (0..PODS).filter(|index| index % 50_000 != 7).map(group).collect();
        let lacks: Vec<i64> = further(&asked, &has).iter().map(|ask| ask.pods[0].1).collect();
        assert_eq!(lacks, [7, 50_007]);
        assert!(further(&asked, &[]).is_empty());
    }
}
