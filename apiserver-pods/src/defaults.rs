//! Defaults of pods and of pod templates.
//!
//! Inputs: decoded objects. Absent on purpose: what needs other objects (`admit`).

use super::amounts;
use fleet_apiserver_ground::tree::{self, default_to};
use serde_json::{Map, Value, json};

/// Fields of an object.
pub type Obj = Map<String, Value>;

/// The object in a field, made where it is missing.
pub fn inner<'a>(map: &'a mut Obj, key: &str) -> &'a mut Obj {
    tree::object(map.entry(key).or_insert_with(|| json!({})))
}

/// The objects in a list.
pub fn items<'a>(map: &'a mut Obj, key: &str) -> impl Iterator<Item = &'a mut Obj> {
    let list = map.get_mut(key).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Fills in what a pod has, and a template has not.
pub fn pod(value: &mut Value) {
    if let Some(spec) = value.get_mut("spec") {
        amounts::fill(spec);
    }
    let spec = tree::child(value, "spec");
    default_to(spec, "enableServiceLinks", true);
    default_to(spec, "preemptionPolicy", "PreemptLowerPriority");
    default_to(spec, "priority", 0);
    let account = spec.get("serviceAccountName").cloned().unwrap_or_else(|| "default".into());
    default_to(spec, "serviceAccountName", account.clone());
    default_to(spec, "serviceAccount", account);
    let qos = qos(spec);
    let status = tree::child(value, "status");
    default_to(status, "phase", "Pending");
    default_to(status, "qosClass", qos);
}

/// The class of service of a pod, by what it asks for as a whole, or else by what its containers do.
pub fn qos(spec: &Obj) -> &'static str {
    let (mut any, mut all) = (false, true);
    let lists = ["containers", "initContainers"].map(|k| spec.get(k).and_then(Value::as_array));
    let askers: Vec<Option<&Value>> = match amounts::is_whole(spec) {
        true => vec![spec.get("resources")],
        false => lists.into_iter().flatten().flatten().map(|c| c.get("resources")).collect(),
    };
    for resources in askers {
        for r in ["cpu", "memory"] {
            let limit = resources.and_then(|all| tree::at(all, &["limits", r]));
            let request = resources.and_then(|all| tree::at(all, &["requests", r]));
            any |= limit.is_some() || request.is_some();
            all &= limit.is_some() && (request.is_none() || request == limit);
        }
    }
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// Fills in the fields of a spec, of a pod or of a template.
pub fn spec(spec: &mut Obj) {
    if spec.get("hostNetwork") == Some(&json!(true)) {
        for key in ["containers", "initContainers"] {
            for c in items(spec, key) {
                for port in items(c, "ports") {
                    let inside = port.get("containerPort").cloned().unwrap_or_default();
                    if port.get("hostPort").and_then(Value::as_i64).unwrap_or(0) == 0 {
                        port.insert("hostPort".into(), inside);
                    }
                }
            }
        }
    }
    default_to(spec, "restartPolicy", "Always");
    default_to(spec, "terminationGracePeriodSeconds", 30);
    default_to(spec, "dnsPolicy", "ClusterFirst");
    default_to(spec, "schedulerName", "default-scheduler");
    default_to(spec, "securityContext", json!({}));
    if let Some(account) = spec.get("serviceAccountName").cloned() {
        default_to(spec, "serviceAccount", account);
    } else if let Some(account) = spec.get("serviceAccount").cloned() {
        default_to(spec, "serviceAccountName", account);
    }
    for key in ["containers", "initContainers", "ephemeralContainers"] {
        items(spec, key).for_each(container);
    }
    for volume in items(spec, "volumes") {
        // A volume that says nothing is an empty directory.
        if volume.keys().all(|key| key == "name") {
            volume.insert("emptyDir".into(), json!({}));
        }
        for (kind, mode) in [("configMap", 420), ("secret", 420), ("projected", 420), ("downwardAPI", 420)] {
            if let Some(Value::Object(source)) = volume.get_mut(kind) {
                default_to(source, "defaultMode", mode);
            }
        }
        if let Some(Value::Object(host)) = volume.get_mut("hostPath") {
            default_to(host, "type", "");
        }
        if let Some(Value::Object(source)) = volume.get_mut("projected") {
            for part in items(source, "sources") {
                if let Some(Value::Object(token)) = part.get_mut("serviceAccountToken") {
                    default_to(token, "expirationSeconds", 3600);
                }
                field_versions(part.get_mut("downwardAPI"));
            }
        }
        field_versions(volume.get_mut("downwardAPI"));
        if let Some(Value::Object(claim)) =
            volume.get_mut("ephemeral").and_then(|e| e.get_mut("volumeClaimTemplate"))
        {
            default_to(inner(claim, "spec"), "volumeMode", "Filesystem");
        }
    }
}

/// References to fields of the pod name the version they are meant in.
fn field_versions(source: Option<&mut Value>) {
    let Some(Value::Object(source)) = source else { return };
    for item in items(source, "items") {
        if let Some(Value::Object(field)) = item.get_mut("fieldRef") {
            default_to(field, "apiVersion", "v1");
        }
    }
}

fn container(c: &mut Obj) {
    default_to(c, "terminationMessagePath", "/dev/termination-log");
    default_to(c, "terminationMessagePolicy", "File");
    if !c.contains_key("imagePullPolicy") {
        let image = c.get("image").and_then(Value::as_str).unwrap_or_default();
        let name = image.rsplit('/').next().unwrap_or_default();
        let latest = !image.contains('@') && (!name.contains(':') || name.ends_with(":latest"));
        c.insert("imagePullPolicy".into(), if latest { "Always" } else { "IfNotPresent" }.into());
    }
    let resources = inner(c, "resources");
    if let Some(Value::Object(limits)) = resources.get("limits").cloned() {
        let requests = inner(resources, "requests");
        for (k, v) in limits {
            default_to(requests, &k, v);
        }
    }
    for port in items(c, "ports") {
        default_to(port, "protocol", "TCP");
    }
    for env in items(c, "env") {
        if let Some(Value::Object(field)) = env.get_mut("valueFrom").and_then(|v| v.get_mut("fieldRef")) {
            default_to(field, "apiVersion", "v1");
        }
    }
    if let Some(Value::Object(hooks)) = c.get_mut("lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(Value::Object(get)) = hooks.get_mut(hook).and_then(|h| h.get_mut("httpGet")) {
                default_to(get, "path", "/");
                default_to(get, "scheme", "HTTP");
            }
        }
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(Value::Object(probe)) = c.get_mut(key) else { continue };
        for (field, value) in
            [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
        {
            if probe.get(field).and_then(Value::as_i64).unwrap_or(0) == 0 {
                probe.insert(field.into(), value.into());
            }
        }
        if let Some(Value::Object(get)) = probe.get_mut("httpGet") {
            default_to(get, "path", "/");
            default_to(get, "scheme", "HTTP");
        }
        if let Some(Value::Object(grpc)) = probe.get_mut("grpc") {
            default_to(grpc, "service", "");
        }
    }
}
