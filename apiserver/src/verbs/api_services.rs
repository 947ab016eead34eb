//! APIServices: one for each group version that is served here, and what is known of those that are served elsewhere.
//!
//! Inputs: the registry, and APIServices that clients write. Requests are not passed on to other servers. Absent on
//! purpose: with everybody allowed everything (tests, simulations) there are no objects for what is served here.

use fleet_apiserver_admission::access::user::Access;
use fleet_apiserver_admission::call::Core;
use fleet_apiserver_ground::store::{Obj, Refused, Write};
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::registry::Registry;
use serde_json::{Value, json};
use std::sync::Arc;

const TABLE: &str = "apiregistration.k8s.io/apiservices";
/// Says who keeps an object: the server, from its start or while a definition is there.
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

/// Priorities of the built-in groups among each other, as clients see them.
const PRIORITIES: [(&str, i64); 21] = [
    ("", 18_000),
    ("apps", 17_800),
    ("events.k8s.io", 17_750),
    ("authentication.k8s.io", 17_700),
    ("authorization.k8s.io", 17_600),
    ("autoscaling", 17_500),
    ("batch", 17_400),
    ("certificates.k8s.io", 17_300),
    ("networking.k8s.io", 17_200),
    ("policy", 17_100),
    ("rbac.authorization.k8s.io", 17_000),
    ("storage.k8s.io", 16_800),
    ("apiextensions.k8s.io", 16_700),
    ("admissionregistration.k8s.io", 16_700),
    ("scheduling.k8s.io", 16_600),
    ("coordination.k8s.io", 16_500),
    ("node.k8s.io", 16_300),
    ("discovery.k8s.io", 16_200),
    ("flowcontrol.apiserver.k8s.io", 16_100),
    ("apiregistration.k8s.io", 20_000),
    ("resource.k8s.io", 15_000),
];

fn condition(status: &str, reason: &str, message: &str, now: &str) -> Value {
    json!({"conditions": [{"type": "Available", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": now}]})
}

/// The status of an APIService that a client writes.
pub fn status(core: &Core, value: &Value) -> Value {
    let now = core.clock.stamp();
    let Some(service) = tree::at(value, &["spec", "service"]).filter(|service| service.is_object()) else {
        return condition("True", "Local", "Local APIServices are always available", &now);
    };
    let (namespace, name) = (tree::text(service, &["namespace"]), tree::text(service, &["name"]));
    if core.store.table("/services").get(&format!("{namespace}/{name}")).is_none() {
        let why = format!("service/{name} in {namespace:?} is not present");
        return condition("False", "ServiceNotFound", &why, &now);
    }
    let why = "requests are not passed on to other servers by this one";
    condition("False", "FailedDiscoveryCheck", why, &now)
}

/// What is served here, as objects: names with their specs, and who keeps them.
fn wanted(registry: &Registry) -> Vec<(String, Value, &'static str)> {
    let mut out: Vec<(String, Value, &'static str)> = Vec::new();
    for entry in registry.all() {
        let r = &*entry.resource;
        let name = format!("{}.{}", r.version, r.group);
        if out.iter().any(|(known, ..)| *known == name) {
            continue;
        }
        let rank = PRIORITIES.iter().find(|(group, _)| *group == r.group && !r.custom);
        let (priority, version, by) = match rank {
            Some((_, priority)) => (*priority, 15, "onstart"),
            None => (1_000, 100, "true"),
        };
        let mut spec =
            json!({"version": r.version, "groupPriorityMinimum": priority, "versionPriority": version});
        if !r.group.is_empty() {
            spec["group"] = json!(r.group);
        }
        out.push((name, spec, by));
    }
    out
}

/// Brings the objects in line with what is served.
pub fn keep(core: &Core) {
    if core.auth.access != Access::Rbac {
        return;
    }
    let table = core.store.table(TABLE);
    let wanted = wanted(&core.registry.load());
    let now = core.clock.stamp();
    let mut writes = Vec::new();
    for (name, spec, by) in &wanted {
        if table.get(name).is_some() {
            continue;
        }
        let uid = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, format!("{now} {TABLE} {name}").as_bytes());
        let value = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": name, "uid": uid.to_string(), "creationTimestamp": now, "labels": {MANAGED: by}},
            "spec": spec, "status": condition("True", "Local", "Local APIServices are always available", &now)});
        writes.push(Write::Create { table: table.clone(), key: name.clone(), value });
    }
    let ours = |object: &Arc<Obj>| !object.text(&["metadata", "labels", MANAGED]).is_empty();
    for prev in table.objects().into_iter().filter(ours) {
        if !wanted.iter().any(|(name, ..)| *name == *prev.key) {
            writes.push(Write::Delete { table: table.clone(), prev, value: None });
        }
    }
    for write in writes {
        // Somebody else's write of one of them is looked at with the next change.
        match core.store.commit(vec![write]) {
            Ok(_) | Err(Refused::Changed(_) | Refused::Exists(_)) => {}
            Err(e) => tracing::warn!(error = ?e, "an APIService could not be kept"),
        }
    }
}

/// The parts of a cluster that older clients ask for.
pub fn components() -> Vec<(&'static str, Value)> {
    let part = |name: &str, message: &str| {
        let healthy = json!([{"type": "Healthy", "status": "True", "message": message}]);
        let object = json!({"apiVersion": "v1", "kind": "ComponentStatus", "metadata": {"name": name}, "conditions": healthy});
        ("/componentstatuses", object)
    };
    vec![part("controller-manager", "ok"), part("etcd-0", "ok"), part("scheduler", "ok")]
}
