//! What an object asks for as it is sent to a cluster: stripped and overridden.
//!
//! Quota, reservations and Works see the object that is sent. An override may change replicas or requests for one
//! cluster: then the job is counted with the most that any cluster it may go to would run, a reservation asks for
//! what that cluster would run, and nothing is sent that asks for more than was counted.
//! Pure. Deliberately absent: writes, and what follows from a refusal.

use std::collections::BTreeMap;

use fleet_api::{binding::Component, convert};
use fleet_policies::{
    affinity,
    choice::ObjectRef,
    names, overrides, pod_security,
    reason::Reason,
    spec::Placement,
    workload::{self, WorkloadError},
};
use serde_json::Value;

use crate::{
    cluster,
    kinds::KindRef,
    planner::Waiting,
    world::{Key, Object, World},
};

/// Largest sum of the manifests of one Work, in bytes of JSON. etcd takes requests of 1.5 MiB; status and metadata
/// of the Work take their part.
pub const WORK_BYTES_MAX: usize = 1_200_000;

/// The object as it would be written for `cluster`.
///
/// # Errors
/// An override that cannot be applied, or a pod template beyond what the namespace allows: policy or object, field,
/// found, allowed.
pub fn written(world: &World, namespace: &str, mut manifest: Value, cluster: &str) -> Result<Value, Waiting> {
    workload::strip_for_member(&mut manifest);
    if let Some(facts) = world.clusters.get(cluster).filter(|_| !world.override_list.is_empty()) {
        let reference = reference(namespace, &manifest);
        overrides::apply(&mut manifest, &reference, &cluster::facts(facts), &world.override_list, &Yaml)
            .map_err(|error| Waiting::new(Reason::OverrideInvalid, error.to_string()))?;
    }
    let level = world.namespaces.get(namespace).copied().unwrap_or_default();
    pod_security::check(level, &manifest)
        .map_err(|message| Waiting::new(Reason::PodSecurityViolation, message))?;
    Ok(manifest)
}

fn reference(namespace: &str, manifest: &Value) -> ObjectRef {
    let text = |path: &str| manifest.pointer(path).and_then(Value::as_str).unwrap_or_default().to_string();
    let mut labels: BTreeMap<String, String> =
        serde_json::from_value(manifest["metadata"]["labels"].clone()).unwrap_or_default();
    // As they are when it is sent: who selects by a mark that is stripped selects the same before and after.
    labels.retain(|name, _| !names::is_reserved(name));
    ObjectRef {
        api_version: text("/apiVersion"),
        kind: text("/kind"),
        namespace: namespace.to_string(),
        name: text("/metadata/name"),
        labels,
    }
}

/// Whether an override policy selects the object, for whatever cluster.
pub fn is_overridden(world: &World, namespace: &str, object: &Object) -> bool {
    !world.override_list.is_empty()
        && overrides::is_selected(&reference(namespace, &object.value), &world.override_list)
}

/// What the object asks for in one cluster, as its binding and reservations write it.
///
/// # Errors
/// Why it cannot be sent there.
pub fn in_cluster(
    world: &World,
    kind: &KindRef,
    namespace: &str,
    object: &Object,
    cluster: &str,
) -> Result<Vec<Component>, Waiting> {
    let manifest = written(world, namespace, (*object.value).clone(), cluster)?;
    of_manifest(kind, &manifest)
}

/// What a manifest asks for.
///
/// # Errors
/// A request that cannot be read.
pub fn of_manifest(kind: &KindRef, manifest: &Value) -> Result<Vec<Component>, Waiting> {
    // What an override made is held to the same rules as what a user writes: nothing runs that is not counted.
    let components = workload::check(kind.workload(), manifest)
        .and_then(|()| workload::components(kind.workload(), manifest))
        .map_err(|error| Waiting::new(Reason::InvalidWorkload, error.to_string()))?;
    Ok(components.iter().map(convert::component).collect())
}

/// What is counted of an object: the most it would ask for in any cluster that the placement admits.
///
/// # Errors
/// Its own request cannot be read.
pub fn counted(
    world: &World,
    kind: &KindRef,
    key: &Key,
    object: &Object,
    placement: &Placement,
) -> Result<Vec<workload::Component>, WorkloadError> {
    let own = workload::components(kind.workload(), &object.value)?;
    if !is_overridden(world, &key.0, object) {
        return Ok(own);
    }
    let admitted = world.clusters.iter().filter(|(_, cluster)| {
        affinity::unfit(placement, &cluster::facts(cluster)) != Some(affinity::Unfit::Affinity)
    });
    // A cluster for which the object cannot be written gets none.
    let mut forms: Vec<Vec<workload::Component>> = admitted
        .filter_map(|(name, _)| written(world, &key.0, (*object.value).clone(), name).ok())
        .filter_map(|manifest| workload::components(kind.workload(), &manifest).ok())
        .collect();
    if forms.is_empty() {
        return Ok(own);
    }
    // The order of components, and the constraints of each, are those of the object itself.
    let mut order: Vec<String> = own.iter().map(|component| component.name.clone()).collect();
    forms.sort_by_key(|form| form.iter().map(|component| component.name.clone()).ne(order.iter().cloned()));
    let mut found = workload::most(forms);
    for component in &mut found {
        if let Some(own) = own.iter().find(|own| own.name == component.name) {
            component.pod_spec = own.pod_spec.clone();
        } else {
            order.push(component.name.clone());
        }
    }
    found.sort_by_key(|component| order.iter().position(|name| *name == component.name));
    Ok(found)
}

/// Whether what is asked for was counted.
///
/// # Errors
/// The first component that asks for more, in a sentence.
pub fn within(asked: &[Component], counted: &[Component]) -> Result<(), String> {
    for component in asked.iter().filter(|component| component.replicas > 0) {
        let name = &component.name;
        let Some(known) = counted.iter().find(|known| known.name == *name) else {
            return Err(format!("component {name}: found {} replicas; counted are none", component.replicas));
        };
        if component.replicas > known.replicas {
            let (found, counted) = (component.replicas, known.replicas);
            return Err(format!("component {name}: found {found} replicas; counted are {counted}"));
        }
        let amounts = |component: &Component| convert::resources(&component.request).unwrap_or_default();
        let (asked, counted) = (amounts(component), amounts(known));
        if let Some((resource, amount)) =
            asked.iter().find(|(name, amount)| *amount > counted.get(name.as_str()))
        {
            let counted = counted.get(resource.as_str());
            return Err(format!("component {name}: found {amount} {resource} a pod; counted are {counted}"));
        }
    }
    Ok(())
}

/// Documents embedded in fields, through the one YAML module.
struct Yaml;

impl overrides::YamlText for Yaml {
    fn read(&self, text: &str) -> Result<Value, String> {
        fleet_api::yaml::read(text).map_err(|error| error.to_string())
    }

    fn write(&self, value: &Value) -> Result<String, String> {
        fleet_api::yaml::write(value).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(name: &str, replicas: i64, cpu: &str) -> Component {
        Component {
            name: name.to_string(),
            replicas,
            request: [("cpu".to_string(), cpu.to_string())].into(),
            ..Component::default()
        }
    }

    #[test]
    fn nothing_is_sent_that_was_not_counted() {
        let counted = [component("worker", 4, "2"), component("master", 1, "1")];
        let check = |asked: Component, expected: Result<(), &str>| {
            assert_eq!(within(&[asked], &counted), expected.map_err(str::to_string));
        };
        check(component("worker", 4, "2"), Ok(()));
        check(component("worker", 1, "500m"), Ok(()));
        check(component("chief", 0, "9"), Ok(()));
        check(component("worker", 5, "1"), Err("component worker: found 5 replicas; counted are 4"));
        check(
            component("master", 1, "1500m"),
            Err("component master: found 1500 cpu a pod; counted are 1000"),
        );
        check(component("chief", 1, "1"), Err("component chief: found 1 replicas; counted are none"));
    }
}
