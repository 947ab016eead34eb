//! The place of a gang among waiting jobs of equal priority: the time since when it asks for what it asks for now, or for
//! more.
//!
//! An edit that asks for less keeps the place, and any other edit of what decides over a start takes the one of a job that comes
//! now. So nobody is ahead of others by submitting early what he edits later. The place stands in the binding and is written
//! together with the edit, so a restart loses nothing. What a policy of administrators changes moves nobody, but for priorities.

use std::collections::BTreeMap;

use fleet_api::{
    ResourceBindingSpec,
    binding::{Component, QueuePlace},
    cells::class::DEFAULT_CLASS,
    convert,
};
use fleet_policies::reason::Reason;
use fleet_quota_tree::QUOTA_LABELS;
use jiff::Timestamp;

use crate::binding::BindingEntry;

/// Kind of the policies that only administrators write.
const CLUSTER_POLICY: &str = "ClusterPropagationPolicy";

/// What a job asks for beside its components. `class`, `cells`: what it names of its virtual cluster.
pub fn asked(labels: &BTreeMap<String, String>, (class, cells): (Option<i32>, Option<i64>)) -> QueuePlace {
    QueuePlace { since: None, labels: quota_labels(labels), class, cells }
}

/// The labels of a job that name its leaf.
pub fn quota_labels(labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let named = QUOTA_LABELS.iter().filter_map(|label| labels.get_key_value(*label));
    named.map(|(label, value)| (label.clone(), value.clone())).collect()
}

/// Whether the binding of a waiting job knows of its leaf as its labels name it now.
pub fn knows_leaf(entry: &BindingEntry, labels: &BTreeMap<String, String>) -> bool {
    entry.object.spec.queue_place.as_ref().is_none_or(|place| place.labels == quota_labels(labels))
}

/// Whether the binding of a waiting job knows the virtual cluster that it names now, and its class and cells there.
pub fn knows_cells(entry: &BindingEntry, vc: Option<&str>, named: (Option<i32>, Option<i64>)) -> bool {
    let spec = &entry.object.spec;
    let knows =
        |place: &QueuePlace| spec.virtual_cluster.as_deref() == vc && (place.class, place.cells) == named;
    spec.queue_place.as_ref().is_none_or(knows)
}

/// The place of a job whose binding becomes `desired`, in which `queue_place` has what it [asks for](asked). `told`: why it waits,
/// as its user was told. A run keeps its place, also for when it waits again.
pub fn after_edit(
    entry: &BindingEntry,
    told: Option<Reason>,
    desired: &ResourceBindingSpec,
    now: Timestamp,
) -> Option<QueuePlace> {
    let known = entry.object.spec.queue_place.as_ref();
    if entry.is_bound() {
        return known.cloned();
    }
    let asked = desired.queue_place.clone()?;
    let since = match known {
        // An earlier release has made the binding.
        None if entry.is_gang() => return Some(asked).filter(|asked| *asked != QueuePlace::default()),
        Some(known) if keeps(&entry.object.spec, known, told, desired, &asked) => known.since.clone(),
        _ => Some(format!("{now:.3}")),
    };
    Some(QueuePlace { since, ..asked })
}

fn keeps(
    known: &ResourceBindingSpec,
    place: &QueuePlace,
    told: Option<Reason>,
    desired: &ResourceBindingSpec,
    asked: &QueuePlace,
) -> bool {
    let class = |place: &QueuePlace| place.class.unwrap_or(DEFAULT_CLASS);
    let cells_grow = match (place.cells, asked.cells) {
        (Some(known), Some(asked)) => asked > known,
        (None, None) => false,
        _ => true,
    };
    let is_other = place.labels != asked.labels
        || known.virtual_cluster != desired.virtual_cluster
        || known.network_topology != desired.network_topology
        || policy_is_other(known, desired);
    let is_more = desired.priority > known.priority
        || class(asked) > class(place)
        || cells_grow
        || !is_within(&desired.components, &known.components);
    let is_less = desired.priority < known.priority
        || class(asked) < class(place)
        || place.cells != asked.cells
        || desired.components != known.components;
    let is_useless = is_less && told.is_some_and(waits_for_its_owner);
    !(is_other || is_more || is_useless)
}

/// Whether a tenant's policy lets the job go elsewhere, or into a queue that it was not in.
fn policy_is_other(known: &ResourceBindingSpec, desired: &ResourceBindingSpec) -> bool {
    if desired.policy.kind == CLUSTER_POLICY && desired.policy == known.policy {
        return false;
    }
    let queues = |spec: &ResourceBindingSpec| {
        spec.suspension.as_ref().is_some_and(|suspension| suspension.scheduling == Some(true))
    };
    let is_held = |spec: &ResourceBindingSpec| {
        spec.suspension.as_ref().is_some_and(|suspension| suspension.dispatching == Some(true))
    };
    known.placement != desired.placement
        || queues(desired) && !queues(known)
        || is_held(known) && !is_held(desired)
}

/// No more pods, none that requests more, and none for other nodes.
fn is_within(asked: &[Component], known: &[Component]) -> bool {
    let goes_elsewhere = |component: &Component| {
        let same = known.iter().find(|same| same.name == component.name);
        same.is_some_and(|same| same.node_claim != component.node_claim)
    };
    convert::within(asked, known).is_ok() && !asked.iter().any(goes_elsewhere)
}

/// Reasons that no other job's end lifts. A job that could never run has kept its place without any use for it.
fn waits_for_its_owner(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::ExceedsQuota
            | Reason::ExceedsEveryCluster
            | Reason::NotInQuotaTree
            | Reason::NotAdmittedToQueue
            | Reason::NotAdmittedToVirtualCluster
            | Reason::InvalidCells
            | Reason::InvalidWorkload
            | Reason::OverrideInvalid
            | Reason::PodSecurityViolation
            | Reason::WorkloadTooLarge
            | Reason::WaitingForDependencies
    )
}

#[cfg(test)]
mod tests;
