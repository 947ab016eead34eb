//! Checks of containers: names, images, ports, environment, mounts, probes, resources.
//!
//! Inputs: containers of a pod or of a template. Source: the validation of Kubernetes 1.36.

use fleet_apiserver_schema::field::At;
use fleet_apiserver_schema::validate::{self, NameRule};
use fleet_resources::quantity;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What the checks of a container look up in its pod.
pub struct Pod<'a> {
    /// Names of the volumes.
    pub volumes: &'a BTreeSet<&'a str>,
    /// Names of the resource claims.
    pub claims: &'a BTreeSet<&'a str>,
    /// `spec.hostNetwork`.
    pub host_network: bool,
}

/// The list that a container is in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `containers`.
    Main,
    /// `initContainers`.
    Init,
    /// `ephemeralContainers`.
    Ephemeral,
}

/// Checks all containers of a pod's spec.
pub fn check_all(spec: &At, pod: &Pod<'_>) {
    let mut names = BTreeSet::new();
    let containers = spec.at("containers");
    containers.need();
    let mut ports = BTreeSet::new();
    let lists = [
        ("initContainers", Role::Init),
        ("containers", Role::Main),
        ("ephemeralContainers", Role::Ephemeral),
    ];
    for (list, role) in lists {
        for container in spec.at(list).items() {
            let name = container.at("name");
            if !name.text().is_empty() && !names.insert(name.text()) {
                name.duplicate();
            }
            check(&container, role, pod);
            if role == Role::Main {
                host_ports(&container, &mut ports);
            }
        }
    }
}

fn host_ports(container: &At, seen: &mut BTreeSet<(i64, String, String)>) {
    for port in container.at("ports").items() {
        let number = port.at("hostPort");
        let Some(n) = number.number().filter(|n| *n > 0) else { continue };
        let key = (n, port.at("protocol").text().to_string(), port.at("hostIP").text().to_string());
        if !seen.insert(key) {
            number.duplicate();
        }
    }
}

fn check(c: &At, role: Role, pod: &Pod<'_>) {
    c.at("name").need_name(NameRule::Label);
    let image = c.at("image");
    if image.text().is_empty() {
        image.required("");
    } else if image.text().trim() != image.text() {
        image.invalid("must not have leading or trailing whitespace");
    }
    c.at("imagePullPolicy").one_of(&["Always", "IfNotPresent", "Never"]);
    c.at("terminationMessagePolicy").one_of(&["FallbackToLogsOnError", "File"]);
    ports(c, pod.host_network);
    environment(c);
    mounts(c, pod);
    resources(&c.at("resources"));
    claims(c, pod);
    security(&c.at("securityContext"));
    resize(c);
    let restart = c.at("restartPolicy");
    restart.one_of(&["Always", "Never", "OnFailure"]);
    if role == Role::Ephemeral {
        for field in ["ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resources"] {
            let field = c.at(field);
            if !field.is_empty() {
                field.forbidden("cannot be set for an Ephemeral Container");
            }
        }
        return;
    }
    let sidecar = restart.text() == "Always";
    for probe in ["livenessProbe", "readinessProbe", "startupProbe", "lifecycle"] {
        let field = c.at(probe);
        if !field.is_set() {
            continue;
        }
        if role == Role::Init && !sidecar {
            field.forbidden("may not be set for init containers without restartPolicy=Always");
        } else if probe == "lifecycle" {
            for hook in ["postStart", "preStop"] {
                let hook = field.at(hook);
                if hook.is_set() {
                    handler(&hook);
                }
            }
        } else {
            check_probe(&field, probe);
        }
    }
}

fn check_probe(probe: &At, name: &str) {
    handler(probe);
    for field in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        probe.at(field).non_negative();
    }
    let grace = probe.at("terminationGracePeriodSeconds");
    grace.positive();
    if name == "readinessProbe" {
        if grace.is_set() {
            grace.invalid("must not be set for readinessProbes");
        }
        return;
    }
    let threshold = probe.at("successThreshold");
    if threshold.number().is_some_and(|n| n != 1 && n != 0) {
        threshold.invalid("must be 1");
    }
}

/// Exactly one way to ask a container.
fn handler(at: &At) {
    let mut found = 0;
    for kind in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let way = at.at(kind);
        if !way.is_set() {
            continue;
        }
        found += 1;
        if found > 1 {
            way.forbidden("may not specify more than 1 handler type");
            continue;
        }
        match kind {
            "exec" => {
                way.at("command").need();
            }
            "httpGet" => {
                let path = way.at("path");
                if path.text().is_empty() {
                    path.required("");
                }
                way.at("port").port_or_name();
                way.at("scheme").need_one_of(&["HTTP", "HTTPS"]);
                for header in way.at("httpHeaders").items() {
                    http_header(&header.at("name"));
                }
            }
            "tcpSocket" => way.at("port").port_or_name(),
            "grpc" => way.at("port").within(1..=65_535),
            _ => way.at("seconds").non_negative(),
        }
    }
    if found == 0 {
        at.required("must specify a handler type");
    }
}

fn http_header(name: &At) {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    if name.text().is_empty() || !name.text().bytes().all(plain) {
        name.invalid(
            "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')",
        );
    }
}

fn ports(c: &At, host_network: bool) {
    let ports = c.at("ports");
    ports.unique("name");
    for port in ports.items() {
        port.at("name").port_name();
        let (inside, outside) = (port.at("containerPort"), port.at("hostPort"));
        match inside.number() {
            None | Some(0) => inside.required(""),
            Some(_) => inside.port(),
        }
        if outside.number().is_some_and(|n| n != 0) {
            outside.port();
            if host_network && outside.number() != inside.number() {
                outside.invalid("must match `containerPort` when `hostNetwork` is true");
            }
        }
        port.at("protocol").one_of(&["SCTP", "TCP", "UDP"]);
        ip(&port.at("hostIP"));
    }
}

/// An address, if one is there.
pub fn ip(at: &At) {
    if !at.text().is_empty() && at.text().parse::<std::net::IpAddr>().is_err() {
        at.invalid("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
    }
}

/// What `fieldRef` may name in an environment variable.
const FIELDS: [&str; 8] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
];

fn environment(c: &At) {
    for variable in c.at("env").items() {
        let name = variable.at("name");
        if name.text().is_empty() {
            name.required("");
        } else {
            variable_name(&name);
        }
        let source = variable.at("valueFrom");
        if source.is_set() {
            source_of(&variable, &source);
        }
    }
    for source in c.at("envFrom").items() {
        let prefix = source.at("prefix");
        if !prefix.text().is_empty() {
            variable_name(&prefix);
        }
        let kinds = ["configMapRef", "secretRef"].map(|kind| source.at(kind));
        for kind in kinds.iter().filter(|k| k.is_set()) {
            kind.at("name").need_name(NameRule::Subdomain);
        }
        match kinds.iter().filter(|k| k.is_set()).count() {
            0 => empty(&c.at("envFrom"), "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => empty(&c.at("envFrom"), "may not have more than one field specified at a time"),
        }
    }
}

/// Notes a place whose value as a whole says nothing.
fn empty(at: &At, why: &str) {
    at.note(fleet_apiserver_schema::error::Cause::invalid(at.path(), &Value::String(String::new()), why));
}

fn variable_name(name: &At) {
    if !name.text().bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=') {
        name.invalid(
            "a valid environment variable name must consist only of printable ASCII characters other than '='",
        );
    }
}

fn source_of(variable: &At, source: &At) {
    if !variable.at("value").text().is_empty() {
        empty(source, "may not be specified when `value` is not empty");
    }
    let kinds = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
    let mut found = 0;
    for kind in kinds {
        let chosen = source.at(kind);
        if !chosen.is_set() {
            continue;
        }
        found += 1;
        match kind {
            "fieldRef" => field_ref(&chosen, true),
            "resourceFieldRef" => resource_ref(&chosen, false),
            "fileKeyRef" => {}
            _ => {
                chosen.at("name").need_name(NameRule::Subdomain);
                let key = chosen.at("key");
                if key.need() {
                    config_key(&key);
                }
            }
        }
    }
    match found {
        0 => empty(
            source,
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        ),
        1 => {}
        _ => empty(source, "may not have more than one field specified at a time"),
    }
}

/// A reference to a field of the pod itself: in the environment, or in a volume, where labels are a file of their own.
pub fn field_ref(at: &At, environment: bool) {
    at.at("apiVersion").need();
    let path = at.at("fieldPath");
    let text = path.text();
    if text.is_empty() {
        path.required("");
        return;
    }
    let subscript = ["metadata.labels['", "metadata.annotations['"]
        .iter()
        .find_map(|start| text.strip_prefix(start)?.strip_suffix("']"));
    if let Some(key) = subscript {
        path.qualified_as(key);
        return;
    }
    let known = match environment {
        true => FIELDS.contains(&text) || text == "status.podIPs",
        false => {
            ["metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations"]
                .contains(&text)
        }
    };
    if known {
        return;
    }
    // Names that are known, if not here; the rest are no fields of a pod at all.
    let known = matches!(
        text,
        "metadata.annotations"
            | "metadata.labels"
            | "spec.restartPolicy"
            | "spec.schedulerName"
            | "status.phase"
            | "status.nominatedNodeName"
            | "spec.hostNetwork"
    ) || FIELDS.contains(&text)
        || text == "status.podIPs";
    if !known {
        path.invalid(&format!("error converting fieldPath: field label not supported: {text}"));
    } else if environment {
        let mut allowed = FIELDS.to_vec();
        allowed.push("status.podIPs");
        path.unsupported(&allowed);
    } else {
        path.unsupported(&[
            "metadata.annotations",
            "metadata.labels",
            "metadata.name",
            "metadata.namespace",
            "metadata.uid",
        ]);
    }
}

/// A reference to what a container asks for.
pub fn resource_ref(at: &At, in_volume: bool) {
    if in_volume {
        at.at("containerName").need();
    }
    let resource = at.at("resource");
    const KNOWN: [&str; 6] = [
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
    ];
    if resource.text().is_empty() {
        resource.required("");
    } else if !resource.text().contains("hugepages-") {
        resource.one_of(&KNOWN);
    }
}

/// A key of a ConfigMap or Secret.
pub fn config_key(at: &At) {
    if let Some(why) = validate::config_key(at.text()) {
        at.invalid(why);
    }
}

fn mounts(c: &At, pod: &Pod<'_>) {
    let mut paths = BTreeSet::new();
    for mount in c.at("volumeMounts").items() {
        let (name, path) = (mount.at("name"), mount.at("mountPath"));
        if name.text().is_empty() {
            name.required("");
        } else if !pod.volumes.contains(name.text()) {
            name.not_found();
        }
        if path.text().is_empty() {
            path.required("");
        } else if !paths.insert(path.text()) {
            path.invalid("must be unique");
        }
        let (sub, expression) = (mount.at("subPath"), mount.at("subPathExpr"));
        // Told without the number of the mount.
        let mounts = c.at("volumeMounts");
        for (name, part) in [("subPath", &sub), ("subPathExpr", &expression)] {
            local_path(&mounts.beside(name, Some(part.value())));
        }
        if !sub.text().is_empty() && !expression.text().is_empty() {
            expression.invalid("subPathExpr and subPath are mutually exclusive");
        }
        mount.at("mountPropagation").one_of(&["Bidirectional", "HostToContainer", "None"]);
    }
    for device in c.at("volumeDevices").items() {
        let (name, path) = (device.at("name"), device.at("devicePath"));
        if name.text().is_empty() {
            name.required("");
        } else if !pod.volumes.contains(name.text()) {
            name.not_found();
        }
        if path.text().is_empty() {
            path.required("");
        } else if !paths.insert(path.text()) {
            path.invalid("must not already exist as a path in volumeMounts");
        }
    }
}

/// A path below something, if one is there.
pub fn local_path(at: &At) {
    if at.text().starts_with('/') {
        at.invalid("must be a relative path");
    } else if at.text().split('/').any(|part| part == "..") {
        at.invalid("must not contain '..'");
    }
}

/// Resources of which more may be used than was asked for: those without a domain, or with Kubernetes' own.
fn overcommits(name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    native && !name.starts_with("hugepages-")
}

/// Names a container may ask for without a domain.
fn is_standard(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-")
}

/// What is asked for is within the limits, and neither is negative.
pub fn resources(at: &At) {
    for (part, other) in [("limits", "requests"), ("requests", "limits")] {
        let (amounts, opposite) = (at.at(part), at.at(other));
        for (name, amount) in amounts.entries() {
            resource_name(&amount, name);
            amount.quantity();
            let text = amount.text();
            if !overcommits(name) && quantity::parse("cpu", text).is_ok_and(|milli| milli % 1000 != 0) {
                amount.invalid("must be an integer");
            }
            if part == "limits" {
                continue;
            }
            within_limit(&amounts, name, text, opposite.value().get(name));
        }
    }
}

fn resource_name(at: &At, name: &str) {
    if !validate::is_qualified(name) {
        at.note(fleet_apiserver_schema::error::Cause::invalid(at.path(), &name.into(), validate::QUALIFIED));
    } else if !name.contains('/') && !is_standard(name) {
        let why = "must be a standard resource type or fully qualified";
        at.note(fleet_apiserver_schema::error::Cause::invalid(at.path(), &name.into(), why));
        let why = "must be a standard resource for containers";
        at.note(fleet_apiserver_schema::error::Cause::invalid(at.path(), &name.into(), why));
    }
}

fn within_limit(requests: &At, name: &str, text: &str, limit: Option<&Value>) {
    let Some(limit) = limit.and_then(Value::as_str) else {
        if !overcommits(name) {
            let limits = requests.path().replace("requests", "limits");
            let why = "Limit must be set for non overcommitable resources";
            requests.note(fleet_apiserver_schema::error::Cause::required(limits, why));
        }
        return;
    };
    let amounts = (quantity::parse(name, text), quantity::parse(name, limit));
    let (Ok(asked), Ok(most)) = amounts else { return };
    let refuse = |why: String| {
        requests.note(fleet_apiserver_schema::error::Cause::invalid(requests.path(), &text.into(), &why));
    };
    if !overcommits(name) && asked != most {
        refuse(format!("must be equal to {name} limit of {limit}"));
    } else if asked > most {
        refuse(format!("must be less than or equal to {name} limit of {limit}"));
    }
}

fn claims(c: &At, pod: &Pod<'_>) {
    for claim in c.at("resources.claims").items() {
        let name = claim.at("name");
        if name.text().is_empty() {
            name.required("");
        } else if !pod.claims.contains(name.text()) {
            name.note(fleet_apiserver_schema::error::Cause::new(
                "FieldValueNotFound",
                name.path(),
                format!("Not found: {}", name.value()),
            ));
        }
    }
}

fn resize(c: &At) {
    let policies = c.at("resizePolicy");
    policies.unique("resourceName");
    for policy in policies.items() {
        policy.at("resourceName").need_one_of(&["cpu", "memory"]);
        policy.at("restartPolicy").need_one_of(&["NotRequired", "RestartContainer"]);
    }
}

/// Largest id of a user or group.
const LARGEST_ID: i64 = i32::MAX as i64;

fn security(at: &At) {
    for id in ["runAsUser", "runAsGroup"] {
        at.at(id).within(0..=LARGEST_ID);
    }
    at.at("procMount").one_of(&["Default", "Unmasked"]);
    let escalation = at.at("allowPrivilegeEscalation");
    if *escalation.value() == Value::Bool(false) {
        if at.at("privileged").is_true() {
            at.invalid("cannot set `allowPrivilegeEscalation` to false and `privileged` to true");
        }
        if at.at("capabilities.add").items().any(|c| c.text() == "CAP_SYS_ADMIN") {
            at.invalid("cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN");
        }
    }
    profile(&at.at("seccompProfile"), &["Localhost", "RuntimeDefault", "Unconfined"]);
    profile(&at.at("appArmorProfile"), &["Localhost", "RuntimeDefault", "Unconfined"]);
}

/// Checks what is common to the security contexts of pods and containers: a profile of the kernel.
pub fn profile(at: &At, kinds: &[&str]) {
    if !at.is_set() {
        return;
    }
    let (kind, local) = (at.at("type"), at.at("localhostProfile"));
    kind.need_one_of(kinds);
    match (kind.text(), local.text().is_empty()) {
        ("Localhost", true) => local.required("must be set when seccomp type is Localhost"),
        ("Localhost", false) => local_path(&local),
        (_, false) => local.invalid("can only be set when seccomp type is Localhost"),
        _ => {}
    }
}

/// Checks the security context of a whole pod.
pub fn pod_security(at: &At) {
    for id in ["runAsUser", "runAsGroup", "fsGroup"] {
        at.at(id).within(0..=LARGEST_ID);
    }
    for group in at.at("supplementalGroups").items() {
        group.within(0..=LARGEST_ID);
    }
    at.at("fsGroupChangePolicy").one_of(&["Always", "OnRootMismatch"]);
    at.at("supplementalGroupsPolicy").one_of(&["Merge", "Strict"]);
    profile(&at.at("seccompProfile"), &["Localhost", "RuntimeDefault", "Unconfined"]);
    profile(&at.at("appArmorProfile"), &["Localhost", "RuntimeDefault", "Unconfined"]);
    let mut names = BTreeMap::new();
    for sysctl in at.at("sysctls").items() {
        let name = sysctl.at("name");
        let plain =
            |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.' | b'/');
        if name.text().is_empty() {
            name.required("");
        } else if name.text().len() > 253 || !name.text().bytes().all(plain) {
            name.invalid("must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$");
        } else if names.insert(name.text(), ()).is_some() {
            name.duplicate();
        }
    }
}
