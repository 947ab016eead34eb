//! From an object and the policies to its ResourceBinding: which policy governs it, what it asks for.

use fleet_api::patch::merge_diff;
use fleet_api::{
    binding as wire, convert,
    mutation::{self, Mutation},
    policy::{PropagationSpec, Suspension},
    volcano::NetworkTopology,
};
use fleet_policies::{
    choice::{PolicyRule, PolicyScope},
    spec::Placement,
    workload::{self, WorkloadKind},
};
use serde_json::{Value, json};

use crate::{
    asked,
    binding::{API_VERSION, BindingEntry},
    governor::governor,
    kinds::KindRef,
    unclaimed,
    world::{Key, Object, World},
    writes::{Target, Verb, Write},
};

/// What must be written so that the object has the binding it should have.
pub fn plan(world: &World, kind: &KindRef, key: &Key) -> Vec<Write> {
    let Some(object) = world.object(kind, key).filter(|object| !object.deleting) else { return Vec::new() };
    let binding_key = world.binding_key(kind, key);
    let known = world.bindings.get(&binding_key);
    // A binding of an object of that name that is gone: it is taken down first.
    if known.is_some_and(|entry| entry.object.spec.resource.uid != object.uid) {
        return Vec::new();
    }
    let Some((rule, spec)) = governor(world, kind, key, object, known) else {
        return known.and_then(|entry| unclaimed::release(world, entry)).into_iter().collect();
    };
    let read = workload::check(kind.workload(), &object.value)
        .and_then(|()| asked::counted(world, kind, key, object, &placement_of(spec)));
    let read = read.ok().filter(|_| crate::wishes::check(kind.workload(), &object.value).is_ok());
    let Some(components) = read else {
        // What runs goes on as it was sent; what waits would never run.
        return known.and_then(unclaimed::take_down).into_iter().collect();
    };
    let desired = desired_spec(world, kind, key, object, rule, spec, &components);
    match known {
        None => vec![create(kind, &binding_key, object, desired)],
        Some(entry) => update(entry, desired).into_iter().collect(),
    }
}

/// Whether the binding says what its object asks for now. Until it does, nothing is placed by it.
pub fn is_current(world: &World, entry: &BindingEntry, object: &Object) -> bool {
    let reference = &entry.object.spec.resource;
    let key = (reference.namespace.clone(), reference.name.clone());
    let counted = asked::counted(world, &entry.kind, &key, object, &entry.placement);
    counted.is_ok_and(|counted| {
        let components = &entry.object.spec.components;
        counted.len() == components.len()
            && counted.iter().zip(components).all(|(now, known)| convert::component(now) == *known)
    })
}

fn placement_of(spec: &PropagationSpec) -> Placement {
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
) -> Value {
    let policy_kind = match rule.scope {
        PolicyScope::Namespaced => "PropagationPolicy",
        PolicyScope::Cluster => "ClusterPropagationPolicy",
    };
    let desired = fleet_api::ResourceBindingSpec {
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
        replicas: components.iter().map(|component| component.replicas).sum(),
        components: components.iter().map(convert::component).collect(),
        network_topology: network_topology(kind, &object.value),
        placement: spec.placement.clone(),
        failover: spec.failover.clone(),
        suspension: spec.suspension.clone().map(|asked| Suspension {
            // `false` is the scheduler's word for a job that has left its queue.
            scheduling: asked.scheduling.filter(|suspended| *suspended),
            ..asked
        }),
        conflict_resolution: spec.conflict_resolution,
        preserve_resources_on_deletion: spec.preserve_resources_on_deletion,
        pod_scheduling: spec.pod_scheduling,
        scheduler_name: spec.scheduler_name.clone(),
        priority: priority(world, spec, components),
        clusters: Vec::new(),
        epoch: 0,
        cells: None,
    };
    serde_json::to_value(desired).unwrap_or_default()
}

/// A Volcano Job's own wish; the other kinds have none.
fn network_topology(kind: &KindRef, object: &Value) -> Option<NetworkTopology> {
    let wish = object.pointer("/spec/networkTopology").filter(|wish| wish.is_object())?;
    (kind.workload() == WorkloadKind::VolcanoJob).then(|| serde_json::from_value(wish.clone()).ok()).flatten()
}

/// The policy's class first, then the class of the pods: the highest of those that exist.
fn priority(world: &World, spec: &PropagationSpec, components: &[workload::Component]) -> i32 {
    let value = |name: &str| world.priority_classes.get(name).copied();
    let named = spec.schedule_priority.as_ref().and_then(|p| p.priority_class_name.as_deref());
    named.and_then(value).unwrap_or_else(|| {
        let of_pods = components.iter().filter_map(|c| value(c.pod_spec.priority_class_name.as_deref()?));
        of_pods.max().unwrap_or(0)
    })
}

fn create(kind: &KindRef, key: &Key, object: &Object, spec: Value) -> Write {
    let body = json!({
        "apiVersion": API_VERSION,
        "kind": "ResourceBinding",
        "metadata": {
            "name": key.1,
            "namespace": key.0,
            "ownerReferences": [{
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "name": spec["resource"]["name"],
                "uid": object.uid,
                "controller": true,
                "blockOwnerDeletion": false,
            }],
        },
        "spec": spec,
    });
    Write::new(Target::Binding, &key.0, &key.1, Verb::Create(body))
}

/// What the object or its policy changed. The target, the epoch and a lifted suspension are the
/// scheduler's and stay.
fn update(entry: &BindingEntry, mut desired: Value) -> Option<Write> {
    let known = serde_json::to_value(&entry.object.spec).unwrap_or_default();
    desired["epoch"] = known["epoch"].clone();
    for placed in ["clusters", "cells"] {
        if let Some(value) = known.get(placed) {
            desired[placed] = value.clone();
        }
    }
    let was_scheduled = entry.object.spec.epoch > 0;
    if was_scheduled {
        match known.get("suspension") {
            Some(suspension) => desired["suspension"] = suspension.clone(),
            None => {
                desired.as_object_mut()?.remove("suspension");
            }
        }
    }
    if entry.is_bound() && entry.is_gang() {
        // What a running gang asks for is settled; its places are held as they were reserved.
        if !mutation::is_on(Mutation::BoundGangEdited) {
            desired["components"] = known["components"].clone();
            desired["replicas"] = known["replicas"].clone();
        }
        settle_fencing(&known, &mut desired);
        settle_pod_scheduling(&known, &mut desired);
        // A run that was admitted as a gang counts as one until it ends.
        if known["placement"]["replicaScheduling"] != desired["placement"]["replicaScheduling"] {
            desired["placement"]["replicaScheduling"] = known["placement"]["replicaScheduling"].clone();
        }
    }
    let patch = merge_diff(&known, &desired)?;
    // What was read must still stand: a binding that is bound meanwhile keeps what was reserved for it.
    let version = entry.object.metadata.resource_version.as_deref();
    let verb = Verb::Merge(json!({"metadata": {"resourceVersion": version}, "spec": patch}));
    Some(Write::new(Target::Binding, entry.namespace(), entry.name(), verb))
}

/// Pod templates stay as the run was sent.
fn settle_pod_scheduling(known: &Value, desired: &mut Value) {
    match known.get("podScheduling") {
        Some(sent) => desired["podScheduling"] = sent.clone(),
        None => drop(desired.as_object_mut().map(|desired| desired.remove("podScheduling"))),
    }
}

/// Whether a run is stopped when its cluster is cut off was settled when it was sent: the member may not have
/// heard of a change, so a policy that fences more counts from the next run on.
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
