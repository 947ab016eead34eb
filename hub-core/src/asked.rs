//! What an object requests in the form in which a cluster gets it: stripped and with overrides applied.
//!
//! Quota, reservations and Works all count the object as it is sent. An override may change replicas or
//! requests for one cluster. So quota counts the largest requests of any cluster that may be used, a
//! reservation requests what its cluster would run, and nothing is sent that requests more than was counted.
//! Pure. Deliberately absent: writes, and the consequences of a refusal.

use std::collections::BTreeMap;

use fleet_api::{binding::Component, convert};
use fleet_policies::{
    affinity,
    choice::ObjectRef,
    credentials, names,
    overrides::{self, Visits},
    pod_security, priority,
    reason::Reason,
    service_reach,
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

/// Largest sum of the manifests of one Work, in bytes of JSON. etcd accepts requests of 1.5 MiB, which
/// include the Work's status and metadata.
pub const WORK_BYTES_MAX: usize = 1_200_000;

/// The object as it would be sent to `cluster`.
///
/// # Errors
/// A credential of the hub, a Service that takes addresses, an override that cannot be applied, or a pod template that
/// asks too much or violates the pod security level of its namespace: policy or object, field, value found, values allowed.
pub fn written(
    world: &World,
    namespace: &str,
    manifest: Value,
    cluster: &str,
    visits: &mut Visits,
) -> Result<Value, Waiting> {
    let manifest = applied(world, namespace, manifest, cluster, visits)?;
    secure(world, namespace, &manifest)?;
    Ok(manifest)
}

/// The object with overrides applied, whatever its pods need.
fn applied(
    world: &World,
    namespace: &str,
    mut manifest: Value,
    cluster: &str,
    visits: &mut Visits,
) -> Result<Value, Waiting> {
    harmless(&manifest, Reason::InvalidWorkload)?;
    workload::strip_for_member(&mut manifest);
    let applicable = world.overrides.in_namespace(namespace);
    if let Some(found) = &applicable.too_many {
        let why = format!("namespace {namespace}: found {found}");
        return Err(Waiting::new(Reason::OverrideInvalid, why));
    }
    if let Some(facts) = world.clusters.get(cluster).filter(|_| !applicable.policies.is_empty()) {
        let reference = reference(namespace, &manifest);
        let (facts, policies) = (cluster::facts(facts), &applicable.policies);
        overrides::apply(&mut manifest, &reference, &facts, policies, &Yaml, visits)
            .map_err(|error| Waiting::new(Reason::OverrideInvalid, error.to_string()))?;
        // Nor does an override make one: the member would fill it with a token of its own.
        harmless(&manifest, Reason::OverrideInvalid)?;
    }
    workload::remove_finalizers(&mut manifest);
    priority::check(&world.priority_classes, namespace, &manifest)
        .map_err(|message| Waiting::new(Reason::OverrideInvalid, message))?;
    Ok(manifest)
}

/// Whether pods of the object keep the level of their namespace on the hub. A namespace may be seen after its objects: its
/// pods wait until its level is known.
///
/// # Errors
/// The field, the value found and what the level allows; or that the namespace is not known yet.
pub fn secure(world: &World, namespace: &str, manifest: &Value) -> Result<(), Waiting> {
    match world.namespaces.get(namespace) {
        Some(level) => pod_security::check(*level, manifest)
            .map_err(|message| Waiting::new(Reason::PodSecurityViolation, message)),
        None if pod_security::has_pods(manifest) => Err(Waiting::new(
            Reason::WaitingForDependencies,
            format!(
                "Namespace {namespace}: found none on the hub yet; allowed: one, whose {} is then known",
                pod_security::ENFORCE_LABEL
            ),
        )),
        None => Ok(()),
    }
}

/// As [`written`], to count what may be sent: also before the namespace is known.
fn countable(
    world: &World,
    namespace: &str,
    manifest: Value,
    cluster: &str,
    visits: &mut Visits,
) -> Option<Value> {
    let manifest = applied(world, namespace, manifest, cluster, visits).ok()?;
    let level = world.namespaces.get(namespace).copied().unwrap_or_default();
    pod_security::check(level, &manifest).ok()?;
    Some(manifest)
}

/// Refuses what no member may get: a credential of the hub, whether a policy selects it or a job depends on it; a Service
/// that takes addresses of others; and a pod template that asks for more than whoever places its pods can compare.
pub(crate) fn harmless(manifest: &Value, reason: Reason) -> Result<(), Waiting> {
    let found = credentials::withheld(manifest).map_or(Ok(()), Err);
    found
        .and_then(|()| service_reach::takes_no_addresses(manifest))
        .and_then(|()| workload::check_templates(manifest).map_err(|error| error.to_string()))
        .map_err(|why| Waiting::new(reason, why))
}

fn reference(namespace: &str, manifest: &Value) -> ObjectRef {
    let text = |path: &str| manifest.pointer(path).and_then(Value::as_str).unwrap_or_default().to_string();
    let mut labels: BTreeMap<String, String> =
        serde_json::from_value(manifest["metadata"]["labels"].clone()).unwrap_or_default();
    // Labels as they are sent, so that policies that select by a stripped label see the same before and after.
    labels.retain(|name, _| !names::is_reserved(name));
    ObjectRef {
        api_version: text("/apiVersion"),
        kind: text("/kind"),
        namespace: namespace.to_string(),
        name: text("/metadata/name"),
        labels,
    }
}

/// Whether an override policy selects the object, for any cluster.
pub fn is_overridden(world: &World, namespace: &str, object: &Object) -> bool {
    let applicable = world.overrides.in_namespace(namespace);
    applicable.too_many.is_some()
        || !applicable.policies.is_empty()
            && overrides::is_selected(&reference(namespace, &object.value), &applicable.policies)
}

/// Requests of the object in one cluster, as its binding and reservations have them.
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
    let manifest = written(world, namespace, (*object.value).clone(), cluster, &mut Visits::default())?;
    of_manifest(kind, &manifest)
}

/// How many pods of each component must succeed, of the object in one cluster.
pub fn completions(
    world: &World,
    kind: &KindRef,
    namespace: &str,
    object: &Object,
    cluster: &str,
) -> BTreeMap<String, i64> {
    let sent = is_overridden(world, namespace, object)
        .then(|| countable(world, namespace, (*object.value).clone(), cluster, &mut Visits::default()))
        .flatten();
    workload::completions(kind.workload(), sent.as_ref().unwrap_or(&object.value))
}

/// Requests of a manifest.
///
/// # Errors
/// A request that cannot be parsed.
pub fn of_manifest(kind: &KindRef, manifest: &Value) -> Result<Vec<Component>, Waiting> {
    // The result of overrides is validated like a user's manifest, so nothing runs that was not counted.
    let components = workload::check(kind.workload(), manifest)
        .and_then(|()| workload::components(kind.workload(), manifest))
        .map_err(|error| Waiting::new(Reason::InvalidWorkload, error.to_string()))?;
    Ok(components.iter().map(convert::component).collect())
}

/// The requests that quota counts: the largest of all clusters that the placement admits. `Forms` keeps them. All clusters
/// together visit what `visits` allows, and those for which nothing is left are not used.
///
/// # Errors
/// Its own requests cannot be parsed.
pub fn counted(
    world: &World,
    kind: &KindRef,
    key: &Key,
    object: &Object,
    placement: &Placement,
    visits: &mut Visits,
) -> Result<Vec<workload::Component>, WorkloadError> {
    let own = workload::components(kind.workload(), &object.value)?;
    if !is_overridden(world, &key.0, object) {
        return Ok(own);
    }
    let admitted = world.clusters.iter().filter(|(_, cluster)| {
        affinity::unfit(placement, &cluster::facts(cluster)) != Some(affinity::Unfit::Affinity)
    });
    // Clusters for which the object cannot be written are not used.
    let mut forms: Vec<Vec<workload::Component>> = admitted
        .filter_map(|(name, _)| {
            let mut one = visits.for_one();
            let manifest = countable(world, &key.0, (*object.value).clone(), name, &mut one);
            visits.give_back(&one);
            manifest
        })
        .filter_map(|manifest| workload::components(kind.workload(), &manifest).ok())
        .collect();
    if forms.is_empty() {
        return Ok(own);
    }
    // Order and constraints of the components are those of the object itself.
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

/// Reads and writes YAML embedded in fields.
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
mod tests;
