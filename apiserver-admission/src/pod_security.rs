//! The PodSecurity plugin: what the labels of a namespace allow its pods.
//!
//! Inputs: a new or changed pod, or a controller with a pod template, and the namespace's labels
//! `pod-security.kubernetes.io/{enforce,warn}`. Source: the Pod Security Standards of Kubernetes, newest version.
//! Absent on purpose: older versions of the standards, `audit` (there is no audit log), exemptions.

use crate::call::Call;
use fleet_apiserver_ground::store::Range;
use fleet_apiserver_ground::tree::{at, list, meta_text, text};
use fleet_apiserver_schema::error::{ApiError, ApiResult, Cause};
use fleet_apiserver_schema::resource::Resource;
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    fn of(label: &str) -> Level {
        match label {
            "baseline" => Level::Baseline,
            "restricted" => Level::Restricted,
            _ => Level::Privileged,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        }
    }
}

/// The path of the pod spec in an object that has one.
fn pod_spec<'a>(r: &Resource, value: &'a Value) -> Option<&'a Value> {
    let path: &[&str] = match (r.group.as_str(), r.plural.as_str()) {
        ("", "pods") => &["spec"],
        ("", "podtemplates") => &["template", "spec"],
        ("", "replicationcontrollers") | ("apps", _) | ("batch", "jobs") => &["spec", "template", "spec"],
        ("batch", "cronjobs") => &["spec", "jobTemplate", "spec", "template", "spec"],
        _ => return None,
    };
    at(value, path)
}

/// Refuses a pod that violates the level of its namespace, and warns about the warn level.
///
/// # Errors
/// 403 with each violation.
pub fn check(call: &mut Call, value: &Value) -> ApiResult<()> {
    if call.resource().custom || !matches!(call.subresource.as_str(), "" | "ephemeralcontainers") {
        return Ok(());
    }
    let Some(spec) = pod_spec(call.resource(), value) else { return Ok(()) };
    let Some(namespace) = call.core.namespaces.get(&call.namespace) else { return Ok(()) };
    let label = |mode: &str| {
        Level::of(&namespace.text(&["metadata", "labels", &format!("pod-security.kubernetes.io/{mode}")]))
    };
    let (enforce, warn) = (label("enforce"), label("warn"));
    if enforce.max_of(warn) == Level::Privileged {
        return Ok(());
    }
    if call.resource().is("", "pods") {
        let found = violations(spec, enforce);
        if !found.is_empty() {
            let why = format!("violates PodSecurity \"{}:latest\": {}", enforce.name(), found.join(", "));
            return Err(ApiError::forbidden(call.resource(), meta_text(value, "name"), &why));
        }
    }
    let found = violations(spec, warn);
    if !found.is_empty() {
        let text = format!("would violate PodSecurity \"{}:latest\": {}", warn.name(), found.join(", "));
        call.warnings.push(text);
    }
    Ok(())
}

const LABELS: &str = "pod-security.kubernetes.io/";

/// Refuses labels of a namespace that name no level or version, and warns about pods that a new level would refuse.
///
/// # Errors
/// 422 with each label.
pub async fn check_namespace(call: &mut Call, old: Option<&Value>, new: &Value) -> ApiResult<()> {
    if !call.resource().is("", "namespaces") || !matches!(call.subresource.as_str(), "") {
        return Ok(());
    }
    let label = |value: &Value, key: &str| {
        text(value, &["metadata", "labels", &format!("{LABELS}{key}")]).to_string()
    };
    let mut causes = Vec::new();
    for mode in ["enforce", "audit", "warn"] {
        let (level, version) = (label(new, mode), label(new, &format!("{mode}-version")));
        let field = |key: &str| format!("metadata.labels[{LABELS}{key}]");
        if !matches!(level.as_str(), "" | "privileged" | "baseline" | "restricted") {
            let why = "must be one of privileged, baseline, restricted";
            causes.push(Cause::invalid(field(mode), &json!(level), why));
        }
        let minor = version.strip_prefix("v1.").is_some_and(|n| n.parse::<u16>().is_ok());
        if !(version.is_empty() || version == "latest" || minor) {
            let why = "must be \"latest\" or \"v1.x\"";
            causes.push(Cause::invalid(field(&format!("{mode}-version")), &json!(version), why));
        }
    }
    let name = meta_text(new, "name").to_string();
    if !causes.is_empty() {
        return Err(ApiError::invalid("", "Namespace", &name, causes));
    }
    let Some(old) = old else { return Ok(()) };
    let (before, now) = (Level::of(&label(old, "enforce")), Level::of(&label(new, "enforce")));
    if now > before {
        warn_of_pods(call, &name, now).await?;
    }
    Ok(())
}

/// Names the pods of a namespace that a level does not allow; those with the same violations together.
async fn warn_of_pods(call: &mut Call, namespace: &str, level: Level) -> ApiResult<()> {
    let prefix = format!("{namespace}/");
    let table = call.core.store.table("/pods");
    let page = call.core.store.page(&table, Range { prefix: &prefix, ..Range::default() }).await?;
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pod in page.map(|p| p.items).unwrap_or_default() {
        let why = violations(&pod.at(&["spec"]).unwrap_or_default(), level);
        if why.is_empty() {
            continue;
        }
        // The containers differ from pod to pod.
        let short: Vec<&str> = why.iter().map(|w| w.split(" (").next().unwrap_or(w)).collect();
        found.entry(short.join(", ")).or_default().push(pod.meta_text("name"));
    }
    if found.is_empty() {
        return Ok(());
    }
    call.warnings.push(format!(
        "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{}:latest\"",
        level.name()
    ));
    let mut lines: Vec<String> = found
        .iter()
        .map(|(why, pods)| match pods.len() {
            1 => format!("{}: {why}", pods[0]),
            2 => format!("{} (and 1 other pod): {why}", pods[0]),
            n => format!("{} (and {} other pods): {why}", pods[0], n - 1),
        })
        .collect();
    lines.sort();
    call.warnings.extend(lines);
    Ok(())
}

impl Level {
    fn max_of(self, other: Level) -> Level {
        if other > self { other } else { self }
    }
}

/// All containers of a pod, with their names in quotes.
fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    lists.into_iter().flat_map(move |key| list(spec, &[key]))
}

/// The names of the containers for which something holds, as messages show them.
fn named(spec: &Value, holds: impl Fn(&Value) -> bool) -> Option<String> {
    let names: Vec<String> =
        containers(spec).filter(|c| holds(c)).map(|c| format!("{:?}", text(c, &["name"]))).collect();
    match names.as_slice() {
        [] => None,
        [one] => Some(format!("container {one}")),
        many => Some(format!("containers {}", many.join(", "))),
    }
}

fn is_true(value: &Value, path: &[&str]) -> bool {
    at(value, path) == Some(&Value::Bool(true))
}

/// What a pod does that a level does not allow.
fn violations(spec: &Value, level: Level) -> Vec<String> {
    let mut out = Vec::new();
    if level == Level::Privileged {
        return out;
    }
    let hosts: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .iter()
        .filter(|key| is_true(spec, &[**key]))
        .map(|key| format!("{key}=true"))
        .collect();
    if !hosts.is_empty() {
        out.push(format!("host namespaces ({})", hosts.join(", ")));
    }
    if let Some(who) = named(spec, |c| is_true(c, &["securityContext", "privileged"])) {
        out.push(format!("privileged ({who} must not set securityContext.privileged=true)"));
    }
    if level == Level::Baseline
        && let Some(who) = named(spec, adds_beyond(&DEFAULT_CAPABILITIES))
    {
        out.push(format!("non-default capabilities ({who} must not include added capabilities in securityContext.capabilities.add)"));
    }
    let paths: Vec<String> = list(spec, &["volumes"])
        .iter()
        .filter(|v| at(v, &["hostPath"]).is_some())
        .map(|v| format!("{:?}", text(v, &["name"])))
        .collect();
    if !paths.is_empty() {
        let word = if paths.len() == 1 { "volume" } else { "volumes" };
        out.push(format!("hostPath volumes ({word} {})", paths.join(", ")));
    }
    let opens = |c: &Value| {
        list(c, &["ports"]).iter().any(|p| fleet_apiserver_ground::tree::number(p, &["hostPort"]) > 0)
    };
    if let Some(who) = named(spec, opens) {
        out.push(format!("hostPort ({who} uses hostPorts)"));
    }
    if let Some(who) = named(spec, |c| text(c, &["securityContext", "procMount"]) == "Unmasked") {
        out.push(format!("procMount ({who} must not set securityContext.procMount to \"Unmasked\")"));
    }
    let unconfined = |v: &Value| text(v, &["securityContext", "seccompProfile", "type"]) == "Unconfined";
    if unconfined(spec) {
        out.push(
            "seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\")".into(),
        );
    } else if level == Level::Baseline
        && let Some(who) = named(spec, unconfined)
    {
        out.push(format!(
            "seccompProfile ({who} must not set securityContext.seccompProfile.type to \"Unconfined\")"
        ));
    }
    let sysctls = list(spec, &["securityContext", "sysctls"]).iter().map(|s| text(s, &["name"]));
    let unsafe_ones: Vec<&str> = sysctls.filter(|s| !SAFE_SYSCTLS.contains(s)).collect();
    if !unsafe_ones.is_empty() {
        out.push(format!("forbidden sysctls ({})", unsafe_ones.join(", ")));
    }
    if level == Level::Restricted {
        restricted(spec, &mut out);
    }
    out
}

const DEFAULT_CAPABILITIES: [&str; 14] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
    "",
];
const SAFE_SYSCTLS: [&str; 10] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
];
const RESTRICTED_VOLUMES: [&str; 10] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
    "image",
    "name",
];

fn adds_beyond(allowed: &'static [&'static str]) -> impl Fn(&Value) -> bool {
    move |c| {
        let added = list(c, &["securityContext", "capabilities", "add"]);
        added.iter().filter_map(Value::as_str).any(|cap| !allowed.contains(&cap))
    }
}

fn restricted(spec: &Value, out: &mut Vec<String>) {
    let other = |v: &&Value| {
        v.as_object().is_some_and(|m| m.keys().any(|k| !RESTRICTED_VOLUMES.contains(&k.as_str())))
    };
    let volumes: Vec<String> =
        list(spec, &["volumes"]).iter().filter(other).map(|v| format!("{:?}", text(v, &["name"]))).collect();
    if !volumes.is_empty() {
        out.push(format!("restricted volume types ({} uses a restricted volume type)", volumes.join(", ")));
    }
    let climbs =
        |c: &Value| at(c, &["securityContext", "allowPrivilegeEscalation"]) != Some(&Value::Bool(false));
    if let Some(who) = named(spec, climbs) {
        out.push(format!("allowPrivilegeEscalation != false ({who} must set securityContext.allowPrivilegeEscalation=false)"));
    }
    let keeps = |c: &Value| !list(c, &["securityContext", "capabilities", "drop"]).iter().any(|d| d == "ALL");
    if let Some(who) = named(spec, keeps) {
        out.push(format!(
            "unrestricted capabilities ({who} must set securityContext.capabilities.drop=[\"ALL\"])"
        ));
    }
    if let Some(who) = named(spec, adds_beyond(&["NET_BIND_SERVICE"])) {
        out.push(format!("unrestricted capabilities ({who} must not include added capabilities in securityContext.capabilities.add)"));
    }
    let pod_says = at(spec, &["securityContext", "runAsNonRoot"]).and_then(Value::as_bool);
    let may_be_root = |c: &Value| {
        let own = at(c, &["securityContext", "runAsNonRoot"]).and_then(Value::as_bool);
        own.or(pod_says) != Some(true)
    };
    if let Some(who) = named(spec, may_be_root) {
        out.push(format!("runAsNonRoot != true (pod or {who} must set securityContext.runAsNonRoot=true)"));
    }
    let zero = |v: &Value| at(v, &["securityContext", "runAsUser"]).and_then(Value::as_i64) == Some(0);
    if zero(spec) {
        out.push("runAsUser=0 (pod must not set runAsUser=0)".into());
    } else if let Some(who) = named(spec, zero) {
        out.push(format!("runAsUser=0 ({who} must not set runAsUser=0)"));
    }
    let profile = |v: &Value| text(v, &["securityContext", "seccompProfile", "type"]).to_string();
    let fine = |p: &str| matches!(p, "RuntimeDefault" | "Localhost");
    let of_pod = profile(spec);
    let open = |c: &Value| {
        let own = profile(c);
        !(fine(&own) || (own.is_empty() && fine(&of_pod)))
    };
    if let Some(who) = named(spec, open) {
        out.push(format!("seccompProfile (pod or {who} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")"));
    }
}
