//! Checks of containers: names, images, ports, policies, and who may have what.
//!
//! Inputs: containers of a pod or of a template, in the stored form. Source: the validation of Kubernetes 1.36.

use super::mounts::{self, Volumes};
use super::requirements::{self, Asker};
use super::volume::Owner;
use super::{environment, handlers, names, security};
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use serde_json::Value;
use std::collections::BTreeSet;

/// What the checks of a container look up in its pod.
pub(crate) struct Pod<'a> {
    /// The volumes that are valid.
    pub volumes: &'a Volumes<'a>,
    /// Names of the resource claims.
    pub claims: &'a BTreeSet<&'a str>,
    /// Seconds the pod has to end.
    pub grace: Option<i64>,
    /// `spec.restartPolicy`.
    pub restart: &'a str,
    /// The pod does not share the users of its node.
    pub own_users: bool,
}

/// Ports of a node that are taken: protocol, address, number.
type Taken = BTreeSet<String>;

/// Most rules of restarting of a container.
const MOST_RULES: usize = 20;
/// Most exit codes in a rule.
const MOST_CODES: usize = 255;

const NOT_INIT: &str = "may not be set for init containers without restartPolicy=Always";
const NOT_EPHEMERAL: &str = "cannot be set for an Ephemeral Container";

/// Checks all containers of a pod's spec.
pub(crate) fn check_all(spec: &At, pod: &Pod<'_>) {
    let containers = spec.at("containers");
    if containers.is_empty() {
        containers.required("");
    }
    let mut main = BTreeSet::new();
    for c in containers.items() {
        common(&c, pod);
        let name = c.at("name");
        if !main.insert(name.text()) {
            names::duplicate(&name, name.text());
        }
        handlers::check(&c, pod.grace);
        restart_policy(&c);
    }
    let mut taken = Taken::new();
    for c in containers.items() {
        host_ports(&c.at("ports"), &mut taken);
    }
    let mut all = main;
    let init = spec.at("initContainers");
    for (i, c) in init.items().enumerate() {
        common(&c, pod);
        init_restart(&c);
        let name = c.at("name");
        if all.contains(name.text()) {
            names::duplicate(&name, name.text());
        } else if !name.text().is_empty() {
            all.insert(name.text());
        }
        // Each runs for itself; the real server always names the first.
        let first = init.items().next();
        let ports = c.at("ports");
        match first {
            Some(first) if i > 0 => {
                host_ports(&first.beside("ports", Some(ports.value())), &mut Taken::new())
            }
            _ => host_ports(&ports, &mut Taken::new()),
        }
        of_init(&c, pod);
    }
    ephemeral(spec, pod, all);
}

fn of_init(c: &At, pod: &Pod<'_>) {
    let sidecar = c.at("restartPolicy").text() == "Always";
    if sidecar {
        handlers::check(c, pod.grace);
        return;
    }
    for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
        if c.at(field).is_set() {
            c.at(field).forbidden(NOT_INIT);
        }
    }
    for policy in c.at("resizePolicy").items() {
        let restart = policy.at("restartPolicy");
        if restart.text() == "RestartContainer" {
            restart.invalid("must not be set to 'RestartContainer' for non-sidecar initContainers");
        }
    }
}

/// Containers for looking at a pod: they are no part of what it does. `others` are the names of all other containers.
fn ephemeral(spec: &At, pod: &Pod<'_>, others: BTreeSet<&str>) {
    let mut all = others.clone();
    for c in spec.at("ephemeralContainers").items() {
        common(&c, pod);
        image_text(&c);
        let (name, target) = (c.at("name"), c.at("targetContainerName"));
        if !all.insert(name.text()) {
            names::duplicate(&name, name.text());
        }
        if !target.text().is_empty() && !others.contains(target.text()) {
            environment::not_found(&target, target.text());
        }
        for field in [
            "ports",
            "resources",
            "resizePolicy",
            "restartPolicy",
            "restartPolicyRules",
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
            "lifecycle",
        ] {
            let value = c.at(field);
            let there = if field == "resources" { !value.is_empty() } else { value.is_set() };
            if there {
                value.forbidden(NOT_EPHEMERAL);
            }
        }
        for mount in c.at("volumeMounts").items() {
            for field in ["subPath", "subPathExpr"] {
                if !mount.at(field).text().is_empty() {
                    mount.at(field).forbidden(NOT_EPHEMERAL);
                }
            }
        }
    }
}

fn common(c: &At, pod: &Pod<'_>) {
    let name = c.at("name");
    if name.text().is_empty() {
        name.required("");
    } else {
        names::must_be_label(&name);
    }
    if c.at("image").text().is_empty() {
        c.at("image").required("");
    }
    names::need_one_of(&c.at("terminationMessagePolicy"), &["File", "FallbackToLogsOnError"]);
    ports(&c.at("ports"));
    environment::check(c);
    mounts::check(c, pod.volumes);
    names::need_one_of(&c.at("imagePullPolicy"), &["Always", "IfNotPresent", "Never"]);
    requirements::check(&c.at("resources"), pod.claims, Asker::Container);
    resize(&c.at("resizePolicy"), pod.restart);
    security::of_container(&c.at("securityContext"), pod.own_users);
}

/// In a pod, an image is not written with spaces around it; a template may use such a one as a place to be filled in.
pub(crate) fn image_text(c: &At) {
    let image = c.at("image");
    if image.text().trim() != image.text() {
        image.invalid("must not have leading or trailing whitespace");
    }
}

fn ports(ports: &At) {
    let mut seen = BTreeSet::new();
    for port in ports.items() {
        let (name, inside, outside) = (port.at("name"), port.at("containerPort"), port.at("hostPort"));
        if !name.text().is_empty() {
            let whys = names::port_name(name.text());
            if whys.is_empty() && !seen.insert(name.text()) {
                names::duplicate(&name, name.text());
            }
            names::tell(&name, name.text(), whys);
        }
        match inside.number() {
            None | Some(0) => inside.required(""),
            Some(n) => names::port_number(&inside, n),
        }
        if let Some(n) = outside.number().filter(|n| *n != 0) {
            names::port_number(&outside, n);
        }
        names::need_one_of(&port.at("protocol"), &["SCTP", "TCP", "UDP"]);
    }
}

fn host_ports(ports: &At, taken: &mut Taken) {
    for port in ports.items() {
        let number = port.at("hostPort");
        let Some(n) = number.number().filter(|n| *n != 0) else { continue };
        let key = format!("{}/{}/{n}", port.at("protocol").text(), port.at("hostIP").text());
        if taken.contains(&key) {
            names::duplicate(&number, &key);
        }
        taken.insert(key);
    }
}

/// In a pod that shares the network of its node, ports are those of the node. In a template they may be left out.
pub(crate) fn shared_ports(spec: &At, owner: Owner) {
    if !spec.at("hostNetwork").is_true() {
        return;
    }
    for c in spec.at("containers").items() {
        for port in c.at("ports").items() {
            let (outside, inside) = (port.at("hostPort"), port.at("containerPort"));
            let (number, wanted) = (outside.number().unwrap_or(0), inside.number().unwrap_or(0));
            if (owner == Owner::Pod || number != 0) && number != wanted {
                let why = "must match `containerPort` when `hostNetwork` is true";
                outside.note(Cause::invalid(outside.path(), &Value::from(number), why));
            }
        }
    }
}

/// What of a container may be resized, and whether it is started again then.
fn resize(policies: &At, restart: &str) {
    let mut seen = BTreeSet::new();
    for policy in policies.items() {
        let (resource, how) = (policy.at("resourceName"), policy.at("restartPolicy"));
        if !seen.insert(resource.text()) {
            names::duplicate(&policy, resource.text());
        }
        // The list as a whole is named, as the real server does.
        let told = |field: &At, allowed: &[&str]| match field.text() {
            "" => policies.required(""),
            text if allowed.contains(&text) => {}
            text => {
                let list: Vec<String> = allowed.iter().map(|word| format!("{word:?}")).collect();
                let shown = Value::from(text);
                let message = format!("Unsupported value: {shown}: supported values: {}", list.join(", "));
                policies.note(Cause::new("FieldValueNotSupported", policies.path(), message));
            }
        };
        told(&resource, &["cpu", "memory"]);
        told(&how, &["NotRequired", "RestartContainer"]);
        if restart == "Never" && how.text() != "NotRequired" {
            let why = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            names::tell_one(policies, how.text(), why);
        }
    }
}

fn init_restart(c: &At) {
    let (policy, rules) = (c.at("restartPolicy"), c.at("restartPolicyRules"));
    if policy.is_set() {
        restart_policy(c);
    } else if !rules.is_empty() {
        policy.required("must specify restartPolicy when restart rules are used");
    }
}

/// When a container is started again, by itself or by the codes it exits with.
fn restart_policy(c: &At) {
    let (policy, rules) = (c.at("restartPolicy"), c.at("restartPolicyRules"));
    if !policy.is_set() && !rules.is_empty() {
        policy.required("must specify restartPolicy when restart rules are used");
    }
    names::if_set_one_of(&policy, &["Always", "Never", "OnFailure"]);
    if rules.len() > MOST_RULES {
        rules.too_many(MOST_RULES);
    }
    for rule in rules.items() {
        let (action, codes) = (rule.at("action"), rule.at("exitCodes"));
        if !matches!(action.text(), "Restart" | "RestartAllContainers") {
            action.unsupported(&["Restart", "RestartAllContainers"]);
        }
        if !codes.is_set() {
            codes.required("must be specified");
            continue;
        }
        let (operator, values) = (codes.at("operator"), codes.at("values"));
        if !matches!(operator.text(), "In" | "NotIn") {
            operator.unsupported(&["In", "NotIn"]);
        }
        if values.len() > MOST_CODES {
            values.too_many(MOST_CODES);
        }
    }
}
