//! Checks of a pod's spec, alone or in a template.
//!
//! Inputs: the spec in the stored form, defaults applied. Source: the validation of Kubernetes 1.36. Causes come in the
//! order of the real server. Absent on purpose: what of a pod depends on its metadata (`annotations`).

use super::container::{self, Pod};
use super::volume::{self, Owner};
use super::{annotations, environment, names, network, placing, requirements, security, windows};
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use serde_json::Value;
use std::collections::BTreeSet;

/// Longest time a pod may be given: what 32 bits hold.
const LONGEST_S: i64 = i32::MAX as i64;

/// Checks the spec of a pod; `spec` is its place.
pub fn check(spec: &At) {
    // Only a pod has its spec at the top.
    let owner = if spec.path() == "spec" { Owner::Pod } else { Owner::Template };
    let volumes = volume::check_all(spec, owner);
    let list = spec.at("resourceClaims");
    let claims: BTreeSet<&str> =
        list.items().map(|claim| claim.at("name").text()).filter(|name| !name.is_empty()).collect();
    resource_claims(&list);
    let pod = Pod {
        volumes: &volumes,
        claims: &claims,
        grace: spec.at("terminationGracePeriodSeconds").number(),
        restart: spec.at("restartPolicy").text(),
        own_users: *spec.at("hostUsers").value() == Value::Bool(false),
    };
    container::check_all(spec, &pod);
    requirements::whole_pod(spec, &claims);
    container::shared_ports(spec, owner);
    names::need_one_of(&spec.at("restartPolicy"), &["Always", "OnFailure", "Never"]);
    names::need_one_of(
        &spec.at("dnsPolicy"),
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
    );
    names::labels(&spec.at("nodeSelector"));
    security::of_pod(spec);
    placing::affinity(&spec.at("affinity"));
    network::dns(spec);
    for gate in spec.at("readinessGates").items() {
        names::must_be_qualified(&gate.at("conditionType"));
    }
    gates(&spec.at("schedulingGates"));
    placing::spread(&spec.at("topologySpreadConstraints"));
    windows::host_processes(spec);
    network::own_users(spec);
    network::host_name(spec);
    names::may_be_subdomain(&spec.at("serviceAccountName"));
    names::may_be_subdomain(&spec.at("nodeName"));
    names::within(&spec.at("activeDeadlineSeconds"), 1, LONGEST_S);
    for field in ["hostname", "subdomain"] {
        let name = spec.at(field);
        if !name.text().is_empty() {
            names::must_be_label(&name);
        }
    }
    placing::tolerations(&spec.at("tolerations"));
    network::aliases(&spec.at("hostAliases"));
    names::may_be_subdomain(&spec.at("priorityClassName"));
    if spec.at("runtimeClassName").is_set() {
        names::must_be_subdomain(&spec.at("runtimeClassName"));
    }
    let preemption = spec.at("preemptionPolicy");
    if preemption.is_set() {
        names::need_one_of(&preemption, &["PreemptLowerPriority", "Never"]);
    }
    requirements::overhead(&spec.at("overhead"));
    windows::operating_system(spec);
    environment::file_volumes(spec);
    if owner == Owner::Pod {
        for list in ["containers", "initContainers"] {
            spec.at(list).items().for_each(|c| container::image_text(&c));
        }
    }
}

/// What holds a pod back. What is wrong with a name is told of the gate as a whole.
fn gates(gates: &At) {
    let mut seen = BTreeSet::new();
    for gate in gates.items() {
        let name = gate.at("name").text();
        names::tell(&gate, name, names::qualified(name));
        if !seen.insert(name) {
            names::duplicate(&gate, name);
        }
    }
}

fn resource_claims(claims: &At) {
    let mut seen = BTreeSet::new();
    for claim in claims.items() {
        let name = claim.at("name");
        if name.text().is_empty() {
            name.required("");
        } else if !seen.insert(name.text()) {
            names::duplicate(&name, name.text());
        } else {
            names::must_be_label(&name);
        }
        let (named, template) = (claim.at("resourceClaimName"), claim.at("resourceClaimTemplateName"));
        // The real server shows it in its own form.
        let wrong = |why: &str| {
            let message = format!(
                "Invalid value: {{\"Name\":{},\"ResourceClaimName\":{},\"ResourceClaimTemplateName\":{}}}: {why}",
                Value::from(name.text()),
                named.value(),
                template.value()
            );
            claim.note(Cause::new("FieldValueInvalid", claim.path(), message));
        };
        match (named.is_set(), template.is_set()) {
            (true, true) => {
                wrong("at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified");
            }
            (false, false) => wrong("must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
            _ => {}
        }
        for source in [&named, &template].into_iter().filter(|source| source.is_set()) {
            names::must_be_subdomain(source);
        }
    }
}

/// Checks a template of pods; `at` is its place. Its labels and annotations are told as if they were its own fields.
pub fn template(at: &At) {
    let (meta, spec) = (at.at("metadata"), at.at("spec"));
    let labels = at.beside("labels", Some(meta.at("labels").value()));
    let notes = at.beside("annotations", Some(meta.at("annotations").value()));
    names::labels(&labels);
    names::annotations(&notes);
    annotations::check(&notes, &spec);
    check(&spec);
    annotations::match_fields(&notes, &spec);
    let ephemeral = spec.at("ephemeralContainers");
    if !ephemeral.is_empty() {
        ephemeral.forbidden("ephemeral containers not allowed in pod template");
    }
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
