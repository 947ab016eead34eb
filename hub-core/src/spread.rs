//! Objects for several clusters: copied to each one (Duplicated), or with divided replicas.
//!
//! Such objects do not queue and have no reservations. A division stays as it is until the number of
//! replicas, the policy or the set of clusters changes.

use std::collections::{BTreeMap, BTreeSet};

use fleet_api::binding::TargetCluster;
use fleet_policies::{
    affinity::{self, ClusterFacts},
    division::{self, TieOrder},
    reason::Reason,
    spec::{ReplicaDivisionPreference, ReplicaSchedulingType},
};

use crate::{
    binding::BindingEntry,
    planner::{Room, Rooms, Waiting},
};

/// Above this number of replicas, a cluster's capacity is not counted further.
const COUNTED_REPLICAS: i64 = 100_000;

/// The desired targets of an object.
///
/// # Errors
/// Why it has none.
pub fn targets(
    rooms: &Rooms,
    entry: &BindingEntry,
    gone: &BTreeSet<String>,
) -> Result<Vec<TargetCluster>, Waiting> {
    let known: Vec<(&String, &Room)> = rooms.iter().collect();
    let facts: Vec<ClusterFacts> = known.iter().map(|(_, room)| room.facts.clone()).collect();
    let current: BTreeMap<String, i64> =
        entry.object.spec.clusters.iter().map(|target| (target.name.clone(), target.replicas)).collect();
    // Replicas stay where they are despite new taints; a cluster that is gone has none.
    let held: Vec<String> = current.keys().filter(|name| !gone.contains(*name)).cloned().collect();
    let groups = affinity::admitted_groups(&entry.placement, &facts, &held);
    // Groups are alternatives: the first one with a cluster is used.
    let admitted =
        groups.into_iter().map(|group| group.clusters).find(|names| !names.is_empty()).unwrap_or_default();
    if admitted.is_empty() {
        let message = format!("0 of {} clusters admit the object", facts.len());
        return Err(Waiting::new(Reason::ClusterNotAdmitted, message));
    }
    let replicas = entry.object.spec.replicas;
    let scheduling = entry.placement.replica_scheduling.clone().unwrap_or_default();
    let divided = scheduling.replica_scheduling_type == ReplicaSchedulingType::Divided
        && entry.placement.replica_scheduling.is_some()
        && !entry.gang.components.is_empty();
    let shares = if !divided {
        division::duplicate(replicas, &admitted)
    } else {
        divide(rooms, entry, &admitted, &current, replicas, &facts)?
    };
    Ok(shares
        .into_iter()
        .map(|(name, replicas)| TargetCluster { name, replicas, components: Vec::new() })
        .collect())
}

fn divide(
    rooms: &Rooms,
    entry: &BindingEntry,
    admitted: &[String],
    current: &BTreeMap<String, i64>,
    replicas: i64,
    facts: &[ClusterFacts],
) -> Result<BTreeMap<String, i64>, Waiting> {
    let tie = TieOrder::of_uid(entry.uid());
    let current: BTreeMap<String, i64> = current
        .iter()
        .filter(|(name, _)| admitted.contains(name))
        .map(|(name, n)| (name.clone(), *n))
        .collect();
    let scheduling = entry.placement.replica_scheduling.clone().unwrap_or_default();
    let weights = scheduling.weight_preference.unwrap_or_default();
    let by_room = scheduling.replica_division_preference == Some(ReplicaDivisionPreference::Aggregated)
        || weights.dynamic_weight.is_some();
    if by_room && !current.is_empty() && fleet_resources::sum(current.values().copied()) == replicas {
        // Capacity that the object itself takes is not visible yet when it is reconciled again.
        return Ok(current);
    }
    let room_for = |name: &String| {
        let held = current.get(name).copied().unwrap_or(0);
        let free =
            rooms.iter().find(|(known, _)| *known == name).map_or(0, |(_, room)| replicas_in(room, entry));
        (name.clone(), free.saturating_add(held))
    };
    if scheduling.replica_division_preference == Some(ReplicaDivisionPreference::Aggregated) {
        let available: Vec<(String, i64)> = admitted.iter().map(room_for).collect();
        return division::aggregate(replicas, &available, &current, tie)
            .ok_or_else(|| short(replicas, &available));
    }
    if weights.dynamic_weight.is_some() {
        let available: Vec<(String, i64)> = admitted.iter().map(room_for).collect();
        if fleet_resources::sum(available.iter().map(|(_, n)| *n)) < replicas {
            return Err(short(replicas, &available));
        }
        return Ok(division::redivide(replicas, &available, &current, tie));
    }
    let of = |name: &String| {
        let facts = facts.iter().find(|facts| facts.name == *name);
        let matching = weights
            .static_weight_list
            .iter()
            .filter(|rule| facts.is_some_and(|facts| affinity::cluster_matches(&rule.target_cluster, facts)));
        (name.clone(), matching.map(|rule| rule.weight).max().unwrap_or(0))
    };
    let listed: Vec<(String, i64)> = admitted.iter().map(of).collect();
    Ok(division::divide(replicas, &listed, tie))
}

/// How many more replicas fit into a cluster.
fn replicas_in(room: &Room, entry: &BindingEntry) -> i64 {
    let Some(component) = entry.gang.components.first() else { return 0 };
    // Not limited to the requested replicas: as weights, all free capacity counts.
    room.pods_of(&component.shape, COUNTED_REPLICAS)
}

fn short(replicas: i64, available: &[(String, i64)]) -> Waiting {
    let rooms: Vec<String> = available.iter().map(|(name, n)| format!("{name}: {n}")).collect();
    let message = format!("requested {replicas} replicas; free capacity: {}", rooms.join(", "));
    Waiting::new(Reason::NoClusterFits, message)
}
