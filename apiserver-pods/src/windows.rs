//! Checks of what only Windows nodes read of a pod, and of what pods of each operating system may say.
//!
//! Inputs: a pod's spec in the stored form. Source: the validation of Kubernetes 1.36.

use super::names;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use serde_json::Value;

/// Largest credential spec, in KiB.
const SPEC_KIB: usize = 64;
/// The domain of a user is shorter than this.
const DOMAIN: usize = 256;
/// Longest name of a user, without its domain.
const USER: usize = 104;

/// Lists of containers, in the order in which they are visited.
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Checks `windowsOptions` of a pod or a container.
pub(crate) fn options(at: &At) {
    if !at.is_set() {
        return;
    }
    let (name, spec, user) =
        (at.at("gmsaCredentialSpecName"), at.at("gmsaCredentialSpec"), at.at("runAsUserName"));
    if name.is_set() {
        names::must_be_subdomain(&name);
    }
    if spec.is_set() && spec.text().is_empty() {
        spec.invalid("gmsaCredentialSpec cannot be an empty string");
    } else if spec.text().len() > SPEC_KIB * 1024 {
        spec.invalid(&format!("gmsaCredentialSpec size must be under {SPEC_KIB} KiB"));
    }
    if user.is_set() {
        user_name(&user);
    }
}

fn user_name(at: &At) {
    let text = at.text();
    let parts: Vec<&str> = text.split('\\').collect();
    if text.is_empty() {
        at.invalid("runAsUserName cannot be an empty string");
        return;
    }
    if text.bytes().any(|b| b.is_ascii_control()) {
        at.invalid("runAsUserName cannot contain control characters");
        return;
    }
    let (domain, user) = match parts.as_slice() {
        [user] => (None, *user),
        [domain, user] => (Some(*domain), *user),
        _ => {
            at.invalid("runAsUserName cannot contain more than one backslash");
            return;
        }
    };
    if let Some(domain) = domain {
        if domain.len() >= DOMAIN {
            at.invalid(&format!("runAsUserName's Domain length must be under {DOMAIN} characters"));
        }
        if !is_net_bios(domain) && !is_domain(domain) {
            at.invalid("runAsUserName's Domain doesn't match the NetBios nor the DNS format");
        }
    }
    if user.is_empty() {
        at.invalid("runAsUserName's User cannot be empty");
    } else if user.len() > USER {
        at.invalid(&format!("runAsUserName's User length must not be longer than {USER} characters"));
    }
    if !user.is_empty() && user.chars().all(|c| matches!(c, '.' | ' ')) {
        at.invalid("runAsUserName's User cannot contain only periods or spaces");
    }
    if user.contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']']) {
        at.invalid("runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]");
    }
}

fn is_net_bios(domain: &str) -> bool {
    let count = domain.chars().count();
    (1..=15).contains(&count)
        && !domain.starts_with('.')
        && !domain.contains(['\\', '/', ':', '*', '?', '"', '<', '>', '|'])
}

fn is_domain(domain: &str) -> bool {
    let edge = |b: &u8| b.is_ascii_alphanumeric();
    domain.split('.').all(|part| {
        let b = part.as_bytes();
        b.len() <= 63
            && b.first().is_some_and(edge)
            && b.last().is_some_and(edge)
            && b.iter().all(|c| edge(c) || *c == b'-')
    })
}

/// Checks that all containers run in the node's own processes, if one does, and that their pod shares its network.
pub(crate) fn host_processes(spec: &At) {
    let of_pod = spec.at("securityContext.windowsOptions.hostProcess").value().as_bool();
    let (mut all, mut in_host) = (0, 0);
    for list in LISTS {
        for c in spec.at(list).items() {
            all += 1;
            let own = c.at("securityContext.windowsOptions.hostProcess");
            let value = own.value().as_bool();
            if let (Some(of_pod), Some(value)) = (of_pod, value)
                && of_pod != value
            {
                own.invalid(&format!(
                    "pod hostProcess value must be identical if both are specified, was {of_pod}"
                ));
            }
            in_host += usize::from(value.or(of_pod) == Some(true));
        }
    }
    if in_host == 0 {
        return;
    }
    if in_host != all {
        let why =
            "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        names::tell_one(spec, "", why);
    }
    if !spec.at("hostNetwork").is_true() {
        let network = spec.at("hostNetwork");
        let shown = Value::Bool(false);
        let why = "hostNetwork must be true if pod contains any hostProcess containers";
        network.note(Cause::invalid(network.path(), &shown, why));
    }
}

/// Fields of a pod that mean nothing on Windows, in the order they are told: those of its security context are told there.
const OF_POD: [(&str, bool); 15] = [
    ("appArmorProfile", true),
    ("seLinuxOptions", true),
    ("hostUsers", false),
    ("hostPID", false),
    ("hostIPC", false),
    ("seccompProfile", true),
    ("fsGroup", true),
    ("fsGroupChangePolicy", true),
    ("sysctls", true),
    ("shareProcessNamespace", false),
    ("runAsUser", true),
    ("runAsGroup", true),
    ("supplementalGroups", true),
    ("supplementalGroupsPolicy", true),
    ("seLinuxChangePolicy", true),
];

/// Fields of a container's security context that mean nothing on Windows.
const OF_CONTAINER: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

/// Checks the operating system that a pod is for, and that nothing is said that is of another one.
pub(crate) fn operating_system(spec: &At) {
    let os = spec.at("os");
    if !os.is_set() {
        return;
    }
    let name = os.at("name");
    match name.text() {
        "" => name.required(""),
        "linux" => linux(spec),
        "windows" => windows(spec),
        // Told of the system as a whole.
        _ => spec.beside("os", Some(name.value())).unsupported(&["linux", "windows"]),
    }
}

fn linux(spec: &At) {
    const WHY: &str = "windows options cannot be set for a linux pod";
    let context = spec.at("securityContext");
    if context.at("windowsOptions").is_set() {
        context.at("windowsOptions").forbidden(WHY);
    }
    for list in LISTS {
        for c in spec.at(list).items() {
            let context = c.at("securityContext");
            if context.at("windowsOptions").is_set() {
                context.at("windowsOptions").forbidden(WHY);
            }
        }
    }
}

fn windows(spec: &At) {
    const WHY: &str = "cannot be set for a windows pod";
    let context = spec.at("securityContext");
    for (name, inside) in OF_POD {
        let field = if inside { context.at(name) } else { spec.at(name) };
        // The namespaces of a node are shared only where it says so; of other fields also false counts.
        let there = if matches!(name, "hostPID" | "hostIPC") { field.is_true() } else { field.is_set() };
        if there {
            field.forbidden(WHY);
        }
    }
    for list in LISTS {
        for c in spec.at(list).items() {
            let context = c.at("securityContext");
            for field in OF_CONTAINER {
                let field = context.at(field);
                if field.is_set() {
                    field.forbidden(WHY);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet_apiserver_schema::field::Causes;
    use serde_json::json;

    #[test]
    fn names_of_users() {
        let told = |name: &str| {
            let causes = Causes::default();
            let value = json!({"o": {"runAsUserName": name}});
            options(&At::root(&value, &causes).at("o"));
            causes.into_inner().len()
        };
        for good in ["user", "DOMAIN\\user", "a.example.com\\user name"] {
            assert_eq!(told(good), 0, "{good}");
        }
        for bad in ["", "a\\b\\c", "a\tb", "\\user", "D\\", "D\\.. ", "D\\a/b", ".D\\u"] {
            assert_eq!(told(bad), 1, "{bad}");
        }
    }

    #[test]
    fn what_a_system_does_not_know_is_refused() {
        let told = |spec: Value| {
            let causes = Causes::default();
            let value = json!({"spec": spec});
            operating_system(&At::root(&value, &causes).at("spec"));
            causes.into_inner().into_iter().map(|c| c.field).collect::<Vec<_>>()
        };
        let context = json!({"windowsOptions": {}, "runAsUser": 1});
        let spec = |os: &str| {
            json!({"os": {"name": os}, "hostUsers": true, "securityContext": context,
            "containers": [{"securityContext": context}]})
        };
        assert_eq!(
            told(spec("linux")),
            ["spec.securityContext.windowsOptions", "spec.containers[0].securityContext.windowsOptions"]
        );
        assert_eq!(
            told(spec("windows")),
            [
                "spec.hostUsers",
                "spec.securityContext.runAsUser",
                "spec.containers[0].securityContext.runAsUser"
            ]
        );
        assert_eq!(told(spec("plan9")), ["spec.os"]);
        assert_eq!(told(json!({"os": {"name": ""}})), ["spec.os.name"]);
    }
}
