//! Checks of the security contexts of pods and of containers.
//!
//! Inputs: security contexts in the stored form. Source: the validation of Kubernetes 1.36. What only Windows nodes read
//! is in `windows`.

use super::{names, paths, windows};
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use serde_json::Value;
use std::collections::BTreeSet;

/// Largest id of a user or group.
const LARGEST_ID: i64 = i32::MAX as i64;

/// Longest name of a kernel parameter.
const LONGEST_SYSCTL: usize = 253;

/// Longest path that Linux knows, without the byte that ends it.
const LONGEST_PATH: usize = 4095;

/// A field as clients write it, as the real server shows it in messages, and what it shows of one that is not there.
struct Shown {
    json: &'static str,
    name: &'static str,
    zero: &'static str,
    inner: &'static [Shown],
}

const fn shown(json: &'static str, name: &'static str, zero: &'static str) -> Shown {
    Shown { json, name, zero, inner: &[] }
}

const fn nested(json: &'static str, name: &'static str, inner: &'static [Shown]) -> Shown {
    Shown { json, name, zero: "null", inner }
}

const PROFILE: &[Shown] =
    &[shown("type", "Type", "\"\""), shown("localhostProfile", "LocalhostProfile", "null")];

const CAPABILITIES: &[Shown] = &[shown("add", "Add", "null"), shown("drop", "Drop", "null")];

const SE_LINUX: &[Shown] = &[
    shown("user", "User", "\"\""),
    shown("role", "Role", "\"\""),
    shown("type", "Type", "\"\""),
    shown("level", "Level", "\"\""),
];

const WINDOWS: &[Shown] = &[
    shown("gmsaCredentialSpecName", "GMSACredentialSpecName", "null"),
    shown("gmsaCredentialSpec", "GMSACredentialSpec", "null"),
    shown("runAsUserName", "RunAsUserName", "null"),
    shown("hostProcess", "HostProcess", "null"),
];

const CONTEXT: &[Shown] = &[
    nested("capabilities", "Capabilities", CAPABILITIES),
    shown("privileged", "Privileged", "null"),
    nested("seLinuxOptions", "SELinuxOptions", SE_LINUX),
    nested("windowsOptions", "WindowsOptions", WINDOWS),
    shown("runAsUser", "RunAsUser", "null"),
    shown("runAsGroup", "RunAsGroup", "null"),
    shown("runAsNonRoot", "RunAsNonRoot", "null"),
    shown("readOnlyRootFilesystem", "ReadOnlyRootFilesystem", "null"),
    shown("allowPrivilegeEscalation", "AllowPrivilegeEscalation", "null"),
    shown("procMount", "ProcMount", "null"),
    nested("seccompProfile", "SeccompProfile", PROFILE),
    nested("appArmorProfile", "AppArmorProfile", PROFILE),
];

fn show(value: &Value, fields: &[Shown]) -> String {
    let one = |field: &Shown| {
        let text = match value.get(field.json).filter(|v| !v.is_null()) {
            None => field.zero.to_string(),
            Some(inner) if field.inner.is_empty() => inner.to_string(),
            Some(inner) => show(inner, field.inner),
        };
        format!("\"{}\":{text}", field.name)
    };
    let list: Vec<String> = fields.iter().map(one).collect();
    format!("{{{}}}", list.join(","))
}

/// Notes what is wrong with a value as a whole, in the form the real server shows it in.
fn whole(at: &At, value: &Value, fields: &[Shown], why: &str) {
    let message = format!("Invalid value: {}: {why}", show(value, fields));
    at.note(Cause::new("FieldValueInvalid", at.path(), message));
}

fn id(at: &At) {
    names::within(at, 0, LARGEST_ID);
}

/// Checks the security context of a container. `own_users` says that its pod does not share the users of its node.
pub(crate) fn of_container(at: &At, own_users: bool) {
    if !at.is_set() {
        return;
    }
    id(&at.at("runAsUser"));
    id(&at.at("runAsGroup"));
    let mount = at.at("procMount");
    names::if_set_one_of(&mount, &["Default", "Unmasked"]);
    if mount.text() == "Unmasked" && !own_users {
        mount.invalid("`hostUsers` must be false to use `Unmasked`");
    }
    seccomp(&at.at("seccompProfile"));
    if *at.at("allowPrivilegeEscalation").value() == Value::Bool(false) {
        if at.at("privileged").is_true() {
            let why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            whole(at, at.value(), CONTEXT, why);
        }
        let added = at.at("capabilities.add");
        for _ in added.items().filter(|added| added.text() == "CAP_SYS_ADMIN") {
            let why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            whole(at, at.value(), CONTEXT, why);
        }
    }
    windows::options(&at.at("windowsOptions"));
    app_armor(&at.at("appArmorProfile"));
}

/// Checks the security context of a whole pod.
pub(crate) fn of_pod(spec: &At) {
    let at = spec.at("securityContext");
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        id(&at.at(field));
    }
    at.at("supplementalGroups").items().for_each(|group| id(&group));
    let shares = spec.at("shareProcessNamespace");
    if shares.is_true() && spec.at("hostPID").is_true() {
        let place = at.beside("shareProcessNamespace", Some(shares.value()));
        place.invalid("ShareProcessNamespace and HostPID cannot both be enabled");
    }
    sysctls(spec, &at.at("sysctls"));
    names::if_set_one_of(&at.at("fsGroupChangePolicy"), &["Always", "OnRootMismatch"]);
    seccomp(&at.at("seccompProfile"));
    windows::options(&at.at("windowsOptions"));
    app_armor(&at.at("appArmorProfile"));
    names::if_set_one_of(&at.at("supplementalGroupsPolicy"), &["Merge", "Strict"]);
    // Other policies belong to a feature that is off in this version.
    names::if_set_one_of(&at.at("seLinuxChangePolicy"), &["Recursive"]);
}

fn seccomp(at: &At) {
    if !at.is_set() {
        return;
    }
    let (kind, local) = (at.at("type"), at.at("localhostProfile"));
    match kind.text() {
        "" => kind.required("type is required when seccompProfile is set"),
        _ => kind.one_of(&["Localhost", "RuntimeDefault", "Unconfined"]),
    }
    match (kind.text(), local.is_set()) {
        ("Localhost", false) => local.required("must be set when seccomp type is Localhost"),
        ("Localhost", true) => paths::local(&local, local.text()),
        (_, true) => whole(&local, at.value(), PROFILE, "can only be set when seccomp type is Localhost"),
        _ => {}
    }
}

/// Checks a profile of AppArmor, if one is there.
fn app_armor(at: &At) {
    const NEEDED: &str = "must be set when AppArmor type is Localhost";
    if !at.is_set() {
        return;
    }
    let (kind, local) = (at.at("type"), at.at("localhostProfile"));
    match kind.text() {
        "Localhost" if !local.is_set() => local.required(NEEDED),
        "Localhost" => {
            let text = local.text();
            if text.trim() != text {
                local.invalid("must not be padded with whitespace");
            } else if text.is_empty() {
                local.required(NEEDED);
            }
            if text.len() > LONGEST_PATH {
                local.too_long(LONGEST_PATH);
            }
        }
        "RuntimeDefault" | "Unconfined" => {
            if local.is_set() {
                local.invalid("can only be set when AppArmor type is Localhost");
            }
        }
        "" => kind.required("type is required when appArmorProfile is set"),
        _ => kind.unsupported(&["Localhost", "RuntimeDefault", "Unconfined"]),
    }
}

fn is_sysctl(name: &str) -> bool {
    let lower = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let part = |part: &str| {
        let b = part.as_bytes();
        b.first().is_some_and(lower)
            && b.last().is_some_and(lower)
            && b.iter().all(|c| lower(c) || matches!(*c, b'-' | b'_'))
    };
    name.len() <= LONGEST_SYSCTL && name.split(['.', '/']).all(part)
}

/// The namespace of the kernel that a parameter belongs to.
#[derive(PartialEq, Eq)]
enum Namespace {
    Network,
    Ipc,
    Other,
}

fn namespace(name: &str) -> Namespace {
    // The first separator tells which of the two ways it is written in.
    let slashes = name.find(['.', '/']).is_some_and(|at| name.as_bytes()[at] == b'/');
    let swap = |c: char| match c {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    let name: String = if slashes { name.chars().map(swap).collect() } else { name.to_string() };
    let name = name.split('*').next().unwrap_or_default();
    match name {
        "kernel.sem"
        | "kernel.shmall"
        | "kernel.shmmax"
        | "kernel.shmmni"
        | "kernel.shm_rmid_forced"
        | "kernel.shm"
        | "kernel.msgmax"
        | "kernel.msgmnb"
        | "kernel.msgmni"
        | "kernel.msg" => Namespace::Ipc,
        _ if name.starts_with("fs.mqueue.") => Namespace::Ipc,
        _ if name.starts_with("net.") => Namespace::Network,
        _ => Namespace::Other,
    }
}

fn sysctls(spec: &At, at: &At) {
    let mut seen = BTreeSet::new();
    for sysctl in at.items() {
        let name = sysctl.at("name");
        let text = name.text();
        if text.is_empty() {
            name.required("");
        } else if !is_sysctl(text) {
            name.invalid(
                "must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
            );
        } else if seen.contains(text) {
            names::duplicate(&name, text);
        }
        match namespace(text) {
            Namespace::Network if spec.at("hostNetwork").is_true() => {
                name.invalid("may not be specified when 'hostNetwork' is true");
            }
            Namespace::Ipc if spec.at("hostIPC").is_true() => {
                name.invalid("may not be specified when 'hostIPC' is true");
            }
            _ => {}
        }
        seen.insert(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet_apiserver_schema::field::Causes;
    use serde_json::json;

    #[test]
    fn a_context_is_shown_as_the_real_server_does() {
        let causes = Causes::default();
        let value = json!({"c": {"privileged": true, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}});
        of_container(&At::root(&value, &causes).at("c"), false);
        let found = causes.into_inner();
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].message,
            "Invalid value: {\"Capabilities\":{\"Add\":null,\"Drop\":[\"ALL\"]},\"Privileged\":true,\"SELinuxOptions\":null,\
             \"WindowsOptions\":null,\"RunAsUser\":null,\"RunAsGroup\":null,\"RunAsNonRoot\":null,\
             \"ReadOnlyRootFilesystem\":null,\"AllowPrivilegeEscalation\":false,\"ProcMount\":null,\
             \"SeccompProfile\":null,\"AppArmorProfile\":null}: cannot set `allowPrivilegeEscalation` to false and \
             `privileged` to true"
        );
    }

    #[test]
    fn parameters_of_the_kernel_belong_to_namespaces() {
        assert!(namespace("net/ipv4/conf/eno2.100/rp_filter") == Namespace::Network);
        assert!(
            namespace("kernel.shmmax") == Namespace::Ipc && namespace("fs.mqueue.msg_max") == Namespace::Ipc
        );
        assert!(namespace("netx.a") == Namespace::Other && namespace("vm.max_map_count") == Namespace::Other);
        assert!(is_sysctl("net.ipv4/a_b") && !is_sysctl("net..a") && !is_sysctl("Net"));
    }
}
