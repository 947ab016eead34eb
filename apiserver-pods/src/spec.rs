//! Checks of a pod's spec, alone or in a template.
//!
//! Inputs: the spec in the stored form, defaults applied. Source: the validation of Kubernetes 1.36. Absent on purpose: what
//! only Windows nodes read.

use super::amounts;
use super::container::{self, Pod, ip};
use super::{placing, volume};
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use fleet_apiserver_schema::validate::NameRule;
use fleet_resources::{pod::is_of_whole_pod, quantity};
use serde_json::Value;
use std::collections::BTreeSet;

/// Longest time a pod may be given: what 32 bits hold.
const LONGEST_S: i64 = i32::MAX as i64;

/// Checks the spec of a pod; `spec` is its place.
pub fn check(spec: &At) {
    volume::check_all(spec);
    let lists = (spec.at("volumes"), spec.at("resourceClaims"));
    let volumes: BTreeSet<&str> = lists.0.items().map(|item| item.at("name").text()).collect();
    let claims: BTreeSet<&str> = lists.1.items().map(|item| item.at("name").text()).collect();
    let pod = Pod { volumes: &volumes, claims: &claims, host_network: spec.at("hostNetwork").is_true() };
    container::check_all(spec, &pod);
    container::resources(&spec.at("resources"));
    whole_pod(spec);
    own_users(spec);
    spec.at("restartPolicy").need_one_of(&["Always", "Never", "OnFailure"]);
    spec.at("preemptionPolicy").one_of(&["Never", "PreemptLowerPriority"]);
    spec.at("nodeSelector").labels();
    container::pod_security(&spec.at("securityContext"));
    placing::affinity(&spec.at("affinity"));
    placing::tolerations(&spec.at("tolerations"));
    placing::spread(&spec.at("topologySpreadConstraints"));
    network(spec);
    for name in ["serviceAccountName", "nodeName", "priorityClassName", "runtimeClassName"] {
        spec.at(name).name(NameRule::Subdomain);
    }
    spec.at("activeDeadlineSeconds").within(1..=LONGEST_S);
    let os = spec.at("os");
    if os.is_set() {
        os.at("name").need_one_of(&["linux", "windows"]);
    }
    for gate in spec.at("readinessGates").items() {
        gate.at("conditionType").qualified();
    }
    gates(spec);
    resource_claims(&lists.1);
    for secret in spec.at("imagePullSecrets").items() {
        secret.at("name").need();
    }
    if spec.at("shareProcessNamespace").is_true() && spec.at("hostPID").is_true() {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        spec.at("shareProcessNamespace").invalid(why);
    }
    let overhead = spec.at("overhead");
    overhead.entries().for_each(|(_, amount)| amount.quantity());
}

/// What all containers of a pod share is cpu, memory and huge pages. They request no more than the pod, and none has
/// a higher limit.
fn whole_pod(spec: &At) {
    let resources = spec.at("resources");
    let parse = |name: &str, value: &Value| quantity::parse(name, value.as_str()?).ok();
    for part in ["limits", "requests"] {
        for (name, amount) in resources.at(part).entries() {
            if !is_of_whole_pod(name) {
                let why = "must be a supported resource for pod level resources: cpu, memory, hugepages-*";
                amount.note(Cause::invalid(amount.path(), &Value::from(name), why));
            }
        }
    }
    let asked = amounts::of_containers(spec.value(), amounts::Part::Requests);
    for (name, amount) in resources.at("requests").entries() {
        let sum = asked.get(name);
        if is_of_whole_pod(name) && parse(name, amount.value()).is_some_and(|n| n < sum) {
            let sum = quantity::format(name, sum);
            amount
                .invalid(&format!("must be greater than or equal to aggregate container requests of {sum}"));
        }
    }
    let limits = resources.at("limits");
    for container in spec.at("containers").items() {
        for (name, amount) in container.at("resources").at("limits").entries() {
            let most = limits.value().get(name).unwrap_or(&Value::Null);
            if parse(name, amount.value()) > parse(name, most) && !most.is_null() {
                let most = most.as_str().unwrap_or_default();
                amount.invalid(&format!("must be less than or equal to pod limits of {most}"));
            }
        }
    }
    let claims = resources.at("claims");
    if !claims.is_empty() {
        claims.forbidden("claims may not be set for Resources at pod-level");
    }
}

/// A pod with users of its own shares no other namespace of the machine.
fn own_users(spec: &At) {
    if *spec.at("hostUsers").value() != Value::Bool(false) {
        return;
    }
    for key in ["hostNetwork", "hostPID", "hostIPC"] {
        if spec.at(key).is_true() {
            spec.at(key).forbidden("when `hostUsers` is false");
        }
    }
}

fn network(spec: &At) {
    let policy = spec.at("dnsPolicy");
    policy.need_one_of(&["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"]);
    let (config, servers) = (spec.at("dnsConfig"), spec.at("dnsConfig.nameservers"));
    if policy.text() == "None" && servers.is_empty() {
        let why = format!("must provide at least one DNS nameserver when `dnsPolicy` is {}", policy.text());
        if config.is_set() { servers.required(&why) } else { config.required(&why) }
    }
    if servers.len() > 3 {
        servers.invalid("must not have more than 3 nameservers");
    }
    servers.items().for_each(|server| ip(&server));
    let searches = spec.at("dnsConfig.searches");
    if searches.len() > 32 {
        searches.invalid("must not have more than 32 search paths");
    }
    for option in spec.at("dnsConfig.options").items() {
        option.at("name").need();
    }
    for name in ["hostname", "subdomain"] {
        spec.at(name).name(NameRule::Label);
    }
    for alias in spec.at("hostAliases").items() {
        let address = alias.at("ip");
        if address.text().is_empty() {
            address.invalid("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
        }
        ip(&address);
        alias.at("hostnames").items().for_each(|host| host.name(NameRule::Subdomain));
    }
}

fn gates(spec: &At) {
    let gates = spec.at("schedulingGates");
    let mut seen = BTreeSet::new();
    for gate in gates.items().filter(|gate| !seen.insert(gate.at("name").text())) {
        let message = format!("Duplicate value: {:?}", gate.at("name").text());
        gate.note(Cause::new("FieldValueDuplicate", gate.path(), message));
    }
    for gate in gates.items() {
        gate.at("name").qualified();
    }
}

fn resource_claims(claims: &At) {
    claims.unique("name");
    for claim in claims.items() {
        claim.at("name").need_name(NameRule::Label);
        let (named, template) = (claim.at("resourceClaimName"), claim.at("resourceClaimTemplateName"));
        match (named.is_set(), template.is_set()) {
            (true, true) => {
                claim.invalid(
                    "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
                );
            }
            (false, false) => {
                claim.invalid("must specify one of: `resourceClaimName`, `resourceClaimTemplateName`");
            }
            _ => {
                named.name(NameRule::Subdomain);
                template.name(NameRule::Subdomain);
            }
        }
    }
}

/// Checks a template of pods; `at` is its place.
pub fn template(at: &At) {
    at.at("metadata.labels").labels();
    let annotations = at.at("metadata.annotations");
    for (key, _) in annotations.entries() {
        if !fleet_apiserver_schema::validate::is_qualified(&key.to_lowercase()) {
            annotations.qualified_as(key);
        }
    }
    let ephemeral = at.at("spec.ephemeralContainers");
    if !ephemeral.is_empty() {
        ephemeral.forbidden("ephemeral containers not allowed in pod template");
    }
    let spec = at.at("spec");
    check(&spec);
}

/// A template of a controller that keeps its pods running.
pub fn lasting_template(at: &At, kind: &str) {
    let (policy, deadline) = (at.at("spec.restartPolicy"), at.at("spec.activeDeadlineSeconds"));
    if !policy.text().is_empty() && policy.text() != "Always" {
        policy.unsupported(&["Always"]);
    }
    if deadline.is_set() {
        deadline.forbidden(&format!("activeDeadlineSeconds in {kind} is not Supported"));
    }
}

/// The labels of a template are selected by the selector of its controller.
pub fn selected(selector: &At, template: &At) {
    // A selector that is not there selects nothing.
    let matches = |wanted: &Value| {
        let labels = fleet_apiserver_schema::selectors::Labels::from_object(wanted);
        labels.matches(template.value())
    };
    if !selector.is_set() || !matches(selector.value()) {
        template.at("metadata.labels").invalid("`selector` does not match template `labels`");
    }
}
