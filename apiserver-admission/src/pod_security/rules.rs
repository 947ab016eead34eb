//! The Pod Security Standards: each rule by the name under which messages are sorted, and the version it begins with.
//!
//! Inputs: a pod's metadata and spec. Absent on purpose: levels and versions as labels have them (see the parent).

use fleet_apiserver_ground::tree::{at, list, number, text};
use serde_json::Value;
use std::collections::BTreeSet;

/// The newest minor version of the standards known here.
pub const NEWEST: u16 = 36;

/// A pod, or the template of one.
pub struct Pod<'a> {
    pub annotations: Option<&'a Value>,
    pub spec: &'a Value,
    /// Minor version of the standards it is judged by.
    pub minor: u16,
}

/// What the baseline and, if asked for, the restricted level refuse, in the order of the names of the rules.
pub fn violations(pod: &Pod<'_>, restricted: bool) -> Vec<String> {
    let mut found = vec![
        app_armor(pod),
        if restricted && pod.minor >= 22 { None } else { capabilities(pod) },
        host_namespaces(pod),
        if restricted { None } else { host_paths(pod) },
        host_ports(pod),
        if pod.minor >= 34 { hosts_of_handlers(pod) } else { None },
        pod.named(|c| is_true(c, &["securityContext", "privileged"]))
            .map(|who| format!("privileged ({who} must not set securityContext.privileged=true)")),
        if pod.minor >= 35 && (restricted || pod.is_own_user_namespace()) { None } else { proc_mount(pod) },
        se_linux(pod),
        seccomp_baseline(pod, restricted),
        sysctls(pod),
        host_process(pod),
    ];
    if restricted {
        found.extend([
            if pod.minor >= 8 { escalation(pod) } else { None },
            if pod.minor >= 22 { dropped_capabilities(pod) } else { None },
            if pod.minor >= 35 { proc_mount(pod) } else { None },
            volume_types(pod),
            if pod.minor >= 35 && pod.is_own_user_namespace() { None } else { non_root(pod) },
            if pod.minor < 23 || (pod.minor >= 35 && pod.is_own_user_namespace()) {
                None
            } else {
                user_zero(pod)
            },
            if pod.minor >= 19 { seccomp_restricted(pod) } else { None },
        ]);
    }
    found.into_iter().flatten().collect()
}

fn is_true(value: &Value, path: &[&str]) -> bool {
    at(value, path) == Some(&Value::Bool(true))
}

fn plural<'a>(one: &'a str, many: &'a str, n: usize) -> &'a str {
    if n == 1 { one } else { many }
}

fn quoted<T: std::fmt::Debug>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| format!("{item:?}")).collect::<Vec<_>>().join(", ")
}

/// The containers by their names, as messages show them.
fn who(names: &[&str]) -> String {
    format!("{} {}", plural("container", "containers", names.len()), quoted(names))
}

impl<'a> Pod<'a> {
    fn containers(&self) -> impl Iterator<Item = &'a Value> {
        let spec = self.spec;
        ["initContainers", "containers", "ephemeralContainers"]
            .into_iter()
            .flat_map(move |key| list(spec, &[key]))
    }

    fn names(&self, holds: impl Fn(&'a Value) -> bool) -> Vec<&'a str> {
        self.containers().filter(|c| holds(c)).map(|c| text(c, &["name"])).collect()
    }

    /// The containers for which something holds, if there is one.
    fn named(&self, holds: impl Fn(&'a Value) -> bool) -> Option<String> {
        let names = self.names(holds);
        (!names.is_empty()).then(|| who(&names))
    }

    /// The pod itself and its containers, those for which something holds.
    fn setters(&self, holds: impl Fn(&'a Value) -> bool) -> Vec<String> {
        let pod = holds(self.spec).then(|| "pod".to_string());
        pod.into_iter().chain(self.named(&holds)).collect()
    }

    /// What the pod and its containers say at a place below their security context.
    fn said(&self, path: &[&str]) -> BTreeSet<&'a str> {
        let one =
            |v: &'a Value| at(v, &["securityContext"]).and_then(|s| at(s, path)).and_then(Value::as_str);
        std::iter::once(self.spec).chain(self.containers()).filter_map(one).collect()
    }

    fn is_own_user_namespace(&self) -> bool {
        at(self.spec, &["hostUsers"]) == Some(&Value::Bool(false))
    }

    /// Windows has none of what some rules are about; they know it since 1.25.
    fn is_windows(&self) -> bool {
        self.minor >= 25 && text(self.spec, &["os", "name"]) == "windows"
    }
}

const APP_ARMOR_NOTE: &str = "container.apparmor.security.beta.kubernetes.io/";

fn app_armor(pod: &Pod<'_>) -> Option<String> {
    let path = ["appArmorProfile", "type"];
    let fine = |kind: &str| matches!(kind, "RuntimeDefault" | "Localhost");
    let bad = |v: &Value| {
        let profile = at(v, &["securityContext", "appArmorProfile"]).filter(|p| p.is_object());
        profile.is_some_and(|p| !fine(text(p, &["type"])))
    };
    let mut setters = pod.setters(bad);
    let mut values: Vec<String> =
        pod.said(&path).into_iter().filter(|kind| !fine(kind)).map(str::to_string).collect();
    let mut notes: Vec<String> = pod
        .annotations
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, v)| Some((key, v.as_str()?)))
        .filter(|(key, v)| {
            let fine = v.is_empty() || *v == "runtime/default" || v.starts_with("localhost/");
            key.starts_with(APP_ARMOR_NOTE) && !fine
        })
        .map(|(key, v)| format!("{key}={v:?}"))
        .collect();
    if !notes.is_empty() {
        setters.push(plural("annotation", "annotations", notes.len()).to_string());
        notes.sort();
        values.append(&mut notes);
    }
    let word = plural("forbidden AppArmor profile", "forbidden AppArmor profiles", values.len());
    (!setters.is_empty()).then(|| {
        format!("{word} ({} must not set AppArmor profile type to {})", setters.join(" and "), quoted(values))
    })
}

const DEFAULT_CAPABILITIES: [&str; 13] = [
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

fn beyond<'a>(container: &'a Value, allowed: &'a [&str]) -> impl Iterator<Item = &'a str> {
    let added = list(container, &["securityContext", "capabilities", "add"]).iter();
    added.filter_map(Value::as_str).filter(|cap| !allowed.contains(cap))
}

/// Which containers add capabilities that are not allowed, and which.
fn added(pod: &Pod<'_>, allowed: &'static [&'static str]) -> Option<String> {
    let who = pod.named(|c| beyond(c, allowed).next().is_some())?;
    let all: BTreeSet<&str> = pod.containers().flat_map(|c| beyond(c, allowed)).collect();
    Some(format!("{who} must not include {} in securityContext.capabilities.add", quoted(all)))
}

fn capabilities(pod: &Pod<'_>) -> Option<String> {
    Some(format!("non-default capabilities ({})", added(pod, &DEFAULT_CAPABILITIES)?))
}

fn dropped_capabilities(pod: &Pod<'_>) -> Option<String> {
    if pod.is_windows() {
        return None;
    }
    let keeps = |c: &Value| !list(c, &["securityContext", "capabilities", "drop"]).iter().any(|d| d == "ALL");
    let kept =
        pod.named(keeps).map(|who| format!("{who} must set securityContext.capabilities.drop=[\"ALL\"]"));
    let details: Vec<String> = kept.into_iter().chain(added(pod, &["NET_BIND_SERVICE"])).collect();
    (!details.is_empty()).then(|| format!("unrestricted capabilities ({})", details.join("; ")))
}

fn host_namespaces(pod: &Pod<'_>) -> Option<String> {
    let keys = ["hostNetwork", "hostPID", "hostIPC"].into_iter();
    let hosts: Vec<String> =
        keys.filter(|key| is_true(pod.spec, &[key])).map(|key| format!("{key}=true")).collect();
    (!hosts.is_empty()).then(|| format!("host namespaces ({})", hosts.join(", ")))
}

fn host_paths(pod: &Pod<'_>) -> Option<String> {
    let volumes = list(pod.spec, &["volumes"]).iter().filter(|v| at(v, &["hostPath"]).is_some());
    let names: Vec<&str> = volumes.map(|v| text(v, &["name"])).collect();
    let word = plural("volume", "volumes", names.len());
    (!names.is_empty()).then(|| format!("hostPath volumes ({word} {})", quoted(names)))
}

fn host_ports(pod: &Pod<'_>) -> Option<String> {
    let of = |c| list(c, &["ports"]).iter().map(|p| number(p, &["hostPort"])).filter(|port| *port != 0);
    let names = pod.names(|c| of(c).next().is_some());
    let ports: BTreeSet<String> = pod.containers().flat_map(of).map(|port| port.to_string()).collect();
    let ports: Vec<String> = ports.into_iter().collect();
    (!names.is_empty()).then(|| {
        let (verb, word) = (plural("uses", "use", names.len()), plural("hostPort", "hostPorts", ports.len()));
        format!("hostPort ({} {verb} {word} {})", who(&names), ports.join(", "))
    })
}

/// Where a container says to which host its probes and handlers go.
const HANDLERS: [&[&str]; 5] = [
    &["livenessProbe"],
    &["readinessProbe"],
    &["startupProbe"],
    &["lifecycle", "postStart"],
    &["lifecycle", "preStop"],
];

fn hosts_of_handlers(pod: &Pod<'_>) -> Option<String> {
    let of = |c| {
        let handlers = HANDLERS.iter().filter_map(move |path| at(c, path));
        let hosts = handlers.flat_map(|h| ["httpGet", "tcpSocket"].map(|kind| text(h, &[kind, "host"])));
        hosts.filter(|host| !host.is_empty())
    };
    let names: BTreeSet<&str> = pod.names(|c| of(c).next().is_some()).into_iter().collect();
    let names: Vec<&str> = names.into_iter().collect();
    let hosts: BTreeSet<&str> = pod.containers().flat_map(of).collect();
    (!names.is_empty()).then(|| {
        let verb = plural("uses", "use", names.len());
        let word = plural("probe or lifecycle host", "probe or lifecycle hosts", hosts.len());
        format!("probe or lifecycle host ({} {verb} {word} {})", who(&names), quoted(hosts))
    })
}

fn proc_mount(pod: &Pod<'_>) -> Option<String> {
    let of = |c| at(c, &["securityContext", "procMount"]).and_then(Value::as_str).filter(|m| *m != "Default");
    let who = pod.named(|c| of(c).is_some())?;
    let kinds: BTreeSet<&str> = pod.containers().filter_map(of).collect();
    Some(format!("procMount ({who} must not set securityContext.procMount to {})", quoted(kinds)))
}

fn se_linux(pod: &Pod<'_>) -> Option<String> {
    let fine = |kind: &str| {
        matches!(kind, "" | "container_t" | "container_init_t" | "container_kvm_t")
            || (pod.minor >= 31 && kind == "container_engine_t")
    };
    let bad = |v: &Value| {
        let option = |key| text(v, &["securityContext", "seLinuxOptions", key]);
        !fine(option("type")) || !option("user").is_empty() || !option("role").is_empty()
    };
    let setters = pod.setters(bad);
    if setters.is_empty() {
        return None;
    }
    let of = |key| pod.said(&["seLinuxOptions", key]);
    let mut told = Vec::new();
    let kinds: Vec<&str> = of("type").into_iter().filter(|kind| !fine(kind)).collect();
    if !kinds.is_empty() {
        told.push(format!("{} {}", plural("type", "types", kinds.len()), quoted(kinds)));
    }
    for key in ["user", "role"] {
        if of(key).iter().any(|value| !value.is_empty()) {
            told.push(format!("{key} may not be set"));
        }
    }
    let (setters, told) = (setters.join(" and "), told.join("; "));
    Some(format!("seLinuxOptions ({setters} set forbidden securityContext.seLinuxOptions: {told})"))
}

const SECCOMP_POD_NOTE: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_NOTE: &str = "container.seccomp.security.alpha.kubernetes.io/";

fn is_profile(kind: &str) -> bool {
    matches!(kind, "RuntimeDefault" | "Localhost")
}

fn has_profile(v: &Value) -> bool {
    at(v, &["securityContext", "seccompProfile"]).is_some_and(Value::is_object)
}

fn profile(v: &Value) -> &str {
    text(v, &["securityContext", "seccompProfile", "type"])
}

fn seccomp_baseline(pod: &Pod<'_>, restricted: bool) -> Option<String> {
    if pod.minor >= 19 {
        return if restricted { None } else { seccomp_set(pod) };
    }
    // Before the fields there were annotations.
    let note = |key: String| {
        let found = pod.annotations.and_then(|a| a.get(&key)).and_then(Value::as_str)?;
        let fine = matches!(found, "runtime/default" | "docker/default") || found.starts_with("localhost/");
        (!fine).then(|| format!("{key}={found:?}"))
    };
    let of = |c| format!("{SECCOMP_NOTE}{}", text(c, &["name"]));
    let keys = std::iter::once(SECCOMP_POD_NOTE.to_string()).chain(pod.containers().map(of));
    let found: BTreeSet<String> = keys.filter_map(note).collect();
    let found: Vec<String> = found.into_iter().collect();
    let word = plural("annotation", "annotations", found.len());
    (!found.is_empty()).then(|| format!("seccompProfile (forbidden {word} {})", found.join(", ")))
}

/// Profiles that are set and are none of the good ones.
fn seccomp_set(pod: &Pod<'_>) -> Option<String> {
    let setters = pod.setters(|v| has_profile(v) && !is_profile(profile(v)));
    let kinds = pod.said(&["seccompProfile", "type"]).into_iter().filter(|kind| !is_profile(kind));
    (!setters.is_empty()).then(|| {
        let setters = setters.join(" and ");
        format!(
            "seccompProfile ({setters} must not set securityContext.seccompProfile.type to {})",
            quoted(kinds)
        )
    })
}

fn seccomp_restricted(pod: &Pod<'_>) -> Option<String> {
    if pod.is_windows() {
        return None;
    }
    if let Some(set) = seccomp_set(pod) {
        return Some(set);
    }
    let of_pod = has_profile(pod.spec) && is_profile(profile(pod.spec));
    let who = pod.named(|c| !has_profile(c) && !of_pod)?;
    Some(format!(
        "seccompProfile (pod or {who} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")"
    ))
}

/// Safe sysctls, each with the version that allows it first.
const SAFE_SYSCTLS: [(&str, u16); 12] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
];

fn sysctls(pod: &Pod<'_>) -> Option<String> {
    let safe = |name: &str| SAFE_SYSCTLS.iter().any(|(known, since)| *known == name && pod.minor >= *since);
    let names = list(pod.spec, &["securityContext", "sysctls"]).iter().map(|s| text(s, &["name"]));
    let found: Vec<&str> = names.filter(|name| !safe(name)).collect();
    (!found.is_empty()).then(|| format!("forbidden sysctls ({})", found.join(", ")))
}

fn host_process(pod: &Pod<'_>) -> Option<String> {
    let setters = pod.setters(|v| is_true(v, &["securityContext", "windowsOptions", "hostProcess"]));
    (!setters.is_empty()).then(|| {
        format!(
            "hostProcess ({} must not set securityContext.windowsOptions.hostProcess=true)",
            setters.join(" and ")
        )
    })
}

fn escalation(pod: &Pod<'_>) -> Option<String> {
    if pod.is_windows() {
        return None;
    }
    let climbs =
        |c: &Value| at(c, &["securityContext", "allowPrivilegeEscalation"]) != Some(&Value::Bool(false));
    let who = pod.named(climbs)?;
    Some(format!(
        "allowPrivilegeEscalation != false ({who} must set securityContext.allowPrivilegeEscalation=false)"
    ))
}

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

fn volume_types(pod: &Pod<'_>) -> Option<String> {
    let (mut names, mut kinds) = (Vec::new(), BTreeSet::new());
    for volume in list(pod.spec, &["volumes"]) {
        let keys = || volume.as_object().into_iter().flat_map(|map| map.keys().map(String::as_str));
        if keys().any(|key| RESTRICTED_VOLUMES.contains(&key)) {
            continue;
        }
        names.push(text(volume, &["name"]));
        kinds.insert(keys().find(|key| *key != "name").unwrap_or("unknown"));
    }
    let n = names.len();
    (n > 0).then(|| {
        let (word, verb) = (plural("volume", "volumes", n), plural("uses", "use", n));
        let of = plural("restricted volume type", "restricted volume types", kinds.len());
        format!("restricted volume types ({word} {} {verb} {of} {})", quoted(names), quoted(kinds))
    })
}

fn non_root(pod: &Pod<'_>) -> Option<String> {
    let says = |v: &Value| at(v, &["securityContext", "runAsNonRoot"]).and_then(Value::as_bool);
    let setters = pod.setters(|v| says(v) == Some(false));
    if !setters.is_empty() {
        let setters = setters.join(" and ");
        return Some(format!(
            "runAsNonRoot != true ({setters} must not set securityContext.runAsNonRoot=false)"
        ));
    }
    let of_pod = says(pod.spec) == Some(true);
    let who = pod.named(|c| says(c).is_none() && !of_pod)?;
    Some(format!("runAsNonRoot != true (pod or {who} must set securityContext.runAsNonRoot=true)"))
}

fn user_zero(pod: &Pod<'_>) -> Option<String> {
    let zero = |v: &Value| at(v, &["securityContext", "runAsUser"]).and_then(Value::as_i64) == Some(0);
    let setters = pod.setters(zero);
    (!setters.is_empty()).then(|| format!("runAsUser=0 ({} must not set runAsUser=0)", setters.join(" and ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(spec: Value, restricted: bool, minor: u16) -> Vec<String> {
        violations(&Pod { annotations: None, spec: &spec, minor }, restricted)
    }

    #[test]
    fn older_versions_have_fewer_rules() {
        let spec = json!({"containers": [{"name": "c", "livenessProbe": {"httpGet": {"host": "a"}}}]});
        let says = "probe or lifecycle host (container \"c\" uses probe or lifecycle host \"a\")";
        assert_eq!(found(spec.clone(), false, NEWEST), [says]);
        assert!(found(spec, false, 33).is_empty());
        let spec = json!({"securityContext": {"runAsNonRoot": true}, "containers": [{"name": "c",
            "securityContext": {"allowPrivilegeEscalation": false}}]});
        assert!(found(spec.clone(), true, 0).is_empty());
        assert_eq!(found(spec, true, NEWEST).len(), 2, "capabilities and seccomp");
    }

    #[test]
    fn messages_name_what_is_set_and_by_whom() {
        let spec = json!({"securityContext": {"seLinuxOptions": {"type": "x", "user": "u"}},
            "containers": [{"name": "c", "ports": [{"hostPort": 81}, {"hostPort": 80}],
                "securityContext": {"appArmorProfile": {"type": "Unconfined"}, "capabilities": {"add": ["B", "A"]}}}]});
        assert_eq!(
            found(spec, false, NEWEST),
            [
                "forbidden AppArmor profile (container \"c\" must not set AppArmor profile type to \"Unconfined\")",
                "non-default capabilities (container \"c\" must not include \"A\", \"B\" in securityContext.capabilities.add)",
                "hostPort (container \"c\" uses hostPorts 80, 81)",
                "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"x\"; user may not be set)",
            ]
        );
    }
}
