//! Use of jobs without a queue. Their policy does not ask for one, so they are placed at once, whatever the
//! max of their quota. Their use is not part of the quota's `used`, which never exceeds its max (invariant
//! 3). It is reported beside it, and a queued job is admitted only if both leave enough.

use std::collections::BTreeMap;

use fleet_api::binding::Admission;
use fleet_quota::Ledger;
use fleet_quota_tree::{NodeId, PREEMPTIBLE_LABEL};
use fleet_resources::Resources;
use serde_json::Value;

use crate::{
    binding::BindingEntry,
    planner::{Waiting, unqueued as planned},
    schedule::job_id,
    world::{Object, World},
};

/// Kind of the policies that only administrators write.
const CLUSTER_POLICY: &str = "ClusterPropagationPolicy";

/// The sum below one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unqueued {
    pub resources: Resources,
    pub jobs: i64,
}

/// Whether the job never waits in a queue: its policy does not set `suspension.scheduling`.
pub fn is_unqueued(entry: &BindingEntry) -> bool {
    entry.object.spec.suspension.as_ref().is_none_or(|suspension| suspension.scheduling.is_none())
}

/// Whether the quota tree makes the job wait in its queue, whatever its policy says.
pub fn must_queue(world: &World, entry: &BindingEntry) -> bool {
    let object = world.bound_object(entry).filter(|_| entry.is_gang());
    object.is_some_and(|object| {
        planned::must_queue(world.quota_tree.as_deref(), &object.labels, entry.namespace())
    })
}

/// Whether a deleted job leaves nothing in its member, whatever its policy preserves, because no quota would count it: all
/// must queue in its leaf; or it queues, and no administrator's policy places it. A run whose policy is gone is placed by none.
pub fn leaves_nothing(world: &World, entry: &BindingEntry) -> bool {
    let is_of_administrators = entry.object.spec.policy.kind == CLUSTER_POLICY;
    is_of_required_queue(world, entry) || entry.is_gang() && !is_unqueued(entry) && !is_of_administrators
}

/// Whether all must queue in the job's leaf, or in the one that its run counts in.
pub fn is_of_required_queue(world: &World, entry: &BindingEntry) -> bool {
    let (tree, leaf) = (world.quota_tree.as_deref(), entry.object.spec.queue.as_deref());
    let counted = tree.zip(leaf).and_then(|(tree, leaf)| Some(tree.node(tree.find(leaf)?)));
    must_queue(world, entry) || entry.is_gang() && counted.is_some_and(|node| node.requires_queue)
}

/// Whether the binding says that the job queues, if the quota tree makes it.
pub fn is_told(world: &World, entry: &BindingEntry) -> bool {
    entry.is_suspended() || !must_queue(world, entry)
}

/// Why the quota tree does not let `manifest` be sent, if what it requests is not admitted by a queue.
pub fn barred(world: &World, entry: &BindingEntry, object: &Object, manifest: &Value) -> Option<Waiting> {
    let tree = world.quota_tree.as_deref().filter(|_| !entry.is_gang());
    planned::barred(tree, &object.labels, entry.namespace(), manifest, entry.workload.is_job())
}

/// Whether quota may take the job's places for another. A job without a queue is placed again at once, so nothing would be
/// gained by it. A run stays what it was admitted as: on borrowed quota, a label that is set later would keep it for good.
pub fn is_preemptible(entry: &BindingEntry, object: Option<&Object>) -> bool {
    admitted(entry).map_or_else(|| asks_preemptible(entry, object), |admitted| admitted.preemptible)
}

/// What the next run will be admitted as.
fn asks_preemptible(entry: &BindingEntry, object: Option<&Object>) -> bool {
    !is_unqueued(entry) && object.is_none_or(Object::is_preemptible)
}

/// What the present run was admitted as. Absent for runs that an earlier release has bound: their labels count.
fn admitted(entry: &BindingEntry) -> Option<&Admission> {
    entry.object.spec.admitted.as_ref().filter(|_| entry.is_bound())
}

/// Metadata of the object that its run does not follow, because it was admitted with another value.
pub fn waits_for_next_run(entry: &BindingEntry, object: &Object) -> Option<String> {
    let admitted = admitted(entry).filter(|_| entry.is_gang())?;
    (admitted.preemptible != asks_preemptible(entry, Some(object)))
        .then(|| format!("metadata.labels[{PREEMPTIBLE_LABEL}]"))
}

/// The sums of each node that has any.
pub fn by_node(world: &World, ledger: &Ledger) -> BTreeMap<NodeId, Unqueued> {
    let mut sums: BTreeMap<NodeId, Unqueued> = BTreeMap::new();
    for (key, _) in world.bindings.iter().filter(|(_, entry)| is_unqueued(entry)) {
        let Some(job) = ledger.job(&job_id(key)) else { continue };
        for node in ledger.tree().path_to_root(job.leaf) {
            let sum = sums.entry(node).or_default();
            sum.resources.add(&job.request);
            sum.jobs += 1;
        }
    }
    sums
}
