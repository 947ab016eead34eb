//! Defaults of built-in kinds, and the few checks that typed clients rely on.
//!
//! Inputs: a decoded object. Absent on purpose: addresses of services (`services`), quota (`resource_quota`), and the long tail of
//! per-kind validation.

use crate::error::Cause;
use crate::registry::Resource;
use crate::tree::{self, default_to};
use crate::{admission, pods};
use serde_json::{Map, Value, json};

type Obj = Map<String, Value>;

/// Fills in defaults, as the real server does when it decodes.
pub fn apply(resource: &Resource, value: &mut Value) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => {
            pod_spec(tree::child(value, "spec"));
            pod_extra(value);
        }
        ("", "services") => service(tree::child(value, "spec")),
        ("", "secrets") => secret(tree::object(value)),
        ("", "namespaces") => {
            let name = tree::meta_text(value, "name").to_string();
            let labels = tree::object(tree::meta(value).entry("labels").or_insert_with(|| json!({})));
            if !name.is_empty() {
                labels.insert("kubernetes.io/metadata.name".into(), name.into());
            }
            default_to(tree::child(value, "spec"), "finalizers", json!(["kubernetes"]));
            default_to(tree::child(value, "status"), "phase", "Active");
        }
        ("", "persistentvolumeclaims") => {
            default_to(tree::child(value, "spec"), "volumeMode", "Filesystem");
            default_to(tree::child(value, "status"), "phase", "Pending");
        }
        ("", "persistentvolumes") => {
            default_to(tree::child(value, "spec"), "persistentVolumeReclaimPolicy", "Retain");
            default_to(tree::child(value, "spec"), "volumeMode", "Filesystem");
            default_to(tree::child(value, "status"), "phase", "Pending");
        }
        ("", "nodes") => {
            let capacity = tree::at(value, &["status", "capacity"]).cloned();
            if let Some(capacity) = capacity {
                default_to(tree::child(value, "status"), "allocatable", capacity);
            }
        }
        ("", "replicationcontrollers") => {
            let labels = tree::at(value, &["spec", "template", "metadata", "labels"]).cloned();
            let spec = tree::child(value, "spec");
            default_to(spec, "replicas", 1);
            if let Some(labels) = labels {
                default_to(spec, "selector", labels);
            }
            template(spec);
        }
        ("apps", "deployments") => {
            let spec = tree::child(value, "spec");
            default_to(spec, "replicas", 1);
            default_to(spec, "revisionHistoryLimit", 10);
            default_to(spec, "progressDeadlineSeconds", 600);
            let strategy = inner(spec, "strategy");
            default_to(strategy, "type", "RollingUpdate");
            if strategy.get("type") == Some(&json!("RollingUpdate")) {
                let rolling = inner(strategy, "rollingUpdate");
                default_to(rolling, "maxSurge", "25%");
                default_to(rolling, "maxUnavailable", "25%");
            }
            template(spec);
        }
        ("apps", "replicasets") => {
            let labels = tree::at(value, &["spec", "template", "metadata", "labels"]).cloned();
            let spec = tree::child(value, "spec");
            default_to(spec, "replicas", 1);
            if let Some(labels) = labels {
                default_to(spec, "selector", json!({"matchLabels": labels}));
            }
            template(spec);
        }
        ("apps", "statefulsets") => {
            let spec = tree::child(value, "spec");
            default_to(spec, "replicas", 1);
            default_to(spec, "revisionHistoryLimit", 10);
            default_to(spec, "podManagementPolicy", "OrderedReady");
            let update = inner(spec, "updateStrategy");
            default_to(update, "type", "RollingUpdate");
            if update.get("type") == Some(&json!("RollingUpdate")) {
                default_to(inner(update, "rollingUpdate"), "partition", 0);
            }
            let retention = inner(spec, "persistentVolumeClaimRetentionPolicy");
            default_to(retention, "whenDeleted", "Retain");
            default_to(retention, "whenScaled", "Retain");
            template(spec);
        }
        ("apps", "daemonsets") => {
            let spec = tree::child(value, "spec");
            default_to(spec, "revisionHistoryLimit", 10);
            let update = inner(spec, "updateStrategy");
            default_to(update, "type", "RollingUpdate");
            if update.get("type") == Some(&json!("RollingUpdate")) {
                let rolling = inner(update, "rollingUpdate");
                default_to(rolling, "maxSurge", 0);
                default_to(rolling, "maxUnavailable", 1);
            }
            template(spec);
        }
        ("batch", "jobs") => job_spec(tree::child(value, "spec")),
        ("batch", "cronjobs") => {
            let spec = tree::child(value, "spec");
            default_to(spec, "concurrencyPolicy", "Allow");
            default_to(spec, "suspend", false);
            default_to(spec, "successfulJobsHistoryLimit", 3);
            default_to(spec, "failedJobsHistoryLimit", 1);
            if let Some(Value::Object(t)) = spec.get_mut("jobTemplate") {
                job_spec(inner(t, "spec"));
            }
        }
        (admission::GROUP, plural) => admission::defaults(plural, value),
        ("scheduling.k8s.io", "priorityclasses") => {
            default_to(tree::object(value), "preemptionPolicy", "PreemptLowerPriority");
        }
        ("storage.k8s.io", "storageclasses") => {
            let map = tree::object(value);
            default_to(map, "reclaimPolicy", "Delete");
            default_to(map, "volumeBindingMode", "Immediate");
        }
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => {
            if let Some(Value::Object(r)) = tree::object(value).get_mut("roleRef") {
                default_to(r, "apiGroup", "rbac.authorization.k8s.io");
            }
            if let Some(Value::Array(list)) = tree::object(value).get_mut("subjects") {
                for s in list.iter_mut().filter(|s| tree::text(s, &["kind"]) != "ServiceAccount") {
                    default_to(tree::object(s), "apiGroup", "rbac.authorization.k8s.io");
                }
            }
        }
        ("networking.k8s.io", "networkpolicies") => {
            default_to(tree::child(value, "spec"), "policyTypes", json!(["Ingress"]));
        }
        ("autoscaling", "horizontalpodautoscalers") => {
            default_to(tree::child(value, "spec"), "minReplicas", 1)
        }
        _ => {}
    }
}

fn inner<'a>(map: &'a mut Obj, key: &str) -> &'a mut Obj {
    tree::object(map.entry(key).or_insert_with(|| json!({})))
}

fn template(spec: &mut Obj) {
    if let Some(Value::Object(t)) = spec.get_mut("template") {
        pod_spec(inner(t, "spec"));
    }
}

fn job_spec(spec: &mut Obj) {
    default_to(spec, "completionMode", "NonIndexed");
    default_to(spec, "suspend", false);
    default_to(spec, "backoffLimit", 6);
    default_to(spec, "podReplacementPolicy", "TerminatingOrFailed");
    if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
        spec.insert("completions".into(), 1.into());
    }
    default_to(spec, "parallelism", 1);
    template(spec);
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
        if let Some(p) = port.get("port").cloned() {
            default_to(port, "targetPort", p);
        }
    }
    if spec.get("type") == Some(&json!("ExternalName")) {
        return;
    }
    default_to(spec, "internalTrafficPolicy", "Cluster");
    default_to(spec, "ipFamilies", json!(["IPv4"]));
    default_to(spec, "ipFamilyPolicy", "SingleStack");
}

fn items<'a>(map: &'a mut Obj, key: &str) -> impl Iterator<Item = &'a mut Obj> {
    let list = map.get_mut(key).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

fn pod_extra(value: &mut Value) {
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

fn qos(spec: &Obj) -> &'static str {
    let (mut any, mut all) = (false, true);
    let lists = ["containers", "initContainers"];
    let containers = lists.iter().filter_map(|k| spec.get(*k)).filter_map(Value::as_array).flatten();
    for c in containers {
        for r in ["cpu", "memory"] {
            let limit = tree::at(c, &["resources", "limits", r]);
            let request = tree::at(c, &["resources", "requests", r]);
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

fn pod_spec(spec: &mut Obj) {
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
        for (kind, mode) in [("configMap", 420), ("secret", 420), ("projected", 420), ("downwardAPI", 420)] {
            if let Some(Value::Object(source)) = volume.get_mut(kind) {
                default_to(source, "defaultMode", mode);
            }
        }
        if let Some(Value::Object(host)) = volume.get_mut("hostPath") {
            default_to(host, "type", "");
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
    }
}

/// Sets what the real server generates for a new Job: selector and labels by uid.
pub fn new_job(value: &mut Value, uid: &str) {
    let name = tree::meta_text(value, "name").to_string();
    let spec = tree::child(value, "spec");
    if spec.get("manualSelector") == Some(&json!(true)) {
        return;
    }
    spec.insert("selector".into(), json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}));
    if let Some(Value::Object(template)) = spec.get_mut("template") {
        let labels = inner(inner(template, "metadata"), "labels");
        for (key, v) in [
            ("batch.kubernetes.io/controller-uid", uid),
            ("batch.kubernetes.io/job-name", &name),
            ("controller-uid", uid),
            ("job-name", &name),
        ] {
            labels.insert(key.into(), v.into());
        }
    }
}

/// Checks that clients rely on, for a new or changed object of a built-in kind.
pub fn check(
    resource: &Resource,
    old: Option<&Value>,
    value: &Value,
    subresource: &str,
    causes: &mut Vec<Cause>,
) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => pods::check(old, value, subresource, causes),
        (_, "events") => check_event(resource, old, value, causes),
        ("apps", _) | ("", "replicationcontrollers") if tree::at(value, &["spec"]).is_some() => {
            if resource.plural == "controllerrevisions" {
                return;
            }
            pods::check_spec(value, &["spec", "template", "spec"], causes);
            if tree::number(value, &["spec", "replicas"]) < 0 {
                let v = tree::at(value, &["spec", "replicas"]).cloned().unwrap_or_default();
                causes.push(Cause::invalid("spec.replicas", &v, "must be greater than or equal to 0"));
            }
            if resource.group == "apps" {
                let selector = tree::at(value, &["spec", "selector"]).cloned().unwrap_or_default();
                let template = tree::at(value, &["spec", "template"]).cloned().unwrap_or_default();
                let labels = crate::selectors::Labels::from_object(&selector);
                if labels.is_empty() {
                    causes.push(Cause::required("spec.selector", ""));
                } else if !labels.matches(&template) {
                    let labels = tree::at(&template, &["metadata", "labels"]).cloned().unwrap_or_default();
                    let why = "`selector` does not match template `labels`";
                    causes.push(Cause::invalid("spec.template.metadata.labels", &labels, why));
                }
                immutable(old, value, &["spec", "selector"], causes);
            }
        }
        ("batch", "jobs") => {
            pods::check_spec(value, &["spec", "template", "spec"], causes);
            immutable(old, value, &["spec", "selector"], causes);
            immutable(old, value, &["spec", "completionMode"], causes);
            let policy = tree::text(value, &["spec", "template", "spec", "restartPolicy"]);
            if !matches!(policy, "Never" | "OnFailure") {
                let message =
                    format!("Required value: valid values: \"OnFailure\", \"Never\" (found {policy:?})");
                causes.push(Cause::new(
                    "FieldValueNotSupported",
                    "spec.template.spec.restartPolicy",
                    message,
                ));
            }
        }
        ("", "configmaps" | "secrets") => {
            if old.is_some_and(|o| {
                o.get("immutable") == Some(&Value::Bool(true)) && o.get("data") != value.get("data")
            }) {
                causes.push(Cause::forbidden("data", "field is immutable when `immutable` is set"));
            }
            let parts = ["data", "binaryData"]
                .into_iter()
                .filter_map(|part| value.get(part).and_then(Value::as_object).map(|map| (part, map)));
            for (part, key) in parts.flat_map(|(part, map)| map.keys().map(move |key| (part, key))) {
                let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
                let wrong = key.is_empty() || key.len() > 253 || key == "." || key.starts_with("..");
                if wrong || !key.chars().all(plain) {
                    let why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
                    causes.push(Cause::invalid(format!("{part}[{key}]"), &json!(key), why));
                }
            }
            let size: usize = ["data", "binaryData"]
                .iter()
                .filter_map(|k| value.get(*k).and_then(Value::as_object))
                .flatten()
                .map(|(k, v)| k.len() + v.as_str().map_or(0, str::len))
                .sum();
            if size > 1024 * 1024 * if resource.plural == "secrets" { 4 } else { 3 } / 3 {
                let field = if resource.plural == "secrets" { "data" } else { "" };
                causes.push(Cause::new(
                    "FieldValueTooLong",
                    field,
                    "Too long: may not be more than 1048576 bytes",
                ));
            }
        }
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => {
            immutable(old, value, &["roleRef"], causes);
        }
        ("scheduling.k8s.io", "priorityclasses") => pods::check_class(old, value, causes),
        ("policy", "poddisruptionbudgets") => {
            let has = |key: &str| tree::at(value, &["spec", key]).is_some();
            if has("minAvailable") && has("maxUnavailable") {
                let why = "minAvailable and maxUnavailable cannot be both set";
                causes.push(Cause::invalid("spec", &json!({}), why));
            }
        }
        (admission::GROUP, plural) => admission::check(plural, value, causes),
        _ => {}
    }
}

fn immutable(old: Option<&Value>, new: &Value, path: &[&str], causes: &mut Vec<Cause>) {
    if let Some(old) = old {
        let (a, b) = (tree::at(old, path), tree::at(new, path));
        if a.is_some() && a != b {
            causes.push(Cause::invalid(path.join("."), b.unwrap_or(&Value::Null), "field is immutable"));
        }
    }
}

/// An event lies in the namespace of what it tells of; of what has none, in `default`.
fn check_event(resource: &Resource, old: Option<&Value>, event: &Value, causes: &mut Vec<Cause>) {
    let about = if resource.group.is_empty() { "involvedObject" } else { "regarding" };
    // Stored in the core form, whichever group it came by.
    let of = tree::text(event, &["involvedObject", "namespace"]);
    let namespace = tree::meta_text(event, "namespace");
    let right =
        if of.is_empty() { namespace == "default" || namespace == "kube-system" } else { of == namespace };
    if !right {
        causes.push(Cause::invalid(
            format!("{about}.namespace"),
            &json!(of),
            "does not match event.namespace",
        ));
    }
    if resource.group.is_empty() || old.is_some() {
        return;
    }
    if tree::text(event, &["eventTime"]).is_empty() {
        causes.push(Cause::required("eventTime", ""));
    }
    let kind = tree::text(event, &["type"]);
    if !matches!(kind, "Normal" | "Warning") {
        causes.push(Cause::invalid("type", &json!(""), &format!("has invalid value: {kind}")));
    }
}
