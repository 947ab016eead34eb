//! Disruption budgets, leases, runtime classes, roles and their bindings, requests for certificates.
//!
//! Inputs: decoded objects, defaults applied. Source: the validation of Kubernetes 1.36.

use super::{conditions, core_v1};
use fleet_apiserver_pods::placing;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::{At, Causes};
use fleet_apiserver_schema::validate::{self, NameRule};
use serde_json::{Value, json};
use std::cmp::Ordering;

/// Checks a PodDisruptionBudget.
pub fn budget(new: &At, subresource: &str) {
    if subresource == "status" {
        let status = new.at("status");
        conditions::check(&status.at("conditions"));
        for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
            status.at(field).non_negative();
        }
        return;
    }
    let spec = new.at("spec");
    let (least, most) = (spec.at("minAvailable"), spec.at("maxUnavailable"));
    if least.is_set() && most.is_set() {
        // Shown with the names of the internal type.
        let shown = format!(
            "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
            least.value(),
            spec.at("selector").value(),
            most.value(),
            spec.at("unhealthyPodEvictionPolicy").value(),
        );
        spec.wrong(&format!("{shown}: minAvailable and maxUnavailable cannot be both set"));
    }
    for bound in [&least, &most] {
        if !bound.is_set() {
            continue;
        }
        bound.count_or_percent();
        if bound.text().strip_suffix('%').and_then(|n| n.parse::<u64>().ok()).is_some_and(|n| n > 100) {
            bound.invalid("must not be greater than 100%");
        }
    }
    spec.at("selector").label_selector();
    spec.at("unhealthyPodEvictionPolicy").one_of(&["AlwaysAllow", "IfHealthyBudget"]);
}

/// Checks a Lease.
pub fn lease(new: &At) {
    let spec = new.at("spec");
    spec.at("leaseDurationSeconds").positive();
    spec.at("leaseTransitions").non_negative();
}

/// Checks a RuntimeClass.
pub fn runtime_class(new: &At, old: Option<&At>) {
    let handler = new.at("handler");
    handler.need_name(NameRule::Label);
    // Told where limits of a container would be.
    let overhead = new.at("overhead");
    let amounts = overhead.beside("limits", overhead.value().get("podFixed"));
    for (name, amount) in amounts.entries() {
        core_v1::resource_name(&amount, name, true);
        core_v1::quantity_value(&amount, name);
    }
    new.at("scheduling.nodeSelector").labels();
    let tolerations = new.at("scheduling.tolerations");
    placing::tolerations(&tolerations);
    unique_tolerations(&tolerations);
    if let Some(old) = old {
        handler.same_as(&old.at("handler"));
    }
}

/// No two tolerations of a class tolerate the same.
fn unique_tolerations(list: &At) {
    let mut seen = std::collections::BTreeSet::new();
    for item in list.items() {
        let text = |field: &str| item.at(field).text();
        let (key, operator, value, effect) = (text("key"), text("operator"), text("value"), text("effect"));
        if !seen.insert((key, operator, value, effect)) {
            let shown = |text: &str| Value::from(text).to_string();
            let message = format!(
                "Duplicate value: {{\"Key\":{},\"Operator\":{},\"Value\":{},\"Effect\":{},\"TolerationSeconds\":{}}}",
                shown(key),
                shown(operator),
                shown(value),
                shown(effect),
                item.at("tolerationSeconds").value(),
            );
            item.note(Cause::new("FieldValueDuplicate", item.path(), message));
        }
    }
}

/// Checks a Role or a ClusterRole.
pub fn role(new: &At, namespaced: bool) {
    for rule in new.at("rules").items() {
        let (verbs, urls) = (rule.at("verbs"), rule.at("nonResourceURLs"));
        let (groups, resources) = (rule.at("apiGroups"), rule.at("resources"));
        if verbs.is_empty() {
            verbs.required("verbs must contain at least one value");
        }
        if !urls.is_empty() {
            if namespaced {
                urls.invalid("namespaced rules cannot apply to non-resource URLs");
            }
            if !(groups.is_empty() && resources.is_empty() && rule.at("resourceNames").is_empty()) {
                urls.invalid("rules cannot apply to both regular resources and non-resource URLs");
            }
            continue;
        }
        if groups.is_empty() {
            groups.required("resource rules must supply at least one api group");
        }
        if resources.is_empty() {
            resources.required("resource rules must supply at least one resource");
        }
    }
    let aggregation = new.at("aggregationRule");
    if aggregation.is_set() {
        let selectors = aggregation.at("clusterRoleSelectors");
        if selectors.is_empty() {
            selectors.required("at least one clusterRoleSelector required if aggregationRule is non-nil");
        }
        for selector in selectors.items() {
            let found = Causes::default();
            At::root(selector.value(), &found).label_selector();
            let wrong = !found.into_inner().is_empty();
            selector.label_selector();
            if wrong {
                // Nothing of it is shown.
                selector.note(Cause::invalid(selector.path(), &Value::Null, "invalid label selector."));
            }
        }
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";

/// Checks a RoleBinding or a ClusterRoleBinding.
pub fn binding(new: &At, old: Option<&At>, namespaced: bool) {
    let role = new.at("roleRef");
    let (group, kind, name) = (role.at("apiGroup"), role.at("kind"), role.at("name"));
    if group.text() != RBAC {
        group.unsupported(&[RBAC]);
    }
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&kind.text()) {
        kind.unsupported(kinds);
    }
    name.need_name(NameRule::Path);
    for subject in new.at("subjects").items() {
        let (kind, group) = (subject.at("kind"), subject.at("apiGroup"));
        let (name, namespace) = (subject.at("name"), subject.at("namespace"));
        name.need();
        match kind.text() {
            "ServiceAccount" => {
                name.name(NameRule::Subdomain);
                if !group.text().is_empty() {
                    group.unsupported(&[""]);
                }
                if !namespaced && namespace.text().is_empty() {
                    namespace.required("");
                }
            }
            "User" | "Group" => {
                if group.text() != RBAC {
                    group.unsupported(&[RBAC]);
                }
            }
            _ => kind.unsupported(&["ServiceAccount", "User", "Group"]),
        }
    }
    if let Some(old) = old
        && old.at("roleRef").value() != role.value()
    {
        // Shown with the names of the internal type.
        let found = json!({"APIGroup": group.text(), "Kind": kind.text(), "Name": name.text()});
        role.note(Cause::invalid(role.path(), &found, "cannot change roleRef"));
    }
}

/// Checks a CertificateSigningRequest.
pub fn signing_request(new: &At, old: Option<&At>, subresource: &str) {
    let spec = new.at("spec");
    let (usages, signer) = (spec.at("usages"), spec.at("signerName"));
    if old.is_none() {
        request(&spec.at("request"));
        if usages.is_empty() {
            usages.required("");
        }
        usages_known(&usages);
        signer_name(&signer);
        let seconds = spec.at("expirationSeconds");
        if seconds.number().is_some_and(|n| n < 600) {
            seconds.invalid("may not specify a duration less than 600 seconds (10 minutes)");
        }
    }
    decisions(new, old, subresource);
    let (certificate, before) =
        (new.at("status.certificate"), old.map(|o| o.at("status.certificate").text()));
    let before = before.unwrap_or_default();
    if !before.is_empty() && certificate.text() != before {
        certificate.forbidden("updates may not modify existing certificate content");
    } else if before.is_empty()
        && !certificate.text().is_empty()
        && let Some(why) = certificate_problem(certificate.text())
    {
        certificate.note(Cause::invalid(certificate.path(), &json!("<certificate data>"), &why));
    }
}

/// Why a base64 text is no chain of certificates, or None.
fn certificate_problem(text: &str) -> Option<String> {
    use base64::Engine;
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default();
    let mut blocks = 0;
    for block in x509_parser::pem::Pem::iter_from_buffer(&bytes).map_while(Result::ok) {
        if block.label != "CERTIFICATE" {
            return Some(format!("only CERTIFICATE PEM blocks are allowed, found {:?}", block.label));
        }
        if let Err(e) = block.parse_x509() {
            return Some(e.to_string());
        }
        blocks += 1;
    }
    (blocks == 0).then(|| "must contain at least one CERTIFICATE PEM block".into())
}

fn request(at: &At) {
    use base64::Engine;
    use x509_parser::prelude::FromDer;
    let bytes = base64::engine::general_purpose::STANDARD.decode(at.text()).unwrap_or_default();
    let why = match x509_parser::pem::Pem::iter_from_buffer(&bytes).next() {
        Some(Ok(block)) if block.label == "CERTIFICATE REQUEST" => {
            match x509_parser::certification_request::X509CertificationRequest::from_der(&block.contents) {
                Ok(_) => return,
                Err(e) => e.to_string(),
            }
        }
        _ => "PEM block type must be CERTIFICATE REQUEST".to_string(),
    };
    at.invalid(&why);
}

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

fn usages_known(usages: &At) {
    let mut seen = std::collections::BTreeSet::new();
    for usage in usages.items() {
        if !USAGES.contains(&usage.text()) {
            usage.unsupported(&USAGES);
        } else if !seen.insert(usage.text()) {
            usage.duplicate();
        }
    }
}

/// Most characters of the domain of a signer.
const LONGEST_DOMAIN: usize = 253;
/// The domain, a slash, and a path with room for a namespace and a name.
const LONGEST_SIGNER: usize = LONGEST_DOMAIN + 1 + 253 + 63 + 1;

fn signer_name(signer: &At) {
    if signer.text().is_empty() {
        signer.required("");
        return;
    }
    if signer.text() == "kubernetes.io/legacy-unknown" {
        signer.invalid("the legacy signerName is not allowed via this API version");
        return;
    }
    let parts = signer.text().split_once('/').filter(|(_, path)| !path.contains('/'));
    let Some((domain, path)) = parts else {
        signer.invalid("must be a fully qualified domain and path of the form 'example.com/signer-name'");
        return;
    };
    let note = |part: &str, why: &str| signer.note(Cause::invalid(signer.path(), &json!(part), why));
    if domain.len() > LONGEST_DOMAIN {
        signer.too_long(LONGEST_DOMAIN);
    }
    // The first label that is wrong is enough of each part.
    let wrong = |part: &str, rule: NameRule| {
        let why =
            |label: &str| validate::name(rule, label).map(|why| format!("validating label {label:?}: {why}"));
        part.split('.').find_map(why)
    };
    if let Some(why) = wrong(domain, NameRule::Label) {
        note(domain, &why);
    }
    if !domain.contains('.') {
        note(domain, "should be a domain with at least two segments separated by dots");
    }
    if let Some(why) = wrong(path, NameRule::Subdomain) {
        note(path, &why);
    }
    if signer.text().len() > LONGEST_SIGNER {
        signer.too_long(LONGEST_SIGNER);
    }
}

fn decisions(new: &At, old: Option<&At>, subresource: &str) {
    let list = new.at("status.conditions");
    let decided = |at: &At| {
        let has = |kind: &str| at.items().any(|c| c.at("type").text() == kind);
        has("Approved") && has("Denied")
    };
    list.unique("type");
    let mut decision = None;
    for condition in list.items() {
        let (kind, status) = (condition.at("type"), condition.at("status"));
        kind.need();
        match kind.text() {
            "Approved" | "Denied" | "Failed" if !matches!(status.text(), "True" | "") => {
                status.unsupported(&["True"]);
            }
            _ => status.need_one_of(&["False", "True", "Unknown"]),
        }
        if matches!(kind.text(), "Approved" | "Denied")
            && *decision.get_or_insert(kind.text()) != kind.text()
            && old.is_none_or(|old| !decided(&old.at("status.conditions")))
        {
            let why = "Approved and Denied conditions are mutually exclusive";
            list.note(Cause::invalid(list.path(), kind.value(), why));
        }
    }
    if let Some(old) = old {
        kept_conditions(&list, &old.at("status.conditions"), subresource);
    }
}

/// What is decided stays decided, and only an approver decides.
fn kept_conditions(list: &At, before: &At, subresource: &str) {
    for kind in ["Approved", "Denied", "Failed"] {
        let (now, was) = (of_type(list, kind), of_type(before, kind));
        let done = match now.len().cmp(&was.len()) {
            Ordering::Less => "remove",
            _ if subresource != "status" || kind == "Failed" => continue,
            Ordering::Greater => "add",
            Ordering::Equal if now != was => "modify",
            Ordering::Equal => continue,
        };
        list.forbidden(&format!("updates may not {done} a condition of type {kind:?}"));
    }
}

/// The conditions of a type, without their times, which are the server's.
fn of_type(list: &At, kind: &str) -> Vec<Value> {
    let mut found = Vec::new();
    for condition in list.items().filter(|c| c.at("type").text() == kind) {
        let mut bare = condition.value().clone();
        for time in ["lastUpdateTime", "lastTransitionTime"] {
            fleet_apiserver_ground::tree::object(&mut bare).remove(time);
        }
        found.push(bare);
    }
    found
}
