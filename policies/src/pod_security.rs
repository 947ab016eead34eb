//! Pod Security Standards: what each level allows in a pod template.
//!
//! The hub runs no pods, so its own admission never checks a job's pods; members see them under the agent's rights.
//! Fleet therefore checks each template against the level of its namespace on the hub. The checks are those of
//! <https://kubernetes.io/docs/concepts/security/pod-security-standards/>, version 1.36.

use serde_json::Value;

/// Label of a namespace with the level for its pods.
pub const ENFORCE_LABEL: &str = "pod-security.kubernetes.io/enforce";

/// The level of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    #[default]
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    /// The level of a label. An unknown value counts as `Restricted`: Kubernetes refuses such a label, and a
    /// typing error must not weaken the level.
    pub fn from_label(label: Option<&str>) -> Self {
        match label {
            None | Some("" | "privileged") => Self::Privileged,
            Some("baseline") => Self::Baseline,
            Some(_) => Self::Restricted,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

/// Capabilities that containers may add at level baseline: those that container runtimes grant by default.
const BASELINE_CAPABILITIES: [&str; 13] = [
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
];

const APP_ARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

const BASELINE_SYSCTLS: [&str; 10] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_syncookies",
];

const RESTRICTED_VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// The first violation of `level` in any pod template of `object`, as a sentence with the field, what was found and
/// what is allowed.
///
/// # Errors
/// That sentence.
pub fn check(level: Level, object: &Value) -> Result<(), String> {
    if level == Level::Privileged {
        return Ok(());
    }
    let mut found = None;
    visit(object, &mut String::new(), &mut |path, template| {
        if found.is_none() {
            found = violation(level, template).map(|Violation { field, value, allowed }| {
                let dot = if path.is_empty() { "" } else { "." };
                let (level, value) = (level.as_str(), crate::spec::shortened(&value.to_string()));
                format!("{path}{dot}{field}: found {value}; allowed at pod security level {level}: {allowed}")
            });
        }
    });
    found.map_or(Ok(()), Err)
}

/// Whether the object has a pod template that [`check`] looks at.
pub fn has_pods(object: &Value) -> bool {
    let mut found = false;
    visit(object, &mut String::new(), &mut |_, _| found = true);
    found
}

/// Calls `see` with the path and the spec of everything that has containers, wherever it is: an unknown kind must
/// not be a way around the check.
pub(crate) fn visit<'v>(value: &'v Value, path: &mut String, see: &mut dyn FnMut(&str, &'v Value)) {
    let length = path.len();
    match value {
        Value::Object(fields) => {
            if fields.get("containers").is_some_and(Value::is_array) {
                see(path, value);
            }
            if fields.get("spec").is_some_and(|spec| spec["containers"].is_array()) {
                see(path, value);
            }
            for (name, value) in fields {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
                visit(value, path, see);
                path.truncate(length);
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                path.push_str(&format!("[{at}]"));
                visit(item, path, see);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

struct Violation {
    field: String,
    value: Value,
    allowed: &'static str,
}

fn violation(level: Level, spec: &Value) -> Option<Violation> {
    if !spec["containers"].is_array() {
        return app_armor_annotation(&spec["metadata"]["annotations"]);
    }
    baseline_pod(spec)
        .or_else(|| containers(spec).find_map(|(path, container)| baseline_container(&path, container)))
        .or_else(|| {
            let restricted = level == Level::Restricted;
            restricted.then(|| restricted_pod(spec)).flatten()
        })
}

/// AppArmor profiles as annotations, which are still honoured.
fn app_armor_annotation(annotations: &Value) -> Option<Violation> {
    let named = annotations.as_object()?.iter().filter(|(name, _)| name.starts_with(APP_ARMOR_ANNOTATION));
    let is_allowed = |value: &Value| {
        value.as_str().is_some_and(|text| text == "runtime/default" || text.starts_with("localhost/"))
    };
    let (name, value) = named.into_iter().find(|(_, value)| !is_allowed(value))?;
    not(format!("metadata.annotations[{name}]"), value, "runtime/default or localhost/ and a name")
}

fn containers(spec: &Value) -> impl Iterator<Item = (String, &Value)> {
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(move |list| {
        let items = spec[list].as_array().map_or(&[][..], Vec::as_slice);
        items.iter().enumerate().map(move |(at, container)| (format!("{list}[{at}]"), container))
    })
}

fn not(field: String, value: &Value, allowed: &'static str) -> Option<Violation> {
    Some(Violation { field, value: value.clone(), allowed })
}

fn baseline_pod(spec: &Value) -> Option<Violation> {
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        if spec[field] == true {
            return not(field.to_owned(), &spec[field], "false");
        }
    }
    for (at, volume) in spec["volumes"].as_array().into_iter().flatten().enumerate() {
        if !volume["hostPath"].is_null() {
            return not(format!("volumes[{at}].hostPath"), &volume["hostPath"], "no volume of the node");
        }
    }
    let context = &spec["securityContext"];
    for (at, sysctl) in context["sysctls"].as_array().into_iter().flatten().enumerate() {
        if !sysctl["name"].as_str().is_some_and(|name| BASELINE_SYSCTLS.contains(&name)) {
            return not(format!("securityContext.sysctls[{at}].name"), &sysctl["name"], "safe sysctls");
        }
    }
    baseline_context("securityContext", context)
}

/// Fields that the security contexts of pod and container share.
fn baseline_context(path: &str, context: &Value) -> Option<Violation> {
    if context["windowsOptions"]["hostProcess"] == true {
        return not(format!("{path}.windowsOptions.hostProcess"), &Value::Bool(true), "false");
    }
    let seccomp = &context["seccompProfile"]["type"];
    if seccomp == "Unconfined" {
        return not(format!("{path}.seccompProfile.type"), seccomp, "RuntimeDefault or Localhost");
    }
    let app_armor = &context["appArmorProfile"]["type"];
    if app_armor == "Unconfined" {
        return not(format!("{path}.appArmorProfile.type"), app_armor, "RuntimeDefault or Localhost");
    }
    let linux = &context["seLinuxOptions"];
    let known = ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];
    if !linux["type"].is_null() && !linux["type"].as_str().is_some_and(|text| known.contains(&text)) {
        return not(format!("{path}.seLinuxOptions.type"), &linux["type"], "a type of containers");
    }
    for field in ["user", "role"] {
        if linux[field].as_str().is_some_and(|text| !text.is_empty()) {
            return not(format!("{path}.seLinuxOptions.{field}"), &linux[field], "none");
        }
    }
    None
}

fn baseline_container(path: &str, container: &Value) -> Option<Violation> {
    let context = &container["securityContext"];
    let at = format!("{path}.securityContext");
    if context["privileged"] == true {
        return not(format!("{at}.privileged"), &context["privileged"], "false");
    }
    for capability in context["capabilities"]["add"].as_array().into_iter().flatten() {
        if !capability.as_str().is_some_and(|name| BASELINE_CAPABILITIES.contains(&name)) {
            return not(
                format!("{at}.capabilities.add"),
                capability,
                "capabilities of the runtime's default",
            );
        }
    }
    if !matches!(context["procMount"].as_str(), None | Some("" | "Default")) {
        return not(format!("{at}.procMount"), &context["procMount"], "Default");
    }
    for (port_at, port) in container["ports"].as_array().into_iter().flatten().enumerate() {
        if !matches!(port["hostPort"].as_i64(), None | Some(0)) || port["hostPort"].is_string() {
            return not(format!("{path}.ports[{port_at}].hostPort"), &port["hostPort"], "none");
        }
    }
    baseline_context(&at, context).or_else(|| host_of_probes(path, container))
}

/// Probes and hooks that connect from the node to another host.
fn host_of_probes(path: &str, container: &Value) -> Option<Violation> {
    let handlers =
        ["livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop"];
    for handler in handlers {
        let value = handler.split('.').fold(container, |value, field| &value[field]);
        for action in ["httpGet", "tcpSocket"] {
            let host = &value[action]["host"];
            if host.as_str().is_some_and(|host| !host.is_empty()) {
                return not(format!("{path}.{handler}.{action}.host"), host, "none");
            }
        }
    }
    None
}

fn restricted_pod(spec: &Value) -> Option<Violation> {
    for (at, volume) in spec["volumes"].as_array().into_iter().flatten().enumerate() {
        let kinds = volume.as_object().into_iter().flat_map(|fields| fields.iter());
        for (kind, value) in kinds.filter(|(kind, value)| *kind != "name" && !value.is_null()) {
            if !RESTRICTED_VOLUMES.contains(&kind.as_str()) {
                return not(
                    format!("volumes[{at}].{kind}"),
                    value,
                    "volumes without access to the node or to network storage",
                );
            }
        }
    }
    let pod = &spec["securityContext"];
    if pod["runAsUser"] == 0 {
        return not("securityContext.runAsUser".to_owned(), &pod["runAsUser"], "a user other than 0");
    }
    containers(spec).find_map(|(path, container)| restricted_container(&path, container, pod))
}

fn restricted_container(path: &str, container: &Value, pod: &Value) -> Option<Violation> {
    let context = &container["securityContext"];
    let at = format!("{path}.securityContext");
    if context["allowPrivilegeEscalation"] != false {
        return not(format!("{at}.allowPrivilegeEscalation"), &context["allowPrivilegeEscalation"], "false");
    }
    let said =
        |field: &str| if context[field].is_null() { pod[field].clone() } else { context[field].clone() };
    if said("runAsNonRoot") != true {
        return not(format!("{at}.runAsNonRoot"), &said("runAsNonRoot"), "true");
    }
    if context["runAsUser"] == 0 {
        return not(format!("{at}.runAsUser"), &context["runAsUser"], "a user other than 0");
    }
    let seccomp = said("seccompProfile")["type"].clone();
    if !matches!(seccomp.as_str(), Some("RuntimeDefault" | "Localhost")) {
        return not(format!("{at}.seccompProfile.type"), &seccomp, "RuntimeDefault or Localhost");
    }
    let capabilities = &context["capabilities"];
    let dropped = capabilities["drop"].as_array().is_some_and(|drop| drop.iter().any(|name| name == "ALL"));
    if !dropped {
        return not(format!("{at}.capabilities.drop"), &capabilities["drop"], "a list with ALL");
    }
    let added = capabilities["add"].as_array().into_iter().flatten().find(|name| *name != "NET_BIND_SERVICE");
    added.and_then(|added| not(format!("{at}.capabilities.add"), added, "NET_BIND_SERVICE"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(pod: Value) -> Value {
        json!({"spec": {"roles": {"Worker": {"template": {"spec": pod}}}}})
    }

    #[track_caller]
    fn check_at(level: Level, pod: Value, expected: &str) {
        let found = check(level, &job(pod.clone())).err().unwrap_or_default();
        assert!(found.contains(expected) && found.is_empty() == expected.is_empty(), "{pod}: {found}");
        assert_eq!(check(Level::Privileged, &job(pod)), Ok(()));
    }

    #[test]
    fn baseline() {
        let of = |context: Value| json!({"containers": [{"name": "c", "securityContext": context}]});
        let refused = |pod: Value, field: &str| check_at(Level::Baseline, pod, field);
        refused(
            of(json!({"privileged": true})),
            "spec.roles.Worker.template.spec.containers[0].securityContext.privileged: found true; allowed at pod security level baseline: false",
        );
        refused(json!({"hostPID": true, "containers": []}), "spec.hostPID: found true");
        refused(json!({"hostNetwork": true, "containers": []}), "hostNetwork");
        refused(
            json!({"containers": [], "initContainers": [{"securityContext": {"privileged": true}}]}),
            "initContainers[0]",
        );
        refused(
            json!({"containers": [], "volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
            "volumes[0].hostPath",
        );
        refused(of(json!({"capabilities": {"add": ["SYS_ADMIN"]}})), "capabilities.add: found \"SYS_ADMIN\"");
        refused(of(json!({"procMount": "Unmasked"})), "procMount");
        refused(of(json!({"seccompProfile": {"type": "Unconfined"}})), "seccompProfile");
        refused(json!({"containers": [{"ports": [{"hostPort": 80}]}]}), "hostPort");
        refused(
            json!({"containers": [{"livenessProbe": {"httpGet": {"host": "10.0.0.1"}}}]}),
            "livenessProbe.httpGet.host",
        );
        refused(
            json!({"containers": [], "securityContext": {"sysctls": [{"name": "kernel.msgmax"}]}}),
            "sysctls[0]",
        );
        refused(of(json!({"capabilities": {"add": ["CHOWN"]}, "runAsUser": 0})), "");
    }

    #[test]
    fn profiles_in_annotations() {
        let job = |profile: &str| {
            json!({"spec": {"template": {"spec": {"containers": []}, "metadata": {"annotations": {
                "container.apparmor.security.beta.kubernetes.io/c": profile}}}}})
        };
        let refused = check(Level::Baseline, &job("unconfined")).unwrap_err();
        assert!(refused.starts_with("spec.template.metadata.annotations[container.apparmor"), "{refused}");
        assert_eq!(check(Level::Restricted, &job("localhost/mine")), Ok(()));
    }

    #[test]
    fn restricted() {
        let good = json!({"allowPrivilegeEscalation": false, "runAsNonRoot": true,
            "seccompProfile": {"type": "RuntimeDefault"}, "capabilities": {"drop": ["ALL"]}});
        let refused = |change: &dyn Fn(&mut Value), field: &str| {
            let mut pod = json!({"containers": [{"name": "c", "securityContext": good}]});
            change(&mut pod);
            check_at(Level::Restricted, pod, field);
        };
        refused(&|_| {}, "");
        refused(&|pod| pod["containers"][0]["securityContext"] = Value::Null, "allowPrivilegeEscalation");
        refused(&|pod| pod["containers"][0]["securityContext"]["runAsNonRoot"] = Value::Null, "runAsNonRoot");
        refused(
            &|pod| pod["containers"][0]["securityContext"]["capabilities"] = Value::Null,
            "capabilities.drop",
        );
        refused(&|pod| pod["securityContext"]["runAsUser"] = json!(0), "runAsUser");
        refused(&|pod| pod["volumes"] = json!([{"name": "v", "nfs": {}}]), "volumes[0].nfs");
        refused(&|pod| pod["hostPID"] = json!(true), "hostPID");
    }

    #[test]
    fn levels() {
        assert_eq!(Level::from_label(None), Level::Privileged);
        assert_eq!(Level::from_label(Some("baseline")), Level::Baseline);
        assert_eq!(Level::from_label(Some("baselin")), Level::Restricted);
    }
}
