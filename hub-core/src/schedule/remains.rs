//! Runs that are over for the hub while something of them may still run in a member: their binding is gone (its object was
//! deleted, and garbage collection took it along), or it has moved on and the policy lets the old run stay.
//!
//! Each such Work counts as a job of its own, until the member has let go of it or reports that its pods have ended:
//! quota is what runs. Follows from the Works alone, so that a restart counts the same.

use std::collections::{BTreeMap, BTreeSet};

use fleet_api::{Work, convert};
use fleet_policies::{spec::Placement, workload};
use fleet_quota::{JobId, QUOTA_LABELS};
use jiff::Timestamp;
use kube_core::ResourceExt;

use super::{
    Scheduler,
    facts::{cluster_of, job_id},
};
use crate::{
    asked,
    binding::BindingEntry,
    dispatch, kinds, manifests,
    planner::{Counted, Held, Job, JobShape, Stand},
    world::{Key, World},
};

impl Scheduler {
    /// Takes in what is left of earlier runs of a binding's name.
    pub(super) fn count_remains(&mut self, world: &World, key: &Key, now: Timestamp) {
        let mut standing = BTreeSet::new();
        let left: Vec<(String, &Work)> = world
            .works_of(key)
            .map(|((namespace, _), work)| (cluster_of(namespace).to_string(), work))
            .filter(|(cluster, work)| remains(world, world.bindings.get(key), cluster, work))
            .collect();
        for (cluster, work) in left {
            if let Some(job) = self.remaining(key, &cluster, work) {
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

    /// The Work as a job that holds what it asks for.
    fn remaining(&mut self, key: &Key, cluster: &str, work: &Work) -> Option<Job> {
        let manifest = work.spec.workload.manifests.first()?;
        let text = |field: &str| manifest[field].as_str().unwrap_or_default();
        let kind = kinds::known(text("apiVersion"), text("kind")).filter(|kind| kind.workload().is_job())?;
        let components = asked::of_manifest(&kind, manifest).ok()?;
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
        Some(Job {
            id: JobId::new(&format!("{}#{}-{}", job_id(key), work.name_any(), work.spec.epoch)),
            shape,
            quota_labels: labels,
            last_leaf: None,
            queued: false,
            priority: 0,
            preemptible: false,
            preemptions: 0,
            enqueued_at_ms: 0,
            avoided: BTreeSet::new(),
            barred: BTreeMap::new(),
            blocked: None,
            stand: Stand::Holds(Held {
                cluster: cluster.to_string(),
                counted: Counted::ByReports,
                nodes: BTreeMap::new(),
                ending: true,
                cells: Vec::new(),
                ended: BTreeMap::new(),
                ungiven: BTreeSet::new(),
            }),
            runtime_ms: None,
            started_at_ms: None,
            checkpoint_at_ms: None,
            cells: None,
        })
    }
}

/// Whether a Work stands for a run that its binding does not count itself and that may be alive.
fn remains(world: &World, entry: Option<&BindingEntry>, cluster: &str, work: &Work) -> bool {
    if dispatch::is_gone(world, cluster) {
        return false;
    }
    if let Some(entry) = entry.filter(|entry| entry.uid() == work.spec.binding.uid) {
        let present = entry.is_bound() && work.spec.epoch == entry.object.spec.epoch;
        if present || dispatch::is_left_behind(world, entry, cluster, work) {
            return false;
        }
    }
    let Some(manifest) = work.spec.workload.manifests.first() else { return false };
    let text = |field: &str| manifest[field].as_str().unwrap_or_default();
    let kind = workload::WorkloadKind::of(text("apiVersion"), text("kind"));
    let ended =
        manifests::reported_status(work).is_some_and(|status| workload::outcome(kind, status).is_some());
    !ended || work.status.as_ref().is_some_and(|status| status.live_pods > Some(0))
}
