//! Runs, and Deployments, that are over for the hub but may still run in a member: their binding is gone (the object was
//! deleted, and garbage collection deleted the binding), or it has moved and the policy keeps the old run.
//!
//! Each such Work counts as a job of its own until the member has removed it or reports that its pods have
//! ended, because quota counts what runs, and a cell is allocated once. This follows from the Works and their
//! reservations alone, so a restart counts the same.

use std::collections::{BTreeMap, BTreeSet};

use fleet_api::{
    Work,
    cell_places::{CellGroup, LazilyPreempted},
    convert,
    reservation::ReservationStatus,
};
use fleet_policies::{WorkloadKind, spec::Placement, workload};
use fleet_quota::JobId;
use fleet_quota_tree::QUOTA_LABELS;
use jiff::Timestamp;

use super::{
    Scheduler,
    facts::{cluster_of, job_id},
    left_behind::mark,
};
use crate::{
    binding::BindingEntry,
    dispatch, kinds,
    planner::{Counted, Held, Job, JobPhase, JobShape, as_admitted},
    world::{Key, World},
};

impl Scheduler {
    /// Counts what is left of earlier runs of a binding's name.
    pub(super) fn count_remains(&mut self, world: &World, key: &Key, now: Timestamp) {
        let mut standing = BTreeSet::new();
        let left: Vec<(String, &Work)> = world
            .works_of(key)
            .map(|((namespace, _), work)| (cluster_of(namespace).to_string(), work))
            .filter(|(cluster, work)| remains(world, world.bindings.get(key), cluster, work))
            .collect();
        for (cluster, work) in left {
            if let Some(job) = self.remaining(world, key, &cluster, work) {
                standing.insert(job.id.clone());
                self.planner.set_job(job, now.as_millisecond());
            }
        }
        let known = if standing.is_empty() {
            self.remains.remove(key)
        } else {
            self.remains.insert(key.clone(), standing.clone())
        };
        for gone in known.unwrap_or_default().difference(&standing) {
            self.planner.remove_job(gone, now.as_millisecond());
        }
    }

    /// The Work as a job that holds its requests.
    fn remaining(&mut self, world: &World, key: &Key, cluster: &str, work: &Work) -> Option<Job> {
        let manifest = work.spec.workload.manifests.first()?;
        let text = |field: &str| manifest[field].as_str().unwrap_or_default();
        let kind = kinds::known(text("apiVersion"), text("kind"))
            .filter(|kind| kind.workload() != WorkloadKind::Other)?;
        // As it was sent: rules that came later refuse it, and its pods run all the same.
        let components = workload::components(kind.workload(), manifest).ok()?;
        let components: Vec<_> = components.iter().map(convert::component).collect();
        let labels: BTreeMap<String, String> = QUOTA_LABELS
            .iter()
            .filter_map(|label| {
                Some((label.to_string(), manifest["metadata"]["labels"][*label].as_str()?.to_string()))
            })
            .collect();
        let class = format!("remains {}", serde_json::to_string(&components).unwrap_or_default());
        let gang = convert::gang(&components).unwrap_or_default();
        let shape = self.shape_of(&class, |id| JobShape {
            id,
            total: gang.total(),
            gang,
            placement: Placement::default(),
            api_version: kind.api_version.clone(),
            kind: kind.kind.clone(),
        });
        let held = held(world, key, cluster, work);
        let cells = as_admitted(None, &held, true);
        Some(Job {
            id: JobId::new(&format!("{}{}", job_id(key), mark(work))),
            shape,
            quota_labels: labels,
            last_leaf: None,
            queued: false,
            left_queue: true,
            priority: 0,
            preemptible: false,
            preemptions: 0,
            enqueued_at_ms: 0,
            avoided: BTreeSet::new(),
            barred: BTreeMap::new(),
            blocked: None,
            phase: JobPhase::Holds(held),
            runtime_ms: None,
            started_at_ms: None,
            checkpoint_at_ms: None,
            cells,
        })
    }
}

/// Its places and cells, from its reservation. The promise belongs to the job's next run; the remains use
/// their cells like an opportunistic group.
fn held(world: &World, key: &Key, cluster: &str, work: &Work) -> Held {
    let reservation = world.reservations_of(key).find(|((namespace, _), reservation)| {
        cluster_of(namespace) == cluster
            && reservation.spec.binding.uid == work.spec.binding.uid
            && reservation.spec.epoch == work.spec.epoch
    });
    // A Work that is being deleted ends by itself.
    let lingers = work.metadata.deletion_timestamp.is_none();
    let mut held = Held { ending: true, lingers, ..Held::here(cluster, Counted::ByReports) };
    let Some((_, reservation)) = reservation else { return held };
    held.cells = reservation.spec.cells.iter().map(|group| without_promise(group, &mark(work))).collect();
    held.ended = reservation.status.as_ref().map(ReservationStatus::ended_pods).unwrap_or_default();
    held
}

/// The job's next run requests groups of the same names.
fn without_promise(group: &CellGroup, mark: &str) -> CellGroup {
    let mut group = group.clone();
    group.name.push_str(mark);
    if let Some(name) = group.request.pointer_mut("/affinityGroup/name") {
        *name = group.name.clone().into();
    }
    group
        .lazily_preempted
        .get_or_insert_with(|| LazilyPreempted { by: "the end of its run".into(), at_ms: 0 });
    group
}

/// Whether a Work is of a run that its binding does not count itself and that may be alive.
fn remains(world: &World, entry: Option<&BindingEntry>, cluster: &str, work: &Work) -> bool {
    if let Some(entry) = entry.filter(|entry| entry.uid() == work.spec.binding.uid) {
        // A Deployment keeps its Work in a cluster that a new target still names.
        let is_named = || entry.object.spec.clusters.iter().any(|target| target.name == cluster);
        let is_current = work.spec.epoch == entry.object.spec.epoch || !entry.is_gang() && is_named();
        let present = entry.is_bound() && is_current;
        if present || dispatch::is_left_behind(world, entry, cluster, work) {
            return false;
        }
    }
    dispatch::may_be_alive(world, cluster, work)
}
