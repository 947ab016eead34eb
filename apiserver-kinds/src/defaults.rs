//! Defaults of built-in kinds.
//!
//! Inputs: a decoded object. Absent on purpose: kinds that make pods (`workload_defaults`), addresses of services (`services`),
//! what needs other objects (`pods`, `limits`).

use super::{flow, workload_defaults};
use fleet_apiserver_devices as devices;
use fleet_apiserver_ground::tree::{self, default_to};
use fleet_apiserver_pods::defaults::{self as pods, Obj, inner, items};
use fleet_apiserver_registration as registration;
use fleet_apiserver_schema::canonical;
use fleet_apiserver_schema::resource::Resource;
use serde_json::{Value, json};

/// Fills in defaults, as the real server does when it decodes, and what is always there.
pub fn apply(resource: &Resource, value: &mut Value) {
    let bare = if resource.group == "autoscaling" { bare_rules(value) } else { Vec::new() };
    canonical::strip(value);
    fill(resource, value, bare);
}

/// The same for an object that has had its defaults, after admission.
pub fn apply_again(resource: &Resource, value: &mut Value) {
    let bare = if resource.group == "autoscaling" { bare_rules(value) } else { Vec::new() };
    fill(resource, value, bare);
}

fn fill(resource: &Resource, value: &mut Value, bare: Vec<&'static str>) {
    default(resource, value);
    canonical::complete(value);
    for direction in bare {
        value["spec"]["behavior"][direction]["policies"] = json!([]);
    }
}

/// The same after a write of the status, which leaves all but status and metadata as they are stored.
pub fn apply_status(resource: &Resource, value: &mut Value) {
    const WRITTEN: &[&str] = &["metadata", "status"];
    let is_pod = resource.is("", "pods");
    // Other kinds have small specs, and defaults that look at both.
    if !is_pod && !workload_defaults::makes_pods(resource) {
        return apply(resource, value);
    }
    canonical::strip_fields(value, WRITTEN);
    match is_pod {
        true => pods::of_status(value),
        false => workload_defaults::of_status(resource, value),
    }
    canonical::complete_fields(value, WRITTEN);
}

fn default(resource: &Resource, value: &mut Value) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => {
            pods::spec(tree::child(value, "spec"));
            pods::pod(value);
        }
        ("", "services") => {
            service(tree::child(value, "spec"));
            load_balancer(value);
        }
        ("", "secrets") => secret(tree::object(value)),
        ("", "serviceaccounts") => {
            // Of the secrets of an account only the names mean something.
            for secret in items(tree::object(value), "secrets") {
                secret.retain(|key, _| key == "name");
            }
        }
        ("", "namespaces") => {
            let name = tree::meta_text(value, "name").to_string();
            let labels = tree::object(tree::meta(value).entry("labels").or_insert_with(|| json!({})));
            if !name.is_empty() {
                labels.insert("kubernetes.io/metadata.name".into(), name.into());
            }
        }
        ("", "persistentvolumeclaims") => {
            data_source(tree::child(value, "spec"));
            default_to(tree::child(value, "spec"), "volumeMode", "Filesystem");
            default_to(tree::child(value, "status"), "phase", "Pending");
        }
        ("", "persistentvolumes") => {
            if let Some(Value::Object(host)) = tree::child(value, "spec").get_mut("hostPath") {
                default_to(host, "type", "");
            }
            default_to(tree::child(value, "spec"), "persistentVolumeReclaimPolicy", "Retain");
            default_to(tree::child(value, "spec"), "volumeMode", "Filesystem");
            let made = tree::meta_text(value, "creationTimestamp").to_string();
            let status = tree::child(value, "status");
            default_to(status, "phase", "Pending");
            // The first phase begins when the volume is made.
            if status.get("phase") == Some(&json!("Pending")) && !made.is_empty() {
                default_to(status, "lastPhaseTransitionTime", made);
            }
        }
        ("", "nodes") => {
            // The older field and the newer list say the same; where they differ, the field counts.
            let spec = tree::child(value, "spec");
            spec.remove("configSource");
            let first = spec.get("podCIDRs").and_then(|list| list.get(0)).cloned();
            if let Some(range) = spec.get("podCIDR").cloned().filter(|range| !canonical::is_zero(range)) {
                if first.as_ref() != Some(&range) {
                    spec.insert("podCIDRs".into(), json!([range]));
                }
            } else if let Some(first) = first {
                spec.insert("podCIDR".into(), first);
            }
            let status = tree::child(value, "status");
            status.remove("config");
            if let Some(capacity) = status.get("capacity").cloned() {
                default_to(status, "allocatable", capacity);
            }
        }
        _ if workload_defaults::apply(resource, value) => {}
        _ => other(resource, value),
    }
}

/// Defaults that come with the fields of an object: they belong to who creates it. Those of a pod that depend on other
/// objects, such as its priority, do not.
pub fn of_fields(resource: &Resource, value: &mut Value) {
    if resource.is("", "pods") {
        canonical::strip(value);
        let spec = tree::child(value, "spec");
        pods::spec(spec);
        pods::of_pod(spec);
        canonical::complete(value);
    } else {
        apply(resource, value);
    }
}

fn other(resource: &Resource, value: &mut Value) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        (registration::GROUP, plural) => registration::defaults(plural, value),
        ("scheduling.k8s.io", "priorityclasses") => {
            default_to(tree::object(value), "preemptionPolicy", "PreemptLowerPriority");
        }
        ("storage.k8s.io", "storageclasses") => {
            let map = tree::object(value);
            default_to(map, "reclaimPolicy", "Delete");
            default_to(map, "volumeBindingMode", "Immediate");
        }
        ("networking.k8s.io", "ingressclasses") => {
            if let Some(Value::Object(p)) = tree::child(value, "spec").get_mut("parameters") {
                default_to(p, "scope", "Cluster");
            }
        }
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => {
            if let Some(Value::Object(r)) = tree::object(value).get_mut("roleRef") {
                r.retain(|key, v| key != "apiGroup" || v != "");
                default_to(r, "apiGroup", "rbac.authorization.k8s.io");
            }
            if let Some(Value::Array(list)) = tree::object(value).get_mut("subjects") {
                for s in list.iter_mut().filter(|s| tree::text(s, &["kind"]) != "ServiceAccount") {
                    default_to(tree::object(s), "apiGroup", "rbac.authorization.k8s.io");
                }
            }
        }
        ("networking.k8s.io", "networkpolicies") => network_policy(tree::child(value, "spec")),
        ("autoscaling", "horizontalpodautoscalers") => autoscaler(tree::child(value, "spec")),
        ("coordination.k8s.io", "leases") => {
            // Of coordinated leader election, which is off in this version.
            let spec = tree::child(value, "spec");
            spec.remove("strategy");
            spec.remove("preferredHolder");
        }
        ("apiregistration.k8s.io", "apiservices") => {
            if let Some(Value::Object(service)) = tree::child(value, "spec").get_mut("service") {
                default_to(service, "port", 443);
            }
        }
        ("", "limitranges") => {
            items(tree::child(value, "spec"), "limits").for_each(limit);
        }
        ("", "endpoints") => {
            for subset in items(tree::object(value), "subsets") {
                items(subset, "ports").for_each(|port| default_to(port, "protocol", "TCP"));
            }
        }
        ("discovery.k8s.io", "endpointslices") => {
            for port in items(tree::object(value), "ports") {
                default_to(port, "protocol", "TCP");
                default_to(port, "name", "");
            }
            // Of an earlier version; this one takes it from nobody.
            for endpoint in items(tree::object(value), "endpoints") {
                endpoint.remove("deprecatedTopology");
            }
        }
        ("storage.k8s.io", "csidrivers") => driver(tree::child(value, "spec")),
        ("flowcontrol.apiserver.k8s.io", plural) => flow::defaults(plural, value),
        (devices::GROUP, plural) => devices::defaults(plural, value),
        _ => {}
    }
}

/// What a new namespace has that is not a default of its fields.
pub fn new_namespace(value: &mut Value) {
    let finalizers = tree::child(value, "spec").entry("finalizers").or_insert_with(|| json!([]));
    if !finalizers.is_array() {
        *finalizers = json!([]);
    }
    if let Value::Array(list) = finalizers
        && !list.contains(&json!("kubernetes"))
    {
        list.push(json!("kubernetes"));
    }
    default_to(tree::child(value, "status"), "phase", "Active");
}

/// The older and the newer way to say where a claim's content comes from say the same. By the older one alone it can only
/// come from a claim or a snapshot; anything else has always been ignored.
fn data_source(spec: &mut Obj) {
    let known = |source: &Value| {
        let (group, kind) = (tree::text(source, &["apiGroup"]), tree::text(source, &["kind"]));
        matches!((group, kind), ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot"))
    };
    if !spec.contains_key("dataSourceRef") && spec.get("dataSource").is_some_and(|source| !known(source)) {
        spec.remove("dataSource");
    }
    let in_namespace = |v: &Value| v.get("namespace").is_none();
    match (spec.get("dataSource").cloned(), spec.get("dataSourceRef").cloned()) {
        (Some(source), None) => {
            let mut source = source;
            default_to(tree::object(&mut source), "apiGroup", Value::Null);
            spec.insert("dataSourceRef".into(), source);
        }
        (None, Some(source)) if in_namespace(&source) => {
            spec.insert("dataSource".into(), source);
        }
        _ => {}
    }
}

fn secret(map: &mut Obj) {
    use base64::Engine;
    default_to(map, "type", "Opaque");
    if let Some(Value::Object(plain)) = map.remove("stringData") {
        let data = inner(map, "data");
        for (k, v) in plain {
            let text = v.as_str().unwrap_or_default();
            data.insert(k, base64::engine::general_purpose::STANDARD.encode(text).into());
        }
    }
}

fn service(spec: &mut Obj) {
    default_to(spec, "type", "ClusterIP");
    default_to(spec, "sessionAffinity", "None");
    for port in items(spec, "ports") {
        default_to(port, "protocol", "TCP");
        // Neither zero nor an empty name is a port of pods.
        port.retain(|key, target| key != "targetPort" || !canonical::is_zero(target));
        let number = port.get("port").cloned().unwrap_or_else(|| json!(0));
        default_to(port, "targetPort", number);
    }
    if spec.get("sessionAffinity") == Some(&json!("ClientIP")) {
        default_to(inner(inner(spec, "sessionAffinityConfig"), "clientIP"), "timeoutSeconds", 10_800);
    } else if spec.get("sessionAffinity") == Some(&json!("None")) {
        spec.remove("sessionAffinityConfig");
    }
    if spec.get("type") == Some(&json!("ExternalName")) {
        return;
    }
    let kind = spec.get("type").and_then(Value::as_str).unwrap_or_default();
    let (open, balanced) = (matches!(kind, "NodePort" | "LoadBalancer"), kind == "LoadBalancer");
    let known = kind == "ClusterIP" && spec.get("externalIPs").is_some_and(|ips| !canonical::is_zero(ips));
    if open || known {
        default_to(spec, "externalTrafficPolicy", "Cluster");
    }
    if balanced {
        default_to(spec, "allocateLoadBalancerNodePorts", true);
    }
    default_to(spec, "internalTrafficPolicy", "Cluster");
}

/// The address of a balancer is one that traffic arrives with.
fn load_balancer(service: &mut Value) {
    if tree::text(service, &["spec", "type"]) != "LoadBalancer" {
        return;
    }
    let balancer = service.get_mut("status").and_then(|status| status.get_mut("loadBalancer"));
    let Some(Value::Object(balancer)) = balancer else { return };
    for place in items(balancer, "ingress") {
        if place.get("ip").and_then(Value::as_str).is_some_and(|ip| !ip.is_empty()) {
            default_to(place, "ipMode", "VIP");
        }
    }
}

/// Directions of scaling with an empty list of policies, which is not the same as none: nobody fills it.
fn bare_rules(value: &Value) -> Vec<&'static str> {
    let is_bare = |direction: &&str| {
        let policies = tree::at(value, &["spec", "behavior", *direction, "policies"]);
        policies.and_then(Value::as_array).is_some_and(Vec::is_empty)
    };
    ["scaleUp", "scaleDown"].into_iter().filter(is_bare).collect()
}

/// Named both ways when there are rules for both ways.
fn network_policy(spec: &mut Obj) {
    let both = spec.get("egress").and_then(Value::as_array).is_some_and(|e| !e.is_empty());
    let types = if both { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
    default_to(spec, "policyTypes", types);
    for rules in ["ingress", "egress"] {
        for rule in items(spec, rules) {
            items(rule, "ports").for_each(|port| default_to(port, "protocol", "TCP"));
        }
    }
}

fn autoscaler(spec: &mut Obj) {
    default_to(spec, "minReplicas", 1);
    if spec.get("metrics").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        spec.insert(
            "metrics".into(),
            json!([{"type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]),
        );
    }
    let Some(Value::Object(behavior)) = spec.get_mut("behavior") else { return };
    let policy = |kind: &str, value: i64| json!({"type": kind, "value": value, "periodSeconds": 15});
    let down = inner(behavior, "scaleDown");
    default_to(down, "selectPolicy", "Max");
    default_to(down, "policies", json!([policy("Percent", 100)]));
    let up = inner(behavior, "scaleUp");
    default_to(up, "selectPolicy", "Max");
    default_to(up, "stabilizationWindowSeconds", 0);
    default_to(up, "policies", json!([policy("Pods", 4), policy("Percent", 100)]));
}

/// What a LimitRange says of containers fills itself up: the most is the default, the default is asked for.
fn limit(item: &mut Obj) {
    if item.get("type") != Some(&json!("Container")) {
        return;
    }
    for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
        let Some(Value::Object(amounts)) = item.get(from).cloned() else { continue };
        let target = inner(item, to);
        for (name, amount) in amounts {
            default_to(target, &name, amount);
        }
    }
}

fn driver(spec: &mut Obj) {
    default_to(spec, "attachRequired", true);
    for field in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
        default_to(spec, field, false);
    }
    default_to(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    default_to(spec, "volumeLifecycleModes", json!(["Persistent"]));
}

#[cfg(test)]
mod tests;
