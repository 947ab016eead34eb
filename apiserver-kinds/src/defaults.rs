//! Defaults of built-in kinds.
//!
//! Inputs: a decoded object. Absent on purpose: addresses of services (`services`), what needs other objects (`pods`, `limits`).

use super::{flow, pods::amounts};
use fleet_apiserver_ground::tree::{self, default_to};
use fleet_apiserver_registration as registration;
use fleet_apiserver_schema::canonical;
use fleet_apiserver_schema::resource::Resource;
use serde_json::{Map, Value, json};

type Obj = Map<String, Value>;

/// Fills in defaults, as the real server does when it decodes, and what is always there.
pub fn apply(resource: &Resource, value: &mut Value) {
    canonical::strip(value);
    default(resource, value);
    canonical::complete(value);
}

fn default(resource: &Resource, value: &mut Value) {
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
            default_to(tree::child(value, "status"), "phase", "Pending");
        }
        ("", "nodes") => {
            // The older field and the newer list say the same.
            let spec = tree::child(value, "spec");
            if let Some(range) =
                spec.get("podCIDR").cloned().filter(|r| r.as_str().is_some_and(|r| !r.is_empty()))
            {
                default_to(spec, "podCIDRs", json!([range]));
            } else if let Some(first) = spec.get("podCIDRs").and_then(|list| list.get(0)).cloned() {
                spec.insert("podCIDR".into(), first);
            }
            let capacity = tree::at(value, &["status", "capacity"]).cloned();
            if let Some(capacity) = capacity {
                default_to(tree::child(value, "status"), "allocatable", capacity);
            }
        }
        _ => workload(resource, value),
    }
}

/// Defaults that come with the fields of an object: they belong to who creates it. Those of a pod that depend on other
/// objects, such as its priority, do not.
pub fn of_fields(resource: &Resource, value: &mut Value) {
    if resource.is("", "pods") {
        canonical::strip(value);
        let spec = tree::child(value, "spec");
        pod_spec(spec);
        default_to(spec, "enableServiceLinks", true);
        canonical::complete(value);
    } else {
        apply(resource, value);
    }
}

fn workload(resource: &Resource, value: &mut Value) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "replicationcontrollers") => {
            labels_of_template(value);
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
            for claim in items(spec, "volumeClaimTemplates") {
                default_to(claim, "apiVersion", "v1");
                default_to(claim, "kind", "PersistentVolumeClaim");
                default_to(inner(claim, "spec"), "volumeMode", "Filesystem");
                default_to(inner(claim, "status"), "phase", "Pending");
            }
            template(spec);
        }
        ("apps", "daemonsets") => {
            let notes = tree::object(tree::meta(value).entry("annotations").or_insert_with(|| json!({})));
            default_to(notes, TEMPLATE_GENERATION, "1");
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
        _ => batch(resource, value),
    }
}

fn batch(resource: &Resource, value: &mut Value) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("batch", "jobs") => {
            labels_of_template(value);
            let spec = tree::child(value, "spec");
            default_to(spec, "manualSelector", false);
            job_spec(spec);
        }
        ("batch", "cronjobs") => {
            let spec = tree::child(value, "spec");
            default_to(spec, "concurrencyPolicy", "Allow");
            default_to(spec, "suspend", false);
            default_to(spec, "successfulJobsHistoryLimit", 3);
            default_to(spec, "failedJobsHistoryLimit", 1);
            if let Some(Value::Object(t)) = spec.get_mut("jobTemplate") {
                template(inner(t, "spec"));
            }
        }
        _ => other(resource, value),
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
        }
        ("storage.k8s.io", "csidrivers") => driver(tree::child(value, "spec")),
        ("flowcontrol.apiserver.k8s.io", plural) => flow::defaults(plural, value),
        ("", "podtemplates") => template(tree::object(value)),
        ("resource.k8s.io", "resourceclaims") => devices(tree::child(value, "spec")),
        ("resource.k8s.io", "resourceclaimtemplates") => {
            devices(inner(tree::child(value, "spec"), "spec"));
        }
        _ => {}
    }
}

/// What a new namespace has that is not a default of its fields.
pub fn new_namespace(value: &mut Value) {
    default_to(tree::child(value, "spec"), "finalizers", json!(["kubernetes"]));
    default_to(tree::child(value, "status"), "phase", "Active");
}

fn inner<'a>(map: &'a mut Obj, key: &str) -> &'a mut Obj {
    tree::object(map.entry(key).or_insert_with(|| json!({})))
}

/// The older and the newer way to say where a claim's content comes from say the same.
fn data_source(spec: &mut Obj) {
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

/// An object without labels takes those of its template.
fn labels_of_template(value: &mut Value) {
    let Some(labels) = tree::at(value, &["spec", "template", "metadata", "labels"]).cloned() else { return };
    if tree::at(value, &["metadata", "labels"]).is_none_or(|l| l.as_object().is_none_or(Map::is_empty)) {
        tree::meta(value).insert("labels".into(), labels);
    }
}

/// Annotation that counts the changes of a DaemonSet's template.
pub const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Counts a change of a DaemonSet's template, whatever the client says of it.
pub fn template_generation(live: Option<&Value>, value: &mut Value) {
    let path = ["metadata", "annotations", TEMPLATE_GENERATION];
    let count = live.map_or(1, |live| {
        let before: i64 = tree::text(live, &path).parse().unwrap_or(1);
        let template = |v: &Value| tree::at(v, &["spec", "template"]).cloned();
        before + i64::from(template(live) != template(value))
    });
    let notes = tree::object(tree::meta(value).entry("annotations").or_insert_with(|| json!({})));
    notes.insert(TEMPLATE_GENERATION.into(), count.to_string().into());
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
    if spec.get("sessionAffinity") == Some(&json!("ClientIP")) {
        default_to(inner(inner(spec, "sessionAffinityConfig"), "clientIP"), "timeoutSeconds", 10_800);
    } else if spec.get("sessionAffinity") == Some(&json!("None")) {
        spec.remove("sessionAffinityConfig");
    }
    if spec.get("type") == Some(&json!("ExternalName")) {
        return;
    }
    let kind = spec.get("type").and_then(Value::as_str).unwrap_or_default();
    let (outside, balanced) = (matches!(kind, "NodePort" | "LoadBalancer"), kind == "LoadBalancer");
    if outside {
        default_to(spec, "externalTrafficPolicy", "Cluster");
    }
    if balanced {
        default_to(spec, "allocateLoadBalancerNodePorts", true);
    }
    default_to(spec, "internalTrafficPolicy", "Cluster");
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

fn devices(spec: &mut Obj) {
    let Some(Value::Object(devices)) = spec.get_mut("devices") else { return };
    let exact = |request: &mut Obj| {
        default_to(request, "allocationMode", "ExactCount");
        if request.get("allocationMode") == Some(&json!("ExactCount")) {
            default_to(request, "count", 1);
        }
    };
    for request in items(devices, "requests") {
        if let Some(Value::Object(inner)) = request.get_mut("exactly") {
            exact(inner);
        }
        items(request, "firstAvailable").for_each(exact);
    }
}

fn items<'a>(map: &'a mut Obj, key: &str) -> impl Iterator<Item = &'a mut Obj> {
    let list = map.get_mut(key).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

fn pod_extra(value: &mut Value) {
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

fn pod_spec(spec: &mut Obj) {
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
    labels_of_template(value);
}
