//! Creates and updates the ResourceBinding of an object: which policy governs it, and what it requests.

use fleet_api::patch::merge_diff;
use fleet_api::{
    ResourceBindingSpec, binding as wire, convert,
    mutation::{self, Mutation},
    names::user_of,
    policy::{PropagationSpec, Suspension},
    volcano::NetworkTopology,
};
use fleet_policies::{
    choice::{PolicyRule, PolicyScope},
    spec::Placement,
    workload::{self, WorkloadKind},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    binding::{API_VERSION, BindingEntry, is_gang},
    forms::Forms,
    governor::governor,
    kinds::KindRef,
    planner::unqueued::must_queue,
    pod_scheduling, priority, queue_place, unclaimed,
    world::{Key, Object, World},
    writes::{Target, Verb, Write},
};

/// The writes that give the object its binding, or update it.
pub fn plan(world: &World, forms: &mut Forms, kind: &KindRef, key: &Key, now: Timestamp) -> Vec<Write> {
    let Some(object) = world.object(kind, key).filter(|object| !object.deleting) else { return Vec::new() };
    let binding_key = world.binding_key(kind, key);
    let known = world.bindings.get(&binding_key);
    // The binding belongs to an earlier object of that name: it is removed first.
    if known.is_some_and(|entry| entry.object.spec.resource.uid != object.uid) {
        return Vec::new();
    }
    let Some((rule, spec)) = governor(world, kind, key, object, known) else {
        return known.and_then(|entry| unclaimed::release(world, entry)).into_iter().collect();
    };
    let placement = placement_of(spec);
    let read = workload::check(kind.workload(), &object.value)
        .and_then(|()| workload::check_placement(kind.workload(), &object.value, &placement))
        .and_then(|()| forms.counted(world, kind, key, object, &placement));
    let read = read.ok().filter(|_| {
        fleet_cell_requests::check(kind.workload(), &object.value).is_ok()
            && priority::check(world, &key.0, &object.value, (rule, spec)).is_ok()
    });
    let Some(components) = read else {
        // A running job goes on as it was sent; a waiting one would never run.
        return known.and_then(unclaimed::take_down).into_iter().collect();
    };
    let mut desired = desired_spec(world, kind, key, object, rule, spec, &components);
    if !is_gang(kind.workload(), &placement) {
        desired.queue_place = None;
    }
    match known {
        None => vec![create(kind, &binding_key, object, &desired)],
        Some(entry) => update(entry, desired, now).into_iter().collect(),
    }
}

pub(crate) fn placement_of(spec: &PropagationSpec) -> Placement {
    let wire = spec.placement.as_ref().and_then(|placement| serde_json::to_value(placement).ok());
    wire.and_then(|wire| serde_json::from_value(wire).ok()).unwrap_or_default()
}

fn desired_spec(
    world: &World,
    kind: &KindRef,
    key: &Key,
    object: &Object,
    rule: &PolicyRule,
    spec: &PropagationSpec,
    components: &[workload::Component],
) -> ResourceBindingSpec {
    let policy_kind = match rule.scope {
        PolicyScope::Namespaced => "PropagationPolicy",
        PolicyScope::Cluster => "ClusterPropagationPolicy",
    };
    let asks = fleet_cell_requests::read(kind.workload(), &object.value).ok();
    let named = asks.as_ref().map(fleet_cell_requests::CellRequest::named).unwrap_or_default();
    ResourceBindingSpec {
        resource: wire::ObjectReference {
            api_version: kind.api_version.clone(),
            kind: kind.kind.clone(),
            namespace: key.0.clone(),
            name: key.1.clone(),
            uid: object.uid.clone(),
        },
        policy: wire::PolicyReference {
            kind: policy_kind.to_string(),
            namespace: rule.namespace.clone(),
            name: rule.name.clone(),
            uid: rule.uid.clone(),
        },
        propagate_deps: spec.propagate_deps.or(spec.association),
        replicas: fleet_resources::sum(components.iter().map(|component| component.replicas)),
        components: components.iter().map(convert::component).collect(),
        network_topology: network_topology(kind, &object.value),
        placement: spec.placement.clone(),
        failover: spec.failover.clone(),
        suspension: suspension(world, kind, key, object, spec),
        conflict_resolution: spec.conflict_resolution,
        preserve_resources_on_deletion: spec.preserve_resources_on_deletion,
        pod_scheduling: spec.pod_scheduling,
        running_edits: spec.running_edits,
        scheduler_name: spec.scheduler_name.clone(),
        priority: priority::of_job(world, spec, components),
        user: user_of(&object.value["metadata"]["labels"]).map(str::to_owned),
        queue_place: Some(queue_place::asked(&object.labels, named)),
        virtual_cluster: asks.and_then(|asks| asks.vc),
        clusters: Vec::new(),
        epoch: 0,
        cells: None,
        queue: None,
        admitted: None,
    }
}

/// As the policy asks, or the quota tree. The scheduler sets `scheduling: false` for a job that has left its queue.
fn suspension(
    world: &World,
    kind: &KindRef,
    key: &Key,
    object: &Object,
    spec: &PropagationSpec,
) -> Option<Suspension> {
    let asked = |suspension: &Suspension| suspension.scheduling.filter(|suspended| *suspended);
    let scheduling = spec.suspension.as_ref().and_then(asked).or_else(|| {
        let must = must_queue(world.quota_tree.as_deref(), &object.labels, &key.0);
        (must && is_gang(kind.workload(), &placement_of(spec))).then_some(true)
    });
    let known = spec.suspension.clone().or_else(|| scheduling.map(|_| Suspension::default()));
    known.map(|known| Suspension { scheduling, ..known })
}

/// Volcano Jobs can set it; other kinds have none.
fn network_topology(kind: &KindRef, object: &Value) -> Option<NetworkTopology> {
    let wish = object.pointer("/spec/networkTopology").filter(|wish| wish.is_object())?;
    (kind.workload() == WorkloadKind::VolcanoJob).then(|| serde_json::from_value(wish.clone()).ok()).flatten()
}

fn create(kind: &KindRef, key: &Key, object: &Object, spec: &ResourceBindingSpec) -> Write {
    let body = json!({
        "apiVersion": API_VERSION,
        "kind": "ResourceBinding",
        "metadata": {
            "name": key.1,
            "namespace": key.0,
            "ownerReferences": [{
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "name": spec.resource.name,
                "uid": object.uid,
                "controller": true,
                "blockOwnerDeletion": false,
            }],
        },
        "spec": spec,
    });
    Write::new(Target::Binding, &key.0, &key.1, Verb::Create(body))
}

/// Applies changes of the object or its policy. What the scheduler has written stays, and whether a bound run waited in a queue
/// and with which priority; the next run waits as its policy says then.
fn update(entry: &BindingEntry, mut desired: ResourceBindingSpec, now: Timestamp) -> Option<Write> {
    desired.queue_place = queue_place::after_edit(entry, entry.told(), &desired, now);
    let mut desired = serde_json::to_value(desired).unwrap_or_default();
    let known = serde_json::to_value(&entry.object.spec).unwrap_or_default();
    desired["epoch"] = known["epoch"].clone();
    for placed in ["clusters", "cells", "queue", "admitted"] {
        if let Some(value) = known.get(placed) {
            desired[placed] = value.clone();
        }
    }
    if entry.is_bound() {
        settle_queueing(&known, &mut desired);
    }
    if entry.is_bound() && entry.is_gang() {
        // Requests of a running gang are fixed, because its places are held as they were reserved.
        if !mutation::is_on(Mutation::BoundGangEdited) {
            desired["components"] = known["components"].clone();
            desired["replicas"] = known["replicas"].clone();
        }
        // It decides who is a victim: a run stays what it was when it was admitted.
        desired["priority"] = known["priority"].clone();
        settle_fencing(&known, &mut desired);
        settle_pod_scheduling(&known, &mut desired);
    }
    if entry.is_bound() && entry.workload.is_job() {
        settle_gang(&known, &mut desired);
    }
    let patch = merge_diff(&known, &desired)?;
    // The patch tests what was read: a binding that was bound meanwhile keeps what was reserved for it.
    let version = entry.object.metadata.resource_version.as_deref();
    let verb = Verb::Merge(json!({"metadata": {"resourceVersion": version}, "spec": patch}));
    Some(Write::new(Target::Binding, entry.namespace(), entry.name(), verb))
}

/// A bound run has left its queue, or had none. Everything else that a policy may suspend follows the policy.
fn settle_queueing(known: &Value, desired: &mut Value) {
    let mut asked = desired["suspension"].as_object().cloned().unwrap_or_default();
    match &known["suspension"]["scheduling"] {
        Value::Null => asked.remove("scheduling"),
        waited => asked.insert("scheduling".to_owned(), waited.clone()),
    };
    desired["suspension"] = asked.into();
    if let Some(desired) = desired.as_object_mut() {
        desired.retain(|field, value| field != "suspension" || *value != json!({}));
    }
}

/// A run that was admitted as a gang counts as one until it ends. Copies, for which no quota was asked, never become a gang.
fn settle_gang(known: &Value, desired: &mut Value) {
    match known["placement"].get("replicaScheduling") {
        Some(admitted) => desired["placement"]["replicaScheduling"] = admitted.clone(),
        // A null here would be a difference again in each reconcile.
        None => {
            let placement = desired.get_mut("placement").and_then(Value::as_object_mut);
            placement.map(|placement| placement.remove("replicaScheduling"));
        }
    }
}

/// Pod templates stay as the run was sent, also if that was not as its policy has asked.
fn settle_pod_scheduling(known: &Value, desired: &mut Value) {
    let sent = known.get("podScheduling").filter(|_| !pod_scheduling::would_begin(known, desired));
    match sent {
        Some(sent) => desired["podScheduling"] = sent.clone(),
        None => drop(desired.as_object_mut().map(|desired| desired.remove("podScheduling"))),
    }
}

/// Whether a run is fenced is fixed when it is sent. The member may not know of a later change, so a policy
/// with stricter fencing applies from the next run on.
fn settle_fencing(known: &Value, desired: &mut Value) {
    let Some(failover) = desired.get_mut("failover").filter(|failover| failover["cluster"].is_object())
    else {
        return;
    };
    match known["failover"]["cluster"].as_object() {
        None => {
            failover.as_object_mut().map(|failover| failover.remove("cluster"));
        }
        Some(cluster) => match cluster.get("fencing") {
            Some(fencing) => failover["cluster"]["fencing"] = fencing.clone(),
            None => {
                failover["cluster"].as_object_mut().map(|cluster| cluster.remove("fencing"));
            }
        },
    }
}

#[cfg(test)]
mod tests;
