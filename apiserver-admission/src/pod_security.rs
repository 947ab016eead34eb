//! The PodSecurity plugin: what the labels of a namespace allow its pods.
//!
//! Inputs: a new or changed pod, or a controller with a pod template, and the namespace's labels
//! `pod-security.kubernetes.io/{enforce,warn}`. Source: the Pod Security Standards of Kubernetes, newest version.
//! Absent on purpose: older versions of the standards, `audit` (there is no audit log), exemptions.

use crate::call::Call;
use fleet_apiserver_ground::tree::{at, list, meta_text, text};
use fleet_apiserver_schema::error::{ApiError, ApiResult};
use fleet_apiserver_schema::resource::Resource;
use serde_json::Value;

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
