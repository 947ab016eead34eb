//! Defaults of pods and of pod templates.
//!
//! Inputs: decoded objects. Absent on purpose: what needs other objects (`admit`).

use super::admit::MIRROR;
use super::{amounts, images, volume_defaults};
use fleet_apiserver_ground::tree::{self, default_to};
use fleet_resources::{pod::is_of_whole_pod, quantity};
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
    of_pod(tree::child(value, "spec"));
    if let Some(spec) = value.get_mut("spec") {
        whole(spec);
    }
    remove_old_notes(value);
    let is_mirror = tree::at(value, &["metadata", "annotations", MIRROR]).is_some();
    let spec = tree::child(value, "spec");
    default_to(spec, "preemptionPolicy", "PreemptLowerPriority");
    default_to(spec, "priority", 0);
    // Copies of what a kubelet runs by itself have no account.
    if !is_mirror {
        default_to(spec, "serviceAccountName", "default");
    }
    if let Some(account) = spec.get("serviceAccountName").cloned() {
        spec.insert("serviceAccount".into(), account);
    }
    let qos = qos(spec);
    let status = tree::child(value, "status");
    default_to(status, "phase", "Pending");
    default_to(status, "qosClass", qos);
}

/// What of these a write of the status can have removed.
pub fn of_status(value: &mut Value) {
    remove_old_notes(value);
    if !tree::child(value, "status").contains_key("qosClass") {
        let qos = qos(tree::child(value, "spec"));
        tree::child(value, "status").insert("qosClass".into(), qos.into());
    }
    default_to(tree::child(value, "status"), "phase", "Pending");
}

fn remove_old_notes(value: &mut Value) {
    if let Some(Value::Object(notes)) = value.get_mut("metadata").and_then(|m| m.get_mut("annotations")) {
        OLD_NOTES.iter().for_each(|note| drop(notes.remove(*note)));
    }
}

/// Annotations in which init containers were written before they were fields.
const OLD_NOTES: [&str; 4] = [
    "pod.alpha.kubernetes.io/init-containers",
    "pod.alpha.kubernetes.io/init-container-statuses",
    "pod.beta.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
];

/// Defaults of a pod's own fields that a template of pods does not get: what is left out of a template may still be
/// filled in when its pods are made.
pub fn of_pod(spec: &mut Obj) {
    let shares_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for key in ["containers", "initContainers"] {
        for c in items(spec, key) {
            requests_of_limits(c);
            if shares_network {
                items(c, "ports").for_each(host_port);
            }
        }
    }
    default_to(spec, "enableServiceLinks", true);
}

fn requests_of_limits(c: &mut Obj) {
    let Some(Value::Object(resources)) = c.get_mut("resources") else { return };
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else { return };
    if limits.is_empty() {
        return;
    }
    let requests = inner(resources, "requests");
    for (name, amount) in limits {
        default_to(requests, &name, amount);
    }
}

fn host_port(port: &mut Obj) {
    let inside = port.get("containerPort").cloned().unwrap_or_default();
    if !inside.is_null() && port.get("hostPort").and_then(Value::as_i64).unwrap_or(0) == 0 {
        port.insert("hostPort".into(), inside);
    }
}

/// Amounts of the pod as a whole. Huge pages of the containers count as its limit where it says nothing of them; what
/// it requests follows from its limits, so that requests alone are left as they are.
fn whole(spec: &mut Value) {
    if !stated(spec, "limits") && !stated(spec, "requests") {
        return;
    }
    let pages: Vec<(String, i64)> = amounts::of_containers(spec, amounts::Part::Limits)
        .iter()
        .map(|(name, amount)| (name.as_str().to_string(), amount))
        .filter(|(name, _)| name.starts_with("hugepages-"))
        .collect();
    for (name, amount) in pages {
        if tree::at(spec, &["resources", "requests", name.as_str()]).is_none() {
            let limits = inner(tree::child(spec, "resources"), "limits");
            default_to(limits, &name, quantity::format(&name, amount));
        }
    }
    if !stated(spec, "limits") {
        return;
    }
    let before = tree::at(spec, &["resources", "requests"]).cloned().unwrap_or_default();
    amounts::fill(spec);
    // What a pod as a whole cannot ask for is told where it is written, and nowhere else.
    let resources = tree::child(spec, "resources");
    let requests = inner(resources, "requests");
    requests.retain(|name, _| is_of_whole_pod(name) || before.get(name).is_some());
    if requests.is_empty() {
        resources.remove("requests");
    }
}

/// True if the pod as a whole says something in its list of this name.
fn stated(spec: &Value, part: &str) -> bool {
    let list = tree::at(spec, &["resources", part]).and_then(Value::as_object);
    list.is_some_and(|list| !list.is_empty())
}

/// The class of service of a pod, by what it asks for as a whole, or else by what its containers do. Only amounts of
/// cpu and memory above zero count.
pub fn qos(spec: &Obj) -> &'static str {
    let lists = ["containers", "initContainers"].map(|k| spec.get(k).and_then(Value::as_array));
    let whole = spec.get("resources").filter(|r| r.is_object());
    let askers: Vec<Option<&Value>> = match whole {
        Some(resources) => vec![Some(resources)],
        None => lists.into_iter().flatten().flatten().map(|c| c.get("resources")).collect(),
    };
    let mut all = true;
    let mut sums = [[0_i64; 2]; 2];
    for resources in askers {
        for (i, name) in ["cpu", "memory"].into_iter().enumerate() {
            let amount = |part: &str| {
                let text = resources.and_then(|r| tree::at(r, &[part, name])).and_then(Value::as_str);
                text.and_then(|text| quantity::parse(name, text).ok()).filter(|n| *n > 0).unwrap_or(0)
            };
            let (limit, request) = (amount("limits"), amount("requests"));
            all &= limit > 0;
            sums[i][0] = sums[i][0].saturating_add(limit);
            sums[i][1] = sums[i][1].saturating_add(request);
        }
    }
    if sums == [[0; 2]; 2] {
        return "BestEffort";
    }
    match all && sums.iter().all(|[limit, request]| limit == request) {
        true => "Guaranteed",
        false => "Burstable",
    }
}

/// Fills in the fields of a spec, of a pod or of a template.
pub fn spec(spec: &mut Obj) {
    // Fields of features that are off in this version.
    spec.remove("schedulingGroup");
    default_to(spec, "restartPolicy", "Always");
    default_to(spec, "terminationGracePeriodSeconds", 30);
    default_to(spec, "dnsPolicy", "ClusterFirst");
    default_to(spec, "schedulerName", "default-scheduler");
    default_to(spec, "securityContext", json!({}));
    // The older name of the account follows the newer one.
    let name = |key: &str| spec.get(key).filter(|n| n.as_str().is_some_and(|n| !n.is_empty())).cloned();
    let account = name("serviceAccountName").or_else(|| name("serviceAccount"));
    if let Some(account) = account {
        spec.insert("serviceAccountName".into(), account.clone());
        spec.insert("serviceAccount".into(), account);
    }
    for key in ["containers", "initContainers", "ephemeralContainers"] {
        items(spec, key).for_each(container);
    }
    items(spec, "volumes").for_each(volume_defaults::volume);
    if let Some(Value::Object(overhead)) = spec.get_mut("overhead") {
        round_up(overhead);
    }
    round_resources(spec);
}

/// Amounts are kept in thousandths at the finest.
fn round_resources(owner: &mut Obj) {
    let Some(Value::Object(resources)) = owner.get_mut("resources") else { return };
    for part in ["limits", "requests"] {
        if let Some(Value::Object(amounts)) = resources.get_mut(part) {
            round_up(amounts);
        }
    }
}

pub(crate) fn round_up(amounts: &mut Obj) {
    for amount in amounts.values_mut() {
        let text = amount.as_str().unwrap_or_default();
        if !text.ends_with(['n', 'u']) {
            continue;
        }
        // Cpu is what is counted in thousandths.
        let Ok(thousandths) = quantity::parse("cpu", text) else { continue };
        *amount = quantity::format("cpu", thousandths).into();
    }
}

fn container(c: &mut Obj) {
    default_to(c, "terminationMessagePath", "/dev/termination-log");
    default_to(c, "terminationMessagePolicy", "File");
    if c.get("imagePullPolicy").is_none_or(Value::is_null) {
        let image = c.get("image").and_then(Value::as_str).unwrap_or_default();
        c.insert("imagePullPolicy".into(), images::pull_policy(image).into());
    }
    round_resources(c);
    for port in items(c, "ports") {
        default_to(port, "protocol", "TCP");
    }
    for env in items(c, "env") {
        let Some(Value::Object(source)) = env.get_mut("valueFrom") else { continue };
        if let Some(Value::Object(field)) = source.get_mut("fieldRef") {
            default_to(field, "apiVersion", "v1");
        }
        if let Some(Value::Object(file)) = source.get_mut("fileKeyRef") {
            default_to(file, "optional", false);
        }
    }
    let idle = c.get_mut("lifecycle").and_then(Value::as_object_mut).is_some_and(lifecycle);
    if idle {
        c.remove("lifecycle");
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(Value::Object(p)) = c.get_mut(key) {
            probe(p);
        }
    }
}

/// True if only a stop signal was there, which is a feature that is off in this version.
fn lifecycle(hooks: &mut Obj) -> bool {
    let signal = hooks.remove("stopSignal").is_some_and(|s| !s.is_null());
    for hook in ["postStart", "preStop"] {
        if let Some(Value::Object(get)) = hooks.get_mut(hook).and_then(|h| h.get_mut("httpGet")) {
            http_get(get);
        }
    }
    signal && hooks.is_empty()
}

fn http_get(get: &mut Obj) {
    default_to(get, "path", "/");
    default_to(get, "scheme", "HTTP");
}

fn probe(probe: &mut Obj) {
    for (field, value) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        if probe.get(field).and_then(Value::as_i64).unwrap_or(0) == 0 {
            probe.insert(field.into(), value.into());
        }
    }
    if let Some(Value::Object(get)) = probe.get_mut("httpGet") {
        http_get(get);
    }
    if let Some(Value::Object(grpc)) = probe.get_mut("grpc") {
        default_to(grpc, "service", "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(mut spec: Value) -> Value {
        super::spec(tree::object(&mut spec));
        spec
    }

    #[test]
    fn only_pods_take_requests_and_host_ports_from_elsewhere() {
        let given = json!({"hostNetwork": true, "containers": [{"name": "c", "image": "i",
            "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "1"}}}]});
        let template = made(given.clone());
        assert_eq!(template["containers"][0]["ports"], json!([{"containerPort": 80, "protocol": "TCP"}]));
        assert_eq!(template["containers"][0]["resources"], json!({"limits": {"cpu": "1"}}));
        assert_eq!(template.get("enableServiceLinks"), None);
        let mut pod = json!({"spec": template});
        super::pod(&mut pod);
        let c = &pod["spec"]["containers"][0];
        assert_eq!(c["ports"], json!([{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]));
        assert_eq!(c["resources"], json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}));
        assert_eq!(pod["spec"]["enableServiceLinks"], true);
    }

    #[test]
    fn the_older_name_of_an_account_follows_the_newer_one() {
        for (given, wanted) in [
            (json!({"serviceAccountName": "a", "serviceAccount": "b"}), "a"),
            (json!({"serviceAccount": "b"}), "b"),
        ] {
            let spec = made(given);
            assert_eq!(
                (&spec["serviceAccountName"], &spec["serviceAccount"]),
                (&json!(wanted), &json!(wanted))
            );
        }
        assert_eq!(made(json!({})).get("serviceAccount"), None);
    }

    #[test]
    fn huge_pages_of_containers_limit_the_pod_and_requests_alone_add_nothing() {
        let check = |resources: Value, wanted: Value| {
            let amounts = json!({"hugepages-2Mi": "4Mi", "cpu": "1"});
            let asked = json!({"limits": amounts.clone(), "requests": amounts});
            let mut spec = json!({"containers": [{"resources": asked}], "resources": resources});
            whole(&mut spec);
            assert_eq!(spec["resources"], wanted);
        };
        let both = json!({"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "4Mi"});
        check(
            json!({"limits": {"memory": "1Gi"}}),
            json!({"limits": {"memory": "1Gi", "hugepages-2Mi": "4Mi"}, "requests": both}),
        );
        check(json!({}), json!({}));
        let alone = json!({"requests": {"memory": "1Gi", "hugepages-2Mi": "4Mi"}});
        check(alone.clone(), alone);
    }

    #[test]
    fn amounts_are_rounded_up_to_thousandths_and_zero_does_not_count() {
        let spec = made(
            json!({"overhead": {"cpu": "1n"}, "containers": [{"resources": {"requests": {"cpu": "1100u"}}}]}),
        );
        assert_eq!(spec["overhead"], json!({"cpu": "1m"}));
        assert_eq!(spec["containers"][0]["resources"]["requests"], json!({"cpu": "2m"}));
        let class = |resources: Value| {
            let spec = json!({"containers": [{"resources": resources}]});
            qos(spec.as_object().unwrap())
        };
        assert_eq!(class(json!({"requests": {"cpu": "0"}})), "BestEffort");
        assert_eq!(class(json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}})), "Burstable");
        let both = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(class(json!({"limits": both.clone(), "requests": both})), "Guaranteed");
    }

    #[test]
    fn a_stop_signal_is_dropped_and_an_empty_hook_with_it() {
        let spec = made(json!({"containers": [{"lifecycle": {"stopSignal": "SIGTERM"}},
            {"lifecycle": {"stopSignal": "SIGTERM", "preStop": {"httpGet": {"port": 1}}}}]}));
        assert_eq!(spec["containers"][0].get("lifecycle"), None);
        let get = json!({"httpGet": {"port": 1, "path": "/", "scheme": "HTTP"}});
        assert_eq!(spec["containers"][1]["lifecycle"], json!({"preStop": get}));
    }
}
